"""The elements of all windows of a stream, numbered on and on."""

from __future__ import annotations

from functools import cached_property
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt

import dataset_rt as drt
from dataset_rt.integers import integer, unsigned
from dataset_rt_jax.integers import at_least_one
from dataset_rt_jax.rests import rest_of
from dataset_rt_jax.world import World

__all__ = ["Windows"]


class Windows:
    """This rank's share of the windows from `start` on, each of `num_elements` elements: draws, or whole batches.

    Elements are numbered on through all windows, which is how Grain counts through epochs. Where a loaded state stands
    inside a window and no `start` is given, the first window is its rest, of `first_elements` elements. Table and epoch
    length are those of the moment when it was made, and no position is moved. Pickling it looks the world up, so that a
    worker process never looks for its own.
    """

    def __init__(
        self,
        dataset: drt.CachedDataset | drt.SampleStream,
        batch_size: int,
        *,
        drop_last: bool,
        start: int | None,
        world: World,
    ) -> None:
        self.stream = dataset.stream() if isinstance(dataset, drt.CachedDataset) else dataset
        self.start = 0 if start is None else unsigned(start, "start")
        # Where the rest of a window comes first: the state that stands inside it.
        self._loaded: dict[str, Any] | None = None
        if start is None and isinstance(dataset, drt.CachedDataset):
            state = dataset.ticket().state_dict()
            self.start = state["position"]
            self._loaded = None if state["window"] is None else state
        self._batch_size = at_least_one(batch_size, "batch_size")
        self._drop_last = drop_last
        self._world = world

    def __getstate__(self) -> dict[str, Any]:
        self._world.resolve()
        # A window stays in its process; the worker makes its own.
        return {name: value for name, value in self.__dict__.items() if name not in ("_first", "_whole")}

    def __repr__(self) -> str:
        # Without the rank: after the same number of elements the states of all ranks are the same.
        _, size, remainder = self._world.resolve()
        batches = f"batch_size={self._batch_size}, drop_last={self._drop_last}, "
        rest = "" if self._loaded is None else f"rest_of={self._loaded['window']}, "
        return f"{self.stream!r}, start={self.start}, {rest}{batches}world_size={size}, remainder={remainder!r}"

    @property
    def num_elements(self) -> int:
        """How many elements this rank takes of each whole window."""
        return self._whole.num_batches

    @property
    def first_elements(self) -> int:
        """How many elements this rank takes of the first window."""
        return self._first.num_batches

    def positions(self, number: SupportsIndex) -> npt.NDArray[np.uint64]:
        """The positions of the draws of an element.

        Raises:
            IndexError: If no window has elements for this rank, or `number` is negative.
            ConfigError: If it is no integer, or the window would end beyond the stream.
        """
        window, index = self._place(number)
        return window.positions(index * self._batch_size, self._batch_size)

    def state_dict(self, consumed: SupportsIndex) -> dict[str, Any]:
        """The state of the stream once every rank has consumed so many elements.

        Raises:
            IndexError: As in `positions`.
            ConfigError: As in `positions`.
        """
        window, index = self._place(consumed)
        return window.state_dict(batches=index)

    @cached_property
    def _first(self) -> drt.Window:
        if self._loaded is None:
            return self._window(self.start)
        world = self._world.resolve()
        return rest_of(self.stream, self._loaded, self._batch_size, drop_last=self._drop_last, world=world)

    @cached_property
    def _whole(self) -> drt.Window:
        return self._first if self._loaded is None else self._window(0)

    def _window(self, start: int) -> drt.Window:
        rank, size, remainder = self._world.resolve()
        return self.stream.window(
            start,
            self._batch_size,
            drop_last=self._drop_last,
            rank=rank,
            world_size=size,
            remainder=remainder,
        )

    def _place(self, number: object) -> tuple[drt.Window, int]:
        number = integer(number, "index")
        if number < 0:
            raise IndexError(f"index must be at least 0, got {number}: windows go on and have no last element")
        first, whole = self._first, self._whole
        if number < first.num_batches:
            return first, number
        if whole.num_batches == 0:
            raise IndexError(f"an epoch of {self.stream.epoch_len} draws gives this rank no element to index")
        epoch, index = divmod(number - first.num_batches, whole.num_batches)
        return self._window(first.end + epoch * (whole.end - whole.start)), index
