"""Integers that users give, from Python or NumPy, checked before the core sees them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

from dataset_rt.errors import ConfigError

__all__ = ["row_number", "unsigned", "unsigned_list"]


def unsigned(value: object, argument: str) -> int:
    """An integer in [0, 2**64).

    Raises:
        ConfigError: If it is none; the message names `argument`.
    """
    number = _integer(value, argument)
    if not 0 <= number < 2**64:
        raise ConfigError(f"{argument} must be in [0, 2**64), got {number}")
    return number


def unsigned_list(values: Iterable[SupportsIndex], argument: str) -> list[int]:
    """Integers in [0, 2**64).

    Raises:
        ConfigError: If one of them is none.
    """
    plain: Iterable[object] = values.tolist() if isinstance(values, np.ndarray) else values
    return [unsigned(value, argument) for value in plain]


def row_number(value: object) -> int:
    """The number of a row, which may count from the end.

    Raises:
        ConfigError: If it is no integer.
        IndexError: If no table has such a row.
    """
    number = _integer(value, "row")
    if not -(2**64) < number < 2**64:
        raise IndexError(f"row must be the number of a row, got {number}")
    return number


def _integer(value: object, argument: str) -> int:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, SupportsIndex):
        raise ConfigError(f"{argument} must be an integer, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        # An array has __index__ and refuses it unless it holds one integer.
        raise ConfigError(f"{argument} must be an integer, got {value!r}") from None
