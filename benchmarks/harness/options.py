"""What a run is told."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Options:
    """Arguments of a run.

    Attributes:
        rounds: how often each contender is measured.
        scale: factor on the number of samples; 1.0 for figures that are published.
        folder: where payloads are stored; the parts empty what they make in it.
    """

    rounds: int
    scale: float
    folder: Path

    def scaled(self, count: int, *, least: int = 1) -> int:
        """Scale a number of samples, but not below `least`."""
        return max(least, int(count * self.scale))
