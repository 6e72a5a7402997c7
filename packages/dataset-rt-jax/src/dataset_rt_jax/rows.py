"""Which rows of a global batch this process holds under a sharding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from jax.sharding import NamedSharding, PartitionSpec, Sharding

from dataset_rt import ConfigError

__all__ = ["LocalRows", "for_dimensions"]


@dataclass(frozen=True)
class LocalRows:
    """The rows of a batch that this process's devices hold, each once, in ascending order.

    Attributes:
        numbers: Their numbers within the global batch.
        places: For each device's range of rows, where it begins among them.
    """

    numbers: npt.NDArray[np.intp]
    places: Mapping[tuple[int, int], int]

    @classmethod
    def under(cls, sharding: Sharding, batch_size: int) -> LocalRows:
        """Find the rows of a batch of `batch_size`.

        Raises:
            ConfigError: If the sharding does not divide the batch, or has no device of this process.
        """
        try:
            indices = for_dimensions(sharding, 1).addressable_devices_indices_map((batch_size,))
        except ValueError as error:
            raise ConfigError(
                f"a batch of {batch_size} draws cannot be divided by the sharding: {error}; choose a batch_size that "
                "it divides, and drop_last=True or a fitting epoch length where an epoch ends in a short batch"
            ) from error
        if not indices:
            raise ConfigError("sharding must have at least one device of this process, got one that has none")
        ranges = sorted({_bounds(index[0], batch_size) for index in indices.values() if index is not None})
        begins = np.cumsum([0, *(stop - start for start, stop in ranges)]).tolist()
        numbers = np.concatenate([np.arange(start, stop) for start, stop in ranges])
        return cls(numbers, dict(zip(ranges, begins, strict=False)))

    def __len__(self) -> int:
        return len(self.numbers)

    def local(self, rows: slice, batch_size: int) -> slice:
        """Where among these rows a device's rows of the batch are."""
        start, stop = _bounds(rows, batch_size)
        place = self.places[start, stop]
        return slice(place, place + stop - start)


def for_dimensions(sharding: Sharding, dimensions: int) -> Sharding:
    """Give the sharding of an array of so many dimensions: what it says of further ones is cut off."""
    if isinstance(sharding, NamedSharding) and len(sharding.spec) > dimensions:
        spec = PartitionSpec(*sharding.spec[:dimensions])  # type: ignore[no-untyped-call]
        return NamedSharding(sharding.mesh, spec)
    return sharding


def _bounds(rows: slice, batch_size: int) -> tuple[int, int]:
    start, stop, _ = rows.indices(batch_size)
    return start, stop
