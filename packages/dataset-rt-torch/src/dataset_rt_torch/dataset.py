"""The map-style dataset: rows of a table, and the records that a sampler names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from torch.utils.data import Dataset

from dataset_rt import CachedDataset, CachedSample, ConfigError, SampleStream
from dataset_rt_torch.addresses import ADDRESS
from dataset_rt_torch.late_stream import LateStream
from dataset_rt_torch.reading import Decoding, Loaded

__all__ = ["StreamDataset"]


class StreamDataset(Dataset[Any]):
    """Samples by number, for a DataLoader with a `StreamBatchSampler`.

    A number below 2**62 is a row of the table as it stood when this was made: `len` and
    `dataset[i]` mean that, and with torch's own samplers a DataLoader shows the rows
    that the table has, without weights, windows or resume. Larger numbers are what a
    `StreamBatchSampler` yields: they name records of the caches, so that a worker
    process needs to know nothing of later edits.

    It holds no open position. Pickled, it takes a few hundred bytes, and 8 a row where
    the table was edited; the caches are opened again by their paths.

    Args:
        dataset: A `CachedDataset`, or its `stream()`.
        decode: From a `CachedSample` to what the loader's `collate_fn` takes.
        decode_batch: From a `pyarrow.RecordBatch` to a whole batch, as
            `dataset_rt.array_decoder` makes it: many times as fast as `decode`. The
            loader's `collate_fn` is given its result.

    Raises:
        ConfigError: If `dataset` is neither, or both functions are given.
    """

    def __init__(
        self,
        dataset: CachedDataset | SampleStream,
        *,
        decode: Callable[[CachedSample], Any] | None = None,
        decode_batch: Callable[[pa.RecordBatch], Any] | None = None,
    ) -> None:
        if not isinstance(dataset, (CachedDataset, SampleStream)):
            raise ConfigError(f"dataset must be a CachedDataset or its stream(), got {type(dataset).__name__}")
        stream = dataset.stream() if isinstance(dataset, CachedDataset) else dataset
        self._length = stream.num_rows
        self._rows = None if stream.is_whole else stream.table_records(0, self._length)
        self._caches = LateStream(stream.whole())
        self.decoding = Decoding(decode, decode_batch)

    def __len__(self) -> int:
        """The number of rows in the table."""
        return self._length

    def __getitem__(self, index: SupportsIndex) -> Any:
        """One sample, decoded; with `decode_batch`, a batch of one.

        Raises:
            IndexError: If the table has no such row.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        read = self.__getitems__([index])
        return read if self.decoding.makes_batches else read[0]

    def __getitems__(self, indices: Sequence[SupportsIndex]) -> Any:
        """A batch in one read: a list of samples, or what `decode_batch` makes of them.

        Raises:
            IndexError: If the table has no such row.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        if isinstance(indices, Loaded):
            return self.decoding.decoded(indices)
        return self.decoding.read(self._caches.opened(), self._records(indices))

    def _records(self, indices: Sequence[SupportsIndex]) -> npt.NDArray[np.uint64]:
        numbers = np.fromiter(indices, dtype=np.int64, count=len(indices))
        if numbers.size and numbers.min() >= ADDRESS:
            return (numbers - ADDRESS).astype(np.uint64)
        rows = np.where(numbers < 0, numbers + self._length, numbers)
        outside = (numbers < ADDRESS) & ((rows < 0) | (rows >= self._length))
        if outside.any():
            raise IndexError(f"row must be in [-{self._length}, {self._length}), got {numbers[outside][0]}")
        records = [
            int(number) - ADDRESS if number >= ADDRESS else self._record_of_row(int(row))
            for number, row in zip(numbers, rows, strict=True)
        ]
        return np.array(records, dtype=np.uint64)

    def _record_of_row(self, row: int) -> int:
        return int(self._caches.opened().table_records(row, 1)[0] if self._rows is None else self._rows[row])
