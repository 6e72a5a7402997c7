"""Edited tables: numbering, digest and draws of real caches are the oracle's."""

import struct
from itertools import accumulate

import polars as pl
import pytest
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle import MODES, ORDERED, PERMUTATION, Row, Stream
from reproducible import REPRODUCIBLE

weights = st.sampled_from([1.0, 1.0, 0.5, 2.0, 1e-12, 1e12, 1e-300, 1e300, 5e-324, 0.1])


@st.composite
def edits(draw, rows):
    """Rows to keep, in any order and repeated as often as it comes, each with a weight; or all with one weight."""
    kept = draw(st.lists(st.integers(0, rows - 1), min_size=1, max_size=30))
    if draw(st.booleans()):
        return kept, [draw(weights)] * len(kept)
    return kept, draw(st.lists(weights, min_size=len(kept), max_size=len(kept)))


def record_number(row, caches):
    """Records count the samples of all caches in ascending order of `cache_id`."""
    sizes = sorted((cache_id, samples) for cache_id, samples in caches.items())
    starts = dict(zip((cache_id for cache_id, _ in sizes), accumulate((n for _, n in sizes), initial=0), strict=False))
    return starts[row.cache_id] + row.sample_id


@settings(REPRODUCIBLE, max_examples=400)
@given(
    mode=st.sampled_from(MODES),
    edit=edits(17),
    swapped=st.booleans(),
    seed=st.integers(0, 2**64 - 1),
    start=st.integers(0, 2**64 - 20),
)
def test_an_edited_table_draws_what_the_oracle_draws(caches, rows_of, mode, edit, swapped, seed, start):
    kept, new_weights = edit
    if mode == PERMUTATION:
        new_weights = [new_weights[0]] * len(kept)
    dataset = caches.open(*((10, 7) if swapped else (7, 10)), mode=mode, seed=seed)
    first = dataset.get_metadata()
    assert len(first) == 17
    dataset.update_metadata(first[kept].with_columns(weight=pl.Series(new_weights)))
    table = rows_of(dataset.get_metadata())
    assert [row.weight for row in table] == new_weights

    numbering = oracle.number_population(table, mode)
    stream = dataset.stream()
    assert stream.population_digest == blake3(oracle.digest_bytes(table, mode)).hexdigest()
    assert rows_of(stream.table()) == [table[row] for row in numbering]

    model = Stream(mode, seed, [table[row].weight for row in numbering])
    expected = [model.row(start + draw) for draw in range(20)]
    drawn: list[Row] = [table[numbering[row]] for row in expected]
    assert stream.rows(start, 20).tolist() == expected
    sizes = dict(dataset.caches.select("cache_id", "samples").iter_rows())
    assert stream.records(start, 20).tolist() == [record_number(row, sizes) for row in drawn]
    assert [(one.cache_id, one.sample_id) for one in stream.fetch(range(start, start + 20))] == [
        row[:2] for row in drawn
    ]
    identities = b"".join(struct.pack("<QQ", row.cache_id, row.sample_id) for row in drawn)
    assert stream.order_digest(start, 20) == blake3(identities).hexdigest()


@settings(REPRODUCIBLE, max_examples=150)
@given(edit=edits(17), order=st.randoms(use_true_random=False), swapped=st.booleans())
def test_neither_row_order_nor_path_order_changes_a_shuffled_stream(caches, edit, order, swapped):
    kept, new_weights = edit
    lines = list(zip(kept, new_weights, strict=True))
    one = caches.open(7, 10, mode="with_replacement", seed=5)
    table = one.get_metadata()
    one.update_metadata(table[kept].with_columns(weight=pl.Series(new_weights)))

    order.shuffle(lines)
    other = caches.open(*((10, 7) if swapped else (7, 10)), mode="with_replacement", seed=5)
    other.update_metadata(
        table[[row for row, _ in lines]].with_columns(weight=pl.Series([weight for _, weight in lines]))
    )
    assert other.stream().population_digest == one.stream().population_digest
    assert other.stream().order_digest(0, 100) == one.stream().order_digest(0, 100)


@pytest.mark.parametrize("mode", MODES)
def test_an_unedited_table_has_the_same_digest_as_the_same_table_set(caches, rows_of, mode):
    untouched, same = (caches.open(10, 7, mode=mode, seed=0) for _ in range(2))
    table = rows_of(untouched.get_metadata())
    same.update_metadata(same.get_metadata())
    expected = blake3(oracle.digest_bytes(table, mode)).hexdigest()
    assert untouched.stream().population_digest == same.stream().population_digest == expected
    assert untouched.state_dict()["population"] == same.state_dict()["population"] == expected


def test_in_table_order_the_row_order_counts(caches):
    dataset = caches.open(7, mode=ORDERED, seed=0)
    before = dataset.stream().population_digest
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert [sample.sample_id for sample in dataset] == [6, 5, 4, 3, 2, 1, 0]
    assert dataset.stream().population_digest != before
