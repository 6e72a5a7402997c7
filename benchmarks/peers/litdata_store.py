"""litdata: chunks written through its `Cache`, read back by a `StreamingDataset` on the local folder."""

import litdata
from litdata.streaming import Cache

from peers.store import Store


class Litdata(Store):
    """Payloads as bytes, in chunks of 64 MB."""

    def write(self) -> int:
        """Write sample by sample in this process: `optimize` first starts workers, which costs it seconds."""
        self.folder.mkdir(parents=True)
        cache = Cache(str(self.folder), chunk_bytes="64MB")
        for number, payload in enumerate(self.payloads):
            cache[number] = payload
        cache.done()
        cache.merge()
        self.sync()
        return self.payloads.count

    def open(self) -> None:
        """Open the folder twice."""
        self.datasets = {
            shuffle: litdata.StreamingDataset(str(self.folder), shuffle=shuffle) for shuffle in (False, True)
        }

    def epoch(self, *, shuffle: bool) -> int:
        """Iterate one epoch."""
        total = 0
        for payload in self.datasets[shuffle]:
            total += payload[0]
        self.total = total
        return self.payloads.count

    def ordered(self) -> int:
        """Iterate in order."""
        return self.epoch(shuffle=False)

    def shuffled(self) -> int:
        """Iterate by its own shuffle: chunks in random order, and the samples within each."""
        return self.epoch(shuffle=True)
