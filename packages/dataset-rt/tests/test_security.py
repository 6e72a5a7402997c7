"""What a cache from a stranger cannot do.

That no package unpickles or evaluates anything is held against the wheels by `packages/test_packages.py`, and what a
manifest may name by the crate's own tests.
"""

from __future__ import annotations

import os
import stat

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
