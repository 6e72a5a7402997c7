"""Decoding batches whose payloads are raw arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dataset_rt.errors import ConfigError, MetadataError

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import SupportsIndex

__all__ = ["ArrayDecoder", "array_decoder"]


@dataclass(frozen=True)
class ArrayDecoder:
    """Turns a batch into NumPy arrays; made by `array_decoder`.

    Calling it copies each payload byte once and nothing else. It holds no state,
    so it can be pickled and shared between threads.

    Attributes:
        dtype: The arrays' element type, byte order included.
        shape: Shape of one sample's array.
        metadata: The stored columns that are decoded as well.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    metadata: tuple[str, ...]

    @property
    def payload_bytes(self) -> int:
        """Size in bytes that every payload must have."""
        return math.prod(self.shape) * self.dtype.itemsize

    def __call__(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
        """Decode one batch.

        Args:
            batch: A batch with the columns `cache_id`, `sample_id`, the stored
                columns and `data`, as `iter_batches` and `read_batch` give them.

        Returns:
            `data`, an array of shape `[batch, *shape]`; then the chosen columns, one
            value a sample: Boolean as bool, Int64 as int64, Float64 as float64,
            String as objects (str, or None for null), Date as datetime64[D] and
            Datetime as datetime64[us] (NaT for null); then `cache_id` and
            `sample_id` as uint64. All are new, writable and own their memory.

        Raises:
            MetadataError: If a payload has another size than `shape` and `dtype`
                make; if a Boolean, Int64 or Float64 column holds a null, for which
                its NumPy type has no value.
            ConfigError: If the batch has no such column.
        """
        decoded = self.views(batch)
        return {**decoded, "data": np.array(decoded["data"])}

    def views(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
        """Decode one batch without copying its payloads.

        Args:
            batch: As in a call.

        Returns:
            As a call, except that `data` is a read-only view of the batch's memory, which
            it keeps alive. For a framework that copies what it is given.

        Raises:
            MetadataError: As in a call.
            ConfigError: As in a call.
        """
        decoded = self._decode(batch, _read_only)
        decoded["data"].flags.writeable = False
        return decoded

    def owned(self, batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
        """Decode one batch into arrays that take over the memory of its payloads.

        Args:
            batch: As in a call, and read by the caller itself: after this nobody else may
                look at it, at its slices or at its buffers, since writing to `data`
                changes them.

        Returns:
            As a call, except that `data` is the batch's memory, writable, without a copy.
            Once the last array over it is gone, the iterator that made the batch may fill
            it again.

        Raises:
            MetadataError: As in a call.
            ConfigError: As in a call.
        """
        return self._decode(batch, _writable)

    def _decode(self, batch: pa.RecordBatch, memory: Callable[[Any], Any]) -> dict[str, npt.NDArray[Any]]:
        identities = {
            name: np.array(_column(batch, name).to_numpy(zero_copy_only=False), dtype=np.uint64)
            for name in ("cache_id", "sample_id")
        }
        decoded = {"data": self._payloads(batch, identities, memory)}
        for name in self.metadata:
            decoded[name] = _metadata(_column(batch, name), name, identities)
        return {**decoded, **identities}

    def _payloads(
        self, batch: pa.RecordBatch, identities: dict[str, npt.NDArray[Any]], memory: Callable[[Any], Any]
    ) -> npt.NDArray[Any]:
        column = _column(batch, "data")
        rows = len(column)
        if str(column.type) != "large_binary":
            raise ConfigError(f"column 'data' must be large_binary, got {column.type}")
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise MetadataError(
                f"{_place(identities, row)}: a payload expected, found null; the batch did not come from a dataset"
            )
        if rows == 0:
            return np.empty((0, *self.shape), dtype=self.dtype)

        _, offsets_buffer, values = column.buffers()
        # A sliced column shares its parent's buffers and begins at `offset`.
        offsets = np.frombuffer(offsets_buffer, dtype=np.int64, count=rows + 1, offset=column.offset * 8)
        sizes = np.diff(offsets)
        wrong = np.flatnonzero(sizes != self.payload_bytes)
        if wrong.size:
            row = int(wrong[0])
            raise MetadataError(
                f"{_place(identities, row)}: a payload of {self.payload_bytes} bytes expected "
                f"(shape {self.shape} of {self.dtype}), found {int(sizes[row])} bytes; "
                "array_decoder is for payloads that are raw arrays of one shape"
            )
        if self.payload_bytes == 0:
            return np.empty((rows, *self.shape), dtype=self.dtype)
        return np.ndarray((rows, *self.shape), self.dtype, buffer=memory(values), offset=int(offsets[0]))


def _read_only(values: Any) -> Any:
    """A buffer of Arrow as it is."""
    return values


class _Memory:
    """The bytes of a buffer of Arrow, which lets nobody write by itself, and which this keeps alive."""

    def __init__(self, values: Any) -> None:
        self._values = values
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (values.size,),
            "data": (values.address, False),
        }


def _writable(values: Any) -> Any:
    return np.asarray(_Memory(values))


def array_decoder(
    dtype: npt.DTypeLike,
    shape: SupportsIndex | Sequence[SupportsIndex],
    *,
    metadata: Sequence[str] = (),
) -> ArrayDecoder:
    """Make a decoder for payloads that are the raw bytes of one array each.

    The payload is what `array.tobytes()` gives: elements in C order, no header.

    Args:
        dtype: Element type of the arrays, without Python objects in it. Its byte
            order is that of the stored bytes and of the result.
        shape: Shape of one sample's array, every length at least 0; an integer
            stands for one dimension, `()` for a scalar.
        metadata: Names of stored columns to decode beside the payload.

    Returns:
        A picklable function from a `pyarrow.RecordBatch` to a dict of arrays; see
        `ArrayDecoder`.

    Raises:
        ConfigError: If the dtype has no fixed size or holds objects, if a length is
            negative, or if `metadata` is no sequence of distinct column names.
    """
    try:
        element = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"dtype must be a NumPy dtype, got {dtype!r}: {error}") from None
    lengths = _lengths(shape)
    if element.subdtype is not None:
        element, inner = element.subdtype
        lengths += inner
    if element.hasobject:
        raise ConfigError(f"dtype must hold no Python objects, got {element}")
    if element.itemsize == 0:
        raise ConfigError(f"dtype must have a size, got {element!r}; give one like 'S8' or 'V16'")

    if isinstance(metadata, (str, bytes)) or not isinstance(metadata, Sequence):
        raise ConfigError(f"metadata must be a sequence of column names, got {metadata!r}")
    names = tuple(metadata)
    for name in names:
        if not isinstance(name, str):
            raise ConfigError(f"metadata must hold column names, got {name!r}")
        if name in ("data", "weight", "cache_id", "sample_id"):
            raise ConfigError(f"metadata must name stored columns, got the reserved {name!r}")
        if names.count(name) > 1:
            raise ConfigError(f"metadata must name each column once, got {name!r} twice")
    return ArrayDecoder(element, lengths, names)


def _lengths(shape: Any) -> tuple[int, ...]:
    given = shape if isinstance(shape, (Sequence, np.ndarray)) else (shape,)
    lengths = []
    for length in given:
        if isinstance(length, (bool, np.bool_)) or not hasattr(length, "__index__"):
            raise ConfigError(f"shape must be one or more integers, got {shape!r}")
        try:
            number = int(length.__index__())
        except TypeError:
            raise ConfigError(f"shape must be one or more integers, got {shape!r}") from None
        if number < 0:
            raise ConfigError(f"every length in shape must be at least 0, got {shape!r}")
        lengths.append(number)
    return tuple(lengths)


def _column(batch: pa.RecordBatch, name: str) -> Any:
    names = batch.schema.names
    if name not in names:
        raise ConfigError(f"the batch has no column {name!r}; its columns are {', '.join(names)}")
    return batch.column(names.index(name))


def _metadata(column: Any, name: str, identities: dict[str, npt.NDArray[Any]]) -> npt.NDArray[Any]:
    kind = str(column.type)
    if column.null_count and kind in ("bool", "int64", "double"):
        row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise MetadataError(
            f"column {name!r}, row {row} of the batch ({_place(identities, row)}): found null, "
            f"which a NumPy array of {kind} cannot hold; filter such rows out, or decode the "
            "column yourself"
        )
    return np.array(column.to_numpy(zero_copy_only=False))


def _place(identities: dict[str, npt.NDArray[Any]], row: int) -> str:
    cache, sample = identities["cache_id"][row], identities["sample_id"][row]
    return f"cache_id {cache}, sample_id {sample}"
