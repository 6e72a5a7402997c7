"""What the tests share: eight CPU devices, caches of numbered samples, and the stream's order as plain lists."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# Before JAX looks at it.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"

import absl.flags
import numpy as np
import pytest

import dataset_rt as drt

# Grain's worker processes want parsed flags, and pytest's command line is not absl's to parse.
absl.flags.FLAGS.mark_as_parsed()

SHAPE = (6,)
MODES: dict[str, dict[str, Any]] = {
    "ordered": {"shuffle": False},
    "with_replacement": {"seed": 11},
    "without_replacement": {"replacement": False, "seed": 11},
}


class Numbers:
    """Sample i holds six float32: i, and five that follow from it."""

    def __init__(self, length: int, first: int) -> None:
        self.name = f"numbers-{length}"
        self.length = length
        self.first = first

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number in range(self.first, self.first + self.length):
            yield drt.CacheInput(payload(number).tobytes(), {"label": number % 5})


def payload(number: int) -> np.ndarray:
    return np.float32(number) + np.arange(SHAPE[0], dtype=np.float32) / 8


@pytest.fixture(scope="session")
def runtime() -> Iterator[drt.DatasetRuntime]:
    with drt.DatasetRuntime(num_workers=2) as made:
        yield made


@pytest.fixture(scope="session")
def write(runtime: drt.DatasetRuntime) -> Callable[..., Path]:
    """Write samples from a number on below a folder; give the cache's folder."""

    def make(length: int, root: Path, first: int = 0) -> Path:
        source, config = Numbers(length, first), drt.WriterConfig(show_progress=False)
        (result,) = runtime.write_cache(source, root, writer_config=config)
        assert isinstance(result, drt.CacheWriteSuccess), result
        return result.path

    return make


@pytest.fixture(scope="session")
def cache_of(write: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The cache of a length, written once."""
    written: dict[int, Path] = {}

    def find(length: int) -> Path:
        if length not in written:
            written[length] = write(length, tmp_path_factory.mktemp("caches"))
        return written[length]

    return find


@pytest.fixture
def open_dataset(runtime: drt.DatasetRuntime, cache_of: Callable[[int], Path]) -> Callable[..., drt.CachedDataset]:
    """Open the cache of a length, or others by their folders."""

    def make(length: int, *paths: Path, mode: str = "with_replacement", **config: Any) -> drt.CachedDataset:
        reader_config = drt.ReaderConfig(**{**MODES[mode], **config})
        return runtime.cached_dataset(list(paths) or [cache_of(length)], reader_config=reader_config)

    return make


@pytest.fixture
def decode_batch() -> drt.ArrayDecoder:
    return drt.array_decoder("float32", SHAPE, metadata=["label"])


@pytest.fixture(scope="session")
def number_of() -> Callable[[drt.CachedSample], Any]:
    """Decode a sample to its number."""
    return lambda sample: np.frombuffer(sample.data, np.float32)[0]


@pytest.fixture(scope="session")
def drawn() -> Callable[[drt.CachedDataset | drt.SampleStream, int, int], list[int]]:
    """The numbers of the samples that the core draws from a position on."""

    def draw(dataset: drt.CachedDataset | drt.SampleStream, start: int, count: int) -> list[int]:
        stream = dataset.stream() if isinstance(dataset, drt.CachedDataset) else dataset
        return [sample.sample_id for sample in stream.fetch(range(start, start + count))]

    return draw


@pytest.fixture(scope="session")
def windows_of(drawn: Callable[..., list[int]]) -> Callable[..., list[list[int]]]:
    """For each window the numbers of the samples that a rank takes: by counting, one draw after another."""

    def deal(
        dataset: drt.CachedDataset, rank: int = 0, size: int = 1, remainder: str = "extend", windows: int = 3
    ) -> list[list[int]]:
        whole = drawn(dataset, 0, windows * (dataset.epoch_len + size))
        dealt, start = [], 0
        for _ in range(windows):
            positions = list(range(start, start + dataset.epoch_len))
            while remainder == "extend" and len(positions) % size:
                positions.append(positions[-1] + 1)
            while remainder == "drop" and len(positions) % size:
                positions.pop()
            start += len(positions)
            dealt.append([whole[position] for position in positions[rank::size]])
        return dealt

    return deal
