"""Datasets, views, iterators and states in any order of events: the core stands where the oracle's model stands.

Every walk plays the same calls on both sides. After each call all datasets and iterators must agree about what they
delivered, where they stand, how long they are and what they would save.
"""

import json

import polars as pl
import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

import dataset_rt as drt
import oracle
from oracle import MODES, REMAINDERS, RefusedError, State, World
from reproducible import REPRODUCIBLE

LENGTHS = st.integers(1, 25)
ROWS = 17


def moving_part(saved):
    """The part of a saved state that the model has, and that it went through JSON."""
    assert json.loads(json.dumps(saved)) == saved
    window = saved["window"]
    return State(saved["position"], saved["epoch_len"], None if window is None else tuple(window))


def identities(delivered):
    """What a core iterator delivered, as (cache_id, sample_id)."""
    if isinstance(delivered, drt.CachedSample):
        return [(delivered.cache_id, delivered.sample_id)]
    columns = (delivered.column(name).to_pylist() for name in ("cache_id", "sample_id"))
    return list(zip(*columns, strict=True))


class Pair:
    """The core's object and the model's."""

    def __init__(self, core, model):
        self.core = core
        self.model = model

    def agree_on_state(self):
        assert moving_part(self.core.state_dict()) == self.model.state()

    def both(self, call_core, call_model, *refusals):
        """Call both sides; give their answers, or None where both refused."""
        try:
            expected = call_model()
        except RefusedError:
            with pytest.raises(refusals or drt.ConfigError):
                call_core()
            return None
        return call_core(), expected


class Walk(RuleBasedStateMachine):
    """One population of two caches, in one mode and with one seed, and whatever is made of it."""

    caches = None
    rows_of = None

    datasets = Bundle("datasets")
    iterators = Bundle("iterators")
    states = Bundle("states")

    @initialize(target=datasets, mode=st.sampled_from(MODES), seed=st.integers(0, 2**64 - 1))
    def begin(self, mode, seed):
        self.mode, self.seed = mode, seed
        self.pairs, self.running = [], []
        pair = self.opened()
        self.first_table = pair.core.get_metadata()
        return pair

    def opened(self):
        core = self.caches.open(7, 10, mode=self.mode, seed=self.seed, prefetch_size=5)
        pair = Pair(core, oracle.Dataset(self.rows_of(core.get_metadata()), self.mode, self.seed))
        self.pairs.append(pair)
        return pair

    @rule(target=datasets)
    def open_again(self):
        return self.opened()

    @rule(target=datasets, pair=datasets)
    def open_in_a_later_run(self, pair):
        """A fresh dataset with the same table and the saved state: what a restart does."""
        later = self.opened()
        self.set_table(later, pair.core.get_metadata(), reset=True)
        self.load(later, (pair.core.state_dict(), pair.model.state(), pair.model.table))
        return later

    @rule(
        target=datasets,
        pair=datasets,
        size=st.integers(1, 5) | st.just(30),
        rank=st.integers(0, 29),
        remainder=st.sampled_from(REMAINDERS),
    )
    def shard(self, pair, size, rank, remainder):
        world = World(rank % size, size, remainder)
        answers = pair.both(
            lambda: pair.core.shard(world.rank, size, remainder=remainder), lambda: pair.model.shard(world)
        )
        if answers is None:
            return multiple()
        self.pairs.append(Pair(*answers))
        return self.pairs[-1]

    @rule(target=datasets, pair=datasets, kept=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=25))
    def with_metadata(self, pair, kept):
        assume(not pair.model.is_view)
        table = self.first_table[kept]
        self.pairs.append(Pair(pair.core.with_metadata(table), pair.model.with_table(self.rows_of(table))))
        return self.pairs[-1]

    @rule(target=iterators, pair=datasets)
    def iterate(self, pair):
        self.running.append(Pair(iter(pair.core), pair.model.iterate()))
        return self.running[-1]

    @rule(target=iterators, pair=datasets, batch_size=st.integers(1, 9) | st.just(64), drop_last=st.booleans())
    def iterate_in_batches(self, pair, batch_size, drop_last):
        core = pair.core.iter_batches(batch_size, drop_last=drop_last)
        self.running.append(Pair(core, pair.model.iterate(batch_size, drop_last=drop_last)))
        return self.running[-1]

    def take_one(self, iterator):
        """Whether there was one."""
        answers = iterator.both(lambda: next(iterator.core, None), iterator.model.next)
        if answers is None:
            return False
        delivered, expected = answers
        if expected is None:
            assert delivered is None
            return False
        assert delivered is not None
        assert identities(delivered) == [row[:2] for row in expected]
        return True

    @rule(iterator=iterators, count=st.integers(1, 8))
    def take(self, iterator, count):
        for _ in range(count):
            more = self.take_one(iterator)
            iterator.agree_on_state()
            if not more:
                break

    @rule(iterator=iterators)
    def take_all(self, iterator):
        while self.take_one(iterator):
            pass

    @rule(pair=datasets)
    def one_epoch(self, pair):
        iterator = self.iterate(pair)
        while self.take_one(iterator):
            pass

    @rule(pair=datasets, length=LENGTHS)
    def set_epoch_len(self, pair, length):
        pair.both(lambda: pair.core.set_epoch_len(length), lambda: pair.model.set_epoch_len(length))

    @rule(
        pair=datasets,
        kept=st.lists(st.integers(0, ROWS - 1), min_size=1, max_size=25),
        weights=st.lists(st.sampled_from([1.0, 2.0, 1e-9]), min_size=25, max_size=25),
        is_equal=st.booleans(),
        reset=st.booleans(),
    )
    def update_metadata(self, pair, kept, weights, is_equal, reset):
        weights = [1.0] * len(kept) if is_equal else weights[: len(kept)]
        self.set_table(pair, self.first_table[kept].with_columns(weight=pl.Series(weights)), reset=reset)

    def set_table(self, pair, table, *, reset):
        rows = self.rows_of(table)
        pair.both(
            lambda: pair.core.update_metadata(table, reset_stream=reset), lambda: pair.model.update(rows, reset=reset)
        )

    @rule(target=states, pair=datasets)
    def save(self, pair):
        return pair.core.state_dict(), pair.model.state(), pair.model.table

    @rule(target=states, iterator=iterators)
    def save_iterator(self, iterator):
        return iterator.core.state_dict(), iterator.model.state(), iterator.model.table

    @rule(target=states, saved=states, position=st.integers(0, 60) | st.just(2**63))
    def move_state(self, saved, position):
        """The same state elsewhere: near the last position, or far out."""
        core, _, table = saved
        moved = {**core, "position": oracle.LAST_END - position, "window": None}
        return moved, moving_part(moved), table

    @rule(pair=datasets, saved=states)
    def load_state_dict(self, pair, saved):
        self.load(pair, saved)

    def load(self, pair, saved):
        core, model, table = saved

        def load_model():
            if oracle.digest_bytes(table, self.mode) != oracle.digest_bytes(pair.model.table, self.mode):
                raise RefusedError("another population")
            pair.model.load(model)

        pair.both(lambda: pair.core.load_state_dict(core), load_model, drt.StateMismatchError)

    @rule(
        pair=datasets,
        changed=st.sampled_from(["seed", "mode", "order_version", "rows", "population", "caches"]),
    )
    def load_a_foreign_state(self, pair, changed):
        state = pair.core.state_dict()
        foreign = {"mode": "another", "population": "0" * 64, "caches": []}.get(changed)
        state[changed] = state[changed] ^ 1 if foreign is None else foreign
        with pytest.raises(drt.StateMismatchError, match=changed):
            pair.core.load_state_dict(state)

    @invariant()
    def both_sides_agree(self):
        for pair in self.pairs:
            assert pair.core.position == pair.model.position
            assert pair.core.epoch_len == pair.model.epoch_len
            assert len(pair.core) == len(pair.model)
            pair.agree_on_state()
        for iterator in self.running:
            iterator.agree_on_state()


def test_any_order_of_events_leaves_the_core_where_the_model_stands(caches, rows_of):
    here = type("Here", (Walk,), {"caches": caches, "rows_of": staticmethod(rows_of)})
    run_state_machine_as_test(
        here,
        settings=settings(REPRODUCIBLE, max_examples=500, stateful_step_count=60),
    )
