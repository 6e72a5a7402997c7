"""What a cache from a stranger cannot do.

That no package unpickles or evaluates anything is held against the wheels by `packages/test_packages.py`, and what a
manifest may name by the crate's own tests.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys

import pytest
from click.testing import CliRunner

import dataset_rt as drt
from dataset_rt.cli import main


def test_reading_a_cache_imports_and_runs_nothing_that_its_text_names(cache_of, open_caches, tmp_path):
    marker = tmp_path / "ran"
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    payload = f"cposix\nsystem\n(S'touch {marker}'\ntR.".encode()
    path = cache_of("hostile", [drt.CacheInput(payload, {"text": code, code: code, "{0.__class__}": "%(x)s$(id)`id`"})])
    dataset = open_caches(path)
    (sample,) = dataset
    assert sample.data == payload
    assert sample.metadata["text"] == code
    dataset.update_metadata(dataset.get_metadata())
    repr(sample), repr(dataset.get_metadata())
    assert not marker.exists()


@pytest.fixture
def umask():
    """Set the umask, and put the old one back."""
    old = os.umask(0o022)
    yield os.umask
    os.umask(old)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o027, 0o077])
def test_permissions_follow_the_umask(umask, cache_of, tmp_path, mask):
    umask(mask)
    path = cache_of("digits", [{"label": 1}], tmp_path / "new")
    for entry in [tmp_path / "new", *(tmp_path / "new").rglob("*")]:
        wanted = (0o777 if entry.is_dir() else 0o666) & ~mask
        assert oct(stat.S_IMODE(entry.stat().st_mode)) == oct(wanted), entry
    assert path.is_dir()


def test_links_are_followed_but_their_targets_are_never_quoted(cache_of, open_caches, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("the secret words " * 100)
    path = cache_of("digits", [{"label": 1}] * 3)
    for name in ("manifest.json", "index.bin", "metadata.arrow", "shards/000000.bin"):
        file = path / name
        content = file.read_bytes()
        # Once as it is, and once with the length that the manifest gives the file.
        for length in (1700, len(content)):
            secret.write_bytes((b"the secret words " * 1000)[:length])
            file.unlink()
            file.symlink_to(secret)
            with pytest.raises(drt.CacheCorruptError) as found:
                list(open_caches(path))
            assert "secret" not in str(found.value).replace(str(secret), "")
            file.unlink()
            file.write_bytes(content)
    assert len(list(open_caches(path))) == 3


# Reads a cache as users do, after its files were exchanged while it was open.
READER = """
import os, signal, sys
from pathlib import Path
import dataset_rt as drt
signal.signal(signal.SIGINT, signal.default_int_handler)
path, name, kind, io = Path(sys.argv[1]), *sys.argv[2:]
config = drt.ReaderConfig(shuffle=False, io=io)
dataset = drt.DatasetRuntime(num_workers=1).cached_dataset(path, reader_config=config)
def exchange():
    file = path / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    elif kind == "folder":
        file.mkdir()
    else:
        import socket
        os.chdir(file.parent)
        socket.socket(socket.AF_UNIX).bind(file.name)
exchange()
try:
    if name == "metadata.arrow":
        dataset.get_metadata(), [sample.metadata for sample in dataset.read([0])]
    else:
        dataset.read([0])
except drt.CacheCorruptError as error:
    print(Path(error.file).name, "found", error.found)
"""


@pytest.mark.parametrize("io", ["positioned", "auto"])
@pytest.mark.parametrize(
    ("kind", "found"), [("pipe", "no regular file"), ("folder", "a folder"), ("socket", "no regular file")]
)
@pytest.mark.parametrize("name", ["index.bin", "metadata.arrow", "shards/000000.bin"])
def test_what_takes_the_place_of_a_file_of_an_open_cache_is_refused_and_never_waited_for(
    cache_of, name, kind, found, io
):
    path = cache_of("digits", [{"label": 1}] * 3)
    command = [sys.executable, "-c", READER, path, name, kind, io]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{name.rpartition('/')[2]} found {found}\n"


def test_a_manifest_that_calls_itself_empty_is_not_read(cache_of, open_caches):
    path = cache_of("digits", [{"label": 1}])
    # Of length 0, as a link to a file that the kernel makes up; this one has contents all the same.
    (path / "manifest.json").unlink()
    (path / "manifest.json").symlink_to("/proc/kmsg" if os.access("/proc/kmsg", os.R_OK) else "/proc/self/status")
    program = (
        "import sys, dataset_rt as drt\n"
        "try:\n"
        "    drt.DatasetRuntime(num_workers=1).cached_dataset(sys.argv[1], reader_config=drt.ReaderConfig())\n"
        "except drt.CacheCorruptError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")
    assert "manifest.json" in done.stdout


def test_pickles_of_the_package_hold_no_code_of_others(cache_of, open_caches):
    import pickle
    import pickletools

    dataset = open_caches(cache_of("digits", [{"label": 1}] * 3))
    for made in (dataset.stream(), dataset[0], drt.array_decoder("u1", (9,)), drt.CacheInput(b"", {})):
        found = [
            argument
            for opcode, argument, _ in pickletools.genops(pickle.dumps(made, protocol=0))
            if opcode.name == "GLOBAL"
        ]
        allowed = ("dataset_rt", "copyreg", "builtins", "__builtin__", "copy_reg", "numpy", "pathlib", "_codecs")
        assert found
        assert all(str(name).startswith(allowed) for name in found), found


def test_the_command_hands_nothing_to_a_shell(cache_of, tmp_path, monkeypatch):
    path = cache_of("a;touch ran;$(touch ran)`touch ran`", [{"label": "$(touch ran)"}])
    monkeypatch.chdir(tmp_path)
    for command in ("info", "head", "stats", "verify"):
        assert CliRunner().invoke(main, [command, str(path)]).exit_code == 0
    assert not (tmp_path / "ran").exists()
