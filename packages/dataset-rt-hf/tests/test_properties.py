"""Any schema, any rows: what comes out is what went in."""

import datetime
import decimal
import tempfile
from pathlib import Path

import datasets
import pyarrow as pa
import pytest
from datasets import Features, LargeList, List, Value
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dataset_rt as drt
import dataset_rt_hf as hf
from dataset_rt_hf.message import encode_rows, row_layout, storage_schema
from hf_rows import is_known, same

ORDERED = drt.ReaderConfig(shuffle=False)


def nullable(values: st.SearchStrategy) -> st.SearchStrategy:
    return st.none() | values


def integers(bits: int, *, signed: bool) -> st.SearchStrategy:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
LEAVES: list[tuple[object, st.SearchStrategy]] = [
    (Value("null"), st.none()),
    (Value("bool"), st.booleans()),
    *((Value(f"int{bits}"), integers(bits, signed=True)) for bits in (8, 16, 32, 64)),
    *((Value(f"uint{bits}"), integers(bits, signed=False)) for bits in (8, 16, 32, 64)),
    (Value("float32"), st.floats(width=32)),
    (Value("float64"), st.floats()),
    *((Value(dtype), TEXT) for dtype in ("string", "large_string", "string_view")),
    *((Value(dtype), st.binary(max_size=12)) for dtype in ("binary", "large_binary", "binary_view")),
    *((Value(dtype), st.binary(min_size=3, max_size=3)) for dtype in ("fixed_size_binary[3]",) if is_known(dtype)),
    (Value("decimal128(9, 2)"), st.decimals(-1_000, 1_000, places=2)),
    (Value("date32"), st.dates()),
    (Value("timestamp[us]"), st.datetimes(datetime.datetime(1700, 1, 1), datetime.datetime(2200, 1, 1))),
    (Value("duration[us]"), st.timedeltas(datetime.timedelta(-9), datetime.timedelta(9))),
    (Value("time64[us]"), st.times()),
]
NAMES = st.text("abcdeé .*^$%{}", min_size=1, max_size=4)


def extended(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Features and values that are made of others."""

    def lists(pair):
        feature, values = pair
        return st.sampled_from(
            [
                (List(feature), st.lists(nullable(values), max_size=4)),
                (LargeList(feature), st.lists(nullable(values), max_size=4)),
                (List(feature, length=2), st.lists(nullable(values), min_size=2, max_size=2)),
            ]
        )

    def structs(fields):
        return (
            {name: feature for name, (feature, _) in fields.items()},
            st.fixed_dictionaries({name: nullable(values) for name, (_, values) in fields.items()}),
        )

    return inner.flatmap(lists) | st.dictionaries(NAMES, inner, min_size=1, max_size=3).map(structs)


FEATURES = st.recursive(st.sampled_from(LEAVES), extended, max_leaves=5)


@st.composite
def tables(draw) -> tuple[Features, pa.Table]:
    columns = draw(st.dictionaries(NAMES, FEATURES, min_size=1, max_size=4))
    rows = draw(st.integers(1, 8))
    features = Features({name: feature for name, (feature, _) in columns.items()})
    arrays = []
    for name, (_, values) in columns.items():
        listed = draw(st.lists(nullable(values), min_size=rows, max_size=rows))
        arrays.append(pa.array(listed, features.arrow_schema.field(name).type))
    return features, pa.table(arrays, schema=features.arrow_schema)


@given(tables(), st.sampled_from(["auto", "arrow"]), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_any_rows_of_any_schema_come_back_exactly_from_any_view(table, codec, random):
    features, rows = table
    try:
        dataset = datasets.Dataset(datasets.table.InMemoryTable(rows), info=datasets.DatasetInfo(features=features))
        expected = list(dataset)
    except (ValueError, TypeError, pa.ArrowException, decimal.InvalidOperation):
        # What datasets itself cannot hold or show is not ours to keep.
        return
    columns = [
        name for name, feature in features.items() if getattr(feature, "dtype", "") in ("bool", "int8", "float64")
    ]
    order = [random.randrange(len(expected)) for _ in range(random.randint(1, 10))]
    view = dataset.select(order)
    with tempfile.TemporaryDirectory() as folder, drt.DatasetRuntime(num_workers=1) as runtime:
        cached = hf.import_dataset(
            view, runtime, Path(folder), reader_config=ORDERED, name="rows", codec=codec, metadata_columns=columns,
            writer_config=drt.WriterConfig(show_progress=False),
        ).unwrap()  # fmt: skip
        decode = hf.decoder(cached, media=True)
        assert same([decode(sample) for sample in cached], [expected[row] for row in order])
        assert same(decode.batch(cached.read_batch(range(len(order)))), view[:])
        assert same(list(hf.to_dataset(cached)), list(view))
        assert hf.to_dataset(cached).features == features


@given(tables(), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
def test_messages_are_valid_arrow_and_follow_from_the_row_alone(table, random):
    _, rows = table
    schema = storage_schema(rows.schema)
    layout = row_layout(schema)

    def encoded(some: pa.Table) -> list[bytes]:
        return [message for batch in some.to_batches() for message in encode_rows(batch, layout)]

    whole = encoded(rows)
    for message in whole:
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        assert batch.num_rows == 1
    start = random.randrange(len(rows))
    glued = pa.concat_tables([rows.slice(start), rows]).combine_chunks()
    assert encoded(glued) == whole[start:] + whole
    assert encoded(glued.slice(1, len(rows))) == (whole[start:] + whole)[1 : len(rows) + 1]


def test_the_generated_schemas_reach_every_leaf_and_every_way_of_nesting():
    found = set()

    def walk(feature):
        found.add(type(feature).__name__ if not isinstance(feature, Value) else feature.dtype)
        for child in feature.values() if isinstance(feature, dict) else [getattr(feature, "feature", None)]:
            if child is not None:
                walk(child)

    @given(FEATURES)
    @settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    def collect(pair):
        walk(pair[0])

    collect()
    assert {leaf.dtype for leaf, _ in LEAVES} | {"List", "LargeList", "dict"} <= found


@pytest.mark.parametrize("dtype", ["decimal32(3, 1)", "month_day_nano_interval"])
def test_what_datasets_refuses_cannot_be_reached(dtype):
    kind = pa.decimal32(3, 1) if dtype.startswith("decimal") else pa.month_day_nano_interval()
    with pytest.raises(ValueError, match="does not have a datasets dtype equivalent"):
        datasets.Dataset(datasets.table.InMemoryTable(pa.table({"a": pa.nulls(1, kind)})))
