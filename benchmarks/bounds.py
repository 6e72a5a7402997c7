"""What dataset-rt promises beside others, and whether the stored figures keep it."""

from dataclasses import dataclass

from harness.ratios import Ratio, ratio
from harness.results import Result
from harness.table import markdown
from parts.cold import DD
from parts.imports import THEIRS
from parts.peers import ALONE, BATCHES
from parts.scale import OPEN, RATE
from peers.registry import LMDB, OURS, RAW

PART = "bounds"


@dataclass(frozen=True)
class Bound:
    """A ratio of two contenders of one row.

    Attributes:
        part: whose result holds the row.
        subject: of the row.
        operation: of the row.
        ours: the contender above the line.
        theirs: the contender below the line; empty for a figure by itself.
        least: what the median must reach.
        most: what it must not pass.
        unit: what a figure by itself is divided by, and how it is named.
    """

    part: str
    subject: str
    operation: str
    ours: str
    theirs: str
    least: float = 0.0
    most: float = float("inf")
    unit: tuple[float, str] = (1.0, "")

    def found(self, results: dict[str, Result]) -> Ratio | None:
        """Give the ratio, or None where a figure is missing."""
        if self.part not in results:
            return None
        result = results[self.part]
        ours = result.figures(self.subject, self.operation, self.ours)
        if ours is None:
            return None
        if not self.theirs:
            return ratio(ours, [self.unit[0]] * len(ours))
        theirs = result.figures(self.subject, self.operation, self.theirs)
        return None if theirs is None else ratio(ours, theirs)

    def line(self, results: dict[str, Result]) -> list[str]:
        """Give the row of the table."""
        found = self.found(results)
        limit = f"at least {self.least:g}" if self.least else f"at most {self.most:g}"
        verdict = "kept" if found is not None and self.least <= found.median <= self.most else "**missed**"
        return [
            f"{self.part}: {self.subject} {self.operation}".strip(),
            f"{self.ours} / {self.theirs}" if self.theirs else f"{self.ours}, {self.unit[1]}",
            limit,
            "not measured" if found is None else str(found),
            "" if found is None else verdict,
        ]


BOUNDS = (
    Bound("peers", "1 KiB", "shuffled", OURS, LMDB, least=4),
    Bound("peers", "1 KiB", "ordered", OURS, LMDB, least=2),
    Bound("peers", "1 KiB", "shuffled", ALONE, LMDB, least=2.5),
    Bound("peers", "1 KiB", "shuffled", BATCHES, LMDB, least=6),
    Bound("peers", "1 KiB", "write", OURS, RAW, least=0.9),
    Bound("peers", "100 KiB", "shuffled", OURS, LMDB, least=1.3),
    Bound("peers", "100 KiB", "ordered", OURS, LMDB, least=1.3),
    Bound("peers", "100 KiB", "write", OURS, RAW, least=0.8),
    Bound("peers", "100 KiB", "validate", OURS, "", least=1, unit=(1e9, "GB/s a core")),
    Bound("cold", "1 KiB", "shuffled", OURS, LMDB, least=4),
    Bound("cold", "100 KiB", "shuffled", OURS, LMDB, least=3),
    Bound("cold", "1 KiB", "ordered", OURS, DD, least=0.8),
    Bound("cold", "100 KiB", "ordered", OURS, DD, least=0.8),
    Bound("scale", RATE, "", "10,000,000 samples", "1,000,000 samples", least=0.9),
    # A tenth is noise.
    Bound("scale", OPEN, "", "of 100 KiB", "of 1 B", most=1.1),
    Bound("import", "a process", "import", OURS, THEIRS, most=1.5),
)


def render(results: dict[str, Result]) -> str:
    """Give the table."""
    return markdown(
        ["", "figure", "bound", "median (lowest to highest)", ""], [bound.line(results) for bound in BOUNDS]
    )
