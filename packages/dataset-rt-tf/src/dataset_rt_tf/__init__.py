"""TensorFlow and Keras adapter of dataset-rt: the stream as `tf.data`, and as a Keras dataset.

`as_dataset` gives whole batches, and its iterators resume exactly from a `tf.train.Checkpoint` that also holds a
`StreamState`. `from_generator` gives single samples. `StreamPyDataset` serves Keras 3 on any backend, and
`StreamCallback` counts what was trained on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

try:
    import tensorflow as _tensorflow  # noqa: F401
except ImportError as error:
    raise ImportError(
        "dataset_rt_tf needs TensorFlow 2.16 or later, which comes as two distributions: install tensorflow, or "
        "tensorflow-cpu where there is no GPU, for example by pip install 'dataset-rt-tf[tensorflow-cpu]'"
    ) from error

from dataset_rt_tf.batches import as_dataset
from dataset_rt_tf.samples import from_generator
from dataset_rt_tf.state import StreamState

if TYPE_CHECKING:
    from dataset_rt_tf.keras import StreamCallback, StreamPyDataset

__version__ = "1.0.0"

__all__ = ["StreamCallback", "StreamPyDataset", "StreamState", "as_dataset", "from_generator"]


def __getattr__(name: str) -> Any:
    """Import Keras when it is first asked for: it takes seconds, and TensorFlow alone leaves it out too."""
    if name in ("StreamCallback", "StreamPyDataset"):
        from dataset_rt_tf import keras

        return getattr(keras, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
