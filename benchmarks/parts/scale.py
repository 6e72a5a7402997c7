"""Ten million samples: what must not grow with them, each figure beside the bound that it keeps or misses."""

import shutil
import statistics
from dataclasses import dataclass
from functools import partial

from harness.machine import machine_line
from harness.options import Options
from harness.ratios import ratio
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import amount, markdown
from harness.worker import Worker
from peers.registry import OURS
from peers.registry import ours as ours_of

PART = "scale"
MIB = 1 << 20
SAMPLES = 10_000_000
# The rate of draws must be the same for each of these.
STEPS = (1_000_000, 2_000_000, 5_000_000, SAMPLES)
DRAWS = 1_000_000
RATE = "draws"
# What opening costs must not depend on the size of the payloads.
OPEN = "open, 100,000 samples"


@dataclass(frozen=True)
class Bound:
    """What a row of the table must keep.

    Attributes:
        text: as the table shows it; empty where there is none.
        most: the largest median that keeps it.
        least: the smallest.
    """

    text: str = ""
    most: float = float("inf")
    least: float = 0.0

    def verdict(self, median: float) -> str:
        """Say whether a median keeps the bound."""
        if not self.text:
            return ""
        return "kept" if self.least <= median <= self.most else "**missed**"


BOUNDS = {
    "open": Bound("50 ms", most=0.050),
    "private memory of opening": Bound("30 MiB", most=30 * MIB),
    "most private memory in an epoch": Bound("20 MiB", most=20 * MIB),
    "most private memory at 100 KiB, prefetch_bytes 64 MiB": Bound("64 MiB and a few payloads", most=80 * MIB),
    "most private memory at 100 KiB, prefetch_bytes 8 MiB": Bound("8 MiB and a few payloads", most=24 * MIB),
    "update_metadata, rows shuffled": Bound("1.5 s", most=1.5),
    "update_metadata, rows shuffled, unequal weights": Bound("1.5 s", most=1.5),
    "memory of the weights": Bound("16 bytes a row", most=16),
    "weighted draws, one thread": Bound("5,000,000 a second", least=5e6),
    "state_dict of the edited table": Bound("1 ms", most=0.001),
    "load_state_dict at position 10^15": Bound("1 ms", most=0.001),
    "a pickled stream of an unedited table": Bound("16 KiB", most=16384),
}


def run(options: Options) -> Result:
    """Measure in a few processes: each figure of memory begins with a fresh one."""
    result = Result(PART, machine_line(), {}, options.rounds, options.scale, [])
    folder = options.folder / "scale"
    python = ours_of().python()

    def worker() -> Worker:
        return Worker(python, "peers.at_scale:AtScale", {"folder": str(folder)})

    def note(what: str, unit: str, figures: list[float]) -> None:
        result.rows.append(Row(what, "", unit, {OURS: figures}))

    steps = {f"{step:,} samples": options.scaled(step, least=1000) for step in STEPS}
    largest = list(steps)[-1]
    with worker() as running:
        rates = {
            name: [running.rate("write", name=name, count=count, payload_bytes=64)] for name, count in steps.items()
        }
        result.rows.append(Row("write, samples of 64 B", "", "samples/s", rates))
        for name, size in (("1 B", 1), ("100 KiB", 102_400)):
            running.call("write", name=name, count=options.scaled(100_000, least=100), payload_bytes=size)
    with worker() as running:
        note("private memory of opening", "bytes", [running.call("keep", name=largest).value])
        note("open", "seconds", running.call("opening", name=largest).value)
        names = ("100 KiB", "1 B")
        openings = {f"of {name}": running.call("opening", name=name).value for name in names}
        result.rows.append(Row(OPEN, "", "seconds", openings))
        note("first state of an unedited table", "seconds", running.call("first_state", name=largest).value)
        pickled = running.call("pickled", name=largest).value
        note("a pickled stream of an unedited table", "bytes", [pickled["bytes"]])
        note("unpickle it", "seconds", pickled["seconds"])
    with worker() as running:
        growth = running.call("growth", name=largest, draws=steps[largest])
        note("most private memory in an epoch", "bytes", [growth.value])
    for mebibytes in (64, 8):
        with worker() as running:
            draws = options.scaled(20_000, least=100)
            most = running.call("growth", name="100 KiB", draws=draws, prefetch_bytes=mebibytes * MIB).value
            note(f"most private memory at 100 KiB, prefetch_bytes {mebibytes} MiB", "bytes", [most])
    with worker() as running:
        draws = options.scaled(DRAWS, least=1000)
        for name in steps:
            running.call("keep", name=name)
            running.call("draws", name=name, count=draws)
        asked = {name: partial(running.rate, "draws", name=name, count=draws) for name in steps}
        outcome = interleave(asked, rounds=options.rounds)
        result.rows.append(Row(RATE, "", "samples/s", outcome.figures, outcome.failed))
    with worker() as running:
        running.call("keep", name=largest)
        edited = running.call("edit", name=largest).value
        note("update_metadata, rows shuffled", "seconds", edited["equal"])
        note("update_metadata, rows shuffled, unequal weights", "seconds", edited["weighted"])
        note("state_dict of the edited table", "seconds", running.call("state", name=largest).value)
        note("memory of the weights", "bytes a row", [running.call("bytes_of_weights", name=largest).value])
        count = options.scaled(5_000_000, least=1000)
        rates_of_draws = [running.rate("weighted_draws", name=largest, count=count) for _ in range(options.rounds)]
        note("weighted draws, one thread", "draws/s", rates_of_draws)
        far = running.call("far", name=largest).value
        note("load_state_dict at position 10^15", "seconds", far["load"])
        note("first sample there", "seconds", far["first"])
    shutil.rmtree(folder)
    return result


def shown(value: float, unit: str) -> str:
    """Show a figure in a unit that fits it."""
    if unit == "seconds":
        return f"{value:.2f} s" if value >= 1 else f"{value * 1000:.3g} ms"
    if unit == "bytes":
        return f"{value / MIB:.1f} MiB" if abs(value) >= MIB / 10 else f"{value:,.0f} bytes"
    return f"{amount(value)} {unit}"


def spread(figures: list[float], unit: str) -> str:
    """Show the median, and the range of several."""
    median = shown(statistics.median(figures), unit)
    return median if len(figures) == 1 else f"{median} ({shown(min(figures), unit)} to {shown(max(figures), unit)})"


def render(result: Result) -> str:
    """Give the table of bounds, and the rates over the number of samples."""
    lines = []
    for row in result.rows:
        bound = BOUNDS.get(row.subject, Bound())
        if OURS in row.figures:
            figures = row.figures[OURS]
            verdict = bound.verdict(statistics.median(figures))
            lines.append([row.subject, bound.text, spread(figures, row.unit), verdict])
        elif row.subject == OPEN:
            for name, figures in row.figures.items():
                lines.append([f"{OPEN} {name}", "", spread(figures, row.unit), ""])
    rates = {row.subject: row.figures for row in result.rows if OURS not in row.figures}
    reads, writes = rates[RATE], rates["write, samples of 64 B"]
    first = next(iter(reads))
    steps = [
        [
            name,
            amount(statistics.median(writes[name])),
            amount(statistics.median(figures)),
            "" if name == first else str(ratio(figures, reads[first])),
        ]
        for name, figures in reads.items()
    ]
    header = [f"{int(SAMPLES * result.scale):,} samples, three stored columns", "bound", "measured", ""]
    return (
        f"{markdown(header, lines)}\n"
        f"Samples a second of writing and of {DRAWS:,} shuffled draws, by the number of samples in the cache:\n\n"
        f"{markdown(['', 'write', 'draws', 'draws, against the first line'], steps)}"
    )
