"""`as_dataset`: whole batches, read where tf.data asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

import dataset_rt as drt
from dataset_rt.integers import positive, unsigned
from dataset_rt_tf.assembly import Leading, assemble, flat_specs
from dataset_rt_tf.cardinality import with_cardinality
from dataset_rt_tf.cut import Cut
from dataset_rt_tf.decoding import Decoder
from dataset_rt_tf.passes import Passes
from dataset_rt_tf.state import StreamState
from dataset_rt_tf.tokens import Tokens, token_number
from dataset_rt_tf.world import resolve_world

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["as_dataset"]


def as_dataset(
    dataset: drt.CachedDataset | drt.SampleStream,
    batch_size: int,
    *,
    output_signature: Any = None,
    decode: Callable[[drt.CachedSample], Any] | None = None,
    decode_batch: Callable[[pa.RecordBatch], Any] | None = None,
    drop_last: bool = False,
    num_parallel_calls: int | None = None,
    prefetch: int | None = None,
    state: StreamState | None = None,
    input_context: tf.distribute.InputContext | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    remainder: str = "extend",
) -> tf.data.Dataset:
    """Batches of the stream as a `tf.data.Dataset`; each pass over it is the next window.

    A second loop, `repeat(3)` and the epochs of Keras go on in the stream; a window is taken at a pass's first
    batch. The order is that of the dataset itself, whatever runs in parallel. Automatic sharding is off: ranks are
    dealt draws before anything is read.

    Without a function of your own, small batches are read several at a time: at most 16 of them, and 2 MiB by the sizes
    of the first draws. An error of one sample then takes the place of all batches that were read with it, and a batch
    that is kept keeps the memory of all.

    Args:
        dataset: What to read. Loaded states, edits of the table and resets act at the next pass; the epoch length must
            stay. A `stream()` starts at position 0.
        batch_size: Samples a batch, at least 1.
        output_signature: The structure of one sample, of `tf.TensorSpec` and `tf.RaggedTensorSpec` without a
            batch dimension. None: as the first draw decodes. Where a `tf.TensorSpec` leaves a length open, `decode`d
            values are filled up with zeros to the longest of their batch.
        decode: From a `CachedSample` to nested dicts and tuples of arrays, numbers and strings. It runs in TensorFlow's
            threads, several at once unless `num_parallel_calls` is 1.
        decode_batch: Instead of `decode`, from a `pyarrow.RecordBatch` to arrays with the batch as their first
            dimension, as `dataset_rt.array_decoder` makes them. Without either, batches are dicts of the payloads,
            the stored columns, `cache_id` and `sample_id`.
        drop_last: Whether to leave out a last batch that is short. The next pass starts behind it all the same.
        num_parallel_calls: How many reads are under way at once, at least 1; None and `tf.data.AUTOTUNE` leave it to
            TensorFlow.
        prefetch: How many batches may be ready ahead of their use, beside those of the reads under way; None and
            `tf.data.AUTOTUNE` leave it to TensorFlow.
        state: A `StreamState`, without which an iterator of the result cannot be restored from a checkpoint.
        input_context: From `distribute_datasets_from_function`: this pipeline is rank `input_pipeline_id` of
            `num_input_pipelines`.
        rank: Instead of `input_context`, in [0, world_size).
        world_size: The number of ranks, given together with `rank`.
        remainder: Where the ranks do not divide an epoch: "extend", "drop" or "uneven", as in
            `CachedDataset.shard`.

    Returns:
        A dataset that knows its number of batches, unless a loaded state goes on with the rest of a longer window.
        The first dimension of a batch is static with `drop_last`.

    Raises:
        ConfigError: If an argument is out of range, or an epoch holds no full batch with `drop_last`. What is wrong
            in a pass, such as a decoded value of another dtype, arrives as a `tf.errors` exception with our text.
        CacheCorruptError: If one of the first draws, which show structure and size, is not what was published.
    """
    source = dataset.cursor() if isinstance(dataset, drt.SampleStream) else dataset
    world = resolve_world(dataset, input_context=input_context, rank=rank, world_size=world_size, remainder=remainder)
    cut = Cut(batch_size, drop_last, world)
    batch_size = cut.batch_size
    length = cut.known_length(source)
    decoder = Decoder(source.stream(), decode=decode, decode_batch=decode_batch, output_signature=output_signature)
    cut = replace(cut, batches_per_read=decoder.batches_per_read(source.stream(), batch_size))

    parallel = tf.data.AUTOTUNE
    if num_parallel_calls not in (None, tf.data.AUTOTUNE):
        parallel = positive(num_parallel_calls, "num_parallel_calls")
    ahead = tf.data.AUTOTUNE
    if prefetch not in (None, tf.data.AUTOTUNE):
        ahead = unsigned(prefetch, "prefetch")

    tokens = Tokens()
    passes = Passes(source, cut, length=length, tokens=tokens)
    if state is not None:
        state.bind(passes)

    def begin(token: npt.NDArray[np.int64]) -> np.int64:
        number = token_number(token)
        passes.begin(number)
        return np.int64(cut.reads(passes.window(number)))

    def read(token: npt.NDArray[np.int64], step: np.int64) -> list[npt.NDArray[Any]]:
        window = passes.window(token_number(token))
        first, batches, draws = cut.read(window, int(step))
        records = window.records(first, batches * draws)
        arrays = [array for arrays in decoder.read(window.stream(), records) for array in arrays]
        if cut.batches_per_read == 1:
            return arrays
        return [array.reshape(batches, draws, *array.shape[1:]) for array in arrays]

    # Neither is stateful to TensorFlow: what a token means never changes, and a stateful function could not be saved.
    def steps(token: tf.Tensor) -> tf.data.Dataset:
        count = tf.numpy_function(begin, [token], tf.int64, stateful=False)
        count.set_shape(())
        # Zipped rather than mapped: no function is called for it, read by read.
        return tf.data.Dataset.zip(tf.data.Dataset.from_tensors(token).repeat(), tf.data.Dataset.range(count))

    leading: Leading = (batch_size if drop_last else None,)
    if cut.batches_per_read > 1:
        leading = (None, *leading)
    types = [spec.dtype for spec in flat_specs(decoder.signature, leading)]

    def tensors(token: tf.Tensor, step: tf.Tensor) -> Any:
        flat = tf.numpy_function(read, [token, step], types, stateful=False)
        return assemble(decoder.signature, flat, leading)

    plain = tf.autograph.experimental.do_not_convert  # AutoGraph has nothing to convert here.

    def delivered(token: tf.data.Dataset) -> tf.data.Dataset:
        # A checkpoint holds for the same operations only, so they are the same at any parallelism.
        reads = token.flat_map(plain(steps)).map(plain(tensors), num_parallel_calls=parallel, deterministic=True)
        if cut.batches_per_read == 1:
            return reads
        # Slices share the memory of what was read where TensorFlow's alignment lets them.
        return reads.flat_map(plain(tf.data.Dataset.from_tensor_slices))

    batches = with_cardinality(tokens.passes(delivered), length).prefetch(ahead)

    options = tf.data.Options()
    options.deterministic = True
    options.experimental_symbolic_checkpoint = True
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.with_options(options)
