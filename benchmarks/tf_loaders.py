"""`as_dataset` beside TFRecord, in one kind of tf.data graph.

Each contender delivers shuffled batches of 256 to a loop: `data`, uint8 of shape [256, size], and `label`, int64.
TFRecord is C++ throughout, shuffles within a buffer of 1,000 samples, which is all that it can, and is measured twice:
with records of eight bytes of label and the payload, which nothing parses faster, and with `tf.train.Example`, as its
guide has it. dataset-rt draws from all of the data and verifies every record's checksum.

    nox -s "loaders(adapter='tf')"                              # everything, in an environment of its own
    nox -s "loaders(adapter='tf')" -- --rounds 1 --scale 0.1    # a short look
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.environments import Environment, core_wheel, installed_version
from harness.machine import machine_line
from harness.paths import DIST
from harness.payloads import RandomPayloads, payloads_of
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import figures_table, ratios_table, update_section
from harness.worker import Worker

PART = "tf-loaders"
BATCH = 256
SEED = 1
BUFFER = 1_000
# Size in bytes, and samples stored.
SIZES = {"1 KiB": (1_024, 200_000), "100 KiB": (102_400, 8_000)}
# Contender: class, and the arguments of its method `read`.
CONTENDERS: dict[str, tuple[str, dict[str, Any]]] = {
    "dataset-rt": ("DatasetRT", {"way": "batches"}),
    "dataset-rt, decode of one's own": ("DatasetRT", {"way": "samples"}),
    "dataset-rt, from_generator": ("DatasetRT", {"way": "generator"}),
    "TFRecord, plain records": ("PlainRecords", {}),
    "TFRecord, tf.train.Example": ("Examples", {}),
}


class Contender:
    """Stores the payloads below a folder and reads them through tf.data; runs in a worker."""

    def __init__(self, folder: str, payloads: dict[str, Any]) -> None:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
        self.payloads = payloads_of(payloads)
        self.folder = Path(folder) / type(self).__name__
        self.folder.mkdir(parents=True, exist_ok=True)
        self.pipelines: dict[str, Any] = {}
        self.write()

    def write(self) -> None:
        """Store payloads and labels."""
        raise NotImplementedError

    def pipeline(self, way: str) -> Any:
        """Make what the loop iterates, once: a training makes it once, too."""
        raise NotImplementedError

    def read(self, *, way: str = "") -> int:
        """Take an epoch of batches and look at the shape of each; give how many samples came."""
        if way not in self.pipelines:
            self.pipelines[way] = self.pipeline(way)
        taken = 0
        for batch in self.pipelines[way]:
            count = int(batch["label"].shape[0])
            assert batch["data"].shape == (count, self.payloads.largest)
            taken += count
        return taken


class DatasetRT(Contender):
    """Draws with replacement."""

    def write(self) -> None:
        """Write a cache, unless an earlier worker has."""
        from harness.labelled_cache import labelled_cache

        self.dataset = labelled_cache(self.payloads, self.folder, seed=SEED)

    def pipeline(self, way: str) -> Any:
        """Whole batches, samples decoded one by one, or single samples that tf.data batches."""
        import numpy as np
        import tensorflow as tf

        import dataset_rt as drt
        from dataset_rt_tf import as_dataset, from_generator

        decode_batch = drt.array_decoder("uint8", (self.payloads.largest,), metadata=["label"])
        if way == "batches":
            return as_dataset(self.dataset, BATCH, decode_batch=decode_batch)
        if way == "generator":
            return from_generator(self.dataset, decode_batch=decode_batch).batch(BATCH).prefetch(tf.data.AUTOTUNE)

        def decode(sample: drt.CachedSample) -> dict[str, Any]:
            return {"data": np.frombuffer(sample.data, np.uint8), "label": sample.metadata["label"]}

        return as_dataset(self.dataset, BATCH, decode=decode)


class PlainRecords(Contender):
    """A record is eight bytes of label, then the payload."""

    def record(self, number: int, payload: bytes) -> bytes:
        """Encode one sample."""
        return (number % 10).to_bytes(8, "little") + payload

    def parse(self, records: Any) -> dict[str, Any]:
        """Decode a batch in C++."""
        import tensorflow as tf

        rows = tf.io.decode_raw(records, tf.uint8)
        data = tf.ensure_shape(rows[:, 8:], (None, self.payloads.largest))
        return {"data": data, "label": tf.bitcast(rows[:, :8], tf.int64)}

    def write(self) -> None:
        """Write one uncompressed file."""
        import tensorflow as tf

        with tf.io.TFRecordWriter(str(self.folder / "records")) as writer:
            for number, payload in enumerate(self.payloads):
                writer.write(self.record(number, payload))

    def pipeline(self, way: str) -> Any:  # noqa: ARG002  (there is one way)
        """Batch before parsing, in parallel, with a large read buffer: the fast order."""
        import tensorflow as tf

        records = tf.data.TFRecordDataset(str(self.folder / "records"), buffer_size=8 << 20)
        batches = records.shuffle(BUFFER).batch(BATCH).map(self.parse, num_parallel_calls=tf.data.AUTOTUNE)
        return batches.prefetch(tf.data.AUTOTUNE)


class Examples(PlainRecords):
    """A record is a `tf.train.Example`."""

    def record(self, number: int, payload: bytes) -> bytes:
        """Encode one sample."""
        import tensorflow as tf

        data = tf.train.Feature(bytes_list=tf.train.BytesList(value=[payload]))
        label = tf.train.Feature(int64_list=tf.train.Int64List(value=[number % 10]))
        features = tf.train.Features(feature={"data": data, "label": label})
        return bytes(tf.train.Example(features=features).SerializeToString())

    def parse(self, records: Any) -> dict[str, Any]:
        """Decode a batch in C++."""
        import tensorflow as tf

        fields = {name: tf.io.FixedLenFeature([], kind) for name, kind in (("data", tf.string), ("label", tf.int64))}
        parsed = tf.io.parse_example(records, fields)
        rows = tf.io.decode_raw(parsed["data"], tf.uint8)
        return {"data": tf.ensure_shape(rows, (None, self.payloads.largest)), "label": parsed["label"]}


def read_rate(worker: Worker, way: dict[str, Any]) -> float:
    """Samples a second of one epoch of a contender."""
    return worker.call("read", **way).rate


def measure(python: Path, subject: str, folder: Path, *, rounds: int, scale: float) -> Row:
    """Measure every contender at one payload size."""
    size, count = SIZES[subject]
    arguments = {"folder": str(folder), "payloads": RandomPayloads(size, max(BATCH, int(count * scale))).described()}
    workers = {
        kind: Worker(python, f"tf_loaders:{kind}", arguments)
        for kind in dict.fromkeys(kind for kind, _ in CONTENDERS.values())
    }
    try:
        calls: dict[str, Callable[[], float]] = {
            name: partial(read_rate, workers[kind], way) for name, (kind, way) in CONTENDERS.items()
        }
        for call in calls.values():
            call()  # Not counted: it warms the page cache, and TensorFlow's tuning of parallelism.
        outcome = interleave(calls, rounds=rounds)
    finally:
        for worker in workers.values():
            worker.close()
    return Row(subject, "shuffled, batches of 256", "samples/s", outcome.figures, outcome.failed)


def main() -> None:
    """Measure, save the figures, and put the tables into the README."""
    parser = argparse.ArgumentParser(description="Measure tf.data over dataset-rt beside TFRecord.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of samples")
    given = parser.parse_args()

    (adapter,) = DIST.glob("dataset_rt_tf-*.whl")
    python = Environment("tf-loaders", (core_wheel(), f"{adapter}[tensorflow-cpu]")).make()
    tensorflow = installed_version(python, "tensorflow-cpu")
    versions = {
        "dataset-rt": installed_version(python, "dataset-rt"),
        "TFRecord, plain records": tensorflow,
        "TFRecord, tf.train.Example": tensorflow,
    }
    rows = []
    for subject in SIZES:
        with tempfile.TemporaryDirectory(prefix="tf-loaders-") as folder:
            rows.append(measure(python, subject, Path(folder), rounds=given.rounds, scale=given.scale))
    result = Result(PART, machine_line(), versions, given.rounds, given.scale, rows)
    tables = [figures_table(result), ratios_table(result, reference="dataset-rt")]
    print("\n".join(tables))
    if given.scale == 1.0:
        result.save()
        update_section(PART, "\n".join([f"{result.machine}; {given.rounds} interleaved rounds.\n", *tables]))


if __name__ == "__main__":
    main()
