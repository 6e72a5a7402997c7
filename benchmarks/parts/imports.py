"""What importing costs a process, beside the two libraries that it brings."""

import statistics
import subprocess
from functools import partial
from pathlib import Path

from harness.machine import machine_line
from harness.options import Options
from harness.ratios import ratio
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import markdown
from harness.worker import WorkerError
from peers.registry import OURS
from peers.registry import ours as ours_of

PART = "import"
THEIRS = "polars, pyarrow"
PROGRAM = "import time; begun = time.perf_counter(); import {}; print(time.perf_counter() - begun)"


def run(options: Options) -> Result:
    """Import in fresh processes by turns; four times the rounds, since one is short."""
    python = ours_of().python()
    modules = {OURS: "dataset_rt", THEIRS: "polars, pyarrow"}
    for module in modules.values():
        seconds_to_import(python, module)
    outcome = interleave(
        {name: partial(seconds_to_import, python, module) for name, module in modules.items()},
        rounds=4 * options.rounds,
    )
    row = Row("a process", "import", "seconds", outcome.figures, outcome.failed)
    return Result(PART, machine_line(), {}, options.rounds, options.scale, [row])


def seconds_to_import(python: Path, modules: str) -> float:
    """Start a process that imports them and tells how long it took."""
    done = subprocess.run([str(python), "-c", PROGRAM.format(modules)], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WorkerError(f"import {modules}: {done.stderr.strip()[-200:]}")
    return float(done.stdout)


def render(result: Result) -> str:
    """Give both and the ratio."""
    figures = result.rows[0].figures
    lines = [[f"import {name}", f"{statistics.median(seconds) * 1000:.0f} ms"] for name, seconds in figures.items()]
    lines.append(["ratio", str(ratio(figures[OURS], figures[THEIRS]))])
    return markdown(["", f"{len(figures[OURS])} processes each"], lines)
