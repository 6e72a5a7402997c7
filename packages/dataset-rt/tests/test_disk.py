"""Disks and trees: what is full, short, read-only or large ends in a named error or works."""

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("disk_worker.py")


def run(task, root, **arguments):
    """Do one of the worker's tasks; give what it found."""
    root.mkdir(exist_ok=True)
    request = json.dumps({"task": task, "root": str(root), **arguments})
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", str(WORKER), request], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def root(tmp_path):
    return tmp_path / "caches"


@pytest.fixture(scope="module")
def mounts(tmp_path_factory):
    """Skip where this user may not mount anything, not even in a namespace of its own."""
    if not run("can_mount", tmp_path_factory.mktemp("disk")):
        pytest.skip("needs mounts: a user who may mount a small disk in a namespace of its own")


# --- Full


@pytest.mark.parametrize(
    "fields",
    [{}, {"max_shard_bytes": 100_000}, {"shard_compression": {"algo": "zstd"}}],
    ids=["one shard", "many shards", "compressed"],
)
def test_a_full_disk_is_an_error_with_path_and_bytes_and_a_retry_works(mounts, root, fields):
    found = run("full_disk", root, size="8m", fields=fields)
    failed = found["failed"]
    assert failed["errno"] == errno.ENOSPC
    assert failed["bytes"] > 0
    assert Path(failed["path"]).is_relative_to(root / ".building")
    assert failed["path"] in failed["message"]
    assert f"{failed['bytes']} bytes" in failed["message"]
    assert "No space left on device" in failed["message"]
    assert found["left"] == []
    assert (found["again"], found["read"]) == ({"samples": 100}, 100)


def test_a_disk_that_is_full_at_any_page_of_a_cache_leaves_nothing_and_more_room_helps(mounts, root):
    *failed, done = run("full_disk_at_every_page", root)
    assert done["samples"] == 30
    names = set()
    for outcome in failed:
        assert outcome["errno"] == errno.ENOSPC, outcome
        assert outcome["path"] in outcome["message"]
        assert outcome["left"] == []
        names.add(Path(outcome["path"]).name)
    # Each of them was the one that did not fit.
    assert names >= {"000000.bin", "index.bin", "metadata.arrow", "manifest.json"}


@pytest.mark.parametrize("fields", [{}, {"shard_compression": {"algo": "lz4"}}], ids=["plain", "compressed"])
def test_a_file_longer_than_the_limit_is_an_error_with_path_and_bytes_and_a_retry_works(root, fields):
    found = run("short_files", root, most=1_500_000, fields=fields)
    failed = found["failed"]
    assert failed["errno"] == errno.EFBIG
    assert failed["bytes"] > 0
    assert Path(failed["path"]).name == "000000.bin"
    assert failed["path"] in failed["message"]
    assert f"{failed['bytes']} bytes" in failed["message"]
    assert found["left"] == []
    assert (found["again"], found["read"]) == ({"samples": 100}, 100)


# --- Read-only


def check_read_only(found, number):
    assert found["refused"] == number
    assert found["reused"] is True
    assert found["same"] is True
    # What is missing there cannot be written, which is said with the place.
    assert found["failed"]["errno"] == number
    assert Path(found["failed"]["path"]).parent.name == ".locks"
    assert found["failed"]["path"] in found["failed"]["message"]


def test_a_tree_that_the_user_may_not_write_to_loads():
    # Folders of pytest are closed to other users, and the reader is to be one if that can be.
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        check_read_only(run("read_only", Path(folder) / "caches", mounted=False), errno.EACCES)


def test_a_file_system_that_is_mounted_read_only_loads(mounts, root):
    check_read_only(run("read_only", root, mounted=True), errno.EROFS)


# --- Very many files


@pytest.fixture(scope="module")
def many_shards(tmp_path_factory):
    """A cache of one sample a shard, written with few descriptors too; in memory, where there is room, for speed."""
    memory = Path("/dev/shm")
    roomy = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 1 << 30
    with tempfile.TemporaryDirectory(dir=memory if roomy else tmp_path_factory.mktemp("many")) as folder:
        yield written_with_few_descriptors(Path(folder), 10_000)


def written_with_few_descriptors(root, shards):
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import resource, disk_worker, pathlib\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
        f"source = disk_worker.Random({shards}, 16)\n"
        f"assert disk_worker.write(pathlib.Path(sys.argv[2]), source, max_shard_bytes=1) == {{'samples': {shards}}}\n"
    )
    command = [sys.executable, "-c", program, str(WORKER.parent), str(root)]
    subprocess.run(command, check=True, timeout=600)
    assert len(list((root / "random" / "shards").iterdir())) == shards
    return root


@pytest.mark.parametrize("io", ["positioned", "auto"])
def test_ten_thousand_shards_need_few_descriptors(many_shards, io):
    found = run("few_descriptors", many_shards, limit=256, io=io)
    assert found["samples"] == 10_000
    # Python, its standard streams and the libraries have some of their own.
    assert found["most"] <= 120
    # Linux allows 65,530 mappings unless it was told otherwise; a reader keeps at most 2,048 of them.
    assert found["mappings"] <= (120 if io == "positioned" else 2_200)
