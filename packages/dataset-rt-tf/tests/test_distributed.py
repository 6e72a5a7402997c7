"""A custom loop under MultiWorkerMirroredStrategy, two real processes on the CPU."""

import json
import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

WORKER = Path(__file__).with_name("distributed_worker.py")


def free_ports(count):
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def train(dataset, *, state, steps):
    """Run both workers; what each saw and said."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(2)]
    request = {"cache": next(iter(dataset.caches["path"])), "state": state, "steps": steps, "batch_size": 2}
    processes = []
    for index in range(2):
        config = {"cluster": {"worker": workers}, "task": {"type": "worker", "index": index}}
        environment = {**os.environ, "TF_CONFIG": json.dumps(config), "CUDA_VISIBLE_DEVICES": ""}
        command = [sys.executable, str(WORKER), json.dumps(request)]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        )
    try:
        outcomes = []
        for process in processes:
            out, err = process.communicate(timeout=600)
            assert process.returncode == 0, err
            outcomes.append(json.loads(out.splitlines()[-1]))
        return outcomes
    finally:
        for process in processes:
            process.kill()


def dealt(outcomes):
    """What both workers saw, put back into the order of the stream."""
    return [
        number
        for steps in zip(*(outcome["seen"] for outcome in outcomes), strict=True)
        for pair in zip(*steps, strict=True)
        for number in pair
    ]


def test_two_workers_see_disjoint_positions_finish_and_resume(numbered, draws):
    dataset = numbered(20)
    expected = draws(dataset, 20)
    first = train(dataset, state=None, steps=2)
    assert dealt(first) == expected[:8]
    assert first[0]["state"] == first[1]["state"]
    assert first[0]["weights"] == first[1]["weights"]
    assert first[0]["state"]["position"] == 8
    rest = train(dataset, state=first[1]["state"], steps=None)
    assert dealt(rest) == expected[8:20]
    assert rest[0]["state"]["position"] == 20
