"""The core's own iterators as a driver, which needs no framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import ConfigError
from dataset_rt.testing.driver import Delivery

__all__ = ["CoreDriver", "delivery"]


def delivery(batch: pa.RecordBatch) -> Delivery:
    """The parts of a batch that every framework must agree on."""
    return Delivery(
        batch.column("cache_id").to_numpy(),
        batch.column("sample_id").to_numpy(),
        batch.column("data").to_pylist(),
    )


class CoreLoader:
    """`CachedDataset.iter_batches`, epoch after epoch."""

    def __init__(self, dataset: CachedDataset, batch_size: int, *, drop_last: bool) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        self._drop_last = drop_last

    def epoch(self) -> Iterator[Delivery]:
        """Deliver the next window."""
        for batch in self._dataset.iter_batches(self._batch_size, drop_last=self._drop_last):
            yield delivery(batch)

    def state_dict(self) -> dict[str, Any]:
        """The dataset's state."""
        return self._dataset.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the dataset's state."""
        self._dataset.load_state_dict(state)

    def close(self) -> None:
        """Nothing is held."""


class CoreDriver:
    """Drives the core alone; its reads run in the native threads of the dataset's runtime."""

    name = "core"
    capabilities = frozenset({"state", "table", "errors"})

    def loader(
        self,
        dataset: CachedDataset,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        remainder: str = "extend",
        drop_last: bool = False,
        num_workers: int = 0,
    ) -> CoreLoader:
        """Make a loader over a rank's view.

        Raises:
            ConfigError: If `num_workers` is not 0: the runtime says how many threads read.
        """
        if num_workers:
            raise ConfigError(f"num_workers must be 0 for the core, which has no worker processes, got {num_workers}")
        view = dataset if world_size == 1 else dataset.shard(rank, world_size, remainder=remainder)
        return CoreLoader(view, batch_size, drop_last=drop_last)
