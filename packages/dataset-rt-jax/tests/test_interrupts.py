"""What is raised in the middle of a batch arrives, and then the same batch comes: none is lost, doubled or moved."""

import contextlib

import grain
import numpy as np
import pytest

import dataset_rt as drt
from dataset_rt_jax import CacheDataSource, PositionSampler, StreamIterDataset, StreamMapDataset, iter_batches


def going_on(iterator, *expected):
    """Everything that an iterator gives by and by, and how often it raised one of the exceptions expected."""
    found, raised = [], 0
    while True:
        with contextlib.suppress(*expected):
            # Batch by batch, so that those before an exception stay.
            found.extend(np.asarray(batch).tolist() for batch in iterator)
            return found, raised
        raised += 1


def interrupted_at(exception, *calls):
    """Decode to the sample's number, and raise at some of the calls."""
    count = 0

    def decode(sample):
        nonlocal count
        count += 1
        if count in calls:
            raise exception
        return sample.sample_id

    return decode


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("exception", [KeyboardInterrupt, SystemExit, ArithmeticError])
@pytest.mark.parametrize("over", ["whole", "rank", "uneven", "rest", "global"])
def test_an_iterator_goes_on_with_the_batch_in_which_decode_was_interrupted(open_dataset, exception, over, drop_last):
    def make(decode):
        dataset = open_dataset(20)
        if over == "rest":
            next(saved := dataset.iter_batches(3))
            state = saved.state_dict()
            dataset = open_dataset(20)
            dataset.load_state_dict(state)
        if over == "global":
            return iter_batches(dataset, 4, decode=decode, drop_last=drop_last)
        worlds = {"rank": {"rank": 1, "world_size": 3}}
        worlds["uneven"] = {"rank": 2, "world_size": 3, "remainder": "uneven"}
        world = worlds.get(over, {})
        return iter(StreamIterDataset(dataset, 4, epochs=2, decode=decode, drop_last=drop_last, **world))

    quiet = [np.asarray(batch).tolist() for batch in make(lambda sample: sample.sample_id)]
    found, raised = going_on(make(interrupted_at(exception, 1, 3, 7, 15)), exception)
    assert found == quiet
    assert raised >= 3


@pytest.mark.parametrize("over", ["grain", "global"])
def test_a_decode_batch_that_was_interrupted_is_called_again_for_the_same_batch(open_dataset, drawn, over):
    calls = 0

    def decode_batch(batch):
        nonlocal calls
        calls += 1
        if calls % 2:
            raise KeyboardInterrupt
        return batch["sample_id"].to_numpy().astype(np.int32)

    dataset = open_dataset(20)
    make = iter_batches if over == "global" else StreamIterDataset
    found, raised = going_on(iter(make(dataset, 8, decode_batch=decode_batch)), KeyboardInterrupt)
    numbers = drawn(open_dataset(20), 0, 20)
    assert found == [numbers[:8], numbers[8:16], numbers[16:]]
    assert raised == 3
    assert dataset.position == 20


# --- Exceptions that mean an end


def pipelines(dataset, decode):
    """Everything that calls `decode`, each over 20 draws or rows in order."""
    by_index = StreamMapDataset(dataset, decode=decode, start=0)
    in_batches = StreamMapDataset(dataset, batch_size=4, decode=decode, start=0)
    source = CacheDataSource(dataset, decode=decode)
    loader = grain.DataLoader(
        data_source=source, sampler=PositionSampler(dataset, start=0), shard_options=grain.sharding.NoSharding()
    )
    return {
        "iterated": StreamIterDataset(dataset.stream(), 4, decode=decode),
        "by index": in_batches.to_iter_dataset(),
        "without threads": in_batches.to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)),
        "batched by Grain": by_index.batch(4).to_iter_dataset(),
        "batched behind": by_index.to_iter_dataset().batch(4),
        "global": iter_batches(dataset.stream(), 4, decode=decode),
        "source": source,
        "data loader": loader,
    }


KINDS = (
    "iterated",
    "by index",
    "without threads",
    "batched by Grain",
    "batched behind",
    "global",
    "source",
    "data loader",
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("exception", "arrives", "message"),
    [
        (StopIteration, drt.ConfigError, "decode must not raise StopIteration, which would end the epoch early"),
        (IndexError, IndexError, "sample 11"),
    ],
)
def test_a_decode_that_raises_what_ends_a_loop_is_an_error_and_no_end(open_dataset, kind, exception, arrives, message):
    def decode(sample):
        if sample.sample_id == 11:
            raise exception("sample 11")
        return sample.sample_id

    pipeline = pipelines(open_dataset(20, mode="ordered"), decode)[kind]
    with pytest.raises(arrives, match=message):
        list(pipeline)


def test_a_decode_batch_that_raises_stop_iteration_is_an_error(open_dataset):
    def decode_batch(batch):
        return next(iter([]))

    dataset = open_dataset(20)
    for made in (
        StreamIterDataset(dataset, 4, decode_batch=decode_batch),
        iter_batches(dataset, 4, decode_batch=decode_batch),
    ):
        with pytest.raises(drt.ConfigError, match="decode_batch must not raise StopIteration"):
            list(made)
    with pytest.raises(drt.ConfigError, match="decode_batch must not raise StopIteration"):
        StreamMapDataset(dataset, batch_size=4, decode_batch=decode_batch)[0]
