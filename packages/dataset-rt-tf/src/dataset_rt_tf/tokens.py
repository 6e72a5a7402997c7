"""Numbers that name passes, and travel in a pipeline's checkpoints."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import tensorflow as tf

__all__ = ["Tokens", "token_number"]

# How many iterators may have been made and never used before one is used.
_UNUSED = 1_000

# How many tokens are computed at once.
_TOGETHER = 256


class Tokens:
    """One new token, two numbers of 32 bits, for each pass over a pipeline.

    A symbolic checkpoint stores positions alone, and each pass of `repeat` makes a new iterator of all that lies below
    it. What it does store is the seeds of random datasets, of which one can take new seeds for each iterator: so a pass
    is named by random numbers, and a restored pass has its name again. The numbers choose nothing, and differ from
    pipeline to pipeline, which tells a token of one's own from a restored one.

    Attributes:
        seed: Names this object, in the process and beyond it.
    """

    def __init__(self) -> None:
        self.seed = secrets.randbits(31)
        # The same seed makes the same tokens, pass for pass, if TensorFlow's global seed is the same, too: so this is
        # made at once. Each iterator of it goes on behind the last. None is kept: it would have threads, and TensorFlow
        # keeps the functions of a pipeline, and with them this object, until the process ends.
        self._same = self.passes(lambda token: token).repeat().take(_TOGETHER)
        self._tokens: list[int] = []
        self._lock = threading.Lock()
        self._taken_before = 0
        self._begin()

    def passes(self, delivered: Callable[[tf.data.Dataset], tf.data.Dataset]) -> tf.data.Dataset:
        """A dataset each pass over which has a token.

        The token is made in two steps. The seeds of the outer dataset are stored before anything is read, but what
        joins datasets, such as `zip` and `concatenate`, stores them as they were before it was restored. Those of the
        inner one are stored rightly there, but do not exist before something is read.

        Args:
            delivered: From a dataset of one element, the token, int64, to what a pass delivers.
        """

        def named(pair: tf.Tensor) -> tf.data.Dataset:
            # By the operation itself: `Dataset.random` takes no tensor as a seed where the global seed is 0.
            inner = tf.raw_ops.RandomDataset(seed=pair[0], seed2=pair[1], output_types=[tf.int64], output_shapes=[()])
            return delivered(_one_pair(tf.data.experimental.from_variant(inner, tf.TensorSpec((), tf.int64))))

        outer = tf.data.Dataset.random(seed=self.seed, rerandomize_each_iteration=True)
        return _one_pair(outer).flat_map(tf.autograph.experimental.do_not_convert(named))

    @property
    def taken(self) -> int:
        """How many tokens may have been taken so far, in the runs that were restored too."""
        with self._lock:
            return max(self._taken_before, self._drawn)

    def is_own(self, token: int) -> bool:
        """Whether an iterator of this pipeline took the token; asked once for each."""
        with self._lock:
            while token not in self._unused and len(self._unused) <= _UNUSED + self._taken_before:
                self._unused.add(self._next())
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

    def _next(self) -> int:
        if self._drawn == len(self._tokens):
            self._tokens.extend(token_number(token) for token in self._same.as_numpy_iterator())
        self._drawn += 1
        return self._tokens[self._drawn - 1]


def token_number(token: npt.NDArray[np.int64]) -> int:
    """One integer in [0, 2**64) of a token's two numbers."""
    return (int(token[0]) << 32) | int(token[1])


def _one_pair(numbers: tf.data.Dataset) -> tf.data.Dataset:
    return numbers.batch(2, drop_remainder=True).take(1)
