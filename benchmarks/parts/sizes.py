"""What a shuffled read costs from 64 B to 16 MiB, as a table and a plot."""

import shutil
import statistics
from collections.abc import Callable
from functools import partial

from harness.environments import EnvironmentMissing
from harness.limit import build_limit, limit_rate
from harness.machine import machine_line
from harness.options import Options
from harness.paths import RESULTS
from harness.payloads import RandomPayloads
from harness.plot import Axis, draw_lines
from harness.results import Result
from harness.table import markdown, troubles
from parts.peers import ALONE, COPY
from parts.stores import opened, records_file, row_of_reads, rows_of_writes
from peers.registry import OURS, lmdb, raw, started
from peers.registry import ours as ours_of

PART = "sizes"
PLOT = RESULTS / "sizes.svg"
KIB = 1 << 10
SIZES = {
    "64 B": 64,
    "256 B": 256,
    "1 KiB": KIB,
    "4 KiB": 4 * KIB,
    "16 KiB": 16 * KIB,
    "64 KiB": 64 * KIB,
    "256 KiB": 256 * KIB,
    "1 MiB": KIB * KIB,
    "4 MiB": 4 * KIB * KIB,
    "16 MiB": 16 * KIB * KIB,
}
# A set of one size: as much as this, but no more samples than that, and so many that an epoch is not all beginning.
SET_BYTES, SET_SAMPLES, LEAST_SAMPLES = 256 * KIB * KIB, 200_000, 64


def run(options: Options) -> Result:
    """Measure."""
    result = Result(PART, machine_line(), {}, options.rounds, options.scale, [])
    try:
        program = build_limit()
    except EnvironmentMissing as error:
        program = None
        result.absent[COPY] = str(error)
    for subject, size in SIZES.items():
        count = options.scaled(max(LEAST_SAMPLES, min(SET_SAMPLES, SET_BYTES // size)), least=4)
        folder = options.folder / f"sizes-{size}"
        with started([ours_of(), lmdb(), raw()], RandomPayloads(size, count).described(), folder) as running:
            result.versions.update(running.versions)
            result.absent.update(running.absent)
            workers = running.workers
            written = rows_of_writes(subject, workers, rounds=1)
            failed = {**written.failed, **opened(workers)}
            beside: dict[str, Callable[[], float]] = {}
            if OURS in workers:
                workers[OURS].call("alone")
                beside[ALONE] = partial(workers[OURS].rate, "alone")
            if program is not None:
                beside[COPY] = partial(limit_rate, program, "copy", "shuffled", records_file(folder), size)
            row = row_of_reads(subject, "shuffled", workers, rounds=options.rounds, beside=beside)
            row.failed.update(failed)
            result.rows.append(row)
        shutil.rmtree(folder)
    return result


def microseconds(result: Result) -> dict[str, list[tuple[str, float]]]:
    """Give for each contender size and median cost of a sample in microseconds."""
    lines: dict[str, list[tuple[str, float]]] = {}
    for row in result.rows:
        for name, rates in row.figures.items():
            lines.setdefault(name, []).append((row.subject, 1e6 / statistics.median(rates)))
    return lines


def draw(result: Result) -> None:
    """Draw the plot beside the stored figures."""
    lines = microseconds(result)
    draw_lines(
        {name: [(float(SIZES[subject]), cost) for subject, cost in points] for name, points in lines.items()},
        Axis("payload", {float(size): subject for subject, size in SIZES.items()}),
        Axis(
            "a shuffled sample, median",
            {0.1: "0.1 µs", 1.0: "1 µs", 10.0: "10 µs", 100.0: "100 µs", 1000.0: "1 ms", 10000.0: "10 ms"},
        ),
        PLOT,
    )


def render(result: Result) -> str:
    """Give the plot and the table of costs."""
    lines = microseconds(result)
    costs = {name: dict(points) for name, points in lines.items()}
    subjects = [row.subject for row in result.rows]
    rows = [[subject, *(shown(cost.get(subject)) for cost in costs.values())] for subject in subjects]
    return (
        f"![Cost of a shuffled sample over the size of its payload](results/{PLOT.name})\n\n"
        f"{markdown(['µs a sample', *lines], rows)}\n{troubles(result)}"
    )


def shown(cost: float | None) -> str:
    """Show a cost in microseconds."""
    return "-" if cost is None else f"{cost:,.3g}" if cost < 100 else f"{cost:,.0f}"
