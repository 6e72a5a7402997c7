"""A process of its own for test_states.py: restores a checkpoint, trains a step, goes on, and prints what it got.

The argument is a JSON object: `path` of the cache, `kind` of the pipeline, `checkpoint`, the folder to restore from, or
`state`, a state of the stream, and `world`, rank and world size. Prints a JSON object.
"""

import json
import sys

import absl.flags
import grain
import numpy as np
import orbax.checkpoint as ocp

import dataset_rt as drt
from dataset_rt_jax import CacheDataSource, PositionSampler, StreamIterDataset, StreamMapDataset

EPOCHS = 3
BATCH_SIZE = 4


def pipeline(dataset, kind, **world):
    """An iterator over batches of sample ids; the tests build their own with it, too."""
    decode_batch = drt.array_decoder("float32", (6,))
    if kind == "iter":
        return iter(StreamIterDataset(dataset, BATCH_SIZE, epochs=EPOCHS, decode_batch=decode_batch, **world))
    if kind == "loader":
        return iter(
            grain.DataLoader(
                data_source=CacheDataSource(dataset, decode=sample_id),
                sampler=PositionSampler(dataset, epochs=EPOCHS, **world),
                operations=[grain.transforms.Batch(BATCH_SIZE)],
                shard_options=grain.sharding.NoSharding(),
            )
        )
    made = StreamMapDataset(dataset, batch_size=BATCH_SIZE, decode_batch=decode_batch, **world).repeat(EPOCHS)
    made = made.to_iter_dataset(grain.ReadOptions(num_threads=2, prefetch_buffer_size=4))
    if kind == "workers":
        made = made.mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
    return iter(made)


def sample_id(sample):
    return {"sample_id": np.int64(sample.sample_id)}


def main():
    absl.flags.FLAGS.mark_as_parsed()
    request = json.loads(sys.argv[1])
    dataset = drt.DatasetRuntime().cached_dataset(request["path"], reader_config=drt.ReaderConfig(seed=11))
    if "state" in request:
        dataset.load_state_dict(request["state"])
    iterator = pipeline(dataset, request["kind"], **request.get("world", {}))
    printed = {}
    if "checkpoint" in request:
        with ocp.CheckpointManager(request["checkpoint"]) as manager:
            restored = manager.restore(
                manager.latest_step(),
                args=ocp.args.Composite(
                    parameters=ocp.args.StandardRestore(), data=grain.checkpoint.CheckpointRestore(iterator)
                ),
            )
        printed["parameters"] = np.asarray(restored.parameters["weights"]).tolist()
    printed["batches"] = [batch["sample_id"].tolist() for batch in iterator]
    if hasattr(iterator, "close"):
        iterator.close()
    print(json.dumps(printed))


if __name__ == "__main__":
    main()
