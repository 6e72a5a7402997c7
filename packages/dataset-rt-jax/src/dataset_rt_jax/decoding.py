"""From samples and record batches to what the user trains on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import dataset_rt as drt
from dataset_rt import CachedSample, ConfigError
from dataset_rt_jax.decoded_window import DecodedWindow

__all__ = ["Decode", "DecodeBatch", "Decoder", "stack"]

Decode = Callable[[CachedSample], Any]
DecodeBatch = Callable[[pa.RecordBatch], Any]


@dataclass(frozen=True)
class Decoder:
    """What becomes of samples: `decode` sees one, `decode_batch` a whole record batch, at most one of them is given.

    It holds no state of its own, so it is as picklable and as safe in threads as the two functions are.

    Raises:
        ConfigError: If both are given, or what is given cannot be called.
    """

    decode: Decode | None = None
    decode_batch: DecodeBatch | None = None

    def __post_init__(self) -> None:
        for name in ("decode", "decode_batch"):
            function = getattr(self, name)
            if function is not None and not callable(function):
                raise ConfigError(f"{name} must be a function, got {function!r}")
        if self.decode is not None and self.decode_batch is not None:
            raise ConfigError("decode and decode_batch must not both be given: one sees a sample, the other a batch")

    @property
    def gives_new_arrays(self) -> bool:
        """Whether every result surely has memory of its own; a user's `decode_batch` may refill one buffer."""
        return self.decode_batch is None or isinstance(self.decode_batch, drt.ArrayDecoder)

    def sample(self, sample: CachedSample) -> Any:
        """Decode one sample.

        Raises:
            ConfigError: If `decode` gave None or raised StopIteration.
        """
        return sample if self.decode is None else _call(self.decode, sample, "decode")

    def samples(self, samples: list[CachedSample]) -> Any:
        """Decode the samples of a batch one by one.

        Returns:
            What `decode` gives, stacked leaf by leaf; without it the samples.

        Raises:
            ConfigError: If `decode` gave None or raised StopIteration, or what it gave cannot be stacked.
        """
        return samples if self.decode is None else stack([self.sample(sample) for sample in samples])

    def record_batch(self, batch: pa.RecordBatch) -> Any:
        """Decode a record batch by `decode_batch`, which must be given.

        Raises:
            ConfigError: If it is not, or it gave None or raised StopIteration.
        """
        if self.decode_batch is None:
            raise ConfigError("decode_batch must be given to decode a record batch")
        return _call(self.decode_batch, batch, "decode_batch")

    def batch(self, stream: drt.SampleStream, positions: Sequence[int] | npt.NDArray[np.uint64]) -> Any:
        """Read the draws of a batch in one call and decode them.

        Returns:
            What `decode_batch` gives; else what `decode` gives, stacked leaf by leaf; without either a list of
            `CachedSample`.

        Raises:
            ConfigError: If a function gave None or raised StopIteration, or what `decode` gave cannot be stacked.
        """
        if self.decode_batch is not None:
            return self.record_batch(stream.fetch_batch(positions))
        return self.samples(stream.fetch(positions))

    def window(self, window: drt.Window) -> DecodedWindow:
        """Decode the batches of a window one after another; the core's threads read ahead of what is asked for."""
        return DecodedWindow(self, window)


def stack(elements: Sequence[Any]) -> Any:
    """Put elements of one structure together, each leaf along a new first axis.

    Arrays and numbers become NumPy arrays. Integers stay exact: those beyond int64, as `cache_id` may be, make uint64.
    Text and bytes become arrays of objects, because NumPy's own byte strings lose NULs at their end.

    Raises:
        ConfigError: If structures or shapes differ, or integers need more than 64 bits.
    """
    try:
        return jax.tree.map(_stack_leaves, *elements)
    except (OverflowError, TypeError, ValueError) as error:
        raise ConfigError(
            f"decode must give elements of one structure and shape for a batch of {len(elements)}: {error}"
        ) from error


def _stack_leaves(*leaves: Any) -> npt.NDArray[Any]:
    if all(isinstance(leaf, (str, bytes)) for leaf in leaves):
        texts = np.empty(len(leaves), dtype=object)
        texts[:] = leaves
        return texts
    if all(isinstance(leaf, int) and not isinstance(leaf, bool) for leaf in leaves):
        # Of integers below and above 2^63 NumPy would make floats, and ids would lose their last digits.
        return np.array(leaves, dtype=np.int64 if max(leaves) < 2**63 else np.uint64)
    arrays = [np.asarray(leaf) for leaf in leaves]
    for leaf, array in zip(leaves, arrays, strict=True):
        # JAX takes whatever stands where the first element has a leaf: None, or a dict.
        if array.dtype.hasobject or isinstance(leaf, (str, bytes)):
            raise TypeError(f"numbers, arrays, text or bytes expected beside {leaves[0]!r}, got {leaf!r}")
    return np.stack(arrays)


def _call(function: Callable[[Any], Any], argument: Any, name: str) -> Any:
    try:
        decoded = function(argument)
    except StopIteration as error:
        # Whoever iterates would take it for the end of the data.
        raise ConfigError(
            f"{name} must not raise StopIteration, which would end the epoch early; give next() a default there, or "
            "catch it"
        ) from error
    if decoded is None:
        raise ConfigError(
            f"{name} must not return None: Grain leaves such elements out, and the order would have holes; "
            "remove rows by update_metadata instead"
        )
    return decoded
