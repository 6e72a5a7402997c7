"""The batch sampler: it owns the position, and names records to the workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import Sampler

from dataset_rt import CachedDataset, ConfigError, SampleStream, Window, WindowTicket
from dataset_rt_torch.addresses import addresses
from dataset_rt_torch.other_sharding import refuse_other_sharding
from dataset_rt_torch.source import Plan

__all__ = ["StreamBatchSampler"]


class StreamBatchSampler(Sampler[list[int]]):
    """Batches of the stream for a DataLoader over a `StreamDataset`.

    Each iteration is the next window of the dataset, reserved when its first batch is
    asked for. Draws are resolved here, in the process that holds the dataset, so that
    workers see no table: an edit reaches them, persistent ones too, with the next
    window. Rank and world size are looked up at the first `len` or iteration and may not
    change after that.

    Args:
        dataset: A `CachedDataset`, whose position it moves, a rank's view of one, or a
            `stream()`, in which it starts at 0.
        batch_size: Samples a batch, at least 1.
        rank: In [0, world_size). None: what `world()` finds, or the view's.
        world_size: The number of ranks, given together with `rank`.
        remainder: As in `CachedDataset.shard`.
        drop_last: Whether to leave out a last batch that is short.

    Raises:
        ConfigError: If an argument is out of range.
    """

    def __init__(
        self,
        dataset: CachedDataset | SampleStream,
        batch_size: int,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
        drop_last: bool = False,
    ) -> None:
        self.plan = Plan(dataset, batch_size, rank, world_size, remainder, drop_last)
        self._newest: _Batches | None = None

    @property
    def batch_size(self) -> int:
        """Samples a batch."""
        return self.plan.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is short is left out."""
        return self.plan.drop_last

    def __len__(self) -> int:
        """The number of batches of the next iteration, which may be the rest of a loaded window."""
        return self.plan.ticket().num_batches

    def __iter__(self) -> Iterator[list[int]]:
        """Yield the next window's batches as lists of addresses, which a `StreamDataset` reads.

        Returns:
            An iterator with `state_dict` and `load_state_dict`, where torchdata's
            `StatefulDataLoader` looks for them.
        """
        refuse_other_sharding(self.plan.ranks.world()[1])
        return _Batches(self, self.plan.ticket())

    def state_dict(self, *, batches: int | None = None) -> dict[str, Any]:
        """What another process needs to go on in the stream, at any worker count and world size.

        Args:
            batches: How many batches of the newest iteration were consumed. A loader
                with workers asks for batches long before it delivers them, and this is
                how it is told apart. None: those that were handed out.

        Raises:
            ConfigError: If there are not so many.
        """
        if batches is None:
            return self.plan.source.state_dict()
        handed_out = 0 if self._newest is None else self._newest.handed_out
        if not 0 <= batches <= handed_out:
            raise ConfigError(f"batches must be in [0, {handed_out}], the number handed out, got {batches}")
        if self._newest is None or self._newest.window is None:
            return self.plan.source.state_dict()
        return self._newest.window.state_dict(batches=batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where a saved run stood; the next iteration delivers the rest of its window.

        Args:
            state: What `state_dict` of a dataset, a sampler or a loader gave.

        Raises:
            StateMismatchError: If it belongs to another seed, mode, table or version.
            ConfigError: If it is no dict.
        """
        self.plan.source.load_state_dict(state)
        self._newest = None

    def _begun(self, batches: _Batches) -> None:
        self._newest = batches


class _Batches(Iterator[list[int]]):
    """One iteration of a sampler. Loaders make some that they never use, so nothing happens before the first `next`."""

    def __init__(self, sampler: StreamBatchSampler, ticket: WindowTicket) -> None:
        self._sampler = sampler
        self._ticket = ticket
        self.window: Window | None = None
        self.handed_out = 0
        self._is_spent = False

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> list[int]:
        if self._is_spent:
            raise StopIteration
        if self.window is None:
            self.window = self._ticket.reserve()
            self._sampler._begun(self)
        window, number = self.window, self.handed_out
        if number == window.num_batches:
            window.finish()
            raise StopIteration
        batch = addresses(window.records(number * window.batch_size, window.batch_size))
        self.handed_out += 1
        window.advance()
        return batch

    def state_dict(self) -> dict[str, Any]:
        """Where the stream stands behind the batches that were handed out, and whether nothing was left of them."""
        window = self.window
        if window is None:
            return self._ticket.state_dict() | {"is_spent": self._is_spent}
        return window.state_dict(batches=self.handed_out) | {"is_spent": self.handed_out == window.num_batches}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on behind what another iteration handed out; nothing is left of one that was at its end.

        torchdata makes a new iteration by itself when the loader was at its end, too. If this one went on into the next
        window, that window would be lost.
        """
        self._sampler.load_state_dict(state)
        self._ticket = self._sampler.plan.ticket()
        self.window, self.handed_out = None, 0
        self._is_spent = bool(state.get("is_spent", False))
