"""A second sharding of what is dealt to the ranks already, where it can be seen."""

from __future__ import annotations

import sys

from dataset_rt import ConfigError

__all__ = ["refuse_other_sharding"]

_SHARDING_CLASSES = ("BatchSamplerShard", "IterableDatasetShard", "DataLoaderDispatcher")


def refuse_other_sharding(world_size: int) -> None:
    """Refuse to be iterated by what Accelerate's `prepare` puts around a DataLoader.

    With several ranks it deals out the batches once more, and all but one share of them
    would be lost without a word. Nothing but the callers of this iteration tells.

    Raises:
        ConfigError: If such a caller is found and there are several ranks.
    """
    if world_size == 1 or "accelerate.data_loader" not in sys.modules:
        return
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_globals.get("__name__") == "accelerate.data_loader":
            caller = type(frame.f_locals.get("self")).__name__
            if caller in _SHARDING_CLASSES:
                raise ConfigError(
                    f"a DataLoader of dataset_rt_torch must not go through Accelerate's prepare() in {world_size} "
                    f"processes, got a {caller} around it: its batches are dealt to the ranks already; pass on what "
                    "make_dataloader returns, which prepare() leaves as it is, or leave the loader out of prepare()"
                )
        frame = frame.f_back  # type: ignore[assignment]
