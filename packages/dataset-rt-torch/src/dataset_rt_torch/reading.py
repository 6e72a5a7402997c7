"""Reading of one batch, and making of it what the user trains on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dataset_rt import ArrayDecoder, CachedSample, ConfigError, SampleStream, Window
from dataset_rt_torch.collate import WholeBatch
from dataset_rt_torch.worker_errors import errors_reach_the_parent

__all__ = ["Decoding", "Loaded", "Unending"]


class Loaded(list[Any]):
    """A batch that was read before its dataset is asked for it: samples, or a record batch.

    A list, since it takes the place of a batch of indices.
    """

    __slots__ = ("content",)
    content: list[CachedSample] | pa.RecordBatch


class Unending:
    """A user's function whose StopIteration is an error: iterations would take it for their end.

    Args:
        name: What the user calls it.
        function: The function.
    """

    def __init__(self, name: str, function: Callable[[Any], Any]) -> None:
        self._name = name
        self._function = function

    def __call__(self, argument: Any) -> Any:
        """Call the function.

        Raises:
            RuntimeError: If it raised StopIteration.
        """
        try:
            return self._function(argument)
        except StopIteration as error:
            raise RuntimeError(
                f"{self._name} must not raise StopIteration, which would end the epoch; a next(iterator) in it needs a "
                "default, or a try around it"
            ) from error


class Decoding:
    """What becomes of the samples of a batch.

    Args:
        decode: From a sample to what a loader collates, or None.
        decode_batch: From a record batch to a batch, or None. At most one of the two.
    """

    def __init__(
        self, decode: Callable[[CachedSample], Any] | None, decode_batch: Callable[[pa.RecordBatch], Any] | None
    ) -> None:
        for name, function in (("decode", decode), ("decode_batch", decode_batch)):
            if function is not None and not callable(function):
                raise ConfigError(f"{name} must be callable, got {function!r}")
        if decode is not None and decode_batch is not None:
            raise ConfigError("decode and decode_batch must not be given both; decode_batch is the faster one")
        self._decode = None if decode is None else Unending("decode", decode)
        # Nobody else sees the batches that are read here, so their memory can become the tensors'.
        whole = decode_batch.owned if type(decode_batch) is ArrayDecoder else decode_batch
        self._decode_batch = None if whole is None else Unending("decode_batch", whole)

    @property
    def makes_batches(self) -> bool:
        """Whether what is read is a batch by `decode_batch`, and else a list of samples."""
        return self._decode_batch is not None

    def read(self, stream: SampleStream, records: npt.NDArray[np.uint64]) -> Any:
        """Read records in the calling thread and decode them: a list of samples, or what `decode_batch` gives."""
        with errors_reach_the_parent():
            if self._decode_batch is not None:
                return _whole(self._decode_batch(stream.fetch_records_batch(records)))
            return self._decoded(stream.fetch_records(records))

    def decoded(self, loaded: Loaded) -> Any:
        """Decode a batch that was read already."""
        if self._decode_batch is not None:
            return _whole(self._decode_batch(loaded.content))
        return self._decoded(list(loaded.content))

    def _decoded(self, samples: list[CachedSample]) -> list[Any]:
        return samples if self._decode is None else [self._decode(sample) for sample in samples]

    def ahead(self, window: Window) -> Iterator[Loaded]:
        """Read the window's batches ahead of their use, by the runtime's threads."""
        batches: Iterator[list[CachedSample] | pa.RecordBatch]
        if self._decode_batch is not None:
            batches = window.iter_batches()
        else:
            samples = window.iter_samples()
            batches = (list(islice(samples, window.batch_size)) for _ in range(window.num_batches))
        for content in batches:
            loaded = Loaded()
            loaded.content = content
            yield loaded


def _whole(batch: Any) -> Any:
    # Whoever collates cannot tell by itself: the items of a list are samples as a rule.
    return WholeBatch(batch) if type(batch) is list else batch
