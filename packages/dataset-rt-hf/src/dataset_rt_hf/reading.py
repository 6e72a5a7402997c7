"""Reading row messages back into Python values, without pyarrow where that is possible.

`pyarrow` needs 60 µs to make Python values of a message of one row. Most of that is set-up, which the fixed layout of
our messages makes needless: the places of all numbers are known from the schema.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from dataset_rt_hf.message import RowLayout, row_layout

__all__ = ["RowReader", "is_list_of_numbers", "read_batch"]

_Numbers = tuple[int, ...]
_ReadArray = Callable[[bytes, _Numbers], list[Any]]


def read_batch(payload: bytes | memoryview | pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """Read a message by pyarrow, and check it whole: a cache may come from anywhere.

    Raises:
        pyarrow.ArrowInvalid: If it is no message of one row in this schema.
    """
    batch = pa.ipc.read_record_batch(payload, schema)
    batch.validate(full=True)
    if batch.num_rows != 1:
        raise pa.ArrowInvalid(f"a message of 1 row expected, found {batch.num_rows}")
    return batch


class RowReader:
    """Reads messages of one storage schema.

    Args:
        schema: The storage schema.
        columns: The columns to read; what the others hold is not looked at.
        arrays: Whether a column that is a list of numbers is read as NumPy arrays, which are
            writable and own their memory.
    """

    def __init__(self, schema: pa.Schema, columns: Sequence[str], *, arrays: bool = False) -> None:
        self._layout = row_layout(schema)
        self._unpack = struct.Struct(f"<{2 * self._layout.nodes}q 8x {2 * self._layout.buffers}q")
        self._head = self._layout.head
        readers: dict[str, _ReadArray | None] = {}
        place = _Place(self._layout)
        for column in schema:
            is_array = arrays and is_list_of_numbers(column.type)
            readers[column.name] = _compile_array(column.type, place) if is_array else _compile(column.type, place)
        chosen = [(name, readers[name]) for name in columns]
        self._readers = [(name, reader) for name, reader in chosen if reader is not None]
        # One column that needs pyarrow takes the whole row there.
        self.complete = len(self._readers) == len(chosen)
        self._nulls_at = range(1, 2 * self._layout.nodes, 2)

    def numbers(self, payload: bytes) -> _Numbers | None:
        """Lengths, nulls and buffers of a message, or None if it is not laid out as ours are."""
        # The body's length stands within the head and differs from row to row; it is of no use here.
        if payload[:56] != self._head[:56] or payload[64:88] != self._head[64:88]:
            return None
        if len(payload) < self._layout.body_at:
            return None
        numbers: _Numbers = self._unpack.unpack_from(payload, len(self._head))
        # No count may ask for more than the message can hold; pyarrow judges those that do.
        counts = numbers[: 2 * self._layout.nodes]
        return numbers if min(counts) >= 0 and max(counts) <= 8 * len(payload) else None

    def has_nulls(self, numbers: _Numbers) -> bool:
        """Whether any array of the message holds a null."""
        return any(numbers[place] for place in self._nulls_at)

    def read(self, payload: bytes, numbers: _Numbers) -> dict[str, Any]:
        """The chosen columns' values.

        Raises:
            ValueError: If a number points out of the message.
            IndexError: If an array is shorter than the message says.
        """
        return {name: _only(read(payload, numbers)) for name, read in self._readers}


def _only(values: list[Any]) -> Any:
    """The value of a column, of which a row has one."""
    (value,) = values
    return value


class _Place:
    """Where the next array's numbers stand among those of the message."""

    def __init__(self, layout: RowLayout) -> None:
        self.node = 0
        self.buffer = 2 * layout.nodes
        self.body = layout.body_at

    def next_node(self) -> int:
        node, self.node = self.node, self.node + 2
        return node

    def next_buffer(self) -> int:
        buffer, self.buffer = self.buffer, self.buffer + 2
        return buffer


def _compile(kind: pa.DataType, place: _Place) -> _ReadArray | None:
    """A function that reads an array of this type, or None; `place` moves past the array in any case."""
    types = pa.types
    node = place.next_node()
    if types.is_null(kind):
        return lambda _, numbers: [None] * numbers[node]
    body, bitmap = place.body, place.next_buffer()
    if types.is_struct(kind):
        names = [child.name for child in kind]
        fields = [_compile(child.type, place) for child in kind]
        readers = [reader for reader in fields if reader is not None]
        if len(readers) < len(fields):
            return None
        return _with_nulls(_read_structs(names, readers, node), node, bitmap, body)
    if types.is_fixed_size_list(kind):
        child = _compile(kind.value_type, place)
        return child and _with_nulls(_read_fixed_lists(child, kind.list_size, node), node, bitmap, body)
    if types.is_list(kind) or types.is_large_list(kind):
        offsets = place.next_buffer()
        child = _compile(kind.value_type, place)
        width = "<i8" if types.is_large_list(kind) else "<i4"
        return child and _with_nulls(_read_lists(child, width, node, offsets, body), node, bitmap, body)
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        if types.is_fixed_size_binary(kind):
            place.next_buffer()
            return None
        large = types.is_large_string(kind) or types.is_large_binary(kind)
        text = types.is_string(kind) or types.is_large_string(kind)
        offsets, data = place.next_buffer(), place.next_buffer()
        reader = _read_bytes("<i8" if large else "<i4", node, offsets, data, body, text=text)
        return _with_nulls(reader, node, bitmap, body)
    values = place.next_buffer()
    if types.is_boolean(kind):
        return _with_nulls(
            lambda payload, numbers: _bits(payload, body + numbers[values], numbers[node]), node, bitmap, body
        )
    if types.is_integer(kind) or types.is_floating(kind):
        return _with_nulls(_read_numbers(np.dtype(kind.to_pandas_dtype()), node, values, body), node, bitmap, body)
    return None


def is_list_of_numbers(kind: pa.DataType) -> bool:
    """Whether a storage type is a list, of any length, of numbers."""
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)))


def _compile_array(kind: pa.DataType, place: _Place) -> _ReadArray:
    """As `_compile`, for the list of numbers that a column holds; with nulls among the numbers it stays a list."""
    list_node, body = place.next_node(), place.body
    place.next_buffer()
    if not pa.types.is_fixed_size_list(kind):
        place.next_buffer()
    node, bitmap, values = place.next_node(), place.next_buffer(), place.next_buffer()
    dtype = np.dtype(kind.value_type.to_pandas_dtype())
    read_list = _with_nulls(_read_numbers(dtype, node, values, body), node, bitmap, body)

    def read(payload: bytes, numbers: _Numbers) -> list[Any]:
        if numbers[list_node + 1]:
            return [None]
        if numbers[node + 1]:
            return [read_list(payload, numbers)]
        count = numbers[node]
        if count == 0:
            return [np.zeros(0, dtype)]
        return [np.frombuffer(payload, dtype, count, body + numbers[values]).copy()]

    return read


def _bits(payload: bytes, start: int, count: int) -> list[bool]:
    packed = np.frombuffer(payload, dtype=np.uint8, count=(count + 7) // 8, offset=start)
    flags: list[bool] = np.unpackbits(packed, count=count, bitorder="little").view(np.bool_).tolist()
    return flags


def _with_nulls(read: _ReadArray, node: int, bitmap: int, body: int) -> _ReadArray:
    def read_nullable(payload: bytes, numbers: _Numbers) -> list[Any]:
        values = read(payload, numbers)
        if numbers[node + 1] == 0:
            return values
        valid = _bits(payload, body + numbers[bitmap], numbers[node])
        return [value if is_valid else None for value, is_valid in zip(values, valid, strict=True)]

    return read_nullable


def _read_numbers(dtype: np.dtype[Any], node: int, values: int, body: int) -> _ReadArray:
    def read(payload: bytes, numbers: _Numbers) -> list[Any]:
        count = numbers[node]
        if count == 0:
            return []
        listed: list[Any] = np.frombuffer(payload, dtype, count, body + numbers[values]).tolist()
        return listed

    return read


def _read_bytes(width: str, node: int, offsets: int, data: int, body: int, *, text: bool) -> _ReadArray:
    def read(payload: bytes, numbers: _Numbers) -> list[Any]:
        start = body + numbers[data]
        ends = np.frombuffer(payload, width, numbers[node] + 1, body + numbers[offsets]).tolist()
        pieces = [payload[start + begin : start + end] for begin, end in pairwise(ends)]
        return [piece.decode() for piece in pieces] if text else pieces

    return read


def _read_lists(child: _ReadArray, width: str, node: int, offsets: int, body: int) -> _ReadArray:
    def read(payload: bytes, numbers: _Numbers) -> list[Any]:
        values = child(payload, numbers)
        if numbers[node] == 1:
            # A column's own list: its row is all there is.
            return [values]
        ends = np.frombuffer(payload, width, numbers[node] + 1, body + numbers[offsets]).tolist()
        return [values[begin:end] for begin, end in pairwise(ends)]

    return read


def _read_fixed_lists(child: _ReadArray, size: int, node: int) -> _ReadArray:
    def read(payload: bytes, numbers: _Numbers) -> list[Any]:
        values = child(payload, numbers)
        return [values[row * size : (row + 1) * size] for row in range(numbers[node])]

    return read


def _read_structs(names: list[str], readers: list[_ReadArray], node: int) -> _ReadArray:
    def read(payload: bytes, numbers: _Numbers) -> list[Any]:
        if not readers:
            return [{} for _ in range(numbers[node])]
        columns = [reader(payload, numbers) for reader in readers]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    return read
