"""Lightning and Accelerate with two processes: what all ranks see is exactly one window."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("recipe_worker.py")
RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "NODE_RANK")


def start(folder, *arguments, **variables):
    """Start a process of its own group; what it says is in `folder`."""
    environment = {name: value for name, value in os.environ.items() if name not in RANK_VARIABLES}
    environment |= {"OMP_NUM_THREADS": "1", "PL_DISABLE_FORK": "1"} | variables
    command = [sys.executable, str(WORKER), *map(str, arguments)]
    with (folder / f"said-{variables.get('RANK', 0)}").open("w") as said:
        return subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True)


def finish(folder, processes):
    """Wait for all, or until one fails, and give exit codes and what they said."""
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(timeout=30 if any(codes) else 300))
        except subprocess.TimeoutExpired:  # noqa: PERF203
            os.killpg(process.pid, signal.SIGKILL)
            codes.append(process.wait())
    return codes, "".join(path.read_text() for path in sorted(folder.glob("said-*")))


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def is_one_window(folder, dataset, *, size):
    """Whether the ranks' draws, interleaved, are the stream's first window, lengthened for equal shares."""
    ranks = [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(size)]
    interleaved = list(itertools.chain.from_iterable(zip(*ranks, strict=True)))
    return interleaved == dataset.stream().records(0, -(-23 // size) * size).tolist()


@pytest.mark.parametrize("processes", [1, 2])
def test_lightning_trains_on_exactly_one_window(cache, dataset, tmp_path, processes):
    codes, said = finish(tmp_path, [start(tmp_path, "lightning", cache, tmp_path, processes, "own")])
    assert codes == [0], said
    assert is_one_window(tmp_path, dataset, size=processes)


def test_lightning_refuses_to_put_its_own_sampler_into_the_loader(cache, dataset, tmp_path):
    codes, said = finish(tmp_path, [start(tmp_path, "lightning", cache, tmp_path, 2, "inject")])
    if codes == [0]:
        assert is_one_window(tmp_path, dataset, size=2), said
    else:
        assert "sampler" in said


def accelerated(folder, cache, kind, *, size):
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    arguments = ("accelerate", cache, folder, kind)
    ranks = [start(folder, *arguments, RANK=str(rank), LOCAL_RANK=str(rank), **common) for rank in range(size)]
    return finish(folder, ranks)


@pytest.mark.parametrize("kind", ["left out", "prepared"])
def test_accelerate_trains_on_exactly_one_window(cache, dataset, tmp_path, kind):
    codes, said = accelerated(tmp_path, cache, kind, size=2)
    assert codes == [0, 0], said
    assert is_one_window(tmp_path, dataset, size=2)


@pytest.mark.parametrize("kind", ["plain prepared", "iterable prepared"])
def test_accelerates_second_sharding_is_an_error(cache, tmp_path, kind):
    codes, said = accelerated(tmp_path, cache, kind, size=2)
    assert 0 not in codes, said
    assert "ConfigError: a DataLoader of dataset_rt_torch must not go through Accelerate's prepare()" in said


def test_accelerate_in_one_process_takes_any_loader(cache, dataset, tmp_path):
    codes, said = accelerated(tmp_path, cache, "plain prepared", size=1)
    assert codes == [0], said
    assert is_one_window(tmp_path, dataset, size=1)
