"""Walks: what happens to datasets, views and iterators, event by event, with the answers that must come.

A walk is data (`testdata/order/walks_v1.json`), so an implementation in any language can be held to it. `play` performs
one on whatever offers the calls of `Dataset` and `Iterator` below; the oracle is one such side, the core another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import oracle
from oracle import Row

Event = dict[str, Any]
# Cache, counted in the order given, and sample.
Identity = tuple[int, int]


class Iterator(Protocol):
    """One side's iterator."""

    def take(self) -> list[Identity] | None:
        """The next sample or batch; None at the end."""

    def state(self) -> Event:
        """Its state: `position`, `epoch_len`, `window`."""


class Dataset(Protocol):
    """One side's dataset or view."""

    def shard(self, rank: int, size: int, remainder: str) -> Dataset:
        """A rank's view."""

    def iterate(self, batch_size: int | None, *, drop_last: bool) -> Iterator:
        """An iterator, over samples if there is no batch size."""

    def set_epoch_len(self, epoch_len: int) -> None:
        """Set the length of later windows."""

    def update(self, table: list[tuple[int, float]], *, reset: bool) -> None:
        """Keep these rows of the first table, with these weights."""

    def resume(self) -> Dataset:
        """A fresh dataset with the same table and this one's saved state: a restart."""

    def position(self) -> int:
        """Where the next iterator starts."""

    def length(self) -> int:
        """What `len` says."""

    def state(self) -> Event:
        """Its state: `position`, `epoch_len`, `window`."""


def state_as_json(state: oracle.State) -> Event:
    """A state as walks write it."""
    window = None if state.window is None else list(state.window)
    return {"position": state.position, "epoch_len": state.epoch_len, "window": window}


class OracleIterator:
    """The oracle's side of an iterator."""

    def __init__(self, model: oracle.Iterator, cache_ids: list[int]) -> None:
        self.model = model
        self.cache_ids = cache_ids

    def take(self) -> list[Identity] | None:
        """See `Iterator`."""
        rows = self.model.next()
        return None if rows is None else [(self.cache_ids.index(row.cache_id), row.sample_id) for row in rows]

    def state(self) -> Event:
        """See `Iterator`."""
        return state_as_json(self.model.state())


class OracleDataset:
    """The oracle's side of a dataset."""

    def __init__(self, model: oracle.Dataset, first_table: list[Row], cache_ids: list[int]) -> None:
        self.model = model
        self.first_table = first_table
        self.cache_ids = cache_ids

    @classmethod
    def open(cls, caches: list[tuple[int, int]], mode: str, seed: int) -> OracleDataset:
        """Open caches, given as (cache_id, samples)."""
        table = [Row(cache_id, sample, 1.0) for cache_id, samples in caches for sample in range(samples)]
        return cls(oracle.Dataset(table, mode, seed), table, [cache_id for cache_id, _ in caches])

    def beside(self, model: oracle.Dataset) -> OracleDataset:
        """Another dataset over the same caches."""
        return OracleDataset(model, self.first_table, self.cache_ids)

    def shard(self, rank: int, size: int, remainder: str) -> OracleDataset:
        """See `Dataset`."""
        return self.beside(self.model.shard(oracle.World(rank, size, remainder)))

    def iterate(self, batch_size: int | None, *, drop_last: bool) -> OracleIterator:
        """See `Dataset`."""
        return OracleIterator(self.model.iterate(batch_size, drop_last=drop_last), self.cache_ids)

    def set_epoch_len(self, epoch_len: int) -> None:
        """See `Dataset`."""
        self.model.set_epoch_len(epoch_len)

    def update(self, table: list[tuple[int, float]], *, reset: bool) -> None:
        """See `Dataset`."""
        self.model.update([self.first_table[row]._replace(weight=weight) for row, weight in table], reset=reset)

    def resume(self) -> OracleDataset:
        """See `Dataset`."""
        later = oracle.Dataset(self.model.table, self.model.mode, self.model.seed)
        later.load(self.model.state())
        return self.beside(later)

    def position(self) -> int:
        """See `Dataset`."""
        return self.model.position

    def length(self) -> int:
        """See `Dataset`."""
        return len(self.model)

    def state(self) -> Event:
        """See `Dataset`."""
        return state_as_json(self.model.state())


def play(events: list[Event], first: Dataset) -> list[Event]:
    """Perform the events on a side; give them again with that side's answers.

    Args:
        events: Each has `do` and the names of what it concerns; see `testdata/order/README.md`.
        first: The dataset that the walk calls "data", at position 0.
    """
    datasets: dict[str, Dataset] = {"data": first}
    iterators: dict[str, tuple[str, Iterator]] = {}
    answered = []
    for event in events:
        asked = {name: value for name, value in event.items() if name not in ANSWERS}
        answers, of = perform(asked, datasets, iterators)
        dataset = datasets[of]
        answers |= {"position": dataset.position(), "len": dataset.length(), "state": dataset.state()}
        answered.append(asked | answers)
    return answered


ANSWERS = ("delivers", "iterator_state", "position", "len", "state")


def perform(
    event: Event, datasets: dict[str, Dataset], iterators: dict[str, tuple[str, Iterator]]
) -> tuple[Event, str]:
    """Perform one event; give its own answers and the name of the dataset that it concerns."""
    do = event["do"]
    if do == "take":
        of, iterator = iterators[event["iterator"]]
        delivered: list[Any] = []
        for _ in range(event["count"]):
            delivered.append(iterator.take())
            if delivered[-1] is None:
                break
        return {"delivers": delivered, "iterator_state": iterator.state()}, of
    of = event["of"]
    dataset = datasets[of]
    if do == "iterate":
        iterators[event["as"]] = (of, dataset.iterate(event["batch_size"], drop_last=event["drop_last"]))
        return {"iterator_state": iterators[event["as"]][1].state()}, of
    actions: dict[str, Callable[[], Dataset | None]] = {
        "shard": lambda: dataset.shard(event["rank"], event["size"], event["remainder"]),
        "resume": dataset.resume,
        "set_epoch_len": lambda: dataset.set_epoch_len(event["epoch_len"]),
        "update": lambda: dataset.update(event["table"], reset=event["reset"]),
    }
    made = actions[do]()
    if made is None:
        return {}, of
    datasets[event["as"]] = made
    return {}, event["as"]
