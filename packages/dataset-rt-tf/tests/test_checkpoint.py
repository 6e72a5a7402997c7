"""An iterator and its StreamState in a `tf.train.Checkpoint` resume exactly, and our own state beside them."""

import itertools
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import tensorflow as tf

import dataset_rt as drt
import dataset_rt_tf as drt_tf

WORKER = Path(__file__).with_name("checkpoint_worker.py")


def restored_elsewhere(dataset, checkpoints, *, config, batch_size, repeat, ahead, loader, decoded):
    request = {
        "cache": next(iter(dataset.caches["path"])),
        "config": {"seed": 7, **config},
        "checkpoints": checkpoints,
        "batch_size": batch_size,
        "repeat": repeat,
        "ahead": ahead,
        "loader": loader,
        "decoded": decoded,
    }
    command = [sys.executable, str(WORKER), json.dumps(request)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def batches_of(iterator):
    return [batch["sample_id"].numpy().tolist() for batch in iterator]


def joined(batches):
    return list(itertools.chain.from_iterable(batches))


def size_of(path):
    return sum(file.stat().st_size for file in Path(path).parent.glob(f"{Path(path).name}.*"))


PIPELINES = [
    (3, 1, {}, {"num_parallel_calls": 2}),
    (5, 8, {"num_parallel_calls": 2}, {"num_parallel_calls": 1, "prefetch": 64}),
    (10, 64, {"prefetch": 64}, {}),
]
CONFIGS = [{"replacement": False}, {"shuffle": False}, {}]
# Each pipeline with one way to draw and one to decode; in full, each with all.
GRID = (
    itertools.product(PIPELINES, CONFIGS, ["columns", "arrays", "own"])
    if os.environ.get("DATASET_RT_GRID") == "full"
    else [*zip(PIPELINES, CONFIGS, ["own", "arrays", "columns"], strict=True)]
)


@pytest.mark.parametrize(
    ("batch_size", "ahead", "here", "there", "config", "decoded"),
    [(*pipeline, config, decoded) for pipeline, config, decoded in GRID],
)
def test_every_step_of_three_windows_resumes_in_a_new_process(
    numbered, draws, ways, tmp_path, batch_size, ahead, here, there, config, decoded
):
    expected = draws(numbered(**config), 40)
    steps = 3 * -(-10 // batch_size)
    checkpoints, tails = [], []
    for step in range(steps + 1):
        dataset = numbered(**config)
        state = drt_tf.StreamState()
        batches = drt_tf.as_dataset(dataset, batch_size, state=state, **here, **ways[decoded])
        iterator = iter(batches.repeat(3).prefetch(ahead))
        taken = [next(iterator)["sample_id"].numpy().tolist() for _ in range(step)]
        path = tf.train.Checkpoint(iterator=iterator, stream=state).save(str(tmp_path / f"step-{step}"))
        checkpoints.append(path)
        assert len(state.serialize()) < 8192
        assert size_of(path) < 8192
        tails.append(batches_of(iterator))
        assert joined(taken + tails[-1]) == expected[:30]
        tails[-1] += batches_of(batches)
        assert joined(tails[-1])[-10:] == expected[30:]
    found = restored_elsewhere(
        dataset,
        checkpoints,
        config=config,
        batch_size=batch_size,
        repeat=3,
        ahead=ahead,
        loader=there,
        decoded=decoded,
    )
    assert found == tails


@pytest.mark.parametrize(("batch_size", "count"), [(3, 167), (7, 72)])
def test_every_step_around_the_ends_of_reads_resumes_in_a_new_process(numbered, ways, tmp_path, batch_size, count):
    # 16 batches are read together, and the last one, which is short, by itself.
    edges = {0, 1, 15, 16, 17, 31, 32, 33, count - 2, count - 1, count}
    steps = sorted(step for step in edges if step <= count)
    dataset = numbered(500)
    expected = [numbered(500).stream().fetch(range(k, min(k + batch_size, 500))) for k in range(0, 500, batch_size)]
    expected = [[sample.sample_id for sample in batch] for batch in expected]
    checkpoints = []
    for step in steps:
        state = drt_tf.StreamState()
        batches = drt_tf.as_dataset(numbered(500), batch_size, state=state, **ways["arrays"])
        # The operations of the worker.
        iterator = iter(batches.repeat(1).prefetch(1))
        for _ in range(step):
            next(iterator)
        checkpoints.append(tf.train.Checkpoint(iterator=iterator, stream=state).save(str(tmp_path / f"step-{step}")))
        assert size_of(checkpoints[-1]) < 8192
        assert batches_of(iterator) == expected[step:]
    loader = {"num_parallel_calls": 2, "prefetch": 1}
    found = restored_elsewhere(
        dataset, checkpoints, config={}, batch_size=batch_size, repeat=1, ahead=1, loader=loader, decoded="arrays"
    )
    assert [tail[: count - step] for step, tail in zip(steps, found, strict=True)] == [expected[k:] for k in steps]


def other():
    """An endless dataset of batches of one that is no sample's id."""
    return tf.data.Dataset.from_tensors(tf.constant([99], tf.uint64)).repeat()


BEHIND = {
    "nothing": lambda batches: batches,
    "repeat": lambda batches: batches.repeat(2).prefetch(3),
    "shuffle": lambda batches: batches.shuffle(3, seed=1),
    "unbatch": lambda batches: batches.unbatch().batch(2),
    "flat_map": lambda batches: batches.flat_map(tf.data.Dataset.from_tensor_slices),
    "enumerate": lambda batches: batches.enumerate().map(lambda number, batch: batch),
    "zip": lambda batches: tf.data.Dataset.zip(batches, other()).map(lambda batch, _: batch),
    "concatenate": lambda batches: batches.concatenate(other().take(2)),
    "sample_from_datasets": lambda batches: tf.data.Dataset.sample_from_datasets(
        [batches, other().take(9)], [0.7, 0.3], seed=1
    ),
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize(("first", "second"), [(1, 0), (1, 1), (5, 3), (15, 2), (16, 0)])
def test_a_resumed_run_is_saved_and_resumed_again(numbered, tmp_path, way, behind, first, second):
    def make():
        state = drt_tf.StreamState()
        batches = drt_tf.as_dataset(numbered(50, replacement=False), 3, state=state, **way)
        iterator = iter(BEHIND[behind](batches.map(lambda batch: batch["sample_id"])))
        return iterator, tf.train.Checkpoint(iterator=iterator, stream=state)

    def take(iterator, count):
        return [batch.numpy().tolist() for batch in itertools.islice(iterator, count)]

    iterator, checkpoint = make()
    take(iterator, first)
    path = checkpoint.save(str(tmp_path / "first"))
    expected = take(iterator, 400)

    iterator, checkpoint = make()
    checkpoint.restore(path).assert_consumed()
    found = take(iterator, second)
    path = checkpoint.save(str(tmp_path / "second"))

    iterator, checkpoint = make()
    checkpoint.restore(path).assert_consumed()
    assert found + take(iterator, 400) == expected


@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("remainder", ["extend", "drop", "uneven"])
def test_a_rank_with_fewer_batches_than_others_goes_on_with_the_next_window(numbered, tmp_path, way, rank, remainder):
    def make():
        dataset = numbered(shuffle=False)
        dataset.set_epoch_len(5)
        state = drt_tf.StreamState()
        world = {"rank": rank, "world_size": 3, "remainder": remainder}
        iterator = iter(drt_tf.as_dataset(dataset, 1, state=state, **world, **way).repeat())
        return iterator, tf.train.Checkpoint(iterator=iterator, stream=state)

    for step in range(5):
        iterator, checkpoint = make()
        for _ in range(step):
            next(iterator)
        path = checkpoint.save(str(tmp_path / f"step-{step}"))
        expected = batches_of(itertools.islice(iterator, 7))
        iterator, checkpoint = make()
        checkpoint.restore(path).assert_consumed()
        assert batches_of(itertools.islice(iterator, 7)) == expected


def test_two_iterators_side_by_side_are_restored_with_a_window_each(numbered, tmp_path, way):
    def make():
        state = drt_tf.StreamState()
        batches = drt_tf.as_dataset(numbered(), 3, state=state, **way)
        first, second = iter(batches), iter(batches)
        return batches, first, second, tf.train.Checkpoint(first=first, second=second, stream=state)

    batches, first, second, checkpoint = make()
    next(second)
    for _ in range(3):
        next(first)
    path = checkpoint.save(str(tmp_path / "two"))
    expected = batches_of(first), batches_of(second), batches_of(batches)

    batches, first, second, checkpoint = make()
    checkpoint.restore(path).assert_consumed()
    assert (batches_of(first), batches_of(second), batches_of(batches)) == expected


def test_an_earlier_checkpoint_is_restored_in_the_same_process(numbered, tmp_path, way):
    state = drt_tf.StreamState()
    batches = drt_tf.as_dataset(numbered(), 3, state=state, **way)
    iterator = iter(batches)
    next(iterator)
    checkpoint = tf.train.Checkpoint(iterator=iterator, stream=state)
    path = checkpoint.save(str(tmp_path / "early"))
    expected = batches_of(iterator) + batches_of(batches)
    batches_of(batches)
    checkpoint.restore(path).assert_consumed()
    assert batches_of(iterator) + batches_of(batches) == expected


def test_a_checkpoint_may_be_restored_before_the_dataset_is_made(numbered, tmp_path, way):
    state = drt_tf.StreamState()
    batches = drt_tf.as_dataset(numbered(), 3, state=state, **way)
    list(batches)
    path = tf.train.Checkpoint(stream=state).save(str(tmp_path / "early"))
    expected = batches_of(batches)

    state = drt_tf.StreamState()
    tf.train.Checkpoint(stream=state).restore(path)
    assert batches_of(drt_tf.as_dataset(numbered(), 3, state=state, **way)) == expected


def test_the_rest_of_a_loaded_window_is_saved_and_restored(numbered, tmp_path, way):
    loaded = numbered()
    consumed = iter(loaded)
    for _ in range(3):
        next(consumed)

    def make():
        dataset = numbered()
        dataset.load_state_dict(loaded.state_dict())
        state = drt_tf.StreamState()
        iterator = iter(drt_tf.as_dataset(dataset, 2, state=state, **way).repeat(2))
        return iterator, tf.train.Checkpoint(iterator=iterator, stream=state)

    for step in range(5):
        iterator, checkpoint = make()
        for _ in range(step):
            next(iterator)
        path = checkpoint.save(str(tmp_path / f"rest-{step}"))
        expected = batches_of(iterator)
        iterator, checkpoint = make()
        checkpoint.restore(path).assert_consumed()
        assert batches_of(iterator) == expected


# --- What does not fit is refused


def saved(dataset, tmp_path, *, batch_size=3, passes=1, **loader):
    """A checkpoint behind the first batch of pass number `passes`."""
    state = drt_tf.StreamState()
    batches = drt_tf.as_dataset(dataset, batch_size, state=state, **loader)
    for _ in range(passes - 1):
        list(batches)
    iterator = iter(batches)
    next(iterator)
    return tf.train.Checkpoint(iterator=iterator, stream=state).save(str(tmp_path / "saved"))


def test_another_population_or_seed_is_refused_by_name(numbered, tmp_path):
    path = saved(numbered(), tmp_path)
    filtered = numbered()
    filtered.update_metadata(filtered.get_metadata().filter(pl.col("sample_id") != 3))
    filtered.set_epoch_len(10)
    for field, other in (("seed", numbered(seed=8)), ("mode", numbered(shuffle=False)), ("rows", filtered)):
        state = drt_tf.StreamState()
        iterator = iter(drt_tf.as_dataset(other, 3, state=state))
        with pytest.raises(drt.StateMismatchError, match=field) as caught:
            tf.train.Checkpoint(iterator=iterator, stream=state).restore(path)
        assert caught.value.field == field


def test_weights_that_differ_are_another_population(numbered, tmp_path):
    path = saved(numbered(), tmp_path)
    weighted = numbered()
    weighted.update_metadata(weighted.get_metadata().with_columns(weight=1.0 + pl.col("label")))
    state = drt_tf.StreamState()
    iterator = iter(drt_tf.as_dataset(weighted, 3, state=state))
    with pytest.raises(drt.StateMismatchError, match="population"):
        tf.train.Checkpoint(iterator=iterator, stream=state).restore(path)


@pytest.mark.parametrize(
    ("field", "loader"),
    [
        ("batch_size", {"batch_size": 4}),
        ("drop_last", {"drop_last": True}),
        ("world_size", {"rank": 0, "world_size": 2}),
        # A function of one's own is given one batch, where 16 were read at a time.
        ("batches_per_read", {"decode_batch": lambda batch: {"sample_id": batch.column("sample_id").to_numpy()}}),
    ],
)
def test_an_iterator_cut_otherwise_is_refused_by_name(numbered, tmp_path, field, loader):
    path = saved(numbered(), tmp_path)
    state = drt_tf.StreamState()
    iterator = iter(drt_tf.as_dataset(numbered(), **{"batch_size": 3, "state": state, **loader}))
    with pytest.raises(drt.StateMismatchError, match=rf"{field} must be .*StreamState\.state_dict\(\) holds at any"):
        tf.train.Checkpoint(iterator=iterator, stream=state).restore(path)


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("with_state", [False, True])
def test_an_iterator_that_is_restored_without_its_state_is_refused(numbered, tmp_path, passes, with_state):
    path = saved(numbered(), tmp_path, passes=passes)
    state = drt_tf.StreamState() if with_state else None
    iterator = iter(drt_tf.as_dataset(numbered(), 3, state=state))
    with pytest.raises(tf.errors.InvalidArgumentError, match="restored without its StreamState"):
        tf.train.Checkpoint(iterator=iterator).restore(path).expect_partial()


def test_a_pass_that_was_forgotten_is_not_restored_as_a_fresh_one(numbered, tmp_path):
    def make():
        state = drt_tf.StreamState()
        iterator = iter(drt_tf.as_dataset(numbered(), 10, state=state).repeat().prefetch(400))
        return state, iterator, tf.train.Checkpoint(iterator=iterator, stream=state)

    state, iterator, checkpoint = make()
    next(iterator)
    deadline = time.monotonic() + 300
    # Passes can be asked for until they are forgotten, the consumer's among them.
    while time.monotonic() < deadline:
        try:
            state.state_dict(batches=1, passes=1)
        except drt.ConfigError as error:
            if "passes must be in [0," not in str(error):
                break
        time.sleep(0.05)
    else:
        pytest.fail("the prefetch never came far enough ahead")
    path = checkpoint.save(str(tmp_path / "ahead"))
    _, _, elsewhere = make()
    with pytest.raises(tf.errors.InvalidArgumentError, match="not among the newest 256"):
        elsewhere.restore(path)


def test_a_run_of_more_passes_than_are_kept_is_restored_twice(numbered, draws, tmp_path):
    def make():
        state = drt_tf.StreamState()
        iterator = iter(drt_tf.as_dataset(numbered(), 10, state=state).repeat())
        return iterator, tf.train.Checkpoint(iterator=iterator, stream=state)

    iterator, checkpoint = make()
    # More than the tokens that may lie unused, too.
    for _ in range(1_100):
        next(iterator)
    path = checkpoint.save(str(tmp_path / "long"))
    _, checkpoint = make()
    checkpoint.restore(path).assert_consumed()
    path = checkpoint.save(str(tmp_path / "again"))
    iterator, checkpoint = make()
    checkpoint.restore(path).assert_consumed()
    found = joined(next(iterator)["sample_id"].numpy().tolist() for _ in range(3))
    assert found == draws(numbered(), 11_030, start=11_000)


def test_a_state_belongs_to_one_dataset(numbered):
    state = drt_tf.StreamState()
    with pytest.raises(drt.ConfigError, match="not in use"):
        state.state_dict(batches=0)
    drt_tf.as_dataset(numbered(), 3, state=state)
    with pytest.raises(drt.ConfigError, match="belong to one"):
        drt_tf.as_dataset(numbered(), 3, state=state)


def test_many_passes_and_far_positions_stay_below_8_kib(numbered):
    dataset = numbered()
    dataset.load_state_dict({**dataset.state_dict(), "position": 2**63})
    state = drt_tf.StreamState()
    batches = drt_tf.as_dataset(dataset, 10, state=state)
    for _ in batches.repeat(300):
        pass
    assert len(state.serialize()) < 8192


# --- Our own state


@pytest.mark.parametrize("batches", range(8))
def test_our_own_state_goes_on_behind_a_batch_at_another_batch_size(numbered, ids, draws, batches, way):
    dataset = numbered()
    expected = draws(dataset, 30)
    state = drt_tf.StreamState()
    iterator = iter(drt_tf.as_dataset(dataset, 3, state=state, **way).repeat(2).prefetch(64))
    for _ in range(batches):
        next(iterator)
    passes, within = divmod(batches, 4)
    consumed = 10 * passes + min(3 * within, 10)
    own = json.loads(json.dumps(state.state_dict(batches=within, passes=passes if batches else None)))
    assert own["position"] == consumed

    resumed = numbered()
    resumed.load_state_dict(own)
    loader = drt_tf.as_dataset(resumed, 4, **way)
    end = 10 * (consumed // 10 + 1)
    assert ids(loader) == expected[consumed:end]
    assert ids(loader) == draws(dataset, end + 10, start=end)


@pytest.mark.parametrize(("before", "after"), [(4, 3), (2, 1), (1, 4)])
def test_our_own_state_goes_on_at_another_number_of_pipelines(numbered, draws, before, after, way):
    def loaders(size, own=None):
        made = []
        for rank in range(size):
            dataset = numbered()
            if own is not None:
                dataset.load_state_dict(own)
            context = tf.distribute.InputContext(num_input_pipelines=size, input_pipeline_id=rank)
            state = drt_tf.StreamState()
            made.append((iter(drt_tf.as_dataset(dataset, 1, input_context=context, state=state, **way)), state))
        return made

    expected = draws(numbered(), 20)
    first = loaders(before)
    taken = [[next(iterator)["sample_id"].numpy()[0] for iterator, _ in first] for _ in range(2)]
    states = [state.state_dict(batches=2) for _, state in first]
    assert all(own == states[0] for own in states)
    assert joined(taken) == expected[: 2 * before]
    rest = [batches_of(iterator) for iterator, _ in loaders(after, states[0])]
    dealt = [batch[0] for step in zip(*rest, strict=True) for batch in step]
    assert dealt == expected[2 * before :][: len(dealt)]
    assert len(dealt) == -(-(10 - 2 * before) // after) * after


def test_our_own_state_of_single_samples(numbered, ids, draws):
    dataset = numbered()
    state = drt_tf.StreamState()
    iterator = iter(drt_tf.from_generator(dataset, state=state))
    assert state.state_dict(batches=0)["position"] == 0
    for _ in range(13 - 10):
        next(iterator)
    resumed = numbered()
    resumed.load_state_dict(state.state_dict(batches=3))
    assert ids(drt_tf.from_generator(resumed)) == draws(dataset, 10, start=3)


def test_a_count_outside_the_passes_is_refused(numbered):
    state = drt_tf.StreamState()
    list(drt_tf.as_dataset(numbered(), 3, state=state))
    for fields, said in (
        ({"batches": 5}, r"batches must be in \[0, 4\]"),
        ({"batches": -1}, "batches must be in"),
        ({"batches": 0, "passes": 2}, r"passes must be in \[0, 1\]"),
        ({"batches": 0, "passes": True}, "passes must be"),
    ):
        with pytest.raises(drt.ConfigError, match=said):
            state.state_dict(**fields)
