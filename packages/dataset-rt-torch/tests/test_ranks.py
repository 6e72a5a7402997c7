"""Several ranks: real processes of a gloo group on the loopback device."""

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

import dataset_rt as drt
from dataset_rt_torch import StreamBatchSampler, make_dataloader, world

WORKER = Path(__file__).with_name("ddp_worker.py")


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


def run_ranks(size, *arguments, launcher="torchrun", folder):
    """Start all ranks and wait for them; give their exit codes."""
    names = {"RANK": True, "LOCAL_RANK": True} if launcher == "torchrun" else {"LOCAL_RANK": True}
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    ranks = []
    for rank in range(size):
        environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK")}
        environment |= common | {"OMP_NUM_THREADS": "1"} | {name: str(rank) for name in names}
        command = [sys.executable, "-W", "error", str(WORKER), *map(str, arguments)]
        with (folder / f"said-{rank}").open("w") as said:
            ranks.append(subprocess.Popen(command, env=environment, stdout=said, stderr=said, start_new_session=True))
    try:
        codes = []
        for rank in ranks:
            # Once one was killed, the others only wait for it.
            codes.append(rank.wait(timeout=30 if -signal.SIGKILL in codes else 300))
    except subprocess.TimeoutExpired:
        codes.append(None)
    finally:
        for rank in ranks:
            if rank.poll() is None:
                os.killpg(rank.pid, signal.SIGKILL)
                rank.wait()
    return codes, [(folder / f"said-{rank}").read_text() for rank in range(size)]


@pytest.mark.parametrize(
    ("size", "workers", "launcher"), [(2, 0, "torchrun"), (2, 2, "torchrun"), (4, 1, "torchrun"), (2, 0, "local")]
)
def test_interleaved_ranks_are_the_single_stream(cache, open_cache, tmp_path, size, workers, launcher):
    what = "draw" if launcher == "torchrun" else "draw-by-environment"
    codes, said = run_ranks(size, what, cache, tmp_path, workers, "no", launcher=launcher, folder=tmp_path)
    assert codes == [0] * size, said
    ranks = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(size)]
    stride = 24
    stream = open_cache().stream().records(0, 2 * stride).tolist()
    for epoch in range(2):
        of_epoch = [rank["epochs"][epoch] for rank in ranks]
        assert len({rank["len"] for rank in of_epoch}) == 1
        assert all(rank["len"] == len(rank["batches"]) for rank in of_epoch)
        draws = [list(itertools.chain.from_iterable(rank["batches"])) for rank in of_epoch]
        interleaved = list(itertools.chain.from_iterable(zip(*draws, strict=True)))
        assert interleaved == stream[epoch * stride : (epoch + 1) * stride]
    assert {rank["position"] for rank in ranks} == {2 * stride}


def test_a_rank_that_stops_early_blocks_nobody(cache, tmp_path):
    codes, said = run_ranks(2, "draw", cache, tmp_path, 0, "yes", folder=tmp_path)
    assert codes == [0, 0], said
    first, second = (json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in range(2))
    assert [len(epoch["batches"]) for epoch in first["epochs"]] == [1, 1]
    assert [len(epoch["batches"]) for epoch in second["epochs"]] == [3, 3]


def test_a_state_goes_on_in_another_number_of_processes(cache, open_cache, tmp_path):
    saved = tmp_path / "state.json"
    drawn = []
    # 16 of the window's 24 draws on 2 ranks, its last 8 on 4, and of the next window the first 8 on 1.
    for size, workers, batches in ((2, 1, 2), (4, 0, 1), (1, 2, 2)):
        codes, said = run_ranks(size, "go-on", cache, tmp_path, workers, saved, batches, folder=tmp_path)
        assert codes == [0] * size, said
        files = [tmp_path / f"rank-{rank}-of-{size}.json" for rank in range(size)]
        ranks = [json.loads(file.read_text()) for file in files]
        assert all(rank["state"] == ranks[0]["state"] for rank in ranks)
        saved.write_text(json.dumps(ranks[-1]["state"]))
        draws = [list(itertools.chain.from_iterable(rank["batches"])) for rank in ranks]
        drawn += itertools.chain.from_iterable(zip(*draws, strict=True))
    assert drawn == open_cache().stream().records(0, 32).tolist()
    assert json.loads(saved.read_text())["position"] == 32


class Digits:
    """The digit images that scikit-learn brings along."""

    name = "digits"

    def __iter__(self):
        digits = load_digits()
        for pixels, label in zip(digits.data, digits.target, strict=True):
            yield drt.CacheInput(pixels.astype(np.uint8).tobytes(), {"label": int(label)})


def test_a_killed_training_run_ends_with_the_same_weights(write, tmp_path):
    cache = write(tmp_path / "caches", Digits())
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert run_ranks(2, "train", cache, whole, -1, folder=whole)[0] == [0, 0]
    # Each rank takes 29 batches an epoch, and every fifth step is saved. The first kill falls two steps behind a
    # checkpoint of the first epoch; the second one a step behind a checkpoint of the second epoch, in a run that was
    # resumed already.
    for killed_at in (17, 41):
        codes, said = run_ranks(2, "train", cache, broken, killed_at, folder=broken)
        assert -signal.SIGKILL in codes, said
    codes, said = run_ranks(2, "train", cache, broken, -1, folder=broken)
    assert codes == [0, 0], said
    for rank in range(2):
        expected, found = (torch.load(folder / f"rank-{rank}.pt") for folder in (whole, broken))
        assert expected["loss"] == found["loss"] < 1.0
        assert all(torch.equal(expected["model"][name], found["model"][name]) for name in expected["model"])


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("remainder", ["extend", "drop"])
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_all_ranks_have_equally_many_batches(open_cache, size, remainder, drop_last):
    counts = set()
    for rank in range(size):
        arguments = {"rank": rank, "world_size": size, "remainder": remainder, "drop_last": drop_last}
        loader = make_dataloader(open_cache(), 2, **arguments)
        sampler = StreamBatchSampler(open_cache(), 2, **arguments)
        counts.add((len(loader), len(list(loader)), len(sampler), len(list(sampler))))
    assert len(counts) == 1
    assert len(set(*counts)) == 1


def test_uneven_ranks_share_out_exactly_one_epoch(open_cache):
    seen = []
    for rank in range(4):
        loader = make_dataloader(open_cache(shuffle=False), 2, rank=rank, world_size=4, remainder="uneven")
        seen += [number for batch in loader for number in batch["sample_id"].tolist()]
    assert sorted(seen) == list(range(23))


def test_a_view_keeps_its_own_world_whatever_the_environment_says(dataset, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    view = dataset.shard(2, 3)
    expected = dataset.stream().records(0, 24)[2::3].tolist()
    assert [number for batch in make_dataloader(view, 4) for number in batch["sample_id"].tolist()] == expected


def test_the_environment_says_the_rank(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NNODES", "GROUP_WORLD_SIZE", "NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    assert world() == (0, 1)
    cases = [
        ({"WORLD_SIZE": "1"}, (0, 1)),
        ({"RANK": "3", "WORLD_SIZE": "4"}, (3, 4)),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"LOCAL_RANK": "1", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, (5, 8)),
    ]
    for variables, expected in cases:
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            assert world() == expected
    refused = [
        ({"WORLD_SIZE": "2"}, "RANK must be set where WORLD_SIZE is above 1, got WORLD_SIZE=2 alone"),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4"}, "RANK must be set"),
        ({"LOCAL_RANK": "1", "WORLD_SIZE": "8", "NNODES": "2"}, "RANK must be set"),
        ({"RANK": "1"}, "WORLD_SIZE must be set where RANK is, got RANK=1 alone"),
        ({"RANK": "2", "WORLD_SIZE": "2"}, r"RANK must be in \[0, 2\), got 2"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "environment variable RANK must be an integer, got 'one'"),
    ]
    for variables, message in refused:
        with monkeypatch.context() as patched:
            for name, value in variables.items():
                patched.setenv(name, value)
            with pytest.raises(drt.ConfigError, match=message):
                world()


def test_a_rank_that_changes_is_refused(dataset, monkeypatch):
    loader = make_dataloader(dataset, 4)
    assert len(loader) == 6
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(drt.ConfigError, match=r"must not change while a loader exists, got 1 of 2 after 0 of 1"):
        iter(loader)
