"""What was imported is what was there, for every feature type and every form that a dataset takes."""

from pathlib import Path

import datasets
import pytest

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


def test_an_empty_stream_and_an_empty_dataset_are_errors(importer):
    empty = datasets.Dataset.from_dict({"a": []}, features=datasets.Features({"a": datasets.Value("int64")}))
    assert "rows" in importer.result(empty).message
    assert "found none" in importer.result(datasets.IterableDataset.from_generator(lambda: iter([]))).message


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
