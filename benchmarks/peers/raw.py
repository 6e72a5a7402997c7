"""No store at all: one file, `write` and one `fsync`, `os.pread` at offsets known beforehand. A limit, not a peer."""

import os
from itertools import accumulate

from peers.store import Store


class Raw(Store):
    """A bare loop of system calls from Python. It stores no metadata and checks nothing."""

    def write(self) -> int:
        """Write the file and sync it once."""
        self.folder.mkdir(parents=True)
        with (self.folder / "records").open("wb", buffering=0) as file:
            for payload in self.payloads:
                file.write(payload)
            os.fsync(file.fileno())
        return self.payloads.count

    def open(self) -> None:
        """Open the file and compute all offsets."""
        sizes = [len(payload) for payload in self.payloads]
        places = list(zip(sizes, accumulate(sizes, initial=0), strict=False))
        self.places = {"ordered": places, "shuffled": [places[number] for number in self.order()]}
        self.descriptor = os.open(self.folder / "records", os.O_RDONLY)

    def read(self, name: str) -> int:
        """Read one epoch."""
        total = 0
        pread, descriptor = os.pread, self.descriptor
        for size, offset in self.places[name]:
            total += pread(descriptor, size, offset)[0]
        self.total = total
        return len(self.places[name])

    def ordered(self) -> int:
        """Read in order."""
        return self.read("ordered")

    def shuffled(self) -> int:
        """Read shuffled."""
        return self.read("shuffled")
