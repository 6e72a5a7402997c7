"""The command: what it prints, its exit codes, and that it writes and imports nothing that it need not."""

from __future__ import annotations

import datetime
import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

import dataset_rt as drt
from dataset_rt.cli import main

SCORES = [0.5, float("nan"), None, float("inf"), 0.5, float("nan")]
TEXTS = ["", "a\tb", "é", "-", "x" * 100, "é"]
ROWS = [
    {"label": None if number == 3 else number % 2, "score": score, "text": text}
    for number, (score, text) in enumerate(zip(SCORES, TEXTS, strict=True))
]


@pytest.fixture
def path(cache_of):
    return cache_of("digits", ROWS)


@pytest.fixture
def root(path, cache_of):
    """A folder with two caches, and the hidden ones of their writers."""
    cache_of("letters", [{}] * 3, shard_compression=drt.ShardCompression(algo="lz4"))
    return path.parent


def run(*arguments, code=0):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def values(*arguments, code=0):
    return json.loads(run(*arguments, "--json", code=code))


def flip(file, offset):
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)


# --- info


def test_info_says_what_the_dataset_says(path, open_caches):
    (described,) = values("info", path)
    (cache,) = open_caches(path).caches.to_dicts()
    assert int(described["cache_id"]) == cache["cache_id"]
    assert described["name"] == cache["name"] == "digits"
    assert described["path"] == str(path)
    assert described["samples"] == cache["samples"] == 6
    assert described["payload_bytes"] == described["stored_bytes"] == cache["payload_bytes"]
    assert described["codec"] == {"algo": "none", "level": None}
    assert [column["kind"] for column in described["columns"]] == ["Int64", "Float64", "String"]
    assert [column["has_nulls"] for column in described["columns"]] == [True, True, False]
    assert described["format_version"] == drt.FORMAT_VERSION
    shown = run("info", path)
    for part in (described["cache_id"], described["content_digest"], "6", "label   Int64    yes"):
        assert part in shown


def test_info_shows_attributes_and_the_level_of_the_codec(write, source_of):
    config = {"shard_compression": drt.ShardCompression(algo="zstd", level=3)}
    source = source_of("digits", [{}], attributes={"licence": "CC0-1.0", "note": "two\nlines"})
    path = write(source, **config).path
    assert values("info", path)[0]["attributes"] == {"licence": "CC0-1.0", "note": "two\nlines"}
    shown = run("info", path)
    assert "attribute licence" in shown
    assert "'two\\nlines'" in shown
    assert "codec zstd, level 3" in shown


def test_a_root_stands_for_its_caches_in_order_and_each_cache_comes_once(root):
    names = ["digits", "letters"]
    assert [cache["name"] for cache in values("info", root)] == names
    assert [cache["name"] for cache in values("info", root, root / "digits", f"{root}/../{root.name}")] == names
    assert [cache["name"] for cache in values("info", root / "letters", root)] == names[::-1]


# --- head


def test_head_shows_the_first_samples_as_they_are(path, read_back):
    (shown,) = values("head", path)
    assert len(shown["samples"]) == 5
    for sample, read in zip(shown["samples"], read_back(path), strict=False):
        assert sample["sample_id"] == read.sample_id
        assert bytes.fromhex(sample["payload_begins"]) == read.data[:16]
        assert sample["payload_bytes"] == len(read.data)
    assert [sample["metadata"]["score"] for sample in shown["samples"]] == [0.5, "nan", None, "inf", 0.5]
    assert shown["samples"][1]["metadata"]["text"] == "a\tb"


def test_head_has_a_line_for_each_sample_whatever_its_text_holds(path):
    lines = run("head", path, "-n", "99").splitlines()
    assert len(lines) == 2 + len(ROWS)
    assert lines[1].split()[0] == "sample_id"
    # Empty text, a tab and the sign for null are told from the real ones.
    assert [line.count(part) for line, part in zip(lines[2:], ["''", "'a\\tb'", "é", "'-'", "x…"], strict=False)] == [
        1
    ] * 5
    assert max(map(len, lines)) < 120


def test_head_shows_samples_without_metadata(root):
    assert run("head", root / "letters", "-n", "1").splitlines()[1].split() == [
        "sample_id",
        "bytes",
        "payload",
        "begins",
    ]


def test_dates_are_iso_text(cache_of):
    moment = datetime.datetime(2020, 2, 29, 12, 30)
    path = cache_of("days", [{"day": moment.date(), "moment": moment}])
    for found in (values("head", path)[0]["samples"][0]["metadata"], *[
        {column["name"]: column["min"] for column in values("stats", path)[0]["columns"]}
    ]):  # fmt: skip
        assert found == {"day": "2020-02-29", "moment": "2020-02-29T12:30:00"}


# --- stats


def test_stats_are_those_of_the_table_and_of_the_payloads(path, read_back):
    (summary,) = values("stats", path)
    lengths = [len(sample.data) for sample in read_back(path)]
    sizes = summary["payload_bytes"]
    assert (sizes["total"], sizes["min"], sizes["max"]) == (sum(lengths), min(lengths), max(lengths))
    label, score, text = summary["columns"]
    assert (label["nulls"], label["distinct"], label["min"], label["max"], label["mean"]) == (1, 2, 0, 1, 0.4)
    assert label["most_common"] == [{"value": 0, "count": 3}, {"value": 1, "count": 2}]
    assert (score["nulls"], score["min"], score["max"]) == (1, 0.5, "inf")
    assert text["most_common"][0] == {"value": "é", "count": 2}
    assert text["mean"] is None
    shown = run("stats", path)
    assert "digits: 6 samples" in shown
    assert "0 (3), 1 (2)" in shown


def test_stats_of_a_column_of_nothing_but_nulls_are_empty(cache_of):
    (column,) = values("stats", cache_of("empty", [{"field": None}] * 3))[0]["columns"]
    assert column.pop("most_common") == []
    empty = {"kind": "String", "nulls": 3, "distinct": 0, "min": None, "mean": None, "max": None}
    assert column == {"name": "field", **empty}


def test_stats_count_every_size(cache_of):
    items = [drt.CacheInput(b"\0" * size, {}) for size in (0, 10, 1000, 90)]
    path = cache_of("sizes", items, shard_compression=drt.ShardCompression(algo="zstd"))
    (summary,) = values("stats", path)
    assert summary["payload_bytes"] == {"total": 1100, "min": 0, "median": 50, "mean": 275, "max": 1000}
    assert summary["stored_bytes"]["total"] == values("info", path)[0]["stored_bytes"]
    assert summary["columns"] == []


# --- verify


def test_whole_caches_are_fine(root):
    for content in ([], ["--content"]):
        assert [line.split(": ")[1][:4] for line in run("verify", root, *content).splitlines()] == ["fine", "fine"]
        assert [cache["faults"] for cache in values("verify", root, *content)] == [[], []]


def test_verify_lists_every_fault_with_file_sample_expected_and_found(root):
    path = root / "digits"
    flip(path / "shards" / "000000.bin", 16)
    flip(path / "shards" / "000000.bin", 16 + 9)
    flip(path / "metadata.arrow", len((path / "metadata.arrow").read_bytes()) - 20)
    (path / "notes.txt").write_text("foreign")
    (root / "letters" / "index.bin").unlink()
    digits, letters = values("verify", root, code=1)
    assert [(fault["file"], fault["sample"]) for fault in digits["faults"]] == [
        ("metadata.arrow", None),
        ("metadata.arrow", None),
        ("notes.txt", None),
        ("shards/000000.bin", None),
        ("shards/000000.bin", 0),
        ("shards/000000.bin", 1),
    ]
    assert [(fault["file"], fault["found"]) for fault in letters["faults"]] == [("index.bin", "nothing")]
    for fault in digits["faults"] + letters["faults"]:
        assert fault["error"] == "CacheCorruptError"
        assert fault["expected"] != fault["found"]
        assert str(root) in fault["message"]
    shown = run("verify", root, code=1)
    assert "shards/000000.bin, sample 1\n" in shown
    assert shown.endswith("\n7 faults in 2 of 2 caches\n")
    for fault in digits["faults"] + letters["faults"]:
        assert f"expected  {fault['expected']}\n" in shown
        assert f"found     {fault['found']}\n" in shown


def test_of_more_than_a_thousand_faults_the_first_are_shown_and_json_has_all(cache_of):
    path = cache_of("many", [{"label": 1}] * 1_500)
    shard = path / "shards" / "000000.bin"
    content = shard.read_bytes()
    shard.write_bytes(content[:16] + bytes(byte ^ 1 for byte in content[16:]))
    (cache,) = values("verify", path, code=1)
    assert [fault["sample"] for fault in cache["faults"]] == [None, *range(1_500)]
    shown = run("verify", path, code=1).splitlines()
    assert shown[0] == f"{path}: 1,501 faults"
    assert shown[1 + 3 * 999] == "  shards/000000.bin, sample 998"
    assert shown[1 + 3 * 1_000 :] == ["  and 501 more, all of which --json lists", "", "1,501 faults in 1 of 1 cache"]


def test_damage_that_leaves_no_manifest_is_a_fault_and_not_overlooked(root):
    (root / "digits" / "manifest.json").unlink()
    (root / "letters" / "manifest.json").write_bytes(b"")
    digits, letters = values("verify", root, code=1)
    assert [fault["file"] for fault in digits["faults"] + letters["faults"]] == ["manifest.json"] * 2
    assert digits["samples"] is None
    assert "2 faults in 2 of 2 caches" in run("verify", root, code=1)


def test_a_newer_format_and_a_file_that_cannot_be_read_are_faults_too(path):
    manifest = path / "manifest.json"
    content = manifest.read_bytes()
    manifest.write_bytes(content.replace(b'"format_version":1', b'"format_version":2'))
    (fault,) = values("verify", path, code=1)[0]["faults"]
    assert fault["error"] == "CacheVersionError"
    assert (fault["file"], fault["expected"], fault["found"]) == ("manifest.json", "format version 1", "2")
    manifest.write_bytes(content)
    index = path / "index.bin"
    index.unlink()
    index.symlink_to(index)
    (fault,) = values("verify", path, code=1)[0]["faults"]
    assert (fault["error"], fault["file"]) == ("CacheIOError", "index.bin")


# --- Manners


@pytest.mark.parametrize(
    "arguments",
    [
        ["info"],
        ["verify"],
        ["head"],
        ["info", "nothing"],
        ["head", ".", "-n", "0"],
        ["head", ".", "-n", "many"],
        ["verify", ".", "--unknown"],
        ["mend", "."],
        # A folder without a cache.
        ["info", "."],
        ["verify", "."],
        ["stats", "."],
    ],
)
def test_a_wrong_use_is_code_2_with_a_message(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert "Usage: " in result.output
    assert "Error: " in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("command", ["info", "head", "stats"])
def test_a_damaged_cache_is_code_1_with_the_message_of_the_error(path, command):
    (path / "index.bin").write_bytes(b"")
    output = run(command, path, code=1)
    assert output.startswith("Error: ")
    assert "index.bin" in output
    assert len(output.splitlines()) == 1


def test_nothing_is_written(root, tree):
    before = tree(root)
    for command in ("info", "head", "stats", "verify"):
        run(command, root)
    assert tree(root) == before


HOSTILE = "a\x1b[2Jb\nfine: \u202e"


def test_verify_prints_nothing_of_a_cache_that_a_terminal_would_obey(path):
    (path / HOSTILE).write_bytes(b"")
    manifest = path / "manifest.json"
    for command in ("verify", "info", "head", "stats"):
        hidden = path.with_name("c\x1b]0;title\x07\nfine") / "digits"
        hidden.parent.mkdir()
        path.rename(hidden)
        output = run(command, hidden, code=int(command == "verify"))
        assert all(line.isprintable() for line in output.splitlines()), output
        assert "c\\x1b]0;title\\x07\\nfine/digits" in output.splitlines()[0]
        hidden.rename(path)
        hidden.parent.rmdir()
    shown = run("verify", path, code=1)
    assert "  a\\x1b[2Jb\\nfine: \\u202e\n" in shown
    assert values("verify", path, code=1)[0]["faults"][0]["file"] == HOSTILE
    # What a manifest says of itself is quoted in the message of an error.
    name = json.dumps("digits\x1b[2J\u202e").encode()
    manifest.write_bytes(manifest.read_bytes().replace(b'"source_name":"digits"', b'"source_name":' + name))
    for command, code in (("verify", 1), ("info", 1)):
        assert all(line.isprintable() for line in run(command, path, code=code).splitlines())


def script() -> str:
    return str(Path(sys.executable).with_name("dataset-rt"))


def test_json_is_valid_for_names_of_files_that_are_not_utf_8(path):
    name = os.fsdecode(b"\xff\xfe.txt")
    (path / name).write_bytes(b"")
    done = subprocess.run([script(), "verify", path, "--json"], capture_output=True, timeout=600)
    assert (done.returncode, done.stderr) == (1, b"")
    (cache,) = json.loads(done.stdout.decode("utf-8", errors="strict"))
    assert [fault["file"] for fault in cache["faults"]] == [name]


@pytest.mark.parametrize("as_json", [[], ["--json"]])
@pytest.mark.parametrize("command", ["info", "head", "stats", "verify", "digest"])
def test_an_output_that_cannot_be_written_is_a_short_error_and_not_the_code_of_a_damaged_cache(path, command, as_json):
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full: elsewhere no output is full at will")
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [script(), command, path, *as_json], stdout=full, stderr=subprocess.PIPE, text=True, timeout=600
        )
    assert (done.returncode, done.stderr) == (3, "Error: cannot write the output: No space left on device\n")


def test_an_output_that_nobody_reads_on_ends_the_command_quietly(path):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([script(), "info", path], stdout=write, stderr=subprocess.PIPE, text=True, timeout=600)
    os.close(write)
    assert (done.returncode, done.stderr) == (3, "")


def test_the_installed_command_runs_and_is_quiet_in_a_pipe(path):
    done = subprocess.run([script(), "verify", path, "--content"], capture_output=True, text=True, timeout=600)
    # Standard error is a pipe: no progress.
    assert (done.returncode, done.stderr) == (0, "")
    assert "digits: fine" in done.stdout


def test_the_command_says_its_version_and_helps():
    assert run("--version") == f"dataset-rt {drt.__version__}\n"
    for command in ("info", "head", "stats", "verify"):
        assert command in run("--help")
        assert "Usage: " in run(command, "--help")
        assert run(command, "-h") == run(command, "--help")


def test_a_terminal_sees_progress_and_the_result_stays_apart(path):
    master, slave = pty.openpty()
    with subprocess.Popen([script(), "verify", path], stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        shown, ends = b"", time.monotonic() + 600
        while time.monotonic() < ends:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    chunk = os.read(master, 65536)
                except OSError:
                    # Linux says so when the last writer has closed the terminal.
                    break
                if not chunk:
                    break
                shown += chunk
        os.close(master)
        output = process.stdout.read().decode()
        assert process.wait(600) == 0
    assert b"digits" in shown
    assert b"100%" in shown
    assert "%" not in output


def test_importing_the_package_does_not_import_click():
    program = "import sys, dataset_rt; assert 'click' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=600)
