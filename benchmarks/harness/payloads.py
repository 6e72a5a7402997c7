"""The bytes that all contenders store: described as JSON, made again in each worker. Standard library alone."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

SEED = 20_240_229


class Payloads(Protocol):
    """Payloads in order.

    Attributes:
        count: how many.
        total_bytes: their sizes added up.
        largest: the largest size in bytes.
    """

    count: int
    total_bytes: int
    largest: int

    def __iter__(self) -> Iterator[bytes]:
        """Give each payload."""

    def __getitem__(self, number: int) -> bytes:
        """Give one payload."""

    def described(self) -> dict[str, Any]:
        """Give what `payloads_of` makes the same payloads from."""


@dataclass
class RandomPayloads:
    """Incompressible payloads of one size, cut from one block so that making them costs next to nothing while timed.

    Attributes:
        size: bytes of each.
        count: how many.
    """

    size: int
    count: int

    def __post_init__(self) -> None:
        """Make the block; each payload begins one byte later in it than the one before."""
        self.block = random.Random(SEED).randbytes(self.size + self.count)
        self.total_bytes = self.size * self.count
        self.largest = self.size

    def __iter__(self) -> Iterator[bytes]:
        """Give each payload."""
        for start in range(self.count):
            yield self.block[start : start + self.size]

    def __getitem__(self, number: int) -> bytes:
        """Give one payload."""
        return self.block[number : number + self.size]

    def described(self) -> dict[str, Any]:
        """Give size and count."""
        return {"size": self.size, "count": self.count}


class PackedPayloads:
    """Payloads of any sizes, read from a file into memory; `pack` makes the file.

    Args:
        path: the file with the payloads end to end; its neighbour with `.json` added lists their sizes.
        count: only the first so many; all if left out.
    """

    def __init__(self, path: Path, count: int | None = None) -> None:
        self.path = path
        sizes: list[int] = json.loads(path.with_name(f"{path.name}.json").read_text())[:count]
        everything = path.read_bytes()
        self.payloads: list[bytes] = []
        start = 0
        for size in sizes:
            self.payloads.append(everything[start : start + size])
            start += size
        self.count = len(sizes)
        self.total_bytes = sum(sizes)
        self.largest = max(sizes)

    def __iter__(self) -> Iterator[bytes]:
        """Give each payload."""
        return iter(self.payloads)

    def __getitem__(self, number: int) -> bytes:
        """Give one payload."""
        return self.payloads[number]

    def described(self) -> dict[str, Any]:
        """Give the file's path and the number of payloads."""
        return {"path": str(self.path), "count": self.count}


def pack(payloads: list[bytes], path: Path) -> PackedPayloads:
    """Write payloads to a file and open it as `PackedPayloads`."""
    path.write_bytes(b"".join(payloads))
    path.with_name(f"{path.name}.json").write_text(json.dumps([len(payload) for payload in payloads]))
    return PackedPayloads(path)


def payloads_of(described: dict[str, Any]) -> Payloads:
    """Make the payloads that a description names."""
    if "path" in described:
        return PackedPayloads(Path(described["path"]), described["count"])
    return RandomPayloads(**described)


def shuffled_order(count: int, draws: int) -> list[int]:
    """Give record numbers in [0, count), drawn with replacement: the same list in every process."""
    draw = random.Random(SEED).randrange
    return [draw(count) for _ in range(draws)]
