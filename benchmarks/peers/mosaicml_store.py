"""mosaicml-streaming: MDS shards on the local disk."""

from collections.abc import Iterable

from streaming import MDSWriter, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from peers.store import Store


class Mosaicml(Store):
    """One `bytes` column in shards of 64 MiB, uncompressed and without hashes."""

    def write(self) -> int:
        """Write sample by sample."""
        with MDSWriter(out=str(self.folder), columns={"data": "bytes"}) as writer:
            for payload in self.payloads:
                writer.write({"data": payload})
        self.sync()
        return self.payloads.count

    def open(self) -> None:
        """Open the folder."""
        clean_stale_shared_memory()
        self.dataset = StreamingDataset(local=str(self.folder), shuffle=False, batch_size=1)
        self.numbers = self.order()

    def read(self, numbers: Iterable[int]) -> int:
        """Ask for each record, which is faster than iterating: that goes through threads that poll."""
        total = 0
        dataset = self.dataset
        for number in numbers:
            total += dataset[number]["data"][0]
        self.total = total
        return self.payloads.count

    def ordered(self) -> int:
        """Read in order."""
        return self.read(range(self.payloads.count))

    def shuffled(self) -> int:
        """Read shuffled."""
        return self.read(self.numbers)
