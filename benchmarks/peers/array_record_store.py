"""array_record: groups of one record, as its documentation wants for random access, read 256 at a time."""

from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter

from peers.store import Store, batches


class ArrayRecord(Store):
    """One file; uncompressed, because the payloads are incompressible."""

    def write(self) -> int:
        """Write record by record."""
        self.folder.mkdir(parents=True)
        writer = ArrayRecordWriter(str(self.folder / "records.array_record"), "group_size:1,uncompressed")
        for payload in self.payloads:
            writer.write(payload)
        writer.close()
        self.sync()
        return self.payloads.count

    def open(self) -> None:
        """Open twice: with readahead for the order, without for random access, as documented."""
        path = str(self.folder / "records.array_record")
        self.sequential = ArrayRecordReader(path)
        self.random = ArrayRecordReader(path, "readahead_buffer_size:0,max_parallelism:0")
        self.wanted = batches(self.order(), self.batch_size)

    def ordered(self) -> int:
        """Read ranges of 256."""
        total = 0
        count = self.payloads.count
        for start in range(0, count, self.batch_size):
            for payload in self.sequential.read(start, min(start + self.batch_size, count)):
                total += payload[0]
        self.total = total
        return count

    def shuffled(self) -> int:
        """Read lists of 256 numbers."""
        total = 0
        for numbers in self.wanted:
            for payload in self.random.read(numbers):
                total += payload[0]
        self.total = total
        return self.payloads.count
