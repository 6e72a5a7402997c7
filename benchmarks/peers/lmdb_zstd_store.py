"""lmdb with values compressed by the user, by one context that is kept."""

from typing import Any

import zstandard

from peers.lmdb_store import Lmdb


class LmdbZstd(Lmdb):
    """zstd at level 3 for each value, which is what dataset-rt uses too."""

    def __init__(self, folder: str, payloads: dict[str, Any]) -> None:
        super().__init__(folder, payloads)
        self.decompress = zstandard.ZstdDecompressor().decompress

    def write(self) -> int:
        """Write everything in one transaction."""
        compress = zstandard.ZstdCompressor(level=3).compress
        with self.environment(readonly=False) as environment, environment.begin(write=True) as transaction:
            for number, payload in enumerate(self.payloads):
                transaction.put(number.to_bytes(8, "big"), compress(payload), append=True)
        return self.payloads.count

    def ordered(self) -> int:
        """Go through with a cursor."""
        total = 0
        decompress = self.decompress
        for value in self.transaction.cursor().iternext(keys=False, values=True):
            total += decompress(value)[0]
        self.total = total
        return self.payloads.count

    def get(self, keys: list[bytes]) -> int:
        """Get and decompress keys."""
        total = 0
        get, decompress = self.transaction.get, self.decompress
        for key in keys:
            total += decompress(get(key))[0]
        self.total = total
        return len(keys)
