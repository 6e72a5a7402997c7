"""A new process that opens caches by their paths, loads saved states and says what comes then.

One request a line on stdin, one reply a line on stdout, both JSON; see `answer`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import dataset_rt as drt


def answer(runtime: drt.DatasetRuntime, request: dict[str, Any]) -> dict[str, Any]:
    """Load `state` and deliver `windows` windows, to a rank if `shard` says so, in batches if `batch` does."""
    config = drt.ReaderConfig(**request["config"])
    dataset = runtime.cached_dataset(request["paths"], reader_config=config)
    if "weights" in request:
        table = dataset.get_metadata()
        weights = request["weights"]
        dataset.update_metadata(
            table.with_columns(weight=table["sample_id"].replace_strict(range(len(weights)), weights))
        )
    if "shard" in request:
        rank, world_size, remainder = request["shard"]
        dataset = dataset.shard(rank, world_size, remainder=remainder)
    dataset.load_state_dict(request["state"])
    reply: dict[str, Any] = {"position": dataset.position, "windows": []}
    for _ in range(request["windows"]):
        if "batch" in request:
            size, drop_last = request["batch"]
            batches = dataset.iter_batches(size, drop_last=drop_last)
            window = [sample for batch in batches for sample in batch.column("sample_id").to_pylist()]
        else:
            window = [sample.sample_id for sample in dataset]
        reply["windows"].append(window)
    reply["state"] = dataset.state_dict()
    return reply


def main() -> None:
    """Answer until stdin ends."""
    runtime = drt.DatasetRuntime(num_workers=2)
    for line in sys.stdin:
        print(json.dumps(answer(runtime, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
