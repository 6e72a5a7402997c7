"""Keras trains on the windows of the stream, one after another, and says how far it came."""

import warnings

import keras
import numpy as np
import pytest

import dataset_rt as drt
import dataset_rt_tf as drt_tf


def pair(sample):
    pixels = np.frombuffer(sample.data, np.uint8).astype(np.float32) / 255
    return pixels, np.int64(sample.metadata["label"])


def model_of():
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss, metrics=["accuracy"])
    return model


class Recorded:
    """A decode function that remembers what it was given."""

    def __init__(self):
        self.ids = []

    def __call__(self, sample):
        self.ids.append(sample.sample_id)
        return pair(sample)


def test_fit_on_as_dataset_takes_the_next_window_each_epoch(numbered, draws):
    dataset, validation = numbered(), numbered(shuffle=False)
    recorded = Recorded()
    train = drt_tf.as_dataset(dataset, 4, decode=recorded, num_parallel_calls=1)
    recorded.ids.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = model_of().fit(
            train,
            epochs=2,
            shuffle=False,
            validation_data=drt_tf.as_dataset(validation, 5, decode=pair),
            verbose=0,
        )
    assert recorded.ids == draws(dataset, 20)
    assert dataset.position == 20
    assert validation.position == 20
    assert len(history.history["val_loss"]) == 2


def test_fit_on_a_py_dataset_takes_the_next_window_each_epoch(numbered, draws):
    dataset, validation = numbered(), numbered(shuffle=False)
    train = drt_tf.StreamPyDataset(dataset, 4, decode=pair)
    held_out = drt_tf.StreamPyDataset(validation, 5, decode=pair)
    assert train.num_batches is None
    assert (train.steps_per_epoch, train.first_steps) == (3, 3)
    counter = drt_tf.StreamCallback(train)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        history = model_of().fit(
            train,
            steps_per_epoch=train.steps_per_epoch,
            epochs=2,
            shuffle=False,
            validation_data=held_out,
            validation_steps=held_out.steps_per_epoch,
            callbacks=[counter],
            verbose=0,
        )
    assert len(history.history["val_loss"]) == 2
    assert counter.state_dict()["position"] == 20
    assert dataset.position == 0


def test_a_py_dataset_has_the_batches_of_the_core_by_number(numbered, draws):
    dataset = numbered()
    batches = drt_tf.StreamPyDataset(dataset, 4, decode=lambda sample: np.int64(sample.sample_id))
    expected = draws(dataset, 50)
    found = [batches[i].tolist() for i in range(15)]
    assert [number for batch in found for number in batch] == expected
    assert [len(batch) for batch in found[:3]] == [4, 4, 2]
    assert [batches[i].tolist() for i in (14, 0, 7)] == [found[14], found[0], found[7]]


def test_a_py_dataset_deals_to_ranks_and_keeps_its_table(numbered, draws):
    dataset = numbered()
    expected = draws(dataset, 24)

    def ids(sample):
        return np.int64(sample.sample_id)

    ranks = [drt_tf.StreamPyDataset(dataset.shard(r, 3), 2, decode=ids) for r in range(3)]
    again = drt_tf.StreamPyDataset(dataset, 2, decode=ids, rank=1, world_size=3)
    dataset.update_metadata(dataset.get_metadata().head(1))
    taken = [[n for i in range(4) for n in batches[i].tolist()] for batches in ranks]
    assert [n for row in zip(*taken, strict=True) for n in row] == expected
    assert again[0].tolist() == taken[1][:2]


def test_a_py_dataset_goes_on_from_a_loaded_state(numbered, draws):
    dataset = numbered()
    expected = draws(dataset, 30)
    batches = drt_tf.StreamPyDataset(dataset, 3, decode=lambda sample: np.int64(sample.sample_id))
    for consumed in range(9):
        resumed = numbered()
        resumed.load_state_dict(batches.state_dict(batches=consumed))
        again = drt_tf.StreamPyDataset(resumed, 3, decode=lambda sample: np.int64(sample.sample_id))
        assert [again[i].tolist() for i in range(4)] == [batches[consumed + i].tolist() for i in range(4)]
        assert again.first_steps == 4 - consumed % 4
    elsewhere = drt_tf.StreamPyDataset(dataset, 3, start=20, decode=lambda sample: np.int64(sample.sample_id))
    assert elsewhere[0].tolist() == expected[20:23]


def test_a_py_dataset_gives_fresh_writable_arrays(numbered):
    decoder = drt.array_decoder("uint8", (4,), metadata=["label"])
    for fields in ({"decode_batch": decoder}, {}):
        batches = drt_tf.StreamPyDataset(numbered(), 4, **fields)
        first, again = batches[0], batches[0]
        for name, values in first.items():
            assert values.flags.writeable
            assert not np.shares_memory(values, again[name])


@pytest.mark.parametrize("processes", [False, True])
def test_a_py_dataset_reads_in_keras_workers(numbered, processes):
    batches = drt_tf.StreamPyDataset(numbered(), 4, decode=pair, workers=2, use_multiprocessing=processes)
    history = model_of().fit(batches, steps_per_epoch=batches.steps_per_epoch, epochs=2, shuffle=False, verbose=0)
    plain = drt_tf.StreamPyDataset(numbered(), 4, decode=pair)
    alone = model_of().fit(plain, steps_per_epoch=plain.steps_per_epoch, epochs=2, shuffle=False, verbose=0)
    assert history.history["loss"] == alone.history["loss"]


def test_a_callback_knows_the_state_at_any_batch_of_fit(numbered, ids, draws):
    class Saved(keras.callbacks.Callback):
        """Keeps the state behind batch 1 of epoch 1."""

        def __init__(self, counter):
            super().__init__()
            self.counter = counter
            self.state = None

        def on_epoch_begin(self, epoch, logs=None):
            self.epoch = epoch

        def on_train_batch_end(self, batch, logs=None):
            if (self.epoch, batch) == (1, 1):
                self.state = self.counter.state_dict()

    expected = draws(numbered(), 30)
    state = drt_tf.StreamState()
    train = drt_tf.as_dataset(numbered(), 4, decode=pair, state=state)
    counted = drt_tf.StreamPyDataset(numbered(), 4, decode=pair)
    for source, batches, fields in (
        (state, train, {"shuffle": False}),
        (counted, counted, {"steps_per_epoch": 3, "shuffle": False}),
    ):
        counter = drt_tf.StreamCallback(source)
        saved = Saved(counter)
        model_of().fit(batches, epochs=3, callbacks=[counter, saved], verbose=0, **fields)
        assert saved.state["position"] == 18
        assert counter.state_dict()["position"] == 30
        resumed = numbered()
        resumed.load_state_dict(saved.state)
        assert ids(drt_tf.as_dataset(resumed, 4)) == expected[18:20]


def fitted(numbered, *, repeat=False, told=None, together=1, **fields):
    """Fit 2 epochs on passes of 5 batches; the positions that the callback said after each execution, or its error."""
    state = drt_tf.StreamState()
    train = drt_tf.as_dataset(numbered(), 2, decode=pair, state=state)
    counter = drt_tf.StreamCallback(state, steps_per_epoch=told)
    positions = []

    class Asked(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            positions.append(counter.state_dict()["position"])

    model = model_of()
    model.compile("sgd", model.loss, steps_per_execution=together)
    fields = {"epochs": 2, "shuffle": False, "verbose": 0, "callbacks": [counter, Asked()], **fields}
    model.fit(train.repeat().prefetch(8) if repeat else train, **fields)
    assert positions[-1] == 2 * int(model.optimizer.iterations)
    model.evaluate(train, verbose=0)
    assert counter.state_dict()["position"] == positions[-1]
    return positions


def test_a_callback_follows_epochs_that_are_not_passes(numbered):
    for steps in (2, 3, 5):
        expected = list(range(2, 4 * steps + 1, 2))
        assert fitted(numbered, repeat=True, told=steps, steps_per_epoch=steps) == expected
    assert fitted(numbered, told=2, steps_per_epoch=2) == [2, 4, 6, 8]
    # An epoch of a whole pass need not be told, however far a prefetch is ahead.
    assert fitted(numbered, repeat=True, steps_per_epoch=5) == list(range(2, 21, 2))


def test_a_callback_follows_executions_of_several_steps(numbered):
    assert fitted(numbered, together=2) == [4, 8, 10, 14, 18, 20]
    assert fitted(numbered, together=5) == [10, 20]
    assert fitted(numbered, repeat=True, together=5, told=10, steps_per_epoch=10) == [10, 20, 30, 40]


def test_a_callback_counts_the_batches_that_keras_takes_of_an_endless_dataset(numbered):
    batches = drt_tf.StreamPyDataset(numbered(), 2, decode=pair)
    counter = drt_tf.StreamCallback(batches)
    model = model_of()
    model.compile("sgd", model.loss, steps_per_execution=2)
    model.fit(batches, steps_per_epoch=5, epochs=2, shuffle=False, verbose=0, callbacks=[counter])
    assert counter.state_dict()["position"] == 2 * int(model.optimizer.iterations)


def test_a_callback_refuses_what_it_cannot_tell(numbered):
    for said, fields in (
        ("give StreamCallback the steps_per_epoch", {"repeat": True, "steps_per_epoch": 3}),
        ("give StreamCallback the steps_per_epoch", {"repeat": True, "steps_per_epoch": 7}),
        ("steps_per_execution must divide", {"repeat": True, "steps_per_epoch": 5, "together": 2}),
        ("steps_per_execution must divide", {"repeat": True, "steps_per_epoch": 3, "told": 3, "together": 2}),
    ):
        with pytest.raises(drt.ConfigError, match=said):
            fitted(numbered, **fields)

    state = drt_tf.StreamState()
    train = drt_tf.as_dataset(numbered(), 2, decode=pair, state=state)
    counter = drt_tf.StreamCallback(state)
    model_of().fit(train, epochs=2, shuffle=False, verbose=0, callbacks=[counter], validation_data=train)
    with pytest.raises(drt.ConfigError, match="validate on a pipeline of its own"):
        counter.state_dict()


def test_a_ragged_leaf_or_a_negative_index_is_refused(numbered):
    import tensorflow as tf

    with pytest.raises(drt.ConfigError, match="must be dense"):
        drt_tf.StreamPyDataset(numbered(), 4, decode=len, output_signature=tf.RaggedTensorSpec((None,), tf.int32))
    with pytest.raises(IndexError, match="at least 0, got -1"):
        drt_tf.StreamPyDataset(numbered(), 4, decode=pair)[-1]
