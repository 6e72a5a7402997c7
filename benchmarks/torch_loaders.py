"""DataLoaders beside each other: shuffled, into one uint8 tensor [256, size] a batch, in the same loop.

    nox -s "loaders(adapter='torch')"                              # everything, each contender in its environment
    nox -s "loaders(adapter='torch')" -- --rounds 1 --scale 0.1    # a short look

Each contender stores the payloads once and then serves one epoch a round, with 0 and with 2 persistent workers. It is
used by its fastest documented way; one whose shuffle is by chunks or buffers is asked for no more than that.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness.environments import Environment, EnvironmentMissing, core_wheel, installed_version
from harness.machine import machine_line
from harness.paths import DIST
from harness.payloads import RandomPayloads, payloads_of
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import figures_table, ratios_table, troubles, update_section
from harness.worker import Worker, WorkerError

PART = "torch-loaders"
OURS = "dataset-rt"
BATCH = 256
WORKERS = (0, 2)
CASES = (("1 KiB", 1024, 100_000), ("100 KiB", 102_400, 4_000))
TORCH = "torch==2.15.0"


class LoaderOver:
    """Payloads on disk, and loaders over them by number of workers.

    Args:
        folder: where the payloads go.
        payloads: as `Payloads.described` gives them.
    """

    def __init__(self, folder: str, payloads: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.payloads = payloads_of(payloads)
        self.size = self.payloads.largest
        self.loaders: dict[int, Any] = {}
        self.write()

    def write(self) -> None:
        """Store all payloads."""
        raise NotImplementedError

    def loader(self, workers: int) -> Any:
        """Give a loader whose batches are uint8 tensors [256, size], or hold one as `data`."""
        raise NotImplementedError

    def epoch(self, workers: int) -> int:
        """Go through one epoch; give the number of samples."""
        if workers not in self.loaders:
            self.loaders[workers] = self.loader(workers)
        samples = total = 0
        for batch in self.loaders[workers]:
            data = batch["data"] if isinstance(batch, dict) else batch
            samples += data.shape[0]
            total += int(data[0, 0])
        assert samples == self.payloads.count, (samples, self.payloads.count)
        return samples


def stacked(payloads: Sequence[bytes], size: int) -> Any:
    """Put payloads into one writable tensor with one copy."""
    import torch

    return torch.frombuffer(bytearray(b"").join(payloads), dtype=torch.uint8).view(len(payloads), size)


class Items:
    """A map-style dataset whose batches are read in one call: `read` takes the numbers."""

    def __init__(self, store: Any, count: int, size: int) -> None:
        self.store = store
        self.count = count
        self.size = size

    def __len__(self) -> int:
        """The number of payloads."""
        return self.count

    def __getitems__(self, numbers: list[int]) -> Any:
        """One batch as a tensor."""
        return stacked(self.store.read(numbers), self.size)


def as_it_is(batch: Any) -> Any:
    """Collate nothing."""
    return batch


def torch_loader(store: Any, count: int, size: int, workers: int) -> Any:
    """Give torch's own loader with torch's own shuffle."""
    from torch.utils.data import DataLoader

    items: Any = Items(store, count, size)
    return DataLoader(
        items, BATCH, shuffle=True, collate_fn=as_it_is, num_workers=workers, persistent_workers=workers > 0
    )


class Ours(LoaderOver):
    """`make_dataloader` with its defaults: every record's checksum is verified."""

    name = "payloads"

    def __iter__(self) -> Iterator[Any]:
        """Be the source."""
        import dataset_rt as drt

        for payload in self.payloads:
            yield drt.CacheInput(payload, {})

    def write(self) -> None:
        """Write the cache."""
        import dataset_rt as drt

        self.runtime = drt.DatasetRuntime()
        config, quiet = drt.ReaderConfig(seed=1), drt.WriterConfig(show_progress=False)
        self.dataset = self.runtime.from_cache_sources(
            self, self.folder, reader_config=config, writer_config=quiet
        ).unwrap()

    def loader(self, workers: int) -> Any:
        """Make the loader."""
        import dataset_rt as drt
        from dataset_rt_torch import make_dataloader

        decode = drt.array_decoder("uint8", self.size)
        return make_dataloader(
            self.dataset, BATCH, num_workers=workers, decode_batch=decode, persistent_workers=workers > 0
        )


class LmdbStore:
    """An environment that each process opens for itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: Any = None
        self.transaction: Any = None

    def close(self) -> None:
        """Close, to be opened at the next read."""
        if self.environment is not None:
            self.transaction.abort()
            self.environment.close()
        self.environment = self.transaction = None

    def read(self, numbers: list[int]) -> list[bytes]:
        """Get the payloads of numbers."""
        if self.transaction is None:
            import lmdb

            self.environment = lmdb.open(str(self.folder), lock=False, readonly=True)
            self.transaction = self.environment.begin()
        get = self.transaction.get
        return [get(number.to_bytes(8, "big")) for number in numbers]


class Lmdb(LoaderOver):
    """`__getitems__` over one read transaction. It checks nothing."""

    def write(self) -> None:
        """Write everything in one transaction."""
        import lmdb

        self.folder.mkdir(parents=True)
        room = 2 * (self.payloads.total_bytes + 8192 * self.payloads.count) + (1 << 20)
        with lmdb.open(str(self.folder), map_size=room) as environment, environment.begin(write=True) as transaction:
            for number, payload in enumerate(self.payloads):
                transaction.put(number.to_bytes(8, "big"), payload, append=True)

        self.store = LmdbStore(self.folder)

    def loader(self, workers: int) -> Any:
        """Make the loader; each process opens for itself, which lmdb allows only if its parent has closed."""
        self.store.close()
        return torch_loader(self.store, self.payloads.count, self.size, workers)


class HuggingFaceStore:
    """A column of a loaded dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def read(self, numbers: list[int]) -> list[bytes]:
        """Take rows."""
        rows: list[bytes] = self.dataset[numbers]["data"]
        return rows


class HuggingFace(LoaderOver):
    """One binary column, saved and loaded from disk, a list of rows at a time."""

    def write(self) -> None:
        """Build from a dictionary and save."""
        import datasets

        datasets.disable_progress_bars()
        features = datasets.Features({"data": datasets.Value("large_binary")})
        datasets.Dataset.from_dict({"data": list(self.payloads)}, features=features).save_to_disk(str(self.folder))
        self.dataset = datasets.load_from_disk(str(self.folder))

    def loader(self, workers: int) -> Any:
        """Make the loader."""
        return torch_loader(HuggingFaceStore(self.dataset), self.payloads.count, self.size, workers)


class Litdata(LoaderOver):
    """Its own loader and shuffle: chunks of 64 MB in random order, and the samples within each."""

    def write(self) -> None:
        """Write sample by sample."""
        from litdata.streaming import Cache

        self.folder.mkdir(parents=True)
        cache = Cache(str(self.folder), chunk_bytes="64MB")
        for number, payload in enumerate(self.payloads):
            cache[number] = payload
        cache.done()
        cache.merge()

    def loader(self, workers: int) -> Any:
        """Make the loader."""
        import litdata

        dataset = litdata.StreamingDataset(str(self.folder), shuffle=True)
        return litdata.StreamingDataLoader(
            dataset,
            batch_size=BATCH,
            num_workers=workers,
            persistent_workers=workers > 0,
            collate_fn=partial(stacked, size=self.size),
        )


class MosaicmlStore:
    """A dataset that is asked by number, which is faster than its iteration by threads that poll."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def read(self, numbers: list[int]) -> list[bytes]:
        """Read one by one: there is no other way by number."""
        return [self.dataset[number]["data"] for number in numbers]


class Mosaicml(LoaderOver):
    """One `bytes` column in shards of 64 MiB, uncompressed and without hashes."""

    def write(self) -> None:
        """Write sample by sample."""
        from streaming import MDSWriter, StreamingDataset
        from streaming.base.util import clean_stale_shared_memory

        with MDSWriter(out=str(self.folder), columns={"data": "bytes"}) as writer:
            for payload in self.payloads:
                writer.write({"data": payload})
        clean_stale_shared_memory()
        self.dataset = StreamingDataset(local=str(self.folder), shuffle=False, batch_size=1)

    def loader(self, workers: int) -> Any:
        """Make the loader."""
        return torch_loader(MosaicmlStore(self.dataset), self.payloads.count, self.size, workers)


# Name, class, what to install beside torch, distribution, and the share of the payloads that a slow one stores.
PEERS = (
    ("lmdb", "Lmdb", "lmdb==3.0.0", "lmdb", 1.0),
    ("litdata", "Litdata", "litdata==0.2.76", "litdata", 1.0),
    ("HF datasets", "HuggingFace", "datasets==5.2.0", "datasets", 1.0),
    ("mosaicml-streaming", "Mosaicml", "mosaicml-streaming==0.13.0", "mosaicml-streaming", 0.25),
)


def adapter_wheel() -> str:
    """Give the adapter's wheel in dist/.

    Raises:
        EnvironmentMissing: there is none.
    """
    wheels = sorted(DIST.glob("dataset_rt_torch-*.whl"))
    if not wheels:
        raise EnvironmentMissing(f"no wheel of dataset-rt-torch in {DIST}; build it with nox -s build")
    return str(wheels[-1])


def contenders() -> list[tuple[str, str, Environment, str, float]]:
    """Give name, class, environment, distribution and share of each; ours first."""
    ours = Environment("torch-ours", (core_wheel(), adapter_wheel(), TORCH, "numpy"))
    others = [
        (name, kind, Environment(f"torch-{distribution}", (requirement, TORCH, "numpy")), distribution, share)
        for name, kind, requirement, distribution, share in PEERS
    ]
    return [(OURS, "Ours", ours, "dataset-rt", 1.0), *others]


def run(*, rounds: int, scale: float, folder: Path) -> Result:
    """Measure."""
    result = Result(PART, machine_line(), {}, rounds, scale, [])
    for subject, size, full_count in CASES:
        count = max(BATCH, int(full_count * scale))
        running: dict[str, Worker] = {}
        try:
            for name, kind, environment, distribution, share in contenders():
                payloads = RandomPayloads(size, max(BATCH, int(count * share))).described()
                place = folder / hashlib.sha256(f"{name}-{size}".encode()).hexdigest()[:8]
                try:
                    python = environment.make()
                    arguments = {"folder": str(place), "payloads": payloads}
                    running[name] = Worker(python, f"torch_loaders:{kind}", arguments)
                except (EnvironmentMissing, WorkerError) as error:
                    result.absent[name] = str(error)
                    continue
                result.versions[name] = installed_version(python, distribution)
            for workers in WORKERS:
                measured = {name: partial(worker.rate, "epoch", workers=workers) for name, worker in running.items()}
                # One epoch that is not counted: it opens files and starts worker processes.
                warm = interleave(measured, rounds=1)
                kept = {name: measure for name, measure in measured.items() if name not in warm.failed}
                outcome = interleave(kept, rounds=rounds)
                operation = f"{workers} workers"
                result.rows.append(Row(subject, operation, "samples/s", outcome.figures, warm.failed | outcome.failed))
        finally:
            for worker in running.values():
                worker.close()
        shutil.rmtree(folder, ignore_errors=True)
    return result


def main() -> None:
    """Measure, store every figure, and write the section of the README where the figures are for publication."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="dataset-rt-loaders-") as temporary:
        result = run(rounds=options.rounds, scale=options.scale, folder=Path(temporary) / "stores")
    body = (
        f"{result.machine}. Samples a second, medians of {result.rounds} rounds:\n\n{figures_table(result)}\n"
        "Ratios of the same rounds, median (lowest to highest), above 1 where dataset-rt is faster:\n\n"
        f"{ratios_table(result, reference=OURS)}\n{troubles(result)}"
    )
    print(body)
    if options.scale == 1.0:
        result.save()
        update_section(PART, body)


if __name__ == "__main__":
    main()
