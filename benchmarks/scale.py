"""Ten million samples: opening, editing the table, drawing, resuming, and the memory of each.

Prints Markdown. Each figure stands beside the bound that it must keep; memory is private memory (RssAnon), which leaves
the page cache out.

    python benchmarks/scale.py [--samples N] [--folder FOLDER]
"""

import argparse
import os
import pickle
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import polars as pl

import dataset_rt as drt

MIB = 1 << 20
SEED = 7
QUIET = drt.WriterConfig(show_progress=False)


class Rows:
    """Samples of one payload size with three stored columns: int, float and string."""

    def __init__(self, name: str, count: int, payload_bytes: int) -> None:
        self.name = name
        self.count = count
        self.payload = bytes(payload_bytes)

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield all of them."""
        for number in range(self.count):
            split = "valid" if number % 7 == 0 else "train"
            yield drt.CacheInput(self.payload, {"label": number % 1000, "score": number * 0.5, "split": split})


def private_bytes() -> int:
    """RssAnon of this process."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


class Report:
    """Collects rows of the table."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def timed(self, what: str, bound: str, call: Callable[[], Any], *, repeat: int = 3, memory: bool = False) -> Any:
        """Run a call a few times, note its fastest time and what it left allocated the first time."""
        before, result, times, growth = private_bytes(), None, [], 0
        for turn in range(repeat):
            result = None
            begun = time.perf_counter()
            result = call()
            times.append(time.perf_counter() - begun)
            if turn == 0:
                growth = private_bytes() - before
        shown = f"{min(times) * 1000:,.2f} ms"
        if memory:
            shown += f", {growth / MIB:+.1f} MiB"
        self.note(what, bound, shown)
        return result

    def note(self, what: str, bound: str, shown: str) -> None:
        """Add a row."""
        self.rows.append((what, bound, shown))
        print(f"  {what}: {shown} (bound: {bound})", flush=True)


def write(runtime: drt.DatasetRuntime, source: Rows, folder: Path) -> Path:
    """Write a cache, or find it."""
    config = drt.ReaderConfig()
    result = runtime.from_cache_sources(source, folder, reader_config=config, writer_config=QUIET)
    result.unwrap()
    return folder / source.name


def drain(dataset: drt.CachedDataset) -> int:
    """Iterate one epoch, looking at each payload."""
    total = 0
    for sample in dataset:
        total += len(sample.data)
    return total


def measure(samples: int, folder: Path) -> Report:
    """Take all figures."""
    report = Report()
    runtime = drt.DatasetRuntime()
    reader = drt.ReaderConfig(seed=SEED)
    begun = time.perf_counter()
    path = write(runtime, Rows("rows_of_64_bytes", samples, 64), folder)
    report.note(f"write {samples:,} samples of 64 B", "none", f"{time.perf_counter() - begun:.1f} s")

    def open_cache() -> drt.CachedDataset:
        return runtime.cached_dataset(path, reader_config=reader)

    dataset = report.timed("open", "50 ms, 30 MiB", open_cache, memory=True)
    small = write(runtime, Rows("small", 100_000, 1), folder)
    large = write(runtime, Rows("large", 100_000, 100 << 10), folder)
    for name, opened in (("1 B", small), ("100 KiB", large)):
        report.timed(
            f"open 100,000 samples of {name}",
            "equal for both sizes",
            partial(runtime.cached_dataset, opened, reader_config=reader),
            repeat=20,
        )
    report.timed("first state of an unedited table (digest)", "once", open_cache().state_dict, repeat=1)
    pickled = pickle.dumps(open_cache().stream())
    report.note("a pickled stream of an unedited table", "16 KiB", f"{len(pickled)} bytes")
    report.timed("unpickle it", "none", lambda: pickle.loads(pickled))
    before = private_bytes()
    begun = time.perf_counter()
    drain(dataset)
    seconds = time.perf_counter() - begun
    growth = (private_bytes() - before) / MIB
    report.note(f"an epoch of {samples:,} draws", "20 MiB", f"{growth:+.1f} MiB, {samples / seconds:,.0f} samples/s")
    table = dataset.get_metadata().sample(fraction=1.0, shuffle=True, seed=SEED)
    report.timed("update_metadata, rows shuffled", "1,500 ms", lambda: dataset.update_metadata(table))
    weighted = table.with_columns(weight=(1.0 + pl.col("label") % 5) / pl.len().over("label"))
    report.timed("update_metadata, rows shuffled, weights", "1,500 ms", lambda: dataset.update_metadata(weighted))
    report.timed("state_dict of the edited table", "1 ms", dataset.state_dict, repeat=20)
    stream = dataset.stream()
    held = stream._core.weight_bytes / samples
    report.note("memory of the weights", "16 bytes a row", f"{held:.1f} bytes a row")
    draws = 5_000_000
    begun = time.perf_counter()
    stream.rows(0, draws)
    seconds = time.perf_counter() - begun
    report.note("weighted draws, one thread", "5,000,000 a second", f"{draws / seconds:,.0f} a second")
    state = {**dataset.state_dict(), "position": 10**15, "window": None}
    report.timed("load_state_dict at position 10^15", "1 ms", lambda: dataset.load_state_dict(state), repeat=20)
    report.timed("first sample there", "none", lambda: next(iter(dataset)), repeat=1)
    return report


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=10_000_000)
    parser.add_argument(
        "--folder", type=Path, help="where the caches are written (and kept); a temporary folder if absent"
    )
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp(prefix="dataset-rt-scale-"))
    try:
        report = measure(arguments.samples, folder)
    finally:
        if arguments.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    versions = ", ".join(f"{name} {version(name)}" for name in ("dataset-rt", "polars"))
    print(f"\n{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}, {versions}.\n")
    print(f"| {arguments.samples:,} samples, three stored columns | bound | measured |\n|---|---|---|")
    for row in report.rows:
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main()
