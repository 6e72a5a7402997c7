"""A dataset: a table to edit, and the samples that follow from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn, SupportsIndex

import polars as pl
import pyarrow as pa

from dataset_rt._core import BatchIterator, CachedSample, SampleIterator
from dataset_rt._core import Dataset as CoreDataset
from dataset_rt.columns import DTYPES
from dataset_rt.errors import ConfigError, MetadataError
from dataset_rt.forks import check_polars
from dataset_rt.handle import Handle
from dataset_rt.integers import positive, rank_of_world, row_number, row_numbers, unsigned
from dataset_rt.stream import SampleStream
from dataset_rt.window import WindowTicket, remainder_name, ticket_of

__all__ = ["CachedDataset"]

_CACHES_SCHEMA: dict[str, pl.DataType] = {
    "cache_id": pl.UInt64(),
    "name": pl.String(),
    "path": pl.String(),
    "samples": pl.UInt64(),
    "payload_bytes": pl.UInt64(),
    "attributes": pl.List(pl.Struct({"key": pl.String(), "value": pl.String()})),
}


class CachedDataset(Handle[CoreDataset]):
    """Samples of one or more caches, drawn as the metadata table says.

    Made by `DatasetRuntime`. Iterating it delivers one window of `epoch_len` draws and
    moves its position past them; the next iterator goes on in the stream. An iterator
    keeps the table and the epoch length of the moment when it was made. It has a
    `state_dict()` of its own, for a loop that runs several iterators at once.
    """

    _made_by = "DatasetRuntime: use cached_dataset or from_cache_sources"

    def __repr__(self) -> str:
        core = self._core
        rank = "" if core.world is None else f", rank={core.world[0]} of {core.world[1]}"
        return (
            f"CachedDataset(rows={core.rows}, epoch_len={core.epoch_len}, position={core.position}, "
            f"seed={core.seed}, mode={core.mode!r}{rank})"
        )

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: two copies of one position would give every sample twice.

        Raises:
            ConfigError: Always. `stream()` is what travels to another process.
        """
        raise ConfigError(
            "a CachedDataset must stay in its process, as it owns a position; send dataset.stream() to another process "
            "and state_dict() to another run, or open the caches there; with_metadata makes an independent dataset"
        )

    def __len__(self) -> int:
        """The number of samples that an epoch delivers; in a rank's view, to this rank."""
        return len(self._core)

    def __bool__(self) -> bool:
        """True: a dataset always has rows."""
        return True

    def __iter__(self) -> SampleIterator:
        """Deliver the next window; it is reserved at the first `next`, not here.

        Returns:
            An iterator for one thread at a time. Its `state_dict()` says how much of
            it was consumed and is loaded by `CachedDataset.load_state_dict`. `next`
            raises `CacheCorruptError` or `CacheIOError` for a sample that cannot be
            read as it was published, and `ConfigError` for a window that would exceed
            the end of the stream or while another thread is in `next`.
        """
        return self._core.iterate()

    # -- the stream ----------------------------------------------------------------

    @property
    def position(self) -> int:
        """Number of the draw with which the next iterator starts, in [0, 2**64)."""
        return self._core.position

    @property
    def epoch_len(self) -> int:
        """The number of draws in an epoch, of all ranks together."""
        return self._core.epoch_len

    @property
    def world(self) -> tuple[int, int, str] | None:
        """Rank, world size and `remainder` of a rank's view; None for the whole dataset."""
        return self._core.world

    def set_epoch_len(self, epoch_len: int) -> None:
        """Set how many draws later iterators deliver; those that were made keep theirs.

        Args:
            epoch_len: At least 1; more or less than the number of rows as you like.

        Raises:
            ConfigError: If it is out of range, or too short for all ranks to get a
                draw of it under `remainder="drop"`.
        """
        self._core.set_epoch_len(positive(epoch_len, "epoch_len"))

    def state_dict(self) -> dict[str, Any]:
        """What another process needs to go on with the very next sample.

        It is small, made of what JSON can hold, and says what was consumed, not what
        was read ahead.
        """
        return self._core.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where a saved run stood. The next iterator delivers the rest of its window.

        Args:
            state: What `state_dict` gave, at any world size.

        Raises:
            StateMismatchError: If it belongs to another seed, mode, table or version;
                it names the field. The dataset is as it was then.
            ConfigError: If it is no dict.
        """
        self._core.load_state_dict(state)

    def shard(self, rank: int, world_size: int, *, remainder: str = "extend") -> CachedDataset:
        """One rank's view: every `world_size`-th draw, from the `rank`-th on.

        Args:
            rank: In [0, world_size).
            world_size: The number of ranks, at least 1.
            remainder: Where `world_size` does not divide an epoch: "extend" takes
                draws from beyond its end, "drop" leaves the last ones to the next
                epoch, "uneven" gives the first ranks one more.

        Returns:
            A dataset with a position of its own over the same caches and table.

        Raises:
            ConfigError: If an argument is out of range, this is a view already, or the
                epoch is too short for all ranks to get a draw of it under "drop".
        """
        name = remainder_name(remainder)
        return self._over(self._core.shard(*rank_of_world(rank, world_size), name))

    def ticket(
        self,
        batch_size: int = 1,
        *,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
    ) -> WindowTicket:
        """Make the ticket for a window that an adapter's iterator reserves at its first batch.

        Args:
            batch_size: Samples a batch, at least 1.
            drop_last: Whether to leave out a last batch that is short.
            rank: In [0, world_size), of the whole dataset; None for the dataset as it is,
                which may be a rank's view.
            world_size: The number of ranks, given together with `rank`.
            remainder: As in `shard`; only with `rank` and `world_size`.

        Raises:
            ConfigError: If an argument is out of range, or this is a view and a rank is
                named.
        """
        return ticket_of(self._core, batch_size, drop_last, rank, world_size, remainder)

    def stream(self) -> SampleStream:
        """The immutable view of the current table's stream, for adapters."""
        return SampleStream._over(self._core.stream())

    # -- the table -----------------------------------------------------------------

    def get_metadata(self) -> pl.DataFrame:
        """The active table: one row for each entry that can be drawn.

        Returns:
            Columns `cache_id` and `sample_id` (UInt64), the stored columns, `weight`
            (Float64), then columns that were added. Rows stand as they were last set;
            at first all caches in the order given, each by `sample_id`, weight 1. The
            frame is yours: what is done to it in place reaches no dataset.

        Raises:
            CacheCorruptError: If the stored columns are not what was written.
            CacheIOError: If they cannot be read.
            ConfigError: In a forked child that inherited the caches or where Polars
                cannot work.
        """
        self._check_home()
        table = self._core.table()
        if table is not None:
            return self._normalised(table)
        return pl.DataFrame(self._core.first_table())

    def update_metadata(self, metadata: pl.DataFrame, *, reset_stream: bool = True) -> None:
        """Replace the active table. No file is touched.

        Rows may be removed, repeated and reordered, weights changed and columns added;
        iterators that were made keep their table. Epochs are then as long as the table.

        Args:
            metadata: A table with the columns of `get_metadata`, in any order. Stored
                columns must keep their values; weights must be positive and finite.
            reset_stream: Whether to go back to position 0. False goes on from where
                the stream stands: for weights that are nudged every epoch, which would
                otherwise meet the same random numbers each time.

        Raises:
            MetadataError: If a rule is broken; it names the first row. The old table
                stays in force.
            ConfigError: If weights differ where rows are drawn without replacement,
                in a forked child as in `get_metadata`, or if `reset_stream` is no bool.
                The old table stays in force.
            CacheCorruptError: If the stored columns, which it compares, are not what
                was written.
            CacheIOError: If they cannot be read.
        """
        if not isinstance(reset_stream, bool):
            raise ConfigError(f"reset_stream must be True or False, got {reset_stream!r}")
        # The core keeps a copy of the table beside its population, so that both are always of one edit.
        self._core.update(self._checkable(metadata), metadata.clone(), reset_stream=reset_stream)

    def with_metadata(self, metadata: pl.DataFrame) -> CachedDataset:
        """An independent dataset over the same open caches with another table.

        Args:
            metadata: As in `update_metadata`.

        Returns:
            A dataset at position 0; nothing is copied.

        Raises:
            MetadataError: As in `update_metadata`.
            ConfigError: As in `update_metadata`.
            CacheCorruptError: As in `update_metadata`.
            CacheIOError: As in `update_metadata`.
        """
        return self._over(self._core.with_table(self._checkable(metadata), metadata.clone()))

    @property
    def caches(self) -> pl.DataFrame:
        """One row a cache: `cache_id`, `name`, `path`, `samples`, `payload_bytes`, `attributes`.

        `attributes` is a list of key and value pairs in the order of the keys.

        Raises:
            ConfigError: In a forked child, as in `get_metadata`.
        """
        self._check_home()
        rows = [
            (*described, [{"key": key, "value": value} for key, value in attributes.items()])
            for *described, attributes in self._core.caches()
        ]
        return pl.DataFrame(rows, schema=_CACHES_SCHEMA, orient="row")

    # -- reading -------------------------------------------------------------------

    def iter_batches(self, batch_size: int, *, drop_last: bool = False) -> BatchIterator:
        """Deliver the next window in batches: the same draws as sample by sample.

        Args:
            batch_size: Samples a batch, in [1, 2**64).
            drop_last: Whether to leave out a last batch that is short. The position
                moves past it all the same.

        Returns:
            An iterator over record batches with `cache_id`, `sample_id`, the stored
            columns, and `data` (large_binary). It has a `state_dict()`, and its `next`
            raises the same errors, as the iterator over samples.

        Raises:
            ConfigError: If `batch_size` is out of range or `drop_last` is no bool.
        """
        if not isinstance(drop_last, bool):
            raise ConfigError(f"drop_last must be True or False, got {drop_last!r}")
        return self._core.iterate_batches(positive(batch_size, "batch_size"), drop_last)

    def get_item(self, cache_id: int, sample_id: int) -> CachedSample:
        """Read one sample by its identity, whether the table holds it or not.

        Like all random access it reads in the calling thread and moves no position.

        Args:
            cache_id: One of `caches`.
            sample_id: In [0, the cache's number of samples).

        Raises:
            ConfigError: If a number is no integer, or no open cache has the sample.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        return self._core.get_item(unsigned(cache_id, "cache_id"), unsigned(sample_id, "sample_id"))

    def __getitem__(self, row: SupportsIndex) -> CachedSample:
        """Read the sample of a row of `get_metadata()`; negative rows count from the end.

        Raises:
            IndexError: If `row` is an integer outside [-rows, rows).
            ConfigError: If it is no integer.
            CacheCorruptError: As in `get_item`.
            CacheIOError: As in `get_item`.
        """
        return self._core.row(row_number(row))

    def read(self, rows: Iterable[SupportsIndex]) -> list[CachedSample]:
        """Read the samples of rows of `get_metadata()`, in the order given.

        Args:
            rows: Integers in [-rows, rows); negative ones count from the end, and one
                may come twice.

        Raises:
            IndexError: If there is no such row.
            ConfigError: If a row is no integer.
            CacheCorruptError: As in `get_item`.
            CacheIOError: As in `get_item`.
        """
        return self._core.read(row_numbers(rows))

    def read_batch(self, rows: Iterable[SupportsIndex]) -> pa.RecordBatch:
        """Read rows of `get_metadata()` as one batch with the columns of `iter_batches`.

        Args:
            rows: As in `read`.

        Raises:
            IndexError: If there is no such row.
            ConfigError: If a row is no integer.
            CacheCorruptError: As in `get_item`, also for metadata.
            CacheIOError: As in `get_item`.
        """
        return self._core.read_batch(row_numbers(rows))

    # -- inside --------------------------------------------------------------------

    def _check_home(self) -> None:
        check_polars(is_home=self._core.is_home())

    # Both below take columns by `get_column` and make frames of dicts: `select` and `pl.col` read a name such as "*" or
    # "^x$" as a pattern, and a frame of a list of columns renames one that has an empty name.

    def _checkable(self, metadata: object) -> pl.DataFrame:
        """The columns that the core checks."""
        self._check_home()
        if isinstance(metadata, pl.LazyFrame):
            raise MetadataError("metadata must be a polars.DataFrame, got a LazyFrame; collect() it first")
        if not isinstance(metadata, pl.DataFrame):
            kind = f"{type(metadata).__module__}.{type(metadata).__name__}"
            advice = "; polars.from_pandas() converts it" if kind.startswith("pandas.") else ""
            raise MetadataError(f"metadata must be a polars.DataFrame, got a {kind}{advice}")
        dtypes = self._dtypes()
        columns = {name: metadata.get_column(name) for name in metadata.columns if name in dtypes}
        # A column of nothing but nulls has no dtype of its own; Arrow's interface disagrees on how to hand it over.
        return pl.DataFrame(
            {name: column.cast(dtypes[name]) if column.dtype == pl.Null else column for name, column in columns.items()}
        )

    def _normalised(self, metadata: pl.DataFrame) -> pl.DataFrame:
        """A new frame of a checked table, with the order of columns and the dtypes that `get_metadata` promises."""
        dtypes = self._dtypes()
        promised = {name: metadata.get_column(name).cast(dtype) for name, dtype in dtypes.items()}
        extra = {name: metadata.get_column(name) for name in metadata.columns if name not in dtypes}
        return pl.DataFrame({**promised, **extra})

    def _dtypes(self) -> dict[str, pl.DataType]:
        """The dtypes of the columns that every table has, in their order."""
        stored = {name: DTYPES[kind] for name, kind in self._core.columns()}
        return {"cache_id": pl.UInt64(), "sample_id": pl.UInt64(), **stored, "weight": pl.Float64()}
