"""Reading an IterableDataset as Arrow tables, and finding its features where it does not tell them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import datasets
import pyarrow as pa
from datasets.arrow_writer import TypedSequence

from dataset_rt_hf.features import without_media
from dataset_rt_hf.value_types import TypesDifferError, ValueTypes

__all__ = ["DriftError", "UntypedError", "conform", "stream_tables", "unified_features"]


def stream_tables(stream: datasets.IterableDataset, rows: int) -> Iterator[pa.Table]:
    """Read a stream in tables of up to `rows` rows; formats play no part and no medium is decoded.

    Their schemas are the features' where those are known, and otherwise differ as the rows do.

    Raises:
        DriftError: If features are not known, and values in one place of two rows have different
            types; None goes with every type.
        UntypedError: If values have no type that Arrow knows, or not that of the features.
        Exception: Whatever the stream's own code raises.
    """
    if getattr(stream._ex_iterable, "iter_arrow", None) is not None:
        yield from stream.with_format("arrow").iter(rows)
        return
    # Rows that Python makes: asked for Arrow, datasets would give each row or two a schema, and fail where they differ.
    features = stream.features
    plain = stream.with_format(None)
    if features is not None:
        plain = plain.cast(without_media(features))
    types = ValueTypes()
    row = 0
    for batch in plain.iter(rows):
        count = len(next(iter(batch.values()), []))
        if features is None:
            _note_types(types, batch, row)
        columns = {}
        for name, values in batch.items():
            try:
                columns[name] = pa.array(_typed(name, values, features))
            except (ValueError, TypeError, OverflowError) as error:  # noqa: PERF203
                raise UntypedError(row, count, name, f"{type(error).__name__}: {error}") from error
        yield pa.table(columns)
        row += count


def _note_types(types: ValueTypes, batch: dict[str, list[Any]], first_row: int) -> None:
    for row, values in enumerate(zip(*batch.values(), strict=True), start=first_row):
        for name, value in zip(batch, values, strict=True):
            try:
                types.add(name, value)
            except TypesDifferError as error:  # noqa: PERF203
                raise DriftError(row, error.path, error.before, error.after) from None


def _typed(name: str, values: list[Any], features: datasets.Features | None) -> TypedSequence:
    if features is None or name not in features:
        return TypedSequence(values)
    return TypedSequence(features.encode_column(values, name), type=features[name])


class UntypedError(Exception):
    """Values of a column cannot become an array.

    Args:
        row: Number of the first row that they are of.
        count: Number of rows.
        column: The column.
        reason: Why not.
    """

    def __init__(self, row: int, count: int, column: str, reason: str) -> None:
        super().__init__(row, count, column, reason)
        self.row, self.count, self.column, self.reason = row, count, column, reason


class DriftError(Exception):
    """A column's type changed in the middle of a stream, and not from null."""

    def __init__(self, row: int, column: str, before: str, after: str) -> None:
        super().__init__(row, column, before, after)
        self.row, self.column, self.before, self.after = row, column, before, after


def unified_features(tables: Iterable[pa.Table]) -> datasets.Features | None:
    """Features that hold all rows of all tables, or None if there is no table.

    A type that is null so far becomes the first other type that comes, also within lists and
    structs; a column or field that a table lacks is null there.

    Raises:
        DriftError: If types differ in any other way.
    """
    types: dict[str, pa.DataType] | None = None
    row = 0
    for table in tables:
        types = {} if types is None else types
        for column in table.schema:
            try:
                types[column.name] = _unified(types.get(column.name, pa.null()), column.type)
            except _DifferError as error:  # noqa: PERF203
                path = ".".join([column.name, *error.path])
                raise DriftError(row, path, str(error.before), str(error.after)) from None
        row += table.num_rows
    if types is None:
        return None
    return datasets.Features.from_arrow_schema(pa.schema(list(types.items())))


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the schema's columns in its order, nulls where it lacks one.

    Raises:
        DriftError: If the table has a column that the schema lacks.
        pyarrow.ArrowInvalid, TypeError: If a type cannot become the schema's.
    """
    for column in table.schema:
        if column.name not in schema.names:
            raise DriftError(0, column.name, "no such column", str(column.type))
    columns = [
        table.column(field.name) if field.name in table.column_names else pa.nulls(table.num_rows, field.type)
        for field in schema
    ]
    return datasets.table.table_cast(pa.table(columns, names=schema.names), schema)


class _DifferError(Exception):
    def __init__(self, before: pa.DataType, after: pa.DataType, path: tuple[str, ...] = ()) -> None:
        super().__init__(before, after)
        self.before, self.after, self.path = before, after, path


def _unified(before: pa.DataType, after: pa.DataType) -> pa.DataType:
    types = pa.types
    if before.equals(after) or types.is_null(after):
        return before
    if types.is_null(before):
        return after
    if types.is_struct(before) and types.is_struct(after):
        fields = {child.name: child.type for child in before}
        for child in after:
            try:
                fields[child.name] = _unified(fields.get(child.name, pa.null()), child.type)
            except _DifferError as error:  # noqa: PERF203
                raise _DifferError(error.before, error.after, (child.name, *error.path)) from None
        return pa.struct(list(fields.items()))
    if types.is_list(before) and types.is_list(after):
        return pa.list_(_unified(before.value_type, after.value_type))
    raise _DifferError(before, after)
