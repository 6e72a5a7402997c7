"""Every piece of Python on the pages runs, and prints what the page says it prints.

The blocks marked `python` of one page are one program. It runs twice in one fresh folder, with warnings as errors,
because the pages promise that a second run finds the caches of the first. Blocks marked `output`, put together, are
what the first run prints; a page without one promises no output.
"""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "packages").glob("*/README.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\b[^\n]*\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


WITH_PROGRAMS = [page for page in PAGES if blocks(page, "python")]


def test_the_pages_that_teach_have_programs() -> None:
    names = {str(page.relative_to(ROOT)) for page in WITH_PROGRAMS}
    assert {"README.md", "docs/get-started.md", "packages/dataset-rt/README.md"} <= names
    assert {"docs/tutorials/cache-training-data.md", "docs/tutorials/filter-and-rebalance.md"} <= names


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_program_runs_twice_and_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("\n\n".join(blocks(page, "python")))
    folder = tmp_path / "folder"
    folder.mkdir()
    printed = []
    for _ in range(2):
        command = [sys.executable, "-W", "error", str(program)]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    shown = blocks(page, "output")
    if shown:
        assert printed[0] == "".join(shown)
