"""What a dataset says of its length and shapes is what it delivers."""

import numpy as np
import pytest
import tensorflow as tf

import dataset_rt as drt
import dataset_rt_tf as drt_tf


@pytest.mark.parametrize("epoch_len", [1, 9, 10, 11])
@pytest.mark.parametrize("batch_size", [1, 3, 10, 11])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_number_of_batches_is_known_and_right(numbered, epoch_len, batch_size, drop_last, way):
    dataset = numbered()
    dataset.set_epoch_len(epoch_len)
    if drop_last and batch_size > epoch_len:
        with pytest.raises(drt.ConfigError, match=f"{epoch_len} draws .* no full batch of {batch_size}"):
            drt_tf.as_dataset(dataset, batch_size, drop_last=True, **way)
        return
    batches = drt_tf.as_dataset(dataset, batch_size, drop_last=drop_last, **way)
    count = epoch_len // batch_size if drop_last else -(-epoch_len // batch_size)
    assert len(batches) == count
    for _ in range(2):
        sizes = [len(batch["sample_id"]) for batch in batches]
        assert len(sizes) == count
        assert sum(sizes) == (count * batch_size if drop_last else epoch_len)
    assert dataset.position == 2 * epoch_len
    assert len(batches.repeat(3)) == 3 * count


@pytest.mark.parametrize("epoch_len", [1, 9, 10, 11])
def test_the_number_of_samples_is_known_and_right(numbered, epoch_len):
    dataset = numbered()
    dataset.set_epoch_len(epoch_len)
    samples = drt_tf.from_generator(dataset)
    assert len(samples) == epoch_len
    assert [len(list(samples)) for _ in range(2)] == [epoch_len, epoch_len]
    assert len(samples.batch(4)) == -(-epoch_len // 4)


def test_a_repeated_dataset_says_that_it_is_endless(numbered, ids, draws):
    for rows in (9, 10, 11):
        dataset = numbered(rows)
        for loader in (drt_tf.as_dataset(dataset, 4), drt_tf.from_generator(dataset)):
            assert loader.repeat().cardinality() == tf.data.INFINITE_CARDINALITY
        expected = draws(dataset, 5 * rows)
        assert ids(drt_tf.from_generator(dataset).repeat().take(5 * rows)) == expected


def test_each_rank_knows_its_own_number_of_batches(numbered, way):
    for rank, count in enumerate([3, 3, 2, 2]):
        batches = drt_tf.as_dataset(numbered(), 1, rank=rank, world_size=4, remainder="uneven", **way)
        assert len(batches) == count == len(list(batches))


def test_shapes_are_static(numbered):
    decoder = drt.array_decoder("uint8", (2, 2), metadata=("label",))
    spec = drt_tf.as_dataset(numbered(), 4, decode_batch=decoder).element_spec
    assert spec["data"] == tf.TensorSpec((None, 2, 2), tf.uint8)
    assert spec["label"] == tf.TensorSpec((None,), tf.int64)
    spec = drt_tf.as_dataset(numbered(), 4, decode_batch=decoder, drop_last=True).element_spec
    assert spec["data"] == tf.TensorSpec((4, 2, 2), tf.uint8)
    spec = drt_tf.from_generator(numbered(), decode_batch=decoder).element_spec
    assert spec["data"] == tf.TensorSpec((2, 2), tf.uint8)


def rest_of_a_longer_epoch(numbered):
    """A state with 80 draws left of an epoch of 90, and epochs of 10 from then on."""
    dataset = numbered()
    dataset.set_epoch_len(90)
    consumed = iter(dataset)
    for _ in range(10):
        next(consumed)
    dataset.set_epoch_len(10)
    return dataset.state_dict()


@pytest.mark.parametrize("single", [False, True])
def test_the_rest_of_a_longer_epoch_is_delivered_whole(numbered, ids, draws, single, way):
    dataset = numbered()
    dataset.load_state_dict(rest_of_a_longer_epoch(numbered))
    loader = drt_tf.from_generator(dataset, **way) if single else drt_tf.as_dataset(dataset, 4, **way)
    assert loader.cardinality() == tf.data.UNKNOWN_CARDINALITY
    assert ids(loader) == draws(dataset, 90, start=10)
    assert ids(loader) == draws(dataset, 100, start=90)


@pytest.mark.parametrize("single", [False, True])
def test_a_rest_that_is_longer_than_the_promised_length_is_refused(numbered, single, way):
    dataset = numbered()
    loader = drt_tf.from_generator(dataset, **way) if single else drt_tf.as_dataset(dataset, 4, **way)
    dataset.load_state_dict(rest_of_a_longer_epoch(numbered))
    with pytest.raises(tf.errors.InvalidArgumentError, match="a pass must have at most"):
        list(loader)
    assert dataset.position == 10


def test_a_batch_size_of_a_small_numpy_type_does_not_wrap(numbered, ids, draws):
    dataset = numbered(300)
    assert ids(drt_tf.as_dataset(dataset, np.uint8(100))) == draws(dataset, 300)
    batches = drt_tf.StreamPyDataset(dataset, np.uint8(100))
    assert [n for i in range(3) for n in batches[i]["sample_id"].tolist()] == draws(dataset, 600, start=300)
