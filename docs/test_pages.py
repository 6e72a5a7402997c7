"""Every piece of Python on the pages runs, and prints what the page says it prints.

The blocks marked `python` of one page are one program. It runs twice in one fresh folder, with warnings as errors,
because the pages promise that a second run finds the caches of the first. Blocks marked `output`, put together, are
what the first run prints; a page without one promises no output. In blocks marked `console`, a line that begins with
`$ dataset-rt` is a command: it runs in the folder that the program left, and prints the lines below it.
"""

import os
import re
import shlex
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


def commands(page: Path) -> list[tuple[str, str]]:
    """Each command of our own on a page, with what the page says that it prints."""
    found = []
    for block in blocks(page, "console"):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if command.startswith("dataset-rt"):
                found.append((command, output))
    return found


WITH_PROGRAMS = [page for page in PAGES if blocks(page, "python")]


def test_the_pages_that_teach_have_programs() -> None:
    names = {str(page.relative_to(ROOT)) for page in WITH_PROGRAMS}
    assert {"README.md", "docs/get-started.md", "packages/dataset-rt/README.md"} <= names
    assert {"docs/tutorials/cache-training-data.md", "docs/tutorials/filter-and-rebalance.md"} <= names


def test_the_pages_about_the_command_show_it() -> None:
    names = {str(page.relative_to(ROOT)) for page in WITH_PROGRAMS if commands(page)}
    assert {"docs/reference/command-line.md", "docs/guides/verify-and-repair.md"} <= names


@pytest.mark.parametrize("page", WITH_PROGRAMS, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_program_runs_twice_and_prints_what_the_page_shows(page: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("\n\n".join(blocks(page, "python")))
    folder = tmp_path / "folder"
    folder.mkdir()
    # Where our own command is installed, also if this environment is not the active one.
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    printed = []
    for _ in range(2):
        command = [sys.executable, "-W", "error", str(program)]
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        printed.append(done.stdout)
    shown = blocks(page, "output")
    if shown:
        assert printed[0] == "".join(shown)
    for line, output in commands(page):
        command = shlex.split(line)
        ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
        assert ran.stdout + ran.stderr == output, line


SURVIVAL = ROOT / "docs" / "concepts" / "what-survives-what.md"
TESTS_OF_PYTHON = [*(ROOT / "packages").glob("*/tests/test_*.py"), *(ROOT / "conformance" / "tests").glob("test_*.py")]
TESTS_OF_RUST = [path for folder in ("src", "tests") for path in (ROOT / "rust").glob(f"*/{folder}/**/*.rs")]


def test_every_row_of_what_survives_what_names_tests_that_exist() -> None:
    rows = [line for line in SURVIVAL.read_text().splitlines() if line.startswith("| ")]
    faults = [row for row in rows if not row.startswith("| fault |")]
    assert len(faults) >= 20
    assert [row for row in faults if "::" not in row.rsplit("|", 2)[1]] == []
    for file, function in set(re.findall(r"`([\w/.]+)::(\w+)`", SURVIVAL.read_text())):
        found = [path for path in TESTS_OF_PYTHON + TESTS_OF_RUST if path.name == file]
        assert len(found) == 1, f"exactly one file {file} expected, found {found}"
        definition = rf"^def {function}\(" if file.endswith(".py") else rf"#\[test\]\n\s*fn {function}\("
        assert re.search(definition, found[0].read_text(), re.MULTILINE), f"{file} has no test {function}"
