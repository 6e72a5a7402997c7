"""The display of a running write: samples/s, MB/s, sources done and time left."""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType
from typing import Any

from typing_extensions import Self

__all__ = ["WriteProgress"]

_COUNTED = "{desc}: {percentage:3.0f}%|{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}, {rate_noinv_fmt}{postfix}]"
_UNCOUNTED = "{desc}: {n_fmt} samples [{elapsed}, {rate_noinv_fmt}{postfix}]"
_WAITING = "{desc} [{elapsed}]"
_MEGABYTE = 1_000_000

_bar_kind: Any = None


def _bar_class() -> Any:
    """Our own subclass of the bar that fits the place: terminal, notebook or log.

    tqdm is imported here, at the first display.
    """
    global _bar_kind
    if _bar_kind is not None:
        return _bar_kind

    from tqdm.auto import tqdm

    base: Any = tqdm

    class Bar(base):  # type: ignore[misc]  # tqdm has no annotations
        """A bar that also counts payload bytes."""

        # tqdm starts a thread that wakes sleeping bars; none of ours sleeps, and a
        # thread that nobody asked for breaks programs that fork.
        monitor_interval = 0
        # tqdm's own lock makes a semaphore between processes, which a source that
        # starts worker processes would see. One process writes to this display.
        _lock = threading.RLock()

        def __init__(self, *, sources_done: str, waits: bool, **options: Any) -> None:
            # Set first: tqdm's constructor draws the first line.
            self.payload_bytes = 0
            self.sources_done = sources_done
            self.waits = waits
            super().__init__(**options)

        @property
        def format_dict(self) -> Any:
            """What a line is made of; computed when a line is drawn, not per sample."""
            values = super().format_dict
            if self.waits:
                values["bar_format"] = _WAITING
                return values
            total, count, rate = values["total"], values["n"], values["rate"]
            if rate is None and values["elapsed"]:
                rate = count / values["elapsed"]
            bytes_a_second = self.payload_bytes / count * (rate or 0.0) if count else 0.0
            values["postfix"] = f"{bytes_a_second / _MEGABYTE:.2f} MB/s, {self.sources_done}"
            # A source whose `__len__` promised too little goes on without a time left.
            counted = total is not None and count <= total
            values["bar_format"] = _COUNTED if counted else _UNCOUNTED
            return values

    _bar_kind = Bar
    return Bar


def _shape() -> dict[str, Any]:
    """How wide a line may be: as the terminal is at each moment, if it knows."""
    try:
        columns, rows = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError, AttributeError):
        # No terminal, or a notebook's stand-in without a file; tqdm knows its width.
        return {"dynamic_ncols": True}
    if columns and rows:
        return {"dynamic_ncols": True}
    # Terminals that containers and `script` make may say 0 by 0, where tqdm shows nothing.
    return {"ncols": 80, "nrows": 24}


class WriteProgress:
    """Shows how writing goes, one line for each source, on standard error.

    It shows nothing where nobody looks: when standard error is no terminal (a
    notebook's cell counts as one). It starts no thread. Use it as a context
    manager: leaving it closes the line of a source that failed.

    Args:
        sources: How many sources there are.
        enabled: Whether to show anything. If not, tqdm is not even imported.
    """

    def __init__(self, sources: int, *, enabled: bool) -> None:
        self._sources = sources
        # Without a standard error (a windowed program has None) nobody looks.
        self._enabled = enabled and sys.stderr is not None
        self._done = 0
        self._bar: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the line that is open, if one is."""
        self._close()

    def start(self, source_name: str, total: int | None) -> None:
        """Begin the line of a source.

        Args:
            source_name: Name of the source.
            total: How many samples it will yield, if it says so; otherwise no time
                left is shown.
        """
        self._open(source_name, total)

    def update(self, samples: int, payload_bytes: int) -> None:
        """Count what was taken since the last call; draws at most ten times a second.

        Args:
            samples: How many samples more.
            payload_bytes: How many bytes more their payloads have.
        """
        if self._bar is not None:
            self._bar.payload_bytes += payload_bytes
            self._bar.update(samples)

    def waiting(self, source_name: str, holder: str) -> None:
        """Say that another process is writing this source's cache; call it at each poll.

        Args:
            source_name: Name of the source.
            holder: Who holds the lock, as a noun: "process 4711".
        """
        if not self._enabled:
            return
        text = f"{source_name}: waiting for {holder}"
        if self._bar is None or not self._bar.waits:
            self._open(text, None, waits=True)
        elif self._bar.desc != text:
            self._bar.set_description_str(text)
        else:
            self._bar.update(0)

    def finish(self) -> None:
        """Count a source as done and close its line (a source may be done without one)."""
        self._done += 1
        if self._bar is not None:
            self._bar.sources_done = self._sources_done()
            self._close()

    def _sources_done(self) -> str:
        return f"{self._done}/{self._sources} sources done"

    def _open(self, text: str, total: int | None, *, waits: bool = False) -> None:
        self._close()
        if not self._enabled:
            return
        bar = _bar_class()
        # `disable=None` is tqdm's own test for a terminal, which knows notebooks. The
        # fixed `miniters` makes every update look at the clock: tqdm's adaptive one
        # relies on the thread that is switched off. A line that waits is only drawn
        # by updates of 0, and gone when the wait is over.
        self._bar = bar(
            sources_done=self._sources_done(),
            waits=waits,
            desc=text,
            total=total,
            unit=" samples",
            miniters=0 if waits else 1,
            disable=None,
            leave=not waits,
            **_shape(),
        )
        if self._bar.disable:
            # Nobody looks, and nobody will: spare the later calls the question.
            self._bar, self._enabled = None, False

    def _close(self) -> None:
        if self._bar is not None:
            bar, self._bar = self._bar, None
            bar.close()
