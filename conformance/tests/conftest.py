"""Caches of counted samples, and the two sides of every comparison."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

import dataset_rt as drt
from oracle import ORDERED, PERMUTATION, Row

ORDER_FILES = Path(__file__).parents[2] / "testdata" / "order"


class Counted:
    """A source of `count` samples: sample n has the payload str(n) and the column `number` = n."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count

    def __iter__(self):
        for number in range(self.count):
            yield drt.CacheInput(str(number).encode(), {"number": number})


class Caches:
    """Written once a run; a cache is asked for by its number of samples."""

    def __init__(self, root: Path, runtime: drt.DatasetRuntime) -> None:
        self.root = root
        self.runtime = runtime
        self.paths: dict[tuple[str, int], Path] = {}

    def path(self, count: int, name: str | None = None) -> Path:
        name = name or f"counted_{count}"
        if (name, count) not in self.paths:
            (result,) = self.runtime.write_cache(
                Counted(name, count), self.root, writer_config=drt.WriterConfig(show_progress=False)
            )
            assert isinstance(result, drt.CacheWriteSuccess), result
            self.paths[name, count] = result.path
        return self.paths[name, count]

    def open(self, *counts: int, mode: str, seed: int, **fields) -> drt.CachedDataset:
        config = drt.ReaderConfig(seed=seed, shuffle=mode != ORDERED, replacement=mode != PERMUTATION, **fields)
        return self.runtime.cached_dataset([self.path(count) for count in counts], reader_config=config)


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    # One thread: these tests are about the order, and iterators come and go by the thousand.
    with drt.DatasetRuntime(num_workers=1) as runtime:
        yield Caches(tmp_path_factory.mktemp("caches"), runtime)


@pytest.fixture(scope="session")
def vectors():
    return json.loads((ORDER_FILES / "order_v1_vectors.json").read_text())


@pytest.fixture(scope="session")
def rows_of():
    """A metadata table as the oracle sees it."""

    def convert(table: pl.DataFrame) -> list[Row]:
        columns = ("cache_id", "sample_id", "weight")
        return [Row(*values) for values in zip(*(table[name].to_list() for name in columns), strict=True)]

    return convert
