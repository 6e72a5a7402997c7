"""From draws to arrays: reading, the user's decode function, and the check of what it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import dataset_rt as drt
from dataset_rt_tf.arrays import batch_arrays, sample_arrays, stack_samples
from dataset_rt_tf.signature import Signature, infer_signature

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Decoder", "columns_of"]

# A call from TensorFlow into Python costs some 0.3 ms beside the read, most of it waiting for Python's lock and for
# threads to wake. So small batches are read together; more than this gains little.
_BYTES_PER_READ = 2 << 20
_MOST_BATCHES_PER_READ = 16
# Draws whose sizes stand for those of all.
_LOOKED_AT = 16


class Decoder:
    """What a user gave to make tensors of samples; safe to use from many threads if their function is.

    Args:
        stream: Where the sample is read from that shows what is decoded, if no signature is given.
        decode: From a `CachedSample` to what one sample is trained on, or None.
        decode_batch: From a `pyarrow.RecordBatch` to the same for a whole batch, or None.
        output_signature: The structure of one sample, or None to take it from the first draw.

    Raises:
        ConfigError: If both functions are given, or the signature cannot be told from the sample.
    """

    def __init__(
        self,
        stream: drt.SampleStream,
        *,
        decode: Callable[[drt.CachedSample], Any] | None,
        decode_batch: Callable[[pa.RecordBatch], Any] | None,
        output_signature: Any,
    ) -> None:
        if decode is not None and decode_batch is not None:
            raise drt.ConfigError("decode and decode_batch must not be given together; keep one")
        for name, function in (("decode", decode), ("decode_batch", decode_batch)):
            if function is not None and not callable(function):
                raise drt.ConfigError(f"{name} must be a function, got {function!r}")
        self._decode = decode
        # Whether each sample is decoded by itself, so that it makes no difference which are read together.
        self._is_ours = decode is None and (decode_batch is None or isinstance(decode_batch, drt.ArrayDecoder))
        # TensorFlow takes the arrays over or copies them, so that a copy before would be one too many.
        if isinstance(decode_batch, drt.ArrayDecoder):
            decode_batch = decode_batch.views
        self._decode_batch = decode_batch or columns_of
        self.origin = "decode" if decode is not None else "decode_batch"
        self.signature = self._inferred(stream) if output_signature is None else Signature(output_signature)

    def read(self, stream: drt.SampleStream, records: npt.NDArray[np.uint64]) -> list[list[npt.NDArray[Any]]]:
        """Read records and decode them: the arrays of each leaf, as `flat_specs` lists them.

        Raises:
            ConfigError: If what was decoded is not what the signature says.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        if self._decode is not None:
            return self.of_samples(stream.fetch_records(records))
        return self.of_batch(stream.fetch_records_batch(records))

    def of_samples(self, samples: list[drt.CachedSample]) -> list[list[npt.NDArray[Any]]]:
        """Decode samples one by one and put them together, leaf by leaf."""
        columns = self._columns(samples)
        return [
            stack_samples(leaf, values, self.origin)
            for leaf, values in zip(self.signature.leaves, columns, strict=True)
        ]

    def of_batch(self, batch: pa.RecordBatch) -> list[list[npt.NDArray[Any]]]:
        """Decode a whole batch, leaf by leaf."""
        values = self.signature.flatten(self._decode_batch(batch), self.origin)
        return [
            batch_arrays(leaf, value, batch.num_rows, self.origin)
            for leaf, value in zip(self.signature.leaves, values, strict=True)
        ]

    def one_by_one(self, chunk: list[drt.CachedSample] | pa.RecordBatch) -> Iterator[list[list[npt.NDArray[Any]]]]:
        """Decode samples or a batch, and give the arrays of each sample alone."""
        if isinstance(chunk, list):
            rows, columns = len(chunk), self._columns(chunk)
        else:
            rows, columns = chunk.num_rows, self.signature.flatten(self._decode_batch(chunk), self.origin)
        for leaf, values in zip(self.signature.leaves, columns, strict=True):
            if len(values) != rows:
                raise drt.ConfigError(f"{self.origin} must return {rows} values for {leaf.label}, got {len(values)}")
        for row in range(rows):
            yield [
                sample_arrays(leaf, values[row], self.origin)
                for leaf, values in zip(self.signature.leaves, columns, strict=True)
            ]

    def _columns(self, samples: list[drt.CachedSample]) -> list[list[Any]]:
        assert self._decode is not None
        rows = [self.signature.flatten(self._decode(sample), self.origin) for sample in samples]
        return [list(column) for column in zip(*rows, strict=True)]

    def batches_per_read(self, stream: drt.SampleStream, batch_size: int) -> int:
        """How many batches shall be read and decoded in one call.

        It depends on the stream's first draws and the batch size alone. More than one only if nothing but the speed
        shows it: of samples of one shape that no function of the user's decodes.
        """
        if not self._is_ours or not self.signature.is_fixed:
            return 1
        looked_at = total = 0
        while looked_at < _LOOKED_AT and total < _BYTES_PER_READ:
            total += stream.fetch_batch([looked_at]).nbytes
            looked_at += 1
        return min(max(_BYTES_PER_READ * looked_at // (total * batch_size), 1), _MOST_BATCHES_PER_READ)

    @property
    def decodes_samples(self) -> bool:
        """Whether the user decodes sample by sample."""
        return self._decode is not None

    def _inferred(self, stream: drt.SampleStream) -> Signature:
        if self._decode is not None:
            return infer_signature(self._decode(stream[0]), self.origin)
        return infer_signature(_first(self._decode_batch(stream.fetch_batch([0]))), self.origin)


def _first(batch: Any) -> Any:
    """The only sample of a decoded batch of one."""
    if isinstance(batch, dict):
        return {key: _first(value) for key, value in batch.items()}
    if isinstance(batch, tuple):
        items = [_first(item) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else tuple(items)
    return batch[0]


def columns_of(batch: pa.RecordBatch) -> dict[str, npt.NDArray[Any]]:
    """Decode nothing: the payload's bytes, the stored columns, `cache_id` and `sample_id`.

    Dates become days and datetimes microseconds since 1970-01-01, int64: TensorFlow has no type for them.

    Raises:
        MetadataError: If a column holds a null, for which a tensor has no value.
    """
    columns = {}
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            cache, sample = (batch.column(number)[row] for number in ("cache_id", "sample_id"))
            raise drt.MetadataError(
                f"column {name!r}, cache_id {cache}, sample_id {sample}: found null, which a tensor cannot hold; "
                "filter such rows out, or leave the column out by a decode or decode_batch of your own"
            )
        values = column.to_numpy(zero_copy_only=False)
        columns[name] = values.astype(np.int64) if values.dtype.kind == "M" else values
    return columns
