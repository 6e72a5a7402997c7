"""Which columns become the metadata table, and as what."""

import datetime

import datasets
import polars as pl
import pyarrow as pa
import pytest
from datasets import ClassLabel, Features, List, Value

import dataset_rt as drt
import dataset_rt_hf as hf

OWN = ["cache_id", "sample_id", "weight"]


def typed(dtype: str, values: list) -> datasets.Dataset:
    table = pa.table({"value": pa.array(values, Value(dtype).pa_type)})
    return datasets.Dataset(datasets.table.InMemoryTable(table))


def stored(cached: drt.CachedDataset) -> pl.DataFrame:
    return cached.get_metadata().drop(OWN)


def test_numbers_bools_short_strings_dates_timestamps_and_labels_are_columns_and_nothing_else_is(importer):
    names = {
        "bool": Value("bool"),
        "int": Value("int8"),
        "float": Value("float16"),
        "string": Value("string"),
        "date": Value("date32"),
        "moment": Value("timestamp[ms]"),
        "label": ClassLabel(names=["a"]),
        "unsigned": Value("uint64"),
        "bytes": Value("binary"),
        "time": Value("time32[s]"),
        "duration": Value("duration[s]"),
        "decimal": Value("decimal128(3, 1)"),
        "null": Value("null"),
        "list": List(Value("int64")),
        "struct": {"a": Value("int64")},
        "array": datasets.Array2D((1, 1), "int8"),
    }
    features = Features(names)
    dataset = datasets.Dataset.from_list([dict.fromkeys(features)] * 2, features=features)
    frame = stored(importer(dataset))
    assert dict(frame.schema) == {
        "bool": pl.Boolean(),
        "int": pl.Int64(),
        "float": pl.Float64(),
        "string": pl.String(),
        "date": pl.Date(),
        "moment": pl.Datetime("us"),
        "label": pl.Int64(),
    }
    assert frame.null_count().row(0) == (2,) * 7


@pytest.mark.parametrize(
    ("dtype", "values", "expected"),
    [
        ("bool", [True, None, False], [True, None, False]),
        ("int8", [-128, None, 127], [-128, None, 127]),
        ("uint32", [2**32 - 1, None], [2**32 - 1, None]),
        ("int64", [-(2**63), 2**63 - 1, None], [-(2**63), 2**63 - 1, None]),
        ("float32", [0.1, None, float("inf")], [0.10000000149011612, None, float("inf")]),
        ("string", ["", None, "ä" * 32], ["", None, "ä" * 32]),
        ("large_string", ["a", None], ["a", None]),
        ("string_view", ["a", None], ["a", None]),
        ("date32", [datetime.date(2024, 2, 29), None], [datetime.date(2024, 2, 29), None]),
        ("date64", [datetime.date(1969, 12, 31), None], [datetime.date(1969, 12, 31), None]),
        ("timestamp[s]", [-1, None], [datetime.datetime(1969, 12, 31, 23, 59, 59), None]),
        ("timestamp[us]", [1, None], [datetime.datetime(1970, 1, 1, 0, 0, 0, 1), None]),
        # Floored, not cut off towards 1970.
        (
            "timestamp[ns]",
            [1_999, -1, None],
            [datetime.datetime(1970, 1, 1, 0, 0, 0, 1), datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999), None],
        ),
        # In UTC, without the zone.
        ("timestamp[us, tz=Asia/Tokyo]", [0, None], [datetime.datetime(1970, 1, 1), None]),
        ("timestamp[ns, tz=Europe/Berlin]", [999, None], [datetime.datetime(1970, 1, 1), None]),
    ],
)
def test_values_come_into_the_table_exactly_or_as_documented(importer, dtype, values, expected):
    dataset = typed(dtype, values)
    cached = importer(dataset, codec="arrow")
    assert stored(cached)["value"].to_list() == expected
    # Whatever the table holds, the payload holds the value itself.
    assert [hf.decoder(cached)(sample) for sample in cached] == list(dataset)


def test_nan_and_null_stay_apart(importer):
    column = stored(importer(typed("float64", [float("nan"), None, 1.0])))["value"]
    assert column.is_nan().to_list() == [True, None, False]


def test_a_label_keeps_minus_one_and_its_names_come_on_request(importer):
    features = Features({"label": ClassLabel(names=["no", "yes"])})
    dataset = datasets.Dataset.from_dict({"label": [1, -1, None, 0]}, features=features)
    assert stored(importer(dataset)).to_dict(as_series=False) == {"label": [1, -1, None, 0]}
    named = stored(importer(dataset, "named", class_names=True))
    assert named.to_dict(as_series=False) == {"label": [1, -1, None, 0], "label_name": ["yes", None, None, "no"]}


def test_a_column_of_names_never_takes_the_place_of_the_datasets_own(importer):
    features = Features({"label": ClassLabel(names=["no"]), "label_name": Value("int64")})
    dataset = datasets.Dataset.from_dict({"label": [0], "label_name": [5]}, features=features)
    with pytest.raises(drt.ConfigError, match="'label_name', but the dataset has one"):
        importer(dataset, class_names=True)


def test_reserved_names_get_an_underscore_and_stay_what_they_are_in_the_row(importer):
    columns = {
        "weight": [0.5, None],
        "cache_id": [1, 2],
        "sample_id": [3, 4],
        "data": ["x", "y"],
        "data_": [True, False],
    }
    dataset = datasets.Dataset.from_dict(columns)
    cached = importer(dataset)
    assert cached.get_metadata().columns == [
        "cache_id",
        "sample_id",
        "weight_",
        "cache_id_",
        "sample_id_",
        "data__",
        "data_",
        "weight",
    ]
    assert stored(cached)["weight_"].to_list() == [0.5, None]
    assert [hf.decoder(cached)(sample) for sample in cached] == list(dataset)


def test_long_strings_stay_in_the_payload(importer):
    dataset = datasets.Dataset.from_dict({"long": ["x" * 65], "umlauts": ["ä" * 33], "short": ["x" * 64]})
    assert stored(importer(dataset)).columns == ["short"]


def test_a_string_that_is_longer_later_is_kept_whole(importer):
    texts = ["short"] * 10_000 + ["x" * 500]
    cached = importer(datasets.Dataset.from_dict({"text": texts, "number": range(10_001)}))
    assert stored(cached)["text"].to_list() == texts


def test_only_the_first_rows_of_the_logical_order_are_judged(importer):
    dataset = datasets.Dataset.from_dict({"text": ["x" * 65, *["short"] * 10_000], "number": range(10_001)})
    assert stored(importer(dataset, "as it is")).columns == ["number"]
    turned = dataset.select(range(10_000, -1, -1))
    assert stored(importer(turned, "turned")).columns == ["text", "number"]
    streamed = turned.to_iterable_dataset()
    assert stored(importer(streamed, "streamed")).columns == ["text", "number"]


def test_columns_can_be_named_and_left_out(importer):
    dataset = datasets.Dataset.from_dict({"long": ["x" * 500], "a": [1], "b": [True]})
    assert stored(importer(dataset, "named", metadata_columns=["b", "long"])).to_dict(as_series=False) == {
        "b": [True],
        "long": ["x" * 500],
    }
    assert stored(importer(dataset, "none", metadata_columns=None)).columns == []
    assert stored(importer(dataset, "empty", metadata_columns=[])).columns == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (["list"], "got 'list', which is List"),
        (["absent"], "got 'absent'; it has 'list', 'number'"),
        ("number", "metadata_columns must be 'auto', None or a sequence of column names, got 'number'"),
    ],
)
def test_columns_that_cannot_be_are_refused(importer, asked, message):
    dataset = datasets.Dataset.from_dict({"list": [[1]], "number": [1]})
    with pytest.raises(drt.ConfigError, match=message):
        importer(dataset, metadata_columns=asked)


def test_unsigned_64_bit_numbers_are_taken_when_they_are_named_and_fit(importer):
    dataset = typed("uint64", [2**63 - 1, None])
    assert stored(importer(dataset)).columns == []
    assert stored(importer(dataset, "named", metadata_columns=["value"]))["value"].to_list() == [2**63 - 1, None]
    result = importer.result(typed("uint64", [0, 2**63]), "large", metadata_columns=["value"])
    assert isinstance(result.error, drt.SourceError)
    assert result.error.sample == 1
    assert "column 'value'" in result.message
    assert str(2**63) in result.message


def test_a_moment_that_the_table_cannot_hold_is_an_error_that_says_what_to_do(importer):
    dataset = typed("timestamp[s]", [0, 2**55])
    result = importer.result(dataset)
    assert result.error.sample == 1
    assert "metadata_columns" in result.message
    cached = importer(dataset, "without", metadata_columns=None)
    assert len(cached) == 2


def test_one_expression_balances_the_classes(importer):
    labels = [0] * 900 + [1] * 90 + [2] * 10
    features = Features({"label": ClassLabel(names=["a", "b", "c"]), "text": Value("string")})
    dataset = datasets.Dataset.from_dict(
        {"label": labels, "text": [f"text {i}" for i in range(1_000)]}, features=features
    )
    cached = hf.import_dataset(
        dataset, importer.runtime, importer.root, reader_config=drt.ReaderConfig(seed=3), name="rows"
    ).unwrap()
    cached.update_metadata(cached.get_metadata().with_columns((1.0 / pl.len().over("label")).alias("weight")))
    cached.set_epoch_len(9_000)
    decode = hf.decoder(cached, columns=["label"])
    drawn = pl.Series([decode(sample)["label"] for sample in cached]).value_counts().sort("").to_dict(as_series=False)
    assert drawn[""] == [0, 1, 2]
    # Six standard deviations of a share of a third among 9,000 draws are 268.
    assert all(abs(count - 3_000) < 268 for count in drawn["count"])
