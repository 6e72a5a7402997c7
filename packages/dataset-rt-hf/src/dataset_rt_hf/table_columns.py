"""Which columns of a dataset go into the metadata table, and as what."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import dataset_rt as drt
from dataset_rt_hf.message import plain_array

__all__ = ["JUDGED_ROWS", "TableColumn", "choose_columns", "listed_columns", "undecided_columns"]

JUDGED_ROWS = 10_000
"""How many rows decide whether a column of strings is short enough."""

_LONGEST_STRING = 64
_RESERVED = ("cache_id", "sample_id", "weight", "data")


@dataclass(frozen=True)
class TableColumn:
    """One column of the metadata table.

    Attributes:
        source: The dataset's column.
        name: The table's column.
        kind: A key of the kinds below.
        class_names: Names to put in place of class numbers.
    """

    source: str
    name: str
    kind: str
    class_names: tuple[str, ...] | None = None

    @property
    def dtype(self) -> pl.DataType:
        """The column's type in Polars."""
        return _KINDS[self.kind]

    def values(self, array: pa.Array) -> Sequence[Any]:
        """Python values of a batch's column, null as None.

        Raises:
            pyarrow.ArrowInvalid, OverflowError, ValueError: If the table cannot hold a value.
        """
        array = plain_array(array)
        if self.class_names is not None:
            names = self.class_names
            return [None if number is None or number < 0 else names[number] for number in array.to_pylist()]
        values: list[Any] = _TO_TABLE.get(self.kind, _as_it_is)(array).to_pylist()
        return values


_KINDS: dict[str, pl.DataType] = {
    "boolean": pl.Boolean(),
    "integer": pl.Int64(),
    "float": pl.Float64(),
    "string": pl.String(),
    "date": pl.Date(),
    "datetime": pl.Datetime("us"),
}


def _as_it_is(array: pa.Array) -> pa.Array:
    return array


def _to_date(array: pa.Array) -> pa.Array:
    return array.cast(pa.date32(), safe=False) if pa.types.is_date64(array.type) else array


def _to_datetime(array: pa.Array) -> pa.Array:
    """Microseconds in UTC without a zone; nanoseconds are floored, so that time never runs ahead."""
    if array.type.unit == "ns":
        floored = np.floor_divide(pc.fill_null(array.cast(pa.int64()), 0).to_numpy(zero_copy_only=False), 1_000)
        return pa.array(floored, pa.int64(), mask=array.is_null().to_numpy(zero_copy_only=False)).cast(
            pa.timestamp("us")
        )
    return array.cast(pa.timestamp("us", array.type.tz)).cast(pa.timestamp("us"))


_TO_TABLE: dict[str, Callable[[pa.Array], pa.Array]] = {
    "date": _to_date,
    "datetime": _to_datetime,
    "integer": lambda array: array.cast(pa.int64()),
}


def undecided_columns(features: datasets.Features, asked: str | Iterable[str] | None) -> list[str]:
    """The columns of which the first rows must be seen: strings, under "auto"."""
    return [name for name in features if asked == "auto" and _kind(features[name]) == "string"]


def choose_columns(
    features: datasets.Features,
    asked: str | Iterable[str] | None,
    *,
    longest: dict[str, int],
    class_names: bool,
) -> tuple[TableColumn, ...]:
    """Choose the table's columns.

    Args:
        features: The dataset's features.
        asked: "auto", or the columns by name; None is none.
        longest: For each undecided column the longest string of the first rows, in bytes.
        class_names: Whether a ClassLabel also gets a column of names.

    Raises:
        ConfigError: If a column that was asked for does not exist or cannot be in a table, or
            two columns would have one name.
    """
    if asked == "auto":
        chosen = [
            name
            for name, feature in features.items()
            # Unsigned 64-bit numbers may be larger than the table's, so they go there by name only.
            if _kind(feature) is not None
            and getattr(feature, "dtype", None) != "uint64"
            and longest.get(name, 0) <= _LONGEST_STRING
        ]
    else:
        chosen = _asked_columns(features, asked)
    columns: list[TableColumn] = []
    for name in chosen:
        feature = features[name]
        kind = _kind(feature)
        if kind is None:
            raise drt.ConfigError(
                f"metadata_columns must be bools, numbers, strings, dates, timestamps or class labels, got {name!r}, "
                f"which is {feature}; it stays in the payload, leave it out of metadata_columns"
            )
        columns.append(TableColumn(name, _free_name(name, features), kind))
        if class_names and isinstance(feature, datasets.ClassLabel) and feature.names:
            column = TableColumn(name, f"{columns[-1].name}_name", "string", tuple(feature.names))
            if column.name in features:
                raise drt.ConfigError(
                    f"class_names=True adds a column {column.name!r}, but the dataset has one; rename it first"
                )
            columns.append(column)
    return tuple(columns)


def listed_columns(asked: str | Iterable[str] | None) -> str | list[str] | None:
    """What was asked for, "auto", None or a list of names, so that it can be read several times.

    Raises:
        ConfigError: If it is nothing of this kind.
    """
    if asked is None or asked == "auto":
        return asked
    if isinstance(asked, str) or not isinstance(asked, Iterable):
        raise drt.ConfigError(f"metadata_columns must be 'auto', None or a sequence of column names, got {asked!r}")
    return list(asked)


def _asked_columns(features: datasets.Features, asked: str | Iterable[str] | None) -> list[str]:
    if asked is None:
        return []
    names = list(asked)
    for name in names:
        if name not in features:
            known = ", ".join(map(repr, features))
            raise drt.ConfigError(f"metadata_columns must be columns of the dataset, got {name!r}; it has {known}")
    return list(dict.fromkeys(names))


def _free_name(name: str, features: datasets.Features) -> str:
    """The table's own columns keep their names; a dataset's column of that name gets an underscore."""
    if name not in _RESERVED:
        return name
    renamed = f"{name}_"
    while renamed in features:
        renamed += "_"
    return renamed


def _kind(feature: Any) -> str | None:
    """What a feature is in the table, or None."""
    if isinstance(feature, datasets.ClassLabel):
        return "integer"
    if not isinstance(feature, datasets.Value):
        return None
    kind, types = feature.pa_type, pa.types
    if types.is_boolean(kind):
        return "boolean"
    if types.is_integer(kind):
        return "integer"
    if types.is_floating(kind):
        return "float"
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return "string"
    if types.is_date(kind):
        return "date"
    return "datetime" if types.is_timestamp(kind) else None
