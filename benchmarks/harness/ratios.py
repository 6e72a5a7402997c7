"""Ratios within one run: the only figures that two machines can compare."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Ratio:
    """How many times as much one contender gave as another in the same round.

    Attributes:
        median: over the rounds.
        low: the smallest.
        high: the largest.
    """

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """Show the median and the range."""
        return f"{self.median:.2f} ({self.low:.2f} to {self.high:.2f})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    """Divide round by round.

    Raises:
        ValueError: not the same number of rounds, or none.
    """
    quotients = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    if not quotients:
        raise ValueError("a ratio needs at least one round")
    return Ratio(statistics.median(quotients), min(quotients), max(quotients))
