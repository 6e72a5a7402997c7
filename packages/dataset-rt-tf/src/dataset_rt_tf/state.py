"""What a checkpoint must hold beside a tf.data iterator."""

from __future__ import annotations

import json
import zlib
from typing import Any

import tensorflow as tf

import dataset_rt as drt
from dataset_rt.integers import unsigned
from dataset_rt_tf.passes import Passes

__all__ = ["StreamState"]

_VERSION = 1
# The fields of a state that differ between the windows of one population.
_OF_A_WINDOW = ("position", "window", "epoch_len")


class StreamState(tf.train.experimental.PythonState):  # type: ignore[misc]
    """Where the passes of one `as_dataset` or `from_generator` stand in the stream.

    TensorFlow stores of an iterator how many batches its pass has delivered, and nothing of the pass's window or of the
    population. Put this object into the `tf.train.Checkpoint` beside the iterator, and both continue exactly:

        state = StreamState()
        batches = as_dataset(dataset, 32, state=state)
        iterator = iter(batches)
        checkpoint = tf.train.Checkpoint(model=model, iterator=iterator, stream=state)

    Restoring moves the dataset behind the restored pass. `state_dict` gives the state of every dataset_rt loader
    instead, which holds at another batch size or number of workers.
    """

    def __init__(self) -> None:
        self._passes: Passes | None = None
        self._waiting: bytes | None = None

    def __repr__(self) -> str:
        return f"StreamState({'not in use' if self._passes is None else repr(self._passes.source)})"

    def state_dict(self, *, batches: int, passes: int | None = None) -> dict[str, Any]:
        """The state that `CachedDataset.load_state_dict` and every loader of dataset_rt take.

        Args:
            batches: How many batches of a pass were consumed (`from_generator`: samples). TensorFlow reads
                ahead, so only the training loop knows.
            passes: How many passes came before that one, counted from when this object was made or restored. None: the
                newest pass that was begun, which is the right one unless `repeat` stands before a prefetch.

        Raises:
            ConfigError: If no such pass was begun or it has fewer batches, or the state is not in use.
        """
        number = None if passes is None else unsigned(passes, "passes")
        return self._used().state_dict(batches=unsigned(batches, "batches"), passes=number)

    def lengths(self) -> list[int]:
        """How many batches each pass has that was begun since this object was made or restored.

        Raises:
            ConfigError: If the state is not in use.
        """
        return self._used().lengths()

    def bind(self, passes: Passes) -> None:
        """Take charge of a pipeline's passes; the loaders do this.

        Raises:
            ConfigError: If another pipeline has this state.
            StateMismatchError: If a checkpoint that was restored before belongs to another stream.
        """
        if self._passes is not None:
            raise drt.ConfigError("a StreamState must belong to one tf.data.Dataset; make one for each")
        self._passes = passes
        if self._waiting is not None:
            waiting, self._waiting = self._waiting, None
            self._restore(passes, waiting)

    def serialize(self) -> bytes:
        """Describe the passes for a checkpoint: below 8 KiB."""
        passes = self._used()
        states, memory = passes.states(), passes.memory()
        bases: list[dict[str, Any]] = []
        windows = []
        for token, state in states:
            base = {name: value for name, value in state.items() if name not in _OF_A_WINDOW}
            if base not in bases:
                bases.append(base)
            windows.append([token, bases.index(base), *(state[name] for name in _OF_A_WINDOW)])
        content = {
            "version": _VERSION,
            "cut": _cut(passes),
            "bases": bases,
            "windows": windows,
            "memory": memory,
            "before": None if states else passes.cut.ticket(passes.source).state_dict(),
        }
        return zlib.compress(json.dumps(content, separators=(",", ":")).encode(), 9)

    def deserialize(self, string_value: bytes) -> None:
        """Take over the passes of a checkpoint.

        Raises:
            StateMismatchError: If they are of another population, seed, mode, version, or cut into other batches.
        """
        if self._passes is None:
            self._waiting = string_value
        else:
            self._restore(self._passes, string_value)

    def _restore(self, passes: Passes, serialized: bytes) -> None:
        content = json.loads(zlib.decompress(serialized))
        expected = {"version": _VERSION, **_cut(passes)}
        found = {"version": content["version"], **content["cut"]}
        for field, value in expected.items():
            if found[field] != value:
                cause = ", which follows from decode_batch and the samples" if field == "batches_per_read" else ""
                raise drt.StateMismatchError(
                    f"{field} must be {found[field]!r} as when the iterator was saved, got {value!r}{cause}; a tf.data "
                    "iterator counts batches of one size and rank: StreamState.state_dict() holds at any",
                    field=field,
                    expected=str(value),
                    found=str(found[field]),
                )
        states = [
            (token, {**content["bases"][base], **dict(zip(_OF_A_WINDOW, values, strict=True))})
            for token, base, *values in content["windows"]
        ]
        passes.restore(states, content["before"], content["memory"])

    def _used(self) -> Passes:
        if self._passes is None:
            raise drt.ConfigError("the StreamState is not in use; give it to as_dataset or from_generator as state=")
        return self._passes


def _cut(passes: Passes) -> dict[str, Any]:
    """What the steps of a saved iterator count in."""
    rank, size, remainder = passes.cut.world
    return {
        "batch_size": passes.cut.batch_size,
        "drop_last": passes.cut.drop_last,
        "rank": rank,
        "world_size": size,
        "remainder": remainder,
        "batches_per_read": passes.cut.batches_per_read,
        "epoch_len": passes.epoch_len,
    }
