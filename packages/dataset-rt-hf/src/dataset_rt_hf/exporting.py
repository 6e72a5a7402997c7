"""Going back to Hugging Face."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

import datasets
import pyarrow as pa
from datasets.arrow_writer import ArrowWriter
from datasets.table import InMemoryTable

import dataset_rt as drt
from dataset_rt_hf.decoding import decoder
from dataset_rt_hf.plan import cache_plans

__all__ = ["to_dataset"]

_ROWS_AT_ONCE = 1_000
_BYTES_AT_ONCE = 64 * 1024 * 1024
"""Of payloads, so that no array comes near the 2 GiB at which Arrow's arrays end."""


def to_dataset(dataset: drt.CachedDataset, *, path: str | os.PathLike[str] | None = None) -> datasets.Dataset:
    """Make a Hugging Face Dataset of an imported one: its rows, with the features that it was imported with.

    The rows are those of `get_metadata()`, in that order; so a filtered table gives fewer of them,
    and a fresh one all. Weights and added columns stay behind, media hold their bytes.

    Args:
        dataset: A dataset over caches that `import_dataset` wrote.
        path: An Arrow file to write, from which the result is then mapped; it must not exist.
            None: the result is in memory as a whole.

    Raises:
        ConfigError: If a cache was not imported by this package, the caches' features differ, or
            there is something at `path`.
        CacheCorruptError: If bytes are not those that were published.
        CacheIOError: If a file cannot be read.
    """
    decode = decoder(dataset)
    plans = list(cache_plans(dataset).values())
    if any(plan.features_text != plans[0].features_text for plan in plans):
        raise drt.ConfigError("dataset must be of caches with equal features, got several; export them one by one")
    features = plans[0].features

    def tables() -> Iterator[pa.Table]:
        rows = len(dataset.get_metadata())
        at_once = _rows_at_once(dataset)
        for start in range(0, rows, at_once):
            for batch in _parts(dataset.read_batch(range(start, min(start + at_once, rows)))):
                # One chunk a row would make every access slow.
                yield decode.table(batch).combine_chunks()

    if path is None:
        whole = pa.concat_tables(tables())
        return datasets.Dataset(InMemoryTable(whole), info=datasets.DatasetInfo(features=features))
    target = Path(path)
    if target.exists():
        raise drt.ConfigError(f"path must be a file that does not exist yet, got {str(target)!r}; remove it first")
    # Written beside its place, so that a broken off export leaves no file that looks whole.
    unfinished = target.with_name(f".{target.name}.unfinished")
    try:
        with ArrowWriter(path=str(unfinished), features=features) as writer:
            for table in tables():
                writer.write_table(table)
            writer.finalize()
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)
    return datasets.Dataset.from_file(str(target))


def _rows_at_once(dataset: drt.CachedDataset) -> int:
    """So many rows that those of average size stay within the bytes at once."""
    caches = dataset.caches
    largest: int = max(
        math.ceil(size / samples) for size, samples in caches.select("payload_bytes", "samples").iter_rows()
    )
    return max(1, min(_ROWS_AT_ONCE, _BYTES_AT_ONCE // max(1, largest)))


def _parts(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The rows in parts within the bytes at once, since sizes may be far from their average."""
    if batch.nbytes <= _BYTES_AT_ONCE or batch.num_rows <= 1:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _parts(batch.slice(0, half))
    yield from _parts(batch.slice(half))
