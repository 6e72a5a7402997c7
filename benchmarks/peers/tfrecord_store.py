"""TFRecord through tf.data, in batches of 256; shuffled within a buffer of 1,000, which is all that it can."""

from typing import Any

import tensorflow as tf

from peers.store import Store


class TfRecord(Store):
    """One uncompressed file."""

    def write(self) -> int:
        """Write record by record."""
        self.folder.mkdir(parents=True)
        with tf.io.TFRecordWriter(str(self.folder / "records.tfrecord")) as writer:
            for payload in self.payloads:
                writer.write(payload)
        self.sync()
        return self.payloads.count

    def open(self) -> None:
        """Describe both pipelines."""
        records = tf.data.TFRecordDataset(str(self.folder / "records.tfrecord"), buffer_size=8 << 20)
        self.pipelines = {
            "ordered": records.batch(self.batch_size).prefetch(tf.data.AUTOTUNE),
            "shuffled": records.shuffle(1000).batch(self.batch_size).prefetch(tf.data.AUTOTUNE),
        }

    def read(self, pipeline: Any) -> int:
        """Run a pipeline to its end."""
        total = 0
        for batch in pipeline.as_numpy_iterator():
            for payload in batch:
                total += payload[0]
        self.total = total
        return self.payloads.count

    def ordered(self) -> int:
        """Read in order."""
        return self.read(self.pipelines["ordered"])

    def shuffled(self) -> int:
        """Read through the buffer."""
        return self.read(self.pipelines["shuffled"])
