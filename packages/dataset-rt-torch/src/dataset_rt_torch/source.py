"""Where windows come from: the dataset or stream, the rank, and how batches are cut."""

from __future__ import annotations

from typing import Any

from dataset_rt import CachedDataset, ConfigError, SampleStream, StreamCursor, WindowTicket
from dataset_rt_torch.world import Ranks

__all__ = ["Plan"]


class Plan:
    """What every iteration of a sampler or a loader begins with.

    Args:
        dataset: A `CachedDataset` or a `SampleStream`.
        batch_size: Samples a batch.
        rank: As the user gave it.
        world_size: As the user gave it.
        remainder: As the user gave it.
        drop_last: Whether a last batch that is short is left out.

    Raises:
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        dataset: CachedDataset | SampleStream,
        batch_size: int,
        rank: int | None,
        world_size: int | None,
        remainder: str,
        drop_last: bool,  # noqa: FBT001
    ) -> None:
        if not isinstance(dataset, (CachedDataset, SampleStream)):
            raise ConfigError(f"dataset must be a CachedDataset or its stream(), got {type(dataset).__name__}")
        self.source: CachedDataset | StreamCursor = dataset if isinstance(dataset, CachedDataset) else dataset.cursor()
        self.ranks = Ranks(self.source.world, rank, world_size, remainder)
        # Arguments are checked now, though a rank that was not given is looked up later.
        known = (0, 1) if rank is None else (rank, world_size)
        self.source.ticket(batch_size, drop_last=drop_last, **self._named(*known, remainder))
        self.batch_size = int(batch_size)
        self.drop_last = drop_last

    def ticket(self) -> WindowTicket:
        """The ticket of the next iteration.

        Raises:
            ConfigError: If the rank is not known or has changed.
        """
        return self.source.ticket(self.batch_size, drop_last=self.drop_last, **self._named(*self.ranks.world()))

    def _named(self, rank: int, world_size: int | None, remainder: str) -> dict[str, Any]:
        """The arguments that name the rank; a view has one already."""
        if self.source.world is not None:
            return {}
        return {"rank": rank, "world_size": world_size, "remainder": remainder}
