"""Saying how many elements a tf.data.Dataset has."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

__all__ = ["with_cardinality"]


def with_cardinality(dataset: tf.data.Dataset, count: int) -> tf.data.Dataset:
    """A dataset of known length, `count`, that may end sooner.

    `assert_cardinality` would fail at the end of the rest of a window that a loaded state goes on with. So the length
    is made known without a check: elements of unknown number, then an endless dataset that holds nothing, of all
    which `count` are taken.
    """

    def never(*_: Any) -> tf.Tensor:
        return tf.constant(value=False)

    nothing = dataset.take(0).filter(tf.autograph.experimental.do_not_convert(never)).repeat()
    return dataset.concatenate(nothing).take(count)
