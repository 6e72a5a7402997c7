"""Cache preprocessed training samples once, then read them in an exactly reproducible order."""

from dataset_rt._core import FORMAT_VERSION, ORDER_VERSION, CachedSample
from dataset_rt.array import ArrayDecoder, array_decoder
from dataset_rt.config import ReaderConfig, ShardCompression, WriterConfig
from dataset_rt.cursor import StreamCursor
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import (
    CacheCorruptError,
    CacheExistsError,
    CacheIOError,
    CacheNotFoundError,
    CacheVersionError,
    ConfigError,
    DatasetRTError,
    MetadataError,
    SourceError,
    StateMismatchError,
)
from dataset_rt.results import (
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteResult,
    CacheWriteSuccess,
)
from dataset_rt.runtime import DatasetRuntime
from dataset_rt.sources import CacheInput, CacheSource, MetadataValue, Payload, SkippedInput
from dataset_rt.stream import SampleStream
from dataset_rt.window import Window, WindowTicket

__version__ = "1.0.0"

__all__ = [
    "FORMAT_VERSION",
    "ORDER_VERSION",
    "ArrayDecoder",
    "CacheCorruptError",
    "CacheExistsError",
    "CacheIOError",
    "CacheInput",
    "CacheNotFoundError",
    "CacheSource",
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "CacheSourcesDatasetSuccess",
    "CacheVersionError",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheWriteSuccess",
    "CachedDataset",
    "CachedSample",
    "ConfigError",
    "DatasetRTError",
    "DatasetRuntime",
    "MetadataError",
    "MetadataValue",
    "Payload",
    "ReaderConfig",
    "SampleStream",
    "ShardCompression",
    "SkippedInput",
    "SourceError",
    "StateMismatchError",
    "StreamCursor",
    "Window",
    "WindowTicket",
    "WriterConfig",
    "array_decoder",
]
