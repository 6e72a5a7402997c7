"""Importing in several processes, interrupted, beside others, and with progress shown."""

import fcntl
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import datasets
import pytest

import dataset_rt as drt
import dataset_rt_hf as hf

WORKER = Path(__file__).with_name("import_worker.py")


def rows(count: int, start: int = 0) -> datasets.Dataset:
    return datasets.Dataset.from_list(
        [
            {"text": f"text {row}" * (row % 5), "ids": list(range(row % 7)), "n": row}
            for row in range(start, start + count)
        ]
    )


def files(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in sorted(cache.rglob("*")) if path.is_file()}


def caches(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if not path.name.startswith(".")) if root.exists() else []


def test_two_processes_write_the_same_bytes_as_one(importer):
    # Processes that start import datasets first; one import by two of them is enough.
    dataset = rows(5_500).shuffle(seed=1)
    one = importer(dataset)
    first = files(importer.root / "rows")
    importer.root = importer.root / "again"
    two = importer(dataset, num_proc=2)
    assert files(importer.root / "rows") == first
    assert one.caches["cache_id"].to_list() == two.caches["cache_id"].to_list()


def test_two_processes_import_a_stream_too(importer):
    dataset = rows(3_300)
    one = importer(dataset.to_iterable_dataset(), "rows")
    importer.root = importer.root / "again"
    two = importer(dataset.to_iterable_dataset(), "rows", num_proc=2)
    assert one.caches["cache_id"].to_list() == two.caches["cache_id"].to_list()


def test_an_error_in_another_process_is_the_same_error(importer, tmp_path):
    dataset = datasets.Dataset.from_dict({"image": [str(tmp_path / "gone.jpg")]}).cast_column("image", datasets.Image())
    one, two = (importer.result(dataset, num_proc=num_proc) for num_proc in (1, 2))
    assert isinstance(two.error, drt.SourceError)
    assert two.message == one.message
    assert (two.error.sample, two.error.field) == (0, "image")


def test_a_script_without_a_guard_is_told_what_it_lacks(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import datasets, dataset_rt as drt, dataset_rt_hf as hf\n"
        "dataset = datasets.Dataset.from_dict({'a': list(range(10))})\n"
        f"result = hf.import_dataset(dataset, drt.DatasetRuntime(), {str(tmp_path / 'caches')!r}, "
        "reader_config=drt.ReaderConfig(), name='a', num_proc=2)\n"
        "print(result.message)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=300)
    assert 'needs `if __name__ == "__main__":`' in done.stdout
    assert caches(tmp_path / "caches") == []


def begin(tmp_path: Path, num_proc: int, slow_after: int) -> subprocess.Popen:
    """Start importing 4,000 and 3,000 rows; give the process when it has become slow."""
    saved = tmp_path / "saved"
    if not saved.exists():
        datasets.DatasetDict(train=rows(4_000), test=rows(3_000, 4_000)).save_to_disk(str(saved))
    command = [sys.executable, str(WORKER), str(saved), str(tmp_path / "caches"), str(num_proc), str(slow_after)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "slow\n"
    return process


def left(root: Path) -> list[str]:
    """Everything under the root but complete caches, locks and fingerprints."""
    building = root / ".building"
    hidden = {path.name for path in root.iterdir() if path.name.startswith(".")}
    assert hidden <= {".building", ".locks", ".fingerprints"}
    return [path.name for path in building.iterdir()] if building.exists() else []


@pytest.mark.parametrize(
    ("slow_after", "complete", "num_proc"), [(100, [], 1), (4_700, ["rows-train"], 1), (100, [], 2)]
)
def test_ctrl_c_leaves_whole_splits_and_nothing_else(tmp_path, slow_after, complete, num_proc):
    process = begin(tmp_path, num_proc, slow_after)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode not in (0, None)
    assert "KeyboardInterrupt" in errors
    assert caches(tmp_path / "caches") == complete
    assert left(tmp_path / "caches") == []


def test_a_killed_import_is_resumed_by_split(tmp_path, runtime):
    process = begin(tmp_path, 2, 4_700)
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True, text=True)
    process.kill()
    process.wait()
    process.stdout.close()
    process.stderr.close()
    root = tmp_path / "caches"
    assert caches(root) == ["rows-train"]
    before = files(root / "rows-train")
    results = hf.import_dataset(
        tmp_path / "saved", runtime, root, reader_config=drt.ReaderConfig(shuffle=False), name="rows"
    )
    assert {split: result.results[0].reused for split, result in results.items()} == {"train": True, "test": False}
    assert files(root / "rows-train") == before
    assert left(root) == []
    decode = hf.decoder(results["test"].unwrap())
    assert [decode(sample) for sample in results["test"].unwrap()] == list(rows(3_000, 4_000))
    # Its encoding processes end with it.
    deadline = time.monotonic() + 60
    for child in map(int, children.stdout.split()):
        while alive(child):
            assert time.monotonic() < deadline, f"process {child} outlives its parent"
            time.sleep(0.1)


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{process}/stat")
    return not status.exists() or status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_an_import_that_fails_in_one_split_keeps_the_others(importer, tmp_path):
    missing = datasets.Dataset.from_dict({"image": [str(tmp_path / "gone.jpg")]}).cast_column("image", datasets.Image())
    (tmp_path / "there.jpg").write_bytes(b"bytes")
    there = datasets.Dataset.from_dict({"image": [str(tmp_path / "there.jpg")]}).cast_column("image", datasets.Image())
    results = importer.result(datasets.DatasetDict(train=there, test=missing))
    assert isinstance(results["train"], drt.CacheSourcesDatasetSuccess)
    assert isinstance(results["test"], drt.CacheSourcesDatasetError)
    assert caches(importer.root) == ["rows-train"]


def test_several_processes_that_import_at_once_get_the_same_cache(tmp_path):
    rows(3_000).save_to_disk(str(tmp_path / "saved"))
    program = (
        "import datasets, sys, dataset_rt as drt, dataset_rt_hf as hf\n"
        "dataset = datasets.load_from_disk(sys.argv[1])\n"
        "cached = hf.import_dataset(dataset, drt.DatasetRuntime(num_workers=1), sys.argv[2], "
        "reader_config=drt.ReaderConfig(), name='rows').unwrap()\n"
        "print(cached.caches['cache_id'][0])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "saved"), str(tmp_path / "caches")]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    found = {process.communicate(timeout=300)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * 3
    assert len(found) == 1


PROGRESS = """
import sys
import datasets
import dataset_rt as drt
import dataset_rt_hf as hf

root, how = sys.argv[1:]
dataset = datasets.Dataset.from_dict({"a": list(range(100))})
if how == "disabled":
    datasets.disable_progress_bars()
config = drt.WriterConfig(show_progress=how != "not shown")
for again in (dataset, dataset.map(lambda row: row, new_fingerprint="another")):
    hf.import_dataset(
        again,
        drt.DatasetRuntime(num_workers=1),
        root,
        reader_config=drt.ReaderConfig(),
        name="rows",
        writer_config=config,
    ).unwrap()
"""


def in_a_terminal(*command: str) -> str:
    """Run a command with a terminal as its standard error; give what was shown there."""
    terminal, inside = os.openpty()
    fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 120, 0, 0))
    process = subprocess.Popen(command, stderr=inside, stdout=inside)
    os.close(inside)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4_096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    os.close(terminal)
    assert process.wait(timeout=300) == 0, shown.decode()
    return shown.decode()


def test_progress_is_shown_and_switched_off_as_users_of_datasets_do(tmp_path):
    def shown(how: str) -> str:
        return in_a_terminal(sys.executable, "-c", PROGRESS, str(tmp_path / how), how)

    plain = shown("plain")
    assert "rows: 100%" in plain
    assert "1/1 sources done" in plain
    assert "rows: comparing with the cache" in plain
    disabled = shown("disabled")
    assert "rows" not in disabled
    not_shown = shown("not shown")
    assert "rows" not in not_shown


def test_nothing_is_shown_where_nobody_looks(tmp_path):
    quiet = PROGRESS.replace("dataset.map(lambda row: row,", "dataset.select(range(100),")
    command = [sys.executable, "-c", quiet, str(tmp_path), "plain"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout == ""
    assert done.stderr == ""
