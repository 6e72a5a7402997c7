"""dataset-rt with its defaults: every read is verified. It draws its own order, with replacement."""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np

import dataset_rt as drt
from harness.payloads import SEED, Payloads
from peers.store import Store


class Source:
    """Payloads as a source, with one metadata value each."""

    name = "payloads"

    def __init__(self, payloads: Payloads) -> None:
        self.payloads = payloads

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Give each payload."""
        for number, payload in enumerate(self.payloads):
            yield drt.CacheInput(payload, {"number": number})


class Ours(Store):
    """Reads with the default runtime, in the calling thread alone, and in Arrow batches.

    Args:
        folder: see `Store`.
        payloads: see `Store`.
        compression: algorithm of the records.
    """

    def __init__(
        self, folder: str, payloads: dict[str, Any], compression: Literal["none", "lz4", "zstd"] = "none"
    ) -> None:
        super().__init__(folder, payloads)
        self.writer = drt.WriterConfig(show_progress=False, shard_compression=drt.ShardCompression(algo=compression))
        self.runtime = drt.DatasetRuntime()
        self.path = self.folder / Source.name
        self.datasets: dict[str, drt.CachedDataset] = {}

    def write(self) -> int:
        """Write the cache, up to its publication."""
        (result,) = self.runtime.write_cache(Source(self.payloads), self.folder, writer_config=self.writer)
        if not isinstance(result, drt.CacheWriteSuccess):
            raise result.error
        return result.samples

    def open(self) -> None:
        """Open it in order, shuffled, and shuffled for a runtime of one thread."""
        alone = drt.DatasetRuntime(num_workers=1)
        for name, runtime, shuffle in (
            ("ordered", self.runtime, False),
            ("shuffled", self.runtime, True),
            ("alone", alone, True),
        ):
            reader = drt.ReaderConfig(seed=SEED, shuffle=shuffle)
            self.datasets[name] = runtime.cached_dataset(self.path, reader_config=reader)

    def epoch(self, name: str) -> int:
        """Iterate one epoch."""
        total = 0
        dataset = self.datasets[name]
        for sample in dataset:
            total += sample.data[0]
        self.total = total
        return len(dataset)

    def ordered(self) -> int:
        """Iterate in order."""
        return self.epoch("ordered")

    def shuffled(self) -> int:
        """Iterate shuffled."""
        return self.epoch("shuffled")

    def alone(self) -> int:
        """Iterate shuffled with `num_workers=1`: the calling thread reads."""
        return self.epoch("alone")

    def batches(self) -> int:
        """Iterate shuffled Arrow batches of 256 and look at each payload's first byte, as a decoder would: in NumPy."""
        total = rows = 0
        for batch in self.datasets["shuffled"].iter_batches(self.batch_size):
            rows += batch.num_rows
            column = batch.column("data")
            _, starts, data = column.buffers()
            begins = np.frombuffer(starts, np.int64)[column.offset : column.offset + len(column)]
            total += int(np.frombuffer(data, np.uint8)[begins].sum())
        self.total = total
        return rows

    def validate(self) -> int:
        """Open with every file's digest checked, by one thread; give the bytes of the payloads."""
        drt.DatasetRuntime(num_workers=1).cached_dataset(self.path, reader_config=drt.ReaderConfig(validate_cache=True))
        return self.payloads.total_bytes

    def open_cold(self, draws: int) -> None:
        """Open it for a shuffled epoch of this length."""
        self.open()
        self.datasets["shuffled"].set_epoch_len(draws)
