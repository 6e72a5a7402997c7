"""`make_dataloader`: a DataLoader that knows how many of its batches were consumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from torch.utils.data import DataLoader

from dataset_rt import CachedDataset, CachedSample, ConfigError, SampleStream, Window
from dataset_rt_torch.addresses import addresses
from dataset_rt_torch.dataset import StreamDataset
from dataset_rt_torch.deliveries import Deliveries
from dataset_rt_torch.iterable import StreamIterableDataset
from dataset_rt_torch.reading import Loaded, Unending
from dataset_rt_torch.sampler import StreamBatchSampler
from dataset_rt_torch.source import Plan
from dataset_rt_torch.transfer import collate_and_send

__all__ = ["StreamDataLoader", "make_dataloader"]

_OURS = ("dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last", "in_order")


def make_dataloader(
    dataset: CachedDataset | SampleStream,
    batch_size: int,
    *,
    num_workers: int = 0,
    decode: Callable[[CachedSample], Any] | None = None,
    decode_batch: Callable[[pa.RecordBatch], Any] | None = None,
    collate_fn: Callable[[Any], Any] | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    remainder: str = "extend",
    drop_last: bool = False,
    iterable: bool = False,
    **options: Any,
) -> StreamDataLoader:
    """Make a DataLoader over the stream of a dataset.

    Each iteration over it is the next window of the dataset. Its `state_dict()` says
    which batches the training loop was given, at any number of workers, and loads with
    any other number and at any other world size.

    Args:
        dataset: A `CachedDataset`, a rank's view of one, or a `stream()`.
        batch_size: Samples a batch on this rank, at least 1.
        num_workers: Loader processes. With 0, the runtime's native threads read ahead
            while the model trains, which is the fastest unless decoding in Python is
            what takes the time.
        decode: From a `CachedSample` to what `collate_fn` takes a list of.
        decode_batch: From a `pyarrow.RecordBatch` to a batch, as
            `dataset_rt.array_decoder` makes it.
        collate_fn: What makes the batch; `collate_samples` where it is left out.
        rank: In [0, world_size). None: what `world()` finds, or the view's.
        world_size: The number of ranks, given together with `rank`.
        remainder: As in `CachedDataset.shard`.
        drop_last: Whether to leave out a last batch that is short.
        iterable: Whether workers iterate a `StreamIterableDataset` instead of being told
            records. The table can then not be edited.
        **options: Any other option of `torch.utils.data.DataLoader`.

    Raises:
        ConfigError: If an argument is out of range, or an option is one that this
            function decides: `shuffle`, `sampler`, `batch_sampler` or `in_order`.
    """
    for name in _OURS:
        if name in options:
            raise ConfigError(
                f"{name} must be left out, got {options[name]!r}; order is the dataset's, by ReaderConfig and its table"
            )
    if not isinstance(iterable, bool):
        raise ConfigError(f"iterable must be True or False, got {iterable!r}")
    collate = collate_and_send if collate_fn is None else Unending("collate_fn", collate_fn)
    options |= {"num_workers": num_workers, "collate_fn": collate}
    ranks: dict[str, Any] = {"rank": rank, "world_size": world_size, "remainder": remainder, "drop_last": drop_last}
    if iterable:
        batches = StreamIterableDataset(dataset, batch_size, decode=decode, decode_batch=decode_batch, **ranks)
        assert batches.plan is not None
        return StreamDataLoader(batches, plan=batches.plan, batch_size=None, **options)
    samples = StreamDataset(dataset, decode=decode, decode_batch=decode_batch)
    sampler = _LoaderSampler(dataset, batch_size, **ranks)
    if num_workers == 0:
        sampler.reader = samples.decoding.ahead
    return StreamDataLoader(samples, plan=sampler.plan, batch_sampler=sampler, **options)


class StreamDataLoader(DataLoader[Any]):
    """A DataLoader that counts what it delivers; made by `make_dataloader`."""

    # Accelerate's prepare() shards every loader once more that does not say that this was done.
    _is_accelerate_prepared = True

    def __init__(self, dataset: StreamDataset | StreamIterableDataset, *, plan: Plan, **options: Any) -> None:
        super().__init__(dataset, **options)
        self._plan = plan
        # Which iteration torch's workers serve, and whether torch was kept from finishing what it did with them.
        self._serves: object = None
        self._is_disturbed = False

    def __len__(self) -> int:
        """The number of batches of the next iteration, which may be the rest of a loaded window."""
        return self._plan.ticket().num_batches

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Deliver the next window, which is reserved at the first `next`.

        Returns:
            An iterator with a `state_dict()` of its own.
        """
        return Deliveries(self)

    def state_dict(self) -> dict[str, Any]:
        """What another process needs to go on with the very next batch.

        It is that of the dataset, small and made of what JSON can hold, and says what was
        delivered, not what workers have read ahead.
        """
        return self._plan.source.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go to where a saved run stood; the next iteration delivers the rest of its window.

        Args:
            state: What `state_dict` gave, with any number of workers, at any world size.

        Raises:
            StateMismatchError: If it belongs to another seed, mode, table or version.
            ConfigError: If it is no dict.
        """
        self._plan.source.load_state_dict(state)

    def _begin(self, window: Window) -> Iterator[Any]:
        """Start torch's own iteration over a window."""
        if self._is_disturbed:
            # Persistent workers: the Ctrl-C was theirs as well, or left half a message in the pipe from them.
            self._iterator = None
        if isinstance(self.dataset, StreamIterableDataset):
            self.dataset.reserve(window, workers_are_running=self.persistent_workers)
        else:
            assert isinstance(self.batch_sampler, _LoaderSampler)
            self.batch_sampler.window = window
        self._is_disturbed = True
        return super().__iter__()


class _LoaderSampler(StreamBatchSampler):
    """The sampler of a loader, which tells it the window and counts itself."""

    window: Window | None = None
    reader: Callable[[Window], Iterator[Loaded]] | None = None

    def __iter__(self) -> Iterator[list[int]]:
        window = self.window
        if window is None:
            return super().__iter__()
        if self.reader is not None:
            return self.reader(window)
        return _addresses(window)


def _addresses(window: Window) -> Iterator[list[int]]:
    size = window.batch_size
    for number in range(window.num_batches):
        yield addresses(window.records(number * size, size))
