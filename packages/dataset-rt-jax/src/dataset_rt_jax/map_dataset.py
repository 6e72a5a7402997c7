"""The stream as a dataset of Grain's that is read by index."""

from __future__ import annotations

from typing import Any, SupportsIndex

import grain

import dataset_rt as drt
from dataset_rt import ConfigError
from dataset_rt_jax.decoding import Decode, DecodeBatch, Decoder
from dataset_rt_jax.windows import Windows
from dataset_rt_jax.world import World

__all__ = ["StreamMapDataset"]


class StreamMapDataset(grain.MapDataset):  # type: ignore[misc]
    """This rank's draws, or whole batches of them, by their number: Grain's index leads to a position of the stream.

    `len` is one window; an index behind it lies in the next one, so `repeat` goes on in the stream and replays
    nothing. All that Grain does by index works: `map`, `batch`, `repeat`, slices, `to_iter_dataset` with any number of
    threads, `mp_prefetch`. **Batch before workers**, by `batch_size` here or by `batch`: what is batched behind
    `to_iter_dataset` is batched worker by worker, and then the number of workers changes the order. Behind the rest of
    a loaded window only `batch_size` keeps draws of two windows apart.

    Table, epoch length and start are those of the moment when it was made; it moves no position. Grain's own state is
    an index and nothing else: it cannot know another table. Keep `state_dict` beside it.

    Args:
        dataset: A `CachedDataset` or its `stream()`.
        batch_size: Draws in an element, read in one call. None: single draws.
        drop_last: Whether to leave out a last batch that is short; the next window starts where it does without it.
        decode: From a `CachedSample` to an element. With `batch_size` the results are stacked leaf by leaf.
        decode_batch: From a `pyarrow.RecordBatch` to an element; needs `batch_size`. Both run in Grain's threads and
            workers. Without either the elements are `CachedSample`s, or lists of them.
        start: Position of the first window, which is a whole one then. None: 0 for a stream, and for a dataset where it
            stands. Where a loaded state stands inside a window, its rest comes first, `first_len` elements, and then
            whole windows.
        rank: This process's number in [0, world_size), default `jax.process_index()`.
        world_size: Number of processes, default `jax.process_count()`.
        remainder: What happens where `world_size` does not divide an epoch; see `CachedDataset.shard`.

    Raises:
        ConfigError: If an argument is out of range, or they contradict each other.
    """

    def __init__(
        self,
        dataset: drt.CachedDataset | drt.SampleStream,
        *,
        batch_size: int | None = None,
        drop_last: bool = False,
        decode: Decode | None = None,
        decode_batch: DecodeBatch | None = None,
        start: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
    ) -> None:
        super().__init__()
        if batch_size is None and (decode_batch is not None or drop_last):
            raise ConfigError("decode_batch and drop_last need a batch_size")
        self._decoder = Decoder(decode, decode_batch)
        self._in_batches = batch_size is not None
        self._windows = Windows(
            dataset,
            1 if batch_size is None else batch_size,
            drop_last=drop_last,
            start=start,
            world=World(dataset, rank, world_size, remainder),
        )

    def __len__(self) -> int:
        """Number of elements that a whole window gives this rank.

        Grain counts epochs and slices in it, from the first element on.
        """
        return self._windows.num_elements

    @property
    def first_len(self) -> int:
        """Number of elements that the first window gives this rank: not `len` where it is the rest of a loaded one."""
        return self._windows.first_elements

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Read and decode an element, or give a dataset of a slice.

        Args:
            index: An integer of at least 0, of any window, or a slice within the first `len` elements.

        Raises:
            IndexError: If it is negative, or no window has elements for this rank.
            ConfigError: If it is no integer, or a function to decode gave None or raised StopIteration.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        if isinstance(index, slice):
            return self.slice(index)
        positions = self._windows.positions(index)
        if self._in_batches:
            return self._decoder.batch(self._windows.stream, positions)
        return self._decoder.sample(self._windows.stream.fetch(positions)[0])

    def to_iter_dataset(
        self, read_options: grain.ReadOptions | None = None, *, allow_nones: bool = False
    ) -> grain.IterDataset:
        """Turn it into a `grain.IterDataset`, as every `grain.MapDataset` does.

        Args:
            read_options: Threads and elements ahead. Grain's defaults, 16 and 500, are meant for single elements; of
                whole batches 2 threads read up to 4 ahead, unless it is said otherwise here.
            allow_nones: Has no effect here, as there are no Nones.
        """
        if read_options is None and self._in_batches:
            read_options = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)
        return super().to_iter_dataset(read_options, allow_nones=allow_nones)

    def state_dict(self, consumed: SupportsIndex) -> dict[str, Any]:
        """The state of the stream once this many elements were consumed, for every adapter at any world size.

        Under `remainder="uneven"` ask a rank that is not done: rank 0.

        Args:
            consumed: Elements of this dataset since `start`, through all windows: of an iterator over it that is
                `grain.experimental.get_next_index(iterator)`. All ranks are taken to be as far.

        Raises:
            IndexError: If it is negative.
            ConfigError: If it is no integer.
        """
        return self._windows.state_dict(consumed)

    def __str__(self) -> str:
        return f"StreamMapDataset({self._windows!r})"

    __repr__ = __str__
