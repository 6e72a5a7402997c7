"""One of two `jax.distributed` processes of test_global_batches.py; prints what its devices hold of each batch.

The argument is a JSON object: `process`, `address` of the coordinator, `path` of the cache, `axes`, a name and a number
of devices for each axis of the mesh, and `spec`, the names that divide the batch. Each process has two CPU
devices.
"""

import json
import os
import sys

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import dataset_rt as drt
from dataset_rt_jax import StreamMapDataset, iter_batches


def main():
    request = json.loads(sys.argv[1])
    jax.distributed.initialize(request["address"], num_processes=2, process_id=request["process"])
    dataset = drt.DatasetRuntime().cached_dataset(request["path"], reader_config=drt.ReaderConfig(seed=11))
    names, sizes = zip(*request["axes"], strict=True)
    mesh = Mesh(np.array(jax.devices()).reshape(sizes), names)
    sharding = NamedSharding(
        mesh, PartitionSpec(*(tuple(name) if isinstance(name, list) else name for name in request["spec"]))
    )
    decode_batch = drt.array_decoder("float32", (6,), metadata=["label"])
    batches = []
    for _ in range(2):
        iterator = iter_batches(dataset, 8, drop_last=True, decode_batch=decode_batch, sharding=sharding)
        for batch in iterator:
            shards = [
                [[[part.start, part.stop] for part in shard.index], np.asarray(shard.data).tolist()]
                for shard in batch["data"].addressable_shards
            ]
            total = float(jax.jit(lambda array: array.sum())(batch["data"]))
            batches.append(
                {
                    "shape": batch["data"].shape,
                    "shards": shards,
                    "total": total,
                    "sample_id": batch["sample_id"].tolist(),
                    "cache_id": batch["cache_id"].tolist(),
                    "state": iterator.state_dict(),
                }
            )
    # Without a rank given, an index-driven dataset deals by JAX's processes.
    dealt = [int(number) for number in StreamMapDataset(dataset, start=0, decode=lambda sample: sample.sample_id)]
    print(json.dumps({"batches": batches, "dealt": dealt, "position": dataset.position}))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
