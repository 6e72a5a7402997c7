"""ORDER 1 in plain Python: slow, obvious, and sharing nothing with the core that it judges.

It imports the standard library alone and follows `docs/concepts/order.md` from top to bottom. Where the core keeps a
table, a shortcut or a running value, this file counts again from the beginning.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass, field
from functools import cache
from typing import Final, NamedTuple

MASK: Final = 2**64 - 1
# The last position that a window may end at.
LAST_END: Final = 2**64 - 1
DRAW: Final = 1
PASS: Final = 2
# Up to so many rows a pass is shuffled as a whole; above, each place is computed by itself.
LARGEST_SHUFFLED: Final = 65_536

ORDERED: Final = "ordered"
REPLACEMENT: Final = "with_replacement"
PERMUTATION: Final = "without_replacement"
MODES: Final = (ORDERED, REPLACEMENT, PERMUTATION)
REMAINDERS: Final = ("extend", "drop", "uneven")


class RefusedError(Exception):
    """A call that the definition forbids; nothing may have changed."""


# -- Random numbers ------------------------------------------------------------------------


def philox(counter: list[int], key: list[int]) -> list[int]:
    """One block of Philox4x64-10."""
    x0, x1, x2, x3 = counter
    k0, k1 = key
    for number in range(10):
        if number > 0:
            k0 = (k0 + 0x9E3779B97F4A7C15) & MASK
            k1 = (k1 + 0xBB67AE8584CAA73B) & MASK
        first = 0xD2E7470EE14C6C93 * x0
        second = 0xCA5A826395121157 * x2
        x0, x1, x2, x3 = (second >> 64) ^ x1 ^ k0, second & MASK, (first >> 64) ^ x3 ^ k1, first & MASK
    return [x0, x1, x2, x3]


def mix(word: int) -> int:
    """The finaliser of SplitMix64."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & MASK
    return word ^ (word >> 31)


# -- Draws ---------------------------------------------------------------------------------


def binary_exponent(value: float) -> int:
    """The e for which a positive double is m times 2**e with 1 <= m < 2."""
    return math.frexp(value)[1] - 1


def integer_weights(weights: list[float]) -> list[int]:
    """The integer weights of rows in the order of the population."""
    if all(weight == weights[0] for weight in weights):
        return [1] * len(weights)
    largest = binary_exponent(max(weights))
    scaled = [math.ldexp(weight, -largest) for weight in weights]
    total = 0.0
    # Not sum(): since Python 3.12 it makes up for rounding, and the definition does not.
    for value in scaled:
        total += value
    shift = 61 - binary_exponent(total)
    return [max(1, math.floor(math.ldexp(value, shift))) for value in scaled]


def point(seed: int, position: int, total: int) -> int:
    """Where a draw falls in [0, total)."""
    x0, x1, _, _ = philox([position, 0, 0, 0], [seed, DRAW])
    return ((x0 * 2**64 + x1) * total) >> 128


def row_under(drawn: int, integers: list[int]) -> int:
    """The first row whose inclusive cumulative weight exceeds a point."""
    cumulative = 0
    for row, weight in enumerate(integers):
        cumulative += weight
        if cumulative > drawn:
            return row
    raise AssertionError(f"{drawn} is not below the total {cumulative}")


@cache
def shuffled_pass(seed: int, number: int, rows: int) -> list[int]:
    """A whole pass of a small population: Fisher and Yates."""
    places = list(range(rows))
    for i in range(rows - 1, 0, -1):
        m = (philox([number, i, 1, 0], [seed, PASS])[0] * (i + 1)) >> 64
        places[i], places[m] = places[m], places[i]
    return places


def network_place(seed: int, number: int, place: int, rows: int) -> int:
    """One place of a pass of a large population: a Feistel network that is walked until it hits a row."""
    half = ((rows - 1).bit_length() + 1) // 2
    size = 1 << half
    keys = philox([number, 0, 0, 0], [seed, PASS]) + philox([number, 1, 0, 0], [seed, PASS])
    x = place
    while True:
        left, right = x >> half, x % size
        for key in keys:
            left, right = right, left ^ (mix(right ^ key) % size)
        x = left * size + right
        if x < rows:
            return x


@dataclass
class Stream:
    """The endless sequence of draws over rows with these weights."""

    mode: str
    seed: int
    weights: list[float]
    integers: list[int] = field(init=False)

    def __post_init__(self) -> None:
        if not self.weights:
            raise RefusedError("no rows")
        if self.mode == PERMUTATION and any(weight != self.weights[0] for weight in self.weights):
            raise RefusedError("weights must be equal without replacement")
        self.integers = integer_weights(self.weights)

    def row(self, position: int) -> int:
        """The population row of a draw."""
        rows = len(self.weights)
        if self.mode == ORDERED:
            return position % rows
        if self.mode == REPLACEMENT:
            return row_under(point(self.seed, position, sum(self.integers)), self.integers)
        return permuted_row(self.seed, position, rows)


def permuted_row(seed: int, position: int, rows: int) -> int:
    """The population row of a draw without replacement."""
    number, place = divmod(position, rows)
    if rows <= LARGEST_SHUFFLED:
        return shuffled_pass(seed, number, rows)[place]
    return network_place(seed, number, place, rows)


# -- The population ------------------------------------------------------------------------


class Row(NamedTuple):
    """One line of the active table, as far as the order looks at it."""

    cache_id: int
    sample_id: int
    weight: float


def number_population(table: list[Row], mode: str) -> list[int]:
    """The table's row of each population row."""
    if mode == ORDERED:
        return list(range(len(table)))
    return sorted(range(len(table)), key=lambda row: table[row])


def digest_bytes(table: list[Row], mode: str) -> bytes:
    """What BLAKE3 is taken of for the population's digest; the standard library has no BLAKE3."""
    return b"".join(struct.pack("<QQd", *table[row]) for row in number_population(table, mode))


# -- Ranks ---------------------------------------------------------------------------------


class World(NamedTuple):
    """One rank among all, and what happens where they do not divide a window."""

    rank: int = 0
    size: int = 1
    remainder: str = "extend"

    def stride(self, length: int) -> int:
        """The draws that all ranks together take of a window."""
        if self.remainder == "extend":
            return (length + self.size - 1) // self.size * self.size
        if self.remainder == "drop":
            return length - length % self.size
        return length

    def draws(self, start: int, length: int, rank: int | None = None) -> range:
        """The positions that one rank takes of a window."""
        return range(start + (self.rank if rank is None else rank), start + self.stride(length), self.size)

    def most(self, length: int) -> int:
        """The most draws that a rank takes of a window."""
        return len(self.draws(0, length, rank=0))

    def check(self, epoch_len: int) -> None:
        """Refuse an epoch length that leaves nothing to anybody."""
        if epoch_len < 1 or self.most(epoch_len) == 0:
            raise RefusedError(f"an epoch of {epoch_len} draws for {self.size} ranks")


# -- Datasets, iterators, states -----------------------------------------------------------


class State(NamedTuple):
    """The moving part of a saved state."""

    position: int
    epoch_len: int
    window: tuple[int, int] | None


@dataclass(frozen=True)
class Window:
    """What an iterator reserved."""

    # Of the whole window, also where only its rest is delivered.
    nominal_start: int
    nominal_end: int
    start: int
    dealt_end: int
    draws: range


class Dataset:
    """A dataset or a rank's view of one, without the samples."""

    def __init__(self, table: list[Row], mode: str, seed: int, world: World | None = None) -> None:
        self.mode = mode
        self.seed = seed
        self.is_view = world is not None
        self.world = world or World()
        self.position = 0
        self.pending: tuple[int, int] | None = None
        self.newest: Iterator | None = None
        self.replaced = 0
        self.table = table
        self.epoch_len = len(table)
        self.world.check(self.epoch_len)

    def __len__(self) -> int:
        return len(self.world.draws(0, self.epoch_len))

    def set_epoch_len(self, epoch_len: int) -> None:
        """Set the nominal length of later windows."""
        self.world.check(epoch_len)
        self.epoch_len = epoch_len

    def update(self, table: list[Row], *, reset: bool) -> None:
        """Replace the table; what ran or was interrupted no longer counts."""
        Stream(self.mode, self.seed, [row.weight for row in table])
        self.world.check(len(table))
        self.table = table
        self.epoch_len = len(table)
        self.position = 0 if reset else self.position
        self.pending = None
        self.newest = None
        self.replaced += 1

    def shard(self, world: World) -> Dataset:
        """A rank's view with a position of its own."""
        if self.is_view:
            raise RefusedError("a view of a view")
        world.check(self.epoch_len)
        view = Dataset(self.table, self.mode, self.seed)
        view.is_view = True
        view.world = world
        view.epoch_len = self.epoch_len
        view.position = self.position
        view.pending = self.pending
        return view

    def with_table(self, table: list[Row]) -> Dataset:
        """An independent dataset over the same caches, at position 0."""
        Stream(self.mode, self.seed, [row.weight for row in table])
        return Dataset(table, self.mode, self.seed)

    def iterate(self, batch_size: int | None = None, *, drop_last: bool = False) -> Iterator:
        """Make an iterator; nothing moves. Without a batch size it delivers samples."""
        return Iterator(self, 1 if batch_size is None else batch_size, drop_last)

    def state(self) -> State:
        """What a save says now."""
        if self.newest is not None and self.newest.is_inside():
            return self.newest.state()._replace(epoch_len=self.epoch_len)
        return State(self.position, self.epoch_len, self.pending)

    def load(self, state: State) -> None:
        """Go to a saved state of the same population."""
        self.world.check(state.epoch_len)
        self.position = state.position
        self.epoch_len = state.epoch_len
        self.pending = state.window
        self.newest = None


class Iterator:
    """Delivers one window, in batches; single samples are batches of one."""

    def __init__(self, dataset: Dataset, batch_size: int, drop_last: bool) -> None:  # noqa: FBT001
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.world = dataset.world
        self.table = dataset.table
        self.epoch_len = dataset.epoch_len
        self.numbering = number_population(dataset.table, dataset.mode)
        self.stream = Stream(dataset.mode, dataset.seed, [dataset.table[row].weight for row in self.numbering])
        self.position_when_made = dataset.position
        self.pending_when_made = dataset.pending
        self.replaced_when_made = dataset.replaced
        self.window: Window | None = None
        self.batches = 0
        self.is_over = False

    def is_current(self) -> bool:
        """Whether the dataset still has the table of this iterator."""
        return self.dataset.replaced == self.replaced_when_made

    def where_to_start(self) -> tuple[int, tuple[int, int] | None]:
        """The position and the pending rest that this iterator would meet now."""
        if self.is_current():
            return self.dataset.position, self.dataset.pending
        return self.position_when_made, self.pending_when_made

    def reserve(self) -> Window:
        """Take the window, as the first `next` does, and move the dataset past it."""
        start, pending = self.where_to_start()
        window = None
        if pending is not None:
            left = pending[1] - start
            least = self.batch_size if self.drop_last else 1
            if self.world.most(left) >= least:
                window = self.deal(pending[0], start, left)
            else:
                start += self.world.stride(left)
        if window is None:
            window = self.deal(start, start, self.epoch_len)
        if self.is_current():
            self.dataset.position = window.dealt_end
            self.dataset.pending = None
            self.dataset.newest = self
        return window

    def deal(self, nominal_start: int, start: int, length: int) -> Window:
        """A window as this rank has it."""
        dealt_end = start + self.world.stride(length)
        if max(start + length, dealt_end) > LAST_END:
            raise RefusedError("a window beyond the last position")
        return Window(nominal_start, start + length, start, dealt_end, self.world.draws(start, length))

    def next(self) -> list[Row] | None:
        """The rows of the next batch; None where the iterator raises StopIteration."""
        if self.window is None:
            self.window = self.reserve()
        done = self.batches * self.batch_size
        positions = self.window.draws[done : done + self.batch_size]
        if len(positions) == 0 or (self.drop_last and len(positions) < self.batch_size):
            self.is_over = True
            return None
        self.batches += 1
        return [self.table[self.numbering[self.stream.row(position)]] for position in positions]

    def consumed(self) -> int:
        """The position of what all ranks have consumed, if all are as far as this one."""
        assert self.window is not None
        full_batches = len(self.window.draws) // self.batch_size
        if self.is_over or (self.drop_last and 0 < full_batches == self.batches):
            return self.window.dealt_end
        return min(self.window.start + self.batches * self.batch_size * self.world.size, self.window.dealt_end)

    def is_inside(self) -> bool:
        """Whether something of the window is still to be consumed."""
        return self.window is not None and self.consumed() < self.window.dealt_end

    def state(self) -> State:
        """What the iterator's own save says now."""
        if self.window is None:
            position, pending = self.where_to_start()
            return State(position, self.epoch_len, pending)
        if self.is_inside():
            return State(self.consumed(), self.epoch_len, (self.window.nominal_start, self.window.nominal_end))
        return State(self.window.dealt_end, self.epoch_len, None)
