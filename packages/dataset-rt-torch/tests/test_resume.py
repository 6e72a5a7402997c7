"""A saved run goes on with the very next batch: at any step, worker count and world size, in a new process."""

import itertools
import json
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import dataset_rt as drt
from dataset_rt_torch import StreamBatchSampler, StreamDataset, StreamIterableDataset, collate_samples, make_dataloader

WINDOWS = 3
WORKER = Path(__file__).with_name("resume_worker.py")


def ids(batches):
    return [batch["sample_id"].tolist() for batch in batches]


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def drawn(loader, windows):
    return [batch for _ in range(windows) for batch in ids(loader)]


def saved_at(loader, batches):
    """Deliver so many batches, over as many windows as it takes, and give what was delivered and the state."""
    delivered = []
    while len(delivered) < batches:
        iterator = iter(loader)
        for batch in iterator:
            delivered.append(batch["sample_id"].tolist())
            if len(delivered) == batches:
                break
    return delivered, loader.state_dict()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("epoch_len", "batch_size"), [(23, 4), (8, 4), (1, 1), (3, 4)])
@pytest.mark.parametrize("prefetch_size", [1, 64])
def test_every_step_of_three_windows_resumes_exactly(open_cache, epoch_len, batch_size, drop_last, prefetch_size):
    def loader():
        dataset = open_cache(prefetch_size=prefetch_size)
        dataset.set_epoch_len(epoch_len)
        return make_dataloader(dataset, batch_size, drop_last=drop_last)

    per_window = len(loader())
    whole = drawn(loader(), WINDOWS + 1)
    for batches in range(WINDOWS * per_window + 1):
        delivered, state = saved_at(loader(), batches)
        resumed = loader()
        resumed.load_state_dict(json.loads(json.dumps(state)))
        assert resumed.state_dict()["position"] == state["position"], "readable before the first batch"
        rest = per_window - batches % per_window if per_window else 0
        assert len(resumed) == rest, "never an empty epoch"
        windows = WINDOWS + 1 - (batches // per_window if per_window else WINDOWS + 1)
        assert delivered + drawn(resumed, windows) == whole


@pytest.mark.parametrize("start", ["fork", "forkserver"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("iterable", [False, True])
def test_what_two_workers_saved_goes_on_with_0_and_with_5(open_cache, start, persistent, iterable):
    options = {"multiprocessing_context": start, "persistent_workers": persistent, "iterable": iterable}
    whole = drawn(make_dataloader(open_cache(), 4), 2)
    loader = make_dataloader(open_cache(), 4, num_workers=2, prefetch_factor=3, **options)
    iterator = iter(loader)
    delivered = []
    for batches in range(1, 7):
        delivered.append(next(iterator)["sample_id"].tolist())
        state = loader.state_dict()
        assert state["position"] == min(4 * batches, 23), "what workers have read ahead does not count"
        if batches not in (1, 4, 6):
            continue
        for workers in (0, 5):
            resumed = make_dataloader(open_cache(), 4, num_workers=workers, iterable=iterable)
            resumed.load_state_dict(state)
            windows = 2 if batches < 6 else 1
            assert delivered + drawn(resumed, windows) == whole


@pytest.mark.parametrize("start", ["fork", "spawn", "forkserver"])
def test_a_new_process_goes_on_where_one_with_workers_was_killed(cache, open_cache, tmp_path, start):
    whole = drawn(make_dataloader(open_cache(), 4), 3)
    saved = tmp_path / "state.json"
    printed = tmp_path / "printed"
    with printed.open("w") as output:
        command = [sys.executable, str(WORKER), str(cache), str(saved), start, "9"]
        killed = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        try:
            assert killed.wait(timeout=300) == -signal.SIGKILL, printed.read_text()
        finally:
            # A forkserver's workers do not notice that the one whom they serve was killed.
            os.killpg(killed.pid, signal.SIGKILL)
    delivered = [json.loads(line) for line in printed.read_text().splitlines()]
    resumed = make_dataloader(open_cache(), 4)
    resumed.load_state_dict(json.loads(saved.read_text()))
    assert len(delivered) == 9
    assert delivered + drawn(resumed, 2) == whole


def test_one_dataset_serves_a_second_loader_and_a_new_one_alike(dataset, open_cache):
    iterator = iter(make_dataloader(dataset, 1))
    first = [next(iterator)["sample_id"].item() for _ in range(5)]
    state = iterator.state_dict()
    next(iterator)
    expected = dataset.stream().records(0, 23).tolist()
    for other in (dataset, open_cache()):
        loader = make_dataloader(other, 1)
        loader.load_state_dict(state)
        assert first + [batch["sample_id"].item() for batch in loader] == expected


def test_several_resumes_in_one_window_keep_the_position_absolute(open_cache):
    whole = drawn(make_dataloader(open_cache(), 4), 1)
    state, delivered = None, []
    for step in range(6):
        loader = make_dataloader(open_cache(), 4, num_workers=step % 2)
        if state is not None:
            loader.load_state_dict(state)
        iterator = iter(loader)
        delivered.append(next(iterator)["sample_id"].tolist())
        state = loader.state_dict()
        assert state["position"] == min(4 * (step + 1), 23)
    assert delivered == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_windows_that_are_broken_off_go_on_with_the_next_one(open_cache, workers):
    dataset = open_cache()
    expected = dataset.stream().records(0, 5 * 23).tolist()
    loader = make_dataloader(dataset, 4, num_workers=workers)
    for window in range(5):
        for number, batch in enumerate(loader):
            assert batch["sample_id"].tolist() == expected[window * 23 + number * 4 :][:4]
            if number == 1:
                break
    # After a restart it is the rest of the last one.
    resumed = make_dataloader(open_cache(), 4, num_workers=workers)
    resumed.load_state_dict(loader.state_dict())
    assert flat(ids(resumed)) == expected[4 * 23 + 8 :]


def test_the_world_may_change_between_a_state_and_its_loading(open_cache):
    expected = open_cache().stream().records(0, 23 + 24 + 24).tolist()
    first = make_dataloader(open_cache(), 4, rank=0, world_size=1)
    iterator = iter(first)
    seen = [next(iterator)["sample_id"].tolist()]
    state = first.state_dict()
    for size, steps in ((2, 1), (3, 1)):
        steps_of_ranks = []
        for rank in range(size):
            loader = make_dataloader(open_cache(), 2, rank=rank, world_size=size)
            loader.load_state_dict(state)
            iterator = iter(loader)
            steps_of_ranks.append([next(iterator)["sample_id"].tolist() for _ in range(steps)])
            states = loader.state_dict()
        for step in zip(*steps_of_ranks, strict=True):
            # One batch of each rank, its draws taken in turn.
            seen.append(flat(zip(*step, strict=True)))  # noqa: PERF401
        state = states
    assert flat(seen) == expected[: 4 + 4 + 6]
    assert state["position"] == 14


def test_another_ranks_state_loads(open_cache):
    states = []
    for rank in range(3):
        loader = make_dataloader(open_cache(), 2, rank=rank, world_size=3)
        iterator = iter(loader)
        next(iterator)
        states.append(loader.state_dict())
    assert states[0] == states[1] == states[2]


@pytest.mark.parametrize("field", ["seed", "population", "order_version", "mode"])
def test_a_state_of_something_else_is_refused_by_its_field(open_cache, field):
    loader = make_dataloader(open_cache(), 4)
    state = loader.state_dict()
    other = {"seed": 6, "population": "0" * 64, "order_version": 2, "mode": "ordered"}[field]
    sampler = StreamBatchSampler(open_cache(), 4)
    for target in (loader, sampler):
        with pytest.raises(drt.StateMismatchError, match=field):
            target.load_state_dict(state | {field: other})


def test_states_are_small_however_the_table_was_edited(dataset):
    dataset.update_metadata(pl.concat([dataset.get_metadata()] * 1_000))
    assert len(json.dumps(make_dataloader(dataset, 4).state_dict())) < 1_000
    assert len(pickle.dumps(StreamDataset(dataset))) < 8 * 23_000 + 2_000


# --- A loader of one's own


def plain(dataset, **options):
    sampler = StreamBatchSampler(dataset, 4)
    loader = DataLoader(StreamDataset(dataset), batch_sampler=sampler, collate_fn=collate_samples, **options)
    return loader, sampler


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_says_the_state_behind_the_batches_that_its_user_counted(open_cache, workers):
    whole = drawn(plain(open_cache())[0], 2)
    loader, sampler = plain(open_cache(), num_workers=workers)
    assert sampler.state_dict() == sampler.state_dict(batches=0)
    delivered = []
    for batches, batch in enumerate(loader, start=1):
        delivered.append(batch["sample_id"].tolist())
        state = sampler.state_dict(batches=batches)
        if workers == 0:
            assert state == sampler.state_dict(), "such a loader hands out no more than it delivers"
        resumed, other = plain(open_cache(), num_workers=5 if batches == 3 else 0)
        other.load_state_dict(state)
        assert other.state_dict()["position"] == state["position"]
        assert delivered + drawn(resumed, 2 if batches < 6 else 1) == whole
    with pytest.raises(drt.ConfigError, match=r"batches must be in \[0, 6\], the number handed out, got 7"):
        sampler.state_dict(batches=7)


# --- torchdata's loader, which saves by itself


def own_state(dataset, workers):
    sampler = StreamBatchSampler(dataset, 4)
    options = {"num_workers": workers, "collate_fn": collate_samples}
    return StatefulDataLoader(StreamDataset(dataset), batch_sampler=sampler, **options)


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_loader_resumes_at_every_step_at_the_same_worker_count(open_cache, workers):
    whole = drawn(own_state(open_cache(), 0), 4)
    for batches in range(13 if workers == 0 else 8):
        delivered, state = saved_at(own_state(open_cache(), workers), batches)
        resumed = own_state(open_cache(), workers)
        resumed.load_state_dict(json.loads(json.dumps(state)) if workers == 0 else state)
        # Saved behind a window's last batch, before the loop was left, torchdata goes on with a pass of no batches.
        windows = 4 - batches // 6 + (batches > 0 and batches % 6 == 0)
        assert delivered + drawn(resumed, windows) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_loader_that_was_at_its_end_goes_on_with_the_next_window(open_cache, workers):
    whole = drawn(own_state(open_cache(), 0), 3)
    loader = own_state(open_cache(), workers)
    delivered = drawn(loader, 1)
    state = loader.state_dict()
    resumed = own_state(open_cache(), workers)
    resumed.load_state_dict(state)
    assert delivered + drawn(resumed, 2) == whole


@pytest.mark.parametrize("workers", [0, 2])
def test_torchdatas_loader_does_not_save_an_iterable_dataset(dataset, workers):
    batches = StreamIterableDataset(dataset, 4)
    loader = StatefulDataLoader(batches, batch_size=None, num_workers=workers, collate_fn=collate_samples)
    refused = pytest.raises(drt.ConfigError, match="a StreamIterableDataset must not be saved")
    with refused:
        next(iter(loader))
        loader.state_dict()
    with refused:
        batches.load_state_dict({})
