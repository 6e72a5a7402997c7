"""Which type Python's values have, found value by value.

Asked for the type of many values at once, Arrow takes one that holds them all, and changes some on the way: a date
among moments becomes a moment, text among bytes becomes bytes. And which values are asked for at once depends on the
size of a batch.
"""

from __future__ import annotations

import array
import datetime
import decimal
from typing import Any

import numpy as np

__all__ = ["TypesDifferError", "ValueTypes"]

_PLAIN = {bool: "bool", float: "double", str: "string", bytes: "binary"}
_INT64 = range(-(2**63), 2**63)


class TypesDifferError(Exception):
    """A value has another type than those before it in its place."""

    def __init__(self, path: str, before: str, after: str) -> None:
        super().__init__(path, before, after)
        self.path, self.before, self.after = path, before, after


class ValueTypes:
    """The types seen so far in each place of a row; None has none."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}

    def add(self, path: str, value: Any) -> None:
        """Take note of a value.

        Args:
            path: Its column, and the names of the fields that lead to it.
            value: The value; what lists and dicts hold is looked at too.

        Raises:
            TypesDifferError: If the place had another type before.
        """
        if value is None:
            return
        if isinstance(value, dict):
            self._note(path, "struct")
            for name, child in value.items():
                self.add(f"{path}.{name}", child)
        elif isinstance(value, (list, tuple)):
            self._note(path, "list")
            self._add_all(f"{path}[]", value)
        elif isinstance(value, np.ndarray):
            for _ in range(value.ndim):
                self._note(path, "list")
                path = f"{path}[]"
            if value.dtype == object:
                self._add_all(path, value.reshape(-1).tolist())
            else:
                self._note(path, _name_of_dtype(value.dtype))
        else:
            self._note(path, _name(value))

    def _add_all(self, path: str, values: list[Any] | tuple[Any, ...]) -> None:
        kinds = set(map(type, values))
        if len(kinds) == 1:
            # Most lists are long and hold numbers of one kind.
            (kind,) = kinds
            if kind in _PLAIN:
                self._note(path, _PLAIN[kind])
                return
            if kind is int and _fit_64_bits(values):
                self._note(path, "int64")
                return
        for value in values:
            self.add(path, value)

    def _note(self, path: str, name: str) -> None:
        before = self._seen.setdefault(path, name)
        if before != name:
            raise TypesDifferError(path, before, name)


def _fit_64_bits(values: list[Any] | tuple[Any, ...]) -> bool:
    try:
        array.array("q", values)
    except OverflowError:
        return False
    return True


def _name(value: Any) -> str:
    for kind, name in _PLAIN.items():
        if isinstance(value, kind):
            return name
    if isinstance(value, int):
        return "int64" if value in _INT64 else "uint64"
    if isinstance(value, np.generic):
        return _name_of_dtype(value.dtype)
    if isinstance(value, (datetime.datetime, datetime.time)):
        zone = f", tz={value.tzinfo}" if value.tzinfo is not None else ""
        return f"{'timestamp' if isinstance(value, datetime.datetime) else 'time'}[us{zone}]"
    if isinstance(value, datetime.date):
        return "date"
    if isinstance(value, decimal.Decimal):
        # A NaN has a letter as its exponent.
        return f"decimal of {value.as_tuple().exponent} as exponent"
    # Images have a class for each format, and tensors one each.
    kind = type(value)
    return f"{kind.__module__.partition('.')[0]} object {getattr(value, 'dtype', '')}".rstrip()


def _name_of_dtype(dtype: np.dtype[Any]) -> str:
    names = {"float64": "double", "float32": "float", "float16": "halffloat"}
    if dtype.kind in "US":
        return "string" if dtype.kind == "U" else "binary"
    return names.get(dtype.name, dtype.name)
