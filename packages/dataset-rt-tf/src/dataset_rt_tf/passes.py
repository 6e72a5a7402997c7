"""Which window each pass over a tf.data pipeline delivers."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import dataset_rt as drt
from dataset_rt import StreamCursor, Window
from dataset_rt_tf.cut import Cut
from dataset_rt_tf.tokens import Tokens

__all__ = ["KEPT_PASSES", "Passes"]

# Passes that can still be asked for: those of iterators that run side by side, and those that a prefetch behind
# `repeat` has begun ahead of the consumer. A checkpoint names them all, and stays far below 8 KiB.
KEPT_PASSES = 256

# Windows that are held ready; older ones are made again from their states. A window may hold a shuffled pass.
_KEPT_WINDOWS = 8


class Passes:
    """The windows of a pipeline's passes, found by the token that a pass carries through checkpoints.

    tf.data begins passes whenever it likes: ahead of the consumer, side by side, and once more when an iterator is
    restored. So a window belongs to a token, not to the order of calls. Safe to use from any thread.

    Args:
        source: Where windows are reserved.
        cut: How they are cut.
        length: How many batches the pipeline lets through in a pass; None if all.
        tokens: The pipeline's own tokens; None where nothing can be restored into it.
    """

    def __init__(
        self,
        source: drt.CachedDataset | StreamCursor,
        cut: Cut,
        *,
        length: int | None,
        tokens: Tokens | None,
    ) -> None:
        self.source = source
        self.cut = cut
        self._length = length
        self.epoch_len = source.epoch_len
        self._tokens = tokens
        self._lock = threading.Lock()
        # The state at the beginning of each pass's window, in the order in which the passes were begun.
        self._states: OrderedDict[int, dict[str, Any]] = OrderedDict()
        self._windows: OrderedDict[int, Window] = OrderedDict()
        self._forgotten = 0
        # How many batches each pass has since this was made or restored, the forgotten ones too.
        self._lengths: list[int] = []
        # Tokens of this pipeline whose states were dropped, in that order.
        self._dropped: dict[int, None] = {}
        self._restored: set[int] = set()
        self._was_restored = False
        # Whether the runs that were restored had forgotten passes.
        self._lost = False
        self._followed = -1

    def begin(self, token: int) -> int:
        """Begin a pass, or go on in one that was restored.

        Returns:
            The number of its batches.

        Raises:
            StateMismatchError: If the iterator was restored without the passes' own state, or in a pass that had been
                forgotten when it was saved.
            ConfigError: If the dataset's epoch length has changed, or the stream is at its end.
        """
        with self._lock:
            if token in self._states:
                window = self._window(token)
                self._check_length(window)
                if token in self._restored:
                    self._follow(window)
                return window.num_batches
            self._check_own(token)
            if self.source.epoch_len != self.epoch_len:
                raise drt.ConfigError(
                    f"the epoch length must stay {self.epoch_len}, with which the tf.data.Dataset was made, got "
                    f"{self.source.epoch_len}; call set_epoch_len({self.epoch_len}) or make another tf.data.Dataset"
                )
            ticket = self.cut.ticket(self.source)
            # Looked at before it is reserved, so that what is refused is not skipped.
            self._check_length(self.cut.rewind(self.source.stream(), ticket.state_dict()))
            window = ticket.reserve()
            self._remember(token, window.state_dict(batches=0), window)
            return window.num_batches

    def window(self, token: int) -> Window:
        """The window of a pass that was begun.

        Raises:
            StateMismatchError: If the dataset has another table by now, and the window is of an old one.
        """
        with self._lock:
            return self._window(token)

    def state_dict(self, *, batches: int, passes: int | None) -> dict[str, Any]:
        """The state after `batches` batches of pass number `passes`, or of the newest one."""
        with self._lock:
            begun = self._forgotten + len(self._states)
            number = max(begun - 1, 0) if passes is None else passes
            if number == begun and batches == 0:
                # Not begun: a prefetch may be ahead or not, and the caller need not know.
                return self.cut.ticket(self.source).state_dict()
            if not self._forgotten <= number < begun:
                raise drt.ConfigError(
                    f"passes must be in [{self._forgotten}, {begun}], the passes that were begun and are remembered, "
                    f"got {number}"
                )
            window = self._window(list(self._states)[number - self._forgotten])
            if batches > window.num_batches:
                raise drt.ConfigError(
                    f"batches must be in [0, {window.num_batches}], the length of pass {number}, got {batches}"
                )
            return window.state_dict(batches=batches)

    def states(self) -> list[tuple[int, dict[str, Any]]]:
        """Tokens and the states at their windows' beginnings, oldest first."""
        with self._lock:
            return list(self._states.items())

    def memory(self) -> dict[str, int]:
        """What tells restored tokens from new ones: whose they are, how many were taken, and how many dropped."""
        if self._tokens is None:
            return {"tokens": -1, "taken": 0, "dropped": 0, "lost": 0}
        with self._lock:
            return {
                "tokens": self._tokens.seed,
                "taken": self._tokens.taken,
                "dropped": len(self._dropped),
                "lost": int(self._lost or bool(self._dropped)),
            }

    def lengths(self) -> list[int]:
        """How many batches each pass has that was begun since this was made or restored."""
        with self._lock:
            return list(self._lengths)

    def restore(
        self, states: list[tuple[int, dict[str, Any]]], before: dict[str, Any], memory: Mapping[str, int]
    ) -> None:
        """Take over the passes of a saved run and move the dataset behind them.

        Args:
            states: What `states` gave there.
            before: Where the dataset stood there, for a run that had begun no pass.
            memory: What `memory` gave there.

        Raises:
            StateMismatchError: If they belong to another population, seed, mode or version.
        """
        with self._lock:
            self.source.load_state_dict(states[-1][1] if states else before)
            self._states = OrderedDict(states)
            self._windows.clear()
            self._forgotten = 0
            # The lengths of restored passes are asked for by nobody: training counts those that it begins.
            self._lengths = [0] * len(states)
            self._restored = set(self._states)
            self._was_restored = True
            if self._tokens is not None:
                # The run goes back to where it was saved; what another one dropped is foreign here anyway.
                kept = memory["dropped"] if memory["tokens"] == self._tokens.seed else 0
                self._dropped = dict.fromkeys(list(self._dropped)[:kept])
                self._lost = bool(memory["lost"])
                self._tokens.rewind(memory["taken"])
            self._followed = -1
            if states:
                self._move_behind(self._window(states[-1][0]))

    def _check_own(self, token: int) -> None:
        """Refuse a restored pass whose window nobody knows: a fresh one would skip and repeat draws."""
        if self._tokens is None or (token not in self._dropped and self._tokens.is_own(token)):
            return
        if self._was_restored and not self._lost and token not in self._dropped:
            # An iterator that was saved before its first batch: the saved run had forgotten no pass.
            return
        if not self._was_restored:
            raise drt.StateMismatchError(
                "the iterator was restored without its StreamState, so nobody knows its window; pass state= to "
                "as_dataset and put that StreamState into the tf.train.Checkpoint beside the iterator",
                field="state",
                expected="a StreamState in the checkpoint",
                found="none",
            )
        raise drt.StateMismatchError(
            f"the iterator was restored in a pass that is not among the newest {KEPT_PASSES}, which a StreamState "
            "keeps, so nobody knows its window; save both in one checkpoint, and where a prefetch behind repeat() is "
            f"more than {KEPT_PASSES} passes ahead make it shorter, or the epochs longer",
            field="state",
            expected=f"one of the newest {KEPT_PASSES} passes",
            found="an older or a foreign one",
        )

    def _check_length(self, window: Window) -> None:
        if self._length is not None and window.num_batches > self._length:
            raise drt.ConfigError(
                f"a pass must have at most {self._length} batches, which is how long the tf.data.Dataset says it is, "
                f"got {window.num_batches}: the rest of a window that was begun with a larger epoch length; load the "
                "state into the dataset before the tf.data.Dataset is made"
            )

    def _follow(self, window: Window) -> None:
        """Let the next pass begin where a restored one ends.

        The saved run may have begun passes that its consumer had not reached; nobody restores them, so their windows
        are still to come.
        """
        if window.end > self._followed:
            self._followed = window.end
            self._move_behind(window)

    def _move_behind(self, window: Window) -> None:
        # Not the state behind all of its batches: another rank may have more of them.
        window.finish()
        self.source.load_state_dict(window.state_dict())

    def _remember(self, token: int, state: dict[str, Any], window: Window) -> None:
        self._states[token] = state
        self._lengths.append(window.num_batches)
        self._keep(token, window)
        # What was restored is followed no more once the stream has gone on from it.
        self._restored.clear()
        while len(self._states) > KEPT_PASSES:
            dropped, _ = self._states.popitem(last=False)
            self._dropped[dropped] = None
            self._forgotten += 1

    def _window(self, token: int) -> Window:
        window = self._windows.get(token)
        if window is None:
            window = self.cut.rewind(self.source.stream(), self._states[token])
            self._keep(token, window)
        return window

    def _keep(self, token: int, window: Window) -> None:
        self._windows[token] = window
        while len(self._windows) > _KEPT_WINDOWS:
            self._windows.popitem(last=False)
