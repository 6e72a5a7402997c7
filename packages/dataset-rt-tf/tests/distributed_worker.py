"""One worker of a MultiWorkerMirroredStrategy: trains a linear model on its share of the stream.

Arguments: one JSON object: `cache`, `state` (ours, or null), `steps` (how many to train, or null for a whole window),
`batch_size` of a replica. TF_CONFIG says which worker it is. Prints what it saw and our state behind the last step.
"""

from __future__ import annotations

import json
import sys

import numpy as np
import tensorflow as tf

import dataset_rt as drt
import dataset_rt_tf as drt_tf


def decode(sample: drt.CachedSample) -> tuple[np.ndarray, np.float32, np.int64]:
    """Features, target and number of a sample."""
    features = np.frombuffer(sample.data, np.uint8).astype(np.float32) / 255
    return features, np.float32(sample.metadata["label"]), np.int64(sample.sample_id)


def main() -> None:
    """Train, and print one line of JSON."""
    request = json.loads(sys.argv[1])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    dataset = drt.DatasetRuntime(num_workers=1).cached_dataset(
        [request["cache"]], reader_config=drt.ReaderConfig(seed=7)
    )
    if request["state"] is not None:
        dataset.load_state_dict(request["state"])
    state = drt_tf.StreamState()

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        return drt_tf.as_dataset(
            dataset, request["batch_size"], decode=decode, input_context=context, drop_last=True, state=state
        )

    batches = strategy.distribute_datasets_from_function(pipeline)
    with strategy.scope():
        weights = tf.Variable(tf.zeros((4,)))

    @tf.function
    def step(batch):
        def replica(features, target, ids):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.linalg.matvec(features, weights) - target) ** 2)
            gradient = tape.gradient(loss, weights)
            total = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradient)
            weights.assign_sub(0.1 * total)
            return ids

        return strategy.run(replica, args=batch)

    seen = []
    iterator = iter(batches)
    while request["steps"] is None or len(seen) < request["steps"]:
        try:
            batch = next(iterator)
        except StopIteration:
            break
        local = strategy.experimental_local_results(step(batch))
        seen.append([number for ids in local for number in ids.numpy().tolist()])
    print(json.dumps({"seen": seen, "state": state.state_dict(batches=len(seen)), "weights": weights.numpy().tolist()}))


if __name__ == "__main__":
    main()
