"""Train a small network on real digits with Grain, JAX and Orbax; stop it at any time and start it again.

The data are the 1,797 handwritten digits that ship with scikit-learn, a third of them for testing. Digits 5 to 9 are
made rare and then balanced by their weights. Model and position are saved every 50 steps. A run that finds a checkpoint
goes on behind it, with the very next batch, and ends with the same weights as one that was never stopped.

    python examples/jax_digits.py [FOLDER]    # FOLDER holds cache and checkpoints, ./jax-digits if left out
"""

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
import polars as pl
from sklearn.datasets import load_digits

import dataset_rt as drt
from dataset_rt_jax import StreamIterDataset

EPOCHS = 5
EPOCH_LENGTH = 2_000
BATCH = 50
SAVE_EVERY = 50

Parameters = dict[str, jax.Array]


class Digits:
    """The source: its preprocessing runs once, whatever follows."""

    name = "digits_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Scale grey values from 0..16 to 0..1; every third image is for testing."""
        images, labels = load_digits(return_X_y=True)
        for number, (image, label) in enumerate(zip(images, labels, strict=True)):
            pixels = (image / 16).astype(np.float32)
            split = "train" if number % 3 else "test"
            yield drt.CacheInput(data=pixels.tobytes(), metadata={"label": int(label), "split": split})


def first_parameters() -> Parameters:
    """Give the parameters of two layers."""
    first, second = jax.random.split(jax.random.key(0))
    return {"hidden": 0.1 * jax.random.normal(first, (64, 64)), "out": 0.1 * jax.random.normal(second, (64, 10))}


def logits(parameters: Parameters, images: jax.Array) -> jax.Array:
    """Apply the network."""
    scores: jax.Array = jax.nn.relu(images @ parameters["hidden"]) @ parameters["out"]
    return scores


optimizer = optax.adam(1e-3)


@jax.jit
def train_step(parameters: Parameters, moments: Any, images: jax.Array, labels: jax.Array) -> tuple[Parameters, Any]:
    """Take one step along the gradient."""

    def loss(parameters: Parameters) -> jax.Array:
        mean: jax.Array = optax.softmax_cross_entropy_with_integer_labels(logits(parameters, images), labels).mean()
        return mean

    updates, moments = optimizer.update(jax.grad(loss)(parameters), moments)
    return optax.apply_updates(parameters, updates), moments


def main() -> None:
    """Cache, balance, restore what there is, train, and test."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "jax-digits").resolve()
    runtime = drt.DatasetRuntime()
    everything = runtime.from_cache_sources(Digits(), folder / "cache", reader_config=drt.ReaderConfig(seed=1)).unwrap()

    table = everything.get_metadata()
    training = table.filter((pl.col("split") == "train") & ((pl.col("label") < 5) | (pl.col("sample_id") % 10 == 1)))
    dataset = everything.with_metadata(training.with_columns((1.0 / pl.len().over("label")).alias("weight")))
    dataset.set_epoch_len(EPOCH_LENGTH)
    test = everything.with_metadata(table.filter(pl.col("split") == "test"))

    decode_batch = drt.array_decoder("float32", (64,), metadata=["label"])
    batches = iter(StreamIterDataset(dataset, BATCH, epochs=EPOCHS, decode_batch=decode_batch))

    parameters = first_parameters()
    moments = optimizer.init(parameters)
    step = 0
    options = ocp.CheckpointManagerOptions(max_to_keep=2)
    with ocp.CheckpointManager(folder / "checkpoints", options=options) as checkpoints:
        latest = checkpoints.latest_step()
        if latest is not None:
            restored = checkpoints.restore(
                latest,
                args=ocp.args.Composite(
                    model=ocp.args.StandardRestore((parameters, moments)),
                    data=grain.checkpoint.CheckpointRestore(batches),
                ),
            )
            parameters, moments = restored.model
            step = latest
        print(f"begins behind step {step}, at position {dataset.position} of the stream")
        for batch in batches:
            parameters, moments = train_step(parameters, moments, batch["data"], batch["label"])
            step += 1
            if step % SAVE_EVERY == 0:
                checkpoints.save(
                    step,
                    args=ocp.args.Composite(
                        model=ocp.args.StandardSave((parameters, moments)),
                        data=grain.checkpoint.CheckpointSave(batches),
                    ),
                )

    held_out = decode_batch(test.read_batch(range(len(test))))
    right = np.argmax(logits(parameters, jnp.asarray(held_out["data"])), axis=1) == held_out["label"]
    weights = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(parameters))
    rare = held_out["label"] >= 5
    print(f"{step} steps; accuracy on {len(test)} test images {right.mean():.1%}", end=", ")
    print(f"of digits 5 to 9 {right[rare].mean():.1%}")
    print(f"the weights' digest is {hashlib.sha256(weights).hexdigest()[:16]}")


if __name__ == "__main__":
    main()
