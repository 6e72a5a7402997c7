"""What every contender that stores payloads can be asked for. Standard library alone."""

import os
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from harness.payloads import payloads_of, shuffled_order


class Store(ABC):
    """Payloads on disk; each method is one measurement or prepares one.

    A read is a plain Python loop that looks at the first byte of each payload and adds it to `total`, by which the
    harness sees that all contenders read the same.

    Args:
        folder: where this contender's files go; it owns the folder.
        payloads: as `Payloads.described` gives them.
    """

    # How many records a contender that reads in batches asks for at once.
    batch_size = 256

    def __init__(self, folder: str, payloads: dict[str, Any]) -> None:
        self.folder = Path(folder)
        self.payloads = payloads_of(payloads)
        self.total = 0

    def clear(self) -> None:
        """Remove what an earlier write left, and let nobody's dirty pages be this write's to wait for."""
        shutil.rmtree(self.folder, ignore_errors=True)
        os.sync()

    @abstractmethod
    def write(self) -> int:
        """Store all payloads, synced to disk; give their number."""

    @abstractmethod
    def open(self) -> None:
        """Open for reading."""

    @abstractmethod
    def ordered(self) -> int:
        """Read every payload in order; give their number."""

    @abstractmethod
    def shuffled(self) -> int:
        """Read as many payloads as there are, in random order; give their number."""

    def first_bytes(self) -> int:
        """Give the sum of the first bytes that the last read looked at."""
        return self.total

    def stored_bytes(self) -> int:
        """Give the size of all files."""
        return sum(path.stat().st_size for path in self.folder.rglob("*") if path.is_file())

    def order(self) -> list[int]:
        """Give the record numbers of the shuffled reads, with replacement, for contenders that are told them."""
        return shuffled_order(self.payloads.count, self.payloads.count)

    def sync(self) -> None:
        """Sync every file, for libraries that leave that to the system; ours and lmdb do it themselves."""
        for path in self.folder.rglob("*"):
            if path.is_file():
                descriptor = os.open(path, os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)


def batches(numbers: list[int], size: int) -> list[list[int]]:
    """Cut a list into lists of `size`; the last may be shorter."""
    return [numbers[start : start + size] for start in range(0, len(numbers), size)]
