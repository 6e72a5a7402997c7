"""Digesting what arrives through a framework's loader, so that two machines or frameworks compare one line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dataset_rt._core import ORDER_VERSION, OrderHasher, PayloadHasher
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import ConfigError
from dataset_rt.integers import positive, unsigned
from dataset_rt.testing.driver import Driver, Loader

__all__ = ["DeliveryDigest", "replay"]


@dataclass(frozen=True)
class DeliveryDigest:
    """What arrived, in one line. Two are equal exactly when order and payloads were.

    Attributes:
        order_version: The version of the sampling order that drew.
        population: BLAKE3 of the population, 64 hexadecimal digits.
        draws: How many samples arrived.
        order: BLAKE3 over `cache_id` and `sample_id`, eight little-endian bytes each.
        payloads: BLAKE3 over each payload's length, eight little-endian bytes, and bytes.
    """

    order_version: int
    population: str
    draws: int
    order: str
    payloads: str

    def __str__(self) -> str:
        return (
            f"order_version={self.order_version} population={self.population} draws={self.draws} "
            f"order={self.order} payloads={self.payloads}"
        )


def replay(
    open_dataset: Callable[[], CachedDataset],
    driver: Driver,
    *,
    batch_size: int = 32,
    epochs: int = 1,
    world_size: int = 1,
    remainder: str = "extend",
    num_workers: int = 0,
) -> DeliveryDigest:
    """Drive whole epochs through a framework and digest what arrives.

    All ranks run in this process, each with a dataset of its own, and their samples are
    digested interleaved, in the order of the stream: so the digests do not depend on
    the world size, as long as it divides the epoch length (or `remainder` is "uneven"),
    and never on the batch size or the workers.

    Args:
        open_dataset: Opens the dataset at its starting position; called once a rank.
        driver: Of the framework whose loader delivers.
        batch_size: Samples a batch, at least 1.
        epochs: How many windows, at least 1.
        world_size: How many ranks, at least 1.
        remainder: What ranks do with an epoch that they do not divide.
        num_workers: The loader's workers, on each rank, at least 0.

    Raises:
        ConfigError: If an argument is out of range.
        DatasetRTError: What the dataset or the loader raises.
    """
    if not callable(open_dataset):
        raise ConfigError(f"open_dataset must be a function that opens the dataset, got {open_dataset!r}")
    batch_size, epochs = positive(batch_size, "batch_size"), positive(epochs, "epochs")
    world_size, num_workers = positive(world_size, "world_size"), unsigned(num_workers, "num_workers")
    # A loader of one rank need not look at it.
    if remainder not in ("extend", "drop", "uneven"):
        raise ConfigError(f'remainder must be "extend", "drop" or "uneven", got {remainder!r}')
    datasets = [open_dataset() for _ in range(world_size)]
    population = datasets[0].stream().population_digest
    loaders: list[Loader] = []
    order, payloads, draws = OrderHasher(), PayloadHasher(), 0
    try:
        for rank, dataset in enumerate(datasets):
            made = driver.loader(
                dataset, batch_size, rank=rank, world_size=world_size, remainder=remainder, num_workers=num_workers
            )
            loaders.append(made)
        for _ in range(epochs):
            for cache_id, sample_id, payload in _interleaved([_samples(loader) for loader in loaders]):
                order.add(cache_id, sample_id)
                payloads.add(payload)
                draws += 1
    finally:
        for loader in loaders:
            loader.close()
    return DeliveryDigest(ORDER_VERSION, population, draws, order.hexdigest(), payloads.hexdigest())


def _samples(loader: Loader) -> Iterator[tuple[bytes, bytes, bytes]]:
    """The samples of an epoch one by one, their numbers as bytes."""
    for batch in loader.epoch():
        cache_ids, sample_ids = np.asarray(batch.cache_ids, dtype="<u8"), np.asarray(batch.sample_ids, dtype="<u8")
        for cache_id, sample_id, payload in zip(cache_ids, sample_ids, batch.payloads, strict=True):
            yield cache_id.tobytes(), sample_id.tobytes(), payload


def _interleaved(ranks: list[Iterator[tuple[bytes, bytes, bytes]]]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """One sample of each rank in turn; the ranks that end first are those without a last, odd draw."""
    running = ranks
    while running:
        still_running = []
        for samples in running:
            for sample in samples:
                yield sample
                still_running.append(samples)
                break
        running = still_running
