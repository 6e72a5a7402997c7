"""The rows of the active table as a data source of Grain's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, SupportsIndex, overload

import dataset_rt as drt
from dataset_rt_jax.decoding import Decode, Decoder
from dataset_rt_jax.integers import element_index

__all__ = ["CacheDataSource"]


class CacheDataSource:
    """Grain's `RandomAccessDataSource` over the active rows, for `grain.DataLoader` and `grain.MapDataset.source`.

    Row i is what `SampleStream.rows` calls i, so `dataset.stream().table()` shows the rows in this order: that of the
    table where `shuffle=False`, else by `cache_id` and `sample_id`. With Grain's own samplers each active row comes
    once; weights, windows and the order of the stream come from `PositionSampler`.

    The table is that of the moment when the source was made. It is safe to use from any thread, and pickles.
    Its `repr`, which Grain compares when it restores a state, says what the rows are and nothing of where they lie.
    A source has rows and no position: where the dataset stands plays no part.

    Args:
        dataset: A `CachedDataset` or its `stream()`.
        decode: From a `CachedSample` to an element; must be safe in threads. Without it the element is the sample.
    """

    def __init__(self, dataset: drt.CachedDataset | drt.SampleStream, *, decode: Decode | None = None) -> None:
        self._stream = dataset.stream() if isinstance(dataset, drt.CachedDataset) else dataset
        self._decoder = Decoder(decode)

    def __len__(self) -> int:
        """Number of active rows."""
        return self._stream.num_rows

    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        """Read and decode a row, or a list of them.

        Args:
            index: A Python or NumPy integer in [-len, len), of which negative ones count from the end, or a slice.

        Raises:
            IndexError: If there is no such row.
            ConfigError: If it is no integer, or `decode` gave None or raised StopIteration.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        if isinstance(index, slice):
            rows = range(len(self))[index]
            return [self._decoder.sample(sample) for sample in self._stream.fetch_rows(rows)]
        row = element_index(index, len(self))
        return self._decoder.sample(self._stream.fetch_rows([row])[0])

    def __iter__(self) -> Iterator[Any]:
        """Read all rows one by one; an IndexError out of `decode` arrives and does not pass for the end."""
        for row in range(len(self)):
            yield self[row]

    def __repr__(self) -> str:
        return f"CacheDataSource({self._stream!r})"
