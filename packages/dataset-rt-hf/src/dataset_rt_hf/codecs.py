"""How a row becomes a payload: `raw`, `msgpack` or `arrow`.

None of them can run code when it reads, so a cache from elsewhere is safe to open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

import msgpack
import numpy as np
import pyarrow as pa

import dataset_rt as drt
from dataset_rt_hf.message import encode_rows, plain_array, row_layout
from dataset_rt_hf.reading import RowReader, is_list_of_numbers, read_batch

__all__ = ["CODECS", "Codec", "automatic_codec", "is_raw", "make_codec"]

ReadRow: TypeAlias = Callable[[bytes], dict[str, Any] | None]

CODECS = ("raw", "msgpack", "arrow")


class Codec(Protocol):
    """Writes and reads payloads of one storage schema."""

    def encode(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        """One payload a row."""

    def reader(self, columns: Sequence[str], *, arrays: bool) -> ReadRow:
        """A function from a payload to the columns' values as Arrow gives them.

        It gives None for a row that only `table` can read.
        """

    def table(self, payloads: Sequence[bytes]) -> pa.Table:
        """The rows as a table in the storage schema."""


class RawCodec:
    """One column of bytes or text, without nulls: the payload is the value."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._name = schema.names[0]
        kind = schema.types[0]
        self._text = _is_text(kind)
        is_large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        self._binary = pa.large_binary() if is_large else pa.binary()

    def encode(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        """One payload a row.

        Raises:
            ValueError: If a value is null.
        """
        column = batch.column(0)
        if column.null_count:
            raise ValueError(
                f"codec='raw' has no payload for a null in column {self._name!r}; use codec='msgpack' or codec='arrow'"
            )
        payloads: list[bytes] = plain_array(column).cast(self._binary).to_pylist()
        return payloads

    def reader(self, columns: Sequence[str], *, arrays: bool) -> ReadRow:  # noqa: ARG002
        """A function from a payload to the value, text as str."""
        name, text = self._name, self._text
        if not columns:
            return lambda _: {}
        return (lambda payload: {name: payload.decode()}) if text else (lambda payload: {name: payload})

    def table(self, payloads: Sequence[bytes]) -> pa.Table:
        """The rows as a table of one column."""
        values = pa.array(payloads, pa.large_binary())
        return pa.table([values.cast(self._schema.types[0])], schema=self._schema)


class MsgpackCodec:
    """A map from column names to values; for rows like JSON objects."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._packer = msgpack.Packer(use_bin_type=True)

    def encode(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        """One map a row, its keys in the schema's order."""
        pack = self._packer.pack
        names = batch.schema.names
        columns = [plain_array(column).to_pylist() for column in batch.columns]
        return [pack(dict(zip(names, values, strict=True))) for values in zip(*columns, strict=True)]

    def reader(self, columns: Sequence[str], *, arrays: bool) -> ReadRow:
        """A function from a payload to the columns' values."""
        unpack: ReadRow = msgpack.unpackb
        dtypes = {
            name: np.dtype(self._schema.field(name).type.value_type.to_pandas_dtype())
            for name in columns
            if arrays and is_list_of_numbers(self._schema.field(name).type)
        }
        if list(columns) == self._schema.names and not dtypes:
            return unpack

        def read(payload: bytes) -> dict[str, Any]:
            row = unpack(payload) or {}
            chosen = {name: row[name] for name in columns}
            for name, dtype in dtypes.items():
                value = chosen[name]
                if value is not None and None not in value:
                    chosen[name] = np.array(value, dtype)
            return chosen

        return read

    def table(self, payloads: Sequence[bytes]) -> pa.Table:
        """The rows as a table in the storage schema."""
        return pa.Table.from_pylist([msgpack.unpackb(payload) for payload in payloads], schema=self._schema)


class ArrowCodec:
    """The row as one IPC message; for lists of numbers, and for every type that the others cannot hold."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._layout = row_layout(schema)

    def encode(self, batch: pa.RecordBatch) -> Sequence[bytes]:
        """One message a row."""
        return encode_rows(batch, self._layout)

    def reader(self, columns: Sequence[str], *, arrays: bool, with_nulls: bool = True) -> ReadRow:
        """A function from a payload to the columns' values.

        Args:
            columns: The columns.
            arrays: Whether lists of numbers become NumPy arrays.
            with_nulls: Whether to read rows with nulls; otherwise they are left to `table`.
        """
        reader = RowReader(self._schema, columns, arrays=arrays)

        def read(payload: bytes) -> dict[str, Any] | None:
            numbers = reader.numbers(payload)
            if numbers is None or (not with_nulls and reader.has_nulls(numbers)):
                return None
            return reader.read(payload, numbers)

        return read if reader.complete else lambda _: None

    def table(self, payloads: Sequence[bytes]) -> pa.Table:
        """The rows as a table in the storage schema, checked whole."""
        batches = [read_batch(payload, self._schema) for payload in payloads]
        return pa.Table.from_batches(batches, schema=self._schema)


def make_codec(name: str, schema: pa.Schema) -> RawCodec | MsgpackCodec | ArrowCodec:
    """The codec of this name for a storage schema.

    Raises:
        ConfigError: If there is none of this name, or it cannot hold the schema's types.
    """
    if name == "raw":
        if len(schema) == 1 and is_raw(schema.types[0]):
            return RawCodec(schema)
        raise drt.ConfigError(
            f"codec='raw' must have exactly one column, of bytes or text, got {_columns(schema)}; "
            "take one by select_columns, or use another codec"
        )
    if name == "msgpack":
        refused = [column for column in schema if not _is_like_json(column.type, numbers_in_lists=True)]
        if not refused:
            return MsgpackCodec(schema)
        raise drt.ConfigError(
            f"codec='msgpack' cannot hold {_columns(refused)}; use codec='arrow', which holds every type"
        )
    if name == "arrow":
        return ArrowCodec(schema)
    raise drt.ConfigError(f"codec must be 'auto', {', '.join(map(repr, CODECS))}, got {name!r}")


def automatic_codec(schema: pa.Schema) -> str:
    """What `codec="auto"` means: msgpack for rows like JSON objects, arrow for everything else.

    It follows from the types alone, so that it is the same for every view of a dataset.
    """
    return "msgpack" if all(_is_like_json(column.type, numbers_in_lists=False) for column in schema) else "arrow"


def _columns(columns: Any) -> str:
    return ", ".join(f"{column.name!r} ({column.type})" for column in columns) or "no column"


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_raw(kind: pa.DataType) -> bool:
    """Whether the codec raw holds a storage type."""
    is_binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    return _is_text(kind) or (is_binary and not pa.types.is_fixed_size_binary(kind))


def _is_like_json(kind: pa.DataType, *, numbers_in_lists: bool) -> bool:
    """Whether msgpack gives back exactly the value; lists of numbers are better kept as arrays."""
    types = pa.types
    if types.is_struct(kind):
        return all(_is_like_json(child.type, numbers_in_lists=numbers_in_lists) for child in kind)
    if types.is_list(kind) or types.is_large_list(kind):
        is_number = types.is_primitive(kind.value_type)
        return (numbers_in_lists or not is_number) and _is_like_json(kind.value_type, numbers_in_lists=numbers_in_lists)
    return bool(
        types.is_null(kind) or types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    ) or is_raw(kind)
