"""Which rank this process is, of how many."""

from __future__ import annotations

import os

from torch import distributed

from dataset_rt import ConfigError

__all__ = ["Ranks", "world"]


def world() -> tuple[int, int]:
    """Rank and world size of this process.

    An initialised `torch.distributed` says them, otherwise the launcher's environment
    variables: `RANK` and `WORLD_SIZE`, or on a single node `LOCAL_RANK` and
    `WORLD_SIZE`. Without any of these this process is the only one.

    Raises:
        ConfigError: If the variables name several ranks and not which one this is.
    """
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    size = _variable("WORLD_SIZE")
    rank = _variable("RANK")
    if size is None:
        if rank:
            raise ConfigError(f"WORLD_SIZE must be set where RANK is, got RANK={rank} alone; set both or neither")
        return 0, 1
    if rank is None and size > 1:
        rank = _rank_on_the_only_node(size)
    rank = rank or 0
    if not 0 <= rank < size:
        raise ConfigError(f"RANK must be in [0, {size}), got {rank}; set RANK and WORLD_SIZE as your launcher does")
    return rank, size


def _rank_on_the_only_node(size: int) -> int:
    rank, local_size = _variable("LOCAL_RANK"), _variable("LOCAL_WORLD_SIZE")
    nodes = next((n for n in map(_variable, ("NNODES", "GROUP_WORLD_SIZE", "NUM_NODES")) if n is not None), 1)
    if rank is None or nodes > 1 or local_size not in (None, size):
        raise ConfigError(
            f"RANK must be set where WORLD_SIZE is above 1, got WORLD_SIZE={size} alone; call "
            "torch.distributed.init_process_group first, set RANK, or pass rank= and world_size="
        )
    return rank


def _variable(name: str) -> int | None:
    text = os.environ.get(name, "").strip()
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f"environment variable {name} must be an integer, got {text!r}") from None


class Ranks:
    """The rank that a sampler deals for: given, of the dataset's view, or found once and then fixed.

    Args:
        view: `world` of the dataset, if it is a rank's view.
        rank: As the user gave it.
        world_size: As the user gave it.
        remainder: As the user gave it.
    """

    def __init__(
        self, view: tuple[int, int, str] | None, rank: int | None, world_size: int | None, remainder: str
    ) -> None:
        if (rank is None) != (world_size is None):
            raise ConfigError(f"rank and world_size must be given together, got {rank!r} and {world_size!r}")
        if view is not None and rank is not None:
            raise ConfigError(
                f"rank and world_size must be left out for a rank's view, got {rank} of {world_size} for that of rank "
                f"{view[0]} of {view[1]}"
            )
        if view is not None and remainder not in ("extend", view[2]):
            raise ConfigError(f"remainder must be left out for a rank's view, which has {view[2]!r}, got {remainder!r}")
        self._view = view
        self._given = rank is not None
        self._found = None if rank is None or world_size is None else (rank, world_size)
        self._remainder = remainder

    def world(self) -> tuple[int, int, str]:
        """Rank, world size, and the rule for what the world size does not divide.

        Raises:
            ConfigError: If the process has become another rank since it was first asked.
        """
        if self._view is not None:
            return self._view
        if not self._given:
            now = world()
            if self._found is not None and now != self._found:
                raise ConfigError(
                    f"rank and world size must not change while a loader exists, got {now[0]} of {now[1]} after "
                    f"{self._found[0]} of {self._found[1]}; make the loader after init_process_group"
                )
            self._found = now
        assert self._found is not None
        return *self._found, self._remainder
