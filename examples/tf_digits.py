"""Train Keras on real digit images, stop in the middle, and go on in exactly the same way.

The data are the 1,797 handwritten digits that ship with scikit-learn. A custom loop trains for some steps, saves a
`tf.train.Checkpoint` and forgets everything; a second one restores it and goes on, also at another parallelism. Its
weights equal those of a run that was never stopped, bit for bit. Keras' own `fit` then trains on the same stream.

    python examples/tf_digits.py [FOLDER]    # FOLDER holds the cache and the checkpoint, ./tf-digits if left out
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import keras
import numpy as np
import numpy.typing as npt
import polars as pl
import tensorflow as tf
from sklearn.datasets import load_digits

import dataset_rt as drt
import dataset_rt_tf as drt_tf

BATCH = 32
STEPS = 150
STOP_AFTER = 61
EPOCHS = 8
HELD_OUT = 300


class Digits:
    """The source: images of 8 by 8 pixels, scaled to 0..1; a real pipeline spends its hours here."""

    name = "digits_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Preprocess one image at a time."""
        images, labels = load_digits(return_X_y=True)
        for image, label in zip(images, labels, strict=True):
            pixels = (image / 16).astype(np.float32)
            yield drt.CacheInput(data=pixels.tobytes(), metadata={"label": int(label)})


ARRAYS = drt.array_decoder("float32", (64,), metadata=["label"])


def pair(batch: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Take pixels and labels of a batch, which holds `cache_id` and `sample_id` too."""
    return batch["data"], batch["label"]


def build() -> keras.Model:
    """Make the same small network every time."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(64, "relu"), keras.layers.Dense(10)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1), loss, metrics=["accuracy"])
    return model


def train(
    dataset: drt.CachedDataset, steps: int, folder: Path, *, restore: str | None = None, parallel: int = 1
) -> tuple[list[npt.NDArray[np.float32]], str]:
    """Train for some steps by a loop of one's own; give the weights and the path of a checkpoint of the end."""
    model = build()
    state = drt_tf.StreamState()
    batches = drt_tf.as_dataset(dataset, BATCH, decode_batch=ARRAYS, state=state, num_parallel_calls=parallel)
    # An endless iterator: each pass over the dataset is the next window of the stream.
    iterator = iter(batches.map(pair).repeat().prefetch(4))
    checkpoint = tf.train.Checkpoint(model=model, iterator=iterator, stream=state)
    if restore is not None:
        checkpoint.restore(restore).expect_partial()
    for _ in range(steps):
        pixels, labels = next(iterator)
        model.train_on_batch(pixels, labels)
    return model.get_weights(), checkpoint.save(str(folder / "checkpoint"))


def main() -> None:
    """Cache, balance, train with and without an interruption, and compare."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "tf-digits")
    runtime = drt.DatasetRuntime()
    result = runtime.from_cache_sources(Digits(), folder, reader_config=drt.ReaderConfig(seed=1))
    everything = result.unwrap()
    print(f"the cache was {'found complete' if result.results[0].reused else 'written'}")

    table = everything.get_metadata()
    # Weights are a column: here every class is drawn equally often.
    rows = table[:-HELD_OUT].with_columns(weight=1.0 / pl.len().over("label"))

    def training() -> drt.CachedDataset:
        return everything.with_metadata(rows)

    whole, _ = train(training(), STEPS, folder)
    _, path = train(training(), STOP_AFTER, folder)
    resumed, _ = train(training(), STEPS - STOP_AFTER, folder, restore=path, parallel=2)
    same = all((ours == theirs).all() for ours, theirs in zip(whole, resumed, strict=True))
    print(f"stopped after {STOP_AFTER} of {STEPS} steps and resumed: weights are {'equal' if same else 'DIFFERENT'}")
    if not same:
        raise SystemExit(1)

    dataset, held_out = training(), everything.with_metadata(table[-HELD_OUT:])
    history = build().fit(
        drt_tf.as_dataset(dataset, BATCH, decode_batch=ARRAYS).map(pair),
        epochs=EPOCHS,
        shuffle=False,
        validation_data=drt_tf.as_dataset(held_out, BATCH, decode_batch=ARRAYS).map(pair),
        verbose=0,
    )
    accuracy = history.history["val_accuracy"][-1]
    print(f"Keras, {EPOCHS} epochs, {dataset.position} draws: {accuracy:.1%} of {HELD_OUT} held-out images are right")


if __name__ == "__main__":
    main()
