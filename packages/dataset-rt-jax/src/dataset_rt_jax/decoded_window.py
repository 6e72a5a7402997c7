"""The decoded batches of a window, one after another, whatever interrupts them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import dataset_rt as drt
from dataset_rt_jax.rests import rest_of

if TYPE_CHECKING:
    from dataset_rt_jax.decoding import Decoder

__all__ = ["DecodedWindow"]

_NOTHING = object()


class DecodedWindow:
    """Reads and decodes the batches of a window ahead; made by `Decoder.window`, for one thread at a time.

    A batch is given by `peek` until `advance` says that it was delivered. An exception may come at any place between:
    out of a function to decode, or out of a signal's handler. What was read ahead is then read again, from the batch
    that the window notes as the next one, so that no other comes in its place.
    """

    def __init__(self, decoder: Decoder, window: drt.Window) -> None:
        self._decoder = decoder
        self._window = window
        self._batches: Iterator[Any] = iter(())
        # Whether the next of `_batches` is batch `_taken`; not so until it is begun, and from a read to its delivery.
        self._is_in_place = False
        self._held: Any = _NOTHING
        self._taken: int | None = 0

    @property
    def taken(self) -> int:
        """How many batches were delivered."""
        if self._taken is None:
            # Interrupted while it was noted: the window knows whether it was.
            state = self._window.state_dict()
            left = 0 if state["window"] is None else self._rest(state).num_batches
            self._taken = self._window.num_batches - left
        return self._taken

    @property
    def num_left(self) -> int:
        """How many batches are still to be delivered."""
        return self._window.num_batches - self.taken

    def peek(self) -> Any:
        """Give the batch that is to be delivered next; there must be one left.

        Raises:
            ConfigError: As `Decoder.batch` does.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        if self._held is _NOTHING:
            if not self._is_in_place:
                self._batches = self._read(self._rest(self._window.state_dict()) if self.taken else self._window)
            self._is_in_place = False
            try:
                self._held = next(self._batches)
            except StopIteration as error:
                # It must not pass for the end of the window.
                raise RuntimeError(f"the reader ended {self.num_left} batches before its window") from error
        return self._held

    def advance(self) -> None:
        """Note that the next batch was delivered."""
        behind, was_read = self.taken + 1, self._held is not _NOTHING
        self._held, self._taken, self._is_in_place = _NOTHING, None, False
        self._window.advance()
        self._taken, self._is_in_place = behind, was_read

    def _rest(self, state: dict[str, Any]) -> drt.Window:
        window = self._window
        return rest_of(window.stream(), state, window.batch_size, drop_last=window.drop_last, world=window.world)

    def _read(self, window: drt.Window) -> Iterator[Any]:
        decoder = self._decoder
        if decoder.decode_batch is not None:
            for batch in window.iter_batches():
                yield decoder.record_batch(batch)
            return
        samples = window.iter_samples()
        for _ in range(window.num_batches):
            yield decoder.samples(list(itertools.islice(samples, window.batch_size)))
