"""An exception that comes out of `next` loses no batch and ends no epoch, whoever raised it."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

import dataset_rt as drt
from dataset_rt_torch import make_dataloader

FIRST = 0.0001
INTERRUPTIONS = 6


class CtrlC:
    """Raises KeyboardInterrupt in the middle of a loader's `next`, at several moments, and nowhere else.

    A handler may run behind the call of `next` as well, where the caller would lose what
    it was given; no iterator could help that. With workers only the waiting for them is
    interrupted, since the queues of multiprocessing break where a call that fills one is.
    """

    def __init__(self, delay, *, within="__next__", to_workers=False):
        self.delay = delay
        self.within = within
        self.to_workers = to_workers
        self.raised = 0
        self.is_over = False

    def __enter__(self):
        self.previous = signal.signal(signal.SIGALRM, self.handle)
        signal.setitimer(signal.ITIMER_REAL, self.delay)
        return self

    def __exit__(self, *_):
        self.is_over = True
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.previous)

    def handle(self, _, frame):
        if self.is_over or self.raised == INTERRUPTIONS:
            return
        names = []
        while frame is not None:
            names.append((Path(frame.f_code.co_filename).name, frame.f_code.co_name))
            frame = frame.f_back
        functions = {name for _, name in names}
        if ("deliveries.py", "__next__") not in names or self.within not in functions or "__del__" in functions:
            signal.setitimer(signal.ITIMER_REAL, 0.00005)
            return
        self.raised += 1
        signal.setitimer(signal.ITIMER_REAL, self.delay)
        if self.to_workers:
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGINT)
        raise KeyboardInterrupt


def delivered(loader, delay, **options):
    """Deliver a window through interruptions, checking that every state is that of what was delivered."""
    iterator = iter(loader)
    first = loader.state_dict()["position"]
    got = numbers(next(iterator))
    with CtrlC(delay, **options) as ctrl_c:
        while True:
            try:
                batch = next(iterator)
            except KeyboardInterrupt:
                assert loader.state_dict()["position"] == first + len(got)
                continue
            except StopIteration:
                return got, ctrl_c.raised
            got += numbers(batch)


def through_interruptions(iterator):
    """Yield what an iterator delivers before, between and behind three KeyboardInterrupts."""
    for _ in range(4):
        try:
            yield from iterator
        except KeyboardInterrupt:  # noqa: PERF203
            continue


def numbers(batch):
    return batch if isinstance(batch, list) else batch["sample_id"].tolist()


def list_numbers(samples):
    return [sample.sample_id for sample in samples]


@pytest.mark.parametrize("iterable", [False, True])
def test_ctrl_c_at_any_moment_of_next_loses_no_sample(open_cache, iterable):
    dataset = open_cache()
    dataset.set_epoch_len(1_990)
    expected = dataset.stream().records(0, 60 * 1_990).tolist()
    loader = make_dataloader(dataset, 20, iterable=iterable, collate_fn=list_numbers)
    interruptions = 0
    for epoch in range(60):
        got, raised = delivered(loader, FIRST * (1 + epoch % 10))
        assert got == expected[epoch * 1_990 : (epoch + 1) * 1_990]
        interruptions += raised
    assert interruptions > 10


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("iterable", [False, True])
def test_ctrl_c_goes_on_exactly_with_workers_that_it_ended(open_cache, iterable, persistent):
    dataset = open_cache()
    dataset.set_epoch_len(190)
    expected = dataset.stream().records(0, 3 * 190).tolist()
    options = {"num_workers": 2, "multiprocessing_context": "fork", "persistent_workers": persistent}
    loader = make_dataloader(dataset, 4, iterable=iterable, **options)
    for epoch in range(3):
        got, raised = delivered(loader, 0.005, within="_get_data", to_workers=epoch == 1)
        assert got == expected[epoch * 190 : (epoch + 1) * 190]
        assert raised


@pytest.mark.parametrize("iterable", [False, True])
@pytest.mark.parametrize("name", ["decode", "decode_batch", "collate_fn"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_a_function_raises_once_costs_no_batch(dataset, name, iterable, error):
    calls = 0

    def raising(given):
        nonlocal calls
        calls += 1
        if calls == 3:
            raise error
        if name == "decode":
            return given.sample_id
        return list_numbers(given) if name == "collate_fn" else given.column("sample_id").to_pylist()

    options = {name: raising}
    if name != "collate_fn":
        options["collate_fn"] = list
    loader = make_dataloader(dataset, 2, iterable=iterable, **options)
    iterator = iter(loader)
    got = []
    with pytest.raises(error):
        got.extend(number for batch in iterator for number in batch)
    assert loader.state_dict()["position"] == len(got) < 23
    for batch in iterator:
        got += batch
    assert got == dataset.stream().records(0, 23).tolist()


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("remainder", ["extend", "drop", "uneven"])
def test_a_rank_goes_on_with_its_own_rest(open_cache, remainder, drop_last):
    def loader(collate=list_numbers):
        options = {"rank": 1, "world_size": 3, "remainder": remainder, "drop_last": drop_last}
        return make_dataloader(open_cache(), 2, collate_fn=collate, **options)

    calls = 0

    def raising(samples):
        nonlocal calls
        calls += 1
        if calls in (1, 3, 4):
            raise KeyboardInterrupt
        return list_numbers(samples)

    uninterrupted = loader()
    expected = [batch for _ in range(2) for batch in uninterrupted]
    interrupted = loader(raising)
    got = [batch for _ in range(2) for batch in through_interruptions(iter(interrupted))]
    assert calls == len(expected) + 3
    assert got == expected


class Interrupted:
    """A ticket whose window is reserved when Ctrl-C comes, and not yet handed over."""

    def __init__(self, ticket):
        self.ticket = ticket

    def reserve(self):
        self.ticket.reserve()
        raise KeyboardInterrupt


def test_an_iterator_that_lost_its_window_is_refused_and_the_state_has_it(dataset):
    loader = make_dataloader(dataset, 4)
    iterator = iter(loader)
    iterator._ticket = Interrupted(iterator._ticket)
    with pytest.raises(KeyboardInterrupt):
        next(iterator)
    with pytest.raises(drt.ConfigError, match="must not go on that was interrupted before it had its window"):
        next(iterator)
    loader.load_state_dict(loader.state_dict())
    got = [number for batch in loader for number in numbers(batch)]
    assert got == dataset.stream().records(0, 23).tolist()


def stop_in_decode(sample):
    return next(iter([])) if sample.metadata["label"] == 3 else sample.sample_id


def stop_in_batch(batch):
    return next(iter([])) if 3 in batch.column("label").to_pylist() else batch.column("sample_id").to_pylist()


def stop_in_collation(samples):
    return next(iter([])) if any(sample.metadata["label"] == 3 for sample in samples) else samples


FUNCTIONS = {"decode": stop_in_decode, "decode_batch": stop_in_batch, "collate_fn": stop_in_collation}


@pytest.mark.parametrize("iterable", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_stop_iteration_of_a_function_is_an_error_and_no_end(open_cache, name, workers, iterable):
    dataset = open_cache(shuffle=False)
    loader = make_dataloader(dataset, 1, num_workers=workers, iterable=iterable, **{name: FUNCTIONS[name]})
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    with pytest.raises(RuntimeError, match=f"{name} must not raise StopIteration, which would end the epoch"):
        next(iterator)
    assert loader.state_dict()["position"] == 3


def stop_in_worker(worker):
    if worker == 1:
        raise StopIteration


@pytest.mark.parametrize("iterable", [False, True])
def test_a_loader_that_ends_early_says_so(dataset, iterable):
    loader = make_dataloader(dataset, 4, num_workers=2, iterable=iterable, worker_init_fn=stop_in_worker)
    iterator = iter(loader)
    got = numbers(next(iterator))
    with pytest.raises(RuntimeError, match="must have 6 batches, got its end with 5 of them left"):
        next(iterator)
    assert got == dataset.stream().records(0, 4).tolist()
    assert loader.state_dict()["position"] == 4
