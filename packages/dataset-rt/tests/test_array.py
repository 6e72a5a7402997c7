"""Decoding payloads that are raw arrays."""

import datetime
import pickle
import re

import numpy as np
import pyarrow as pa
import pytest

import dataset_rt as drt


def batch_of(payloads: list[bytes], **columns: pa.Array) -> pa.RecordBatch:
    rows = len(payloads)
    return pa.record_batch(
        {
            "cache_id": pa.array([2**62 + 1] * rows, pa.uint64()),
            "sample_id": pa.array(range(100, 100 + rows), pa.uint64()),
            **columns,
            "data": pa.array(payloads, pa.large_binary()),
        }
    )


def arrays(rows: int, shape: tuple[int, ...] = (2, 3), dtype: str = "<f4") -> np.ndarray:
    count = rows * int(np.prod(shape))
    return np.arange(count).astype(dtype).reshape(rows, *shape)


def payloads_of(values: np.ndarray) -> list[bytes]:
    # A slice of one row, because a scalar of a shapeless array is no longer of its dtype.
    return [values[row : row + 1].tobytes() for row in range(len(values))]


@pytest.mark.parametrize("dtype", ["u1", "<i2", ">i2", "<f4", "<f8", "<c8", "?", "<M8[s]", "<U3", "S5", "<f2"])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (1, 2, 1, 2)])
def test_payloads_become_one_array_of_the_dtype_and_shape(dtype, shape):
    values = arrays(5, shape, dtype)
    decoded = drt.array_decoder(dtype, shape)(batch_of(payloads_of(values)))
    assert decoded["data"].dtype == np.dtype(dtype)
    assert decoded["data"].shape == (5, *shape)
    np.testing.assert_array_equal(decoded["data"], values)


def test_structured_and_subarray_dtypes_are_decoded():
    kind = np.dtype([("x", "<i4"), ("y", "<f8", (2,))])
    values = np.zeros((3, 2), kind)
    values["x"] = np.arange(6).reshape(3, 2)
    np.testing.assert_array_equal(drt.array_decoder(kind, 2)(batch_of(payloads_of(values)))["data"], values)
    inner = arrays(3, (4, 2))
    decoded = drt.array_decoder(np.dtype(("<f4", (2,))), (4,))(batch_of(payloads_of(inner)))
    np.testing.assert_array_equal(decoded["data"], inner)


def test_every_array_is_fresh_writable_and_owns_its_memory():
    batch = batch_of(payloads_of(arrays(4)), label=pa.array([1, 2, 3, 4]), score=pa.array([0.5, 1.5, 2.5, 3.5]))
    decode = drt.array_decoder("<f4", (2, 3), metadata=["label", "score"])
    first, second = decode(batch), decode(batch)
    assert list(first) == ["data", "label", "score", "cache_id", "sample_id"]
    for name, values in first.items():
        assert values.flags.owndata, name
        assert values.flags.writeable, name
        assert not np.shares_memory(values, second[name]), name
        values[...] = 0
    np.testing.assert_array_equal(second["data"], arrays(4))
    assert batch.column("label").to_pylist() == [1, 2, 3, 4]
    assert batch.column("sample_id").to_pylist() == [100, 101, 102, 103]


def test_views_copy_no_payload_cannot_be_written_and_keep_their_batch_alive():
    values = arrays(4)
    batch = batch_of(payloads_of(values), label=pa.array([1, 2, 3, 4]))
    decode = drt.array_decoder("<f4", (2, 3), metadata=["label"])
    memory = np.frombuffer(batch.column("data").buffers()[2], np.uint8)
    for start, length in ((0, 4), (1, 2), (4, 0)):
        viewed = decode.views(batch.slice(start, length))
        assert list(viewed) == ["data", "label", "cache_id", "sample_id"]
        assert not viewed["data"].flags.writeable
        assert np.shares_memory(viewed["data"], memory) == (length > 0)
        np.testing.assert_array_equal(viewed["data"], values[start : start + length])
    kept = decode.views(batch)["data"]
    del batch, memory
    np.testing.assert_array_equal(kept, values)
    assert decode.views(batch_of(payloads_of(values), label=pa.array([1, 2, 3, 4])))["label"].flags.writeable
    with pytest.raises(drt.MetadataError, match="a payload of 8 bytes expected"):
        drt.array_decoder("<f4", (2,)).views(batch_of(payloads_of(values)))


def test_owned_arrays_are_the_batchs_memory_writable_and_outlive_the_batch():
    values = arrays(4)
    batch = batch_of(payloads_of(values), label=pa.array([1, 2, 3, 4]))
    decode = drt.array_decoder("<f4", (2, 3), metadata=["label"])
    memory = np.frombuffer(batch.column("data").buffers()[2], np.uint8)
    owned = decode.owned(batch.slice(1, 2))
    assert list(owned) == ["data", "label", "cache_id", "sample_id"]
    assert np.shares_memory(owned["data"], memory)
    owned["data"] += 1
    assert memory.tobytes() == np.concatenate([values[:1], values[1:3] + 1, values[3:]]).tobytes()
    del batch, memory
    np.testing.assert_array_equal(owned["data"], values[1:3] + 1)
    assert decode.owned(batch_of([], label=pa.array([], pa.int64())))["data"].flags.writeable
    with pytest.raises(drt.MetadataError, match="a payload of 8 bytes expected"):
        drt.array_decoder("<f4", (2,)).owned(batch_of(payloads_of(values)))


@pytest.mark.parametrize(("start", "length"), [(0, 3), (2, 5), (7, 3), (9, 1), (4, 0)])
def test_sliced_batches_are_decoded_from_their_own_offsets(start, length):
    values = arrays(10)
    batch = batch_of(payloads_of(values), label=pa.array(range(10))).slice(start, length)
    decoded = drt.array_decoder("<f4", (2, 3), metadata=("label",))(batch)
    np.testing.assert_array_equal(decoded["data"], values[start : start + length])
    assert decoded["label"].tolist() == list(range(start, start + length))
    assert decoded["sample_id"].tolist() == list(range(100 + start, 100 + start + length))


def test_an_empty_batch_gives_empty_arrays():
    decoded = drt.array_decoder("<f4", (2, 3))(batch_of([]))
    assert decoded["data"].shape == (0, 2, 3)
    assert decoded["cache_id"].shape == (0,)


def test_a_shape_with_a_zero_takes_empty_payloads():
    decoded = drt.array_decoder("<f4", (3, 0))(batch_of([b"", b""]))
    assert decoded["data"].shape == (2, 3, 0)


def test_identities_keep_their_64_bits():
    decoded = drt.array_decoder("u1", 1)(batch_of([b"a"]))
    assert decoded["cache_id"].dtype == decoded["sample_id"].dtype == np.uint64
    assert decoded["cache_id"].tolist() == [2**62 + 1]


def test_each_kind_of_column_has_its_numpy_type():
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999)
    batch = batch_of(
        [b"a", b"b"],
        flag=pa.array([True, False]),
        count=pa.array([2**63 - 1, -(2**63)]),
        score=pa.array([float("nan"), -0.0]),
        text=pa.array(["ä\0", ""], pa.large_string()),
        day=pa.array([datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        moment=pa.array([moment, datetime.datetime.max], pa.timestamp("us")),
    )
    names = ["flag", "count", "score", "text", "day", "moment"]
    decoded = drt.array_decoder("u1", (1,), metadata=names)(batch)
    assert [str(decoded[name].dtype) for name in names] == [
        "bool",
        "int64",
        "float64",
        "object",
        "datetime64[D]",
        "datetime64[us]",
    ]
    assert decoded["flag"].tolist() == [True, False]
    assert decoded["count"].tolist() == [2**63 - 1, -(2**63)]
    assert np.isnan(decoded["score"][0])
    assert np.signbit(decoded["score"][1])
    assert decoded["text"].tolist() == ["ä\0", ""]
    assert decoded["day"].tolist() == [datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]
    assert decoded["moment"].tolist() == [moment, datetime.datetime.max]


def test_nulls_are_held_where_the_numpy_type_can():
    batch = batch_of(
        [b"a", b"b"],
        text=pa.array([None, ""], pa.large_string()),
        day=pa.array([None, datetime.date(2020, 1, 1)]),
        moment=pa.array([datetime.datetime(2020, 1, 1), None], pa.timestamp("us")),
    )
    decoded = drt.array_decoder("u1", 1, metadata=["text", "day", "moment"])(batch)
    assert decoded["text"].tolist() == [None, ""]
    assert np.isnat(decoded["day"]).tolist() == [True, False]
    assert np.isnat(decoded["moment"]).tolist() == [False, True]


@pytest.mark.parametrize("kind", [pa.bool_(), pa.int64(), pa.float64()])
def test_nulls_are_refused_by_column_row_and_sample_where_it_cannot(kind):
    column = pa.array([None, 1, None, 0], pa.int64()).cast(kind)
    batch = batch_of([b"a", b"b", b"c", b"d"], label=column)
    with pytest.raises(drt.MetadataError, match=r"column 'label', row 0 of the batch .*sample_id 100"):
        drt.array_decoder("u1", 1, metadata=["label"])(batch)
    with pytest.raises(drt.MetadataError, match=r"column 'label', row 1 of the batch .*sample_id 102"):
        drt.array_decoder("u1", 1, metadata=["label"])(batch.slice(1))
    drt.array_decoder("u1", 1)(batch)


@pytest.mark.parametrize("wrong", [b"", b"1234567", b"123456789", b"1" * 16])
def test_a_payload_of_another_size_is_refused_by_sample_and_sizes(wrong):
    batch = batch_of([b"12345678", b"12345678", wrong, b"12345678"])
    expected = f"cache_id {2**62 + 1}, sample_id 102: a payload of 8 bytes expected .* found {len(wrong)} bytes"
    with pytest.raises(drt.MetadataError, match=expected):
        drt.array_decoder("<f4", 2)(batch)


def test_sizes_that_are_wrong_but_add_up_are_refused():
    with pytest.raises(drt.MetadataError, match="sample_id 100"):
        drt.array_decoder("u1", 2)(batch_of([b"1", b"123"]))


def test_a_missing_column_is_refused_and_the_others_are_listed():
    with pytest.raises(drt.ConfigError, match="no column 'labl'; its columns are cache_id, sample_id, label, data"):
        drt.array_decoder("u1", 1, metadata=["labl"])(batch_of([b"a"], label=pa.array([1])))


def test_a_payload_column_of_another_kind_is_refused():
    batch = pa.record_batch(
        {"cache_id": pa.array([1], pa.uint64()), "sample_id": pa.array([1], pa.uint64()), "data": pa.array(["a"])}
    )
    with pytest.raises(drt.ConfigError, match="column 'data' must be large_binary, got string"):
        drt.array_decoder("u1", 1)(batch)


@pytest.mark.parametrize(
    ("dtype", "shape", "metadata", "rule"),
    [
        (object, (1,), (), "dtype must hold no Python objects"),
        ([("a", object)], (1,), (), "dtype must hold no Python objects"),
        ("U", (1,), (), "dtype must have a size"),
        ("V0", (1,), (), "dtype must have a size"),
        ("float33", (1,), (), "dtype must be a NumPy dtype, got 'float33'"),
        ("u1", (-1,), (), "every length in shape must be at least 0, got (-1,)"),
        ("u1", -2, (), "every length in shape must be at least 0, got -2"),
        ("u1", (2.0,), (), "shape must be one or more integers, got (2.0,)"),
        ("u1", (True,), (), "shape must be one or more integers, got (True,)"),
        ("u1", "22", (), "shape must be one or more integers, got '22'"),
        ("u1", None, (), "shape must be one or more integers, got None"),
        ("u1", 1, "label", "metadata must be a sequence of column names, got 'label'"),
        ("u1", 1, None, "metadata must be a sequence of column names, got None"),
        ("u1", 1, [3], "metadata must hold column names, got 3"),
        ("u1", 1, ["data"], "metadata must name stored columns, got the reserved 'data'"),
        ("u1", 1, ["cache_id"], "metadata must name stored columns, got the reserved 'cache_id'"),
        ("u1", 1, ["a", "b", "a"], "metadata must name each column once, got 'a' twice"),
    ],
)
def test_bad_arguments_are_refused_by_rule_and_value(dtype, shape, metadata, rule):
    with pytest.raises(drt.ConfigError, match=re.escape(rule)):
        drt.array_decoder(dtype, shape, metadata=metadata)


@pytest.mark.parametrize("shape", [np.int64(3), [3], (np.uint8(3),), np.array([3])])
def test_lengths_may_be_numpy_integers_and_any_sequence(shape):
    assert drt.array_decoder("u1", shape)(batch_of([b"abc"]))["data"].shape == (1, 3)


def test_a_decoder_pickles_compares_and_prints():
    decode = drt.array_decoder(">i2", (2, 2), metadata=["label"])
    again = pickle.loads(pickle.dumps(decode))
    assert again == decode
    assert hash(again) == hash(decode)
    assert decode != drt.array_decoder("<i2", (2, 2), metadata=["label"])
    assert "(2, 2)" in repr(decode)
    values = arrays(2, (2, 2), ">i2")
    batch = batch_of(payloads_of(values), label=pa.array([1, 2]))
    np.testing.assert_array_equal(again(batch)["data"], values)
