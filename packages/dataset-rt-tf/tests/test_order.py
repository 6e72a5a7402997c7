"""Whatever TensorFlow runs in parallel, the order is the core's, and every pass is the next window."""

import gc
import itertools
from pathlib import Path

import polars as pl
import pytest
import tensorflow as tf

import dataset_rt as drt
import dataset_rt_tf as drt_tf

MODES = {
    "ordered": {"shuffle": False},
    "with_replacement": {"replacement": True},
    "without_replacement": {"replacement": False},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("parallel", [None, 1, 2, tf.data.AUTOTUNE])
@pytest.mark.parametrize("prefetch", [None, 1, 64])
def test_every_loop_over_batches_is_the_next_window_of_the_stream(numbered, ids, draws, mode, parallel, prefetch, way):
    dataset = numbered(**MODES[mode])
    batches = drt_tf.as_dataset(dataset, 4, num_parallel_calls=parallel, prefetch=prefetch, **way)
    expected = draws(dataset, 50)
    assert ids(batches) == expected[:10]
    assert dataset.position == 10
    assert ids(batches) == expected[10:20]
    assert ids(batches.repeat(3)) == expected[20:50]
    assert dataset.position == 50


def test_batches_may_pass_through_further_transformations(numbered, ids, draws, way):
    dataset = numbered()
    batches = drt_tf.as_dataset(dataset, 4, **way).map(lambda batch: batch, num_parallel_calls=2).unbatch().batch(3)
    assert ids(batches.prefetch(2)) == draws(dataset, 10)


def test_sample_by_sample_decoding_keeps_the_order(numbered, draws):
    dataset = numbered()
    batches = drt_tf.as_dataset(dataset, 4, decode=lambda sample: sample.sample_id, num_parallel_calls=2)
    expected = draws(dataset, 10)
    assert [number for batch in batches for number in batch.numpy().tolist()] == expected


def test_every_loop_over_from_generator_is_the_next_window(numbered, ids, draws):
    dataset = numbered()
    samples = drt_tf.from_generator(dataset)
    expected = draws(dataset, 50)
    assert ids(samples) == expected[:10]
    assert ids(samples) == expected[10:20]
    assert ids(samples.batch(3).repeat(3).prefetch(2)) == expected[20:50]


def test_a_window_is_taken_at_the_first_batch_and_never_when_an_iterator_is_made(numbered, ids, draws):
    dataset = numbered()
    for loader in (drt_tf.as_dataset(dataset, 4), drt_tf.from_generator(dataset)):
        unused = [iter(loader) for _ in range(3)]
        assert dataset.position == 0
        del unused
    assert ids(drt_tf.as_dataset(dataset, 4)) == draws(dataset, 10)


def test_two_iterators_side_by_side_have_a_window_each(numbered, draws, way):
    dataset = numbered()
    expected = draws(dataset, 20)
    batches = drt_tf.as_dataset(dataset, 3, num_parallel_calls=2, **way)
    found = ([], [])
    for pair in itertools.zip_longest(iter(batches), iter(batches)):
        for taken, batch in zip(found, pair, strict=True):
            taken.extend(batch["sample_id"].numpy().tolist())
    assert found == (expected[:10], expected[10:])


def test_a_broken_off_pass_is_followed_by_the_next_window(numbered, ids, draws, way):
    dataset = numbered()
    batches = drt_tf.as_dataset(dataset, 4, **way)
    expected = draws(dataset, 30)
    for k in range(2):
        assert ids(batches.take(1)) == expected[10 * k : 10 * k + 4]
    assert ids(batches) == expected[20:30]


def test_a_stream_starts_at_position_0_and_moves_no_dataset(numbered, ids, draws, way):
    dataset = numbered()
    next(iter(dataset))
    batches = drt_tf.as_dataset(dataset.stream(), 4, **way)
    assert ids(batches) + ids(batches) == draws(dataset, 20)
    assert dataset.position == 10


def test_loaded_states_edits_and_resets_act_at_the_next_pass(numbered, ids, draws, way):
    dataset = numbered()
    batches = drt_tf.as_dataset(dataset, 4, **way)
    loaded = numbered()
    iterator = iter(loaded)
    for _ in range(7):
        next(iterator)
    dataset.load_state_dict(loaded.state_dict())
    # The rest of a window is shorter than a window: the pass ends with it.
    assert ids(batches) == draws(dataset, 10, start=7)
    assert ids(batches) == draws(dataset, 20, start=10)

    table = dataset.get_metadata()
    dataset.update_metadata(table.filter(pl.col("label") == 1), reset_stream=False)
    dataset.set_epoch_len(10)
    edited = ids(batches)
    assert edited == draws(dataset, 30, start=20)
    assert set(edited) <= {1, 4, 7}

    dataset.update_metadata(table)
    assert ids(batches) == draws(dataset, 10)


def test_a_running_pass_keeps_the_table_it_began_with(numbered, draws):
    dataset = numbered()
    expected = draws(dataset, 10)
    iterator = iter(drt_tf.as_dataset(dataset, 1, num_parallel_calls=1, prefetch=1))
    found = next(iterator)["sample_id"].numpy().tolist()
    dataset.update_metadata(dataset.get_metadata().head(3))
    for batch in iterator:
        found += batch["sample_id"].numpy().tolist()
    assert found == expected


def test_a_changed_epoch_length_is_an_error_that_says_what_to_do(numbered, way):
    dataset = numbered()
    batches = drt_tf.as_dataset(dataset, 4, **way)
    dataset.set_epoch_len(7)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"must stay 10, .* got 7; call set_epoch_len\(10\)"):
        list(batches)


def test_many_iterators_begun_and_dropped_leave_nothing_behind(numbered, ids, draws, way):
    dataset = numbered()
    batches = drt_tf.as_dataset(dataset, 4, **way)

    def begin(count):
        for _ in range(count):
            next(iter(batches))
        gc.collect()
        return len(list(Path("/proc/self/task").iterdir())), len(gc.get_objects())

    threads, objects = begin(300)
    threads_later, objects_later = begin(300)
    assert dataset.position == 6000
    assert threads_later <= threads + 2
    assert objects_later < objects + 3000
    assert ids(batches) == draws(dataset, 6010, start=6000)


def test_many_pipelines_made_and_dropped_leave_no_threads_behind(numbered, ids, draws):
    dataset = numbered()
    expected = draws(dataset, 610)

    def threads(count):
        for _ in range(count):
            position = dataset.position
            assert ids(drt_tf.as_dataset(dataset, 4)) == expected[position : position + 10]
        gc.collect()
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads(10)
    assert threads(50) <= before + 4


# --- Ranks


@pytest.mark.parametrize("remainder", ["extend", "drop", "uneven"])
def test_the_pipelines_of_an_input_context_are_dealt_the_stream_one_by_one(numbered, draws, remainder, way):
    expected = draws(numbered(), 24)
    per_rank = []
    for rank in range(4):
        context = tf.distribute.InputContext(num_input_pipelines=4, input_pipeline_id=rank)
        dataset = numbered()
        batches = drt_tf.as_dataset(dataset, 2, input_context=context, remainder=remainder, **way)
        per_rank.append([[number for b in batches for number in b["sample_id"].numpy().tolist()] for _ in range(2)])
        assert dataset.position == 2 * {"extend": 12, "drop": 8, "uneven": 10}[remainder]
    stride = {"extend": 12, "drop": 8, "uneven": 10}[remainder]
    for window in range(2):
        ranks = [taken[window] for taken in per_rank]
        dealt = [n for row in itertools.zip_longest(*ranks) for n in row if n is not None]
        assert dealt == expected[window * stride : (window + 1) * stride]


def test_a_rank_may_come_from_a_view_or_from_arguments(numbered, ids, draws, way):
    expected = draws(numbered(), 10)
    view = numbered().shard(1, 2)
    assert ids(drt_tf.as_dataset(view, 4, **way)) == expected[1::2]
    assert ids(drt_tf.as_dataset(numbered(), 4, rank=1, world_size=2, **way)) == expected[1::2]
    assert ids(drt_tf.from_generator(numbered(), rank=1, world_size=2)) == expected[1::2]


def test_a_rank_is_named_once(numbered):
    context = tf.distribute.InputContext(num_input_pipelines=2, input_pipeline_id=1)
    for fields in ({"input_context": context, "rank": 0, "world_size": 2}, {"rank": 0}, {"remainder": "drop"}):
        with pytest.raises(drt.ConfigError, match="rank"):
            drt_tf.as_dataset(numbered(), 4, **fields)
    with pytest.raises(drt.ConfigError, match="named once"):
        drt_tf.as_dataset(numbered().shard(0, 2), 4, input_context=context)


def test_two_ranks_on_one_position_are_refused(numbered):
    dataset = numbered()
    drt_tf.as_dataset(dataset, 4, rank=0, world_size=2)
    with pytest.raises(drt.ConfigError, match=r"rank 0 of 2 already, got rank 1 of 2; .*dataset\.shard\(1, 2\)"):
        drt_tf.as_dataset(dataset, 4, rank=1, world_size=2)


def test_several_workers_without_a_rank_are_refused(numbered, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}')
    with pytest.raises(drt.ConfigError, match="TF_CONFIG names 2 workers"):
        drt_tf.as_dataset(numbered(), 4)
    assert len(drt_tf.as_dataset(numbered(), 4, rank=0, world_size=1)) == 3


def test_options_turn_automatic_sharding_off(numbered):
    for loader in (drt_tf.as_dataset(numbered(), 4), drt_tf.from_generator(numbered())):
        policy = loader.options().experimental_distribute.auto_shard_policy
        assert policy == tf.data.experimental.AutoShardPolicy.OFF
