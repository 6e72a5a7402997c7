"""Which share of each window this process takes."""

from __future__ import annotations

from typing import Any

import jax

import dataset_rt as drt
from dataset_rt import ConfigError

__all__ = ["World"]


class World:
    """One rank among all: a view's, else the one given, else this process's among JAX's.

    To ask JAX starts its backends, and `jax.distributed.initialize` must come before that; so it is asked when the
    answer is first needed, and only once.

    Args:
        dataset: What is read; a view made by `shard` brings its own world.
        rank: In [0, world_size), or None.
        world_size: At least 1, or None.
        remainder: "extend", "drop" or "uneven".

    Raises:
        ConfigError: If only one of rank and world size is given, or a world beside a view.
    """

    def __init__(
        self,
        dataset: drt.CachedDataset | drt.SampleStream,
        rank: int | None,
        world_size: int | None,
        remainder: str,
    ) -> None:
        self._resolved: tuple[int, int, str] | None = None
        self._remainder = remainder
        self._is_view = False
        view = dataset.world if isinstance(dataset, drt.CachedDataset) else None
        if view is not None:
            if (rank, world_size, remainder) != (None, None, "extend"):
                raise ConfigError(
                    f"rank, world_size and remainder must not be given with a view, which is rank {view[0]} of "
                    f"{view[1]} already; leave them out, or give the dataset that shard was called on"
                )
            self._resolved = view
            self._is_view = True
        elif rank is not None and world_size is not None:
            self._resolved = (rank, world_size, remainder)
        elif rank is not None or world_size is not None:
            raise ConfigError(f"rank and world_size must be given together, got {rank} and {world_size}")

    def resolve(self) -> tuple[int, int, str]:
        """Rank, world size and remainder rule; from the first call on they never change."""
        if self._resolved is None:
            self._resolved = (jax.process_index(), jax.process_count(), self._remainder)
        return self._resolved

    def arguments(self) -> dict[str, Any]:
        """What to call `CachedDataset.ticket` with: a view's world must not be named again."""
        if self._is_view:
            return {}
        rank, world_size, remainder = self.resolve()
        return {"rank": rank, "world_size": world_size, "remainder": remainder}
