"""One rank as a process of its own: opens caches by their paths, takes its share, and says what came.

Arguments: one JSON object; see `main`. The first sample's arrival is told by a line of its own.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import dataset_rt as drt


def bytes_read() -> int:
    """What this process has asked of the system by read calls so far, from any file, cached or not."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(counters["rchar"])


def main() -> None:
    """Take at most `stop_after` samples of each of `windows` windows, sleeping `sleep` seconds after each sample."""
    request = json.loads(sys.argv[1])
    runtime = drt.DatasetRuntime(num_workers=2)
    dataset = runtime.cached_dataset(request["paths"], reader_config=drt.ReaderConfig(**request["config"]))
    if "heavy" in request:
        table = dataset.get_metadata()
        dataset.update_metadata(table.with_columns(weight=1.0 + 9.0 * (table["label"] == request["heavy"])))
    dataset.set_epoch_len(request.get("epoch_len", len(dataset)))
    view = dataset.shard(request["rank"], request["world_size"], remainder=request.get("remainder", "extend"))
    before = bytes_read()
    windows = []
    for _ in range(request.get("windows", 1)):
        window: list[tuple[int, int]] = []
        windows.append(window)
        for sample in view:
            window.append((sample.cache_id, sample.sample_id))
            if len(window) == 1 and len(windows) == 1:
                print("begun", flush=True)
            time.sleep(request.get("sleep", 0))
            if len(window) == request.get("stop_after"):
                break
    state = view.state_dict()
    print(json.dumps({"windows": windows, "bytes": bytes_read() - before, "state": state}), flush=True)


if __name__ == "__main__":
    main()
