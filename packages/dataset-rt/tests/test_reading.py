"""Reading while files change, with many readers, and for ever: the data or a named error, and bounded means."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import dataset_rt as drt

WORKER = Path(__file__).with_name("reading_worker.py")
FULL = os.environ.get("DATASET_RT_GRID") == "full"
SAMPLES, A_SHARD, DAMAGED = 400, 20, (0, 1, 15)
WAYS = ["samples", "batches", "rows", "positions"]
DAMAGES = ["truncate", "empty", "shorten", "remove", "replace", "overwrite"]
# What cannot be read from a file that is open already; what is only renamed or unlinked can.
LOST = {"truncate", "empty", "shorten", "overwrite"}


def io_modes():
    """The values of `io` that this release reads by."""

    class One:
        name = "one"

        def __iter__(self):
            return iter([drt.CacheInput(b"x", {})])

    modes = ["positioned", "auto"]
    with tempfile.TemporaryDirectory() as folder:
        runtime = drt.DatasetRuntime(num_workers=1)
        quiet = drt.WriterConfig(show_progress=False)
        try:
            config = drt.ReaderConfig(io="mapped")
            runtime.from_cache_sources(One(), folder, reader_config=config, writer_config=quiet).unwrap()
        except drt.ConfigError:
            return modes
    return [*modes, "mapped"]


MODES = io_modes()


def outcomes(root, cases):
    command = [sys.executable, "-W", "ignore::DeprecationWarning", str(WORKER), str(root), json.dumps(cases)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    # A signal would be a negative number, and faulthandler's report on standard error.
    assert done.returncode == 0, done.stderr
    assert "Fatal Python error" not in done.stderr
    found = list(map(json.loads, done.stdout.splitlines()))
    assert len(found) == len(cases)
    return zip(cases, found, strict=True)


def check(case, found):
    taken, error = found["taken"], found["error"]
    assert taken == list(range(len(taken))), case
    assert len(taken) >= 5, case
    if error is None:
        assert len(taken) == SAMPLES, case
        assert case["damage"] not in LOST, case
        return
    assert error["type"] == "CacheCorruptError", (case, error)
    file = Path(error["file"])
    assert file.parent.name == "shards", (case, error)
    shard = int(file.stem)
    assert shard in DAMAGED, (case, error)
    assert str(file) in error["message"], (case, error)
    assert error["expected"] != error["found"], (case, error)
    if error["sample"] != "None":
        assert int(error["sample"]) // A_SHARD == shard, (case, error)
        assert f"sample {error['sample']}" in error["message"], (case, error)
    # Everything before the shard came, and none of what follows it.
    assert len(taken) <= (shard + 1) * A_SHARD, (case, error)


@pytest.mark.parametrize("io", MODES)
def test_a_shard_that_changes_while_it_is_read_gives_the_data_or_a_named_error(tmp_path, io):
    # Random access reads in the calling thread, however many there are.
    ways = [(way, 2) for way in WAYS] + [(way, 1) for way in WAYS[:2]]
    shared = {"io": io, "place": "here"}
    cases = [
        {**shared, "way": way, "workers": workers, "damage": damage} for way, workers in ways for damage in DAMAGES
    ]
    for case, found in outcomes(tmp_path, cases):
        check(case, found)


@pytest.mark.parametrize("place", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("io", MODES)
def test_a_shard_that_changes_under_a_worker_process_is_an_error_in_its_parent(tmp_path, io, place):
    cases = [(way, damage) for way in ("samples", "batches") for damage in DAMAGES]
    if not FULL and place != "fork":
        # Each of these starts an interpreter.
        cases = [("samples", "truncate"), ("batches", "remove")]
    shared = {"io": io, "place": place, "workers": 2}
    cases = [{**shared, "way": way, "damage": damage} for way, damage in cases]
    for case, found in outcomes(tmp_path, cases):
        check(case, found)
        assert found["exitcode"] == 0, case


FILES = ["index.bin", "metadata.arrow"]


@pytest.mark.parametrize("io", MODES)
@pytest.mark.parametrize("name", FILES)
def test_another_file_that_is_truncated_while_a_cache_is_open_is_a_named_error(tmp_path, io, name):
    program = (
        "import faulthandler, os, sys; sys.path.insert(0, sys.argv[1])\n"
        "import pathlib, reading_worker, dataset_rt as drt\n"
        "faulthandler.enable()\n"
        "path = reading_worker.write(pathlib.Path(sys.argv[2]))\n"
        "config = drt.ReaderConfig(shuffle=False, io=sys.argv[3])\n"
        "dataset = drt.DatasetRuntime(num_workers=2).cached_dataset(path, reader_config=config)\n"
        "os.truncate(path / sys.argv[4], 100)\n"
        "for use in (dataset.get_metadata, lambda: [sample.metadata for sample in dataset]):\n"
        "    try:\n"
        "        use()\n"
        "    except drt.CacheCorruptError as error:\n"
        "        assert error.file == path / sys.argv[4], error.file\n"
        "        assert str(error.file) in str(error)\n"
        "        print('named')\n"
    )
    command = [sys.executable, "-c", program, str(WORKER.parent), str(tmp_path), io, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1:] == ["named"]


# --- Many readers


def test_sixty_four_processes_read_one_tree_at_once_and_leave_it_as_it_was(tmp_path):
    program = (
        "import os, sys, warnings; sys.path.insert(0, sys.argv[1])\n"
        "warnings.simplefilter('ignore', DeprecationWarning)\n"
        "import json, pathlib, time\n"
        "import disk_worker, publication_worker\n"
        "from system_calls import exit_code, forked\n"
        "root = pathlib.Path(sys.argv[2])\n"
        "names = ['first', 'second']\n"
        "publication_worker.finish(root, names, 2)\n"
        "before = disk_worker.times(root)\n"
        # Semaphores of multiprocessing are those of other programs on this machine: this one only forks.
        "def entries(folder):\n"
        "    return {name for name in os.listdir(folder) if not name.startswith('sem.mp-')}\n"
        "shared = {folder: entries(folder) for folder in ('/dev/shm', sys.argv[3])}\n"
        "def read(number):\n"
        "    while not (root.parent / 'go').exists():\n"
        "        time.sleep(0.001)\n"
        "    dataset = publication_worker.build(root, names, workers=2).unwrap()\n"
        "    assert [len(sample.data) for sample in dataset] == [2000] * 120\n"
        "    publication_worker.is_whole(root, names[number % 2])\n"
        "children = [forked(lambda number=number: read(number)) for number in range(64)]\n"
        "(root.parent / 'go').touch()\n"
        "assert [exit_code(child) for child in children] == [0] * 64\n"
        "assert disk_worker.times(root) == before\n"
        "print(json.dumps([len(before), [sorted(entries(folder) - was) for folder, was in shared.items()]]))\n"
    )
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    (tmp_path / "caches").mkdir()
    command = [sys.executable, "-c", program, str(WORKER.parent), str(tmp_path / "caches"), str(temporary)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    entries, appeared = json.loads(done.stdout)
    # Two folders with three files, three shards and their folder, locks and the empty building folder.
    assert entries == 1 + 2 * 8 + 1 + 3
    assert appeared == [[], []]


# --- Opening in another process


def test_other_threads_run_while_an_unpickled_stream_opens_each_of_its_files(tmp_path):
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import mmap, pathlib, pickle, threading, time\n"
        "import reading_worker, system_calls, dataset_rt as drt\n"
        "if not system_calls.supported():\n"
        "    sys.exit('not supported')\n"
        "path = reading_worker.write(pathlib.Path(sys.argv[2]))\n"
        "runtime = drt.DatasetRuntime(num_workers=1)\n"
        "pickled = pickle.dumps(runtime.cached_dataset(path, reader_config=drt.ReaderConfig()).stream())\n"
        "clock = mmap.mmap(-1, 1)\n"
        "def tick():\n"
        "    while True:\n"
        "        clock[0] = (clock[0] + 1) % 256\n"
        "        time.sleep(0.001)\n"
        "def work():\n"
        "    threading.Thread(target=tick, daemon=True).start()\n"
        "    pickle.loads(pickled)\n"
        "ticked = []\n"
        "def decide(call):\n"
        "    if call.path.startswith(str(path)):\n"
        # The call is held here until the thread has had its turn.
        "        before, until = clock[0], time.monotonic() + 10\n"
        "        while clock[0] == before and time.monotonic() < until:\n"
        "            time.sleep(0.001)\n"
        "        ticked.append(clock[0] != before)\n"
        "assert system_calls.watch(work, decide) == 0\n"
        "print(len(ticked), all(ticked))\n"
    )
    command = [sys.executable, "-c", program, str(WORKER.parent), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.stderr == "not supported\n":
        pytest.skip("needs seccomp: a kernel that hands system calls over to another process (Linux 5.5)")
    assert done.returncode == 0, done.stderr
    opened, all_ticked = done.stdout.split()
    assert int(opened) >= 3
    assert all_ticked == "True"


# --- For ever


@pytest.mark.parametrize("io", MODES)
@pytest.mark.parametrize("form", ["samples", "batches"])
def test_memory_does_not_grow_with_the_length_of_an_epoch(tmp_path, io, form):
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "import pathlib, reading_worker, dataset_rt as drt\n"
        "def memory():\n"
        "    status = pathlib.Path('/proc/self/status').read_text().splitlines()\n"
        "    return next(int(line.split()[1]) << 10 for line in status if line.startswith('RssAnon'))\n"
        "path = reading_worker.write(pathlib.Path(sys.argv[2]))\n"
        "runtime = drt.DatasetRuntime(num_workers=2)\n"
        "def most(epoch_len, count):\n"
        "    config = drt.ReaderConfig(io=sys.argv[3], prefetch_size=64)\n"
        "    dataset = runtime.cached_dataset(path, reader_config=config)\n"
        "    dataset.set_epoch_len(epoch_len)\n"
        "    batches = sys.argv[4] == 'batches'\n"
        "    iterator = dataset.iter_batches(10) if batches else iter(dataset)\n"
        "    most, taken = 0, 0\n"
        "    while taken < count:\n"
        "        item = next(iterator)\n"
        "        taken += item.num_rows if batches else 1\n"
        "        if taken % 1000 == 0:\n"
        "            most = max(most, memory())\n"
        "    return most\n"
        # What the libraries take at first use is not the epoch's.
        "most(10**4, 4_000)\n"
        "short = most(4_000, 4_000)\n"
        "print(most(2**62, 40_000) - short)\n"
    )
    command = [sys.executable, "-c", program, str(WORKER.parent), str(tmp_path), io, form]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    # 40,000 payloads are 200 MB and their identities 640 kB; what an allocator keeps back is a few MB.
    assert int(done.stdout) < 8 << 20
