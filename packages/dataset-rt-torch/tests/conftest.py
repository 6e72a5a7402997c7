"""What the tests share: a cache, datasets over it, and what torch says by itself."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dataset_rt as drt

ROWS = 23
SHAPE = (2, 3)


def pytest_configure(config: pytest.Config) -> None:
    """Let through the two warnings that torch and torchdata give on their own account."""
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create:UserWarning")
    config.addinivalue_line("filterwarnings", "ignore:.*set_vital:")
    # A forkserver that has imported all this starts a worker in no time.
    multiprocessing.set_forkserver_preload(["dataset_rt_torch"])


class Arrays:
    """Samples that are told apart by their pixels."""

    def __init__(self, name: str, rows: int) -> None:
        self.name = name
        self.rows = rows

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number in range(self.rows):
            pixels = np.full(SHAPE, number, dtype=np.uint8)
            yield drt.CacheInput(pixels.tobytes(), {"label": number % 5, "score": number / 2, "text": f"row {number}"})


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of `ROWS` samples."""
    return write_cache(tmp_path_factory.mktemp("caches"), Arrays("arrays", ROWS))


def write_cache(root: Path, source: Any) -> Path:
    with drt.DatasetRuntime(num_workers=2) as runtime:
        (result,) = runtime.write_cache(source, root, writer_config=drt.WriterConfig(show_progress=False))
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


@pytest.fixture
def write() -> Callable[[Path, Any], Path]:
    return write_cache


@pytest.fixture
def open_cache(cache: Path) -> Iterator[Callable[..., drt.CachedDataset]]:
    """Open the cache as a new process would."""
    with drt.DatasetRuntime(num_workers=2) as runtime:

        def make(path: Path = cache, *, seed: int = 5, **fields: Any) -> drt.CachedDataset:
            return runtime.cached_dataset([path], reader_config=drt.ReaderConfig(seed=seed, **fields))

        yield make


@pytest.fixture
def dataset(open_cache: Callable[..., drt.CachedDataset]) -> drt.CachedDataset:
    return open_cache()
