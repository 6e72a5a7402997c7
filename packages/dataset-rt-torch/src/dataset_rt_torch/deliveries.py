"""One iteration of a loader: what was handed out, and what comes behind an interruption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dataset_rt import ConfigError, DatasetRTError, Window

if TYPE_CHECKING:
    from dataset_rt_torch.loader import StreamDataLoader

__all__ = ["Deliveries"]


class Deliveries(Iterator[Any]):
    """One iteration of a loader; it counts what it hands out.

    Torch's iterations lose a batch where an exception comes out of them, Ctrl-C too, or
    take it for their end. After one this goes on as a new process would, with another
    iteration of torch's behind what was handed out.
    """

    def __init__(self, loader: StreamDataLoader) -> None:
        self._loader = loader
        self._ticket = loader._plan.ticket()
        self._is_begun = False
        self._window: Window | None = None
        self._batches: Iterator[Any] | None = None
        self._left = 0
        self._counted: Iterator[None] = iter(())
        self._token = object()
        self._is_started = False

    def __iter__(self) -> Deliveries:
        return self

    def __len__(self) -> int:
        """The number of batches of this iteration."""
        return self._ticket.num_batches if self._window is None else self._window.num_batches

    def __next__(self) -> Any:
        window = self._reserved()
        loader = self._loader
        if self._is_started and loader.persistent_workers and loader._serves is not self._token:
            raise ConfigError(
                "an iterator must not go on once its loader's persistent workers serve a newer one; finish one before "
                "the next, or use persistent_workers=False"
            )
        # Put back only when torch has done its part: no exception, not even one on the way out of another, can leave an
        # iteration there that lost a batch.
        batches, self._batches = self._batches, None
        if batches is None:
            batches = self._start(window)
        loader._is_disturbed = True
        try:
            batch = next(batches)
        except StopIteration as error:
            if self._left:
                raise RuntimeError(
                    f"an iteration must have {window.num_batches} batches, got its end with {self._left} of them left; "
                    "look for what raises StopIteration in the functions that the loader was given"
                ) from error
            loader._is_disturbed = False
            window.finish()
            raise
        # From here to the return Python runs no handler of a signal, since it does so only behind calls and jumps back:
        # a batch is counted if it is handed out, and only then.
        loader._is_disturbed = False
        self._batches = batches
        self._left -= 1
        for _ in self._counted:
            break
        return batch

    def _reserved(self) -> Window:
        """The window, reserved by the first call."""
        if self._window is not None:
            return self._window
        if self._is_begun:
            raise ConfigError(
                "an iterator must not go on that was interrupted before it had its window, got next(); give the "
                "loader's state_dict() to its load_state_dict(), and make a new iterator"
            )
        self._is_begun = True
        try:
            window = self._ticket.reserve()
        except DatasetRTError:
            self._is_begun = False
            raise
        self._left = window.num_batches
        self._counted = window.advancing()
        self._window = window
        return window

    def _start(self, window: Window) -> Iterator[Any]:
        """Start torch's iteration over what is left of the window."""
        if self._is_started and not self._left:
            return iter(())
        self._is_started = True
        self._loader._serves = self._token
        return self._loader._begin(window if self._left == window.num_batches else _rest(window))

    def state_dict(self) -> dict[str, Any]:
        """What another process needs to go on behind the batches that this iteration delivered."""
        return self._ticket.state_dict() if self._window is None else self._window.state_dict()


def _rest(window: Window) -> Window:
    """What is left of a window, as a process gets it that loads its state."""
    rank, world_size, remainder = window.world
    cursor = window.stream().cursor()
    cursor.load_state_dict(window.state_dict())
    ticket = cursor.ticket(
        window.batch_size, drop_last=window.drop_last, rank=rank, world_size=world_size, remainder=remainder
    )
    return ticket.reserve()
