"""A position of one's own in a stream, for adapters that were given the stream alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dataset_rt._core import Dataset as CoreDataset
from dataset_rt.handle import Handle
from dataset_rt.integers import positive
from dataset_rt.window import WindowTicket, ticket_of

if TYPE_CHECKING:
    from dataset_rt.stream import SampleStream

__all__ = ["StreamCursor"]


class StreamCursor(Handle[CoreDataset]):
    """Where a user of a `SampleStream` stands: what a dataset is without its table.

    Made by `SampleStream.cursor()`, at position 0 and with the stream's epoch length.
    Its methods mean what those of `CachedDataset` mean.
    """

    _made_by = "SampleStream.cursor()"

    def __repr__(self) -> str:
        core = self._core
        return f"StreamCursor(rows={core.rows}, epoch_len={core.epoch_len}, position={core.position})"

    @property
    def position(self) -> int:
        """Number of the draw with which the next window starts, in [0, 2**64)."""
        return self._core.position

    @property
    def epoch_len(self) -> int:
        """The number of draws in a window, of all ranks together."""
        return self._core.epoch_len

    @property
    def world(self) -> None:
        """None: a cursor is no rank's view."""
        return None

    def set_epoch_len(self, epoch_len: int) -> None:
        """Set how many draws later windows have; see `CachedDataset.set_epoch_len`.

        Raises:
            ConfigError: If it is out of range.
        """
        self._core.set_epoch_len(positive(epoch_len, "epoch_len"))

    def state_dict(self) -> dict[str, Any]:
        """The state of the newest window until it is consumed, then of the position."""
        return self._core.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where a saved run stood; see `CachedDataset.load_state_dict`.

        Raises:
            StateMismatchError: If the state is of another stream.
            ConfigError: If it is no dict.
        """
        self._core.load_state_dict(state)

    def stream(self) -> SampleStream:
        """The stream, with the epoch length of now."""
        from dataset_rt.stream import SampleStream

        return SampleStream._over(self._core.stream())

    def ticket(
        self,
        batch_size: int = 1,
        *,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
    ) -> WindowTicket:
        """Make the ticket for a window; see `CachedDataset.ticket`.

        Raises:
            ConfigError: If an argument is out of range.
        """
        return ticket_of(self._core, batch_size, drop_last, rank, world_size, remainder)
