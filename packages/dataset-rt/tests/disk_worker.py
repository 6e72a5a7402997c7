"""Writes and reads where the system sets narrow bounds: a small disk, short files, few descriptors, a read-only tree.

`disk_worker.py JSON` with {"task", "root", …}: the task is the name of a function below. It prints JSON. Mounts are
made in a namespace of this process's own, so they are gone with it and nobody else sees them.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
READ_ONLY, REMOUNT, PRIVATE, RECURSIVE = 1, 32, 1 << 18, 1 << 14
READER = drt.ReaderConfig(shuffle=False)


class Random:
    """Samples that no codec makes smaller."""

    name = "random"

    def __init__(self, samples: int, length: int) -> None:
        self.samples, self.length = samples, length

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number in range(self.samples):
            yield drt.CacheInput(random.Random(number).randbytes(self.length), {"number": number})


def library_call(name: str, *arguments: Any) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if getattr(library, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def own_mounts() -> None:
    """Take a mount namespace of our own; without privileges inside a user namespace of our own."""
    user, group = os.getuid(), os.getgid()
    try:
        library_call("unshare", NEW_MOUNTS)
    except OSError:
        library_call("unshare", NEW_MOUNTS | NEW_USER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    library_call("mount", b"none", b"/", None, PRIVATE | RECURSIVE, None)


def mount_small_disk(folder: Path, size: str) -> None:
    own_mounts()
    library_call("mount", b"none", os.fsencode(folder), b"tmpfs", 0, f"size={size}".encode())


def files(root: Path) -> list[str]:
    """Every file but locks."""
    found = [path for path in root.rglob("*") if path.is_file() and path.parent.name != ".locks"]
    return sorted(str(path.relative_to(root)) for path in found)


def times(root: Path) -> dict[str, list[int]]:
    """When each entry was changed, in content or in any other way."""
    return {
        str(path): [path.lstat().st_mtime_ns, path.lstat().st_ctime_ns, path.lstat().st_size]
        for path in [root, *root.rglob("*")]
    }


def write(root: Path, source: Any, **fields: Any) -> dict[str, Any]:
    config = drt.WriterConfig(show_progress=False, **fields)
    (result,) = drt.DatasetRuntime(num_workers=2).write_cache(source, root, writer_config=config)
    if isinstance(result, drt.CacheWriteSuccess):
        return {"samples": result.samples}
    error = result.error
    assert isinstance(error, drt.CacheIOError), repr(error)
    return {"message": result.message, "path": str(error.path), "bytes": error.bytes, "errno": error.errno}


def read(root: Path, source: Random) -> int:
    """How many samples came back; all of them must be the source's."""
    dataset = drt.DatasetRuntime(num_workers=2).cached_dataset(root / source.name, reader_config=READER)
    found = [sample.data for sample in dataset]
    assert found == [sample.data for sample in source]
    return len(found)


def can_mount(root: str) -> bool:
    """Whether this process may mount something in a namespace of its own."""
    try:
        mount_small_disk(Path(root), "1m")
    except OSError:
        return False
    return True


def full_disk(root: str, size: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Write twice as much as the disk holds, then what it can hold."""
    folder = Path(root)
    mount_small_disk(folder, size)
    failed = write(folder, Random(400, 40_000), **fields)
    left = files(folder)
    small = Random(100, 40_000)
    return {"failed": failed, "left": left, "again": write(folder, small, **fields), "read": read(folder, small)}


def full_disk_at_every_page(root: str) -> list[dict[str, Any]]:
    """Write a cache where ever more pages of a disk are free, until they are enough; give every outcome."""
    folder, source, outcomes = Path(root), Random(30, 8_000), []
    mount_small_disk(folder, "8m")
    filler = folder / "filler"
    for pages in range(1000):
        with filler.open("wb") as file:
            free = os.statvfs(folder)
            if free.f_bavail > pages:
                os.posix_fallocate(file.fileno(), 0, (free.f_bavail - pages) * free.f_bsize)
        outcome = write(folder, source)
        outcomes.append({**outcome, "left": [name for name in files(folder) if name != "filler"]})
        if "samples" in outcome:
            assert read(folder, source) == source.samples
            return outcomes
    raise AssertionError("the cache never fits")


def short_files(root: str, most: int, fields: dict[str, Any]) -> dict[str, Any]:
    """Write a shard longer than files may be, then again without that bound."""
    folder, source = Path(root), Random(100, 40_000)
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    failed = write(folder, source, **fields)
    left = files(folder)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    return {"failed": failed, "left": left, "again": write(folder, source, **fields), "read": read(folder, source)}


def load(root: Path, source: Random) -> bool:
    """Whether the complete cache was reused; its table and its samples must be the source's."""
    config = drt.WriterConfig(show_progress=False)
    runtime = drt.DatasetRuntime(num_workers=2)
    result = runtime.from_cache_sources(source, root, reader_config=READER, writer_config=config)
    dataset = result.unwrap()
    assert dataset.get_metadata()["number"].to_list() == list(range(source.samples))
    assert [sample.data for sample in dataset] == [sample.data for sample in source]
    return result.results[0].reused


def read_only(root: str, *, mounted: bool) -> dict[str, Any]:
    """Open a complete cache in a tree that cannot be written to, and fail to write another one there."""
    folder, source = Path(root), Random(50, 2_000)
    write(folder, source)
    # What Python and the libraries import at first use may lie where another user cannot read.
    load(folder, source)
    if mounted:
        own_mounts()
        place, bind = os.fsencode(folder), 4096
        library_call("mount", place, place, None, bind, None)
        library_call("mount", b"none", place, None, bind | REMOUNT | READ_ONLY, None)
    else:
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o555 if path.is_dir() else 0o444)
        if os.getuid() == 0:
            # Root may write everywhere, so this goes on as nobody.
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
    before = times(folder)
    refused = 0
    try:
        (folder / "attempt").touch()
    except OSError as error:
        refused = error.errno or 0
    reused = load(folder, source)
    source.name = "missing"
    return {"refused": refused, "reused": reused, "failed": write(folder, source), "same": times(folder) == before}


def few_descriptors(root: str, limit: int, io: str) -> dict[str, Any]:
    """Read a cache of very many shards in every way with few descriptors; the most that were open, and mappings."""
    folder = Path(root)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    config = drt.ReaderConfig(shuffle=True, replacement=False, seed=3, io=io, prefetch_size=2000)
    dataset = drt.DatasetRuntime(num_workers=2).cached_dataset(folder / "random", reader_config=config)
    most = mappings = 0

    def look() -> None:
        nonlocal most, mappings
        most = max(most, len(list(Path("/proc/self/fd").iterdir())))
        mappings = max(mappings, Path("/proc/self/maps").read_text().count("/shards/"))

    ids = []
    for number, sample in enumerate(dataset):
        ids.append(sample.sample_id)
        assert sample.data == random.Random(sample.sample_id).randbytes(16)
        if number % 100 == 0:
            look()
    for batch in dataset.iter_batches(500):
        look()
        assert batch.num_rows
    dataset.read(range(0, len(ids), 7))
    look()
    assert sorted(ids) == list(range(len(dataset)))
    return {"samples": len(ids), "most": most, "mappings": mappings}


def main() -> None:
    """Do the task."""
    request = json.loads(sys.argv[1])
    task: Callable[..., Any] = globals()[request.pop("task")]
    print(json.dumps(task(**request)))


if __name__ == "__main__":
    main()
