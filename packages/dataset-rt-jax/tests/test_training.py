"""A training that is killed and started again ends with the very weights of one that was not."""

import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("training_worker.py")
STEPS = 2 * 32


def begin(cache, checkpoints, kind):
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(WORKER), str(cache), str(checkpoints), kind],
        stdout=subprocess.PIPE,
        text=True,
    )


def finished(process):
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0
    return output.splitlines()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """The lines of a run that nobody stops, and its cache."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    lines = finished(begin(folder / "cache", folder / "checkpoints", "iter"))
    assert (lines[0], len(lines)) == ("begins at 0", STEPS + 2)
    return lines, folder / "cache"


@pytest.mark.parametrize("kind", ["iter", "map"])
def test_killed_in_both_epochs_and_resumed_it_ends_with_the_same_weights(uninterrupted, tmp_path, kind):
    expected, cache = uninterrupted
    steps, last = {}, None
    # Neither kill is at a step that was just saved, and the second is in the second epoch.
    for kill_at in (17, 45, None):
        process = begin(cache, tmp_path / "checkpoints", kind)
        try:
            begins = int(process.stdout.readline().split()[-1])
            assert begins % 7 == 0
            assert (begins > 0) == (last is not None)
            for line in process.stdout:
                last = line.strip()
                if last.startswith("step"):
                    steps[last.split()[1]] = last
                if kill_at is not None and last.startswith(f"step {kill_at} "):
                    process.kill()
                    break
        finally:
            process.stdout.close()
            code = process.wait(timeout=600)
        assert code == (0 if kill_at is None else -9)
    assert last == expected[-1]
    assert list(steps.values()) == expected[1:-1]
