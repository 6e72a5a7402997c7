"""Whether a forked child can use Polars."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["polars_survived"]

# Threads of Polars' pool and of its executor, by the names that Linux shows. Both are started by the first query.
_POLARS_THREAD = re.compile(r"polars-\d|async-executor")

_running_at_fork = False
_lost = False


def polars_survived() -> bool:
    """Whether Polars works in this process.

    Its threads do not exist in a child that was forked once they had started, and
    whatever needs them there waits for ever. A child that was forked before starts its own.
    """
    return not _lost


def _look() -> None:
    global _running_at_fork
    _running_at_fork = any(_POLARS_THREAD.match(name) for name in _thread_names())


def _thread_names() -> Iterator[str]:
    for thread in Path("/proc/self/task").iterdir():
        # A thread that has ended meanwhile is no matter.
        with contextlib.suppress(OSError):
            yield (thread / "comm").read_text()


def _remember() -> None:
    global _lost
    _lost = _lost or _running_at_fork


os.register_at_fork(before=_look, after_in_child=_remember)
