"""Integers that users give, from Python or NumPy, checked before the core sees them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import SupportsIndex

import numpy as np

from dataset_rt.errors import ConfigError

__all__ = [
    "integer",
    "position_number",
    "positive",
    "rank_of_world",
    "row_number",
    "row_numbers",
    "unsigned",
    "unsigned_list",
]


def unsigned(value: object, argument: str) -> int:
    """An integer in [0, 2**64).

    Raises:
        ConfigError: If it is none; the message names `argument`.
    """
    number = integer(value, argument)
    if not 0 <= number < 2**64:
        raise ConfigError(f"{argument} must be in [0, 2**64), got {number}")
    return number


def positive(value: object, argument: str) -> int:
    """An integer in [1, 2**64).

    Raises:
        ConfigError: If it is none; the message names `argument`.
    """
    number = integer(value, argument)
    if number < 1:
        raise ConfigError(f"{argument} must be at least 1, got {number}")
    return unsigned(number, argument)


def rank_of_world(rank: object, world_size: object) -> tuple[int, int]:
    """A rank in [0, world_size), and the number of ranks in [1, 2**64).

    Raises:
        ConfigError: If one of them is none.
    """
    size = positive(world_size, "world_size")
    number = integer(rank, "rank")
    if not 0 <= number < size:
        raise ConfigError(f"rank must be in [0, {size}), got {number}")
    return number, size


def unsigned_list(values: Iterable[SupportsIndex], argument: str) -> list[int]:
    """Integers in [0, 2**64).

    Raises:
        ConfigError: If one of them is none.
    """
    if isinstance(values, np.ndarray) and values.dtype == np.uint64:
        # Nothing to check: an adapter asks for whole batches of numbers that the core gave it.
        plain: list[int] = np.atleast_1d(values).tolist()
        return plain
    return [unsigned(value, argument) for value in _listed(values, argument)]


def row_numbers(values: Iterable[SupportsIndex]) -> list[int]:
    """Numbers of rows, each of which may count from the end.

    Raises:
        ConfigError: If one of them is no integer.
        IndexError: If no table has such a row.
    """
    return [row_number(value) for value in _listed(values, "rows")]


def row_number(value: object) -> int:
    """The number of a row, which may count from the end.

    Raises:
        ConfigError: If it is no integer.
        IndexError: If no table has such a row.
    """
    if isinstance(value, slice):
        raise ConfigError(f"row must be an integer, got {value}; read(range(start, stop)) reads several rows")
    number = integer(value, "row")
    if not -(2**64) < number < 2**64:
        raise IndexError(f"row must be the number of a row, got {number}")
    return number


def position_number(value: object) -> int:
    """The number of a draw.

    Raises:
        ConfigError: If it is no integer.
        IndexError: If no stream has such a draw.
    """
    if isinstance(value, slice):
        raise ConfigError(f"position must be an integer, got {value}; fetch(range(start, stop)) reads several draws")
    number = integer(value, "position")
    if not 0 <= number < 2**64:
        raise IndexError(f"position must be in [0, 2**64), got {number}")
    return number


def integer(value: object, argument: str) -> int:
    """An integer of any size, Python's or NumPy's, and no bool.

    Raises:
        ConfigError: If it is none; the message names `argument`.
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, SupportsIndex):
        raise ConfigError(f"{argument} must be an integer, got {value!r}")
    try:
        return operator.index(value)
    except TypeError:
        # An array has __index__ and refuses it unless it holds one integer.
        raise ConfigError(f"{argument} must be an integer, got {value!r}") from None


def _listed(values: Iterable[SupportsIndex], argument: str) -> Iterable[object]:
    if isinstance(values, np.ndarray):
        plain: list[object] = np.atleast_1d(values).tolist()
        return plain
    if not isinstance(values, Iterable):
        raise ConfigError(f"{argument} must be integers in a list or an array, got {values!r}")
    return values
