"""Measure dataset-rt beside others and write the figures into README.md: all parts, or those that are named.

    python benchmarks/run.py [PART ...] [--rounds N] [--scale FACTOR] [--folder FOLDER] [--render]

`nox -s bench -- …` passes the same arguments on, in an environment that holds what this program needs. Figures are kept
in results/PART.json and shown in README.md; with another scale than 1 they are only printed.
"""

import argparse
import shutil
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Protocol

import bounds
from harness.options import Options
from harness.paths import README, RESULTS
from harness.results import Result, load_result
from harness.table import update_section
from parts import cold, imports, peers, realistic, scale, sizes


class Part(Protocol):
    """A module of `parts`."""

    PART: str

    def run(self, options: Options) -> Result:
        """Measure."""

    def render(self, result: Result) -> str:
        """Give the section's Markdown."""


@dataclass(frozen=True)
class Plan:
    """A part and how often it measures unless told otherwise."""

    part: Part
    rounds: int


PLANS = {
    plan.part.PART: plan
    for plan in (
        Plan(peers, 5),
        Plan(cold, 5),
        Plan(realistic, 3),
        Plan(sizes, 5),
        Plan(scale, 7),
        Plan(imports, 5),
    )
}


def section(result: Result) -> str:
    """Give a part's section: how, when and where it was measured, then its tables."""
    command = f"nox -s bench -- {result.part} --rounds {result.rounds}"
    return f"`{command}`, {result.date}: {result.machine}.\n\n{PLANS[result.part].part.render(result)}"


def stored() -> dict[str, Result]:
    """Read the figures of all parts that have some."""
    return {name: load_result(name) for name in PLANS if (RESULTS / f"{name}.json").exists()}


def render_readme(path: Path = README) -> None:
    """Write every section from the stored figures."""
    results = stored()
    for name, result in results.items():
        update_section(name, section(result), path)
    update_section(bounds.PART, bounds.render(results), path)


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PLANS)}; all if left out")
    parser.add_argument("--rounds", type=int, help="how often everything is measured")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of samples")
    parser.add_argument("--folder", type=Path, help="where payloads are stored; a temporary folder if left out")
    parser.add_argument("--render", action="store_true", help="measure nothing, write README.md from the figures")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.parts if name not in PLANS]
    if unknown:
        parser.error(f"PART must be of {', '.join(PLANS)}, got {unknown[0]}")
    if arguments.render:
        render_readme()
        sizes.draw(load_result(sizes.PART))
        return

    folder = Path(tempfile.mkdtemp(prefix="dataset-rt-bench-", dir=arguments.folder))
    try:
        for name in arguments.parts or PLANS:
            plan = PLANS[name]
            begun = time.monotonic()
            result = plan.part.run(Options(arguments.rounds or plan.rounds, arguments.scale, folder))
            result.date = datetime.now(timezone.utc).date().isoformat()
            if arguments.scale == 1:
                result.save()
                if name == sizes.PART:
                    sizes.draw(result)
            print(f"\n## {name}\n\n{section(result)}\n({time.monotonic() - begun:.0f} s)", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.scale == 1:
        render_readme()


if __name__ == "__main__":
    main()
