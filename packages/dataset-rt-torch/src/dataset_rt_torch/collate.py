"""Collating: what torch's default cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import default_collate

from dataset_rt import CachedSample, ConfigError

__all__ = ["WholeBatch", "collate_samples"]

_IDENTITIES = ("cache_id", "sample_id")


class WholeBatch(list[Any]):
    """A list that `decode_batch` gave: fields of one batch, where another list has its samples."""

    __slots__ = ()


def collate_samples(batch: Any) -> Any:
    """Make a batch of samples, of decoded items, or of what `decode_batch` gave.

    Args:
        batch: A list of `CachedSample`, a list of what `decode` gave, or anything else,
            which is taken for a whole batch. What a dataset's `decode_batch` gave is
            one, also where it is a list.

    Returns:
        For samples a dict of `data`, the payloads as a list of bytes; each stored column,
        as a tensor where all values are bool, int or float (bool, int64, float64) and
        else as a list; `cache_id` and `sample_id` as int64 tensors, of which
        `ids.view(torch.uint64)` are the numbers.

        For other lists what `torch.utils.data.default_collate` makes of them. For a whole
        batch the batch, its NumPy arrays as tensors over the same memory, in mappings and
        sequences, too. Arrays of what torch has no type for, such as text and dates, stay
        arrays; `uint64` ones become int64 of the same bits.

    Raises:
        ConfigError: If a stored column is called like a key that the batch has anyway.
    """
    if isinstance(batch, WholeBatch):
        return [_tensors(item) for item in batch]
    if not isinstance(batch, list):
        return _tensors(batch)
    if not batch or not isinstance(batch[0], CachedSample):
        return default_collate(batch)
    collated: dict[str, Any] = {"data": [sample.data for sample in batch]}
    rows = [sample.metadata for sample in batch]
    for name in rows[0]:
        if name in ("data", *_IDENTITIES):
            raise ConfigError(f"stored columns must not be called data, cache_id or sample_id, got {name!r}")
        collated[name] = _column([row[name] for row in rows])
    for name in _IDENTITIES:
        numbers = np.array([getattr(sample, name) for sample in batch], dtype=np.uint64)
        collated[name] = torch.from_numpy(numbers.view(np.int64))
    return collated


def _column(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if len(kinds) == 1:
        (kind,) = kinds
        dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}.get(kind)
        if dtype is not None:
            return torch.tensor(values, dtype=dtype)
    return values


def _tensors(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        # torch has no foreign byte order, and warns of memory that it may not write to.
        native = value.astype(value.dtype.newbyteorder("="), copy=False)
        if native.dtype == np.uint64:
            native = native.view(np.int64)
        try:
            return torch.from_numpy(native if _is_usable(native) else native.copy())
        except TypeError:
            return value
    if isinstance(value, Mapping):
        return {key: _tensors(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(_tensors(item) for item in value))
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray)):
        return type(value)(_tensors(item) for item in value) if isinstance(value, (list, tuple)) else value
    return value


def _is_usable(array: npt.NDArray[Any]) -> bool:
    """Whether torch can use an array's memory: it writes there, and has no odd strides."""
    size = array.itemsize
    return array.flags.writeable and all(stride >= 0 and stride % (size or 1) == 0 for stride in array.strides)
