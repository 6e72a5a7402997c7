"""Saving and restoring: Grain's way, beside a model through Orbax in a new process, and by the stream's own state."""

import copy
import itertools
import json
import pickle
import runpy
import subprocess
import sys
from pathlib import Path

import cloudpickle
import grain
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import polars as pl
import pytest

import dataset_rt as drt
from dataset_rt_jax import CacheDataSource, PositionSampler, StreamIterDataset, StreamMapDataset

WORKER = Path(__file__).with_name("grain_worker.py")
pipeline = runpy.run_path(str(WORKER))["pipeline"]
EPOCHS, BATCH_SIZE = 3, 4


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


def ids(batches):
    return [batch["sample_id"].tolist() for batch in batches]


def in_new_process(**request):
    command = [sys.executable, "-W", "error", str(WORKER), json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# --- At every step


@pytest.mark.parametrize("num_threads", [0, 1, 16])
@pytest.mark.parametrize("world", [(0, 1, "extend"), (1, 3, "drop"), (2, 3, "uneven")])
def test_map_datasets_go_on_from_every_step_as_grain_tests_it(open_dataset, decode_batch, num_threads, world):
    options = dict(zip(("rank", "world_size", "remainder"), world, strict=True))
    made = StreamMapDataset(open_dataset(20), batch_size=4, decode_batch=decode_batch, **options).repeat(EPOCHS)
    read_options = grain.ReadOptions(num_threads=num_threads, prefetch_buffer_size=4 * num_threads)
    grain.experimental.assert_equal_output_after_checkpoint(made.to_iter_dataset(read_options))


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize(("batch_size", "drop_last"), [(1, False), (4, False), (4, True), (6, True), (30, False)])
@pytest.mark.parametrize("over", ["dataset", "stream", "view", "uneven"])
def test_iter_datasets_go_on_from_every_step_as_grain_tests_it(
    open_dataset, decode_batch, epochs, batch_size, drop_last, over
):
    dataset = open_dataset(20)
    views = {"view": dataset.shard(1, 2), "uneven": dataset.shard(2, 3, remainder="uneven")}
    source = {"dataset": dataset, "stream": dataset.stream(), **views}[over]
    options = {} if over in views else {"rank": 1, "world_size": 2}
    made = StreamIterDataset(
        source, batch_size, epochs=epochs, drop_last=drop_last, decode_batch=decode_batch, **options
    )
    grain.experimental.assert_equal_output_after_checkpoint(made)


def test_a_data_loader_goes_on_from_every_step(open_dataset):
    dataset = open_dataset(20)
    loader = pipeline(dataset, "loader")
    states, batches = [loader.get_state()], []
    for batch in loader:
        batches.append(batch)
        states.append(loader.get_state())
    for step, state in enumerate(states):
        again = pipeline(dataset, "loader")
        again.set_state(state)
        assert again.get_state() == state
        assert ids(again) == ids(batches[step:])


def test_prefetching_threads_behind_an_iter_dataset_say_what_was_consumed(open_dataset, decode_batch):
    made = StreamIterDataset(open_dataset(20), 4, epochs=2, decode_batch=decode_batch)
    ahead = grain.experimental.ThreadPrefetchIterDataset(made, prefetch_buffer_size=5)
    grain.experimental.assert_equal_output_after_checkpoint(ahead)


def test_the_state_of_an_iter_dataset_is_small_json_and_never_an_empty_epoch(open_dataset, decode_batch):
    dataset = open_dataset(20)
    iterator = iter(StreamIterDataset(dataset, 5, epochs=2, decode_batch=decode_batch))
    places = []
    for step in range(9):
        state = iterator.get_state()
        assert len(json.dumps(state)) < 4_096
        assert json.loads(json.dumps(state)) == state
        places.append((state["epoch"], state["stream"]["position"], state["stream"]["window"]))
        assert (next(iterator, None) is None) == (step == 8)
    inside = [[0, 20], [20, 40]]
    expected = [(0, 0, [0, 0])] + [(0, 5 * step, inside[0]) for step in (1, 2, 3)]
    expected += [(1, 20, [20, 20])] + [(1, 5 * step, inside[1]) for step in (5, 6, 7)] + [(2, 40, [40, 40])]
    assert places == expected


# --- Through Orbax, beside parameters, in a new process


@pytest.mark.parametrize("kind", ["map", "workers", "iter", "loader"])
def test_a_checkpoint_of_orbax_goes_on_in_a_new_process(open_dataset, cache_of, tmp_path, kind):
    dataset = open_dataset(20)
    iterator = pipeline(dataset, kind)
    taken = ids(itertools.islice(iterator, 7))
    weights = {"weights": jnp.arange(3.0) / 7}
    with ocp.CheckpointManager(tmp_path) as manager:
        manager.save(
            7,
            args=ocp.args.Composite(
                parameters=ocp.args.StandardSave(weights), data=grain.checkpoint.CheckpointSave(iterator)
            ),
        )
    # What is taken after the checkpoint is no part of it.
    rest = ids(iterator)
    if hasattr(iterator, "close"):
        iterator.close()
    found = in_new_process(path=str(cache_of(20)), kind=kind, checkpoint=str(tmp_path))
    assert found["parameters"] == np.asarray(weights["weights"]).tolist()
    assert found["batches"] == rest
    assert len(taken) == 7


@pytest.mark.parametrize("kind", ["map", "workers", "iter", "loader"])
def test_the_state_of_a_map_dataset_goes_on_elsewhere_at_any_worker_count(open_dataset, cache_of, kind):
    state = StreamMapDataset(open_dataset(20), batch_size=BATCH_SIZE).state_dict(7)
    found = in_new_process(path=str(cache_of(20)), kind=kind, state=state)["batches"]
    # The second window's rest, and then whole ones. Grain does not count windows: of three it takes the elements.
    starts = range(28, 88 if kind in ("map", "workers") else 80, 4)
    numbers = [sample.sample_id for sample in open_dataset(20).stream().fetch(range(28, 88))]
    assert found == [numbers[start - 28 : start - 24] for start in starts]


# --- The rest of a loaded window, by index


REST_WORLDS = [(0, 1, "extend"), (1, 3, "extend"), (2, 3, "drop"), (2, 3, "uneven")]


def loaded(open_dataset, state):
    dataset = open_dataset(20)
    dataset.load_state_dict(state)
    return dataset


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("consumed", [0, 1, 3, 6, 8, 9, 10])
@pytest.mark.parametrize("world", REST_WORLDS)
def test_it_comes_first_and_whole_windows_follow_as_they_do_iterated(open_dataset, world, consumed, drop_last):
    options = dict(zip(("rank", "world_size", "remainder"), world, strict=True))
    state = StreamMapDataset(open_dataset(20), batch_size=2, rank=0, world_size=1).state_dict(consumed)
    shape = {"batch_size": 4, "drop_last": drop_last, "decode": lambda sample: sample.sample_id}
    iterated = StreamIterDataset(loaded(open_dataset, state), **shape, **options)
    windows = [[batch.tolist() for batch in iterated] for _ in range(3)]
    dataset = loaded(open_dataset, state)
    made = StreamMapDataset(dataset, **shape, **options)
    assert (made.first_len, len(made)) == (len(windows[0]), len(windows[1]))
    for by_index in (made, pickle.loads(cloudpickle.dumps(made))):
        assert [by_index[number].tolist() for number in range(sum(map(len, windows)))] == flat(windows)
    # Of rank 0, which is never done before another one.
    begun = StreamMapDataset(dataset, **shape, **{**options, "rank": 0}).state_dict(0)
    again = StreamIterDataset(loaded(open_dataset, begun), **shape, **options)
    assert [batch.tolist() for batch in again] == windows[0]
    assert (dataset.position, dataset.state_dict()) == (state["position"], loaded(open_dataset, state).state_dict())
    if not drop_last:
        sampler = PositionSampler(dataset, epochs=3, **options)
        rows = [sampler[number].record_key for number in range(len(sampler))]
        assert dataset.stream().table()["sample_id"].gather(rows).to_list() == flat(flat(windows))


@pytest.mark.parametrize("num_workers", [0, 2])
def test_three_windows_from_it_on_are_a_slice_that_grain_can_save_at_every_step(
    open_dataset, decode_batch, drawn, num_workers
):
    state = StreamMapDataset(open_dataset(20), batch_size=4, rank=0, world_size=1).state_dict(7)
    made = StreamMapDataset(loaded(open_dataset, state), batch_size=8, decode_batch=decode_batch)
    assert (made.first_len, len(made)) == (2, 3)
    pipeline = made.repeat()[: made.first_len + 2 * len(made)].to_iter_dataset()
    if num_workers:
        pipeline = pipeline.mp_prefetch(grain.MultiprocessingOptions(num_workers=num_workers))
    expected = [(28, 8), (36, 4), (40, 8), (48, 8), (56, 4), (60, 8), (68, 8), (76, 4)]
    iterator = iter(pipeline)
    assert ids(iterator) == [drawn(open_dataset(20), *part) for part in expected]
    iterator.close()
    if not num_workers:
        grain.experimental.assert_equal_output_after_checkpoint(pipeline)


def test_its_states_say_what_was_consumed_of_it_and_of_what_follows(open_dataset):
    state = StreamMapDataset(open_dataset(20), batch_size=4, rank=0, world_size=1).state_dict(7)
    made = StreamMapDataset(loaded(open_dataset, state), batch_size=4)
    for consumed in range(12):
        expected = StreamMapDataset(open_dataset(20), batch_size=4).state_dict(7 + consumed)
        assert made.state_dict(consumed) == expected
        assert PositionSampler(loaded(open_dataset, state)).state_dict(4 * consumed) == expected


def test_one_that_was_begun_with_a_longer_epoch_is_longer_than_those_that_follow(open_dataset, drawn):
    saved = open_dataset(50)
    saved.set_epoch_len(40)
    list(itertools.islice(saved, 4))
    dataset = open_dataset(50)
    dataset.load_state_dict(saved.state_dict())
    dataset.set_epoch_len(10)
    made = StreamMapDataset(dataset, decode=lambda sample: sample.sample_id)
    assert (made.first_len, len(made)) == (36, 10)
    assert [made[number] for number in range(56)] == drawn(dataset, 4, 56)
    assert made.state_dict(36 + 10)["window"] == [50, 60]


def test_a_start_that_is_given_begins_a_whole_window_and_shows_that_it_does(open_dataset, drawn):
    state = StreamMapDataset(open_dataset(20), batch_size=4, rank=0, world_size=1).state_dict(7)
    dataset = loaded(open_dataset, state)
    made = StreamMapDataset(dataset, batch_size=20, decode=lambda sample: sample.sample_id, start=28)
    assert (made.first_len, made[0].tolist(), made[1].tolist()) == (1, drawn(dataset, 28, 20), drawn(dataset, 48, 20))
    # Grain compares the text when it restores the state of a loader.
    assert repr(PositionSampler(dataset)) != repr(PositionSampler(dataset, start=28))
    over_stream = StreamMapDataset(dataset.stream(), decode=lambda sample: sample.sample_id)
    assert [over_stream[number] for number in range(20)] == drawn(dataset, 0, 20)


# --- The stream's own state


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("remainder", ["extend", "drop", "uneven"])
def test_all_say_at_every_step_what_the_cores_own_iterator_says(open_dataset, remainder, drop_last):
    world = {"rank": 0, "world_size": 3, "remainder": remainder}
    options = {"batch_size": 3, "drop_last": drop_last}
    by_index = StreamMapDataset(open_dataset(20), **options, **world)
    iterated = iter(StreamIterDataset(open_dataset(20), epochs=2, **options, **world))
    sampler = PositionSampler(open_dataset(20), epochs=2, **world)
    view = open_dataset(20).shard(0, 3, remainder=remainder)
    assert iterated.state_dict() == view.state_dict()
    assert len(by_index) == view.iter_batches(**options).__length_hint__()
    for epoch in range(2):
        batches = view.iter_batches(**options)
        for step in range(1, len(by_index) + 1):
            next(batches), next(iterated)
            expected = batches.state_dict()
            assert iterated.state_dict() == expected
            consumed = epoch * len(by_index) + step
            at_index = by_index.state_dict(consumed)
            # At a window's end the core is outside any; an index is at the beginning of the next one.
            if step == len(by_index):
                assert at_index["window"][0] == at_index["position"] == expected["position"]
                expected = {**expected, "window": at_index["window"]}
            else:
                draws = epoch * (len(sampler) // 2) + 3 * step
                assert sampler.state_dict(draws) == expected
            assert at_index == expected
        assert next(batches, None) is None


def test_a_rank_that_is_done_before_the_others_says_what_the_core_says(open_dataset):
    world = {"rank": 2, "world_size": 3, "remainder": "uneven"}
    iterated = iter(StreamIterDataset(open_dataset(20), 2, epochs=2, **world))
    view = open_dataset(20).shard(2, 3, remainder="uneven")
    positions = []
    for _ in range(2):
        batches = view.iter_batches(2)
        for _ in range(3):
            next(batches), next(iterated)
            assert iterated.state_dict() == batches.state_dict()
            positions.append(batches.state_dict()["position"])
        assert next(batches, None) is None
    # Six of twenty draws are this rank's; the last two of a window are still to come on the first two ranks.
    assert positions == [6, 12, 18, 26, 32, 38]
    assert next(iterated, None) is None
    assert iterated.state_dict()["position"] == 40


@pytest.mark.parametrize("remainder", ["extend", "drop", "uneven"])
def test_saved_by_two_ranks_it_goes_on_at_three_after_every_step(open_dataset, drawn, decode_batch, remainder):
    def iterators(size):
        return [
            iter(
                StreamIterDataset(
                    open_dataset(20),
                    2,
                    epochs=2,
                    decode_batch=decode_batch,
                    rank=rank,
                    world_size=size,
                    remainder=remainder,
                )
            )
            for rank in range(size)
        ]

    whole = drawn(open_dataset(20), 0, 60)
    saving = iterators(2)
    for _ in range(11):
        states = [iterator.get_state() for iterator in saving]
        assert states[0] == states[1]
        restored = iterators(3)
        for iterator in restored:
            iterator.set_state(states[0])
        shares = [flat(ids(iterator)) for iterator in restored]
        start = states[0]["stream"]["position"]
        dealt = [number for step in itertools.zip_longest(*shares) for number in step if number is not None]
        # Under `uneven` each window begins with rank 0 again, so only there the ranks' shares must be cut by windows.
        if remainder == "uneven":
            assert sorted(dealt) == sorted(whole[start:40])
        else:
            assert dealt == whole[start : start + len(dealt)]
            assert len(dealt) % 3 == 0
            assert abs(start + len(dealt) - 40) <= 4
        for iterator in saving:
            next(iterator, None)


def test_restoring_puts_the_dataset_back_for_the_iterators_that_follow(open_dataset, decode_batch, drawn):
    dataset = open_dataset(20)
    made = StreamIterDataset(dataset, 5, decode_batch=decode_batch)
    iterator = iter(made)
    next(iterator)
    state = iterator.get_state()
    flat(ids(iterator))
    flat(ids(made))
    assert dataset.position == 40
    again = iter(made)
    again.set_state(state)
    assert (dataset.position, dataset.state_dict()) == (5, {**state["stream"]})
    assert flat(ids(again)) == drawn(dataset, 5, 15)
    assert flat(ids(made)) == drawn(dataset, 20, 20)


def test_an_iterator_may_be_restored_in_the_middle_of_another_place(open_dataset, decode_batch, drawn):
    iterator = iter(StreamIterDataset(open_dataset(20).stream(), 5, epochs=2, decode_batch=decode_batch))
    states = []
    for _ in range(6):
        states.append(iterator.get_state())
        next(iterator)
    for step in (5, 0, 3):
        iterator.set_state(states[step])
        assert next(iterator)["sample_id"].tolist() == drawn(open_dataset(20), 5 * step, 5)


def test_the_state_of_torch_or_any_other_adapter_goes_into_the_dataset(open_dataset, decode_batch, drawn):
    saved = open_dataset(20)
    list(itertools.islice(saved, 6))
    dataset = open_dataset(20)
    dataset.load_state_dict(saved.state_dict())
    made = StreamIterDataset(dataset, 7, epochs=2, decode_batch=decode_batch)
    assert ids(made) == [drawn(dataset, start, count) for start, count in [(6, 7), (13, 7), (20, 7), (27, 7), (34, 6)]]


# --- Another population


def other_datasets(open_dataset):
    edited = open_dataset(20)
    edited.update_metadata(edited.get_metadata().with_columns(weight=pl.col("label") + 1.0))
    return {
        "population": edited,
        "seed": open_dataset(20, seed=12),
        "mode": open_dataset(20, mode="without_replacement"),
        "caches": open_dataset(7),
    }


def test_an_iter_dataset_refuses_the_state_of_another_stream_and_names_the_field(open_dataset, decode_batch):
    iterator = iter(StreamIterDataset(open_dataset(20), 4, decode_batch=decode_batch))
    next(iterator)
    state = iterator.get_state()
    for field, dataset in other_datasets(open_dataset).items():
        for source in (dataset, dataset.stream()):
            other = iter(StreamIterDataset(source, 4, decode_batch=decode_batch))
            before = other.get_state()
            with pytest.raises(drt.StateMismatchError, match=field):
                other.set_state(state)
            assert other.get_state() == before
    newer = copy.deepcopy(state)
    newer["stream"]["order_version"] = 2
    with pytest.raises(drt.StateMismatchError, match="order_version"):
        iterator.set_state(newer)


@pytest.mark.parametrize("state", [{}, {"next_index": 3}, {"epoch": 0, "stream": None}, {"epoch": 0.5, "stream": {}}])
def test_an_iter_dataset_refuses_what_is_no_state_of_it(open_dataset, state):
    with pytest.raises(drt.ConfigError, match="state must be what get_state"):
        iter(StreamIterDataset(open_dataset(20), 4)).set_state(state)


def test_a_data_loader_refuses_the_state_of_another_stream(open_dataset):
    state = pipeline(open_dataset(20), "loader").get_state()
    for dataset in other_datasets(open_dataset).values():
        with pytest.raises(ValueError, match="in checkpoint does not match"):
            pipeline(dataset, "loader").set_state(state)


def test_the_state_kept_beside_a_map_datasets_refuses_another_stream(open_dataset):
    state = StreamMapDataset(open_dataset(20), batch_size=4).state_dict(3)
    for field, dataset in other_datasets(open_dataset).items():
        with pytest.raises(drt.StateMismatchError, match=field):
            dataset.load_state_dict(state)


# --- Workers


def test_an_iter_dataset_refuses_to_be_divided_among_workers_and_says_what_to_use(open_dataset):
    with pytest.raises(drt.ConfigError, match=r"for mp_prefetch use StreamMapDataset\(dataset, batch_size"):
        next(
            iter(
                StreamIterDataset(open_dataset(20).stream(), 4).mp_prefetch(grain.MultiprocessingOptions(num_workers=2))
            )
        )


def test_a_damaged_shard_is_our_error_in_the_parent_of_workers(runtime, write, tmp_path, decode_batch):
    path = write(20, tmp_path)
    (shard,) = (path / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    content[-3] ^= 1
    shard.write_bytes(content)
    dataset = runtime.cached_dataset(path, reader_config=drt.ReaderConfig(shuffle=False))
    made = StreamMapDataset(dataset, batch_size=5, decode_batch=decode_batch).to_iter_dataset()
    for iterator in (iter(made), iter(made.mp_prefetch(grain.MultiprocessingOptions(num_workers=2)))):
        assert next(iterator)["sample_id"].tolist() == [0, 1, 2, 3, 4]
        with pytest.raises(drt.CacheCorruptError, match="sample 19"):
            list(iterator)
        iterator.close()
    with pytest.raises(drt.CacheCorruptError, match="sample 19"):
        CacheDataSource(dataset)[19]
