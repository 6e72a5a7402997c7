"""lmdb as its documentation makes it fastest: one transaction, a cursor in order, `get` for known keys."""

from collections.abc import Callable
from typing import cast

import lmdb

from harness.payloads import shuffled_order
from peers.store import Store


class Lmdb(Store):
    """One environment, one read transaction for all reads. It checks nothing."""

    keys: list[bytes]

    def environment(self, *, readonly: bool, readahead: bool = True) -> lmdb.Environment:
        """Open with room for the payloads, a page more for each."""
        room = 2 * (self.payloads.total_bytes + 8192 * self.payloads.count) + (1 << 20)
        self.folder.mkdir(parents=True, exist_ok=True)
        return lmdb.open(str(self.folder), map_size=room, lock=False, readonly=readonly, readahead=readahead)

    def write(self) -> int:
        """Write everything in one transaction, synced when it commits."""
        with self.environment(readonly=False) as environment, environment.begin(write=True) as transaction:
            for number, payload in enumerate(self.payloads):
                transaction.put(number.to_bytes(8, "big"), payload, append=True)
        return self.payloads.count

    def open(self) -> None:
        """Begin the read transaction."""
        self.begin(readahead=True)

    def open_cold(self, draws: int) -> None:
        """The same without the system's readahead, which lmdb recommends for random reads of more than memory holds."""
        self.begin(readahead=False)
        self.keys = self.keys_of(draws)

    def begin(self, *, readahead: bool) -> None:
        """Begin the read transaction."""
        self.keys = []
        self.opened = self.environment(readonly=True, readahead=readahead)
        self.transaction = self.opened.begin()

    def keys_of(self, draws: int) -> list[bytes]:
        """Give the keys of so many shuffled draws."""
        return [number.to_bytes(8, "big") for number in shuffled_order(self.payloads.count, draws)]

    def ordered(self) -> int:
        """Go through with a cursor."""
        total = 0
        for payload in self.transaction.cursor().iternext(keys=False, values=True):
            total += payload[0]
        self.total = total
        return self.payloads.count

    def shuffled(self) -> int:
        """Get each key; they are made by the first call, which is not counted, or by `open_cold`."""
        if not self.keys:
            self.keys = self.keys_of(self.payloads.count)
        return self.get(self.keys)

    def get(self, keys: list[bytes]) -> int:
        """Get keys."""
        total = 0
        # The cast only tells the type checker that every key is there; it costs the loop nothing.
        get = cast("Callable[[bytes], bytes]", self.transaction.get)
        for key in keys:
            total += get(key)[0]
        self.total = total
        return len(keys)
