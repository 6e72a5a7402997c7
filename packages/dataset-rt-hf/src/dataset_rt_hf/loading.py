"""From what a user has, a path or an object of `datasets`, to datasets by split."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeAlias

import datasets

import dataset_rt as drt
from dataset_rt_hf.source import AnyDataset

__all__ = ["Source", "default_name", "load"]

Source: TypeAlias = (
    "datasets.Dataset | datasets.IterableDataset | datasets.DatasetDict | datasets.IterableDatasetDict "
    "| str | os.PathLike[str]"
)
"""What can be imported."""

_LOADERS = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
    ".arrow": "arrow",
    ".txt": "text",
}
_PACKAGED = {*datasets.packaged_modules._PACKAGED_DATASETS_MODULES, "generator", "sql", "spark"}


def load(source: Source) -> Any:
    """Give the source as an object of `datasets`: itself, or what its folder or file holds.

    Args:
        source: A dataset, a dict of them, a folder that `save_to_disk` wrote, another folder that
            `load_dataset` reads, or one file of Parquet, CSV, JSON, Arrow or text.

    Raises:
        ConfigError: If it is nothing of this kind, or `datasets` cannot read it.
    """
    if not isinstance(source, (str, os.PathLike)):
        known = (
            datasets.Dataset,
            datasets.IterableDataset,
            datasets.DatasetDict,
            datasets.IterableDatasetDict,
        )
        if isinstance(source, known):
            return source
        raise drt.ConfigError(
            f"source must be a dataset of Hugging Face's datasets or a path, got a {type(source).__name__}"
        )
    path = Path(source)
    if not path.exists():
        raise drt.ConfigError(
            f"source must be a folder or a file that exists, got {str(path)!r}; a dataset of the Hub is loaded by "
            "datasets.load_dataset and given as an object"
        )
    try:
        # A name alone, such as "text", would be the loader of this name, which reads the current folder.
        return _read(path.absolute())
    except Exception as error:
        raise drt.ConfigError(f"source must be data that datasets reads, got {str(path)!r}: {_told(error)}") from error


def _told(error: BaseException) -> str:
    """An error and what it came from: datasets says only that something happened, and its cause says what."""
    cause = error.__cause__
    if cause is None:
        return f"{type(error).__name__}: {error}"
    return f"{error}: {_told(cause)}"


def _read(path: Path) -> Any:
    if path.is_dir():
        saved = any((path / name).exists() for name in ("dataset_dict.json", "state.json"))
        return datasets.load_from_disk(str(path)) if saved else datasets.load_dataset(str(path))
    loader = _LOADERS.get(path.suffix.lower())
    if loader is None:
        raise ValueError(f"its ending must be one of {', '.join(_LOADERS)}")
    options = {"delimiter": "\t"} if path.suffix.lower() == ".tsv" else {}
    return datasets.load_dataset(loader, data_files=str(path), **options)


def default_name(dataset: AnyDataset) -> str:
    """The name that the dataset gives itself.

    Raises:
        ConfigError: If it has none, or only that of a loader for files.
    """
    name = dataset.info.dataset_name
    if not name or name in _PACKAGED:
        found = f"only that of its loader, {name!r}" if name else "none"
        raise drt.ConfigError(f"a dataset must have a name to be cached under, and this one has {found}; give name=")
    return str(name)
