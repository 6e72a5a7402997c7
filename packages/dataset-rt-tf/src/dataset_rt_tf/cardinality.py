"""Saying how many elements a tf.data.Dataset has."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["with_cardinality"]


# More elements than anybody takes: the operations stay those of a known length, for which checkpoints are made.
_ALL = 2**62


def with_cardinality(dataset: tf.data.Dataset, count: int | None) -> tf.data.Dataset:
    """A dataset of known length, `count`, that may end sooner; None leaves the length unknown.

    `assert_cardinality` would fail at the end of the rest of a window that a loaded state goes on with. So the length
    is made known without a check: elements of unknown number, then an endless dataset that holds nothing, of all
    which `count` are taken.
    """

    def never(*_: Any) -> tf.Tensor:
        return tf.constant(value=False)

    nothing = dataset.take(0).filter(tf.autograph.experimental.do_not_convert(never))
    if count is None:
        # Nothing, twice, is of unknown length as well; once would be optimised away.
        return dataset.concatenate(nothing.repeat(2)).take(_ALL)
    return dataset.concatenate(nothing.repeat()).take(count)
