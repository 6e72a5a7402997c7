"""What one sample looks like to TensorFlow, and how decoded samples are held to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

import dataset_rt as drt

__all__ = ["Leaf", "Signature", "infer_signature"]


@dataclass(frozen=True)
class Leaf:
    """One tensor of a sample.

    Attributes:
        name: Where it stands in the structure, such as `['image']`; empty for a sample that is one tensor.
        shape: Shape of one sample's value; None for a length that varies.
        dtype: Its element type.
        splits: How many of a batch's leading dimensions beside the first are ragged; 0 for a dense batch.
    """

    name: str
    shape: tuple[int | None, ...]
    dtype: tf.DType
    splits: int

    @property
    def label(self) -> str:
        """The name as messages show it."""
        return f"output {self.name}" if self.name else "the output"

    @property
    def is_fixed(self) -> bool:
        """Whether every sample's value has the same shape."""
        return None not in self.shape and self.splits == 0


class Signature:
    """A structure of tensor specs, flattened in TensorFlow's order.

    Args:
        structure: Nested dicts and tuples whose leaves are `tf.TensorSpec` or, for values whose batch
            shall be ragged, `tf.RaggedTensorSpec`, each of one sample.

    Raises:
        ConfigError: If a leaf is something else, or has no known rank.
    """

    def __init__(self, structure: Any) -> None:
        self.structure = structure
        self.leaves = [_leaf(name, spec) for name, spec in _named(structure)]
        if not self.leaves:
            raise drt.ConfigError(f"output_signature must hold at least one tf.TensorSpec, got {structure!r}")

    @property
    def is_fixed(self) -> bool:
        """Whether every sample is made of tensors of the same shapes."""
        return all(leaf.is_fixed for leaf in self.leaves)

    def flatten(self, value: Any, origin: str) -> list[Any]:
        """Take a decoded value apart, leaf by leaf.

        Args:
            value: What a decode function returned.
            origin: The function's name, for messages.

        Raises:
            ConfigError: If its structure is another one; it names the key or the place.
        """
        found: list[Any] = []
        _collect(self.structure, value, "", origin, found)
        return found

    def pack(self, tensors: Sequence[Any]) -> Any:
        """Put one tensor for each leaf back into the structure."""
        return tf.nest.pack_sequence_as(self.structure, list(tensors))


def infer_signature(sample: Any, origin: str) -> Signature:
    """Describe a decoded sample.

    Args:
        sample: Nested dicts and tuples of arrays, numbers, strings and bytes.
        origin: Name of the function that made it, for messages.

    Raises:
        ConfigError: If a value has no TensorFlow type.
    """
    return Signature(_structure(sample, lambda name, value: _inferred(name, value, origin), ""))


def _inferred(name: str, value: Any, origin: str) -> tf.TensorSpec:
    try:
        array = np.asarray(value)
        dtype = tf.string if array.dtype.kind in "OSU" else tf.as_dtype(array.dtype)
    except (TypeError, ValueError) as error:
        raise drt.ConfigError(
            f"{origin} returned {_kind(value)} for {Leaf(name, (), tf.string, 0).label}, which has no TensorFlow type "
            f"({error}); return an array, a number, bytes or a string, or give output_signature"
        ) from None
    if array.dtype.kind == "O" and not all(isinstance(item, (bytes, str)) for item in array.reshape(-1)):
        raise drt.ConfigError(
            f"{origin} returned {_kind(value)} for {Leaf(name, (), tf.string, 0).label}, which has no TensorFlow type; "
            "return an array, a number, bytes or a string, or give output_signature"
        )
    return tf.TensorSpec(array.shape, dtype)


def _leaf(name: str, spec: Any) -> Leaf:
    label = Leaf(name, (), tf.string, 0).label
    if not isinstance(spec, (tf.TensorSpec, tf.RaggedTensorSpec)):
        raise drt.ConfigError(
            f"output_signature must hold tf.TensorSpec and tf.RaggedTensorSpec alone, got {_kind(spec)} for {label}"
        )
    if spec.shape.rank is None:
        raise drt.ConfigError(f"output_signature must give the rank of {label}, got a shape of unknown rank")
    splits = 0
    if isinstance(spec, tf.RaggedTensorSpec):
        if spec.shape.rank == 0:
            raise drt.ConfigError(f"a tf.RaggedTensorSpec needs at least one dimension, got none for {label}")
        # A sample's own ragged dimensions, and the one that putting samples together adds.
        splits = spec.ragged_rank + 1
    return Leaf(name, tuple(spec.shape.as_list()), spec.dtype, splits)


def _named(structure: Any) -> list[tuple[str, Any]]:
    """Leaves with their names, in the order of `tf.nest.flatten`: a dict's keys sorted."""
    leaves: list[tuple[str, Any]] = []
    _structure(structure, lambda name, spec: leaves.append((name, spec)), "")
    return leaves


def _structure(value: Any, at_leaf: Callable[[str, Any], Any], name: str) -> Any:
    """Call a function at every leaf, in TensorFlow's order, and keep what surrounds them."""
    if isinstance(value, Mapping):
        done = {key: _structure(value[key], at_leaf, f"{name}[{key!r}]") for key in sorted(value)}
        return {key: done[key] for key in value}
    if isinstance(value, tuple):
        items = [_structure(item, at_leaf, f"{name}[{place}]") for place, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    return at_leaf(name, value)


def _collect(structure: Any, value: Any, name: str, origin: str, found: list[Any]) -> None:
    where = f" at {name}" if name else ""
    if isinstance(structure, Mapping):
        if not isinstance(value, Mapping):
            raise drt.ConfigError(f"{origin} must return a dict{where} as output_signature has, got {_kind(value)}")
        for difference, keys in (("lacks", structure.keys() - value.keys()), ("adds", value.keys() - structure.keys())):
            if keys:
                listed = ", ".join(repr(key) for key in sorted(keys))
                raise drt.ConfigError(
                    f"{origin} must return the keys of output_signature{where}: what it returned {difference} {listed}"
                )
        for key in sorted(structure):
            _collect(structure[key], value[key], f"{name}[{key!r}]", origin, found)
    elif isinstance(structure, tuple):
        if not isinstance(value, tuple) or len(value) != len(structure):
            got = f"a tuple of {len(value)}" if isinstance(value, tuple) else _kind(value)
            raise drt.ConfigError(f"{origin} must return a tuple of {len(structure)}{where}, got {got}")
        for place, (inner, item) in enumerate(zip(structure, value, strict=True)):
            _collect(inner, item, f"{name}[{place}]", origin, found)
    else:
        found.append(value)


def _kind(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
