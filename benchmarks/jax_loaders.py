"""Grain over dataset-rt beside Grain over its own array_record and over Hugging Face Datasets, in one kind of loop.

Each contender delivers shuffled batches of 256 to a loop: `data`, uint8 of shape [256, size], and `label`, int64. The
peers' own way is `MapDataset.source(...).shuffle(seed).map(decode).batch(256)`. They are also measured with whole
batches read in one call, which their user has to write by hand: an element is then a list of rows, and the map reads
them.

    nox -s "loaders(adapter='jax')"                              # everything, in an environment of its own
    nox -s "loaders(adapter='jax')" -- --rounds 1 --scale 0.1    # a short look
"""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from harness.environments import Environment, core_wheel, installed_version
from harness.machine import machine_line
from harness.paths import DIST
from harness.payloads import RandomPayloads, payloads_of
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import figures_table, ratios_table, troubles, update_section
from harness.worker import Worker

PART = "jax-loaders"
BATCH = 256
SEED = 1
# Size in bytes, samples stored, and how many of them the slower contenders draw in a round.
SIZES = {"1 KiB": (1_024, 100_000, 20_000), "100 KiB": (102_400, 5_000, 5_000)}
# Contender: class, and the arguments of its method `read`.
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dataset-rt": ("DatasetRT", {"way": "map"}),
    "dataset-rt, StreamIterDataset": ("DatasetRT", {"way": "iter"}),
    "dataset-rt, single samples": ("DatasetRT", {"way": "single", "threads": 0}),
    "array_record, 0 threads": ("ArrayRecord", {"way": "single", "threads": 0}),
    "array_record, 2 threads": ("ArrayRecord", {"way": "single", "threads": 2}),
    "array_record, whole batches by hand": ("ArrayRecord", {"way": "batches", "threads": 2}),
    "HF datasets, 0 threads": ("HuggingFace", {"way": "single", "threads": 0}),
    "HF datasets, 2 threads": ("HuggingFace", {"way": "single", "threads": 2}),
    "HF datasets, whole batches by hand": ("HuggingFace", {"way": "batches", "threads": 2}),
}


class Contender:
    """Stores the payloads below a folder and reads them through Grain; runs in a worker."""

    def __init__(self, folder: str, payloads: dict[str, Any]) -> None:
        self.payloads = payloads_of(payloads)
        self.folder = Path(folder) / type(self).__name__
        self.write()

    def write(self) -> None:
        """Store payloads and labels, and open what was stored."""
        raise NotImplementedError

    def loader(self, way: str, threads: int, draws: int) -> Any:
        """Make what the loop iterates."""
        raise NotImplementedError

    def read(self, *, draws: int, way: str, threads: int = 2) -> int:
        """Take so many samples in batches and look at each batch; give how many came."""
        taken = 0
        for batch in self.loader(way, threads, draws):
            count = len(batch["data"])
            assert batch["data"].shape == (count, self.payloads.largest)
            assert batch["label"].shape == (count,)
            taken += count
        return taken


class DatasetRT(Contender):
    """Weighted draws with replacement, every record's checksum verified."""

    def write(self) -> None:
        """Write a cache, unless an earlier worker has."""
        from harness.labelled_cache import labelled_cache

        self.dataset = labelled_cache(self.payloads, self.folder, seed=SEED)

    def loader(self, way: str, threads: int, draws: int) -> Any:
        """Whole batches by index, whole batches iterated, or samples that Grain batches."""
        import grain
        import numpy as np

        import dataset_rt as drt
        from dataset_rt_jax import StreamIterDataset, StreamMapDataset

        self.dataset.set_epoch_len(draws)
        decode_batch = drt.array_decoder("uint8", (self.payloads.largest,), metadata=["label"])
        if way == "iter":
            return StreamIterDataset(self.dataset, BATCH, decode_batch=decode_batch)
        if way == "map":
            return StreamMapDataset(self.dataset, batch_size=BATCH, decode_batch=decode_batch).to_iter_dataset()

        def decode(sample: drt.CachedSample) -> dict[str, Any]:
            return {"data": np.frombuffer(sample.data, np.uint8), "label": sample.metadata["label"]}

        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * BATCH if threads else 0)
        return StreamMapDataset(self.dataset, decode=decode).batch(BATCH).to_iter_dataset(options)


class Peer(Contender):
    """A source of Grain's with one record a sample."""

    def source(self) -> Any:
        """Give what `grain.MapDataset.source` takes."""
        raise NotImplementedError

    def decode(self, record: Any) -> dict[str, Any]:
        """Decode one record."""
        raise NotImplementedError

    def decode_batch(self, numbers: list[int]) -> dict[str, Any]:
        """Read records in one call and decode them."""
        raise NotImplementedError

    def loader(self, way: str, threads: int, draws: int) -> Any:
        """Shuffled single records, or numbers of batches whose records are read in one call."""
        import grain
        import numpy as np

        # A batch ahead for each thread is enough where elements are batches.
        options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
        if way == "single":
            shuffled = grain.MapDataset.source(self.source()).shuffle(SEED)[:draws]
            return shuffled.map(self.decode).batch(BATCH).to_iter_dataset(options)
        order = np.random.default_rng(SEED).permutation(self.payloads.count)[:draws].tolist()
        batches = grain.MapDataset.source([order[place : place + BATCH] for place in range(0, draws, BATCH)])
        return batches.map(self.decode_batch).to_iter_dataset(options)


class ArrayRecord(Peer):
    """Groups of one record, as random access wants it; the label is the record's first eight bytes."""

    def write(self) -> None:
        """Write one file."""
        from array_record.python import array_record_module

        self.folder.mkdir(parents=True, exist_ok=True)
        writer = array_record_module.ArrayRecordWriter(str(self.folder / "records"), "group_size:1,uncompressed")
        for number, payload in enumerate(self.payloads):
            writer.write((number % 10).to_bytes(8, "little") + payload)
        writer.close()

    def source(self) -> Any:
        """Open the file as Grain's source."""
        import grain

        return grain.sources.ArrayRecordDataSource(str(self.folder / "records"))

    def decode(self, record: bytes) -> dict[str, Any]:
        """Cut label and data apart."""
        import numpy as np

        return {"data": np.frombuffer(record, np.uint8, offset=8), "label": int.from_bytes(record[:8], "little")}

    def decode_batch(self, numbers: list[int]) -> dict[str, Any]:
        """Join the records of one call."""
        import numpy as np

        if not hasattr(self, "opened"):
            self.opened = self.source()
        rows = np.frombuffer(b"".join(self.opened.__getitems__(numbers)), np.uint8).reshape(len(numbers), -1)
        return {"data": rows[:, 8:], "label": np.ascontiguousarray(rows[:, :8]).view("<i8")[:, 0]}


class HuggingFace(Peer):
    """An Arrow dataset on disk with a column of bytes and one of labels."""

    def write(self) -> None:
        """Build, save, and load mapped."""
        import datasets

        datasets.disable_progress_bars()
        features = datasets.Features({"data": datasets.Value("large_binary"), "label": datasets.Value("int64")})
        columns = {"data": list(self.payloads), "label": [number % 10 for number in range(self.payloads.count)]}
        datasets.Dataset.from_dict(columns, features=features).save_to_disk(str(self.folder))
        self.dataset = datasets.load_from_disk(str(self.folder))

    def source(self) -> Any:
        """A dataset of theirs is a source as it is."""
        return self.dataset

    def decode(self, record: dict[str, Any]) -> dict[str, Any]:
        """View the bytes."""
        import numpy as np

        return {"data": np.frombuffer(record["data"], np.uint8), "label": record["label"]}

    def decode_batch(self, numbers: list[int]) -> dict[str, Any]:
        """Join the rows of one call."""
        import numpy as np

        rows = self.dataset[numbers]
        data = np.frombuffer(b"".join(rows["data"]), np.uint8).reshape(len(numbers), -1)
        return {"data": data, "label": np.array(rows["label"])}


def measure(python: Path, subject: str, folder: Path, *, rounds: int, scale: float) -> Row:
    """Measure every contender at one payload size."""
    size, count, fewer = SIZES[subject]
    count, fewer = max(BATCH, int(count * scale)), max(BATCH, int(fewer * scale))
    arguments = {"folder": str(folder), "payloads": RandomPayloads(size, count).described()}
    workers = {
        kind: Worker(python, f"jax_loaders:{kind}", arguments)
        for kind in dict.fromkeys(kind for kind, _ in CONTENDERS.values())
    }
    try:
        calls = {}
        for name, (kind, way) in CONTENDERS.items():
            draws = count if kind == "DatasetRT" and way["way"] != "single" else fewer
            calls[name] = partial(workers[kind].rate, "read", draws=draws, **way)
        for call in calls.values():
            call()  # Not counted: it warms the page cache.
        outcome = interleave(calls, rounds=rounds)
    finally:
        for worker in workers.values():
            worker.close()
    return Row(subject, "shuffled, batches of 256", "samples/s", outcome.figures, outcome.failed)


def main() -> None:
    """Measure, save the figures, and put the tables into the README."""
    parser = argparse.ArgumentParser(description="Measure Grain over dataset-rt beside Grain over others.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of samples")
    given = parser.parse_args()

    (adapter,) = DIST.glob("dataset_rt_jax-*.whl")
    wanted = (core_wheel(), str(adapter), "array_record", "datasets")
    python = Environment("jax-loaders", wanted).make()
    versions = {
        "dataset-rt": f"{installed_version(python, 'dataset-rt')} (Grain {installed_version(python, 'grain')})",
        "array_record, 0 threads": installed_version(python, "array_record"),
        "HF datasets, 0 threads": installed_version(python, "datasets"),
    }
    rows = []
    for subject in SIZES:
        with tempfile.TemporaryDirectory(prefix="jax-loaders-") as folder:
            rows.append(measure(python, subject, Path(folder), rounds=given.rounds, scale=given.scale))
    result = Result(PART, machine_line(), versions, given.rounds, given.scale, rows)
    tables = [figures_table(result), ratios_table(result, reference="dataset-rt"), troubles(result)]
    print("\n".join(tables))
    if given.scale == 1.0:
        result.save()
        update_section(PART, "\n".join([f"{result.machine}; {given.rounds} interleaved rounds.\n", *tables]))


if __name__ == "__main__":
    main()
