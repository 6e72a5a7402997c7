"""The older project of the same name, dataset-rt 0.4.8, with its defaults."""

import os
from collections.abc import Iterator
from typing import Any

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
            yield drt.CacheInput(data=payload, metadata={"number": number})


class Older(Store):
    """Uncompressed, a thread for each core, no progress shown; it draws its own order, with replacement."""

    def __init__(self, folder: str, payloads: dict[str, Any]) -> None:
        super().__init__(folder, payloads)
        self.runtime = drt.DatasetRuntime(num_workers=len(os.sched_getaffinity(0)))

    def write(self) -> int:
        """Write the cache."""
        results = self.runtime.write_cache(
            Source(self.payloads), self.folder, writer_config=drt.WriterConfig(show_progress=False)
        )
        self.sync()
        assert len(results) == 1
        return self.payloads.count

    def open(self) -> None:
        """Open it twice."""
        self.datasets = {
            shuffle: self.runtime.cached_dataset(
                [self.folder / Source.name], reader_config=drt.ReaderConfig(seed=SEED, shuffle=shuffle)
            )
            for shuffle in (False, True)
        }

    def epoch(self, *, shuffle: bool) -> int:
        """Iterate one epoch."""
        total = 0
        for sample in self.datasets[shuffle]:
            total += sample.data[0]
        self.total = total
        return self.payloads.count

    def ordered(self) -> int:
        """Iterate in order."""
        return self.epoch(shuffle=False)

    def shuffled(self) -> int:
        """Iterate shuffled."""
        return self.epoch(shuffle=True)
