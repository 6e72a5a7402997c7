"""Indices and counts that users and Grain give, from Python or NumPy."""

from __future__ import annotations

from dataset_rt import ConfigError
from dataset_rt.integers import integer

__all__ = ["at_least_one", "element_index"]


def at_least_one(value: object, argument: str) -> int:
    """An integer of at least 1.

    Raises:
        ConfigError: If it is none; the message names `argument`.
    """
    number = integer(value, argument)
    if number < 1:
        raise ConfigError(f"{argument} must be at least 1, got {number}")
    return number


def element_index(value: object, length: int) -> int:
    """The number of an element of a sequence, negative ones counting from its end.

    Raises:
        ConfigError: If it is no integer.
        IndexError: If there is no such element.
    """
    index = integer(value, "index")
    if not -length <= index < length:
        raise IndexError(f"index must be in [-{length}, {length}), got {index}")
    return index % length
