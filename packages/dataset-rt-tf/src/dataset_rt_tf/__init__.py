"""TensorFlow and Keras adapter of dataset-rt.

This version holds no functions yet: it reserves the package's place and its pins, nothing else. Until they are there,
iterate a `dataset_rt.CachedDataset` directly.
"""

__version__ = "1.0.0"
