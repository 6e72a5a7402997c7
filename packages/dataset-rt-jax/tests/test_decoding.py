"""What `decode` gives is stacked without losing a bit."""

import numpy as np
import pytest

import dataset_rt as drt
from dataset_rt_jax import StreamIterDataset, StreamMapDataset
from dataset_rt_jax.decoding import stack


def test_each_leaf_of_a_structure_is_stacked_along_a_new_first_axis():
    elements = [{"pixels": np.full((2, 3), number, np.uint8), "pair": (number, number / 2)} for number in range(4)]
    stacked = stack(elements)
    assert (stacked["pixels"].shape, stacked["pixels"].dtype) == ((4, 2, 3), np.uint8)
    assert stacked["pixels"][:, 1, 2].tolist() == [0, 1, 2, 3]
    assert [part.dtype for part in stacked["pair"]] == [np.int64, np.float64]
    assert stacked["pair"][1].tolist() == [0.0, 0.5, 1.0, 1.5]
    assert stack([True, False]).dtype == bool


def test_integers_below_and_above_two_to_the_63_keep_every_digit():
    identities = [1, 2**63 + 1, 2**64 - 1]
    assert stack(identities).dtype == np.uint64
    assert stack(identities).tolist() == identities
    assert stack([-(2**63), 2**63 - 1]).tolist() == [-(2**63), 2**63 - 1]


@pytest.mark.parametrize("numbers", [[2**64, 1], [-1, 2**63]])
def test_integers_that_64_bits_cannot_hold_together_are_refused(numbers):
    with pytest.raises(drt.ConfigError, match="decode must give elements of one structure and shape for a batch of 2"):
        stack(numbers)


def test_text_and_bytes_keep_nuls_at_their_end():
    assert stack([b"a\0\0", b"", b"\0"]).tolist() == [b"a\0\0", b"", b"\0"]
    assert stack(["ä\0", "\N{SLIGHTLY SMILING FACE}", ""]).tolist() == ["ä\0", "\N{SLIGHTLY SMILING FACE}", ""]


@pytest.mark.parametrize(
    "elements",
    [
        [np.zeros(2), np.zeros(3)],
        [{"a": 1}, {"b": 1}],
        [{"a": 1}, {"a": None}],
        [{"a": 1}, {"a": {"b": 1}}],
        ["text", 1.5],
        [object(), object()],
        [(1, 2), (1,)],
    ],
)
def test_elements_of_several_shapes_or_structures_are_refused(elements):
    with pytest.raises(drt.ConfigError, match="decode must give elements of one structure and shape"):
        stack(elements)


def test_by_index_and_iterated_batches_are_stacked_alike(open_dataset):
    def decode(sample):
        return {"cache_id": sample.cache_id, "data": sample.data, "label": sample.metadata["label"]}

    dataset = open_dataset(20)
    by_index = StreamMapDataset(dataset, batch_size=8, decode=decode)[0]
    iterated = next(iter(StreamIterDataset(dataset, 8, decode=decode)))
    samples = dataset.stream().fetch(range(8))
    for batch in (by_index, iterated):
        assert batch["data"].tolist() == [sample.data for sample in samples]
        assert batch["cache_id"].tolist() == [sample.cache_id for sample in samples]
        assert batch["label"].tolist() == [sample.metadata["label"] for sample in samples]


def test_samples_come_as_they_are_without_a_decode(open_dataset):
    dataset = open_dataset(20)
    made = StreamMapDataset(dataset, batch_size=8)
    assert made[2] == dataset.stream().fetch(range(16, 20))
    assert StreamMapDataset(dataset)[3] == dataset.stream()[3]


def test_arrays_of_a_batch_are_writable_and_its_own(open_dataset, decode_batch):
    made = StreamMapDataset(open_dataset(20), batch_size=8, decode_batch=decode_batch)
    batch, again = made[0], made[0]
    for array in batch.values():
        assert array.flags.writeable
        array[:] = 0
    assert again["data"].any()
    assert made[0]["data"].tolist() == again["data"].tolist()
