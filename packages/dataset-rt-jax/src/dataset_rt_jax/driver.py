"""Grain as a driver of `dataset_rt.testing`, which replays orders through any framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grain

import dataset_rt as drt
from dataset_rt.testing.core_driver import delivery
from dataset_rt.testing.driver import Delivery
from dataset_rt_jax.iter_dataset import StreamIterDataset
from dataset_rt_jax.states import from_grain

__all__ = ["GrainDriver", "GrainLoader"]


class GrainLoader:
    """`StreamIterDataset`, epoch after epoch; one of Grain's threads prefetches batches if workers are asked for."""

    def __init__(self, dataset: drt.CachedDataset, batches: grain.IterDataset, num_workers: int) -> None:
        self._dataset = dataset
        if num_workers:
            batches = grain.experimental.ThreadPrefetchIterDataset(batches, prefetch_buffer_size=num_workers)
        self._batches = batches
        self._iterator: grain.DatasetIterator | None = None

    def epoch(self) -> Iterator[Delivery]:
        """Deliver the next window."""
        self.close()
        self._iterator = iterator = iter(self._batches)
        yield from iterator

    def state_dict(self) -> dict[str, Any]:
        """Give the state of what Grain has delivered; the dataset's own may be ahead of it."""
        if self._iterator is None:
            return self._dataset.state_dict()
        return from_grain(self._iterator.get_state())[0]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the dataset's state."""
        self.close()
        self._dataset.load_state_dict(state)

    def close(self) -> None:
        """End Grain's thread."""
        if self._iterator is not None:
            self._iterator.close()
            self._iterator = None


class GrainDriver:
    """Drives Grain. Its workers are batches that a thread prefetches: processes need an index and no position."""

    name = "jax"
    capabilities = frozenset({"workers", "state", "table", "errors"})

    def loader(
        self,
        dataset: drt.CachedDataset,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        remainder: str = "extend",
        drop_last: bool = False,
        num_workers: int = 0,
    ) -> GrainLoader:
        """Make a loader of a rank's windows."""
        batches = StreamIterDataset(
            dataset,
            batch_size,
            drop_last=drop_last,
            decode_batch=delivery,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
        )
        return GrainLoader(dataset, batches, num_workers)
