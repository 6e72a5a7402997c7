"""The command `digest`: its line is the pinned one, says the same as a program, and misuse is told in a sentence."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import dataset_rt as drt
from dataset_rt.cli import main
from dataset_rt.testing import find_driver, replay

TESTDATA = Path(__file__).parents[3] / "testdata"
GOLDEN = TESTDATA / "format" / "v1" / "golden_none_v1"
CASES = json.loads((TESTDATA / "order" / "delivery_digests_v1.json").read_text())
MODES = {"ordered": ["--no-shuffle"], "with_replacement": [], "without_replacement": ["--no-replacement"]}


@pytest.fixture
def root(cache_of):
    cache_of("digits", [{"label": number % 3} for number in range(7)])
    return cache_of("letters", [{"label": number % 2} for number in range(5)]).parent


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["digest", *map(str, arguments)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def shown(*arguments):
    output = run(*arguments)
    assert output.count("\n") == 1
    return dict(field.split("=") for field in output.split())


def options_of(case):
    numbers = ["--seed", case["seed"], "--epoch-len", case["epoch_len"], "--epochs", case["epochs"]]
    return [*MODES[case["mode"]], *numbers]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['mode']}, seed {case['seed']}, {case['epoch_len']}")
def test_the_line_of_the_golden_cache_is_the_pinned_one(case):
    for more in ([], ["--batch-size", "4"], ["--world-size", case["epoch_len"]], ["--through", "core"]):
        assert run(GOLDEN, *options_of(case), *more) == f"{case['line']}\n"


def test_the_line_says_what_a_program_says(root, open_caches):
    def open_dataset():
        return open_caches(root / "digits", root / "letters", shuffle=True, seed=42)

    expected = replay(open_dataset, find_driver("core"), epochs=2)
    assert run(root, "--seed", "42", "--epochs", "2") == f"{expected}\n"
    assert json.loads(run(root, "--seed", "42", "--epochs", "2", "--json")) == dataclasses.asdict(expected)


def test_the_caches_of_a_root_are_one_dataset_in_any_order_of_the_paths(root):
    both = shown(root)
    assert both["draws"] == "12"
    assert shown(root / "letters", root / "digits") == shown(root / "digits", root, root / "letters") == both
    assert shown(root / "digits")["population"] != both["population"]


def test_each_option_that_chooses_samples_changes_the_line(root):
    chosen = [
        *([], ["--seed", "1"], ["--epochs", "2"], ["--epoch-len", "5"], ["--no-shuffle"], ["--no-replacement"]),
        *(["--world-size", "5"], ["--world-size", "5", "--remainder", "drop"]),
    ]
    assert len({run(root, *options) for options in chosen}) == len(chosen)
    draws = [shown(root, *options)["draws"] for options in chosen]
    assert draws == ["12", "12", "24", "5", "12", "12", "15", "10"]
    for same in (["--world-size", "4"], ["--batch-size", "5"], ["--world-size", "5", "--remainder", "uneven"]):
        assert run(root, *same) == run(root)


def test_the_table_decides_which_samples_are_drawn(root, open_caches, tmp_path):
    def open_dataset():
        dataset = open_caches(root / "digits", root / "letters", shuffle=True, seed=3)
        table = dataset.get_metadata()[2:]
        dataset.update_metadata(table.with_columns(weight=table["label"] + 0.5))
        return dataset

    file = tmp_path / "edited.parquet"
    open_dataset().get_metadata().write_parquet(file)
    assert run(root, "--seed", "3", "--table", file) == f"{replay(open_dataset, find_driver('core'))}\n"


def test_nothing_is_written(root, tree):
    before = tree(root)
    run(root)
    assert tree(root) == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "Missing argument"),
        (["--seed", "-1"], "--seed"),
        (["--seed", str(2**64)], "--seed"),
        (["--epochs", "0"], "--epochs"),
        (["--epoch-len", "0"], "--epoch-len"),
        (["--batch-size", "0"], "--batch-size"),
        (["--world-size", "0"], "--world-size"),
        (["--workers", "-1"], "--workers"),
        (["--remainder", "share"], "--remainder"),
        (["--table", "missing.parquet"], "--table"),
        (["--through", "mxnet"], "no driver named 'mxnet' is installed, only core"),
        (["--workers", "2"], "num_workers must be 0 for the core, which has no worker processes, got 2"),
        (["--world-size", "9", "--epoch-len", "4", "--remainder", "drop"], "epoch_len"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_use_is_code_2_and_says_why(root, arguments, said):
    output = run(*([root] if arguments else []), *arguments, code=2)
    assert "Usage: " in output
    assert said in output


def test_a_folder_without_a_cache_is_code_2(tmp_path):
    assert "Error: " in run(tmp_path, code=2)


def test_a_table_that_is_no_parquet_file_or_of_other_samples_is_code_2(root, open_caches, tmp_path):
    text = tmp_path / "table.csv"
    text.write_text("cache_id,sample_id,weight\n")
    assert f"--table {text} must be a Parquet file" in run(root, "--table", text, code=2)
    file = tmp_path / "digits.parquet"
    open_caches(root / "digits").get_metadata().write_parquet(file)
    said = run(root / "letters", "--table", file, code=2)
    assert "Usage: " in said
    assert "cache_id" in said
    open_caches(root / "digits").get_metadata().drop("weight").write_parquet(file)
    assert "weight" in run(root / "digits", "--table", file, code=2)


def test_caches_with_other_columns_are_code_2(root, cache_of):
    other = cache_of("others", [{"name": "a"}])
    assert "letters" in run(root / "letters", other, code=2)


def test_a_damaged_cache_is_code_1_with_the_message_of_the_error(root):
    shard = root / "digits" / "shards" / "000000.bin"
    content = bytearray(shard.read_bytes())
    content[20] ^= 1
    shard.write_bytes(content)
    output = run(root, "--no-shuffle", code=1)
    assert output.startswith("Error: ")
    assert "000000.bin" in output
    assert len(output.splitlines()) == 1


ADAPTERS = """
from dataset_rt.testing import find_driver


class Loader:
    def __init__(self, loader):
        self.loader = loader

    def epoch(self):
        try:
            yield from self.loader.epoch()
        except Exception as error:
            raise RuntimeError(f"{error}\\nTraceback of the framework's own")

    def close(self):
        self.loader.close()


class Wrapping:
    name = "wrapping"
    capabilities = frozenset()

    def loader(self, *arguments, **options):
        return Loader(find_driver("core").loader(*arguments, **options))
"""


@pytest.fixture
def run_with_adapters(tmp_path):
    """Run the installed command beside two adapters: one that wraps errors, and one whose framework is not there."""
    folder = tmp_path / "adapters"
    info = folder / "other_adapters-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-adapters\nVersion: 1.0\n")
    entries = "wrapping = wrapping_adapter:Wrapping\nalone = lonely_adapter:Alone\n"
    (info / "entry_points.txt").write_text(f"[dataset_rt.adapters]\n{entries}")
    (folder / "wrapping_adapter.py").write_text(ADAPTERS)
    (folder / "lonely_adapter.py").write_text("import framework_that_is_not_there\n")

    def run_command(*arguments):
        script = Path(sys.executable).with_name("dataset-rt")
        return subprocess.run(
            [script, "digest", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(folder)},
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run_command


def test_the_installed_command_digests_through_the_loader_of_an_adapter(root, run_with_adapters):
    done = run_with_adapters(root, "--through", "wrapping")
    assert (done.returncode, done.stdout, done.stderr) == (0, run(root), "")


def test_an_adapter_without_its_framework_is_code_2_and_says_what_is_missing(root, run_with_adapters):
    done = run_with_adapters(root, "--through", "alone")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--through alone: the adapter is installed" in done.stderr
    assert "framework_that_is_not_there" in done.stderr


def test_damage_that_a_framework_tells_in_its_own_words_is_code_1_and_one_line(root, run_with_adapters):
    (root / "digits" / "shards" / "000000.bin").write_bytes(b"")
    done = run_with_adapters(root, "--through", "wrapping")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: ")
    assert "000000.bin" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command_is_listed_and_helps():
    assert "digest" in CliRunner().invoke(main, ["--help"]).output
    assert "Two lines are equal exactly when order and payloads were" in run("--help")


def test_the_defaults_are_those_of_the_reader_and_of_replay():
    options = {option.name: option.default for option in main.commands["digest"].params}
    reader = drt.ReaderConfig()
    assert [options[name] for name in ("seed", "shuffle", "replacement")] == [
        *(reader.seed, reader.shuffle, reader.replacement)
    ]
    assert {name: options[name] for name in replay.__kwdefaults__ if name in options} == {
        name: value for name, value in replay.__kwdefaults__.items() if name != "num_workers"
    }
    assert options["workers"] == replay.__kwdefaults__["num_workers"]
