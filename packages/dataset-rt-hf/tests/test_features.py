"""What was imported is what was there, for every feature type and every form that a dataset takes."""

import datetime
from pathlib import Path

import datasets
import numpy as np
import pytest

import dataset_rt as drt
import dataset_rt_hf as hf
from hf_rows import CASES, make, same


def check(importer, dataset, **options):
    cached = importer(dataset, **options)
    decode = hf.decoder(cached, media=True)
    expected = list(dataset.with_format(None))
    assert len(cached) == len(expected)
    for row, sample in zip(expected, cached, strict=True):
        assert same(decode(sample), row)
    for row, index in zip(expected, range(len(cached)), strict=True):
        assert same(decode(cached[index]), row)
    assert same(decode.batch(cached.read_batch(range(len(cached)))), dataset.with_format(None)[:])
    back = hf.to_dataset(cached)
    assert back.features == dataset.features
    assert back.data.table.schema.types == dataset.features.arrow_schema.types
    assert same(list(back), expected)


@pytest.mark.parametrize("name", CASES)
def test_every_feature_type_comes_back_exactly_with_none_where_it_may_be(importer, name):
    check(importer, make(name))


@pytest.mark.parametrize("name", CASES)
def test_the_arrow_codec_holds_every_feature_type(importer, name):
    check(importer, make(name), codec="arrow")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith(("list", "large_list", "uint", "string"))])
def test_msgpack_holds_plain_values_and_lists_exactly(importer, name):
    check(importer, make(name), codec="msgpack")


def all_features() -> datasets.Dataset:
    """Many rows, several types side by side, nulls in each."""
    rows = [
        {
            "number": number,
            "label": number % 3 - 1,
            "text": None if number % 5 == 0 else f"text {number}" * (number % 4),
            "tokens": None if number % 7 == 0 else list(range(number % 6)),
            "flags": [None if flag % 3 == 0 else flag % 2 == 0 for flag in range(number % 11)],
            "nested": None if number % 4 == 0 else {"a": number / 3, "b": [{"c": str(number)}, None][: number % 3]},
        }
        for number in range(2_345)
    ]
    features = datasets.Features(
        {
            "number": datasets.Value("int32"),
            "label": datasets.ClassLabel(names=["a", "b"]),
            "text": datasets.Value("string"),
            "tokens": datasets.List(datasets.Value("int32")),
            "flags": datasets.List(datasets.Value("bool")),
            "nested": {"a": datasets.Value("float32"), "b": datasets.List({"c": datasets.Value("string")})},
        }
    )
    return datasets.Dataset.from_list(rows, features=features)


@pytest.fixture(scope="module")
def rows() -> datasets.Dataset:
    return all_features()


def on_disk(dataset: datasets.Dataset, folder: Path, **options: object) -> datasets.Dataset:
    dataset.save_to_disk(str(folder), **options)
    return datasets.load_from_disk(str(folder))


FORMS = {
    "in memory": lambda rows, folder: rows,
    "on disk": lambda rows, folder: on_disk(rows, folder / "saved"),
    "on disk in shards": lambda rows, folder: on_disk(rows, folder / "saved", num_shards=4),
    "mapped and shuffled": lambda rows, folder: on_disk(rows, folder / "saved").shuffle(seed=3),
    "parquet": lambda rows, folder: (
        rows.to_parquet(folder / "rows.parquet"),
        datasets.Dataset.from_parquet(str(folder / "rows.parquet")),
    )[1],
    "concatenated": lambda rows, folder: datasets.concatenate_datasets(
        [rows.select(range(7)), rows.select(range(100, 1_300)), on_disk(rows, folder / "saved").select(range(3, 50))]
    ),
    "sliced": lambda rows, folder: rows.select(range(13, 1_500)),
    "shuffled": lambda rows, folder: rows.shuffle(seed=1),
    "filtered": lambda rows, folder: rows.filter(lambda row: row["number"] % 3 == 1),
    "sorted": lambda rows, folder: rows.sort("number", reverse=True),
    "selected, repeated": lambda rows, folder: rows.select([5, 5, 2_344, 0, 17, 5]),
    "view of a view": lambda rows, folder: (
        rows.shuffle(seed=2).filter(lambda row: row["label"] == 0).select(range(9, 99))
    ),
    "cast": lambda rows, folder: rows.cast_column("number", datasets.Value("float64")).cast_column(
        "text", datasets.Value("large_string")
    ),
    "columns removed": lambda rows, folder: rows.remove_columns(["text", "flags"]).rename_column("tokens", "ids"),
    "columns chosen": lambda rows, folder: rows.select_columns(["nested", "number"]),
    "mapped to other values": lambda rows, folder: rows.map(lambda row: {"number": row["number"] * 2}),
    "flattened indices": lambda rows, folder: rows.shuffle(seed=4).flatten_indices(),
    "columns side by side": lambda rows, folder: datasets.concatenate_datasets(
        [rows, datasets.Dataset.from_dict({"more": list(range(len(rows)))})], axis=1
    ),
}


# sort() of datasets itself calls pyarrow in a way that newer releases warn of.
@pytest.mark.filterwarnings("ignore:Specifying null_placement:FutureWarning")
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_dataset_is_imported_in_its_logical_order(importer, tmp_path, rows, form):
    check(importer, FORMS[form](rows, tmp_path))


def test_a_dict_of_splits_gives_a_cache_for_each_and_never_mixes_them(importer, rows):
    splits = datasets.DatasetDict(train=rows.select(range(30)), test=rows.select(range(30, 40)))
    results = importer.result(splits, "films")
    assert list(results) == ["train", "test"]
    for name, split in splits.items():
        cached = results[name].unwrap()
        assert cached.caches["name"].to_list() == [f"films-{name}"]
        assert same([hf.decoder(cached)(sample) for sample in cached], list(split))


def test_one_split_of_a_dict_can_be_asked_for_and_has_the_same_cache(importer, rows):
    splits = datasets.DatasetDict(train=rows.select(range(30)), test=rows.select(range(30, 40)))
    cached = importer(splits, "films", split="test")
    assert [path.name for path in importer.root.iterdir() if not path.name.startswith(".")] == ["films-test"]
    again = importer.result(splits, "films")
    assert again["test"].results[0].reused
    assert again["test"].unwrap().caches["cache_id"].to_list() == cached.caches["cache_id"].to_list()


@pytest.mark.parametrize("name", ["in memory", "shuffled", "on disk in shards"])
def test_a_stream_with_features_is_imported_like_its_dataset(importer, tmp_path, rows, name):
    dataset = FORMS[name](rows, tmp_path)
    check_stream(importer, dataset.to_iterable_dataset(), dataset, "stream")
    written = importer(dataset, "stream2")
    streamed = importer(dataset.to_iterable_dataset(num_shards=3 if name == "in memory" else 1), "stream2")
    assert streamed.caches["cache_id"].to_list() == written.caches["cache_id"].to_list()


def check_stream(importer, stream, expected, name):
    cached = importer(stream, name)
    decode = hf.decoder(cached)
    assert same([decode(sample) for sample in cached], list(expected))


def test_a_stream_that_transforms_its_rows_is_imported_as_it_comes_out(importer, rows):
    stream = (
        rows.to_iterable_dataset()
        .filter(lambda row: row["number"] % 2 == 0)
        .map(lambda row: {"number": row["number"] + 1}, features=rows.features)
    )
    check_stream(importer, stream.take(50), stream.take(50), "stream")


def test_a_stream_without_features_gets_those_that_hold_all_of_its_rows(importer):
    def generate():
        for number in range(2_500):
            yield {
                "number": number,
                # Null until long after the first batch.
                "late": f"text {number}" if number > 2_200 else None,
                "deep": {"inner": None if number < 1_500 else [number]},
                "list": [] if number < 1_100 else [{"x": None}] if number < 2_000 else [{"x": 1.5}],
            }

    stream = datasets.IterableDataset.from_generator(generate)
    assert stream.features is None
    cached = importer(stream)
    decode = hf.decoder(cached)
    assert same([decode(sample) for sample in cached], list(generate()))
    assert hf.to_dataset(cached).features == datasets.Features(
        {
            "number": datasets.Value("int64"),
            "late": datasets.Value("string"),
            "deep": {"inner": datasets.List(datasets.Value("int64"))},
            "list": datasets.List({"x": datasets.Value("float64")}),
        }
    )


def test_a_column_that_appears_late_in_a_stream_is_null_before(importer):
    def generate():
        yield from ({"a": number} for number in range(1_000))
        yield from ({"a": number, "b": "x"} for number in range(5))

    cached = importer(datasets.IterableDataset.from_generator(generate))
    decode = hf.decoder(cached)
    assert decode(cached[0]) == {"a": 0, "b": None}
    assert decode(cached[1_004]) == {"a": 4, "b": "x"}


def test_a_stream_whose_type_changes_is_an_error_that_names_column_and_types(importer):
    def generate():
        yield from ({"a": {"b": number}} for number in range(1_000))
        yield from ({"a": {"b": "text"}} for number in range(5))

    result = importer.result(datasets.IterableDataset.from_generator(generate))
    assert "column 'a.b'" in result.message
    assert "int64" in result.message
    assert "string" in result.message
    assert result.error.sample == 1_000
    assert not (importer.root / "rows").exists()


MOMENT = datetime.datetime(2024, 1, 2, 3)
MIXED = {
    "a date among moments": (MOMENT, datetime.date(2024, 1, 1)),
    "moments with and without a zone": (MOMENT, MOMENT.replace(tzinfo=datetime.timezone.utc)),
    "moments in two zones": tuple(
        MOMENT.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=hours))) for hours in (1, 2)
    ),
    "text among bytes": (b"a", "a"),
    "an int among floats": (0.5, 1),
    "a bool among ints": (1, True),
    "NumPy's floats of two lengths": (np.float32(0.1), np.float64(0.1)),
    "an array among lists": (np.array([1.5]), [1]),
    "lists of floats and ints": ([0.5], [1]),
    "in a struct": ({"x": 0.5}, {"x": 1}),
    "a struct among texts": ("a", {"x": 1}),
}


@pytest.mark.parametrize("rows_between", [0, 2_000])
@pytest.mark.parametrize("kind", MIXED)
@pytest.mark.parametrize("turned", [False, True])
def test_a_stream_whose_values_mix_types_is_the_same_error_wherever_batches_end(importer, kind, turned, rows_between):
    first, second = reversed(MIXED[kind]) if turned else MIXED[kind]

    def generate():
        yield {"a": first}
        yield from ({"a": None} for _ in range(rows_between))
        yield {"a": second}

    result = importer.result(datasets.IterableDataset.from_generator(generate))
    assert isinstance(result.error, drt.SourceError)
    assert result.error.sample == rows_between + 1
    assert result.error.field.startswith("a")
    assert "give the IterableDataset its features" in result.message
    assert not (importer.root / "rows").exists()


def test_an_iterator_that_is_used_up_by_a_first_look_is_an_error_and_loses_no_row(importer):
    features = datasets.Features({"text": datasets.Value("string"), "n": datasets.Value("int64")})

    def once(features=features):
        rows = ({"text": "same", "n": number} for number in range(12_000))
        return datasets.IterableDataset.from_generator(_Once(rows), features=features)

    for stream in (once(), once(None)):
        result = importer.result(stream)
        assert isinstance(result.error, drt.SourceError)
        assert "make a new iterator at each call" in result.message
        assert not (importer.root / "rows").exists()
    # One reading is enough where nothing must be looked at beforehand.
    cached = importer(once(), metadata_columns=["n"])
    assert cached.get_metadata()["n"].to_list() == list(range(12_000))


class _Once:
    """A function that gives the same iterator at each call; datasets takes a hash of it by pickling."""

    def __init__(self, rows):
        self._rows = rows

    def __call__(self):
        return self._rows

    def __reduce__(self):
        return _Once, (None,)


@pytest.mark.parametrize("features", [None, datasets.Features({"a": datasets.Value("int64")})])
def test_an_error_of_a_streams_own_code_is_told_as_it_is(importer, features):
    def generate():
        yield from ({"a": number} for number in range(1_500))
        raise ValueError("the tape broke")

    result = importer.result(datasets.IterableDataset.from_generator(generate, features=features))
    assert isinstance(result.error, drt.SourceError)
    assert (
        "samples 1000 to at most 1999: rows expected, but the stream raised ValueError: the tape broke"
        in result.message
    )
    assert "features" not in result.message
    assert isinstance(result.error.__cause__, ValueError)
    assert result.error.sample == 1_000


@pytest.mark.parametrize("values", [[1, 2**63], [2**63, 1], [[0.5, 1]], [[1, 0.5]]])
def test_values_that_a_common_type_would_change_are_an_error(importer, values):
    result = importer.result(datasets.IterableDataset.from_generator(lambda: iter([{"a": value} for value in values])))
    assert isinstance(result.error, drt.SourceError)
    assert "column 'a" in result.message


def test_rows_that_do_not_fit_their_features_are_told_with_their_samples(importer):
    def generate():
        yield from ({"a": number} for number in range(1_001))
        yield {"a": "text"}

    features = datasets.Features({"a": datasets.Value("int64")})
    result = importer.result(datasets.IterableDataset.from_generator(generate, features=features))
    assert isinstance(result.error, drt.SourceError)
    assert "samples 1000 to at most 1999" in result.message
    assert "invalid literal for int() with base 10: 'text'" in result.message


def test_an_empty_stream_and_an_empty_dataset_are_errors(importer):
    features = datasets.Features({"a": datasets.Value("int64")})
    empty = datasets.Dataset.from_dict({"a": []}, features=features)
    for source in (
        empty,
        datasets.IterableDataset.from_generator(lambda: iter([])),
        datasets.IterableDataset.from_generator(lambda: iter([]), features=features),
        datasets.IterableDataset.from_generator(lambda: iter([{}, {}])),
    ):
        result = importer.result(source)
        assert isinstance(result.error, drt.SourceError)
        assert "at least one row with a column expected, found none" in result.message
    full = datasets.Dataset.from_dict({"a": [1]}, features=features)
    results = importer.result(datasets.DatasetDict(train=full, test=empty))
    assert results["train"].unwrap().caches["samples"].to_list() == [1]
    assert "source 'rows-test': at least one row with a column expected, found none" in results["test"].message


@pytest.mark.parametrize("format_name", ["numpy", "pandas", "arrow", "polars"])
def test_a_format_does_not_change_what_is_imported(importer, rows, format_name):
    some = rows.select(range(50))
    plain = importer(some)
    formatted = some.with_format(format_name, columns=["number"])
    result = importer.result(formatted)
    assert result.results[0].reused
    assert result.unwrap().caches["cache_id"].to_list() == plain.caches["cache_id"].to_list()
    other = importer(formatted, "other")
    assert same([hf.decoder(other)(sample) for sample in other], list(some))


def test_a_transform_does_not_change_what_is_imported(importer, rows):
    some = rows.select(range(50))
    cached = importer(some.with_transform(lambda batch: {"number": [0 for _ in batch["number"]]}))
    assert same([hf.decoder(cached)(sample) for sample in cached], list(some))
