"""The order that Grain delivers is the stream's, whatever delivers it."""

import itertools
import operator
import os

import grain
import numpy as np
import pytest

import dataset_rt as drt
from dataset_rt_jax import CacheDataSource, PositionSampler, StreamIterDataset, StreamMapDataset

EPOCHS = 3
MODES = ("ordered", "with_replacement", "without_replacement")
REMAINDERS = ("extend", "drop", "uneven")


def pairwise(factors):
    """Few combinations in which every pair of values of two factors occurs: the best next one, over and over."""
    every = list(itertools.product(*factors.values()))

    def pairs(combination):
        return set(itertools.combinations(enumerate(combination), 2))

    missing = set().union(*map(pairs, every))
    chosen = []
    while missing:
        best = max(every, key=lambda combination: len(pairs(combination) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def grid(**factors):
    """Parametrize by all combinations under DATASET_RT_GRID=full, and by each pair of values otherwise."""
    full = os.environ.get("DATASET_RT_GRID") == "full"
    return pytest.mark.parametrize(
        tuple(factors), list(itertools.product(*factors.values())) if full else pairwise(factors)
    )


def in_batches(numbers, batch_size, *, drop_last=False):
    batches = [numbers[place : place + batch_size] for place in range(0, len(numbers), batch_size)]
    return [batch for batch in batches if len(batch) == batch_size or not drop_last]


def threads(count):
    return grain.ReadOptions(num_threads=count, prefetch_buffer_size=4 * count)


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


# --- By index


@grid(
    length=[1, 7, 20],
    size=[1, 2, 3],
    remainder=REMAINDERS,
    batch_size=[None, 1, 4],
    drop_last=[False, True],
    mode=MODES,
    num_threads=[0, 1, 16],
)
def test_a_map_dataset_gives_each_ranks_share_of_three_windows(
    open_dataset, length, size, remainder, batch_size, drop_last, mode, num_threads, number_of, windows_of
):
    dataset = open_dataset(length, mode=mode)
    if remainder == "drop" and length < size:
        with pytest.raises(drt.ConfigError, match=rf"at least the world size {size} .*got {length}"):
            len(StreamMapDataset(dataset, rank=0, world_size=size, remainder=remainder))
        return
    for rank in range(size):
        windows = windows_of(dataset, rank, size, remainder)
        if batch_size is None:
            made = StreamMapDataset(dataset, decode=number_of, rank=rank, world_size=size, remainder=remainder)
            elements = windows
        else:
            made = StreamMapDataset(
                dataset,
                batch_size=batch_size,
                drop_last=drop_last,
                decode=number_of,
                rank=rank,
                world_size=size,
                remainder=remainder,
            )
            elements = [in_batches(window, batch_size, drop_last=drop_last) for window in windows]
        assert len(made) == len(elements[0])
        if len(made) == 0:
            with pytest.raises(IndexError, match="no element"):
                made[0]
            continue
        if remainder != "uneven":
            assert len({len(epoch) for epoch in elements}) == 1
        # Past the end lie the next windows, which is what repeat asks for.
        every = [np.asarray(made[index]).tolist() for index in range(EPOCHS * len(made))]
        assert every == flat(elements)
        repeated = made.repeat(EPOCHS).to_iter_dataset(threads(num_threads))
        assert [np.asarray(element).tolist() for element in repeated] == every


@pytest.mark.parametrize("num_threads", [0, 1, 16])
def test_map_and_batch_of_grains_keep_the_order(open_dataset, num_threads, number_of, windows_of):
    dataset = open_dataset(20)
    made = StreamMapDataset(dataset, decode=number_of, rank=1, world_size=3).map(lambda number: number * 2).batch(3)
    found = [batch.tolist() for batch in made.repeat(EPOCHS).to_iter_dataset(threads(num_threads))]
    doubled = [[2 * number for number in window] for window in windows_of(dataset, 1, 3)]
    assert found == flat(in_batches(window, 3) for window in doubled)


def test_a_slice_of_a_map_dataset_is_a_slice_of_every_window(open_dataset, number_of, windows_of):
    dataset = open_dataset(20)
    made = StreamMapDataset(dataset, decode=number_of, rank=0, world_size=1)
    windows = windows_of(dataset)
    assert list(made[3:17:5]) == windows[0][3:17:5]
    assert list(made[3:17:5].repeat(EPOCHS)) == flat(window[3:17:5] for window in windows)
    assert list(made.slice(slice(-2, None))) == windows[0][-2:]


@pytest.mark.parametrize("batches_of", ["the source", "Grain"])
def test_two_worker_processes_behind_batches_keep_the_order(open_dataset, decode_batch, batches_of, windows_of):
    dataset = open_dataset(20)
    if batches_of == "the source":
        made = StreamMapDataset(dataset, batch_size=3, decode_batch=decode_batch, rank=1, world_size=3)
    else:
        made = StreamMapDataset(dataset, decode=lambda sample: {"sample_id": sample.sample_id}, rank=1, world_size=3)
        made = made.batch(3)
    options = grain.MultiprocessingOptions(num_workers=2, per_worker_buffer_size=2)
    iterator = iter(made.repeat(EPOCHS).to_iter_dataset(threads(1)).mp_prefetch(options))
    found = [batch["sample_id"].tolist() for batch in iterator]
    iterator.close()
    assert found == flat(in_batches(window, 3) for window in windows_of(dataset, 1, 3))


def test_a_map_dataset_starts_where_it_is_told_or_where_the_dataset_stands_and_moves_nothing(
    open_dataset, number_of, drawn
):
    dataset = open_dataset(20)
    next(iter(dataset))
    made = StreamMapDataset(dataset, decode=number_of)
    assert list(made) == drawn(dataset, 20, 20)
    assert list(StreamMapDataset(dataset, decode=number_of, start=7)) == drawn(dataset, 7, 20)
    assert list(StreamMapDataset(dataset.stream(), decode=number_of)) == drawn(dataset, 0, 20)
    assert dataset.position == 20


def test_a_map_dataset_keeps_table_and_epoch_length_of_when_it_was_made(open_dataset, number_of, drawn):
    dataset = open_dataset(20)
    made = StreamMapDataset(dataset, decode=number_of)
    before = drawn(dataset, 0, 20)
    dataset.set_epoch_len(5)
    dataset.update_metadata(dataset.get_metadata().head(3))
    assert list(made) == before
    assert set(StreamMapDataset(dataset, decode=number_of)) <= {0, 1, 2}


# --- Iterated


@grid(
    length=[1, 7, 20],
    size=[1, 2, 3],
    remainder=REMAINDERS,
    batch_size=[1, 4],
    drop_last=[False, True],
    mode=MODES,
    over=["dataset", "stream", "view"],
)
def test_an_iter_dataset_gives_each_ranks_share_of_three_windows(
    open_dataset, length, size, remainder, batch_size, drop_last, mode, over, number_of, windows_of
):
    dataset = open_dataset(length, mode=mode)
    if remainder == "drop" and length < size:
        with pytest.raises(drt.ConfigError, match=rf"at least the world size {size} .*got {length}"):
            list(StreamIterDataset(dataset, batch_size, rank=0, world_size=size, remainder=remainder))
        return
    for rank in range(size):
        windows = windows_of(dataset, rank, size, remainder)
        expected = flat(in_batches(window, batch_size, drop_last=drop_last) for window in windows)
        options = {"epochs": EPOCHS, "drop_last": drop_last, "decode": number_of}
        if over == "view":
            made = StreamIterDataset(dataset.shard(rank, size, remainder=remainder), batch_size, **options)
        else:
            source = open_dataset(length, mode=mode) if over == "dataset" else dataset.stream()
            world = {"rank": rank, "world_size": size, "remainder": remainder}
            made = StreamIterDataset(source, batch_size, **options, **world)
        assert [batch.tolist() for batch in made] == expected


def test_an_iter_dataset_gives_batches_samples_or_what_is_decoded(open_dataset, decode_batch, drawn):
    numbers = drawn(open_dataset(20), 0, 20)
    batches = list(StreamIterDataset(open_dataset(20), 8, decode_batch=decode_batch))
    assert [batch["sample_id"].tolist() for batch in batches] == in_batches(numbers, 8)
    samples = list(StreamIterDataset(open_dataset(20), 8))
    assert [[sample.sample_id for sample in batch] for batch in samples] == in_batches(numbers, 8)
    assert all(isinstance(sample, drt.CachedSample) for sample in flat(samples))


def test_iterators_reserve_their_windows_in_the_dataset_at_the_first_batch(open_dataset, number_of, drawn):
    dataset = open_dataset(20)
    made = StreamIterDataset(dataset, 8, decode=number_of)
    first, unused, second = iter(made), iter(made), iter(made)
    assert dataset.position == 0
    assert flat(batch.tolist() for batch in first) == drawn(dataset, 0, 20)
    assert dataset.position == 20
    # Made before the first one began, and begun behind it.
    assert flat(batch.tolist() for batch in second) == drawn(dataset, 20, 20)
    assert [sample.sample_id for sample in dataset] == drawn(dataset, 40, 20)
    del unused


def test_iterators_over_a_stream_all_start_at_its_beginning(open_dataset, number_of, drawn):
    dataset = open_dataset(20)
    made = StreamIterDataset(dataset.stream(), 8, decode=number_of)
    assert [[batch.tolist() for batch in made] for _ in range(2)] == [in_batches(drawn(dataset, 0, 20), 8)] * 2
    assert dataset.position == 0


def test_what_is_edited_between_windows_acts_at_the_next_one(open_dataset, number_of, drawn):
    dataset = open_dataset(20)
    iterator = iter(StreamIterDataset(dataset, 10, epochs=3, decode=number_of))
    first = drawn(dataset, 0, 20)
    assert flat(next(iterator).tolist() for _ in range(2)) == first
    dataset.set_epoch_len(10)
    assert next(iterator).tolist() == drawn(dataset, 20, 10)
    dataset.update_metadata(dataset.get_metadata().head(4), reset_stream=False)
    rest = flat(batch.tolist() for batch in iterator)
    assert rest == drawn(dataset, 30, 4)
    assert set(rest) <= {0, 1, 2, 3}


def test_grains_own_transformations_follow_an_iter_dataset(open_dataset, number_of, windows_of):
    dataset = open_dataset(20)
    made = StreamIterDataset(dataset, 8, epochs=2, decode=number_of).map(lambda batch: batch + 1)
    made = grain.experimental.ThreadPrefetchIterDataset(made, prefetch_buffer_size=3)
    windows = windows_of(open_dataset(20), windows=2)
    found = [(batch - 1).tolist() for batch in made]
    assert found == flat(in_batches(window, 8) for window in windows)


def test_endless_epochs_end_with_the_reader_and_need_a_batch(open_dataset, number_of):
    endless = iter(StreamIterDataset(open_dataset(20), 8, epochs=None, decode=number_of))
    found = list(itertools.islice(endless, 9))
    assert [len(batch) for batch in found] == [8, 8, 4] * 3
    with pytest.raises(drt.ConfigError, match="endless epochs must have a batch for each rank, got 20 draws a rank"):
        next(iter(StreamIterDataset(open_dataset(20), 21, epochs=None, drop_last=True)))
    assert list(StreamIterDataset(open_dataset(20), 21, epochs=3, drop_last=True)) == []


# --- Grain's DataLoader


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("remainder", REMAINDERS)
def test_a_data_loader_gives_each_ranks_share_of_three_windows(open_dataset, mode, remainder, number_of, windows_of):
    dataset = open_dataset(20, mode=mode)
    for rank in range(3):
        loader = grain.DataLoader(
            data_source=CacheDataSource(dataset, decode=number_of),
            sampler=PositionSampler(dataset, epochs=EPOCHS, rank=rank, world_size=3, remainder=remainder),
            shard_options=grain.sharding.NoSharding(),
        )
        assert list(loader) == flat(windows_of(dataset, rank, 3, remainder))


def test_a_data_loader_with_two_workers_gives_the_same_draws(open_dataset, drawn):
    dataset = open_dataset(7)
    loader = grain.DataLoader(
        data_source=CacheDataSource(dataset, decode=lambda sample: np.int64(sample.sample_id)),
        sampler=PositionSampler(dataset, epochs=EPOCHS),
        shard_options=grain.sharding.NoSharding(),
        worker_count=2,
    )
    assert [int(number) for number in loader] == drawn(dataset, 0, 21)


def test_random_transformations_of_a_data_loader_depend_on_seed_and_position_alone(open_dataset):
    class Jitter(grain.transforms.RandomMap):
        def random_map(self, element, rng):
            return int(rng.integers(2**62))

    dataset = open_dataset(7)

    def jittered(seed, rank=0, world_size=1):
        sampler = PositionSampler(dataset, epochs=2, seed=seed, rank=rank, world_size=world_size)
        return list(
            grain.DataLoader(
                data_source=CacheDataSource(dataset),
                sampler=sampler,
                operations=[Jitter()],
                shard_options=grain.sharding.NoSharding(),
            )
        )

    alone = jittered(3)
    assert len(set(alone)) == 14
    ranks = [jittered(3, rank, 2) for rank in range(2)]
    assert flat(zip(*ranks, strict=True))[:14] == alone
    assert not set(alone) & set(jittered(4))


def test_an_endless_sampler_has_no_end_and_a_finite_one_refuses_what_lies_outside(open_dataset):
    dataset = open_dataset(7)
    endless = PositionSampler(dataset, epochs=None)
    assert len(endless) > 2**60
    assert endless[10**6].record_key == dataset.stream().rows(10**6, 1)[0]
    finite = PositionSampler(dataset, epochs=2)
    assert operator.attrgetter("index", "rng")(finite[np.int64(13)]) == (13, None)
    for index in (14, -1):
        with pytest.raises(IndexError, match=rf"index must be in \[0, 14\), got {index}"):
            finite[index]
