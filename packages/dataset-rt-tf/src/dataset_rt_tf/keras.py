"""The stream for Keras alone, whatever its backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import keras

import dataset_rt as drt
from dataset_rt.integers import unsigned
from dataset_rt_tf.cut import Cut
from dataset_rt_tf.decoding import Decoder
from dataset_rt_tf.state import StreamState
from dataset_rt_tf.world import resolve_world

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["StreamCallback", "StreamPyDataset"]


class StreamPyDataset(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of the stream by number, through all epochs: batch `i` is always the same one.

    It has no end, so Keras must be told where epochs do, and must not shuffle what is shuffled:

        batches = StreamPyDataset(dataset, 32)
        model.fit(batches, steps_per_epoch=batches.steps_per_epoch, epochs=3, shuffle=False)

    Every `fit` starts with batch 0: for another one, load a state and make another of these. Reading moves no position
    and may be repeated, as Keras does to learn the shapes. Table and epoch length stay as when it was made.

    Args:
        dataset: What to read; a `stream()` starts at position 0.
        batch_size: Samples a batch, at least 1.
        output_signature: As in `as_dataset`, without ragged leaves.
        decode: As in `as_dataset`.
        decode_batch: As in `as_dataset`. What comes out must be what Keras takes: an array, a dict, or a tuple of
            inputs, targets and weights.
        drop_last: As in `as_dataset`.
        start: Position of the first window. None: where the dataset stands, in the middle of a window where a state was
            loaded that did; its rest then comes first, `first_steps` batches.
        rank: In [0, world_size).
        world_size: The number of ranks, given together with `rank`.
        remainder: As in `CachedDataset.shard`.
        workers: Keras' own: how many threads or processes read.
        use_multiprocessing: Keras' own: whether they are processes. `decode` must be picklable then.
        max_queue_size: Keras' own: how many batches they may be ahead.

    Attributes:
        steps_per_epoch: Batches of a whole window.
        first_steps: Batches of the first window: fewer where it is the rest of one.

    Raises:
        ConfigError: As in `as_dataset`.
    """

    def __init__(
        self,
        dataset: drt.CachedDataset | drt.SampleStream,
        batch_size: int,
        *,
        output_signature: Any = None,
        decode: Callable[[drt.CachedSample], Any] | None = None,
        decode_batch: Callable[[pa.RecordBatch], Any] | None = None,
        drop_last: bool = False,
        start: int | None = None,
        rank: int | None = None,
        world_size: int | None = None,
        remainder: str = "extend",
        workers: int = 1,
        use_multiprocessing: bool = False,
        max_queue_size: int = 10,
    ) -> None:
        super().__init__(workers=workers, use_multiprocessing=use_multiprocessing, max_queue_size=max_queue_size)
        world = resolve_world(dataset, input_context=None, rank=rank, world_size=world_size, remainder=remainder)
        self._cut = Cut(batch_size, drop_last, world)
        self._stream = dataset.stream() if isinstance(dataset, drt.CachedDataset) else dataset
        self._epoch_len = dataset.epoch_len
        self._decoder = Decoder(
            self._stream, decode=decode, decode_batch=decode_batch, output_signature=output_signature
        )
        for leaf in self._decoder.signature.leaves:
            if leaf.splits:
                raise drt.ConfigError(f"{leaf.label} must be dense for Keras' arrays; as_dataset gives ragged tensors")
        self.steps_per_epoch = self._cut.length(self._stream, self._epoch_len)
        if start is None and isinstance(dataset, drt.CachedDataset):
            first = self._cut.rewind(self._stream, self._cut.ticket(dataset).state_dict())
        else:
            first = self._cut.window(self._stream, start or 0, self._epoch_len)
        self.first_steps = first.num_batches
        # What travels to other processes is plain: the windows are made again there.
        self._first_state = first.state_dict(batches=0)
        self._behind = first.end
        self._stride = self._cut.window(self._stream, 0, self._epoch_len).end

    @property
    def num_batches(self) -> None:
        """None: the stream has no end."""
        return

    def __getitem__(self, index: int) -> Any:
        """Read batch `index` of all epochs together, at least 0.

        Raises:
            IndexError: If it is negative.
            ConfigError: If what was decoded is not what the signature says, or the stream is at its end.
            CacheCorruptError: If bytes are not those that were published.
            CacheIOError: If a file cannot be read.
        """
        if index < 0:
            raise IndexError(f"index must be at least 0, got {index}: the stream has no end to count from")
        window, step = self._place(index)
        records = window.records(step * self._cut.batch_size, self._cut.batch_size)
        leaves = self._decoder.read(self._stream, records)
        # Not every backend copies what it is given, so nothing may be a view of what cannot be written.
        owned = [values if values.flags.writeable else values.copy() for (values,) in leaves]
        return self._decoder.signature.pack(owned)

    def state_dict(self, *, batches: int) -> dict[str, Any]:
        """The state that `CachedDataset.load_state_dict` and every loader of dataset_rt take.

        Args:
            batches: How many batches of all epochs together were consumed. Keras reads ahead, so only the training
                loop knows; a `StreamCallback` counts them.

        Raises:
            ConfigError: If it is no integer of at least 0.
        """
        batches = unsigned(batches, "batches")
        # Behind the last batch of a window, not before the first of the next: with drop_last they differ.
        window, step = self._place(max(batches - 1, 0))
        return window.state_dict(batches=step + min(batches, 1))

    def _place(self, index: int) -> tuple[drt.Window, int]:
        """The window of a batch, and the batch's number in it."""
        if index < self.first_steps:
            return self._cut.rewind(self._stream, self._first_state), index
        epoch, step = divmod(index - self.first_steps, self.steps_per_epoch)
        start = self._behind + epoch * self._stride
        return self._cut.window(self._stream, start, self._epoch_len), step


class StreamCallback(keras.callbacks.Callback):  # type: ignore[misc]
    """Counts what `fit` has trained on, so that a state can be saved at any batch.

    What is fitted is the `StreamPyDataset`, the `as_dataset` itself, or its `repeat()`. Validation must read a pipeline
    of its own. What cannot be told is refused, never guessed.

    Args:
        source: The `StreamPyDataset` that is fitted, or the `StreamState` of the `as_dataset` that is.
        steps_per_epoch: As `fit` has it, where that is not the length of a pass: Keras then takes its epochs out of the
            passes one after another. None: each epoch is a pass. Plays no part for a `StreamPyDataset`.

    Raises:
        ConfigError: If `steps_per_epoch` is no integer.
    """

    def __init__(self, source: StreamPyDataset | StreamState, *, steps_per_epoch: int | None = None) -> None:
        super().__init__()
        self._source = source
        self._joined = steps_per_epoch is not None and unsigned(steps_per_epoch, "steps_per_epoch") > 0
        # Batches of each epoch of this fit, and the number of its first pass; None before the first fit.
        self._epochs: list[int] = []
        self._first_pass: int | None = None
        self._untold: str | None = None
        self._begun_by_test = False
        self._before_test = 0

    def state_dict(self) -> dict[str, Any]:
        """The state behind the newest batch that was trained on.

        Raises:
            ConfigError: If it cannot be told which batch that was: what is fitted has epochs that are not passes
                and `steps_per_epoch` was not given here, `steps_per_execution` does not divide a pass, or validation
                reads the same pipeline.
        """
        if isinstance(self._source, StreamPyDataset):
            return self._source.state_dict(batches=sum(self._epochs))
        if self._untold is not None:
            raise drt.ConfigError(self._untold)
        if self._first_pass is None:
            return self._source.state_dict(batches=0)
        number, batches = self._place(sum(self._epochs))
        return self._source.state_dict(batches=batches, passes=number)

    def on_train_begin(self, logs: Any = None) -> None:  # noqa: ARG002  (Keras' signature)
        """Begin to count: every `fit` begins a pass."""
        self._epochs = []
        self._first_pass = len(self._lengths())
        self._untold = None
        self._begun_by_test = False

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:  # noqa: ARG002  (Keras' signature)
        """Begin to count an epoch."""
        if self._begun_by_test and not self._joined:
            self._give_up(
                "passes were begun while Keras validated, so it cannot be told which of them were trained on; validate "
                "on a pipeline of its own, and fit as_dataset without repeat(), or give StreamCallback steps_per_epoch"
            )
        self._epochs.append(0)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002  (Keras' signature)
        """Count the batches of the epoch up to this one, several at once under `steps_per_execution`."""
        before, self._epochs[-1] = self._epochs[-1], batch + 1
        if isinstance(self._source, StreamState) and self._untold is None:
            self._check(batch + 1 - before)

    def on_test_begin(self, logs: Any = None) -> None:  # noqa: ARG002  (Keras' signature)
        """Remember how many passes there were before validation."""
        self._before_test = len(self._lengths())

    def on_test_end(self, logs: Any = None) -> None:  # noqa: ARG002  (Keras' signature)
        """See whether validation has read what is trained on."""
        self._begun_by_test = self._begun_by_test or len(self._lengths()) > self._before_test

    def _check(self, together: int) -> None:
        """Find out whether the newest batches, trained on together, say where training is."""
        assert self._first_pass is not None
        lengths = self._lengths()
        total = sum(self._epochs)
        if together > 1 and not self._joined:
            number = self._first_pass + len(self._epochs) - 1
            length = lengths[number] if number < len(lengths) else 0
            if self._epochs[-1] > length and self.params.get("steps") == length and len(lengths) == number + 1:
                # The pass ended within them: Keras counts those that were not there too.
                self._epochs[-1] = length
            elif self._epochs[-1] > min(length, self.params.get("steps") or 0):
                self._give_up_executions(together)
        elif together > 1 and self._place(total - together + 1)[0] != self._place(total)[0]:
            self._give_up_executions(together)
        number = self._first_pass + len(self._epochs) - 1
        if self._untold is None and not self._joined and self._place(sum(self._epochs)) != (number, self._epochs[-1]):
            self._give_up(
                f"the epochs that are fitted must be passes, of which the last have {lengths[-3:]} batches, got epochs "
                f"of {self._epochs[-3:]}; give StreamCallback the steps_per_epoch that fit has, or fit the whole pass"
            )

    def _place(self, total: int) -> tuple[int, int]:
        """The pass that holds the last of `total` batches, and how many of it they take."""
        assert self._first_pass is not None
        number = self._first_pass
        for length in self._lengths()[number:]:
            if total <= length:
                break
            total -= length
            number += 1
        return number, total

    def _lengths(self) -> list[int]:
        return self._source.lengths() if isinstance(self._source, StreamState) else []

    def _give_up(self, reason: str) -> None:
        self._untold = self._untold or reason

    def _give_up_executions(self, together: int) -> None:
        self._give_up(
            f"steps_per_execution must divide the passes and the steps of an epoch for a StreamCallback, got {together}"
            "; Keras does not say how many batches it took where a pass ends within them"
        )
