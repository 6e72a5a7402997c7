"""Payloads as a cache of dataset-rt, with the labels that the loaders' contenders store beside them."""

from collections.abc import Iterator
from pathlib import Path

import dataset_rt as drt
from harness.payloads import Payloads


class Labelled:
    """The payloads as a source, in turn of ten classes."""

    name = "payloads"

    def __init__(self, payloads: Payloads) -> None:
        self.payloads = payloads

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Give each payload."""
        for number, payload in enumerate(self.payloads):
            yield drt.CacheInput(payload, {"label": number % 10})


def labelled_cache(payloads: Payloads, folder: Path, *, seed: int) -> drt.CachedDataset:
    """Open the payloads' cache below a folder; write it first, unless an earlier worker has."""
    opened = drt.DatasetRuntime().from_cache_sources(
        Labelled(payloads),
        folder,
        reader_config=drt.ReaderConfig(seed=seed),
        writer_config=drt.WriterConfig(show_progress=False),
    )
    return opened.unwrap()
