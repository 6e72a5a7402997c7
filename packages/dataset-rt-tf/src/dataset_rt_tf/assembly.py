"""From the flat arrays of a read to the structure of tensors that the user sees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from dataset_rt_tf.signature import Leaf, Signature

__all__ = ["Leading", "assemble", "flat_specs"]

# The dimensions before a sample's own: none for a single one, (size or None,) for a batch, and for several batches of
# tensors of fixed shapes (None, size or None).
Leading = tuple[int | None, ...]


def flat_specs(signature: Signature, leading: Leading) -> tuple[tf.TensorSpec, ...]:
    """All arrays that carry batches or a sample: of each leaf the values, then its row splits, outermost first."""
    specs = []
    for leaf in signature.leaves:
        shape = (None, *leaf.shape[leaf.splits :]) if leaf.splits else (*leading, *leaf.shape)
        specs.append(tf.TensorSpec(shape, leaf.dtype))
        specs.extend([tf.TensorSpec((None,), tf.int64)] * _splits(leaf, leading))
    return tuple(specs)


def assemble(signature: Signature, flat: Sequence[tf.Tensor], leading: Leading) -> Any:
    """Set the static shapes, build ragged tensors, and put all into the structure."""
    for tensor, spec in zip(flat, flat_specs(signature, leading), strict=True):
        tensor.set_shape(spec.shape)
    tensors = iter(flat)
    packed = []
    for leaf in signature.leaves:
        values = next(tensors)
        splits = [next(tensors) for _ in range(_splits(leaf, leading))]
        if splits and leading and leading[0] is not None:
            splits[0].set_shape((leading[0] + 1,))
        packed.append(tf.RaggedTensor.from_nested_row_splits(values, splits, validate=False) if splits else values)
    return signature.pack(packed)


def _splits(leaf: Leaf, leading: Leading) -> int:
    return leaf.splits if leading else max(leaf.splits - 1, 0)
