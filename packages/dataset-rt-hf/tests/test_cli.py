"""The command `dataset-rt-hf import`."""

import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image

import dataset_rt as drt
import dataset_rt_hf as hf
from dataset_rt_hf.cli import main

COMMAND = str(Path(sys.executable).with_name("dataset-rt-hf"))


def run(*arguments: object, expect: int = 0) -> Result:
    """Run the command in this process: starting one imports datasets for seconds."""
    done = CliRunner().invoke(main, list(map(str, arguments)))
    assert done.exit_code == expect, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    return done


@pytest.fixture
def dataset() -> datasets.Dataset:
    return datasets.Dataset.from_dict({"text": ["a", "b", "c"], "n": [1, 2, 3]})


def rows(runtime, cache: Path) -> list[dict]:
    cached = runtime.cached_dataset(cache, reader_config=drt.ReaderConfig(shuffle=False))
    decode = hf.decoder(cached)
    return [decode(sample) for sample in cached]


@pytest.mark.parametrize("ending", ["parquet", "csv", "json", "jsonl", "tsv"])
def test_a_file_is_imported_and_found_the_second_time(tmp_path, runtime, dataset, ending):
    path = tmp_path / f"rows.{ending}"
    writer = {"jsonl": "json", "tsv": "csv"}.get(ending, ending)
    getattr(dataset, f"to_{writer}")(str(path), **({"sep": "\t"} if ending == "tsv" else {}))
    for what in ("written", "found"):
        done = run("import", path, tmp_path / "caches", "--name", "rows")
        assert done.stdout == f"rows-train: 3 samples {what} in {tmp_path / 'caches' / 'rows-train'}\n"
    assert rows(runtime, tmp_path / "caches" / "rows-train") == list(dataset)


def test_an_arrow_file_is_imported(tmp_path, runtime, dataset):
    dataset.save_to_disk(str(tmp_path / "saved"))
    (path,) = (tmp_path / "saved").glob("*.arrow")
    run("import", path, tmp_path / "caches", "--name", "rows", "--split", "train")
    assert rows(runtime, tmp_path / "caches" / "rows-train") == list(dataset)


def test_a_file_needs_a_name_and_a_folder_has_one(tmp_path, runtime, dataset):
    (tmp_path / "films").mkdir()
    dataset.to_parquet(str(tmp_path / "films" / "train.parquet"))
    dataset.select([0]).to_parquet(str(tmp_path / "films" / "test.parquet"))
    done = run("import", tmp_path / "films" / "train.parquet", tmp_path / "caches", expect=1)
    assert "Error: a dataset must have a name" in done.stderr
    done = run("import", tmp_path / "films", tmp_path / "caches")
    assert sorted(line.split(":")[0] for line in done.stdout.splitlines()) == ["films-test", "films-train"]
    done = run("import", tmp_path / "films", tmp_path / "one", "--split", "test")
    assert done.stdout.startswith("films-test: 1 samples written")
    assert rows(runtime, tmp_path / "one" / "films-test") == list(dataset.select([0]))


def test_a_saved_dataset_is_imported_under_its_name(tmp_path, runtime, dataset):
    dataset.save_to_disk(str(tmp_path / "saved"))
    run(
        "import",
        tmp_path / "saved",
        tmp_path / "caches",
        "--name",
        "rows",
        "--codec",
        "arrow",
        "--column",
        "n",
    )
    cached = runtime.cached_dataset(tmp_path / "caches" / "rows", reader_config=drt.ReaderConfig())
    assert cached.get_metadata().columns == ["cache_id", "sample_id", "n", "weight"]
    assert rows(runtime, tmp_path / "caches" / "rows") == list(dataset)


def test_a_folder_of_images_is_imported_with_its_labels(tmp_path, runtime):
    for label in ("cat", "dog"):
        (tmp_path / "pets" / label).mkdir(parents=True)
        Image.fromarray(np.zeros((2, 2, 3), dtype=np.uint8)).save(tmp_path / "pets" / label / "a.png")
    run("import", tmp_path / "pets", tmp_path / "caches", "--class-names")
    cached = runtime.cached_dataset(tmp_path / "caches" / "pets-train", reader_config=drt.ReaderConfig())
    assert sorted(cached.get_metadata()["label_name"]) == ["cat", "dog"]


def test_another_content_fails_and_says_why(tmp_path, dataset):
    path = tmp_path / "rows.csv"
    dataset.to_csv(str(path))
    run("import", path, tmp_path / "caches", "--name", "rows")
    dataset.select([0]).to_csv(str(path))
    done = run("import", path, tmp_path / "caches", "--name", "rows", expect=1)
    assert "Error: rows-train: the cache at" in done.stderr
    run("import", path, tmp_path / "caches", "--name", "rows2", "--key", "v1")
    dataset.to_csv(str(path))
    assert "found" in run("import", path, tmp_path / "caches", "--name", "rows2", "--key", "v1").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "absent"], "Error: --split must be one of 'train', got 'absent'"),
        (["--num-proc", "0"], "--num-proc must be an integer of at least 1, got 0"),
        (["--column", "absent"], "--column must be columns of the dataset, got 'absent'"),
        (["--codec", "raw"], "--codec 'raw' must have exactly one column"),
    ],
)
def test_wrong_arguments_are_told_in_a_line(tmp_path, dataset, arguments, message):
    dataset.to_csv(str(tmp_path / "rows.csv"))
    done = run("import", tmp_path / "rows.csv", tmp_path / "caches", "--name", "rows", *arguments, expect=1)
    assert message in done.stderr


def test_messages_speak_of_options_and_not_of_arguments(tmp_path, dataset):
    path = tmp_path / "name=1.csv"
    dataset.to_csv(str(path))
    done = run("import", path, tmp_path / "caches", expect=1)
    assert done.stderr.splitlines()[-1].endswith("'csv'; give --name")
    run("import", path, tmp_path / "caches", "--name", "rows", "--key", "a")
    done = run("import", path, tmp_path / "caches", "--name", "rows", "--key", "b", expect=1)
    assert "imported with --key 'a', and not 'b'; give --name to keep both, --key to say" in done.stderr
    # A path stays what it is.
    path.write_text("")
    assert f"'{path}'" in run("import", path, tmp_path / "caches", "--name", "rows", expect=1).stderr


def test_the_installed_command_imports_and_fails_without_a_traceback(tmp_path, runtime, dataset):
    dataset.to_csv(str(tmp_path / "rows.csv"))
    command = [COMMAND, "import", str(tmp_path / "rows.csv"), str(tmp_path / "caches")]
    done = subprocess.run([*command, "--name", "rows"], capture_output=True, text=True, timeout=300)
    # datasets shows its own bars on standard error, also where nobody looks.
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"rows-train: 3 samples written in {tmp_path / 'caches' / 'rows-train'}\n"
    assert rows(runtime, tmp_path / "caches" / "rows-train") == list(dataset)
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("Error: a dataset must have a name")
    assert "Traceback" not in done.stderr


def test_the_version_is_the_packages():
    assert run("--version").output.strip().endswith(hf.__version__)
