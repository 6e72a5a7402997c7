"""Reading and writing beside lmdb and a bare loop of system calls, all in one process and one run.

Prints Markdown. Every contender reads the same payloads; the rounds are interleaved, so that a slow spell of the
machine meets all of them. See README.md beside this file for what the columns mean.

    python benchmarks/read_write.py [--rounds N] [--scale FACTOR] [--folder FOLDER]
"""

import argparse
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import lmdb
import numpy as np
import numpy.typing as npt

import dataset_rt as drt

SEED = 20_240_229
# Payload size in bytes, and how many of them: both sets fit the page cache of a small machine.
CASES = ((1024, 200_000), (102_400, 4_000))
# A contender's name, in the order in which each round runs them.
OURS, LMDB, RAW = "dataset-rt", "lmdb", "raw"


@dataclass
class Payloads:
    """What is written: incompressible records, cut from one block so that making them costs nothing while timed."""

    size: int
    count: int

    def __post_init__(self) -> None:
        """Make a block that no two records take the same piece of."""
        self.block = np.random.default_rng(SEED).bytes(self.size + self.count)

    def __iter__(self) -> Iterator[bytes]:
        """Give the records in order; each begins one byte later in the block than the one before."""
        for start in range(self.count):
            yield self.block[start : start + self.size]


class Source:
    """The payloads as a source of dataset-rt."""

    name = "payloads"

    def __init__(self, payloads: Payloads) -> None:
        self.payloads = payloads

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Give each payload with one metadata value."""
        for number, payload in enumerate(self.payloads):
            yield drt.CacheInput(payload, {"number": number})


class Ours:
    """dataset-rt with its defaults: every read is verified."""

    def __init__(self, folder: Path, payloads: Payloads) -> None:
        self.folder = folder / "ours"
        self.payloads = payloads
        self.runtime = drt.DatasetRuntime()
        self.datasets: dict[bool, drt.CachedDataset] = {}

    def write(self) -> None:
        """Write the cache anew, up to its publication on disk."""
        config = drt.WriterConfig(show_progress=False)
        (result,) = self.runtime.write_cache(Source(self.payloads), self.folder, writer_config=config)
        if not isinstance(result, drt.CacheWriteSuccess):
            raise result.error

    def open(self, order: npt.NDArray[np.int64]) -> None:
        """Open the cache twice, ordered and shuffled; the draws are its own, `order` is for the others."""
        del order
        for shuffle in (False, True):
            config = drt.ReaderConfig(seed=SEED, shuffle=shuffle)
            self.datasets[shuffle] = self.runtime.cached_dataset([self.folder / Source.name], reader_config=config)

    def read(self, *, shuffled: bool) -> int:
        """Read one epoch; looking at a payload's first byte is the least that a user does with it."""
        total = 0
        for sample in self.datasets[shuffled]:
            total += sample.data[0]
        return total


class Lmdb:
    """lmdb as its documentation makes it fastest: one transaction, a cursor in order, `get` for known keys."""

    def __init__(self, folder: Path, payloads: Payloads) -> None:
        self.folder = folder / "lmdb"
        self.payloads = payloads
        self.keys: list[bytes] = []

    def environment(self, **options: Any) -> lmdb.Environment:
        """Open the environment with room for the payloads."""
        room = 2 * (self.payloads.size + 4096) * self.payloads.count
        return lmdb.open(str(self.folder), map_size=room, subdir=True, lock=False, **options)

    def write(self) -> None:
        """Write everything in one transaction of ascending keys, synced when it commits."""
        with self.environment() as environment, environment.begin(write=True) as transaction:
            for number, payload in enumerate(self.payloads):
                transaction.put(number.to_bytes(8, "big"), payload, append=True)

    def open(self, order: npt.NDArray[np.int64]) -> None:
        """Open for reading; the keys of the shuffled epoch are made beforehand."""
        self.keys = [int(number).to_bytes(8, "big") for number in order]
        self.transaction = self.environment(readonly=True).begin()

    def read(self, *, shuffled: bool) -> int:
        """Read one epoch."""
        total = 0
        if shuffled:
            # The cast only tells the type checker that every key is there; it costs the loop nothing.
            get = cast("Callable[[bytes], bytes]", self.transaction.get)
            for key in self.keys:
                total += get(key)[0]
        else:
            for payload in self.transaction.cursor().iternext(keys=False, values=True):
                total += payload[0]
        return total


class Raw:
    """No store at all: one file, records of one size, `write` and `os.pread` in a bare loop. A limit, not a peer."""

    def __init__(self, folder: Path, payloads: Payloads) -> None:
        self.folder = folder / "raw"
        self.payloads = payloads
        self.offsets: dict[bool, list[int]] = {}

    def write(self) -> None:
        """Write the file and sync it once."""
        self.folder.mkdir(parents=True)
        with (self.folder / "records").open("wb", buffering=0) as file:
            for payload in self.payloads:
                file.write(payload)
            os.fsync(file.fileno())

    def open(self, order: npt.NDArray[np.int64]) -> None:
        """Open the file; all offsets are computed beforehand."""
        size = self.payloads.size
        self.offsets = {
            False: [number * size for number in range(self.payloads.count)],
            True: [int(number) * size for number in order],
        }
        self.descriptor = os.open(self.folder / "records", os.O_RDONLY)

    def read(self, *, shuffled: bool) -> int:
        """Read one epoch."""
        total = 0
        pread, descriptor, size = os.pread, self.descriptor, self.payloads.size
        for offset in self.offsets[shuffled]:
            total += pread(descriptor, size, offset)[0]
        return total


def seconds(action: Callable[[], object]) -> float:
    """Time one call."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


def measure(size: int, count: int, rounds: int, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Give samples per second by operation and contender, one figure a round."""
    payloads = Payloads(size, count)
    # With replacement, as ours draws: the others meet repeated and missing records alike.
    order = np.random.default_rng(SEED).integers(0, count, count)
    contenders: dict[str, Ours | Lmdb | Raw] = {
        OURS: Ours(folder, payloads),
        LMDB: Lmdb(folder, payloads),
        RAW: Raw(folder, payloads),
    }
    rates: dict[str, dict[str, list[float]]] = {
        operation: {name: [] for name in contenders} for operation in ("write", "ordered", "shuffled")
    }
    for _ in range(rounds):
        for name, contender in contenders.items():
            shutil.rmtree(contender.folder, ignore_errors=True)
            # What earlier writes left in the page cache is not this one's to wait for.
            os.sync()
            rates["write"][name].append(count / seconds(contender.write))
    for contender in contenders.values():
        contender.open(order)
    ordered_sums = {contender.read(shuffled=False) for contender in contenders.values()}
    if len(ordered_sums) != 1:
        raise RuntimeError("the contenders did not read the same payloads")
    for contender in contenders.values():
        contender.read(shuffled=True)
    for _ in range(rounds):
        for operation, shuffled in (("ordered", False), ("shuffled", True)):
            for name, contender in contenders.items():
                elapsed = seconds(lambda reader=contender, mode=shuffled: reader.read(shuffled=mode))  # type: ignore[misc]
                rates[operation][name].append(count / elapsed)
    return rates


def thousands(rates: list[float]) -> str:
    """Print the median of some rates."""
    return f"{statistics.median(rates) / 1000:,.1f}k"


def ratio(ours: list[float], theirs: list[float]) -> str:
    """Print how many times as fast ours was in the same round: median, and the range over the rounds."""
    quotients = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    return f"{statistics.median(quotients):.2f} ({min(quotients):.2f} to {max(quotients):.2f})"


def machine() -> str:
    """Name the machine and the versions."""
    processor = platform.processor() or platform.machine()
    information = Path("/proc/cpuinfo")
    if information.exists():
        names = [line for line in information.read_text().splitlines() if line.startswith("model name")]
        processor = names[0].partition(":")[2].strip() if names else processor
    packages = ", ".join(f"{name} {version(name)}" for name in ("dataset-rt", "lmdb", "numpy"))
    return (
        f"{len(os.sched_getaffinity(0))} cores of {processor}, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, {packages}"
    )


def main() -> None:
    """Measure every case and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="how often everything is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of records")
    parser.add_argument("--folder", type=Path, help="where the files go; a temporary folder if left out")
    arguments = parser.parse_args()

    print(f"{machine()}; page cache warm, {arguments.rounds} interleaved rounds, medians of samples/s.\n")
    print("| payload | operation | dataset-rt | lmdb | raw | ours / lmdb | ours / raw |")
    print("|---|---|---|---|---|---|---|")
    for size, full_count in CASES:
        count = max(1, int(full_count * arguments.scale))
        with tempfile.TemporaryDirectory(dir=arguments.folder, prefix="dataset-rt-bench-") as temporary:
            rates = measure(size, count, arguments.rounds, Path(temporary))
        for operation, by_name in rates.items():
            figures = " | ".join(thousands(by_name[name]) for name in (OURS, LMDB, RAW))
            ratios = " | ".join(ratio(by_name[OURS], by_name[name]) for name in (LMDB, RAW))
            print(f"| {size / 1024:.0f} KiB | {operation} | {figures} | {ratios} |", flush=True)


if __name__ == "__main__":
    main()
