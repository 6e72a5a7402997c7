"""Windows as adapters use them: reserved like an iterator's, delivered by a framework's own means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dataset_rt._core import BatchIterator, SampleIterator
from dataset_rt._core import Dataset as CoreDataset
from dataset_rt._core import Ticket as CoreTicket
from dataset_rt._core import Window as CoreWindow
from dataset_rt.errors import ConfigError
from dataset_rt.handle import Handle
from dataset_rt.integers import positive, rank_of_world, unsigned

if TYPE_CHECKING:
    from dataset_rt.stream import SampleStream

__all__ = ["Window", "WindowTicket", "remainder_name", "ticket_of"]

_NEVER = object()


class WindowTicket(Handle[CoreTicket]):
    """The window that an iterator of an adapter will reserve at its first batch.

    Made by `CachedDataset.ticket()`. It keeps the table and the epoch length of the
    moment when it was made, as every iterator does, and moves nothing: frameworks make
    iterators that they never use.
    """

    _made_by = "CachedDataset.ticket()"

    def __repr__(self) -> str:
        return f"WindowTicket(num_draws={self.num_draws}, num_batches={self.num_batches})"

    @property
    def num_draws(self) -> int:
        """How many draws the window would have for this rank if it were reserved now."""
        return self._core.num_draws

    @property
    def num_batches(self) -> int:
        """How many batches it would have."""
        return self._core.num_batches

    def state_dict(self) -> dict[str, Any]:
        """The state of an iterator that has not begun; `CachedDataset.load_state_dict` takes it."""
        return self._core.state_dict()

    def reserve(self) -> Window:
        """Take the next window, or the rest of a loaded one, and move the dataset past it.

        Once for each ticket: a second call reserves the window behind.

        Raises:
            ConfigError: If the window would exceed the end of the stream.
        """
        return Window._over(self._core.reserve())


class Window(Handle[CoreWindow]):
    """One rank's share of a stretch of the stream, cut into batches.

    Made by `WindowTicket.reserve()`, or by `SampleStream.window()` for callers that say
    themselves where it starts. Draws are numbered from 0 as this rank takes them. What
    was consumed is what `advance` and `finish` say; a reserved window's dataset has it
    in its `state_dict()`. Safe to use from any thread, and in a forked child.
    """

    _made_by = "WindowTicket.reserve() or SampleStream.window()"

    def __repr__(self) -> str:
        rank, world_size, remainder = self.world
        return (
            f"Window(start={self.start}, end={self.end}, rank={rank} of {world_size}, remainder={remainder!r}, "
            f"num_draws={self.num_draws}, num_batches={self.num_batches})"
        )

    @property
    def start(self) -> int:
        """The first position, of all ranks."""
        return self._core.start

    @property
    def end(self) -> int:
        """The position behind the draws of all ranks, where the next window starts."""
        return self._core.end

    @property
    def world(self) -> tuple[int, int, str]:
        """Rank, world size, and the rule for what the world size does not divide."""
        return self._core.world

    @property
    def batch_size(self) -> int:
        """The number of draws in a batch; the last one may have fewer."""
        return self._core.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is short is left out."""
        return self._core.drop_last

    @property
    def num_draws(self) -> int:
        """How many draws this rank takes, those of a batch that is left out included."""
        return self._core.num_draws

    @property
    def num_batches(self) -> int:
        """How many batches this rank takes."""
        return self._core.num_batches

    def positions(self, first: int, count: int) -> npt.NDArray[np.uint64]:
        """Positions of this rank's draws `first`, `first + 1`, …, uint64.

        Args:
            first: Number of a draw, at least 0.
            count: How many draws; like a slice, fewer where the window ends.

        Raises:
            ConfigError: If a number is out of range.
        """
        core = self._core
        return np.frombuffer(core.positions(unsigned(first, "first"), unsigned(count, "count")), dtype="<u8")

    def records(self, first: int, count: int) -> npt.NDArray[np.uint64]:
        """Record numbers of the same draws, for `SampleStream.fetch_records`.

        Args:
            first: As in `positions`.
            count: As in `positions`.

        Raises:
            ConfigError: If a number is out of range.
        """
        core = self._core
        return np.frombuffer(core.records(unsigned(first, "first"), unsigned(count, "count")), dtype="<u8")

    def stream(self) -> SampleStream:
        """The stream that the window is of, with the table of when its ticket was made."""
        from dataset_rt.stream import SampleStream

        return SampleStream._over(self._core.stream())

    def iter_samples(self) -> SampleIterator:
        """Read this rank's draws ahead of their use, by the runtime's threads.

        Returns:
            An iterator as that of a dataset, except that it advances nothing.
        """
        return self._core.samples()

    def iter_batches(self) -> BatchIterator:
        """Read this rank's batches ahead of their use, by the runtime's threads.

        Returns:
            An iterator as that of `CachedDataset.iter_batches`, except that it
            advances nothing.
        """
        return self._core.record_batches()

    def advance(self) -> None:
        """Note that one more batch was consumed.

        Raises:
            ConfigError: If none was left.
        """
        self._core.advance()

    def advancing(self) -> Iterator[None]:
        """Advance with each `next`, as `advance` does, and in native code alone.

        Python runs no signal's handler inside a step of a `for` over it, so that a caller
        can hand a batch out and count it without an exception coming between.

        Raises:
            ConfigError: By `next`, if no batch was left.
        """
        return iter(self._core.advance, _NEVER)

    def finish(self) -> None:
        """Note that this rank is at the end, as an iterator does that raises StopIteration."""
        self._core.finish()

    def state_dict(self, *, batches: int | None = None) -> dict[str, Any]:
        """What another process needs to go on behind a number of batches.

        Args:
            batches: How many batches of this window were consumed, for callers that
                count themselves. None: what `advance` and `finish` have noted.

        Raises:
            ConfigError: If `batches` is out of range.
        """
        return self._core.state_dict(None if batches is None else unsigned(batches, "batches"))


def ticket_of(
    core: CoreDataset,
    batch_size: object,
    drop_last: object,
    rank: object,
    world_size: object,
    remainder: object,
) -> WindowTicket:
    """Make a ticket from what a user gave.

    Raises:
        ConfigError: If an argument is out of range.
    """
    if not isinstance(drop_last, bool):
        raise ConfigError(f"drop_last must be True or False, got {drop_last!r}")
    world = _world(rank, world_size, remainder)
    return WindowTicket._over(core.ticket(positive(batch_size, "batch_size"), drop_last, world))


def _world(rank: object, world_size: object, remainder: object) -> tuple[int, int, str] | None:
    """Check the arguments that name a rank; None where they name none.

    Raises:
        ConfigError: If one is of another type, or rank and world size do not come together.
    """
    name = remainder_name(remainder)
    if rank is None and world_size is None:
        if name != "extend":
            raise ConfigError(f"remainder must come with rank and world_size, got {name!r} alone")
        return None
    if rank is None or world_size is None:
        raise ConfigError(f"rank and world_size must be given together, got {rank!r} and {world_size!r}")
    return *rank_of_world(rank, world_size), name


def remainder_name(remainder: object) -> str:
    """Check that the name of a rule is a string; the core knows the names.

    Raises:
        ConfigError: If it is none.
    """
    if not isinstance(remainder, str):
        raise ConfigError(f'remainder must be "extend", "drop" or "uneven", got {remainder!r}')
    return remainder
