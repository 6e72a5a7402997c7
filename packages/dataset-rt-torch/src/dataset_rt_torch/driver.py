"""torch's DataLoader as a driver of `dataset_rt.testing`, which replays orders through any framework."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import dataset_rt as drt
from dataset_rt.testing.driver import Delivery
from dataset_rt_torch.loader import StreamDataLoader, make_dataloader

__all__ = ["TorchDriver", "TorchLoader"]


class TorchLoader:
    """`make_dataloader` with its defaults, epoch after epoch."""

    def __init__(self, loader: StreamDataLoader) -> None:
        self._loader = loader
        self._batches: Iterator[Any] | None = None

    def epoch(self) -> Iterator[Delivery]:
        """Deliver the next window."""
        self._batches = iter(self._loader)
        # Nothing but the attribute holds torch's iterator, so that `close` ends its workers in the middle of an epoch.
        while self._batches is not None:
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                return
            cache_ids, sample_ids = (batch[name].numpy().view(np.uint64) for name in ("cache_id", "sample_id"))
            yield Delivery(cache_ids, sample_ids, batch["data"])

    def state_dict(self) -> dict[str, Any]:
        """Give the loader's state; what workers have read ahead does not count in it."""
        return self._loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the loader's state."""
        self._loader.load_state_dict(state)

    def close(self) -> None:
        """End the worker processes."""
        self._batches = None


class TorchDriver:
    """Drives `make_dataloader`; its workers are processes, started as torch does by default."""

    name = "torch"
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
    ) -> TorchLoader:
        """Make a loader of a rank's windows."""
        loader = make_dataloader(
            dataset,
            batch_size,
            num_workers=num_workers,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
            drop_last=drop_last,
        )
        return TorchLoader(loader)
