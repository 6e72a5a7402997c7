"""Files that are cut off, removed or replaced while they are read, and the signals that mapped ones bring about.

Each test runs programs of its own: a lost page that nobody guards ends the process.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys

import pytest

import dataset_rt as drt

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs linux: elsewhere files are not mapped")

ROWS = 64
PAYLOAD = 40_000
# Rows of one shard, of which there are several.
SHARD_ROWS = 16


@pytest.fixture
def path(cache_of):
    items = [drt.CacheInput(bytes([number + 1]) * PAYLOAD, {"row": number}) for number in range(ROWS)]
    return cache_of("large", items, max_shard_bytes=SHARD_ROWS * PAYLOAD + 16)


def run(program, *arguments, options=("-X", "faulthandler"), timeout=120):
    """Run a program's text; give what came of it. A background shell's ignored Ctrl-C is none of its business."""
    start = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    command = [sys.executable, *options, "-c", start + program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout)


def printed(*arguments, **options):
    """What a program that ends well prints."""
    done = run(*arguments, **options)
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout


# A forked child of a process with threads brings a warning from Python 3.12 on.
START = (
    "import warnings\n"
    "warnings.simplefilter('ignore', DeprecationWarning)\n"
    "import ctypes, faulthandler, json, mmap, multiprocessing, os, pickle, shutil, sys\n"
    "from pathlib import Path\n"
    "import dataset_rt as drt\n"
    "def is_mapped(path):\n"
    "    return str(path) in Path('/proc/self/maps').read_text()\n"
    "def opened(workers=1, **fields):\n"
    "    config = drt.ReaderConfig(**{'shuffle': False, 'prefetch_size': 4, 'io': 'mapped', **fields})\n"
    "    return drt.DatasetRuntime(num_workers=workers).cached_dataset(sys.argv[1], reader_config=config)\n"
    "def cut(length):\n"
    "    for shard in Path(sys.argv[1]).glob('shards/*'):\n"
    "        os.truncate(shard, length)\n"
    "def right(samples):\n"
    f"    return all(sample.data == bytes([sample.sample_id + 1]) * {PAYLOAD} for sample in samples)\n"
    "def fault(call):\n"
    "    try:\n"
    "        call()\n"
    "    except drt.CacheCorruptError as error:\n"
    "        assert Path(error.file).name in str(error) and error.found.split()[0] in str(error), str(error)\n"
    "        assert error.expected != error.found, str(error)\n"
    "        return Path(error.file).name\n"
    "    return 'nothing'\n"
)


# --- Cut off in mid-run


# Each begins to read a dataset and returns what goes on with it.
READERS = (
    "def one_by_one(dataset):\n"
    "    iterator = iter(dataset)\n"
    "    assert right([next(iterator)])\n"
    "    return lambda: list(iterator)\n"
    "def in_batches(dataset):\n"
    "    iterator = dataset.iter_batches(4)\n"
    "    next(iterator)\n"
    "    return lambda: list(iterator)\n"
    "def at_random(dataset):\n"
    "    assert right(dataset.read([0]))\n"
    "    return lambda: dataset.read(range(64))\n"
    "def of_a_stream(dataset):\n"
    "    stream = dataset.stream()\n"
    "    assert right(stream.fetch([0]))\n"
    "    return lambda: stream.fetch_batch(range(64))\n"
)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("io", ["mapped", "positioned"])
def test_a_shard_that_is_cut_off_while_it_is_read_is_an_error_that_names_it(path, io, workers):
    # 4,100 bytes leave a page of which a part is zeros, without a signal.
    program = START + READERS + (
        "for reader in (one_by_one, in_batches, at_random, of_a_stream):\n"
        "    for length in (0, 4096, 4100):\n"
        "        sys.argv[1] = str(Path(sys.argv[2], f'{reader.__name__} {length}', 'large'))\n"
        "        shutil.copytree(Path(sys.argv[2], 'large'), sys.argv[1])\n"
        f"        dataset = opened({workers}, io={io!r})\n"
        "        rest = reader(dataset)\n"
        f"        assert is_mapped(sys.argv[1]) == ({io!r} == 'mapped' and sys.platform == 'linux')\n"
        "        cut(length)\n"
        # The second time from a file that is opened anew.
        "        print(fault(rest), fault(lambda: dataset.read([20])))\n"
    )  # fmt: skip
    assert printed(program, path, path.parent).splitlines() == ["000000.bin 000001.bin"] * 12


@linux
@pytest.mark.parametrize("workers", [1, 2])
def test_a_record_cut_off_inside_its_last_page_is_found_though_checks_are_off(path, workers):
    for length in (4100, PAYLOAD + 16 - 5):
        copy = path.with_name("copy") / "large"
        shutil.copytree(path, copy)
        program = START + f"dataset = opened({workers}, verify_reads=False, prefetch_size=1)\n" + (
            "iterator = iter(dataset)\n"
            "assert right([next(iterator)])\n"
            f"cut({length})\n"
            "print(fault(lambda: dataset.read([0])))\n"
            "print(fault(lambda: list(iterator)))\n"
        )  # fmt: skip
        assert printed(program, copy).split() == ["000000.bin"] * 2
        shutil.rmtree(copy.parent)


@linux
@pytest.mark.parametrize("child", ["fork", "spawn", "forkserver"])
def test_a_shard_that_is_cut_off_while_a_child_reads_it_is_an_error_there(path, child):
    # The child is in the middle of an iterator that it inherited, or of a stream that it was sent.
    program = START + (
        "def work(connection, iterator, stream):\n"
        "    if iterator is not None:\n"
        "        assert right([next(iterator)])\n"
        "    assert right(stream.fetch([0, 40]))\n"
        "    assert is_mapped(sys.argv[1])\n"
        "    connection.send('read')\n"
        "    connection.recv()\n"
        "    connection.send(fault(lambda: stream.fetch(range(64))))\n"
        "    connection.send(fault(lambda: list(iterator)) if iterator is not None else '000000.bin')\n"
        "if __name__ == '__main__':\n"
        "    context = multiprocessing.get_context(sys.argv[2])\n"
        "    dataset = opened(2)\n"
        "    iterator = iter(dataset)\n"
        "    assert right([next(iterator)])\n"
        "    here, there = context.Pipe()\n"
        "    inherited = iterator if sys.argv[2] == 'fork' else None\n"
        "    process = context.Process(target=work, args=(there, inherited, dataset.stream()))\n"
        "    process.start()\n"
        "    assert here.poll(60) and here.recv() == 'read'\n"
        "    cut(4096)\n"
        "    here.send('go')\n"
        "    print(here.poll(60) and here.recv(), here.poll(60) and here.recv())\n"
        "    process.join(60)\n"
        "    assert process.exitcode == 0, process.exitcode\n"
        "    print(fault(lambda: list(iterator)))\n"
    )
    program_file = path.parent / "program.py"
    program_file.write_text(program)
    # What is started by spawn imports the program's file.
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", program_file, path, child], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["000000.bin"] * 3


@linux
def test_a_thread_that_blocks_the_signal_gets_the_error_too_and_keeps_its_mask(path):
    program = START + (
        "import signal\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGBUS])\n"
        "dataset = opened()\n"
        "assert right(dataset.read([0]))\n"
        "cut(4096)\n"
        "print(fault(lambda: dataset.read(range(64))))\n"
        "assert signal.SIGBUS in signal.pthread_sigmask(signal.SIG_BLOCK, [])\n"
    )
    assert printed(program, path).split() == ["000000.bin"]


@linux
def test_an_index_that_is_cut_off_while_it_is_read_is_an_error_that_names_it(million, tmp_path):
    # 40 MB, so that it is not held in memory.
    copy = tmp_path / "million"
    shutil.copytree(million, copy)
    for length, row in ((4096, 999_999), (20_000_010, 499_999)):
        program = START + (
            "dataset = opened(2)\n"
            "iterator = iter(dataset)\n"
            "next(iterator)\n"
            "assert is_mapped('index.bin')\n"
            f"os.truncate(Path(sys.argv[1]) / 'index.bin', {length})\n"
            f"print(fault(lambda: dataset.read([{row}])))\n"
            "print(fault(lambda: list(iterator)))\n"
            f"assert Path(sys.argv[1], 'index.bin').stat().st_size == {length}\n"
        )
        assert printed(program, copy).split() == ["index.bin"] * 2
        shutil.copy(million / "index.bin", copy / "index.bin")


@pytest.mark.parametrize("io", ["mapped", "positioned"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_shard_that_is_removed_or_replaced_gives_its_original_data_or_a_named_error(path, io, workers):
    program = START + (
        "def replace(shard, content):\n"
        "    Path('new').write_bytes(content)\n"
        "    os.replace('new', shard)\n"
        "def other(shard):\n"
        "    return shard.with_name('000002.bin').read_bytes()\n"
        "changes = {\n"
        "    'removed': Path.unlink,\n"
        "    'another shard': lambda shard: replace(shard, other(shard)),\n"
        "    'damaged': lambda shard: replace(shard, shard.read_bytes()[::-1]),\n"
        "    'empty': lambda shard: replace(shard, b''),\n"
        "    'overwritten': lambda shard: shard.write_bytes(other(shard)),\n"
        "}\n"
        "os.chdir(sys.argv[2])\n"
        "for name, change in changes.items():\n"
        "    sys.argv[1] = str(Path(sys.argv[2], name, 'large'))\n"
        "    shutil.copytree(Path(sys.argv[2], 'large'), sys.argv[1])\n"
        f"    iterator = iter(opened({workers}, io={io!r}))\n"
        "    samples = [next(iterator)]\n"
        # One that is open by now, and one that is not.
        "    for number in (0, 3):\n"
        "        change(Path(sys.argv[1], 'shards', f'00000{number}.bin'))\n"
        "    try:\n"
        "        for sample in iterator:\n"
        "            samples.append(sample)\n"
        "    except (drt.CacheCorruptError, drt.CacheVersionError) as error:\n"
        "        print(name, Path(error.file).name)\n"
        "    assert right(samples)\n"
    )
    # What was open keeps its bytes, unless they were overwritten.
    found = printed(program, path, path.parent).splitlines()
    assert found == [
        "removed 000003.bin",
        "another shard 000003.bin",
        "damaged 000003.bin",
        "empty 000003.bin",
        "overwritten 000000.bin",
    ]


# --- Whose signal it is


# Reads a page that an own mapping has lost, as somebody else's fault.
FOREIGN = (
    "def foreign():\n"
    "    Path(sys.argv[2]).write_bytes(bytes(100_000))\n"
    "    with open(sys.argv[2], 'r+b') as file:\n"
    "        lost = mmap.mmap(file.fileno(), 100_000)\n"
    "    os.truncate(sys.argv[2], 10)\n"
    "    return lost[50_000]\n"
)
HANDLER = (
    "libc = ctypes.CDLL(None)\n"
    "@ctypes.CFUNCTYPE(None, ctypes.c_int)\n"
    "def handler(number):\n"
    "    os.write(1, b'earlier handler\\n')\n"
    "    os._exit(77)\n"
    "libc.signal.argtypes = [ctypes.c_int, ctypes.c_void_p]\n"
    "def handle():\n"
    "    libc.signal(signal.SIGBUS, ctypes.cast(handler, ctypes.c_void_p))\n"
)
ENABLE = "faulthandler.enable()\n"
READ = "dataset = opened()\nassert right(dataset.read([0]))\n"


@linux
@pytest.mark.parametrize("order", [("handle()\n", READ), (READ, "handle()\n"), (READ, "handle()\n", READ)])
def test_a_fault_that_is_not_ours_reaches_the_handler_that_was_there(path, tmp_path, order):
    program = START + FOREIGN + HANDLER + "".join(order) + "foreign()\n"
    done = run(program, path, tmp_path / "lost", options=())
    assert (done.returncode, done.stdout) == (77, "earlier handler\n"), done.stderr


@linux
@pytest.mark.parametrize("order", [(ENABLE, READ), (READ, ENABLE, READ), (READ, ENABLE)])
def test_faulthandler_reports_a_fault_that_is_not_ours_once_and_the_process_ends(path, tmp_path, order):
    program = START + FOREIGN + "".join(order) + "foreign()\n"
    done = run(program, path, tmp_path / "lost", options=())
    assert done.returncode == -signal.SIGBUS, (done.returncode, done.stderr)
    assert done.stderr.count("Fatal Python error: Bus error") == 1
    assert "in foreign" in done.stderr


@linux
def test_faulthandler_in_between_keeps_the_guard_working(path):
    program = START + READ + (
        "faulthandler.enable()\n"
        "assert right(dataset.read([0, 20]))\n"
        "faulthandler.disable()\n"
        "assert right(dataset.read([0, 20]))\n"
        "faulthandler.enable()\n"
        "cut(4096)\n"
        "print(fault(lambda: dataset.read(range(64))))\n"
    )  # fmt: skip
    done = run(program, path, options=())
    assert (done.returncode, done.stdout.split()) == (0, ["000000.bin"]), done.stderr
    assert done.stderr == ""


@linux
@pytest.mark.parametrize("order", [("", READ), (READ, "handle()\n", READ)])
def test_without_an_earlier_handler_a_fault_that_is_not_ours_ends_the_process(path, tmp_path, order):
    # A handler that returns without having done anything about the fault must not be called for ever.
    returning = HANDLER.replace("    os._exit(77)\n", "")
    program = START + FOREIGN + returning + "".join(order) + "foreign()\n"
    done = run(program, path, tmp_path / "lost", options=())
    assert done.returncode == -signal.SIGBUS, (done.returncode, done.stderr)
    assert done.stdout == ("earlier handler\n" if "handle()\n" in order else "")


@linux
def test_a_signal_that_is_sent_reaches_pythons_own_handler_as_often_as_it_comes(path):
    program = START + (
        "import signal\n"
        "seen = []\n"
        "signal.signal(signal.SIGBUS, lambda number, frame: seen.append(number))\n"
    ) + READ + (
        "for count in range(1, 4):\n"
        "    os.kill(os.getpid(), signal.SIGBUS)\n"
        "    signal.raise_signal(signal.SIGBUS)\n"
        "    assert right(dataset.read([20]))\n"
        "    assert len(seen) == 2 * count, seen\n"
        "signal.signal(signal.SIGBUS, signal.SIG_IGN)\n"
        "assert right(dataset.read([20]))\n"
        "os.kill(os.getpid(), signal.SIGBUS)\n"
        "signal.signal(signal.SIGBUS, signal.SIG_DFL)\n"
        "assert right(dataset.read([20]))\n"
        "print('before', flush=True)\n"
        "os.kill(os.getpid(), signal.SIGBUS)\n"
        "print('after', flush=True)\n"
    )  # fmt: skip
    done = run(program, path, options=())
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "before\n"), done.stderr


# --- Which way files are read


@linux
def test_files_of_a_local_file_system_are_mapped_unless_it_is_said_otherwise(path):
    program = START + (
        "for io in ('auto', 'mapped', 'positioned'):\n"
        "    dataset = opened(io=io)\n"
        "    assert right(dataset)\n"
        "    print(is_mapped(sys.argv[1]))\n"
        "    del dataset\n"
        "    assert not is_mapped(sys.argv[1])\n"
    )
    assert printed(program, path).split() == ["True", "True", "False"]


@linux
def test_files_that_cannot_be_mapped_are_read_by_position(cache_of):
    # 16 shards of 16 MiB, where 40 MiB of address space are left.
    items = [drt.CacheInput(bytes([number]) * 2**20, {}) for number in range(256)]
    path = cache_of("huge", items, max_shard_bytes=2**24 + 16)
    program = START + (
        "import resource\n"
        "dataset = opened(verify_reads=True)\n"
        "dataset.read([0])\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * mmap.PAGESIZE\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 40 * 2**20, resource.RLIM_INFINITY))\n"
        "for row in range(256):\n"
        "    (sample,) = dataset.read([row])\n"
        "    assert sample.data == bytes([row]) * 2**20\n"
        "maps = Path('/proc/self/maps').read_text().count(sys.argv[1] + '/shards')\n"
        "assert 1 <= maps <= 4, maps\n"
    )
    printed(program, path)


@linux
def test_many_shards_need_few_handles_and_a_bounded_number_of_mappings(cache_of):
    # More than are ever mapped at once; the grid has as many as the largest caches.
    shards = 10_000 if os.environ.get("DATASET_RT_GRID") == "full" else 2_500
    items = [drt.CacheInput(number.to_bytes(4, "little") * 8, {}) for number in range(shards)]
    path = cache_of("many", items, max_shard_bytes=40)
    assert len(list(path.glob("shards/*"))) == shards
    program = START + (
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))\n"
        "most = 0\n"
        "for workers in (1, 2):\n"
        "    dataset = opened(workers, shuffle=True, replacement=False, prefetch_size=256)\n"
        "    for number, sample in enumerate(dataset):\n"
        "        assert sample.data == sample.sample_id.to_bytes(4, 'little') * 8\n"
        "        if number % 500 == 0:\n"
        "            most = max(most, Path('/proc/self/maps').read_text().count(sys.argv[1] + '/shards'))\n"
        "            assert len(os.listdir('/proc/self/fd')) < 128\n"
        "    print(number + 1)\n"
        "print(most)\n"
    )
    *counts, most = map(int, printed(program, path).split())
    assert counts == [shards, shards]
    # A mapping that is in use stays a little longer.
    assert 500 < most <= 2_048 + 16


@pytest.mark.parametrize("io", ["auto", "mapped", "positioned"])
def test_a_cache_on_a_full_read_only_file_system_is_read(path, tmp_path, io):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"needs small-disk: {mounted.stderr.strip()}")
    try:
        shutil.copytree(path, disk / path.name)
        with (disk / "rest").open("wb") as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(2**16))
        assert shutil.disk_usage(disk).free == 0
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        program = START + f"dataset = opened(2, io={io!r})\nassert right(dataset)\nassert len(dataset) == {ROWS}\n"
        printed(program, disk / path.name)
    finally:
        subprocess.run(["umount", disk], check=True)
