"""The draws are as random as the definition promises.

Seeds are fixed, so a run that passes always passes. Every threshold is the bound that a perfect random source breaks
with a probability below `CHANCE`, taken from the inequality that stands beside it; none was chosen after looking.
"""

import math
from collections import Counter

import numpy as np
import pytest

from dataset_rt import _core
from oracle import PERMUTATION, REPLACEMENT

CHANCE = 1e-6
# e**-BITS == CHANCE.
BITS = -math.log(CHANCE)
# A normal variable leaves [-Z, Z] with a probability below 2·exp(-Z²/2) = CHANCE.
Z = math.sqrt(2 * math.log(2 / CHANCE))

# A large population for each algorithm, two on both sides of their border, and one of a network without walking.
LARGE = (60_000, 65_536, 65_537, 100_003, 2**18)


def check_chi_square(observed, expected, degrees=None):
    """Pearson's statistic against the bounds of Laurent and Massart (2000, lemma 1) for chi-square.

    P(X >= d + 2·sqrt(d·x) + 2x) <= exp(-x) and P(X <= d - 2·sqrt(d·x)) <= exp(-x). Cells of 100 and more keep the
    statistic's own distance from chi-square far below the slack that these bounds have.
    """
    observed, expected = np.asarray(observed, dtype=float), np.asarray(expected, dtype=float)
    assert observed.sum() == pytest.approx(expected.sum())
    assert expected.min() >= 100
    statistic = ((observed - expected) ** 2 / expected).sum()
    degrees = observed.size - 1 if degrees is None else degrees
    spread = 2 * math.sqrt(degrees * BITS)
    assert degrees - spread <= statistic <= degrees + spread + 2 * BITS


def check_share(hits, draws, share):
    """A count of independent hits by Bernstein's inequality.

    P(|X - m| >= t) <= 2·exp(-t² / (2·(v + t/3))), m = n·p, v = n·p·(1 - p); solved for the t of CHANCE.
    """
    mean = draws * share
    variance = mean * (1 - share)
    third = math.log(2 / CHANCE) / 3
    bound = third + math.sqrt(third**2 + 2 * variance * math.log(2 / CHANCE))
    assert abs(hits - mean) <= bound


def check_rare(hits, mean):
    """A count of many unlikely hits by the tails of Poisson's distribution, half of `CHANCE` on each side.

    Le Cam: n hits of chance p are Poisson to within n·p², which is far below `CHANCE` here.
    """
    chances = [math.exp(count * math.log(mean) - mean - math.lgamma(count + 1)) for count in range(int(20 * mean) + 50)]
    assert sum(chances[: hits + 1]) > CHANCE / 2
    assert sum(chances[hits:]) > CHANCE / 2


def draws_of(mode, seed, weights, count, start=0):
    return np.array(_core.rows(mode, seed, weights, start, count), dtype=np.int64)


def passes_of(rows, seed, first, count):
    """Whole passes, one a line."""
    drawn = _core.rows_of_equal(PERMUTATION, seed, rows, first * rows, count * rows)
    return np.array(drawn, dtype=np.int64).reshape(count, rows)


# --- With replacement


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("harmonic", [1 / (row + 1) for row in range(60)]),
        ("two classes, nine to three", [1 / 9] * 9 + [1 / 3] * 3),
        ("geometric", [1.5**-row for row in range(15)]),
        ("equal", [0.3] * 37),
        ("last bits", [1.0 + row * 2**-52 for row in range(20)]),
        ("subnormal", [5e-324 * (row + 1) for row in range(20)]),
    ],
)
@pytest.mark.parametrize(("seed", "start"), [(0, 0), (2**64 - 1, 2**63), (12, 2**64 - 300_001)])
def test_rows_are_drawn_by_weight(name, weights, seed, start):
    count = 300_000
    shares = np.array([weight / max(weights) for weight in weights])
    shares /= shares.sum()
    drawn = draws_of(REPLACEMENT, seed, weights, count, start)
    check_chi_square(np.bincount(drawn, minlength=len(weights)), shares * count)


def test_neighbouring_draws_are_independent():
    weights = [1.0, 2.0, 3.0, 4.0, 10.0]
    shares = np.array(weights) / sum(weights)
    for distance in (1, 2, 64):
        drawn = draws_of(REPLACEMENT, 3, weights, 512_000)
        # Pairs that share no draw, so that they are independent of each other.
        firsts = np.flatnonzero(np.arange(512_000) // distance % 2 == 0)
        pairs = drawn[firsts] * 5 + drawn[firsts + distance]
        check_chi_square(np.bincount(pairs, minlength=25), np.outer(shares, shares).ravel() * len(pairs))


def test_neighbouring_seeds_are_independent():
    cells = 10
    for seed, other in ((0, 1), (1, 2), (2**63, 2**63 + 1), (5, 5 + 2**32)):
        one, two = (draws_of(REPLACEMENT, number, [1.0] * cells, 100_000) for number in (seed, other))
        check_chi_square(np.bincount(one * cells + two, minlength=cells**2), np.full(cells**2, 100_000 / cells**2))


def test_a_row_of_tiny_weight_among_heavy_ones_has_its_share():
    # Six decades apart; the light rows' hits are few, and Bernstein's bound holds for any number.
    weights = [1.0] * 10 + [1e-5] * 100
    drawn = draws_of(REPLACEMENT, 8, weights, 2_000_000)
    check_share(int((drawn >= 10).sum()), 2_000_000, 100 * 1e-5 / sum(weights))
    assert (drawn >= 10).any()


def test_more_rows_than_single_precision_counts_are_all_drawn_when_equal():
    rows, cells = 2**24 + 5, 64
    # Blocks of draws, because a Python list of all of them would take gigabytes.
    blocks, block = 15, 2**22
    borders = np.arange(cells + 1) * rows // cells
    counts, upper, last_five = np.zeros(cells), 0, 0
    for number in range(blocks):
        drawn = np.array(_core.rows_of_equal(REPLACEMENT, 1, rows, number * block, block), dtype=np.int64)
        counts += np.bincount(np.searchsorted(borders, drawn, side="right") - 1, minlength=cells)
        upper += int((drawn >= rows // 2).sum())
        last_five += int((drawn >= rows - 5).sum())
    check_share(upper, blocks * block, (rows - rows // 2) / rows)
    check_chi_square(counts, np.diff(borders) * (blocks * block / rows))
    check_rare(last_five, blocks * block * 5 / rows)


def test_more_rows_than_single_precision_counts_are_all_drawn_when_weighted():
    # The last five are heavy enough to be counted one by one; a running sum that stops growing would lose them.
    light, heavy, count = 2**24, 2.0**18, 1_000_000
    drawn = draws_of(REPLACEMENT, 2, [1.0] * light + [heavy] * 5, count)
    total = light + 5 * heavy
    halves = [int((drawn < light // 2).sum()), int(((drawn >= light // 2) & (drawn < light)).sum())]
    last = [int((drawn == light + row).sum()) for row in range(5)]
    check_chi_square(halves + last, np.array([light / 2] * 2 + [heavy] * 5) * count / total)


# --- Without replacement


@pytest.mark.parametrize("rows", [2, 3, 4, 5])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_every_order_of_few_rows_is_equally_likely_over_passes(rows, seed):
    orders = math.factorial(rows)
    passes = passes_of(rows, seed, 0, 1_000 * orders)
    seen = Counter(map(tuple, passes.tolist()))
    assert len(seen) == orders
    check_chi_square(list(seen.values()), [1_000] * orders)


@pytest.mark.parametrize("rows", [4, 5])
def test_every_order_of_few_rows_is_equally_likely_over_seeds(rows):
    orders = math.factorial(rows)
    seen = Counter(tuple(_core.rows_of_equal(PERMUTATION, seed, rows, 0, rows)) for seed in range(200 * orders))
    assert len(seen) == orders
    check_chi_square(list(seen.values()), [200] * orders)


def test_successive_passes_of_few_rows_are_independent():
    orders = {order: number for number, order in enumerate(sorted(set(map(tuple, passes_of(3, 0, 0, 200).tolist()))))}
    assert len(orders) == 6
    numbers = np.array([orders[tuple(one)] for one in passes_of(3, 11, 0, 72_000).tolist()]).reshape(-1, 2)
    check_chi_square(np.bincount(numbers[:, 0] * 6 + numbers[:, 1], minlength=36), np.full(36, 1_000))


@pytest.mark.parametrize("rows", LARGE)
def test_fixed_points_of_large_passes_are_as_rare_as_by_chance(rows):
    # Fixed points of a random permutation are Poisson with mean 1 to within 2^n / n!, so their sum over passes is
    # Poisson; Bernstein's bound holds for it with share -> 0, as for the limit of many unlikely hits.
    count = 30
    passes = passes_of(rows, 17, 0, count)
    check_share(int((passes == np.arange(rows)).sum()), count * rows, 1 / rows)
    # And places that keep their row from one pass to the next.
    check_share(int((passes[1:] == passes[:-1]).sum()), (count - 1) * rows, 1 / rows)


@pytest.mark.parametrize("rows", LARGE)
def test_ascents_of_large_passes_are_half_of_the_steps(rows):
    # Eulerian numbers: mean (n - 1) / 2, variance (n + 1) / 12, normal in the limit.
    for one in passes_of(rows, 23, 0, 6):
        ascents = int((np.diff(one) > 0).sum())
        assert abs(ascents - (rows - 1) / 2) <= Z * math.sqrt((rows + 1) / 12)


@pytest.mark.parametrize("rows", LARGE)
def test_large_passes_correlate_neither_with_places_nor_with_each_other(rows):
    def check(one, two):
        # Hotelling and Pabst (1936): the rank correlation with an independent permutation has mean 0 and variance
        # 1 / (n - 1), normal in the limit.
        assert abs(np.corrcoef(one, two)[0, 1]) * math.sqrt(rows - 1) <= Z

    passes, neighbours = passes_of(rows, 40, 5, 4), passes_of(rows, 41, 5, 1)
    for number, one in enumerate(passes):
        check(one, np.arange(rows))
        for other in passes[number + 1 :]:
            check(one, other)
    check(passes[0], neighbours[0])
    # A step along the pass; wrapped round, the shifted one is a permutation again. Given the set of rows, the serial
    # correlation has mean -1 / (n - 1) and variance near 1 / n (Wald and Wolfowitz 1943).
    for distance in (1, 2, 2**9):
        assert abs(np.corrcoef(passes[0], np.roll(passes[0], distance))[0, 1]) * math.sqrt(rows) <= Z + 1 / 100


@pytest.mark.parametrize("rows", LARGE)
def test_large_passes_spread_every_part_and_every_low_bit(rows):
    # Counts of a permutation in a table with fixed margins: (n - 1) / n of Pearson's statistic is chi-square with
    # (a - 1)·(b - 1) degrees in the limit; the factor is nothing against the bound.
    places = np.arange(rows)
    for one in passes_of(rows, 51, 0, 4):
        for divide in (lambda numbers: numbers * 8 // rows, lambda numbers: numbers % 8):
            cells = divide(places) * 8 + divide(one)
            sizes = np.bincount(divide(places), minlength=8)
            check_chi_square(np.bincount(cells, minlength=64), np.outer(sizes, sizes).ravel() / rows, degrees=49)


@pytest.mark.parametrize("rows", LARGE)
def test_large_passes_have_as_many_cycles_as_by_chance(rows):
    # The number of cycles is a sum of independent indicators with chances 1, 1/2, …, 1/n (Feller): mean H(n),
    # variance H(n) - the sum of 1/i²; Bernstein's inequality for the sum over the passes.
    count = 12
    found = 0
    for one in passes_of(rows, 60, 0, count).tolist():
        seen = bytearray(rows)
        for start in range(rows):
            found += not seen[start]
            while not seen[start]:
                seen[start] = 1
                start = one[start]
    mean = count * sum(1 / i for i in range(1, rows + 1))
    variance = count * sum(1 / i - 1 / i**2 for i in range(1, rows + 1))
    third = math.log(2 / CHANCE) / 3
    assert abs(found - mean) <= third + math.sqrt(third**2 + 2 * variance * math.log(2 / CHANCE))
