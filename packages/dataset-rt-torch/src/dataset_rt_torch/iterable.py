"""The iterable dataset: whole batches, dealt to the workers in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import torch
from torch.utils.data import IterableDataset, get_worker_info

from dataset_rt import CachedDataset, CachedSample, ConfigError, SampleStream, Window
from dataset_rt_torch.late_stream import LateStream
from dataset_rt_torch.other_sharding import refuse_other_sharding
from dataset_rt_torch.reading import Decoding
from dataset_rt_torch.source import Plan
from dataset_rt_torch.worker_errors import errors_reach_the_parent

__all__ = ["StreamIterableDataset"]


class StreamIterableDataset(IterableDataset[Any]):
    """Yields one window in whole batches, for `DataLoader(..., batch_size=None)`.

    Of W workers, worker w yields the batches w, w + W, w + 2W and so on, which a
    DataLoader puts into their order again. Every iteration delivers the same window: this
    copy moves nothing, and the copies in workers could not. `set_position` chooses
    another, for running persistent workers, too; `make_dataloader` does so by itself.

    The table is that of the moment when this was made. For edits between epochs use
    `StreamDataset`. And this has no state to save: torchdata's `StatefulDataLoader`, which
    asks for one with every batch of a worker, is refused.

    Args:
        dataset: A `CachedDataset`, a rank's view, or a `stream()`.
        batch_size: Samples a batch, at least 1.
        decode: From a `CachedSample` to an item; a batch is then a list of items.
        decode_batch: From a `pyarrow.RecordBatch` to a batch.
        rank: As in `StreamBatchSampler`.
        world_size: As in `StreamBatchSampler`.
        remainder: As in `StreamBatchSampler`.
        drop_last: As in `StreamBatchSampler`.

    Raises:
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        dataset: CachedDataset | SampleStream,
        batch_size: int,
        *,
        decode: Callable[[CachedSample], Any] | None = None,
        decode_batch: Callable[[pa.RecordBatch], Any] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
        drop_last: bool = False,
    ) -> None:
        self.plan: Plan | None = Plan(dataset, batch_size, rank, world_size, remainder, drop_last)
        self.decoding = Decoding(decode, decode_batch)
        self._stream = LateStream(dataset.stream() if isinstance(dataset, CachedDataset) else dataset)
        self._batches = (self.plan.batch_size, drop_last)
        self._world: tuple[int, int, str] | None = None
        # First position and nominal length, as bits of unsigned numbers, in memory that workers share.
        self._place: torch.Tensor = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._set_place(self.plan.source.position, self._stream.opened().epoch_len)
        self._reserved: Window | None = None
        self._own_place: tuple[int, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # The rank is found here: a worker process is none. The dataset and its position stay here as well.
        self._find_world()
        return self.__dict__ | {"plan": None, "_reserved": None}

    def __len__(self) -> int:
        """The number of batches, of all workers together."""
        return self._window().num_batches

    def set_position(self, position: int, *, epoch_len: int | None = None) -> None:
        """Choose the window of the iterations to come.

        Args:
            position: Its first draw, of all ranks, in [0, 2**64).
            epoch_len: How many draws all ranks take together; None for the stream's.

        Raises:
            ConfigError: If a number is out of range.
        """
        length = self._stream.opened().epoch_len if epoch_len is None else epoch_len
        self._stream.opened().window(position, epoch_len=length)
        self._set_place(int(position), int(length))
        self._reserved = self._own_place = None

    def state_dict(self) -> dict[str, Any]:
        """Refuse: torchdata's loader would count the batches of a window, and forget which window it was.

        Raises:
            ConfigError: Always.
        """
        with errors_reach_the_parent():
            raise ConfigError(
                "a StreamIterableDataset must not be saved, since every iteration delivers one window again; use a "
                "StreamDataset with a StreamBatchSampler in a StatefulDataLoader, or the state of "
                "make_dataloader(iterable=True)"
            )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Refuse, as `state_dict` does.

        Raises:
            ConfigError: Always.
        """
        self.state_dict()

    def __iter__(self) -> Iterator[Any]:
        """Yield this worker's batches of the window."""
        worker = get_worker_info()
        if worker is None:
            refuse_other_sharding(self._find_world()[1])
            window = self._reserved or self._window()
            return (self.decoding.decoded(loaded) for loaded in self.decoding.ahead(window))
        return self._share(self._window(), worker.id, worker.num_workers)

    def _share(self, window: Window, first: int, step: int) -> Iterator[Any]:
        size = window.batch_size
        for number in range(first, window.num_batches, step):
            yield self.decoding.read(self._stream.opened(), window.records(number * size, size))

    def reserve(self, window: Window, *, workers_are_running: bool) -> None:
        """Deliver a reserved window next, in this process and in the workers.

        Args:
            window: The window.
            workers_are_running: Whether workers that exist already deliver it, which only
                see shared memory. New ones are given a place of their own, so that the
                next window, reserved before they have looked, is not theirs.

        Raises:
            ConfigError: If the table was edited since this dataset was made.
        """
        if window.stream().population_digest != self._stream.opened().population_digest:
            raise ConfigError(
                "the table of an iterable loader must stay as it was when the loader was made, got an edited one; "
                "make a new loader, or use make_dataloader without iterable=True"
            )
        _, end = window.state_dict(batches=0)["window"]
        place = (window.start, end - window.start)
        self._set_place(*place)
        self._own_place = None if workers_are_running else place
        self._reserved = window

    def _window(self) -> Window:
        size, drop_last = self._batches
        rank, world_size, remainder = self._find_world()
        start, length = self._own_place or (number % 2**64 for number in self._place.tolist())
        return self._stream.opened().window(
            start,
            size,
            epoch_len=length,
            drop_last=drop_last,
            rank=rank,
            world_size=world_size,
            remainder=remainder,
        )

    def _set_place(self, start: int, length: int) -> None:
        bits = [number - 2**64 if number >= 2**63 else number for number in (start, length)]
        self._place.copy_(torch.tensor(bits, dtype=torch.int64))

    def _find_world(self) -> tuple[int, int, str]:
        if self.plan is not None:
            self._world = self.plan.ranks.world()
        assert self._world is not None
        return self._world
