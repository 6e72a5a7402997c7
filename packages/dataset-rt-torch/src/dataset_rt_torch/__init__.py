"""PyTorch adapter of dataset-rt: the DataLoader that people use, with exact order and exact resume.

`make_dataloader` is the short way. `StreamDataset` with `StreamBatchSampler`, or
`StreamIterableDataset`, are what it is made of, for a `torch.utils.data.DataLoader` of
one's own.
"""

from dataset_rt_torch.collate import collate_samples
from dataset_rt_torch.dataset import StreamDataset
from dataset_rt_torch.iterable import StreamIterableDataset
from dataset_rt_torch.loader import StreamDataLoader, make_dataloader
from dataset_rt_torch.sampler import StreamBatchSampler
from dataset_rt_torch.world import world

__version__ = "1.0.0"

__all__ = [
    "StreamBatchSampler",
    "StreamDataLoader",
    "StreamDataset",
    "StreamIterableDataset",
    "collate_samples",
    "make_dataloader",
    "world",
]
