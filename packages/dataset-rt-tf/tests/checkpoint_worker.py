"""A new process that restores checkpoints, and says what each restored iterator delivers.

Arguments: one JSON object: the cache's path, the configuration, the loader's arguments, and checkpoint paths.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import pyarrow as pa
import tensorflow as tf

import dataset_rt as drt
import dataset_rt_tf as drt_tf

ARRAYS = drt.array_decoder("uint8", (4,), metadata=("label",))


def one_batch(batch: pa.RecordBatch) -> dict[str, Any]:
    """Decode as a function of the user's does, which is given one batch at a time."""
    return ARRAYS(batch)


DECODED = {"columns": None, "arrays": ARRAYS, "own": one_batch}


def main() -> None:
    """Print a JSON list of lists of sample ids, one for each checkpoint."""
    request = json.loads(sys.argv[1])
    runtime = drt.DatasetRuntime(num_workers=2)
    tails = []
    for path in request["checkpoints"]:
        dataset = runtime.cached_dataset([request["cache"]], reader_config=drt.ReaderConfig(**request["config"]))
        state = drt_tf.StreamState()
        loader = {"decode_batch": DECODED[request["decoded"]], **request["loader"]}
        batches = drt_tf.as_dataset(dataset, request["batch_size"], state=state, **loader)
        iterator = iter(batches.repeat(request["repeat"]).prefetch(request["ahead"]))
        tf.train.Checkpoint(iterator=iterator, stream=state).restore(path).assert_consumed()
        ids = [batch["sample_id"].numpy().tolist() for batch in iterator]
        # The next loop goes on behind the restored one.
        ids += [batch["sample_id"].numpy().tolist() for batch in batches]
        tails.append(ids)
    print(json.dumps(tails))


if __name__ == "__main__":
    main()
