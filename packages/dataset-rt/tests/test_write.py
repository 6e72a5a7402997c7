"""Writing caches: what is accepted, what is refused, and what lies on disk afterwards."""

import array
import collections
import datetime
import decimal
import hashlib
import json
import mmap
import random
import re
import types

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dataset_rt as drt

RANDOM = random.Random(20)
PAYLOADS = [
    b"",
    b"\0",
    b"a" * 10_000,
    RANDOM.randbytes(10_000),
    bytes(range(256)) * 40,
    RANDOM.randbytes(1),
    b"short",
]
CODECS = [
    {"algo": "none"},
    {"algo": "lz4"},
    {"algo": "zstd"},
    {"algo": "zstd", "level": -5},
    {"algo": "zstd", "level": 19},
]
UTC = datetime.timezone.utc


def samples(payloads=PAYLOADS):
    return [drt.CacheInput(payload, {"number": number}) for number, payload in enumerate(payloads)]


def shards(path):
    return sorted((path / "shards").iterdir())


def stored_frame(open_caches, path):
    return open_caches(path).get_metadata().drop("cache_id", "sample_id", "weight")


# --- What is written is read back


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_gives_the_payloads_back(cache_of, read_back, codec):
    path = cache_of("digits", samples(), shard_compression=codec)
    found = read_back(path)
    assert [sample.data for sample in found] == PAYLOADS
    assert [sample.sample_id for sample in found] == list(range(len(PAYLOADS)))
    assert [sample.metadata for sample in found] == [{"number": number} for number in range(len(PAYLOADS))]


@pytest.mark.parametrize("codec", CODECS[:3])
@pytest.mark.parametrize("bound", [1, 100, 10_016, 20_500, 2**63 - 1])
def test_shards_keep_their_size_or_hold_one_record(cache_of, read_back, codec, bound):
    path = cache_of("digits", samples(), shard_compression=codec, max_shard_bytes=bound)
    assert [sample.data for sample in read_back(path)] == PAYLOADS
    found = shards(path)
    assert [shard.name for shard in found] == [f"{number:06}.bin" for number in range(len(found))]
    if bound == 1:
        assert len(found) == len(PAYLOADS)
    if bound == 2**63 - 1:
        assert len(found) == 1
    longest = 16 + max(map(len, PAYLOADS))
    assert all(16 <= shard.stat().st_size <= max(bound, longest) for shard in found)


def test_plain_shards_hold_the_payloads_end_to_end(cache_of):
    path = cache_of("digits", samples())
    (shard,) = shards(path)
    assert shard.read_bytes()[16:] == b"".join(PAYLOADS)


def test_a_compressed_cache_is_smaller_and_one_of_noise_is_not_larger(cache_of, tmp_path):
    text, noise = [b"abc" * 5_000] * 3, [RANDOM.randbytes(5_000) for _ in range(3)]
    for algo in ("lz4", "zstd"):
        packed = cache_of("text", samples(text), tmp_path / algo, shard_compression={"algo": algo})
        assert shards(packed)[0].stat().st_size < 5_000
        plain = cache_of("noise", samples(noise), tmp_path / algo, shard_compression={"algo": algo})
        assert shards(plain)[0].stat().st_size == 16 + 3 * 5_000


@pytest.mark.parametrize("codec", CODECS)
def test_two_writes_of_one_source_give_the_same_bytes(cache_of, tree, tmp_path, table, codec):
    rows = table.to_dicts()
    first = cache_of("digits", rows, tmp_path / "first", shard_compression=codec, max_shard_bytes=40)
    second = cache_of("digits", rows, tmp_path / "second" / "deep", shard_compression=codec, max_shard_bytes=40)
    assert tree(first) == tree(second)
    assert len(tree(first)) > 3


def test_storage_choices_change_files_but_neither_identity_nor_order(cache_of, open_caches, tree, tmp_path):
    def written(folder, **fields):
        return cache_of("digits", samples(), tmp_path / folder, **fields)

    paths = [
        written("plain"),
        written("lz4", shard_compression={"algo": "lz4"}),
        written("zstd", shard_compression={"algo": "zstd"}),
        written("small shards", max_shard_bytes=1),
        written("other bounds", prefetch_size=1, prefetch_bytes=1),
    ]
    trees = [tree(path) for path in paths]
    assert trees[0] == trees[4]
    assert all(trees[first] != trees[second] for first in range(4) for second in range(first))
    datasets = [open_caches(path, shuffle=True, seed=3) for path in paths]
    assert len({dataset.caches["cache_id"].item() for dataset in datasets}) == 1
    assert len({tuple(sample.sample_id for sample in dataset) for dataset in datasets}) == 1


def test_identity_depends_on_name_payload_and_metadata(cache_of, open_caches, tmp_path):
    def identity(folder, name, items):
        return open_caches(cache_of(name, items, tmp_path / folder)).caches["cache_id"].item()

    base = [drt.CacheInput(b"a", {"x": 1}), drt.CacheInput(b"b", {"x": 2})]
    variants = [
        ("base", "digits", base),
        ("name", "digits2", base),
        ("payload", "digits", [base[0], drt.CacheInput(b"c", {"x": 2})]),
        ("value", "digits", [base[0], drt.CacheInput(b"b", {"x": 3})]),
        ("null", "digits", [base[0], drt.CacheInput(b"b", {"x": None})]),
        ("kind", "digits", [drt.CacheInput(b"a", {"x": 1.0}), drt.CacheInput(b"b", {"x": 2.0})]),
        ("column", "digits", [drt.CacheInput(b"a", {"y": 1}), drt.CacheInput(b"b", {"y": 2})]),
        ("order", "digits", base[::-1]),
        ("fewer", "digits", base[:1]),
    ]
    identities = [identity(*variant) for variant in variants]
    assert len(set(identities)) == len(variants)
    assert all(0 <= found < 2**63 for found in identities)


def test_the_content_digest_is_that_of_the_cache_and_needs_no_writing(runtime, cache_of, source_of, tmp_path, table):
    source = source_of("digits", table.to_dicts())
    digest = runtime.content_digest(source)
    assert re.fullmatch("[0-9a-f]{64}", digest)
    assert list(tmp_path.iterdir()) == []
    path = cache_of("digits", table.to_dicts(), shard_compression={"algo": "zstd"})
    manifest = json.loads((path / "manifest.json").read_bytes())
    assert manifest["content_digest"] == digest
    identity = int.from_bytes(bytes.fromhex(digest)[:8], "little") & (2**63 - 1)
    assert manifest["cache_id"] == f"{identity:016x}"
    assert runtime.content_digest(source_of("digits", table.to_dicts()[1:])) != digest


def test_a_source_that_cannot_be_cached_has_no_content_digest(runtime, source_of):
    with pytest.raises(drt.SourceError, match="digits"):
        runtime.content_digest(source_of("digits", [{"label": 1}, {"label": "one"}]))
    with pytest.raises(drt.SourceError, match="digits"):
        runtime.content_digest(source_of("digits", []))


def test_a_content_digest_is_of_one_source(runtime, source_of):
    first, second = source_of("digits", [{"x": 1}]), source_of("letters", [{"x": 1}])
    assert runtime.content_digest([first]) == runtime.content_digest(first)
    with pytest.raises(drt.ConfigError, match=r"source must be one source, got 2, \['digits', 'letters'\]"):
        runtime.content_digest([first, second])
    with pytest.raises(drt.ConfigError, match="at least one source, got none"):
        runtime.content_digest([])


def test_the_manifest_is_canonical_and_names_every_file(cache_of, tree, table):
    path = cache_of("digits", table.to_dicts(), max_shard_bytes=30)
    files = tree(path)
    text = files.pop("manifest.json")
    manifest = json.loads(text)
    canonical = json.dumps(manifest, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert text == canonical.encode()
    assert manifest["source_name"] == "digits"
    assert {name: record["bytes"] for name, record in manifest["files"].items()} == {
        name: len(content) for name, content in files.items()
    }


def test_pyarrow_opens_the_metadata(cache_of, table):
    path = cache_of("digits", table.to_dicts())
    with pa.ipc.open_file(path / "metadata.arrow") as reader:
        stored = reader.read_all()
    assert stored.schema == pa.schema(
        [
            ("flag", pa.bool_()),
            ("label", pa.int64()),
            ("score", pa.float64()),
            ("text", pa.large_string()),
            ("day", pa.date32()),
            ("moment", pa.timestamp("us")),
        ]
    )
    assert stored.schema.metadata is None
    assert pl.from_arrow(stored).equals(table)


def test_metadata_lies_in_batches_of_65536_rows(cache_of, open_caches):
    rows = 70_000
    path = cache_of("digits", [drt.CacheInput(b"", {"number": number}) for number in range(rows)])
    with pa.ipc.open_file(path / "metadata.arrow") as reader:
        assert [reader.get_batch(batch).num_rows for batch in range(reader.num_record_batches)] == [
            65_536,
            rows - 65_536,
        ]
    assert open_caches(path).get_metadata()["number"].to_list() == list(range(rows))


def test_samples_without_metadata_are_counted(cache_of, open_caches):
    path = cache_of("digits", [drt.CacheInput(b"a", {}), drt.CacheInput(b"b", {})])
    dataset = open_caches(path)
    assert dataset.get_metadata().columns == ["cache_id", "sample_id", "weight"]
    assert [(sample.data, sample.metadata) for sample in dataset] == [(b"a", {}), (b"b", {})]


# --- Payloads


def test_a_source_may_refill_one_buffer(write, read_back):
    class Refilling:
        name = "refilling"

        def __init__(self, view):
            self.view = view

        def __iter__(self):
            buffer = bytearray(8)
            for number in range(100):
                buffer[:] = number.to_bytes(8, "big")
                yield drt.CacheInput(memoryview(buffer) if self.view else buffer, {})

    expected = [number.to_bytes(8, "big") for number in range(100)]
    for view in (False, True):
        source = Refilling(view)
        source.name = f"refilling_{view}"
        assert [sample.data for sample in read_back(write(source).path)] == expected


GRID = np.arange(24, dtype="<u2").reshape(2, 3, 4)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"abc", b"abc"),
        (bytearray(b"abc"), b"abc"),
        (memoryview(b"abcdef"), b"abcdef"),
        (memoryview(b"abcdef")[::2], b"ace"),
        (memoryview(b"abcdef")[::-1], b"fedcba"),
        (memoryview(b"abcdef")[2:2], b""),
        (memoryview(GRID), GRID.tobytes()),
        (memoryview(np.asfortranarray(GRID)), GRID.tobytes()),
        (memoryview(GRID[:, ::2, ::-1]), GRID[:, ::2, ::-1].tobytes()),
        (memoryview(GRID.T), GRID.T.tobytes()),
        (GRID, GRID.tobytes()),
        (array.array("I", [1, 2]), array.array("I", [1, 2]).tobytes()),
        (np.float64(1.5), np.float64(1.5).tobytes()),
        (pa.py_buffer(b"arrow"), b"arrow"),
    ],
)
def test_whatever_has_a_buffer_is_a_payload_in_c_order(cache_of, read_back, data, expected):
    (sample,) = read_back(cache_of("digits", [drt.CacheInput(data, {})]))
    assert sample.data == expected
    assert type(sample.data) is bytes


def test_a_mapped_file_is_a_payload(cache_of, read_back, tmp_path):
    (tmp_path / "mapped").write_bytes(b"mapped bytes")
    with (tmp_path / "mapped").open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        path = cache_of("digits", [drt.CacheInput(mapped, {})])
    assert [sample.data for sample in read_back(path)] == [b"mapped bytes"]


# --- Metadata


NUMPY = [
    (np.True_, pl.Boolean, True),
    (np.int8(-5), pl.Int64, -5),
    (np.int16(-5), pl.Int64, -5),
    (np.int32(-5), pl.Int64, -5),
    (np.int64(-(2**63)), pl.Int64, -(2**63)),
    (np.uint8(255), pl.Int64, 255),
    (np.uint16(5), pl.Int64, 5),
    (np.uint32(5), pl.Int64, 5),
    (np.uint64(2**63 - 1), pl.Int64, 2**63 - 1),
    (np.float16(0.5), pl.Float64, 0.5),
    (np.float32(0.1), pl.Float64, float(np.float32(0.1))),
    (np.float64(0.1), pl.Float64, 0.1),
    (np.str_("text"), pl.String, "text"),
    (np.datetime64("2020-02-29"), pl.Date, datetime.date(2020, 2, 29)),
    (np.datetime64("2020-02-29T12", "h"), pl.Datetime("us"), datetime.datetime(2020, 2, 29, 12)),
    (np.datetime64("2020-02-29T12:30", "m"), pl.Datetime("us"), datetime.datetime(2020, 2, 29, 12, 30)),
    (np.datetime64(-1, "s"), pl.Datetime("us"), datetime.datetime(1969, 12, 31, 23, 59, 59)),
    (np.datetime64(1, "ms"), pl.Datetime("us"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1000)),
    (np.datetime64(1, "us"), pl.Datetime("us"), datetime.datetime(1970, 1, 1, 0, 0, 0, 1)),
    (np.datetime64(-7000, "ns"), pl.Datetime("us"), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_993)),
]


@pytest.mark.parametrize(("value", "dtype", "expected"), NUMPY, ids=lambda value: repr(value))
def test_numpy_scalars_are_taken_as_their_python_kind(cache_of, open_caches, value, dtype, expected):
    dataset = open_caches(cache_of("digits", [{"field": value}]))
    assert dataset.get_metadata().schema["field"] == dtype
    (sample,) = dataset
    assert sample.metadata["field"] == expected
    assert type(sample.metadata["field"]) is type(expected)


def test_every_kind_comes_back_as_it_was(cache_of, open_caches, table):
    path = cache_of("digits", table.to_dicts())
    assert stored_frame(open_caches, path).equals(table)
    assert stored_frame(open_caches, path).schema == table.schema
    for sample, row in zip(open_caches(path), table.iter_rows(named=True), strict=True):
        assert list(sample.metadata) == table.columns
        assert repr(sample.metadata) == repr(row)


@pytest.mark.parametrize(
    "value",
    [
        -0.0, 5e-324, 1.7976931348623157e308, float("-inf"), "", "\0", "a\0b", "😀", "x" * 100_000,
        datetime.date.min, datetime.date.max, datetime.datetime.min, datetime.datetime.max,
    ],
    ids=lambda value: repr(value)[:30],
)  # fmt: skip
def test_the_ends_of_each_range_come_back(cache_of, read_back, value):
    (sample,) = read_back(cache_of("digits", [{"field": value}]))
    assert repr(sample.metadata["field"]) == repr(value)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([None, None, "a"], pl.String),
        ([None, 3, None], pl.Int64),
        ([None, 0.5, 3], pl.Float64),
        ([None, False], pl.Boolean),
        ([None, datetime.date(2020, 1, 1)], pl.Date),
        ([None, datetime.datetime(2020, 1, 1)], pl.Datetime("us")),
        ([None, None], pl.String),
        ([None] * 20_000 + ["late"], pl.String),
        ([None] * 70_000 + [1], pl.Int64),
    ],
    ids=lambda value: str(value)[:30],
)
def test_the_first_value_that_is_not_null_fixes_the_kind(cache_of, open_caches, values, dtype):
    column = stored_frame(open_caches, cache_of("digits", [{"field": value} for value in values]))["field"]
    assert column.dtype == dtype
    assert column.to_list() == values


def test_integers_in_a_float_column_are_taken_while_they_are_exact(cache_of, open_caches):
    values = [0.5, 3, 2**53, -(2**53), 2**62, 2**53 + 2, np.int32(7), None]
    column = stored_frame(open_caches, cache_of("digits", [{"field": value} for value in values]))["field"]
    assert column.dtype == pl.Float64
    assert column.to_list() == [None if value is None else float(value) for value in values]


def test_columns_keep_the_order_of_the_first_sample(cache_of, open_caches):
    path = cache_of("digits", [{"zebra": 1, "ant": 2, "Mole": 3}])
    assert stored_frame(open_caches, path).columns == ["zebra", "ant", "Mole"]


def test_any_mapping_is_metadata(cache_of, read_back):
    items = [
        drt.CacheInput(b"", types.MappingProxyType({"field": 1})),
        drt.CacheInput(b"", collections.OrderedDict(field=2)),
        drt.CacheInput(b"", collections.ChainMap({"field": 3})),
    ]
    assert [sample.metadata["field"] for sample in read_back(cache_of("digits", items))] == [1, 2, 3]


def test_one_dict_may_be_refilled_for_every_sample(write, read_back):
    class Refilling:
        name = "refilling"

        def __iter__(self):
            metadata = {}
            for number in range(50):
                metadata["number"] = number
                yield drt.CacheInput(b"", metadata)

    assert [sample.metadata["number"] for sample in read_back(write(Refilling()).path)] == list(range(50))


AWARE = datetime.datetime(2020, 1, 1, tzinfo=UTC)
DAY, MOMENT = datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1)
REFUSED_VALUES = [
    # In a column of its own: values of no kind.
    *[
        ([value], 0)
        for value in (
            [1], (1,), {"a": 1}, {1}, b"bytes", bytearray(b"a"), 1j, decimal.Decimal(1), object(), int, np.array([1]),
            np.complex64(1), np.bytes_(b"a"), np.timedelta64(1, "s"), datetime.time(1), datetime.timedelta(1),
        )
    ],
    # Outside the range of its kind.
    *[([value], 0) for value in (2**63, -(2**63) - 1, np.uint64(2**63), 2**200)],
    *[([value], 0) for value in (AWARE, np.datetime64(1, "ns"), np.datetime64(-1, "ps"), np.datetime64(2**62, "s"))],
    *[([value], 0) for value in ("\ud800", "a\udfffb")],
    # Another kind than the column's.
    ([1, None, 1.0], 2),
    ([1, True], 1),
    ([1, "1"], 1),
    ([1, np.float64(1)], 1),
    ([0, np.False_], 1),
    ([True, 1], 1),
    ([True, None, None, np.int8(0)], 3),
    (["1", 1], 1),
    (["1", True], 1),
    (["1", DAY], 1),
    ([0.5, True], 1),
    ([0.5, "0.5"], 1),
    ([0.5, 2**53 + 1], 1),
    ([0.5, 2**70 + 1], 1),
    ([0.5, np.int64(-(2**53) - 1)], 1),
    ([DAY, MOMENT], 1),
    ([MOMENT, DAY], 1),
    ([MOMENT, 5], 1),
    ([DAY, "2020-01-01"], 1),
    ([MOMENT, AWARE], 1),
]  # fmt: skip


@pytest.mark.parametrize(("values", "sample"), REFUSED_VALUES, ids=lambda value: repr(value)[:40])
def test_a_value_of_the_wrong_kind_is_refused_by_source_sample_and_field(
    write, source_of, nothing_left, tmp_path, values, sample
):
    result = write(source_of("digits", [{"fine": 1, "field": value} for value in values]))
    assert isinstance(result, drt.CacheWriteError)
    assert isinstance(result.error, drt.SourceError)
    assert (result.error.source_name, result.error.sample, result.error.field) == ("digits", sample, "field")
    assert result.message == str(result.error)
    for part in ("digits", f"sample {sample}", "field", "expected", "got"):
        assert part in result.message
    nothing_left(tmp_path / "caches")


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([2**63], str(2**63)),
        ([1, 1.5], "float"),
        ([1, True], "bool"),
        ([DAY, MOMENT], "datetime"),
        ([[1]], "list"),
        ([0.5, 2**53 + 1], str(2**53 + 1)),
    ],
)
def test_a_refusal_says_what_came(write, source_of, values, found):
    assert found in write(source_of("digits", [{"field": value} for value in values])).message


@pytest.mark.parametrize("name", ["cache_id", "sample_id", "weight", "data"])
def test_reserved_names_are_refused(write, source_of, name):
    result = write(source_of("digits", [{name: 1}]))
    assert isinstance(result.error, drt.SourceError)
    assert result.error.field == name
    assert f"{name}" in result.message
    assert "reserved" in result.message


@pytest.mark.parametrize(
    ("rows", "sample", "names"),
    [
        ([{"a": 1}, {}], 1, ["a"]),
        ([{"a": 1}, {"a": 1}, {"a": 1, "b": 2}], 2, ["b"]),
        ([{"a": 1}, {"b": 1}], 1, ["a"]),
        ([{}, {"a": 1}], 1, ["a"]),
    ],
)
def test_samples_with_other_columns_are_refused(write, source_of, rows, sample, names):
    result = write(source_of("digits", [drt.CacheInput(b"", row) for row in rows]))
    assert isinstance(result.error, drt.SourceError)
    assert result.error.sample == sample
    for name in names:
        assert repr(name) in result.message or f'"{name}"' in result.message


@pytest.mark.parametrize("key", [1, None, b"a", ("a",), "\ud800"])
def test_column_names_that_are_no_text_are_refused(write, source_of, key):
    result = write(source_of("digits", [drt.CacheInput(b"", {key: 1})]))
    assert isinstance(result.error, drt.SourceError)
    assert (result.error.source_name, result.error.sample) == ("digits", 0)


@pytest.mark.parametrize("data", ["text", None, 5, 1.5, [1, 2], object(), {"a": 1}], ids=repr)
def test_a_payload_that_is_no_bytes_is_refused(write, source_of, nothing_left, tmp_path, data):
    result = write(source_of("digits", [drt.CacheInput(b"fine", {}), drt.CacheInput(data, {})]))
    assert isinstance(result.error, drt.SourceError)
    assert (result.error.source_name, result.error.sample, result.error.field) == ("digits", 1, "data")
    assert type(data).__name__ in result.message
    nothing_left(tmp_path / "caches")


@pytest.mark.parametrize("metadata", [None, [("a", 1)], "text", 5], ids=repr)
def test_metadata_that_is_no_mapping_is_refused(write, source_of, metadata):
    result = write(source_of("digits", [drt.CacheInput(b"", metadata)]))
    assert isinstance(result.error, drt.SourceError)
    assert (result.error.source_name, result.error.sample) == ("digits", 0)
    assert type(metadata).__name__ in result.message


@pytest.mark.parametrize("item", [None, b"bytes", 5, "text", {"data": b"", "metadata": {}}, drt.CacheInput], ids=repr)
def test_an_item_that_is_no_input_is_refused(write, source_of, item):
    result = write(source_of("digits", [drt.CacheInput(b"", {}), item]))
    assert isinstance(result.error, drt.SourceError)
    assert (result.error.source_name, result.error.sample) == ("digits", 1)
    assert "CacheInput" in result.message


# --- metadata_schema and attributes


def test_a_schema_fixes_kinds_beforehand(write, source_of, open_caches):
    schema = pl.Schema(
        {
            "flag": pl.Boolean, "count": pl.Int64, "score": pl.Float64, "text": pl.String, "day": pl.Date,
            "moment": pl.Datetime("us"),
        }
    )  # fmt: skip
    rows = [dict.fromkeys(schema), {**dict.fromkeys(schema), "score": 3}]
    result = write(source_of("digits", rows, metadata_schema=schema))
    frame = stored_frame(open_caches, result.path)
    assert frame.schema == schema
    assert frame["score"].to_list() == [None, 3.0]


def test_a_value_against_the_schema_is_refused(write, source_of):
    result = write(source_of("digits", [{"count": 0.5}], metadata_schema=pl.Schema({"count": pl.Int64})))
    assert isinstance(result.error, drt.SourceError)
    assert (result.error.sample, result.error.field) == (0, "count")


@pytest.mark.parametrize(
    "dtype", [pl.Int32, pl.Float32, pl.List(pl.Int64), pl.Datetime("ns"), pl.Datetime("us", "UTC")]
)
def test_a_schema_of_another_kind_is_refused(write, source_of, nothing_left, tmp_path, dtype):
    result = write(source_of("digits", [{"field": None}], metadata_schema=pl.Schema({"field": dtype})))
    assert isinstance(result.error, drt.DatasetRTError)
    assert "field" in result.message
    nothing_left(tmp_path / "caches")


@pytest.mark.parametrize("row", [{"a": 1}, {"a": 1, "b": 2, "c": 3}, {"a": 1, "c": 2}])
def test_samples_must_have_the_schema_s_columns(write, source_of, row):
    schema = pl.Schema({"a": pl.Int64, "b": pl.Int64})
    result = write(source_of("digits", [row], metadata_schema=schema))
    assert isinstance(result.error, drt.SourceError)
    assert result.error.sample == 0


def test_attributes_come_back_and_play_no_part_in_the_identity(write, source_of, open_caches, tree, tmp_path):
    attributes = {"licence": "CC-BY 4.0", "ä": '\u2028"\\\n', "empty": ""}
    plain = write(source_of("digits", [{"label": 1}]), tmp_path / "plain").path
    described = write(source_of("digits", [{"label": 1}], attributes=attributes), tmp_path / "described").path
    assert tree(plain) != tree(described)
    assert json.loads((described / "manifest.json").read_bytes())["attributes"] == attributes
    first, second = open_caches(plain), open_caches(described)
    assert first.caches["cache_id"].item() == second.caches["cache_id"].item()
    assert "CC-BY 4.0" in str(second.caches["attributes"].to_list())
    assert "CC-BY 4.0" not in str(first.caches["attributes"].to_list())


@pytest.mark.parametrize("attributes", [{"a": 1}, {1: "a"}, "text", [("a", "b")], {"a": None}, {"a": "\ud800"}])
def test_attributes_that_are_no_text_are_refused(write, source_of, nothing_left, tmp_path, attributes):
    result = write(source_of("digits", [{"label": 1}], attributes=attributes))
    assert isinstance(result.error, drt.DatasetRTError)
    assert "attributes" in result.message
    nothing_left(tmp_path / "caches")


# --- Broken samples


def test_skipping_leaves_broken_samples_out_and_keeps_ids_dense(write, source_of, read_back):
    items = [
        drt.CacheInput("no bytes", {"label": 0}),
        drt.CacheInput(b"first", {"label": 1}),
        drt.SkippedInput("the file was torn"),
        drt.CacheInput(b"wrong kind", {"label": "two"}),
        drt.CacheInput(b"second", {"label": 2}),
        drt.CacheInput(b"no column", {}),
        drt.CacheInput(b"third", {"label": None}),
    ]
    result = write(source_of("digits", items), on_error="skip")
    assert isinstance(result, drt.CacheWriteSuccess)
    assert (result.samples, result.skipped) == (3, 4)
    found = read_back(result.path)
    assert [(sample.sample_id, sample.data) for sample in found] == [(0, b"first"), (1, b"second"), (2, b"third")]
    assert len(result.first_errors) == 4
    for text, sample, part in zip(result.first_errors, (0, 2, 3, 5), ("data", "torn", "label", "label"), strict=True):
        assert part in text
        assert str(sample) in text


def test_a_skipped_sample_fixes_no_column_and_no_kind(write, source_of, open_caches):
    items = [
        drt.CacheInput(b"", {"a": 1, "b": [1]}),
        drt.CacheInput("no bytes", {"other": 1}),
        drt.CacheInput(b"", {"a": "text", "b": 2}),
    ]
    result = write(source_of("digits", items), on_error="skip")
    assert result.skipped == 2
    assert stored_frame(open_caches, result.path).schema == {"a": pl.String, "b": pl.Int64}


def test_skipped_samples_change_nothing_of_the_cache(write, source_of, tree, tmp_path):
    fine = [drt.CacheInput(b"a", {"x": 1}), drt.CacheInput(b"b", {"x": 2})]
    broken = [drt.SkippedInput("torn"), fine[0], drt.CacheInput(b"", {"x": []}), fine[1], drt.SkippedInput("torn")]
    first = write(source_of("digits", fine), tmp_path / "first")
    second = write(source_of("digits", broken), tmp_path / "second", on_error="skip")
    assert tree(first.path) == tree(second.path)


def test_only_the_first_few_reasons_are_kept(write, source_of):
    items = [drt.CacheInput(b"", {}), *[drt.SkippedInput(f"reason {number}") for number in range(1_000)]]
    result = write(source_of("digits", items), on_error="skip")
    assert result.skipped == 1_000
    assert 1 <= len(result.first_errors) < 100
    assert "reason 0" in result.first_errors[0]


def test_a_skipped_input_fails_its_source_unless_skipping_is_asked_for(write, source_of, nothing_left, tmp_path):
    result = write(source_of("digits", [drt.CacheInput(b"", {}), drt.SkippedInput("torn file")]))
    assert isinstance(result.error, drt.SourceError)
    assert result.error.sample == 1
    assert "torn file" in result.message
    nothing_left(tmp_path / "caches")


def test_a_source_of_which_everything_is_skipped_is_empty(write, source_of, nothing_left, tmp_path):
    result = write(source_of("digits", [drt.SkippedInput("torn file")] * 3), on_error="skip")
    assert isinstance(result.error, drt.SourceError)
    assert result.skipped == 3
    assert "3 that were all left out" in result.message
    assert result.first_errors[0] == "sample 0: torn file"
    nothing_left(tmp_path / "caches")


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_generator_that_raises_half_way_fails_its_source(write, source_of, nothing_left, tmp_path, on_error):
    boom = RuntimeError("the decoder died")
    items = [drt.CacheInput(b"", {"x": number}) for number in range(500)]
    result = write(source_of("digits", [*items, boom]), on_error=on_error)
    assert isinstance(result, drt.CacheWriteError)
    assert boom in (result.error, result.error.__cause__)
    assert "digits" in result.message
    assert "the decoder died" in result.message
    nothing_left(tmp_path / "caches")


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_an_iterator_that_is_used_up_is_an_error(write, nothing_left, tmp_path, on_error):
    class Once:
        def __init__(self, name, items):
            self.name = name
            self.items = items

        def __iter__(self):
            return self.items

    items = iter([drt.CacheInput(b"a", {})])
    assert isinstance(write(Once("first", items)), drt.CacheWriteSuccess)
    result = write(Once("second", items), on_error=on_error)
    assert isinstance(result.error, drt.SourceError)
    assert result.error.source_name == "second"
    assert "used up" in result.message or "no sample" in result.message
    nothing_left(tmp_path / "caches", "first")


@pytest.mark.parametrize("signal", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_never_a_result(write, source_of, nothing_left, tmp_path, signal):
    with pytest.raises(signal):
        write(source_of("digits", [drt.CacheInput(b"a", {}), signal()]))
    nothing_left(tmp_path / "caches")


# --- Names


@pytest.mark.parametrize(
    "name",
    [
        "", ".", "..", ".hidden", "a.", "a ", "a/b", "/a", "a\\b", "a\0b", "a\nb", "\x7f", "x" * 201, "ä" * 101,
        "a\u0308", "\ud800", None, 5, b"bytes",
    ],
    ids=lambda name: repr(name)[:20],
)  # fmt: skip
def test_a_name_that_is_no_safe_path_segment_is_refused(write, source_of, nothing_left, tmp_path, name):
    try:
        result = write(source_of(name, [{"label": 1}]))
    except drt.DatasetRTError as error:
        message = str(error)
    else:
        assert isinstance(result.error, drt.DatasetRTError)
        message = result.message
    assert "name" in message
    nothing_left(tmp_path / "caches")


@pytest.mark.parametrize(
    "name", ["a", "x" * 200, "ä" * 100, "with space", "a.b", "日本語", "-rf", "CON", "~", "%2F", "😀"]
)
def test_other_names_are_folders_of_that_name(cache_of, open_caches, tmp_path, name):
    path = cache_of(name, [{"label": 1}])
    assert path == tmp_path / "caches" / name
    assert open_caches(path).caches["name"].to_list() == [name]


def test_something_without_a_name_or_an_iterator_is_no_source(write, tmp_path):
    class Nameless:
        def __iter__(self):
            return iter([drt.CacheInput(b"a", {})])

    class Plain:
        name = "plain"

    for other in (Nameless(), Plain(), 5, None):
        try:
            result = write(other)
        except (drt.DatasetRTError, TypeError):
            continue
        assert isinstance(result, drt.CacheWriteError), other


# --- Several sources, several writes


def test_a_cache_that_is_there_already_is_never_overwritten(write, source_of, tree):
    first = write(source_of("digits", [{"label": 1}]))
    before = tree(first.path)
    again = source_of("digits", [{"label": 2}])
    result = write(again)
    assert isinstance(result, drt.CacheWriteError)
    assert isinstance(result.error, drt.CacheExistsError)
    assert result.error.path == first.path
    assert str(first.path) in result.message
    assert again.iterations == 0
    assert tree(first.path) == before


def test_one_failing_source_does_not_stop_the_others(runtime, source_of, nothing_left, tmp_path):
    sources = [
        source_of("first", [{"label": 1}]),
        source_of("broken", [{"label": 1}, {"label": "one"}]),
        source_of("raises", [ValueError("no such file")]),
        source_of("empty", []),
        source_of("last", [{"label": 2}]),
    ]
    results = runtime.write_cache(sources, tmp_path, writer_config=drt.WriterConfig(show_progress=False))
    assert [result.source_name for result in results] == ["first", "broken", "raises", "empty", "last"]
    assert [isinstance(result, drt.CacheWriteSuccess) for result in results] == [True, False, False, False, True]
    assert results[0].path == tmp_path / "first"
    assert results[0].samples == 1
    assert not results[0].reused
    nothing_left(tmp_path, "first", "last")


def test_one_source_or_a_list_of_them_gives_a_list(runtime, source_of, tmp_path):
    config = drt.WriterConfig(show_progress=False)
    assert len(runtime.write_cache(source_of("a", [{"x": 1}]), tmp_path, writer_config=config)) == 1
    assert len(runtime.write_cache([source_of("b", [{"x": 1}])], tmp_path, writer_config=config)) == 1
    assert len(runtime.write_cache((source_of("c", [{"x": 1}]), source_of("d", [{"x": 1}])), str(tmp_path))) == 2


def test_a_name_twice_in_one_call_is_refused_before_anything_is_written(runtime, source_of, nothing_left, tmp_path):
    sources = [source_of("one", [{"x": 1}]), source_of("two", [{"x": 1}]), source_of("one", [{"x": 2}])]
    with pytest.raises(drt.ConfigError, match="one"):
        runtime.write_cache(sources, tmp_path / "caches")
    with pytest.raises(drt.ConfigError, match="one"):
        runtime.from_cache_sources(sources, tmp_path / "caches", reader_config=drt.ReaderConfig())
    assert [source.iterations for source in sources] == [0, 0, 0]
    nothing_left(tmp_path / "caches")


def test_a_root_that_is_a_file_is_an_error_of_the_system(write, source_of, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    result = write(source_of("digits", [{"x": 1}]), tmp_path / "file")
    assert isinstance(result.error, drt.CacheIOError)
    assert isinstance(result.error, OSError)
    assert str(tmp_path / "file") in result.message


def test_a_folder_that_is_no_cache_is_left_alone(write, source_of, tmp_path):
    foreign = tmp_path / "caches" / "digits"
    foreign.mkdir(parents=True)
    (foreign / "notes.txt").write_text("mine")
    result = write(source_of("digits", [{"x": 1}]))
    assert isinstance(result, drt.CacheWriteError)
    assert [entry.name for entry in foreign.iterdir()] == ["notes.txt"]
    assert (foreign / "notes.txt").read_text() == "mine"


@pytest.mark.parametrize("config", [None, {}, "fast", drt.ReaderConfig()])
def test_a_writer_configuration_of_another_type_is_refused(runtime, source_of, tmp_path, config):
    source = source_of("digits", [{"x": 1}])
    with pytest.raises((drt.ConfigError, TypeError), match="writer_config"):
        runtime.write_cache(source, tmp_path, writer_config=config)
    assert source.iterations == 0


# --- from_cache_sources


READER = drt.ReaderConfig(shuffle=False)


def test_complete_caches_are_reused_without_iterating_the_source(runtime, source_of, tree, tmp_path):
    first = source_of("digits", [{"label": 1}])
    made = runtime.from_cache_sources(first, tmp_path, reader_config=READER)
    assert isinstance(made, drt.CacheSourcesDatasetSuccess)
    assert [result.reused for result in made.results] == [False]
    before = tree(tmp_path)
    # Another content under the same name: reuse goes by the name alone.
    again, new = source_of("digits", [{"label": 2}]), source_of("new", [{"label": 3}])
    made = runtime.from_cache_sources([again, new], tmp_path, reader_config=READER)
    assert [(result.source_name, result.reused, result.samples) for result in made.results] == [
        ("digits", True, 1),
        ("new", False, 1),
    ]
    assert (first.iterations, again.iterations, new.iterations) == (1, 0, 1)
    assert [sample.metadata["label"] for sample in made.unwrap()] == [1, 3]
    assert {name: tree(tmp_path)[name] for name in before} == before


def test_a_failed_source_makes_an_error_and_finished_caches_stay(runtime, source_of, nothing_left, tmp_path):
    fine, broken = source_of("fine", [{"x": 1}]), source_of("broken", [{"x": 1}, {"x": "one"}])
    made = runtime.from_cache_sources([fine, broken], tmp_path, reader_config=READER)
    assert isinstance(made, drt.CacheSourcesDatasetError)
    assert [type(result) for result in made.results] == [drt.CacheWriteSuccess, drt.CacheWriteError]
    assert "broken" in made.message
    with pytest.raises(drt.SourceError, match="broken") as raised:
        made.unwrap()
    assert raised.value is made.results[1].error
    nothing_left(tmp_path, "fine")
    repaired = source_of("broken", [{"x": 1}])
    made = runtime.from_cache_sources([fine, repaired], tmp_path, reader_config=READER)
    assert [result.reused for result in made.results] == [True, False]
    assert fine.iterations == 1


def test_partial_success_loads_what_there_is_when_asked(runtime, source_of, tmp_path):
    sources = [source_of("broken", [{"x": []}]), source_of("fine", [{"x": 1}, {"x": 2}])]
    made = runtime.from_cache_sources(sources, tmp_path, reader_config=READER, allow_partial=True)
    assert isinstance(made, drt.CacheSourcesDatasetSuccess)
    assert [type(result) for result in made.results] == [drt.CacheWriteError, drt.CacheWriteSuccess]
    assert [sample.metadata["x"] for sample in made.unwrap()] == [1, 2]


def test_partial_success_without_any_success_is_an_error(runtime, source_of, tmp_path):
    made = runtime.from_cache_sources(
        source_of("broken", [{"x": []}]), tmp_path, reader_config=READER, allow_partial=True
    )
    assert isinstance(made, drt.CacheSourcesDatasetError)


def test_a_corrupt_cache_is_reported_and_not_replaced(runtime, source_of, tmp_path):
    source = source_of("digits", [{"x": 1}])
    runtime.from_cache_sources(source, tmp_path, reader_config=READER).unwrap()
    manifest = tmp_path / "digits" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-1])
    made = runtime.from_cache_sources(source, tmp_path, reader_config=READER)
    assert isinstance(made, drt.CacheSourcesDatasetError)
    with pytest.raises(drt.CacheCorruptError, match=r"manifest\.json"):
        made.unwrap()
    assert source.iterations == 1


def test_progress_switched_off_prints_nothing(cache_of, capfd):
    cache_of("digits", [{"x": number} for number in range(1_000)])
    assert capfd.readouterr() == ("", "")


def test_progress_prints_nothing_where_standard_error_is_no_terminal(cache_of, capfd):
    cache_of("digits", [{"x": number} for number in range(1_000)], show_progress=True)
    assert capfd.readouterr() == ("", "")


def test_written_caches_are_read_again_when_asked(cache_of, read_back):
    path = cache_of("digits", samples(), validate_cache=True, shard_compression={"algo": "lz4"})
    assert [sample.data for sample in read_back(path)] == PAYLOADS


def test_many_samples_pass_through_small_queues(cache_of, read_back):
    payloads = [hashlib.sha256(number.to_bytes(4, "big")).digest() * (number % 7) for number in range(3_000)]
    path = cache_of("digits", samples(payloads), prefetch_size=1, prefetch_bytes=1, max_shard_bytes=5_000)
    assert [sample.data for sample in read_back(path)] == payloads
