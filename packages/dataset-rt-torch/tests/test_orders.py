"""Every kind of loader gives the stream's order, however it is set up."""

import itertools
import os

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import dataset_rt as drt
from dataset_rt_torch import (
    StreamBatchSampler,
    StreamDataset,
    StreamIterableDataset,
    collate_samples,
    make_dataloader,
)

EPOCHS = 3
DECODE_BATCH = drt.array_decoder("u1", (2, 3), metadata=("label",))


def plain(dataset, batch_size, *, drop_last, **options):
    sampler = StreamBatchSampler(dataset, batch_size, drop_last=drop_last)
    return DataLoader(StreamDataset(dataset), batch_sampler=sampler, collate_fn=collate_samples, **options)


def stateful(dataset, batch_size, *, drop_last, **options):
    sampler = StreamBatchSampler(dataset, batch_size, drop_last=drop_last)
    samples = StreamDataset(dataset, decode_batch=DECODE_BATCH)
    return StatefulDataLoader(samples, batch_sampler=sampler, collate_fn=collate_samples, **options)


def iterable(dataset, batch_size, *, drop_last, **options):
    batches = StreamIterableDataset(dataset, batch_size, drop_last=drop_last, decode_batch=DECODE_BATCH)
    return DataLoader(batches, batch_size=None, collate_fn=collate_samples, **options)


def made(dataset, batch_size, **options):
    return make_dataloader(dataset, batch_size, decode_batch=DECODE_BATCH, **options)


def made_iterable(dataset, batch_size, **options):
    return make_dataloader(dataset, batch_size, iterable=True, **options)


FACTORS = {
    "style": [plain, stateful, iterable, made, made_iterable],
    "workers": [0, 1, 2, 5],
    "start": ["fork", "spawn", "forkserver"],
    "persistent": [False, True],
    "batch_size": [1, 4, 23],
    "drop_last": [False, True],
}


def is_slow(combination):
    """Whether it starts many processes that each import torch: several spawned ones, anew for every epoch."""
    _, workers, start, persistent, *_ = combination
    return workers > 1 and start == "spawn" and not persistent


def pairwise(factors):
    """Few combinations in which every pair of values of two factors occurs: the best next one, over and over."""
    every = [combination for combination in itertools.product(*factors.values()) if not is_slow(combination)]

    def pairs(combination):
        return set(itertools.combinations(enumerate(combination), 2))

    missing = set().union(*map(pairs, every))
    chosen = []
    while missing:
        best = max(every, key=lambda combination: len(pairs(combination) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


FULL = os.environ.get("DATASET_RT_GRID") == "full"
COMBINATIONS = list(itertools.product(*FACTORS.values())) if FULL else pairwise(FACTORS)


@pytest.mark.parametrize(tuple(FACTORS), COMBINATIONS)
def test_three_epochs_are_the_stream(dataset, style, workers, start, persistent, batch_size, drop_last):
    options = {"num_workers": workers, "drop_last": drop_last}
    if workers:
        options |= {"multiprocessing_context": start, "persistent_workers": persistent}
    loader = style(dataset, batch_size, **options)
    rows = dataset.epoch_len
    expected = dataset.stream().records(0, EPOCHS * rows).tolist()
    for epoch in range(EPOCHS):
        if style is iterable:
            loader.dataset.set_position(epoch * rows)
        promised = len(loader)
        batches = [batch["sample_id"].tolist() for batch in loader]
        window = expected[epoch * rows : (epoch + 1) * rows]
        kept = rows - rows % batch_size if drop_last else rows
        assert batches == [window[first : first + batch_size] for first in range(0, kept, batch_size)]
        assert promised == len(batches)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_epoch_lengths_and_modes_of_the_dataset_are_the_loaders(open_cache, workers):
    for fields in ({"shuffle": False}, {"replacement": False}, {}):
        dataset = open_cache(**fields)
        loader = make_dataloader(dataset, 4, num_workers=workers)
        expected = dataset.stream().records(0, 100).tolist()
        got = []
        for epoch_len in (7, 30, 1):
            dataset.set_epoch_len(epoch_len)
            assert len(loader) == -(-epoch_len // 4)
            got += [number for batch in loader for number in batch["sample_id"].tolist()]
        assert got == expected[:38]


def test_a_stream_starts_at_0_and_goes_on(dataset):
    dataset.set_epoch_len(10)
    next(iter(dataset))
    for loader in (make_dataloader(dataset.stream(), 5), plain(dataset.stream(), 5, drop_last=False)):
        got = [batch["sample_id"].tolist() for _ in range(2) for batch in loader]
        assert list(itertools.chain.from_iterable(got)) == dataset.stream().records(0, 20).tolist()
    assert dataset.position == 10


@pytest.mark.parametrize("workers", [0, 2])
def test_iterators_that_are_never_used_move_nothing(dataset, workers):
    loader = make_dataloader(dataset, 4, num_workers=workers)
    iter(loader)
    iter(loader.batch_sampler)
    assert dataset.position == 0
    assert next(iter(loader))["sample_id"].tolist() == dataset.stream().records(0, 4).tolist()


def test_seeds_differ_and_equal_seeds_agree(open_cache):
    def drawn(seed):
        return [batch["sample_id"].tolist() for batch in make_dataloader(open_cache(seed=seed), 4)]

    assert drawn(1) == drawn(1) != drawn(2)


def test_an_older_iterator_of_persistent_workers_is_refused(dataset):
    loader = make_dataloader(dataset, 4, num_workers=1, persistent_workers=True)
    older, newer = iter(loader), iter(loader)
    next(older)
    next(newer)
    with pytest.raises(drt.ConfigError, match="must not go on once its loader's persistent workers serve a newer one"):
        next(older)
    assert len(list(newer)) == 5


def test_two_iterators_of_one_loader_both_advance(dataset):
    loader = make_dataloader(dataset, 4)
    first, second = iter(loader), iter(loader)
    got = [next(first), next(second), next(first), next(second)]
    expected = dataset.stream().records(0, 46).tolist()
    assert [batch["sample_id"].tolist() for batch in got] == [
        expected[0:4], expected[23:27], expected[4:8], expected[27:31],
    ]  # fmt: skip
    assert first.state_dict()["position"] == 8
    assert len(first) == 6


@pytest.mark.parametrize("start", ["fork", "forkserver"])
@pytest.mark.parametrize("iterable", [False, True])
def test_two_iterators_of_one_loader_have_windows_and_workers_of_their_own(dataset, start, iterable):
    loader = make_dataloader(dataset, 4, num_workers=3, multiprocessing_context=start, iterable=iterable)
    iterators = [iter(loader), iter(loader)]
    # The second one begins while the first one's workers are starting.
    firsts = [next(iterator) for iterator in iterators]
    expected = dataset.stream().records(0, 46).tolist()
    for first, iterator, window in zip(firsts, iterators, (expected[:23], expected[23:]), strict=True):
        assert [number for batch in (first, *iterator) for number in batch["sample_id"].tolist()] == window


@pytest.mark.parametrize("persistent", [False, True])
def test_windows_of_an_iterable_loader_are_told_to_workers_that_are_starting(dataset, persistent):
    options = {"multiprocessing_context": "forkserver", "persistent_workers": persistent, "iterable": True}
    loader = make_dataloader(dataset, 4, num_workers=3, **options)
    expected = dataset.stream().records(0, 4 * 23).tolist()
    for window in range(4):
        iterator = iter(loader)
        count = 1 if window % 2 else 6
        got = [number for _ in range(count) for number in next(iterator)["sample_id"].tolist()]
        assert got == expected[window * 23 :][: len(got)]
