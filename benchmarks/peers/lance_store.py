"""Lance: one binary column, scanned in order, taken 256 rows at a time shuffled."""

from collections.abc import Iterator

import lance
import pyarrow as pa

from peers.store import Store, batches


class Lance(Store):
    """One dataset of one column; values become `bytes`."""

    schema = pa.schema([pa.field("data", pa.large_binary())])

    def write(self) -> int:
        """Write from a reader of record batches."""
        lance.write_dataset(pa.RecordBatchReader.from_batches(self.schema, self.arrow()), str(self.folder))
        self.sync()
        return self.payloads.count

    def arrow(self) -> Iterator[pa.RecordBatch]:
        """Give the payloads as batches."""
        waiting: list[bytes] = []
        for payload in self.payloads:
            waiting.append(payload)
            if len(waiting) == self.batch_size:
                yield pa.record_batch([pa.array(waiting, pa.large_binary())], schema=self.schema)
                waiting = []
        if waiting:
            yield pa.record_batch([pa.array(waiting, pa.large_binary())], schema=self.schema)

    def open(self) -> None:
        """Open the dataset."""
        self.dataset = lance.dataset(str(self.folder))
        self.wanted = batches(self.order(), self.batch_size)

    def ordered(self) -> int:
        """Scan."""
        total = 0
        for batch in self.dataset.to_batches(batch_size=self.batch_size):
            for payload in batch.column(0).to_pylist():
                total += payload[0]
        self.total = total
        return self.payloads.count

    def shuffled(self) -> int:
        """Take 256 rows at a time."""
        total = 0
        for numbers in self.wanted:
            for payload in self.dataset.take(numbers).column(0).to_pylist():
                total += payload[0]
        self.total = total
        return self.payloads.count
