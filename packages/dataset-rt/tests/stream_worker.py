"""A child that gets a pickled stream, in a process where Polars cannot be used, and says what it delivers.

As a program: `stream_worker.py METHOD FILE` unpickles the list of streams in FILE, hands it to a child started by
METHOD, and prints what the child and this process found.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import pickle
import sys
from pathlib import Path
from typing import Any

import dataset_rt as drt

POSITIONS = [0, 1, 40, 3, 2**64 - 1, 3]


class Unusable:
    """Stands for Polars: any use is an error."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"polars.{name} was used")


def describe(stream: drt.SampleStream) -> dict[str, Any]:
    """Everything that a stream delivers, for JSON."""
    batch = stream.fetch_batch(POSITIONS)
    return {
        "repr": repr(stream),
        "rows": stream.rows(0, 100).tolist(),
        "records": stream.records(0, 100).tolist(),
        "digest": stream.order_digest(0, 100),
        "samples": [
            [sample.data.decode(), sample.metadata, sample.cache_id, sample.sample_id]
            for sample in stream.fetch(POSITIONS)
        ],
        "batch": [batch.column(name).to_pylist() for name in ("cache_id", "sample_id", "label")],
        "one": stream[7].sample_id,
        "by_record": [sample.sample_id for sample in stream.fetch_records(stream.records(0, 9))],
    }


def child(streams: list[drt.SampleStream], connection: Any) -> None:
    """Deliver without Polars."""
    faulthandler.dump_traceback_later(20, exit=True)
    sys.modules["polars"] = Unusable()  # type: ignore[assignment]
    for name, module in list(sys.modules.items()):
        if name.startswith("dataset_rt.") and hasattr(module, "pl"):
            module.pl = Unusable()  # type: ignore[attr-defined]
    connection.send(list(map(describe, streams)))
    connection.close()


def main() -> None:
    """Compare a child with this process."""
    method, file = sys.argv[1:]
    streams = pickle.loads(Path(file).read_bytes())
    context = multiprocessing.get_context(method)
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=child, args=(streams, sender))
    process.start()
    sender.close()
    there = receiver.recv()
    process.join()
    assert process.exitcode == 0
    print(json.dumps({"here": list(map(describe, streams)), "child": there}))


if __name__ == "__main__":
    main()
