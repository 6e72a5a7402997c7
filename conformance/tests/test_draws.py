"""Any weights, seeds and positions: the core draws what the oracle draws."""

import math
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataset_rt as drt
import oracle
from dataset_rt import _core
from oracle import ORDERED, PERMUTATION, REPLACEMENT, Stream
from reproducible import REPRODUCIBLE

MANY = settings(REPRODUCIBLE, max_examples=600)
SOME = settings(REPRODUCIBLE, max_examples=200)

words = st.integers(0, 2**64 - 1)
seeds = st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]) | words
positions = st.sampled_from([0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 8]) | st.integers(0, 2**64 - 8)


def from_bits(bits):
    return struct.unpack("<d", struct.pack("<Q", bits))[0]


# All exponents equally often, by the bits: a decade is as likely as any other of the 600 and more, subnormals included.
any_weight = st.integers(1, 0x7FEF_FFFF_FFFF_FFFF).map(from_bits)
near_a_power = st.builds(
    lambda exponent, step: from_bits(max(1, struct.unpack("<Q", struct.pack("<d", 2.0**exponent))[0] + step)),
    st.integers(-1074, 1023),
    st.integers(-2, 2),
)
subnormal = st.integers(1, 2**52 - 1).map(from_bits)
decade = st.integers(-300, 300).map(lambda exponent: 10.0**exponent)
usual = st.floats(1e-3, 1e3)
one_kind = st.sampled_from([any_weight, near_a_power, subnormal, decade, usual])
weights_of_rows = one_kind.flatmap(lambda kind: st.lists(kind, min_size=1, max_size=80)) | st.lists(
    any_weight | near_a_power | subnormal | decade | usual, min_size=1, max_size=80
)


@MANY
@given(st.lists(words, min_size=4, max_size=4), st.lists(words, min_size=2, max_size=2))
def test_random_words(counter, key):
    assert _core.philox(counter, key) == oracle.philox(counter, key)


@MANY
@given(seeds, positions, st.integers(1, 2**63 - 1) | st.integers(0, 62).map(lambda exponent: 2**exponent))
def test_points(seed, position, total):
    drawn = _core.point(seed, position, total)
    assert drawn == oracle.point(seed, position, total)
    assert 0 <= drawn < total


@settings(MANY, max_examples=1_500)
@given(weights_of_rows)
def test_integer_weights(weights):
    integers, total = _core.integer_weights(weights)
    assert integers == oracle.integer_weights(weights)
    assert total == sum(integers) < 2**63
    assert min(integers) >= 1


@settings(MANY, max_examples=1_000)
@given(weights_of_rows, seeds, positions)
def test_draws_with_replacement(weights, seed, start):
    stream = Stream(REPLACEMENT, seed, weights)
    assert _core.rows(REPLACEMENT, seed, weights, start, 8) == [stream.row(start + draw) for draw in range(8)]


@MANY
@given(any_weight | decade | subnormal, st.integers(1, 40), seeds, positions)
def test_equal_weights_draw_the_same_whatever_they_are(weight, rows, seed, start):
    for mode in (REPLACEMENT, PERMUTATION):
        expected = [Stream(mode, seed, [1.0] * rows).row(start + draw) for draw in range(8)]
        assert _core.rows(mode, seed, [weight] * rows, start, 8) == expected
        assert _core.rows_of_equal(mode, seed, rows, start, 8) == expected


@SOME
@given(st.lists(usual, min_size=1, max_size=40), st.integers(-900, 900), seeds)
def test_a_power_of_two_as_common_factor_changes_no_draw(weights, exponent, seed):
    # Numbers this far from both ends are scaled without rounding.
    scaled = [math.ldexp(weight, exponent) for weight in weights]
    assert _core.integer_weights(scaled) == _core.integer_weights(weights)
    assert _core.rows(REPLACEMENT, seed, scaled, 0, 8) == _core.rows(REPLACEMENT, seed, weights, 0, 8)


@MANY
@given(st.integers(1, 200), seeds, st.integers(0, 2**64 - 1_000))
def test_small_permutations(rows, seed, start):
    expected = [oracle.permuted_row(seed, start + draw, rows) for draw in range(20)]
    assert _core.rows_of_equal(PERMUTATION, seed, rows, start, 20) == expected


@MANY
@given(st.integers(65_537, 2**40) | st.integers(17, 62).map(lambda exponent: 2**exponent), seeds, positions)
def test_large_permutations(rows, seed, start):
    for population in (rows, rows + 1):
        expected = [oracle.permuted_row(seed, start + draw, population) for draw in range(6)]
        assert _core.rows_of_equal(PERMUTATION, seed, population, start, 6) == expected


@pytest.mark.parametrize("rows", [65_535, 65_536, 65_537, 65_538])
def test_permutations_on_both_sides_of_the_border_between_the_algorithms(rows):
    for start in (rows - 3, 5 * rows - 3):
        expected = [oracle.permuted_row(7, start + draw, rows) for draw in range(6)]
        assert _core.rows_of_equal(PERMUTATION, 7, rows, start, 6) == expected


@pytest.mark.parametrize("rows", [1, 2, 3, 100, 65_536, 65_537, 70_000, 131_073])
def test_every_pass_has_every_row_once(rows):
    passes = _core.rows_of_equal(PERMUTATION, 3, rows, 2 * rows, 2 * rows)
    for one in (passes[:rows], passes[rows:]):
        assert sorted(one) == list(range(rows))


@SOME
@given(weights_of_rows, seeds, positions)
def test_table_order_looks_at_no_weight(weights, seed, start):
    expected = [(start + draw) % len(weights) for draw in range(8)]
    assert _core.rows(ORDERED, seed, weights, start, 8) == expected
    assert [Stream(ORDERED, seed, weights).row(start + draw) for draw in range(8)] == expected


@SOME
@given(st.lists(decade, min_size=2, max_size=10).filter(lambda weights: len(set(weights)) > 1))
def test_weights_that_differ_are_refused_without_replacement(weights):
    with pytest.raises(oracle.RefusedError):
        Stream(PERMUTATION, 0, weights)
    with pytest.raises(drt.ConfigError, match="replacement"):
        _core.rows(PERMUTATION, 0, weights, 0, 1)


@pytest.mark.parametrize("mode", oracle.MODES)
def test_the_last_position_can_be_drawn(mode, caches):
    stream = caches.open(7, mode=mode, seed=9).stream()
    expected = Stream(mode, 9, [1.0] * 7).row(2**64 - 1)
    assert stream.rows(2**64 - 1, 1).tolist() == [expected]
    assert stream[2**64 - 1].sample_id == expected
    with pytest.raises(drt.ConfigError):
        stream.rows(2**64 - 1, 2)
