"""Turning decoded values into the arrays that cross into TensorFlow's graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import dataset_rt as drt
from dataset_rt_tf.signature import Leaf

__all__ = ["batch_arrays", "sample_arrays", "stack_samples"]

Array = npt.NDArray[Any]


def stack_samples(leaf: Leaf, values: Sequence[Any], origin: str) -> list[Array]:
    """Put one leaf's values of several samples together.

    Dense values of unequal lengths are filled up with zeros, or empty strings, to the longest of the batch.

    Raises:
        ConfigError: If a value has another dtype or shape than the signature says.
    """
    if leaf.splits:
        return _ragged(leaf, values, origin)
    arrays = [_checked(leaf, value, leaf.shape, origin) for value in values]
    if leaf.is_fixed:
        return [np.stack(arrays)]
    longest = np.max([array.shape for array in arrays], axis=0)
    filled = np.full((len(arrays), *longest), b"", object) if leaf.dtype == tf.string else None
    if filled is None:
        filled = np.zeros((len(arrays), *longest), leaf.dtype.as_numpy_dtype)
    for place, array in zip(filled, arrays, strict=True):
        place[tuple(slice(length) for length in array.shape)] = array
    return [filled]


def batch_arrays(leaf: Leaf, value: Any, rows: int, origin: str) -> list[Array]:
    """Check one leaf of a whole decoded batch.

    Args:
        leaf: What it must be.
        value: An array with the batch as its first dimension; for a ragged leaf a sequence of one value a sample.
        rows: How many samples the batch has.
        origin: Name of the function that made it, for messages.

    Raises:
        ConfigError: If dtype or shape are not what the signature says.
    """
    if not leaf.splits:
        return [_checked(leaf, value, (rows, *leaf.shape), origin)]
    if len(value) != rows:
        raise drt.ConfigError(f"{origin} must return {rows} values for {leaf.label}, got {len(value)}")
    return _ragged(leaf, value, origin)


def sample_arrays(leaf: Leaf, value: Any, origin: str) -> list[Array]:
    """Check one leaf of a single sample.

    Raises:
        ConfigError: If dtype or shape are not what the signature says.
    """
    if leaf.splits:
        # The outermost split tells samples apart, and here is one.
        values, _, *inner = _ragged(leaf, [value], origin)
        return [values, *inner]
    return [_checked(leaf, value, leaf.shape, origin)]


def _ragged(leaf: Leaf, values: Sequence[Any], origin: str) -> list[Array]:
    """Flat values, then row splits from the outermost dimension inwards."""
    splits = []
    level: Sequence[Any] = values
    for depth in range(leaf.splits):
        lengths = np.fromiter((len(item) for item in level), np.int64, len(level))
        splits.append(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))
        if depth + 1 < leaf.splits:
            level = [inner for item in level for inner in item]
    inner_shape = (None, *leaf.shape[leaf.splits :])
    parts = [_checked(leaf, item, inner_shape, origin) for item in level]
    if parts:
        return [np.concatenate(parts), *splits]
    empty = (0, *(length or 0 for length in inner_shape[1:]))
    return [np.empty(empty, object if leaf.dtype == tf.string else leaf.dtype.as_numpy_dtype), *splits]


def _checked(leaf: Leaf, value: Any, shape: tuple[int | None, ...], origin: str) -> Array:
    # Fixed-width strings would lose NULs at the end; objects keep them.
    array = np.asarray(value, object if leaf.dtype == tf.string else None)
    if leaf.dtype == tf.string:
        for number, item in enumerate(array.reshape(-1)):
            if item is None:
                raise drt.ConfigError(
                    f"{origin} must return strings for {leaf.label}, got None as value {number}: a null, which a "
                    "tensor cannot hold; filter such rows out, or put another string in its place"
                )
            if not isinstance(item, (bytes, str)):
                raise _wrong_dtype(leaf, type(item).__name__, origin)
    elif array.dtype.newbyteorder("=") != leaf.dtype.as_numpy_dtype:
        if isinstance(value, (np.ndarray, np.generic)) or not _takes(leaf, array):
            raise _wrong_dtype(leaf, str(array.dtype), origin)
        # Plain Python numbers have no width of their own.
        array = array.astype(leaf.dtype.as_numpy_dtype)
    elif not array.dtype.isnative:
        # TensorFlow has no byte order but the machine's.
        array = array.astype(array.dtype.newbyteorder("="))
    fits = array.ndim == len(shape) and all(want in (None, got) for want, got in zip(shape, array.shape, strict=True))
    if not fits:
        advice = "" if None in shape else "; lengths that vary are None in output_signature"
        raise drt.ConfigError(
            f"{origin} must return shape {_shown(shape)} for {leaf.label}, got {_shown(array.shape)}{advice}"
        )
    return array


def _takes(leaf: Leaf, array: Array) -> bool:
    """Whether Python numbers can become the leaf's dtype without a change of value or kind."""
    if array.size == 0:
        return True
    dtype = np.dtype(leaf.dtype.as_numpy_dtype)
    if array.dtype.kind in "iu" and dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        return bool(array.min() >= bounds.min and array.max() <= bounds.max)
    return leaf.dtype.is_floating and array.dtype.kind in "iuf"


def _wrong_dtype(leaf: Leaf, got: str, origin: str) -> drt.ConfigError:
    return drt.ConfigError(f"{origin} must return {leaf.dtype.name} for {leaf.label}, got {got}")


def _shown(shape: tuple[int | None, ...]) -> str:
    return f"({', '.join(str(length) for length in shape)}{',' if len(shape) == 1 else ''})"
