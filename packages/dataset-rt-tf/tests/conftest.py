"""What the tests share: caches of numbered samples, and orders taken out of tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dataset_rt as drt

ROWS = 10


def one_batch(batch: pa.RecordBatch) -> dict[str, Any]:
    """Decode as a function of the user's does, which is given one batch at a time."""
    return drt.array_decoder("uint8", (4,), metadata=("label",))(batch)


# What is read together, and what is not.
WAYS: dict[str, dict[str, Any]] = {
    "columns": {},
    "arrays": {"decode_batch": drt.array_decoder("uint8", (4,), metadata=("label",))},
    "own": {"decode_batch": one_batch},
}


class Numbered:
    """`rows` samples: sample i has the payload (i, i, i, i), label i mod 3 and a name that ends in NUL."""

    def __init__(self, rows: int) -> None:
        self.name = f"numbered-{rows}"
        self.rows = rows

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number in range(self.rows):
            yield drt.CacheInput(bytes([number % 256] * 4), {"label": number % 3, "text": f"n{number}\0"})


@pytest.fixture(scope="session")
def runtime() -> Iterator[drt.DatasetRuntime]:
    with drt.DatasetRuntime(num_workers=2) as made:
        yield made


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(scope="session")
def numbered(runtime: drt.DatasetRuntime, caches: Path) -> Callable[..., drt.CachedDataset]:
    """Open the cache of `rows` numbered samples afresh."""

    def make(rows: int = ROWS, **fields: Any) -> drt.CachedDataset:
        config = drt.ReaderConfig(**{"seed": 7, **fields})
        quiet = drt.WriterConfig(show_progress=False)
        found = runtime.from_cache_sources(Numbered(rows), caches, reader_config=config, writer_config=quiet)
        return found.unwrap()

    return make


@pytest.fixture(scope="session")
def ways() -> dict[str, dict[str, Any]]:
    """Arguments of `as_dataset` for numbered samples, by how they are decoded."""
    return WAYS


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Arguments of `as_dataset` for numbered samples."""
    return WAYS[request.param]


@pytest.fixture(scope="session")
def written(runtime: drt.DatasetRuntime, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., drt.CachedDataset]:
    """Cache payloads and metadata rows, and open them in order."""

    def make(samples: list[tuple[bytes, dict[str, Any]]]) -> drt.CachedDataset:
        class Given:
            name = "given"

            def __iter__(self) -> Iterator[drt.CacheInput]:
                return (drt.CacheInput(data, row) for data, row in samples)

        config = drt.ReaderConfig(shuffle=False)
        quiet = drt.WriterConfig(show_progress=False)
        root = tmp_path_factory.mktemp("given")
        return runtime.from_cache_sources(Given(), root, reader_config=config, writer_config=quiet).unwrap()

    return make


@pytest.fixture(scope="session")
def ids() -> Callable[..., list[int]]:
    """Sample ids of batches or samples, in order."""

    def take(elements: Any) -> list[int]:
        found: list[int] = []
        for element in elements:
            found += element["sample_id"].numpy().reshape(-1).tolist()
        return found

    return take


@pytest.fixture(scope="session")
def draws() -> Callable[..., list[int]]:
    """Sample ids of the draws [start, stop) of a dataset's stream, as the core says them."""

    def take(dataset: drt.CachedDataset, stop: int, start: int = 0) -> list[int]:
        return [sample.sample_id for sample in dataset.stream().fetch(range(start, stop))]

    return take
