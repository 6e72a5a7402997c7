"""Recording the order in which a training loop received its samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dataset_rt._core import CachedSample, OrderHasher
from dataset_rt.errors import ConfigError

__all__ = ["OrderRecorder"]


class OrderRecorder:
    """Hashes the identities of samples as a loop receives them, and keeps none.

    After a run from position `start` on, `digest()` equals
    `stream.order_digest(start, recorder.draws)`; on rank r of W it equals
    `stream.order_digest(start + r, recorder.draws, step=W)`. Anything lost, doubled or
    swapped on the way makes them differ.
    """

    def __init__(self) -> None:
        self._hasher = OrderHasher()
        self._draws = 0

    def __repr__(self) -> str:
        return f"OrderRecorder(draws={self._draws}, digest={self.digest()!r})"

    @property
    def draws(self) -> int:
        """How many samples were recorded."""
        return self._draws

    def digest(self) -> str:
        """BLAKE3 of everything recorded so far, 64 hexadecimal digits."""
        return self._hasher.hexdigest()

    def record(self, cache_ids: Any, sample_ids: Any) -> None:
        """Record a batch.

        Args:
            cache_ids: The batch's `cache_id`, shape `[batch]` or a single number:
                anything that NumPy makes an integer array of, tensors included.
            sample_ids: Its `sample_id`, of the same shape.

        Raises:
            ConfigError: If they are no integers of at least 0, or differ in shape.
        """
        caches, samples = _identifiers(cache_ids, "cache_ids"), _identifiers(sample_ids, "sample_ids")
        if caches.shape != samples.shape:
            raise ConfigError(
                f"cache_ids and sample_ids must name the same samples, got shapes {caches.shape} and {samples.shape}"
            )
        self._hasher.add(caches.tobytes(), samples.tobytes())
        self._draws += caches.size

    def record_samples(self, samples: Iterable[CachedSample]) -> None:
        """Record samples as the core delivers them.

        Args:
            samples: In the order of their coming.
        """
        pairs = [(sample.cache_id, sample.sample_id) for sample in samples]
        self.record([cache_id for cache_id, _ in pairs], [sample_id for _, sample_id in pairs])


def _identifiers(values: Any, name: str) -> np.ndarray[Any, np.dtype[np.uint64]]:
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(array.shape, dtype="<u8")
    if array.dtype.kind not in "iu" or (array.dtype.kind == "i" and array.min() < 0):
        raise ConfigError(
            f"{name} must be integers of at least 0, got {array.dtype} values; record the ids as the loader gives "
            "them, before any conversion to floating point"
        )
    if array.dtype.itemsize < 8:
        raise ConfigError(
            f"{name} must be 64-bit integers, got {array.dtype}, which cannot hold every id; "
            "keep ids in NumPy where a framework shortens them"
        )
    return array.astype("<u8")
