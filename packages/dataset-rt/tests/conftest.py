"""What the tests share: sources that count, a runtime, and caches made in one line."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import dataset_rt as drt


class ListSource:
    """A source over a list, that counts how often it was iterated.

    An item is a `CacheInput`, a `SkippedInput`, anything else to be yielded as it is,
    or an exception to be raised.
    """

    def __init__(self, name: str, items: Iterable[Any], **optional: Any) -> None:
        self.name = name
        self.items = items
        self.iterations = 0
        # `metadata_schema` and `attributes` are only there if they are given.
        self.__dict__.update(optional)

    def __iter__(self) -> Iterator[Any]:
        self.iterations += 1
        for item in self.items:
            if isinstance(item, BaseException):
                raise item
            yield item


def inputs(rows: Iterable[Mapping[str, Any]], payload: str = "payload {}") -> list[drt.CacheInput]:
    return [drt.CacheInput(payload.format(number).encode(), row) for number, row in enumerate(rows)]


@pytest.fixture
def runtime() -> Iterator[drt.DatasetRuntime]:
    with drt.DatasetRuntime(num_workers=2) as made:
        yield made


@pytest.fixture
def source_of() -> Callable[..., ListSource]:
    """Make a source: name, then items or metadata rows (dicts)."""

    def make(name: str, items: Iterable[Any], **optional: Any) -> ListSource:
        items = list(items)
        if items and all(type(item) is dict for item in items):
            items = inputs(items)
        return ListSource(name, items, **optional)

    return make


QUIET = drt.WriterConfig(show_progress=False)


@pytest.fixture
def write(runtime: drt.DatasetRuntime, tmp_path: Path) -> Callable[..., Any]:
    """Write one source below `tmp_path` (or `root`); give its only result."""

    def make(source: Any, root: Path | None = None, **fields: Any) -> Any:
        config = QUIET.model_copy(update=fields)
        (result,) = runtime.write_cache(source, root or tmp_path / "caches", writer_config=config)
        return result

    return make


@pytest.fixture
def cache_of(write: Callable[..., Any], source_of: Callable[..., ListSource]) -> Callable[..., Path]:
    """Write a cache of some rows; give its folder."""

    def make(name: str, items: Iterable[Any], root: Path | None = None, **fields: Any) -> Path:
        result = write(source_of(name, items), root, **fields)
        assert isinstance(result, drt.CacheWriteSuccess), result
        return result.path

    return make


@pytest.fixture
def open_caches(runtime: drt.DatasetRuntime) -> Callable[..., drt.CachedDataset]:
    """Open caches by their folders, in table order unless it is said otherwise."""

    def make(*paths: Path, shuffle: bool = False, **fields: Any) -> drt.CachedDataset:
        return runtime.cached_dataset(list(paths), reader_config=drt.ReaderConfig(shuffle=shuffle, **fields))

    return make


@pytest.fixture
def read_back(open_caches: Callable[..., drt.CachedDataset]) -> Callable[[Path], list[drt.CachedSample]]:
    """Every sample of a cache, in order."""

    def make(path: Path) -> list[drt.CachedSample]:
        return list(open_caches(path))

    return make


@pytest.fixture
def tree() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder, by its relative path."""

    def make(folder: Path) -> dict[str, bytes]:
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return make


@pytest.fixture
def nothing_left() -> Callable[..., None]:
    """Assert that a root holds these caches, and else only locks and an empty building folder."""

    def check(root: Path, *names: str) -> None:
        if not root.exists():
            assert not names
            return
        found = {entry.name for entry in root.iterdir()} - {".locks", ".building"}
        assert found == set(names)
        building = root / ".building"
        assert not building.exists() or list(building.iterdir()) == []

    return check


@pytest.fixture(scope="session")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of a million empty samples."""
    source = ListSource("million", itertools.repeat(drt.CacheInput(b"", {}), 1_000_000))
    with drt.DatasetRuntime(num_workers=2) as runtime:
        (result,) = runtime.write_cache(source, tmp_path_factory.mktemp("million"), writer_config=QUIET)
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


@pytest.fixture
def table() -> pl.DataFrame:
    """Rows of every kind of column, with nulls."""
    return pl.DataFrame(
        {
            "flag": [True, False, None, True, False, True],
            "label": [0, 1, 2, None, -(2**63), 2**63 - 1],
            "score": [0.0, float("nan"), None, 1.5, -2.5, float("inf")],
            "text": ["", "a", None, "ä\0", "b", "a"],
            "day": pl.Series(
                ["2020-01-01", None, "1969-12-31", "0001-01-01", "9999-12-31", "2020-01-01"]
            ).str.to_date(),
            "moment": pl.Series(
                [0, None, -1, 1, 1_600_000_000_000_000, 253_402_300_799_999_999], dtype=pl.Datetime("us")
            ),
        }
    )
