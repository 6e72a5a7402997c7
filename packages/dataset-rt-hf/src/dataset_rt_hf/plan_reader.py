"""Reading the payloads of one plan: rows, columns and tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
from datasets.table import table_cast

from dataset_rt_hf.codecs import ArrowCodec, ReadRow
from dataset_rt_hf.features import leaves, needs_decoding, without_media
from dataset_rt_hf.plan import Plan

__all__ = ["BrokenPayloadError", "PlanReader", "is_multi_dimensional", "numpy_dtype"]

# What the codecs raise for bytes that are no row of theirs.
_REFUSALS = (ValueError, TypeError, LookupError, EOFError, OSError, MemoryError, pa.ArrowException)
_MULTI_DIMENSIONAL = (datasets.Array2D, datasets.Array3D, datasets.Array4D, datasets.Array5D)


class BrokenPayloadError(Exception):
    """A payload is no row in its cache's schema."""


class PlanReader:
    """Reads payloads of one plan.

    Args:
        plan: How they were written.
        media: Whether media are decoded.
        columns: The columns to read, in order; None for all.
        arrays: Whether lists of numbers and multi-dimensional features become NumPy arrays.
    """

    def __init__(self, plan: Plan, *, media: bool, columns: tuple[str, ...] | None, arrays: bool) -> None:
        self._given: dict[str, Any] = {"plan": plan, "media": media, "columns": columns, "arrays": arrays}
        self._plan = plan
        self._names = tuple(plan.features) if columns is None else columns
        self._arrays = arrays
        self._stored = datasets.Features({name: plan.features[name] for name in self._names})
        self.features = self._stored if media else without_media(self._stored)
        self._decodes = any(needs_decoding(feature) for feature in self.features.values())
        # How the nulls of these look differs between releases of datasets, so its own code must read those.
        self._multi_dimensional = [
            name
            for name, feature in self._stored.items()
            if any(isinstance(leaf, _MULTI_DIMENSIONAL) for leaf in leaves(feature))
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self._given,)

    @property
    def schema(self) -> pa.Schema:
        """The schema of `cast`."""
        return self._stored.arrow_schema

    @cached_property
    def read_row(self) -> Callable[[bytes], dict[str, Any]]:
        """A function from a payload to the row.

        Raises:
            BrokenPayloadError: By the function, if the payload is no row.
        """
        value = self._value
        if not self._decodes and not (self._arrays and self._multi_dimensional):
            return value

        def read(payload: bytes) -> dict[str, Any]:
            row = value(payload)
            if self._decodes:
                row = self.features.decode_example(row)
            return {name: self._shaped(name, row[name]) for name in row} if self._arrays else row

        return read

    def columns(self, payloads: Sequence[bytes]) -> dict[str, Any]:
        """The columns of several payloads.

        Raises:
            BrokenPayloadError: If one of them is no row.
        """
        columns: dict[str, Any]
        if payloads and self._read_safely(payloads[0]) is None:
            columns = self._listed(self.cast(self.stored(payloads)))
        else:
            rows = list(map(self._value, payloads))
            # Rows have the columns in their order, all of them.
            values = zip(*(row.values() for row in rows), strict=True)
            columns = dict(zip(self._names, map(list, values), strict=True)) if rows else {n: [] for n in self._names}
        if self._decodes:
            columns = self.features.decode_batch(columns)
        if self._arrays and self._multi_dimensional:
            columns = {name: [self._shaped(name, value) for value in columns[name]] for name in columns}
        return columns

    def stored(self, payloads: Sequence[bytes]) -> pa.Table:
        """The rows in the types that payloads are stored in, which Arrow's functions know.

        Raises:
            BrokenPayloadError: If one of them is no row.
        """
        try:
            return self._plan.codec.table(payloads).select(self._names)
        except _REFUSALS as error:
            raise self._broken(error) from error

    def cast(self, table: pa.Table) -> pa.Table:
        """Stored rows in the types of the features."""
        if not self._names:
            # A table without columns would forget how many rows it has.
            rows = pa.array([{}] * table.num_rows, pa.struct([]))
            return pa.Table.from_batches([pa.RecordBatch.from_struct_array(rows)])
        return table_cast(table, self.schema)

    @cached_property
    def _read(self) -> ReadRow:
        codec = self._plan.codec
        if isinstance(codec, ArrowCodec):
            return codec.reader(self._names, arrays=self._arrays, with_nulls=not self._multi_dimensional)
        return codec.reader(self._names, arrays=self._arrays)

    @cached_property
    def _value(self) -> Callable[[bytes], dict[str, Any]]:
        """A function from a payload to the row before any decoding of features."""
        read = self._read

        def value(payload: bytes) -> dict[str, Any]:
            try:
                row = read(payload)
            except _REFUSALS as error:
                raise self._broken(error) from error
            if row is None:
                listed = self._listed(self.cast(self.stored([payload])))
                row = {name: values[0] for name, values in listed.items()}
            return row

        return value

    def _read_safely(self, payload: bytes) -> dict[str, Any] | None:
        try:
            return self._read(payload)
        except _REFUSALS as error:
            raise self._broken(error) from error

    def _broken(self, error: Exception) -> BrokenPayloadError:
        return BrokenPayloadError(
            f"a row by codec {self._plan.codec_name!r} in the schema of its cache expected, found a payload that is "
            f"none ({error}); import the dataset again"
        )

    def _listed(self, table: pa.Table) -> dict[str, list[Any]]:
        """A table's columns as Python values, lists of numbers as arrays where those are wanted."""
        columns: dict[str, list[Any]] = table.to_pydict()
        for name, feature in self._stored.items():
            if self._arrays and _is_list_of_numbers(feature):
                dtype = feature.feature.dtype
                columns[name] = [
                    value if value is None or None in value else np.array(value, dtype) for value in columns[name]
                ]
        return columns

    def _shaped(self, name: str, value: Any) -> Any:
        feature = self._stored[name]
        if not is_multi_dimensional(feature) or value is None:
            return value
        return np.array(value, numpy_dtype(feature))


def is_multi_dimensional(feature: Any) -> bool:
    """Whether a feature is an Array2D to Array5D."""
    return isinstance(feature, _MULTI_DIMENSIONAL)


def numpy_dtype(feature: Any) -> np.dtype[Any] | None:
    """NumPy's type of the numbers or bools in a multi-dimensional feature, or None if it has another kind of values."""
    kind = datasets.Value(feature.dtype).pa_type
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind):
        dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return dtype
    return None


def _is_list_of_numbers(feature: Any) -> bool:
    inner = getattr(feature, "feature", None)
    if not isinstance(inner, (datasets.Value, datasets.ClassLabel)):
        return False
    return bool(pa.types.is_integer(inner.pa_type) or pa.types.is_floating(inner.pa_type))


def _restore(given: dict[str, Any]) -> PlanReader:
    return PlanReader(**given)
