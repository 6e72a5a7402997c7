"""What arrives is the same through every loader: order and payloads, in one line."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dataset_rt.cli import main
from dataset_rt.testing import find_driver, replay
from drivers import LOADERS, driver_of, worker_counts

TESTDATA = Path(__file__).parents[2] / "testdata"
GOLDEN = TESTDATA / "format" / "v1" / "golden_none_v1"
PINNED = json.loads((TESTDATA / "order" / "delivery_digests_v1.json").read_text())
OPTIONS = {"ordered": ["--no-shuffle"], "with_replacement": [], "without_replacement": ["--no-replacement"]}

# Mode, seed, epoch length, ranks, remainder, batch size: batches and ranks that divide the epoch, and that do not.
WINDOWS = [
    ({}, 12, 1, "extend", 4),
    ({"seed": 2**64 - 1}, 12, 3, "extend", 5),
    ({}, 10, 3, "extend", 4),
    ({}, 10, 3, "drop", 4),
    ({}, 10, 3, "uneven", 4),
    ({"replacement": False}, 23, 2, "extend", 7),
    ({"shuffle": False}, 11, 4, "uneven", 1),
    ({}, 1, 1, "extend", 32),
]


@pytest.mark.parametrize("edited", [False, True], ids=["all_samples", "edited_table"])
@pytest.mark.parametrize("window", WINDOWS, ids=lambda window: f"{window[1]}-{window[2]}{window[3]}-{window[4]}")
@pytest.mark.parametrize("name", LOADERS)
def test_a_window_has_one_digest_in_every_framework(name, window, edited, request):
    fields, epoch_len, world_size, remainder, batch_size = window
    caches = request.getfixturevalue("edited_caches" if edited else "caches")
    dealt = {"epochs": 3, "world_size": world_size, "remainder": remainder}

    def open_dataset():
        return caches.open(epoch_len=epoch_len, **fields)

    # By another batch size, so that the core as well is compared with something else than itself.
    expected = replay(open_dataset, find_driver("core"), batch_size=3, **dealt)
    driver = driver_of(name)
    # Processes of workers once a mode: what they could change is the same in every window.
    counts = worker_counts(driver) if window in (WINDOWS[2], WINDOWS[5]) else (0,)
    for num_workers in counts:
        digest = replay(open_dataset, driver, batch_size=batch_size, num_workers=num_workers, **dealt)
        assert digest == expected, f"{num_workers} workers"


def test_digests_tell_windows_and_tables_apart(caches, edited_caches):
    found = {
        str(replay(lambda: opened.open(epoch_len=window[1], **window[0]), find_driver("core"), epochs=3))  # noqa: B023
        for window in (WINDOWS[0], WINDOWS[1], WINDOWS[2], *WINDOWS[5:])
        for opened in (caches, edited_caches)
    }
    assert len(found) == 12


def arguments_of(case, name, num_workers):
    numbers = ["--seed", case["seed"], "--epoch-len", case["epoch_len"], "--epochs", case["epochs"]]
    how = ["--batch-size", 4, "--through", name, "--workers", num_workers]
    return [str(argument) for argument in ("digest", GOLDEN, *OPTIONS[case["mode"]], *numbers, *how)]


@pytest.mark.parametrize("name", LOADERS)
def test_the_command_prints_every_pinned_line_through_every_framework(name):
    driver_of(name)
    for case in PINNED:
        result = CliRunner().invoke(main, arguments_of(case, name, 0))
        assert (result.exit_code, result.stdout) == (0, f"{case['line']}\n"), (result.output, result.exception)


@pytest.mark.parametrize("name", LOADERS)
def test_the_installed_command_prints_a_pinned_line_through_every_framework_with_workers(name):
    driver = driver_of(name)
    command = [Path(sys.executable).with_name("dataset-rt"), *arguments_of(PINNED[-1], name, worker_counts(driver)[-1])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout) == (0, f"{PINNED[-1]['line']}\n"), done.stderr
