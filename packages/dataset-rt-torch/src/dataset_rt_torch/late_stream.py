"""A stream that a worker opens at its first read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dataset_rt import SampleStream
from dataset_rt_torch.worker_errors import errors_reach_the_parent

__all__ = ["LateStream"]


class LateStream:
    """Holds a stream; a copy in another process opens the caches when it is first asked.

    What is wrong with a cache is then found by a read, whose errors reach the parent. A
    worker that fails while its dataset is unpickled just ends, and torch cannot say why.
    """

    def __init__(self, stream: SampleStream) -> None:
        self._stream: SampleStream | None = stream
        self._opener: Callable[[], SampleStream] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_stream": None, "_opener": self._opener if self._stream is None else self._stream.opener()}

    def opened(self) -> SampleStream:
        """The stream.

        Raises:
            CacheCorruptError: If the caches cannot be opened again, here or in another
                process; likewise the other errors of opening.
        """
        if self._stream is None:
            assert self._opener is not None
            with errors_reach_the_parent():
                self._stream = self._opener()
        return self._stream
