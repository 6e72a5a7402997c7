"""Batches as global JAX arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
from jax.sharding import Sharding, SingleDeviceSharding

import dataset_rt as drt
from dataset_rt import ConfigError
from dataset_rt_jax.decoded_window import DecodedWindow
from dataset_rt_jax.decoding import Decode, DecodeBatch, Decoder
from dataset_rt_jax.integers import at_least_one
from dataset_rt_jax.rests import reserve
from dataset_rt_jax.rows import LocalRows, for_dimensions

__all__ = ["GlobalBatchIterator", "iter_batches"]


def iter_batches(
    dataset: drt.CachedDataset | drt.SampleStream,
    batch_size: int,
    *,
    drop_last: bool = False,
    decode: Decode | None = None,
    decode_batch: DecodeBatch | None = None,
    sharding: Sharding | None = None,
) -> GlobalBatchIterator:
    """Deliver the next window as global batches: each process reads only the rows that its devices hold.

    The order of a batch is that of a single process, bit for bit, whatever the mesh, and whether the batch is divided
    over devices or repeated on them. All processes must stand at the same position; none waits for another one.

    Each leaf of what is decoded becomes a `jax.Array` with the batch as its first dimension. Leaves called `cache_id`
    and `sample_id` of a dict stay NumPy arrays, those of the whole global batch in every process: JAX would cut them to
    32 bits, as it does with int64, uint64, float64 and complex128 unless `jax_enable_x64` is set. Of integers the low
    bits stay, without a word. Big-endian arrays take the machine's byte order, with equal values.

    Args:
        dataset: A `CachedDataset`, whose next window is reserved at the first batch, or a `stream()`, from position 0.
        batch_size: Draws in a global batch.
        drop_last: Whether to leave out a last batch that is short; the position moves past it all the same.
        decode: From a `CachedSample` to an element; the results are stacked leaf by leaf.
        decode_batch: From a `pyarrow.RecordBatch` to arrays. One of the two must be given. What it returns is copied
            before the next batch is asked for, unless it is a `drt.array_decoder`, whose arrays are always new.
        sharding: Where the arrays live; its first dimension divides the batch, and what it says of dimensions that an
            array does not have is left out. Default: JAX's default device, in a single process.

    Raises:
        ConfigError: If an argument is out of range, the dataset is a rank's view, or several processes run and no
            sharding is given.
    """
    if isinstance(dataset, drt.CachedDataset) and dataset.world is not None:
        raise ConfigError("dataset must not be a rank's view: the sharding divides batches; give the whole dataset")
    if decode is None and decode_batch is None:
        raise ConfigError("decode or decode_batch must be given: JAX arrays cannot hold samples")
    if sharding is not None and not isinstance(sharding, Sharding):
        raise ConfigError(f"sharding must be a jax.sharding.Sharding, got {sharding!r}")
    cursor = dataset if isinstance(dataset, drt.CachedDataset) else dataset.cursor()
    batch_size = at_least_one(batch_size, "batch_size")
    ticket = cursor.ticket(batch_size, drop_last=drop_last)
    return GlobalBatchIterator(cursor, ticket, batch_size, Decoder(decode, decode_batch), sharding)


class GlobalBatchIterator(Iterator[Any]):
    """Delivers one window; made by `iter_batches`, for one thread at a time.

    An exception, be it out of a function to decode or out of a signal's handler, skips nothing: the next call gives the
    batch that its state names.
    """

    def __init__(
        self,
        cursor: drt.CachedDataset | drt.StreamCursor,
        ticket: drt.WindowTicket,
        batch_size: int,
        decoder: Decoder,
        sharding: Sharding | None,
    ) -> None:
        self._cursor = cursor
        self._ticket = ticket
        self._batch_size = batch_size
        self._decoder = decoder
        self._sharding = sharding
        self._window: drt.Window | None = None
        self._ahead: DecodedWindow | None = None

    def __next__(self) -> Any:
        """Give the next global batch.

        Raises:
            StopIteration: Behind the window's last batch.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
            ConfigError: If the sharding does not divide a batch, none of its devices is this process's, or what was
                decoded is no structure of arrays with the batch as first dimension.
        """
        window = self._window or self._begin()
        if self._ahead is None:
            self._ahead = self._decoder.window(window)
        ahead = self._ahead
        if ahead.num_left == 0:
            window.finish()
            raise StopIteration
        first = ahead.taken * self._batch_size
        size = min(self._batch_size, window.num_draws - first)
        rows = self._rows[size]
        if len(rows) == size:
            decoded, identities = ahead.peek(), None
        else:
            stream = window.stream()
            decoded = self._decoder.batch(stream, window.positions(first, size)[rows.numbers])
            both = stream.identities(window.start + first, size)
            identities = dict(zip(("cache_id", "sample_id"), both, strict=True))
        batch = jax.tree_util.tree_map_with_path(partial(self._place, rows, size, identities), decoded)
        ahead.advance()
        return batch

    def __length_hint__(self) -> int:
        if self._window is None:
            return self._ticket.num_batches
        return self._window.num_batches if self._ahead is None else self._ahead.num_left

    def state_dict(self) -> dict[str, Any]:
        """The state of the stream after the batches that were given; the same in all processes at the same step."""
        return self._ticket.state_dict() if self._window is None else self._window.state_dict()

    def _begin(self) -> drt.Window:
        sharding = self._sharding
        if sharding is None:
            if jax.process_count() > 1:
                raise ConfigError(f"sharding must be given where {jax.process_count()} processes share each batch")
            sharding = SingleDeviceSharding(jax.local_devices()[0])
        # Before the window is reserved: a short last batch that cannot be divided must not cost the others.
        draws, full = self._ticket.num_draws, self._batch_size
        sizes = {min(full, draws)} if self._ticket.num_batches else set()
        if self._ticket.num_batches * full > draws > full:
            sizes.add(draws % full)
        self._rows = {size: LocalRows.under(sharding, size) for size in sizes}
        self._array_sharding = sharding
        self._window = window = reserve(self._cursor, self._ticket)
        return window

    def _place(
        self,
        rows: LocalRows,
        size: int,
        identities: Mapping[str, npt.NDArray[np.uint64]] | None,
        path: tuple[Any, ...],
        leaf: Any,
    ) -> Any:
        name = getattr(path[-1], "key", None) if path else None
        local = np.asarray(leaf) if self._decoder.gives_new_arrays else np.array(leaf)
        if not local.dtype.isnative:
            # JAX has one byte order.
            local = local.astype(local.dtype.newbyteorder("="))
        # Of kind V are bfloat16 and its like as well, which JAX has, each with a type of its own.
        is_foreign = local.dtype.kind in "OSUMm" or local.dtype.type in (np.void, np.longdouble, np.clongdouble)
        if local.ndim == 0 or len(local) != len(rows) or is_foreign:
            raise ConfigError(
                f"what is decoded must be arrays of numbers of shape [{len(rows)}, ...], got {local.dtype} of shape "
                f"{list(local.shape)}{jax.tree_util.keystr(path) and ' at ' + jax.tree_util.keystr(path)}; leave out "
                "what JAX cannot hold, and look it up by cache_id and sample_id"
            )
        if name in ("cache_id", "sample_id"):
            return local if identities is None else identities[name]

        def held_by_device(index: Any) -> npt.NDArray[Any]:
            piece: npt.NDArray[Any] = local[(rows.local(index[0], size), *index[1:])]
            return piece

        sharding = for_dimensions(self._array_sharding, local.ndim)
        return jax.make_array_from_callback((size, *local.shape[1:]), sharding, held_by_device)
