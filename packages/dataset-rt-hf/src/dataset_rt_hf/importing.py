"""The front door: a Hugging Face dataset in, a cached dataset out."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

import datasets

import dataset_rt as drt
from dataset_rt_hf.identity import holds_the_same, remember
from dataset_rt_hf.loading import Source, default_name, load
from dataset_rt_hf.source import AnyDataset, HFSource
from dataset_rt_hf.table_columns import listed_columns

__all__ = ["import_dataset"]


@overload
def import_dataset(
    source: Source,
    runtime: drt.DatasetRuntime,
    path: str | os.PathLike[str],
    *,
    reader_config: drt.ReaderConfig,
    split: str,
    name: str | None = None,
    key: str | None = None,
    metadata_columns: str | Iterable[str] | None = "auto",
    class_names: bool = False,
    codec: str = "auto",
    num_proc: int = 1,
    writer_config: drt.WriterConfig = drt.WriterConfig(),
) -> drt.CacheSourcesDatasetResult: ...


# Whether one result comes or a dict depends on the source, and datasets has no types to tell by.
@overload
def import_dataset(
    source: Source,
    runtime: drt.DatasetRuntime,
    path: str | os.PathLike[str],
    *,
    reader_config: drt.ReaderConfig,
    split: None = None,
    name: str | None = None,
    key: str | None = None,
    metadata_columns: str | Iterable[str] | None = "auto",
    class_names: bool = False,
    codec: str = "auto",
    num_proc: int = 1,
    writer_config: drt.WriterConfig = drt.WriterConfig(),
) -> Any: ...


def import_dataset(
    source: Source,
    runtime: drt.DatasetRuntime,
    path: str | os.PathLike[str],
    *,
    reader_config: drt.ReaderConfig,
    split: str | None = None,
    name: str | None = None,
    key: str | None = None,
    metadata_columns: str | Iterable[str] | None = "auto",
    class_names: bool = False,
    codec: str = "auto",
    num_proc: int = 1,
    writer_config: drt.WriterConfig = drt.WriterConfig(),
) -> drt.CacheSourcesDatasetResult | dict[str, drt.CacheSourcesDatasetResult]:
    """Import a Hugging Face dataset into a cache, or find it there.

    Everything of a row goes into the payload, from where `decoder` and `to_dataset` get it back.
    Bools, numbers, short strings, dates, timestamps and class labels become columns of the
    metadata table as well, to filter and weight by. Formats and transforms play no part; the
    order after shuffle, select, filter and sort does.

    A cache that holds the same is reused, wherever the dataset was loaded from and whatever its
    fingerprint. If the rows lie in files and the fingerprint is the one that was imported, this
    takes no time; otherwise, and always for a stream or rows in memory, the dataset is read once
    and compared. A cache of the same name that holds something else is an
    error, never reused and never overwritten.

    Args:
        source: A Dataset, DatasetDict, IterableDataset or IterableDatasetDict; a folder written
            by `save_to_disk`, or any that `load_dataset` reads (Parquet, CSV, JSON, Arrow, a
            folder of images); one such file.
        runtime: What writes and reads.
        path: The folder that holds the caches.
        reader_config: How to sample and read.
        split: The split to take of several; its cache is called `<name>-<split>`.
        name: Name of the cache. None: the dataset's own name, and its split.
        key: A word of yours for this content. It is kept in the cache and alone decides whether
            the cache is reused; then nothing is compared.
        metadata_columns: "auto", the table's columns by name, or None for none. "auto" takes
            strings only if none of the first 10,000 rows has more than 64 bytes, and no uint64.
            Timestamps become UTC without a zone; nanoseconds are floored to microseconds. A column
            called `cache_id`, `sample_id`, `weight` or `data` gets an underscore behind its name.
            Nulls stay nulls, and a class label of -1 stays -1.
        class_names: Whether a ClassLabel gets a second column, `<column>_name`, with the names of
            its classes; null for -1.
        codec: How a row is stored. "raw": the bytes of the only column, which holds bytes or text
            and no nulls; the payload is usable as it is. "msgpack": a map of plain values. "arrow":
            an Arrow IPC message, for every type. "auto": raw for such a single column, msgpack
            where a row has no lists of numbers and only types that msgpack keeps exactly, otherwise
            arrow.
        num_proc: How many processes encode. The cache is the same, byte for byte. A script that
            uses more than one needs `if __name__ == "__main__":`, as they are started by spawn.
        writer_config: How to write. Progress also follows `datasets.disable_progress_bars()`.
            `on_error="skip"` leaves out no row: one that cannot be stored always fails the import,
            since what is imported is the whole dataset; `filter` it first.

    Returns:
        As `DatasetRuntime.from_cache_sources` does, a success with the dataset, or an error. For
        a dict of splits without `split`, one for each: splits come together only if you ask for
        it, by opening their caches with `DatasetRuntime.cached_dataset`.

    Raises:
        ConfigError: If an argument breaks its rule, the dataset has no name of its own, there is
            no such split, or the source cannot be loaded.
    """
    loaded = load(source)
    if not isinstance(path, (str, os.PathLike)):
        raise drt.ConfigError(f"path must be a path, got {path!r}")
    if not isinstance(writer_config, drt.WriterConfig):
        raise drt.ConfigError(f"writer_config must be a WriterConfig, got {writer_config!r}")
    if datasets.are_progress_bars_disabled():
        writer_config = writer_config.model_copy(update={"show_progress": False})
    # An iterator serves all splits.
    asked = listed_columns(metadata_columns)

    def make(dataset: AnyDataset, cache_name: str) -> HFSource:
        return HFSource(
            dataset,
            cache_name,
            metadata_columns=asked,
            class_names=class_names,
            codec=codec,
            key=key,
            num_proc=num_proc,
        )

    chosen = _split(loaded, split)
    if not isinstance(chosen, dict):
        if name is not None and not isinstance(name, str):
            raise drt.ConfigError(f"name must be a str or None, got {name!r}")
        suffix = split if split is not None else chosen.split if name is None else None
        base = default_name(chosen) if name is None else name
        hf_source = make(chosen, base if suffix is None else f"{base}-{suffix}")
        return _import(hf_source, runtime, Path(path), reader_config, writer_config, key)
    # All are made before one is written: a wrong argument is found at once.
    sources = {
        part: make(dataset, f"{default_name(dataset) if name is None else name}-{part}")
        for part, dataset in chosen.items()
    }
    return {
        part: _import(hf_source, runtime, Path(path), reader_config, writer_config, key)
        for part, hf_source in sources.items()
    }


def _split(loaded: Any, split: str | None) -> Any:
    if isinstance(loaded, dict):
        if split is None:
            return loaded
        if split in loaded:
            return loaded[split]
        raise drt.ConfigError(f"split must be one of {', '.join(map(repr, loaded))}, got {split!r}")
    if split is not None and loaded.split is None:
        raise drt.ConfigError(f"split must be None for a dataset that is no split, got {split!r}; leave it out")
    if split is not None and str(loaded.split) != split:
        raise drt.ConfigError(f"split must be {str(loaded.split)!r}, which the dataset is, got {split!r}")
    return loaded


def _import(
    source: HFSource,
    runtime: drt.DatasetRuntime,
    root: Path,
    reader_config: drt.ReaderConfig,
    writer_config: drt.WriterConfig,
    key: str | None,
) -> drt.CacheSourcesDatasetResult:
    cache = root / source.name
    try:
        checked = (cache / "manifest.json").exists()
    except OSError:
        # No folder can have this name; the core says why.
        checked = False
    try:
        if checked:
            # Opening finds damage, which must not pass for another content.
            runtime.cached_dataset(cache, reader_config=reader_config)
            _refuse_another(source, runtime, cache, key, writer_config)
        result = runtime.from_cache_sources(source, root, reader_config=reader_config, writer_config=writer_config)
        if not isinstance(result, drt.CacheSourcesDatasetSuccess):
            # The core wraps what a source raises; what this one raises says everything already.
            cause = result.error.__cause__
            if isinstance(cause, drt.DatasetRTError):
                raise cause
            return result
        if result.results[0].reused and not checked:
            # Another process has written it in the meantime.
            _refuse_another(source, runtime, cache, key, writer_config)
    except drt.ConfigError:
        raise
    except drt.DatasetRTError as error:
        failure = drt.CacheWriteError(source.name, str(error), error=error)
        return drt.CacheSourcesDatasetError([failure], f"{source.name}: {error}", error=error)
    if not result.results[0].reused:
        remember(source, cache)
    return result


def _refuse_another(
    source: HFSource, runtime: drt.DatasetRuntime, cache: Path, key: str | None, writer_config: drt.WriterConfig
) -> None:
    difference = holds_the_same(source, runtime, cache, key=key, writer_config=writer_config)
    if difference is not None:
        raise drt.CacheExistsError(
            f"the cache at {cache} must hold what is imported, but {difference}; give name= to keep both, key= to say "
            "yourself which contents are the same, or remove the folder",
            path=cache,
        )
