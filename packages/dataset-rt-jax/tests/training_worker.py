"""A training of digits for test_training.py: saves every few steps, and goes on where the last one stopped.

Arguments: folder of the cache, folder of the checkpoints, and the pipeline, `map` or `iter`. Prints a line a step, and
in the end a digest of the parameters' bytes and of the samples of the steps that it did.
"""

import hashlib
import sys

import grain
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from sklearn.datasets import load_digits

import dataset_rt as drt
from dataset_rt_jax import StreamIterDataset, StreamMapDataset

EPOCHS, BATCH_SIZE, SAVE_EVERY = 2, 32, 7


class Digits:
    name = "digits_v1"

    def __iter__(self):
        images, labels = load_digits(return_X_y=True)
        for image, label in zip(images, labels, strict=True):
            yield drt.CacheInput((image / 16).astype(np.float32).tobytes(), {"label": int(label)})


def initial():
    first, second = jax.random.split(jax.random.key(0))
    return {
        "hidden": jax.random.normal(first, (64, 32)) * 0.1,
        "out": jax.random.normal(second, (32, 10)) * 0.1,
    }


def loss_of(parameters, images, labels):
    logits = jax.nn.relu(images @ parameters["hidden"]) @ parameters["out"]
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


optimizer = optax.adam(1e-2)


@jax.jit
def update(parameters, moments, images, labels):
    gradients = jax.grad(loss_of)(parameters, images, labels)
    updates, moments = optimizer.update(gradients, moments)
    return optax.apply_updates(parameters, updates), moments


def main():
    cache, checkpoints, kind = sys.argv[1:]
    runtime = drt.DatasetRuntime(num_workers=2)
    dataset = runtime.from_cache_sources(
        Digits(),
        cache,
        reader_config=drt.ReaderConfig(seed=5),
        writer_config=drt.WriterConfig(show_progress=False),
    ).unwrap()
    dataset.set_epoch_len(1_000)
    decode_batch = drt.array_decoder("float32", (64,), metadata=["label"])
    if kind == "iter":
        iterator = iter(StreamIterDataset(dataset, BATCH_SIZE, epochs=EPOCHS, decode_batch=decode_batch))
    else:
        made = StreamMapDataset(dataset, batch_size=BATCH_SIZE, decode_batch=decode_batch)
        iterator = iter(made.repeat(EPOCHS).to_iter_dataset())

    parameters = initial()
    moments = optimizer.init(parameters)
    step = 0
    with ocp.CheckpointManager(checkpoints, options=ocp.CheckpointManagerOptions(max_to_keep=2)) as manager:
        if manager.latest_step() is not None:
            step = manager.latest_step()
            restored = manager.restore(
                step,
                args=ocp.args.Composite(
                    model=ocp.args.StandardRestore({"parameters": parameters, "moments": moments}),
                    data=grain.checkpoint.CheckpointRestore(iterator),
                ),
            )
            parameters, moments = restored.model["parameters"], restored.model["moments"]
        print("begins at", step, flush=True)
        for batch in iterator:
            parameters, moments = update(parameters, moments, jnp.asarray(batch["data"]), jnp.asarray(batch["label"]))
            step += 1
            print("step", step, hashlib.sha256(batch["sample_id"].tobytes()).hexdigest(), flush=True)
            if step % SAVE_EVERY == 0:
                model = {"parameters": parameters, "moments": moments}
                arguments = {"model": ocp.args.StandardSave(model), "data": grain.checkpoint.CheckpointSave(iterator)}
                manager.save(step, args=ocp.args.Composite(**arguments))
    weights = b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves((parameters, moments)))
    print("ends with", hashlib.sha256(weights).hexdigest(), flush=True)


if __name__ == "__main__":
    main()
