"""`from_generator`: single samples, by the generator that many tf.data programs are built on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy.typing as npt
import tensorflow as tf

import dataset_rt as drt
from dataset_rt_tf.assembly import assemble, flat_specs
from dataset_rt_tf.cardinality import with_cardinality
from dataset_rt_tf.cut import Cut
from dataset_rt_tf.decoding import Decoder
from dataset_rt_tf.passes import Passes
from dataset_rt_tf.state import StreamState
from dataset_rt_tf.world import resolve_world

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["from_generator"]

# Samples that cross into TensorFlow in one call; one by one they cost 30 times as much.
_TOGETHER = 256


def from_generator(
    dataset: drt.CachedDataset | drt.SampleStream,
    *,
    output_signature: Any = None,
    decode: Callable[[drt.CachedSample], Any] | None = None,
    decode_batch: Callable[[pa.RecordBatch], Any] | None = None,
    state: StreamState | None = None,
    input_context: tf.distribute.InputContext | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    remainder: str = "extend",
) -> tf.data.Dataset:
    """Samples of the stream as a `tf.data.Dataset`, for pipelines that shape their batches themselves.

    Each pass is the next window, read ahead by the runtime's threads. `as_dataset` is faster, and its iterators can be
    saved in a `tf.train.Checkpoint`; TensorFlow saves no generator. To resume, take `StreamState.state_dict(batches=n)`
    with the number of samples that were consumed, and load it into the dataset.

    Args:
        dataset: As in `as_dataset`.
        output_signature: As in `as_dataset`; lengths that are left open stay as they are, since nothing is batched.
        decode: As in `as_dataset`; it runs in one thread at a time.
        decode_batch: As in `as_dataset`.
        state: A `StreamState` to ask for states; it cannot go into a checkpoint here.
        input_context: As in `as_dataset`.
        rank: As in `as_dataset`.
        world_size: As in `as_dataset`.
        remainder: As in `as_dataset`.

    Returns:
        A dataset that knows its number of samples, unless a loaded state goes on with the rest of a longer window.

    Raises:
        ConfigError: As in `as_dataset`.
    """
    source = dataset.cursor() if isinstance(dataset, drt.SampleStream) else dataset
    world = resolve_world(dataset, input_context=input_context, rank=rank, world_size=world_size, remainder=remainder)
    cut = Cut(1, drop_last=False, world=world)
    length = cut.known_length(source)
    decoder = Decoder(source.stream(), decode=decode, decode_batch=decode_batch, output_signature=output_signature)
    passes = Passes(source, cut, length=length, tokens=None)
    if state is not None:
        state.bind(passes)
    numbers = itertools.count()
    # Samples of unequal lengths cannot travel together without being filled up.
    together = decoder.signature.is_fixed
    leading = (None,) if together else ()

    def generate() -> Iterator[tuple[npt.NDArray[Any], ...]]:
        number = next(numbers)
        passes.begin(number)
        begun = passes.window(number)
        window = Cut(_TOGETHER, drop_last=False, world=world).rewind(begun.stream(), begun.state_dict(batches=0))
        for chunk in _chunks(window) if decoder.decodes_samples else window.iter_batches():
            if not together:
                yield from map(_flat, decoder.one_by_one(chunk))
            elif decoder.decodes_samples:
                yield _flat(decoder.of_samples(chunk))
            else:
                yield _flat(decoder.of_batch(chunk))

    def structured(*flat: tf.Tensor) -> Any:
        return assemble(decoder.signature, flat, leading)

    specs = flat_specs(decoder.signature, leading)
    flat = tf.data.Dataset.from_generator(generate, output_signature=specs)
    samples = flat.map(tf.autograph.experimental.do_not_convert(structured))
    samples = with_cardinality(samples.unbatch() if together else samples, length)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return samples.with_options(options)


def _chunks(window: drt.Window) -> Iterator[list[drt.CachedSample]]:
    samples = window.iter_samples()
    while chunk := list(itertools.islice(samples, _TOGETHER)):
        yield chunk


def _flat(leaves: list[list[npt.NDArray[Any]]]) -> tuple[npt.NDArray[Any], ...]:
    return tuple(array for arrays in leaves for array in arrays)
