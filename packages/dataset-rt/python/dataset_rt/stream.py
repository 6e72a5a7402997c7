"""The immutable view of a population that adapters build on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from dataset_rt._core import CachedSample
from dataset_rt._core import Stream as CoreStream
from dataset_rt.cursor import StreamCursor
from dataset_rt.errors import ConfigError
from dataset_rt.forks import check_polars
from dataset_rt.handle import Handle
from dataset_rt.integers import position_number, positive, rank_of_world, unsigned, unsigned_list
from dataset_rt.window import Window, remainder_name

__all__ = ["SampleStream"]


class SampleStream(Handle[CoreStream]):
    """The endless stream of draws over one population: a pure function of the position.

    Made by `CachedDataset.stream()`. It never changes, moves no position, and is safe to
    use from any thread and to pickle; unpickling opens the caches by their paths.
    """

    _made_by = "CachedDataset.stream()"

    def __reduce__(self) -> tuple[Any, ...]:
        return SampleStream._over, (self._core,)

    def __repr__(self) -> str:
        core = self._core
        return (
            f"SampleStream(rows={core.num_rows}, epoch_len={core.epoch_len}, seed={core.seed}, mode={core.mode!r}, "
            f"population={core.population_digest!r})"
        )

    @property
    def num_rows(self) -> int:
        """Number of rows in the population."""
        return self._core.num_rows

    @property
    def epoch_len(self) -> int:
        """The dataset's epoch length when the stream was taken."""
        return self._core.epoch_len

    @property
    def population_digest(self) -> str:
        """BLAKE3 of the population, 64 hexadecimal digits."""
        return self._core.population_digest

    @property
    def is_whole(self) -> bool:
        """Whether the population is every sample of the caches once, with weight 1."""
        return self._core.is_whole

    def whole(self) -> SampleStream:
        """The stream over every sample of the same caches, each with weight 1.

        It reads the same records, and its pickle is small however the table was edited.
        """
        return SampleStream._over(self._core.whole())

    def opener(self) -> Callable[[], SampleStream]:
        """A function that opens the stream again, to be pickled in its place.

        A pickled stream opens its caches while it is unpickled, where an adapter may have
        no way to tell of an error. The function opens them when it is called, and raises
        what `DatasetRuntime.cached_dataset` raises.
        """
        restore, arguments = self._core.__reduce__()
        return partial(_opened, restore, arguments)

    def cursor(self) -> StreamCursor:
        """A position of its own in this stream, at first 0, that moves from window to window."""
        return StreamCursor._over(self._core.cursor())

    def window(
        self,
        start: int,
        batch_size: int = 1,
        *,
        epoch_len: int | None = None,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        remainder: str = "extend",
    ) -> Window:
        """The whole window at a position, for callers that say themselves where windows start.

        Args:
            start: Its first position, in [0, 2**64). The next one is at `Window.end`.
            batch_size: Samples a batch, at least 1.
            epoch_len: How many draws all ranks take together, before `remainder`; None
                for the stream's.
            drop_last: Whether to leave out a last batch that is short.
            rank: In [0, world_size).
            world_size: The number of ranks, at least 1.
            remainder: As in `CachedDataset.shard`.

        Raises:
            ConfigError: If an argument is out of range, or the window would exceed the
                end of the stream.
        """
        if not isinstance(drop_last, bool):
            raise ConfigError(f"drop_last must be True or False, got {drop_last!r}")
        world = (*rank_of_world(rank, world_size), remainder_name(remainder))
        length = self._core.epoch_len if epoch_len is None else positive(epoch_len, "epoch_len")
        start, batch_size = unsigned(start, "start"), positive(batch_size, "batch_size")
        return Window._over(self._core.window(start, length, batch_size, drop_last, world))

    def rows(self, start: int, count: int) -> npt.NDArray[np.uint64]:
        """Population rows of the draws `start`, `start + 1`, …: `count` numbers, uint64.

        Args:
            start: First draw, in [0, 2**64).
            count: How many draws, in [0, 2**64 - start]. The result takes 8 bytes a draw.

        Raises:
            ConfigError: If a number is out of range, or no memory could hold the result.
        """
        return np.frombuffer(self._core.rows(unsigned(start, "start"), unsigned(count, "count")), dtype="<u8")

    def records(self, start: int, count: int) -> npt.NDArray[np.uint64]:
        """Record numbers of the same draws; unlike rows, they outlive edits of the table.

        Records count the samples of all caches in ascending order of `cache_id`.

        Raises:
            ConfigError: As in `rows`.
        """
        return np.frombuffer(self._core.records(unsigned(start, "start"), unsigned(count, "count")), dtype="<u8")

    def table_records(self, start: int, count: int) -> npt.NDArray[np.uint64]:
        """Record numbers of rows in the order of the table, as `get_metadata` shows it.

        A pickled stream of an edited table keeps its population and forgets the table's
        order: after unpickling, rows are numbered as the population is.

        Args:
            start: First row, in [0, num_rows].
            count: How many rows, in [0, num_rows - start].

        Raises:
            ConfigError: If a number is out of range.
        """
        core = self._core
        return np.frombuffer(core.table_records(unsigned(start, "start"), unsigned(count, "count")), dtype="<u8")

    def fetch(self, positions: Iterable[SupportsIndex]) -> list[CachedSample]:
        """Read the samples of draws, in the order given, in the calling thread.

        Args:
            positions: Numbers of draws, each in [0, 2**64); one may come twice.

        Raises:
            ConfigError: If a position is no integer in its range.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        return self._core.fetch(unsigned_list(positions, "positions"))

    def fetch_records(self, records: Iterable[SupportsIndex]) -> list[CachedSample]:
        """Read samples by record numbers, in the order given, in the calling thread.

        Args:
            records: Numbers as `records` gives them, each in [0, samples of all caches);
                whether the table holds the sample does not matter.

        Raises:
            ConfigError: If a record is no integer, or there is no such record.
            CacheCorruptError: As in `fetch`.
            CacheIOError: As in `fetch`.
        """
        return self._core.fetch_records(unsigned_list(records, "records"))

    def fetch_batch(self, positions: Iterable[SupportsIndex]) -> pa.RecordBatch:
        """Read draws as one batch with the columns of `CachedDataset.iter_batches`.

        Args:
            positions: As in `fetch`.

        Raises:
            ConfigError: As in `fetch`.
            CacheCorruptError: As in `fetch`, also for metadata.
            CacheIOError: As in `fetch`.
        """
        return self._core.fetch_batch(unsigned_list(positions, "positions"))

    def fetch_records_batch(self, records: Iterable[SupportsIndex]) -> pa.RecordBatch:
        """Read records as one batch with the columns of `CachedDataset.iter_batches`.

        Args:
            records: As in `fetch_records`.

        Raises:
            ConfigError: As in `fetch_records`.
            CacheCorruptError: As in `fetch`, also for metadata.
            CacheIOError: As in `fetch`.
        """
        return self._core.fetch_records_batch(unsigned_list(records, "records"))

    def fetch_rows(self, rows: Iterable[SupportsIndex]) -> list[CachedSample]:
        """Read samples by population rows, in the order given, in the calling thread.

        Args:
            rows: Numbers as `rows` gives them and as `table` shows them, each in
                [0, num_rows); one may come twice.

        Raises:
            ConfigError: If a row is no integer, or there is no such row.
            CacheCorruptError: As in `fetch`.
            CacheIOError: As in `fetch`.
        """
        return self._core.fetch_rows(unsigned_list(rows, "rows"))

    def identities(self, start: int, count: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """`cache_id` and `sample_id` of the draws `start`, `start + 1`, …; reads no payload.

        Args:
            start: First draw, in [0, 2**64).
            count: How many draws, in [0, 2**64 - start]. The result takes 16 bytes a draw.

        Returns:
            Two uint64 arrays of `count` numbers.

        Raises:
            ConfigError: As in `rows`.
        """
        cache_ids, sample_ids = self._core.identities(unsigned(start, "start"), unsigned(count, "count"))
        return np.frombuffer(cache_ids, dtype="<u8"), np.frombuffer(sample_ids, dtype="<u8")

    # The stream has no end: without this, Python would iterate it by __getitem__, one read a sample.
    __iter__ = None

    def __getitem__(self, position: SupportsIndex) -> CachedSample:
        """Read the sample of one draw.

        Raises:
            IndexError: If `position` is an integer outside [0, 2**64).
            ConfigError: If it is no integer.
            CacheCorruptError: As in `fetch`.
            CacheIOError: As in `fetch`.
        """
        return self._core.fetch([position_number(position)])[0]

    def table(self) -> pl.DataFrame:
        """The population in its own numbering: row r is what `rows` calls r.

        Returns:
            Columns `cache_id`, `sample_id`, the stored columns, `weight`.

        Raises:
            CacheCorruptError: If the stored columns are not what was written.
            CacheIOError: If they cannot be read.
            ConfigError: In a forked child that inherited the caches or where Polars
                cannot work.
        """
        check_polars(is_home=self._core.is_home())
        return pl.DataFrame(self._core.table())

    def order_digest(self, start: int, count: int, *, step: int = 1) -> str:
        """BLAKE3 over the identities of draws; equal exactly when the order is. Reads no payload.

        The time it takes grows with `count`, the memory does not. Ctrl-C ends it.

        Args:
            start: First draw, in [0, 2**64).
            count: How many draws, at least 0; the last one is at most 2**64 - 1.
            step: Distance from one draw to the next, at least 1. What rank r of W receives
                from `start` on are the draws `start + r` in steps of W.

        Returns:
            64 hexadecimal digits, the digest of `cache_id` and `sample_id`, each a
            little-endian 64-bit integer, of the draws `start`, `start + step`, ….
            `dataset_rt.testing.OrderRecorder` makes the same of what a loop received.

        Raises:
            ConfigError: If a number is out of range.
        """
        return self._core.order_digest(unsigned(start, "start"), unsigned(count, "count"), positive(step, "step"))


def _opened(restore: Callable[..., CoreStream], arguments: tuple[Any, ...]) -> SampleStream:
    return SampleStream._over(restore(*arguments))
