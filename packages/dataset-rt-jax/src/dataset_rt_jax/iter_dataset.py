"""The stream as a dataset of Grain's that is iterated, with the stream's own state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import grain

import dataset_rt as drt
from dataset_rt import ConfigError
from dataset_rt_jax.decoded_window import DecodedWindow
from dataset_rt_jax.decoding import Decode, DecodeBatch, Decoder
from dataset_rt_jax.integers import at_least_one
from dataset_rt_jax.rests import reserve
from dataset_rt_jax.states import from_grain, to_grain
from dataset_rt_jax.world import World

__all__ = ["StreamIterDataset"]


class StreamIterDataset(grain.IterDataset):  # type: ignore[misc]
    """Whole batches of this rank's windows, read ahead by the core's threads.

    Given a `CachedDataset`, an iterator reserves each window there at its first batch, as the dataset's own iterators
    do: what is loaded, edited and reset acts at the next window, and iterators go on where the last one ended. Given a
    `stream()`, each iterator starts at position 0.

    The state of its iterators is that of the stream and the number of windows behind it. It holds at any world size,
    is refused for another population, and restoring it puts the dataset back, too. Orbax saves it with the iterator.

    Workers cannot share it: for `mp_prefetch` take `StreamMapDataset`. Grain's `RepeatIterDataset` would replay the
    first window: say `epochs` here.

    Args:
        dataset: A `CachedDataset` or its `stream()`.
        batch_size: Draws in a batch.
        epochs: How many windows, or None for all that the stream has.
        drop_last: Whether to leave out a last batch that is short; the position moves past it all the same.
        decode: From a `CachedSample` to an element; the results are stacked leaf by leaf.
        decode_batch: From a `pyarrow.RecordBatch` to an element. Without either, elements are lists of `CachedSample`.
        rank: This process's number in [0, world_size), default `jax.process_index()`.
        world_size: Number of processes, default `jax.process_count()`.
        remainder: What happens where `world_size` does not divide an epoch; see `CachedDataset.shard`.

    Raises:
        ConfigError: If an argument is out of range, or they contradict each other.
    """

    def __init__(
        self,
        dataset: drt.CachedDataset | drt.SampleStream,
        batch_size: int,
        *,
        epochs: int | None = 1,
        drop_last: bool = False,
        decode: Decode | None = None,
        decode_batch: DecodeBatch | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self._batch_size = at_least_one(batch_size, "batch_size")
        self._epochs = None if epochs is None else at_least_one(epochs, "epochs")
        self._drop_last = drop_last
        self._decoder = Decoder(decode, decode_batch)
        self._world = World(dataset, rank, world_size, remainder)

    def __iter__(self) -> StreamDatasetIterator:
        """Give an iterator; it reserves a window when its first batch is asked for."""
        cursor = self._dataset if isinstance(self._dataset, drt.CachedDataset) else self._dataset.cursor()
        world = self._world.arguments()

        def ticket() -> drt.WindowTicket:
            return cursor.ticket(self._batch_size, drop_last=self._drop_last, **world)

        return StreamDatasetIterator(cursor, ticket, self._epochs, self._decoder)

    def set_slice(self, sl: slice, sequential_slice: bool = False) -> NoReturn:  # noqa: ARG002, FBT001, FBT002
        """Refuse to be divided among workers; Grain calls this for `mp_prefetch`.

        Raises:
            ConfigError: Always.
        """
        raise ConfigError(
            "a StreamIterDataset must stay in its process, as it owns a position; for mp_prefetch use "
            "StreamMapDataset(dataset, batch_size=...).to_iter_dataset()"
        )

    def __str__(self) -> str:
        return f"StreamIterDataset(batch_size={self._batch_size}, epochs={self._epochs})"

    __repr__ = __str__


class StreamDatasetIterator(grain.DatasetIterator):  # type: ignore[misc]
    """Delivers window after window; made by `StreamIterDataset`, for one thread at a time.

    An exception, be it out of a function to decode or out of a signal's handler, skips nothing: the next call gives the
    batch that its state names.
    """

    def __init__(
        self,
        cursor: drt.CachedDataset | drt.StreamCursor,
        ticket: Callable[[], drt.WindowTicket],
        epochs: int | None,
        decoder: Decoder,
    ) -> None:
        super().__init__()
        self._is_closed = False
        self._cursor = cursor
        self._make_ticket = ticket
        self._epochs = epochs
        self._decoder = decoder
        # Windows behind this iterator, the last of which may have been a rest.
        self._epoch = 0
        # Of the window to come, made with the iterator; those of later windows are made when they begin.
        self._ticket: drt.WindowTicket | None = ticket()
        self._window: drt.Window | None = None
        self._ahead: DecodedWindow | None = None

    def __next__(self) -> Any:
        """Give the next batch, of the next window where one is at its end.

        Raises:
            StopIteration: Behind the last window.
            ValueError: If it was closed.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
            ConfigError: If a window would exceed the end of the stream, none of endlessly many windows has a batch for
                this rank, or a function to decode gave None or raised StopIteration.
        """
        if self._is_closed:
            raise ValueError("the iterator is closed; make another one")
        while True:
            window = self._window or self._begin()
            if self._ahead is None:
                self._ahead = self._decoder.window(window)
            if self._ahead.num_left == 0:
                window.finish()
                self._end()
                continue
            batch = self._ahead.peek()
            self._ahead.advance()
            if self._ahead.num_left == 0:
                self._end_if_consumed()
            return batch

    def get_state(self) -> dict[str, Any]:
        """The state of the stream and the number of windows behind, of one shape at every step, as JSON holds it."""
        self._end_if_consumed()
        return to_grain(self.state_dict(), epoch=self._epoch)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to where an iterator stood; the dataset goes there, too.

        Args:
            state: What `get_state` gave, at any world size.

        Raises:
            StateMismatchError: If it is of another seed, mode, table or version; it names the field.
            ConfigError: If it is no state of a `StreamIterDataset`.
        """
        stream, epoch = from_grain(state)
        self._cursor.load_state_dict(stream)
        self._epoch, self._window, self._ahead = epoch, None, None
        self._ticket = self._make_ticket()

    def state_dict(self) -> dict[str, Any]:
        """The state of the stream alone, which every adapter loads."""
        if self._window is not None:
            return self._window.state_dict()
        return (self._ticket or self._make_ticket()).state_dict()

    def close(self) -> None:
        """Stop reading ahead, and give no more."""
        # Grain closes what it collects, which may be an iterator that was never made whole.
        self._is_closed, self._ahead = True, None

    def _begin(self) -> drt.Window:
        if self._epochs is not None and self._epoch >= self._epochs:
            raise StopIteration
        window = reserve(self._cursor, self._ticket or self._make_ticket())
        if window.num_batches == 0 and self._epochs is None:
            raise ConfigError(
                f"endless epochs must have a batch for each rank, got {window.num_draws} draws a rank with batches of "
                f"{window.batch_size} and drop_last={window.drop_last}; take smaller batches or a longer epoch"
            )
        self._ticket, self._window, self._ahead = None, window, None
        return window

    def _end_if_consumed(self) -> None:
        # Counted behind the last batch and not at the next call: a state that is saved here is one behind the window.
        # Only under remainder="uneven" another rank may have more to come.
        if self._window is not None and self._window.state_dict()["window"] is None:
            self._end()

    def _end(self) -> None:
        self._window, self._ahead, self._epoch = None, None, self._epoch + 1
