"""Where the benchmarks and what they make lie."""

from pathlib import Path

BENCHMARKS = Path(__file__).resolve().parent.parent
ROOT = BENCHMARKS.parent
RESULTS = BENCHMARKS / "results"
README = BENCHMARKS / "README.md"
# Beside nox's own environments: ignored by git and by every tool.
ENVIRONMENTS = ROOT / ".nox" / "bench-environments"
DIST = ROOT / "dist"
