"""JAX and Grain adapter of dataset-rt: datasets for Grain and global arrays, in the order of the stream."""

from dataset_rt_jax.global_batches import GlobalBatchIterator, iter_batches
from dataset_rt_jax.iter_dataset import StreamDatasetIterator, StreamIterDataset
from dataset_rt_jax.map_dataset import StreamMapDataset
from dataset_rt_jax.sampler import PositionSampler
from dataset_rt_jax.source import CacheDataSource

__version__ = "1.0.0"

__all__ = [
    "CacheDataSource",
    "GlobalBatchIterator",
    "PositionSampler",
    "StreamDatasetIterator",
    "StreamIterDataset",
    "StreamMapDataset",
    "iter_batches",
]
