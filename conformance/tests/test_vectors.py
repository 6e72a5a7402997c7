"""The vectors, which neither the core nor the oracle made: both must give every number in them."""

from itertools import chain, zip_longest

import pytest
from blake3 import blake3

import dataset_rt as drt
import oracle
from dataset_rt import _core
from oracle import ORDERED, PERMUTATION, REPLACEMENT, Row, Stream, World


def words(texts):
    return [int(text, 16) for text in texts]


def test_the_vectors_have_every_section(vectors):
    sections = {name: len(cases) for name, cases in vectors.items() if name != "about"}
    assert sections == {
        "philox4x64_10": 4,
        "mix": 5,
        "replacement": 17,
        "permutation": 8,
        "ordered": 1,
        "sharding": 11,
        "canonical": 1,
    }


def test_philox(vectors):
    for case in vectors["philox4x64_10"]:
        counter, key, expected = words(case["counter"]), words(case["key"]), words(case["out"])
        assert oracle.philox(counter, key) == expected
        assert _core.philox(counter, key) == expected


def test_mix(vectors):
    for case in vectors["mix"]:
        assert oracle.mix(int(case["in"], 16)) == int(case["out"], 16)


def test_drawing_with_replacement(vectors):
    for case in vectors["replacement"]:
        name, weights = case["name"], case["weights"]
        seed, start, total = int(case["seed"], 16), int(case["start"], 16), int(case["total"])
        integers, rows = [int(text) for text in case["integer_weights"]], case["rows"]

        stream = Stream(REPLACEMENT, seed, weights)
        assert stream.integers == integers, name
        assert sum(integers) == total < 2**63, name
        assert [stream.row(start + draw) for draw in range(len(rows))] == rows, name

        assert _core.integer_weights(weights) == (integers, total), name
        assert _core.rows(REPLACEMENT, seed, weights, start, len(rows)) == rows, name
        for draw, expected in enumerate(case["r"]):
            assert oracle.point(seed, start + draw, total) == int(expected), name
            assert _core.point(seed, start + draw, total) == int(expected), name


def test_permutations(vectors):
    for case in vectors["permutation"]:
        population, seed, start, rows = case["n"], int(case["seed"], 16), int(case["start"]), case["rows"]
        positions = range(start, start + len(rows))
        assert [oracle.permuted_row(seed, position, population) for position in positions] == rows, case["name"]
        assert _core.rows_of_equal(PERMUTATION, seed, population, start, len(rows)) == rows, case["name"]


def test_table_order(vectors):
    for case in vectors["ordered"]:
        population, start, rows = case["n"], int(case["start"]), case["rows"]
        stream = Stream(ORDERED, 0, [1.0] * population)
        assert [stream.row(start + draw) for draw in range(len(rows))] == rows
        assert _core.rows_of_equal(ORDERED, 0, population, start, len(rows)) == rows


def test_sharding_by_the_oracle(vectors):
    for case in vectors["sharding"]:
        start, length, size, rule = (case[name] for name in ("window_start", "epoch_len", "world_size", "remainder"))
        worlds = [World(rank, size, rule) for rank in range(size)]
        assert [list(world.draws(start, length)) for world in worlds] == case["positions"]
        assert {start + world.stride(length) for world in worlds} == {case["next_window_start"]}


def test_sharding_of_a_dataset(vectors, caches):
    # In table order over more samples than the draws of any case, a sample's number is its draw.
    for case in vectors["sharding"]:
        start, length, size, rule = (case[name] for name in ("window_start", "epoch_len", "world_size", "remainder"))
        whole = caches.open(100, mode=ORDERED, seed=0)
        if start:
            whole.set_epoch_len(start)
            assert len(list(whole)) == start
        whole.set_epoch_len(length)
        found = []
        for rank in range(size):
            view = whole.shard(rank, size, remainder=rule)
            assert len(view) == len(case["positions"][rank])
            found.append([sample.sample_id for sample in view])
            assert view.position == case["next_window_start"]
        assert found == case["positions"]
        dealt = [number for number in chain(*zip_longest(*found)) if number is not None]
        assert dealt == list(range(start, case["next_window_start"]))


def test_canonical_numbering_and_both_digests_by_the_oracle(vectors):
    # No real cache has the identities 9 and 4: the core is held to the oracle in test_population.py.
    for case in vectors["canonical"]:
        table = [Row(int(cache), int(sample), weight) for cache, sample, weight in case["table"]]
        assert oracle.number_population(table, REPLACEMENT) == case["table_row_of_population_row"]
        for mode in (REPLACEMENT, PERMUTATION):
            assert blake3(oracle.digest_bytes(table, mode)).hexdigest() == case["digest_shuffled"]
        assert blake3(oracle.digest_bytes(table, ORDERED)).hexdigest() == case["digest_ordered"]


@pytest.mark.parametrize("rule", oracle.REMAINDERS)
def test_an_epoch_with_fewer_draws_than_ranks_is_refused_under_drop_alone(rule, caches):
    dataset = caches.open(7, mode=ORDERED, seed=0)
    if rule == "drop":
        with pytest.raises(oracle.RefusedError):
            World(0, 8, rule).check(7)
        with pytest.raises(drt.ConfigError, match="world size 8"):
            dataset.shard(0, 8, remainder=rule)
    else:
        World(0, 8, rule).check(7)
        assert len(dataset.shard(0, 8, remainder=rule)) == 1
