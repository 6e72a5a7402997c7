"""What an adapter implements so that it can be driven and held to the stream."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import ConfigError

__all__ = ["ENTRY_POINT_GROUP", "Delivery", "Driver", "Loader", "driver_names", "find_driver"]

ENTRY_POINT_GROUP = "dataset_rt.adapters"


class Delivery(NamedTuple):
    """One batch as a training loop receives it.

    Attributes:
        cache_ids: uint64, shape `[batch]`.
        sample_ids: uint64, shape `[batch]`.
        payloads: The payload bytes of each sample.
    """

    cache_ids: npt.NDArray[np.uint64]
    sample_ids: npt.NDArray[np.uint64]
    payloads: list[bytes]


class Loader(Protocol):
    """A framework's loader over one dataset, as one rank's training loop sees it."""

    def epoch(self) -> Iterator[Delivery]:
        """Deliver this rank's share of the next window, or of the rest of a restored one, batch by batch."""

    def state_dict(self) -> dict[str, Any]:
        """The state of what was consumed: of every batch that `epoch` has delivered, and of none beyond."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another loader, of any framework, stood.

        Raises:
            StateMismatchError: If the state belongs to another stream.
        """

    def close(self) -> None:
        """End worker processes and whatever else the loader holds."""


class Driver(Protocol):
    """Makes the loaders of one framework.

    Attributes:
        name: What `--through` and `find_driver` call it.
        capabilities: Of "workers" (takes `num_workers` above 0), "state" (loaders can be
            saved and restored), "table" (edits of the table reach a loader's next window)
            and "errors" (the core's exceptions arrive with their own types; without it
            only their text must). What is missing is not checked, and the checks say so.
    """

    name: str
    capabilities: frozenset[str]

    def loader(
        self,
        dataset: CachedDataset,
        batch_size: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        remainder: str = "extend",
        drop_last: bool = False,
        num_workers: int = 0,
    ) -> Loader:
        """Make a loader of a dataset for one rank, the way a user of the framework would.

        Args:
            dataset: Whole, at any position; the loader moves it as it reserves windows.
            batch_size: Samples a batch, at least 1.
            rank: In [0, world_size).
            world_size: The number of ranks, at least 1.
            remainder: "extend", "drop" or "uneven".
            drop_last: Whether a last batch that is short is left out.
            num_workers: Worker processes or threads, as the framework counts them.
        """


def driver_names() -> list[str]:
    """The drivers that are installed, in alphabetical order; "core" is always there."""
    return sorted({"core", *(entry.name for entry in entry_points(group=ENTRY_POINT_GROUP))})


def find_driver(name: str) -> Driver:
    """Import the driver of an installed adapter; nothing of other adapters is imported.

    Args:
        name: "core", or the name of an entry point in the group `dataset_rt.adapters`.

    Raises:
        ConfigError: If there is none of that name.
        ImportError: If the adapter is there but its framework is not.
    """
    if name == "core":
        from dataset_rt.testing.core_driver import CoreDriver

        return CoreDriver()
    for entry in entry_points(group=ENTRY_POINT_GROUP, name=name):
        driver: Driver = entry.load()()
        return driver
    raise ConfigError(
        f"no driver named {name!r} is installed, only {', '.join(driver_names())}; "
        f"an adapter brings its own: pip install dataset-rt-{name}"
    )
