"""How a window becomes the batches of a rank, and how many of them a read takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import dataset_rt as drt
from dataset_rt import StreamCursor, Window
from dataset_rt.integers import positive

__all__ = ["Cut"]


@dataclass(frozen=True)
class Cut:
    """How windows are dealt to ranks, and cut into batches and reads.

    Attributes:
        batch_size: Samples a batch.
        drop_last: Whether a last batch that is short is left out.
        world: Rank, world size, and what is done where that does not divide an epoch.
        batches_per_read: How many batches are read in one call, at most; what a saved iterator's step counts in.

    Raises:
        ConfigError: If the batch size is no integer of at least 1.
    """

    batch_size: int
    drop_last: bool
    world: tuple[int, int, str]
    batches_per_read: int = 1

    def __post_init__(self) -> None:
        # A small NumPy type would wrap around where batches are counted.
        object.__setattr__(self, "batch_size", positive(self.batch_size, "batch_size"))

    def ticket(self, source: drt.CachedDataset | StreamCursor) -> drt.WindowTicket:
        """Ask for the next window of a dataset, a rank's view of one, or a cursor."""
        if source.world is not None:
            return source.ticket(self.batch_size, drop_last=self.drop_last)
        rank, size, remainder = self.world
        return source.ticket(self.batch_size, drop_last=self.drop_last, rank=rank, world_size=size, remainder=remainder)

    def window(self, stream: drt.SampleStream, start: int, epoch_len: int) -> Window:
        """The whole window at a position.

        Raises:
            ConfigError: If there is no such rank or batch size.
        """
        rank, size, remainder = self.world
        return stream.window(
            start,
            self.batch_size,
            epoch_len=epoch_len,
            drop_last=self.drop_last,
            rank=rank,
            world_size=size,
            remainder=remainder,
        )

    def length(self, stream: drt.SampleStream, epoch_len: int) -> int:
        """How many batches a whole window has.

        Raises:
            ConfigError: If it has none, or there is no such rank or batch size.
        """
        count = self.window(stream, 0, epoch_len).num_batches
        if count == 0:
            raise drt.ConfigError(
                f"an epoch of {epoch_len} draws for {self.world[1]} ranks holds no full batch of {self.batch_size}; "
                "make the batches smaller, or keep the last one with drop_last=False"
            )
        return count

    def reads(self, window: Window) -> int:
        """How many reads a window takes."""
        full = window.num_draws // self.batch_size
        return -(-full // self.batches_per_read) + window.num_batches - full

    def read(self, window: Window, number: int) -> tuple[int, int, int]:
        """The first draw of a read, the number of its batches, and of the draws in each.

        All batches of a read are of one size: a last one that is short is read alone.
        """
        full = window.num_draws // self.batch_size
        before = number * self.batches_per_read
        if before < full:
            return before * self.batch_size, min(self.batches_per_read, full - before), self.batch_size
        return full * self.batch_size, 1, window.num_draws - full * self.batch_size

    def known_length(self, source: drt.CachedDataset | StreamCursor) -> int | None:
        """How many batches a pass has at most, or None if one is already longer than a whole window.

        The rest of a window is, that was begun with a larger epoch length and loaded since.

        Raises:
            ConfigError: As `length`.
        """
        stream = source.stream()
        length = self.length(stream, source.epoch_len)
        rest = self.rewind(stream, self.ticket(source).state_dict()).num_batches
        return length if rest <= length else None

    def rewind(self, stream: drt.SampleStream, state: Mapping[str, Any]) -> Window:
        """Make the window again at whose beginning a state was taken. Moves nothing.

        Raises:
            StateMismatchError: If the state belongs to another stream.
        """
        cursor = stream.cursor()
        cursor.load_state_dict(state)
        return self.ticket(cursor).reserve()
