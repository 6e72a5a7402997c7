"""Processes and threads: children of every kind, dropped and unfinished iterators, and errors that travel."""

import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dataset_rt as drt

CONFIG = {"shuffle": True, "seed": 11, "prefetch_size": 16}
ROWS = 60


@pytest.fixture
def path(cache_of):
    return cache_of("digits", [{"label": number % 3} for number in range(ROWS)])


@pytest.fixture
def order(open_caches, path):
    """The sample ids of the first draws."""
    return open_caches(path, **CONFIG).stream().records(0, 4 * ROWS).tolist()


def outcome(command, timeout):
    """Run a program; give what it printed. A hang fails, with every thread's stack on stderr."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            # faulthandler answers this signal. A timer of its own in the program would itself hang in forked children.
            process.send_signal(signal.SIGABRT)
            process.wait(timeout=10)
            raise
    assert process.returncode == 0
    return output


def run(program, *arguments, timeout=30):
    """Run a program's text with this Python; give what it printed."""
    return outcome([sys.executable, "-X", "faulthandler", "-c", program, *map(str, arguments)], timeout)


OPENING = (
    "import json, os, sys, threading, time\n"
    "from pathlib import Path\n"
    "import dataset_rt as drt\n"
    "def ids(samples):\n"
    "    return [sample.sample_id for sample in samples]\n"
    "runtime = drt.DatasetRuntime(num_workers=2)\n"
    f"config = drt.ReaderConfig(**{CONFIG!r})\n"
    "dataset = runtime.cached_dataset(sys.argv[1], reader_config=config)\n"
)


# --- Children of every kind


@pytest.mark.parametrize("state", ["cold", "opened", "iterated"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_what_a_child_inherits_or_is_sent_works_or_is_refused_at_once(path, order, method, state):
    request = {"method": method, "state": state, "paths": [str(path)], "config": CONFIG}
    program = Path(__file__).with_name("process_worker.py")
    options = ["-X", "faulthandler", "-W", "ignore::DeprecationWarning"]
    report = json.loads(outcome([sys.executable, *options, str(program), json.dumps(request)], timeout=60))

    consumed = 5 if state == "iterated" else 0
    start = ROWS if state == "iterated" else 0
    expected = {"own": order[:ROWS], "own batches": order[ROWS : 2 * ROWS]}
    if state != "cold":
        expected["sent stream"] = order[:100]
    if state != "cold" and method == "fork":
        expected |= {
            "stream": order[:100],
            "state": consumed,
            "position": start,
            "dataset": order[start : start + ROWS],
            "batches": order[start + ROWS : start + 2 * ROWS],
            "rank": order[start + 2 * ROWS :][1:ROWS:2] if start == 0 else None,
            "random access": [3, 5, 2],
        }
        if state == "iterated":
            expected["iterator"] = order[consumed:ROWS]
            # Three windows were drawn before it.
            del expected["rank"]
    for api in ("multiprocessing", "futures"):
        found = report[api]
        assert found["longest"] < 5
        assert {name: found[name] for name in expected} == expected, api
        # Polars works in every child but one whose parent's Polars had threads when it forked.
        if method == "fork" and state != "cold":
            assert "Polars' threads did not survive the fork" in found["own table"]
        else:
            assert found["own table"] == list(range(ROWS - 1, ROWS - 8, -1))
        if "dataset" in expected:
            for name in ("get_metadata", "update_metadata", "with_metadata", "caches", "stream table"):
                assert found[name].startswith("ConfigError: "), (name, found[name])
                assert "forked child" in found[name]
            assert len(found["rank"]) == ROWS // 2

    if "unsendable" in report:
        for error in report["unsendable"]["errors"]:
            assert error.startswith("ConfigError: ")
            assert "stream()" in error
        for error in report["unsendable iterator"]["errors"]:
            assert error.startswith("TypeError: an iterator cannot be pickled")
        assert report["unsendable"]["seconds"] < 5
        assert report["unsendable iterator"]["seconds"] < 5
    if state == "iterated":
        # What the children took is none of the parent's business.
        assert report["parent"] == order[consumed:ROWS]


FORKING = (
    "child = os.fork()\n"
    "if child == 0:\n"
    "    for table in (dataset.get_metadata, dataset.stream().table):\n"
    "        try:\n"
    "            table()\n"
    "        except drt.ConfigError as error:\n"
    "            print(error, flush=True)\n"
    "    os._exit(0)\n"
    "os.waitpid(child, 0)\n"
)


def test_a_child_is_told_why_it_cannot_use_tables(path):
    # Without a query in the parent Polars has no threads that could be missing.
    found = run(OPENING + FORKING, path).splitlines()
    assert len(found) == 2
    for line in found:
        assert "forked child" in line
        assert "only the process that did so" in line
        assert "threads" not in line
    # A thread gives itself its name, a moment after it was started.
    queried = (
        "import polars as pl\n"
        "dataset.get_metadata().lazy().select(pl.col('sample_id').sum()).collect()\n"
        "time.sleep(0.3)\n"
    )
    found = run(OPENING + queried + FORKING, path).splitlines()
    assert len(found) == 2
    assert all("Polars' threads did not survive" in line for line in found)


def test_forks_are_quiet_where_the_system_shows_no_threads(path):
    hidden = "from dataset_rt import forks\nforks._THREADS = Path('/proc/no/such/folder')\n"
    done = subprocess.run(
        # Python 3.12 warns of any fork of a process with threads; what must be quiet is our handler.
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", OPENING + hidden + FORKING, path],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("forked child") == 2


def test_children_forked_at_any_moment_go_on_from_the_consumed_position(path, order):
    # Threads are reading, and so hold their locks, whenever it forks; other Python threads use the dataset meanwhile.
    program = OPENING + (
        "dataset.set_epoch_len(10**6)\n"
        "stream, iterator, taken, stop = dataset.stream(), iter(dataset), 1, False\n"
        "next(iterator)\n"
        "def disturb():\n"
        "    while not stop:\n"
        "        stream.fetch_batch(range(50)), stream.rows(0, 50), dataset.state_dict(), next(iter(dataset))\n"
        "threads = [threading.Thread(target=disturb, daemon=True) for _ in range(2)]\n"
        "[thread.start() for thread in threads]\n"
        "for number in range(60):\n"
        "    for _ in range(number % 4):\n"
        "        next(iterator)\n"
        "        taken += 1\n"
        "    expected = [int(row) for row in stream.records(taken, 20)]\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        import faulthandler, traceback\n"
        "        faulthandler.dump_traceback_later(5, exit=True)\n"
        "        try:\n"
        "            assert iterator.state_dict()['position'] == taken\n"
        "            assert [next(iterator).sample_id for _ in range(20)] == expected\n"
        "            position = dataset.position\n"
        "            assert next(iter(dataset)).sample_id == stream.records(position, 1)[0]\n"
        "            assert ids(stream.fetch(range(taken, taken + 20))) == expected\n"
        "            os._exit(0)\n"
        "        except BaseException:\n"
        "            traceback.print_exc()\n"
        "            os._exit(1)\n"
        "    _, status = os.waitpid(child, 0)\n"
        "    assert status == 0, (number, status)\n"
        "stop = True\n"
        "[thread.join() for thread in threads]\n"
        "print(taken)\n"
    )
    program = "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n" + program
    assert int(run(program, path)) == 1 + 15 * (0 + 1 + 2 + 3)


@pytest.mark.parametrize("end", ["raise SystemExit(7)", "del iterator, dataset, runtime; raise SystemExit(7)"])
def test_a_forked_child_that_ends_as_programs_do_waits_for_no_thread_of_its_parent(path, order, end):
    program = "import warnings\nwarnings.simplefilter('ignore', DeprecationWarning)\n" + OPENING + (
        "iterator = iter(dataset)\n"
        "next(iterator)\n"
        "started = time.monotonic()\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        # Polars 2.1 waits at exit for a thread of its own, which the fork left behind: this is not about that.
        "    import atexit; atexit._clear()\n"
        f"    {end}\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert os.waitstatus_to_exitcode(status) == 7, status\n"
        "assert time.monotonic() - started < 5\n"
        "print(json.dumps(ids(iterator)))\n"
    )  # fmt: skip
    assert json.loads(run(program, path)) == order[1:ROWS]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_corrupt_shard_that_a_child_reads_reaches_the_parent_as_our_error(path, open_caches, tmp_path, method):
    pickled = tmp_path / "stream.pickle"
    pickled.write_bytes(pickle.dumps(open_caches(path, shuffle=False).stream()))
    shard = path / "shards" / "000000.bin"
    content = bytearray(shard.read_bytes())
    content[content.index(b"payload 31")] ^= 1
    shard.write_bytes(content)
    # The functions that the child is to run are the stream's own, so that no file has to be imported there.
    program = (
        "import multiprocessing, pickle, sys, time\n"
        "from concurrent.futures import ProcessPoolExecutor\n"
        "import dataset_rt as drt\n"
        "stream = pickle.load(open(sys.argv[1], 'rb'))\n"
        "context = multiprocessing.get_context(sys.argv[2])\n"
        "if __name__ == '__main__':\n"
        "    with ProcessPoolExecutor(1, mp_context=context) as pool:\n"
        "        assert pool.submit(stream.rows, 0, 3).result(20).tolist() == [0, 1, 2]\n"
        "        for method in (stream.fetch, stream.fetch_batch, stream.fetch_records):\n"
        "            started = time.monotonic()\n"
        "            error = pool.submit(method, range(60)).exception(20)\n"
        "            assert time.monotonic() - started < 10\n"
        "            assert type(error) is drt.CacheCorruptError, repr(error)\n"
        "            print(error.file, error.sample, '31' in str(error), error.expected != error.found)\n"
    )
    assert run(program, pickled, method).splitlines() == [f"{shard} 31 True True"] * 3


# --- Iterators that do not finish


def test_iterators_begun_and_dropped_leave_neither_threads_nor_memory(cache_of, tmp_path):
    payload = "x" * 100_000
    large = cache_of("large", [drt.CacheInput(payload.encode(), {}) for _ in range(64)])
    program = OPENING + (
        "def memory():\n"
        "    status = dict(line.split(':', 1) for line in Path('/proc/self/status').read_text().splitlines())\n"
        "    return int(status['RssAnon'].split()[0]) * 1024\n"
        "def threads():\n"
        "    return len(list(Path('/proc/self/task').iterdir()))\n"
        "config = drt.ReaderConfig(shuffle=True, prefetch_size=64)\n"
        "dataset = runtime.cached_dataset(sys.argv[1], reader_config=config)\n"
        "dataset.set_epoch_len(10**6)\n"
        "def begin_and_drop(count):\n"
        "    for number in range(count):\n"
        "        iterator = iter(dataset) if number % 2 else dataset.iter_batches(8)\n"
        "        next(iterator)\n"
        "        del iterator\n"
        "begin_and_drop(50)\n"
        "time.sleep(0.2)\n"
        "before = memory(), threads()\n"
        "begin_and_drop(300)\n"
        "time.sleep(0.2)\n"
        "print(memory() - before[0], threads() - before[1])\n"
    )
    memory, threads = map(int, run(program, large).split())
    assert threads <= 0
    # One iterator reads up to 64 payloads of 100 kB ahead. Were one in fifty left behind, it would be 38 MB.
    assert memory < 3 * 64 * len(payload)


UNFINISHED = [
    "iterator = iter(dataset); next(iterator)",
    "iterator = dataset.iter_batches(4); next(iterator)",
    "cycle = [iter(dataset)]; cycle.append(cycle); next(cycle[0])",
    "iterator = iter(dataset); next(iterator); runtime.__exit__(None, None, None)",
    "iterator = iter(dataset); next(iterator); raise SystemExit(0)",
    "threading.Thread(target=lambda: [None for _ in dataset], daemon=True).start(); time.sleep(0.1)",
]


def test_a_program_ends_though_an_iterator_is_unfinished(path):
    programs = [OPENING + "dataset.set_epoch_len(10**9)\n" + unfinished + "\n" for unfinished in UNFINISHED]
    started = [subprocess.Popen([sys.executable, "-c", program, str(path)]) for program in programs]
    try:
        for process, unfinished in zip(started, UNFINISHED, strict=True):
            assert process.wait(timeout=30) == 0, unfinished
    finally:
        for process in started:
            process.kill()
            process.wait()


@pytest.mark.parametrize("workers", [1, 2])
def test_two_iterators_that_share_one_runtime_both_advance(path, order, workers):
    with drt.DatasetRuntime(num_workers=workers) as runtime:
        one, other = (runtime.cached_dataset([path], reader_config=drt.ReaderConfig(**CONFIG)) for _ in range(2))
        pairs = [(left.sample_id, right.sample_id) for left, right in zip(one, other, strict=True)]
        assert pairs == [(number, number) for number in order[:ROWS]]
        first, second = iter(one), one.iter_batches(1)
        found = [(next(first).sample_id, next(second)["sample_id"][0].as_py()) for _ in range(ROWS)]
        assert found == list(zip(order[ROWS : 2 * ROWS], order[2 * ROWS : 3 * ROWS], strict=True))


def test_two_threads_may_iterate_one_dataset_and_share_its_stream(path, order):
    # Each window goes to whoever begins it; together they are the stream, nothing twice and nothing lost.
    program = OPENING + (
        "dataset.set_epoch_len(10)\n"
        "windows, wrong = [], []\n"
        "def iterate():\n"
        "    try:\n"
        "        for _ in range(6):\n"
        "            iterator = iter(dataset)\n"
        "            samples = [next(iterator)]\n"
        "            start = iterator.state_dict()['window'][0]\n"
        "            windows.append((start, ids([*samples, *iterator])))\n"
        "    except BaseException as error:\n"
        "        wrong.append(repr(error))\n"
        "threads = [threading.Thread(target=iterate) for _ in range(4)]\n"
        "[thread.start() for thread in threads]\n"
        "[thread.join() for thread in threads]\n"
        "assert not wrong, wrong\n"
        "print(json.dumps(sorted(windows)))\n"
    )
    found = json.loads(run(program, path))
    assert found == [[start, order[start : start + 10]] for start in range(0, 240, 10)]
