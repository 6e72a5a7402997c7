"""Publication: a writer that is killed, refused or raced at any step leaves no cache or a whole one.

The writers run in `publication_worker.py`, which watches every system call of the wheel by the kernel's own means, so
that nothing in the package exists for these tests.
"""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("publication_worker.py")
FULL = os.environ.get("DATASET_RT_GRID") == "full"


def run(task, root, **arguments):
    """Do one of the worker's tasks; give what it found."""
    root.mkdir(exist_ok=True)
    request = {"task": task, "root": str(root), "workers": 2, **arguments}
    # Python 3.12 warns of a fork in a process with threads; the worker has none of its own.
    command = [sys.executable, "-X", "faulthandler", "-W", "ignore::DeprecationWarning", str(WORKER)]
    done = subprocess.run([*command, json.dumps(request)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def watching(tmp_path_factory):
    """Skip where the kernel does not hand system calls over to another process."""
    done = subprocess.run([sys.executable, str(WORKER), '{"task": "supported"}'], capture_output=True, text=True)
    if done.stdout.strip() != "true":
        pytest.skip("needs seccomp: a kernel that hands system calls over to another process (Linux 5.5)")


# --- Killed


@pytest.mark.parametrize("workers", [1, 2])
def test_a_writer_killed_before_any_of_its_calls_leaves_no_cache_or_a_whole_one(watching, tmp_path, workers):
    outcomes = run("killed_before_every_call", tmp_path, workers=workers)
    calls = [call for call, _ in outcomes]
    # Every file is made, filled and synced, every folder synced, the cache renamed, its root synced, the lock freed.
    assert len(calls) >= 30
    assert calls[-3:] == ["renameat2", "fsync", "flock"]
    assert [there for _, there in outcomes] == [False] * (len(calls) - 2) + [True] * 2


def test_writers_killed_at_random_moments_leave_whole_caches_that_the_next_build_reuses(tmp_path):
    outcomes = run("killed_at_random_moments", tmp_path, kills=200 if FULL else 30, seed=25)
    assert len(outcomes) >= 30
    # Some were killed in the first source and some in a later one: the moments are spread over the whole build.
    assert {there for there, _ in outcomes} >= {0, 2, 3}


def test_what_a_source_started_outlives_its_killed_writer_and_blocks_nobody(tmp_path):
    found = run("helpers_outlive_their_writer", tmp_path)
    assert set(found) == {"fork", "multiprocessing", "subprocess"}
    # Nobody waits for the lock: the helpers live for two minutes.
    assert max(found.values()) < 60


# --- Interrupted


@pytest.mark.parametrize("workers", [1, 2] if FULL else [2])
def test_ctrl_c_at_any_call_of_a_writer_ends_it_soon_and_leaves_finished_caches_alone(watching, tmp_path, workers):
    outcomes = run("interrupted_at_every_call", tmp_path, workers=workers)
    assert len(outcomes) >= 30
    for call, _, there, left in outcomes:
        assert there[:1] == ["finished"], call
        assert left == [], call
    seconds = sorted(seconds for _, seconds, _, _ in outcomes)
    assert seconds[len(seconds) // 2] < 1
    # A machine that is busy with other things may be late now and then.
    assert seconds[-1] < 10


# --- Durable before it is visible


@pytest.mark.parametrize("workers", [1, 2])
def test_every_file_and_folder_is_synced_before_the_cache_is_renamed_to_its_place(watching, tmp_path, workers):
    calls = run("calls_of_a_write", tmp_path / "caches", workers=workers)
    root = tmp_path / "caches"
    [renamed] = [number for number, (name, _, _) in enumerate(calls) if name.startswith("rename")]
    building = Path(calls[renamed][1])
    assert building.parent == root / ".building"
    assert calls[renamed][2] == str(root / "digits")

    last_change, synced, made = {}, {}, []
    for number, (name, path, _) in enumerate(calls[:renamed]):
        path = Path(path)
        if path != building and building not in path.parents:
            continue
        if name in ("fsync", "fdatasync"):
            synced[path] = number
            continue
        if name in ("mkdir", "mkdirat", "openat", "open", "unlink", "unlinkat"):
            # An entry of the folder above comes or goes.
            last_change[path.parent] = number
            made.append(path.name)
        last_change[path] = number
    there = {building / path.relative_to(root / "digits") for path in (root / "digits").rglob("*")} | {building}
    for path in there:
        assert last_change[path] < synced[path] < renamed, path
    # The cache exists when its manifest does, so that is the last file to be made.
    assert made[-1] == "manifest.json"
    assert all(synced[path] < last_change[building / "manifest.json"] for path in there if path.suffix == ".bin")
    # The folder's new name is durable before the writer goes on.
    assert ["fsync", str(root), None] in calls[renamed:]


# --- Refused


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO] if FULL else [errno.ENOSPC])
def test_a_call_that_the_system_refuses_is_an_error_with_the_path_and_a_retry_works(watching, tmp_path, number):
    outcomes = run("refused_at_every_call", tmp_path, workers=1, number=number)
    assert len(outcomes) >= 30
    for call, path, there, report in outcomes:
        if report is None:
            # Only what others read of the lock, and freeing it, which its end does as well, may fail in silence.
            assert "/.locks/" in path
            assert call in ("ftruncate", "write", "flock")
            assert there
            continue
        told, operation, length = report
        assert told in path or path in told or call == "renameat2"
        assert operation.startswith("cannot ")
        assert (length is not None) == (call in ("write", "pwrite64")), (call, path, report)


@pytest.mark.parametrize(
    "refused",
    [
        {},
        {"flock": errno.ENOLCK},
        {"flock": errno.EOPNOTSUPP},
        {"renameat2": errno.EINVAL},
        {"flock": errno.ENOLCK, "renameat2": errno.EINVAL},
    ],
    ids=["everything works", "no locks", "no locks, said otherwise", "no such rename", "neither"],
)
def test_eight_processes_that_race_for_one_name_all_end_with_the_same_cache(request, tmp_path, refused):
    if refused:
        request.getfixturevalue("watching")
    found = run("raced", tmp_path, processes=8, refused=refused)
    digests = {digest for digest, _ in found["reports"]}
    assert len(found["reports"]) == 8
    assert len(digests) == 1
    assert sum(not reused for _, reused in found["reports"]) == 1
    # With locks one writes and seven wait; without them all write, and the rename decides.
    assert found["begun"] == (8 if "flock" in refused else 1)
    assert found["left"] == []


# --- Readers


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reader_takes_no_lock_and_opens_no_file_for_writing(watching, tmp_path, workers):
    calls = run("calls_of_reading", tmp_path / "caches", workers=workers)
    inside = [call for call in calls if call[1].startswith(str(tmp_path))]
    assert {Path(path).name for _, path, _, _ in inside} >= {"manifest.json", "index.bin", "000002.bin"}
    assert [call for call in calls if call[3]] == []
