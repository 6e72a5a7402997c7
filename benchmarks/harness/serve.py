"""The worker's end: makes a contender and answers one call a line. Uses the standard library alone.

Started by `worker.Worker` as `python -m harness.serve MODULE:CLASS ARGUMENTS`, ARGUMENTS being a JSON object of keyword
arguments. Each line of standard input is a call, `{"method": …, "arguments": {…}}`; each answer is a line of JSON,
`{"seconds": …, "value": …}` or `{"error": …}`.
"""

import gc
import importlib
import json
import os
import sys
import time
import traceback
from typing import Any


def answer(contender: object, request: dict[str, Any]) -> dict[str, Any]:
    """Make one call and time it; an exception is an answer too."""
    try:
        method = getattr(contender, request["method"])
        # What an earlier call left to collect is not this one's to pay for.
        gc.collect()
        begun = time.perf_counter()
        value = method(**request["arguments"])
        seconds = time.perf_counter() - begun
    except Exception:  # noqa: BLE001  (whatever a peer raises is reported and ends only that peer)
        return {"error": traceback.format_exc()}
    return {"seconds": seconds, "value": value}


def serve(target: str, arguments: dict[str, Any]) -> None:
    """Answer until standard input ends."""
    # Libraries print to standard output; the answers go out by a way of their own, and prints join standard error.
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)
        module, _, name = target.partition(":")
        try:
            contender = getattr(importlib.import_module(module), name)(**arguments)
        except Exception:  # noqa: BLE001
            print(json.dumps({"error": traceback.format_exc()}), file=answers, flush=True)
            return
        print(json.dumps({"seconds": 0.0, "value": None}), file=answers, flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(contender, json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1], json.loads(sys.argv[2]))
