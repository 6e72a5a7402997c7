"""tf.data as a driver of `dataset_rt.testing`, which replays orders through any framework."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pyarrow as pa

import dataset_rt as drt
from dataset_rt.testing.driver import Delivery
from dataset_rt_tf.batches import as_dataset
from dataset_rt_tf.decoding import columns_of
from dataset_rt_tf.state import StreamState

__all__ = ["TensorFlowDriver", "TensorFlowLoader"]


def _delivered(batch: pa.RecordBatch) -> dict[str, Any]:
    """What a delivery has; stored columns may hold nulls, for which tensors have no value."""
    return columns_of(batch.select(["cache_id", "sample_id", "data"]))


class TensorFlowLoader:
    """`as_dataset`, pass after pass; made again when the epoch length has changed, as users must."""

    def __init__(self, dataset: drt.CachedDataset, batch_size: int, **options: Any) -> None:
        self._dataset = dataset
        self._make = partial(as_dataset, dataset, batch_size, decode_batch=_delivered, **options)
        place = {name: options[name] for name in ("rank", "world_size", "remainder", "drop_last")}
        self._ticket = partial(dataset.ticket, batch_size, **place)
        self._batches: Any = None
        self._epoch_len = 0
        self._state: StreamState | None = None
        # Of the pass that runs; None between passes.
        self._consumed: int | None = None

    def epoch(self) -> Iterator[Delivery]:
        """Deliver the next window."""
        ticket = self._ticket()
        if ticket.num_batches == 0:
            # `as_dataset` refuses epochs without a full batch; the window passes all the same.
            ticket.reserve().finish()
            return
        if self._batches is None or self._epoch_len != self._dataset.epoch_len:
            self._epoch_len = self._dataset.epoch_len
            self._state = StreamState()
            self._batches = self._make(state=self._state)
        for consumed, batch in enumerate(self._batches, start=1):
            self._consumed = consumed
            yield Delivery(batch["cache_id"].numpy(), batch["sample_id"].numpy(), batch["data"].numpy().tolist())
        self._consumed = None

    def state_dict(self) -> dict[str, Any]:
        """Give the state behind the batches that were delivered; tf.data has read ahead of them."""
        if self._state is None or self._consumed is None:
            # Where the next window starts: a rank that is at its end has passed the draws of those that are not.
            return self._ticket().state_dict()
        return self._state.state_dict(batches=self._consumed)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the dataset's state."""
        self._dataset.load_state_dict(state)
        self._batches = self._state = self._consumed = None

    def close(self) -> None:
        """End TensorFlow's iterators."""
        self._batches = None


class TensorFlowDriver:
    """Drives tf.data. Workers are batches that are read at once; exceptions arrive as `tf.errors` with our text."""

    name = "tf"
    capabilities = frozenset({"workers", "state", "table"})

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
    ) -> TensorFlowLoader:
        """Make a loader of a rank's windows."""
        return TensorFlowLoader(
            dataset,
            batch_size,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
            drop_last=drop_last,
            num_parallel_calls=max(num_workers, 1),
        )
