"""Numbers that name passes, and travel in a pipeline's checkpoints."""

from __future__ import annotations

import secrets
import threading

import numpy as np
import numpy.typing as npt
import tensorflow as tf

__all__ = ["Tokens", "token_number"]

# How many iterators may have been made and never used before one is used.
_UNUSED = 1_000


class Tokens:
    """One new token for each pass over `dataset`.

    A symbolic checkpoint stores positions alone, and each pass of `repeat` makes a new iterator of all that lies below
    it. What it does store is the seeds of a random dataset that takes new ones for each iterator: so a pass is named by
    its first random numbers, and a restored pass has its name again. The numbers choose nothing, and differ from
    pipeline to pipeline, which tells a token of one's own from a restored one.

    Attributes:
        seed: Names this object, in the process and beyond it.
        dataset: A tf.data.Dataset of one element, the token: two numbers of 32 bits, int64.
    """

    def __init__(self) -> None:
        self.seed = secrets.randbits(31)
        self.dataset = _one_a_pass(self.seed)
        self._lock = threading.Lock()
        self._taken_before = 0
        self._begin()

    @property
    def taken(self) -> int:
        """How many tokens may have been taken so far, in the runs that were restored too."""
        with self._lock:
            return max(self._taken_before, self._drawn)

    def is_own(self, token: int) -> bool:
        """Whether an iterator of this pipeline took the token; asked once for each."""
        with self._lock:
            while token not in self._unused and len(self._unused) <= _UNUSED + self._taken_before:
                self._unused.add(token_number(next(self._same)))
                self._drawn += 1
            if token not in self._unused:
                return False
            self._unused.remove(token)
            return True

    def rewind(self, taken: int) -> None:
        """Expect all tokens once more: a restored iterator goes on with the number that it had come to.

        Args:
            taken: What `taken` was when it was saved.
        """
        with self._lock:
            self._taken_before = max(self._taken_before, self._drawn, taken)
            self._begin()

    def _begin(self) -> None:
        self._drawn = 0
        self._unused: set[int] = set()
        # The same seed makes the same tokens, pass for pass.
        self._same = _one_a_pass(self.seed).repeat().as_numpy_iterator()


def token_number(token: npt.NDArray[np.int64]) -> int:
    """One integer in [0, 2**64) of a token's two numbers."""
    return (int(token[0]) << 32) | int(token[1])


def _one_a_pass(seed: int) -> tf.data.Dataset:
    random = tf.data.Dataset.random(seed=seed, rerandomize_each_iteration=True)
    return random.batch(2, drop_remainder=True).take(1)
