"""What decode may return, what becomes of it, and what is said of a wrong value."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import dataset_rt as drt
import dataset_rt_tf as drt_tf

TEXTS = ["", "a\0", "\0", "ä😀", "plain"]


@pytest.fixture
def texts(written):
    return written([(text.encode() + b"\0", {"text": text}) for text in TEXTS])


def test_strings_keep_nuls_emoji_and_emptiness(texts):
    expected = [text.encode() for text in TEXTS]
    for loader in (drt_tf.as_dataset(texts, 2), drt_tf.from_generator(texts).batch(2)):
        found = [value for batch in loader for value in batch["text"].numpy().tolist()]
        assert found == expected
    payloads = [value for batch in drt_tf.as_dataset(texts, 2) for value in batch["data"].numpy().tolist()]
    assert payloads == [text + b"\0" for text in expected]
    decoded = drt_tf.as_dataset(texts, 3, decode=lambda sample: (sample.metadata["text"], sample.data))
    assert [value for batch in decoded for value in batch[0].numpy().tolist()] == expected


def test_structures_of_dicts_and_tuples_come_out_as_they_are(numbered):
    def decode(sample):
        label = sample.metadata["label"]
        return {"b": np.float32(label), "a": (np.int32([label, label]), {"c": label})}, sample.sample_id

    dataset = numbered(shuffle=False)
    samples = drt_tf.from_generator(dataset, decode=decode)
    for loader in (drt_tf.as_dataset(dataset, 5, decode=decode), samples.batch(5)):
        (features, ids) = next(iter(loader))
        assert ids.numpy().tolist() == [0, 1, 2, 3, 4]
        assert features["b"].dtype == tf.float32
        assert features["a"][0].numpy().tolist() == [[0, 0], [1, 1], [2, 2], [0, 0], [1, 1]]
        assert features["a"][1]["c"].numpy().tolist() == [0, 1, 2, 0, 1]


def test_arrays_of_a_decoded_batch_arrive_byte_for_byte(numbered):
    dataset = numbered(shuffle=False)
    decoder = drt.array_decoder(np.dtype("<u2"), (2,), metadata=("label", "text"))
    batches = list(drt_tf.as_dataset(dataset, 4, decode_batch=decoder))
    data = np.concatenate([batch["data"].numpy() for batch in batches])
    assert data.tobytes() == bytes(number for i in range(10) for number in [i] * 4)
    assert batches[0]["text"].numpy().tolist() == [b"n0\0", b"n1\0", b"n2\0", b"n3\0"]


def counted(sample):
    return np.arange(sample.sample_id, dtype=np.int32)


def test_ragged_outputs_become_ragged_batches(numbered):
    dataset = numbered(5, shuffle=False)
    signature = {"n": tf.RaggedTensorSpec((None,), tf.int32), "id": tf.TensorSpec((), tf.int64)}
    batches = drt_tf.as_dataset(
        dataset, 3, decode=lambda sample: {"n": counted(sample), "id": sample.sample_id}, output_signature=signature
    )
    first, second = batches
    assert isinstance(first["n"], tf.RaggedTensor)
    assert batches.element_spec["n"] == tf.RaggedTensorSpec((None, None), tf.int32, 1, tf.int64)
    assert first["n"].to_list() == [[], [0], [0, 1]]
    assert second["n"].to_list() == [[0, 1, 2], [0, 1, 2, 3]]
    assert first["id"].numpy().tolist() == [0, 1, 2]


def test_ragged_dimensions_may_be_nested_and_hold_strings(numbered):
    dataset = numbered(3, shuffle=False)
    signature = tf.RaggedTensorSpec((None, None), tf.string, ragged_rank=1)

    def decode(sample):
        return [["w\0"] * length for length in range(sample.sample_id)]

    (batch,) = drt_tf.as_dataset(dataset, 3, decode=decode, output_signature=signature)
    assert batch.to_list() == [[], [[]], [[], [b"w\0"]]]


def test_a_decoded_batch_may_be_ragged(numbered):
    dataset = numbered(4, shuffle=False)
    signature = tf.RaggedTensorSpec((None, 2), tf.float32, ragged_rank=0)
    (batch,) = drt_tf.as_dataset(
        dataset,
        4,
        decode_batch=lambda batch: [np.ones((n, 2), np.float32) for n in range(batch.num_rows)],
        output_signature=signature,
    )
    assert batch.shape.as_list() == [4, None, 2]
    assert batch.row_lengths().numpy().tolist() == [0, 1, 2, 3]


def test_open_lengths_are_filled_up_to_the_longest_of_a_batch(numbered):
    dataset = numbered(4, shuffle=False)
    signature = tf.TensorSpec((None,), tf.int32)
    first, second = drt_tf.as_dataset(dataset, 2, decode=counted, output_signature=signature)
    assert first.numpy().tolist() == [[0], [0]]
    assert second.numpy().tolist() == [[0, 1, 0], [0, 1, 2]]


def test_open_lengths_stay_as_they_are_sample_by_sample(numbered):
    dataset = numbered(4, shuffle=False)
    for signature in (tf.TensorSpec((None,), tf.int32), tf.RaggedTensorSpec((None,), tf.int32)):
        samples = drt_tf.from_generator(dataset, decode=counted, output_signature=signature)
        assert [sample.numpy().tolist() for sample in samples] == [[], [0], [0, 1], [0, 1, 2]]
        assert len(samples) == 4


# --- Errors name what is wrong

SIGNATURE = {"image": tf.TensorSpec((2,), tf.float32), "label": tf.TensorSpec((), tf.int64)}
IMAGE = np.zeros(2, np.float32)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"image": IMAGE}, r"decode must return the keys of output_signature: what it returned lacks 'label'"),
        ({"image": IMAGE, "label": 1, "more": 2}, r"what it returned adds 'more'"),
        (
            {"image": IMAGE.astype(np.float64), "label": 1},
            r"decode must return float32 for output \['image'\], got float64",
        ),
        ({"image": IMAGE, "label": 1.5}, r"decode must return int64 for output \['label'\], got float64"),
        ({"image": IMAGE, "label": None}, r"decode must return int64 for output \['label'\], got object"),
        ({"image": np.zeros(3, np.float32), "label": 1}, r"shape \(2,\) for output \['image'\], got \(3,\)"),
        ((IMAGE, 1), r"decode must return a dict as output_signature has, got tuple"),
    ],
)
@pytest.mark.parametrize("make", [lambda d, **k: drt_tf.as_dataset(d, 4, **k), drt_tf.from_generator])
def test_a_wrong_value_is_an_error_that_names_it(numbered, value, said, make):
    loader = make(numbered(), decode=lambda sample: value, output_signature=SIGNATURE)
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        list(loader)


def test_a_wrong_value_of_a_decoded_batch_is_named_too(numbered):
    loader = drt_tf.as_dataset(
        numbered(), 4, decode_batch=lambda batch: {"image": np.zeros((3, 2), np.float32), "label": np.zeros(4, int)},
        output_signature=SIGNATURE,
    )  # fmt: skip
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"decode_batch must return shape \(4, 2\) for output"):
        list(loader)


def test_a_value_without_a_tensorflow_type_is_refused_at_once(numbered):
    for value in (None, object(), np.datetime64("2020-01-01")):
        with pytest.raises(drt.ConfigError, match=r"output \['when'\], which has no TensorFlow type"):
            drt_tf.as_dataset(numbered(), 4, decode=lambda sample, value=value: {"when": value})


def test_an_impossible_signature_is_refused_at_once(numbered):
    for signature in ({}, {"a": np.float32}, tf.TensorSpec(None, tf.int32), tf.RaggedTensorSpec((), tf.int32)):
        with pytest.raises(drt.ConfigError):
            drt_tf.as_dataset(numbered(), 4, output_signature=signature)
    with pytest.raises(drt.ConfigError, match="not be given together"):
        drt_tf.as_dataset(numbered(), 4, decode=len, decode_batch=len)


def test_a_null_without_a_decode_function_is_named(written):
    dataset = written([(b"", {"score": 1.0}), (b"", {"score": None})])
    with pytest.raises(tf.errors.InvalidArgumentError, match="column 'score', cache_id .*, sample_id 1: found null"):
        list(drt_tf.as_dataset(dataset, 2))


def test_an_exception_of_decode_arrives_with_its_text(numbered):
    def decode(sample):
        if sample.sample_id == 3:
            raise RuntimeError("no such codec")
        return 0

    with pytest.raises(tf.errors.UnknownError, match="no such codec"):
        list(drt_tf.as_dataset(numbered(shuffle=False), 2, decode=decode))


def test_damage_on_disk_arrives_with_our_text(written):
    dataset = written([(bytes(100), {"n": 1})] * 4)
    path = next(iter(dataset.caches["path"]))
    batches = drt_tf.as_dataset(dataset, 2)
    (shard,) = (Path(path) / "shards").iterdir()
    shard.chmod(0o644)
    content = bytearray(shard.read_bytes())
    content[-20] ^= 1
    shard.write_bytes(content)
    with pytest.raises(tf.errors.OpError, match="000000.bin"):
        list(batches)


@pytest.mark.parametrize("dtype", [">f4", ">i2", "<u4", ">U1"])
def test_arrays_of_either_byte_order_become_tensors(written, dtype):
    values = np.array([1, 2, 3, 4]).astype(dtype)
    dataset = written([(values.tobytes(), {})])
    decoder = drt.array_decoder(dtype, (4,))
    expected = [text.encode() for text in values.tolist()] if values.dtype.kind == "U" else values.tolist()
    (batch,) = drt_tf.as_dataset(dataset, 1, decode_batch=decoder)
    assert batch["data"].numpy().tolist() == [expected]
    (sample,) = drt_tf.from_generator(dataset, decode_batch=decoder)
    assert sample["data"].numpy().tolist() == expected
    (batch,) = drt_tf.as_dataset(dataset, 1, decode=lambda sample: np.frombuffer(sample.data, dtype))
    assert batch.numpy().tolist() == [expected]
