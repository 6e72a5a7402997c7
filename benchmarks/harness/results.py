"""The figures of a run as JSON: everything that a table, a plot or a claim shows can be traced to them."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness.paths import RESULTS


@dataclass
class Row:
    """One measurement of several contenders.

    Attributes:
        subject: what was handled, such as `1 KiB`.
        operation: what was done, such as `shuffled`.
        unit: of the figures, such as `samples/s`.
        figures: for each contender one figure a round.
        failed: for each contender that failed, why.
    """

    subject: str
    operation: str
    unit: str
    figures: dict[str, list[float]]
    failed: dict[str, str] = field(default_factory=dict)


@dataclass
class Result:
    """One part's run.

    Attributes:
        part: its name; the name of its file and of its section in the README.
        machine: as `machine_line` gives it.
        versions: of each contender.
        rounds: how many.
        scale: the factor on the number of samples; 1.0 in published figures.
        rows: what was measured.
        absent: for each contender whose environment could not be made, why.
        notes: sentences about this run that the section shows.
        date: when it ran, as YYYY-MM-DD; empty if nobody noted it.
    """

    part: str
    machine: str
    versions: dict[str, str]
    rounds: int
    scale: float
    rows: list[Row]
    absent: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    date: str = ""

    def figures(self, subject: str, operation: str, contender: str) -> list[float] | None:
        """Give one contender's figures, or None where it has none."""
        for row in self.rows:
            if (row.subject, row.operation) == (subject, operation):
                return row.figures.get(contender)
        return None

    def save(self, folder: Path = RESULTS) -> Path:
        """Write the figures, four digits each, as `PART.json`."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.part}.json"
        path.write_text(json.dumps(rounded(asdict(self)), indent=1) + "\n")
        return path


def rounded(value: Any) -> Any:
    """Keep four digits of every float: more would only be noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    return [rounded(entry) for entry in value] if isinstance(value, list) else value


def load_result(part: str, folder: Path = RESULTS) -> Result:
    """Read what `Result.save` wrote."""
    stored = json.loads((folder / f"{part}.json").read_text())
    rows = [Row(**row) for row in stored.pop("rows")]
    return Result(rows=rows, **stored)
