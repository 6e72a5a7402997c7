"""Whether a process can use Polars, which a fork may have taken from it."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from dataset_rt.errors import ConfigError

__all__ = ["check_polars"]

# Threads of Polars' pool and of its executor, by the names that Linux shows. Both are started by the first query.
_POLARS_THREAD = re.compile(r"polars-\d|async-executor")
_THREADS = Path("/proc/self/task")

_running_at_fork = False
_lost = False


def check_polars(*, is_home: bool) -> None:
    """Refuse to work on tables where that could wait for ever.

    Polars' threads do not exist in a child that was forked once they had started, and
    whatever needs them there never ends. A child that was forked before starts its own;
    as not every system shows threads, tables of inherited caches are refused to it, too.

    Args:
        is_home: Whether this process opened the caches itself.

    Raises:
        ConfigError: In a forked child that inherited the caches or lost Polars' threads.
    """
    if _lost:
        reason = "Polars' threads did not survive the fork"
    elif not is_home:
        reason = "its parent opened the caches, and only the process that did so works on their tables"
    else:
        return
    raise ConfigError(
        f"the metadata table cannot be used in this forked child: {reason}; "
        'use it in the parent, or start the child by "spawn" or "forkserver" and open the caches there'
    )


def _look() -> None:
    global _running_at_fork
    _running_at_fork = any(_POLARS_THREAD.match(name) for name in _thread_names())


def _thread_names() -> Iterator[str]:
    try:
        threads = list(_THREADS.iterdir())
    except OSError:
        # Without /proc nothing is known; an exception here would only be printed, at each fork of the process.
        return
    for thread in threads:
        # A thread that has ended meanwhile is no matter.
        with contextlib.suppress(OSError):
            yield (thread / "comm").read_text()


def _remember() -> None:
    global _lost
    _lost = _lost or _running_at_fork


os.register_at_fork(before=_look, after_in_child=_remember)
