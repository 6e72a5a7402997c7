"""The kinds of stored columns, as Polars names them."""

from __future__ import annotations

import polars as pl
from polars.datatypes import DataType, DataTypeClass

__all__ = ["DTYPES", "kind_of"]

DTYPES: dict[str, DataType] = {
    "Boolean": pl.Boolean(),
    "Int64": pl.Int64(),
    "Float64": pl.Float64(),
    "String": pl.String(),
    "Date": pl.Date(),
    "Datetime": pl.Datetime("us"),
}
"""Polars' type for each kind of the core."""


def kind_of(dtype: DataType | DataTypeClass | object) -> str | None:
    """The kind that a Polars type stands for, or None: `pl.Datetime` alone means microseconds."""
    if dtype is pl.Datetime:
        return "Datetime"
    return next((kind for kind, known in DTYPES.items() if dtype == known), None)
