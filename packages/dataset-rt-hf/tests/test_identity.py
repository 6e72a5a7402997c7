"""A changed dataset is never reused in silence, an unchanged one always is."""

import json
import shutil
from pathlib import Path

import datasets
import pytest
from datasets import ClassLabel, Features, List, Value

import dataset_rt as drt
import dataset_rt_hf as hf

FEATURES = Features({"text": Value("string"), "label": ClassLabel(names=["no", "yes"]), "ids": List(Value("int32"))})


def make(rows: int = 50) -> datasets.Dataset:
    return datasets.Dataset.from_list(
        [{"text": f"text {row}", "label": row % 2, "ids": [row] * (row % 3)} for row in range(rows)], features=FEATURES
    )


def saved(dataset: datasets.Dataset, folder: Path, **options) -> datasets.Dataset:
    dataset.save_to_disk(str(folder), **options)
    return datasets.load_from_disk(str(folder))


def moved(dataset: datasets.Dataset, folder: Path) -> datasets.Dataset:
    dataset.save_to_disk(str(folder / "here"))
    shutil.move(folder / "here", folder / "there")
    return datasets.load_from_disk(str(folder / "there"))


def files(cache: Path) -> dict[str, bytes]:
    return {str(path.relative_to(cache)): path.read_bytes() for path in sorted(cache.rglob("*")) if path.is_file()}


SAME = {
    "the same object": lambda dataset, folder: dataset,
    "made again": lambda dataset, folder: make(),
    "saved and loaded": lambda dataset, folder: saved(dataset, folder / "saved"),
    "saved twice, in shards": lambda dataset, folder: saved(
        saved(dataset, folder / "one"), folder / "two", num_shards=3
    ),
    "moved": moved,
    "format taken away": lambda dataset, folder: dataset.with_format(None),
    "format and transform": lambda dataset, folder: dataset.with_format("numpy").with_transform(lambda batch: batch),
    "shuffled and put in order again": lambda dataset, folder: dataset.select(range(49, -1, -1)).select(
        range(49, -1, -1)
    ),
    "in several chunks": lambda dataset, folder: datasets.concatenate_datasets(
        [dataset.select(range(20)), dataset.select(range(20, 50))]
    ),
    "a stream": lambda dataset, folder: dataset.to_iterable_dataset(),
    "parquet": lambda dataset, folder: (
        dataset.to_parquet(folder / "rows.parquet"),
        datasets.Dataset.from_parquet(str(folder / "rows.parquet")),
    )[1],
}

OTHER = {
    "a row less": lambda dataset: dataset.select(range(49)),
    "another order": lambda dataset: dataset.shuffle(seed=1),
    "one value": lambda dataset: dataset.map(lambda row: {"ids": [1] if row["text"] == "text 30" else row["ids"]}),
    "a column less": lambda dataset: dataset.remove_columns("ids"),
    "a column renamed": lambda dataset: dataset.rename_column("ids", "tokens"),
    "another type of equal values": lambda dataset: dataset.cast_column("ids", List(Value("uint32"))),
    "other names of classes": lambda dataset: dataset.cast_column("label", ClassLabel(names=["a", "b"])),
}


@pytest.mark.parametrize("how", SAME)
def test_an_unchanged_dataset_is_reused_and_has_the_same_cache_id(importer, tmp_path, how):
    first = importer(make())
    before = files(importer.root / "rows")
    result = importer.result(SAME[how](make(), tmp_path))
    assert result.results[0].reused
    assert result.unwrap().caches["cache_id"].to_list() == first.caches["cache_id"].to_list()
    assert files(importer.root / "rows") == before


@pytest.mark.parametrize("how", SAME)
def test_an_unchanged_dataset_gives_the_same_bytes_when_it_is_imported_anew(importer, tmp_path, how):
    importer(make())
    before = files(importer.root / "rows")
    shutil.rmtree(importer.root)
    importer(SAME[how](make(), tmp_path))
    assert files(importer.root / "rows") == before


@pytest.mark.parametrize("how", OTHER)
def test_a_changed_dataset_is_an_error_that_names_the_ways_out(importer, how):
    importer(make())
    before = files(importer.root / "rows")
    result = importer.result(OTHER[how](make()))
    assert isinstance(result, drt.CacheSourcesDatasetError)
    assert isinstance(result.error, drt.CacheExistsError)
    assert result.error.path == importer.root / "rows"
    for way in ("name=", "key=", "remove"):
        assert way in result.message
    with pytest.raises(drt.CacheExistsError):
        result.unwrap()
    assert files(importer.root / "rows") == before


@pytest.mark.parametrize("options", [{"codec": "arrow"}, {"metadata_columns": ["label"]}, {"class_names": True}])
def test_another_way_of_storing_is_another_content(importer, options):
    dataset = make().remove_columns("ids")
    importer(dataset)
    assert isinstance(importer.result(dataset, **options).error, drt.CacheExistsError)


def test_an_equal_fingerprint_is_a_yes_without_reading_the_data(importer, tmp_path, monkeypatch):
    dataset = saved(make(), tmp_path / "saved")
    importer(dataset)

    def refuse(*arguments, **options):
        raise AssertionError("the data were read")

    monkeypatch.setattr(hf.HFSource, "__iter__", refuse)
    assert importer.result(datasets.load_from_disk(str(tmp_path / "saved"))).results[0].reused
    with pytest.raises(AssertionError, match="the data were read"):
        raise importer.result(saved(make(), tmp_path / "other").with_format(None)).error.__cause__


def test_a_file_that_was_replaced_under_its_fingerprint_is_another_content(importer, tmp_path):
    importer(saved(make(), tmp_path / "saved"))
    saved(make().shuffle(seed=1).flatten_indices(), tmp_path / "other")
    for path in (tmp_path / "other").glob("*.arrow"):
        shutil.copy(path, tmp_path / "saved" / path.name)
    # state.json still tells the old fingerprint.
    result = importer.result(datasets.load_from_disk(str(tmp_path / "saved")))
    assert isinstance(result.error, drt.CacheExistsError)


def test_a_lost_or_broken_fingerprint_only_costs_a_comparison(importer, tmp_path):
    dataset = saved(make(), tmp_path / "saved")
    importer(dataset)
    (kept,) = (importer.root / ".fingerprints").iterdir()
    assert kept.name == "rows"
    for damage in (lambda: kept.write_bytes(b"\xff\xfe"), kept.unlink):
        damage()
        assert importer.result(dataset).results[0].reused
        assert len(kept.read_text().strip()) == 64


def stream(factor: int, column: str = "x") -> datasets.IterableDataset:
    def generate():
        for row in range(3):
            yield {column: row * factor}

    return datasets.IterableDataset.from_generator(generate)


def test_a_stream_of_the_same_rows_is_reused_and_one_of_others_is_an_error(importer):
    importer(stream(1))
    assert importer.result(stream(1)).results[0].reused
    for other in (stream(100), stream(1, "y"), datasets.Dataset.from_dict({"x": [9]})):
        assert isinstance(importer.result(other).error, drt.CacheExistsError)
    importer(datasets.Dataset.from_dict({"x": [9]}), "rows2")
    for _ in range(2):
        assert isinstance(importer.result(stream(5), "rows2").error, drt.CacheExistsError)


@pytest.mark.parametrize("options", [{"codec": "arrow"}, {"metadata_columns": None}, {"metadata_columns": []}])
def test_another_way_of_storing_a_stream_is_another_content(importer, options):
    importer(stream(1))
    assert isinstance(importer.result(stream(1), **options).error, drt.CacheExistsError)


def test_a_stream_under_a_key_is_compared_with_a_cache_that_has_none(importer):
    importer(stream(1))
    assert isinstance(importer.result(stream(77), key="new").error, drt.CacheExistsError)


def test_rows_in_memory_are_compared_though_their_fingerprint_is_the_same(importer):
    base = datasets.Dataset.from_dict({"x": [1, 2, 3]})
    one = base.map(lambda row: {"y": row["x"]}, new_fingerprint="equal")
    two = base.map(lambda row: {"y": row["x"] * 100}, new_fingerprint="equal")
    assert (one._fingerprint, one.cache_files) == (two._fingerprint, two.cache_files)
    importer(one)
    assert isinstance(importer.result(two).error, drt.CacheExistsError)
    assert importer.result(one).results[0].reused


def test_a_view_that_a_function_chose_in_memory_is_compared_though_its_fingerprint_is_the_same(importer, tmp_path):
    dataset = saved(make(), tmp_path / "saved")
    one = dataset.filter(lambda row: row["label"] == 0, new_fingerprint="equal", keep_in_memory=True)
    two = dataset.filter(lambda row: row["label"] == 1, new_fingerprint="equal", keep_in_memory=True)
    assert (one._fingerprint, len(one)) == (two._fingerprint, len(two))
    importer(one)
    assert isinstance(importer.result(two).error, drt.CacheExistsError)


def test_columns_in_memory_beside_a_file_are_compared(importer, tmp_path):
    dataset = saved(make(), tmp_path / "saved")
    one = dataset.add_column("more", list(range(50)), new_fingerprint="equal")
    two = dataset.add_column("more", list(range(50, 100)), new_fingerprint="equal")
    importer(one)
    assert isinstance(importer.result(two).error, drt.CacheExistsError)


def test_what_a_key_vouched_for_is_compared_when_the_key_is_left_out(importer, tmp_path):
    one, two = (saved(make().shuffle(seed=seed), tmp_path / str(seed)) for seed in (1, 2))
    importer(one, key="v1")
    assert importer.result(two, key="v1").results[0].reused
    assert isinstance(importer.result(two).error, drt.CacheExistsError)
    assert importer.result(one).results[0].reused


@pytest.mark.parametrize("how", ["written", "copied"])
def test_a_fingerprint_says_nothing_of_a_cache_that_was_put_in_the_place_of_another(importer, tmp_path, how):
    one, two = (saved(make().shuffle(seed=seed), tmp_path / str(seed)) for seed in (1, 2))
    importer(one)
    shutil.rmtree(importer.root / "rows")
    if how == "written":
        importer.runtime.write_cache(hf.HFSource(two, "rows"), importer.root)
    else:
        hf.import_dataset(
            two, importer.runtime, tmp_path / "other", reader_config=drt.ReaderConfig(), name="rows"
        ).unwrap()
        shutil.copytree(tmp_path / "other" / "rows", importer.root / "rows")
    assert isinstance(importer.result(one).error, drt.CacheExistsError)


def test_a_difference_of_features_names_the_first_column_that_differs(importer):
    columns = {f"column_{number}": [1] for number in range(50)}
    features = Features(dict.fromkeys(columns, Value("int64")))
    importer(datasets.Dataset.from_dict(columns, features=features))
    features["column_40"] = Value("int32")
    message = importer.result(datasets.Dataset.from_dict(columns, features=features)).message
    assert "its features differ in 'column_40': " in message
    assert "int64" in message
    assert "int32" in message
    order = list(reversed(columns))
    message = importer.result(datasets.Dataset.from_dict({name: [1] for name in order})).message
    assert "its features differ in their order: column_0, " in message


def test_the_users_key_alone_decides(importer):
    importer(make(), key="v1")
    assert importer.result(make(10), key="v1").results[0].reused
    result = importer.result(make(), key="v2")
    assert isinstance(result.error, drt.CacheExistsError)
    assert "key='v1', and not 'v2'" in result.message
    # Without a key the contents are compared.
    assert importer.result(make()).results[0].reused
    assert isinstance(importer.result(make(10)).error, drt.CacheExistsError)


def test_a_key_says_nothing_of_a_cache_that_has_none(importer):
    importer(make())
    assert importer.result(make(), key="v1").results[0].reused
    assert isinstance(importer.result(make(10), key="v1").error, drt.CacheExistsError)


def test_a_damaged_cache_is_told_as_such(importer):
    importer(make())
    manifest = importer.root / "rows" / "manifest.json"
    manifest.write_bytes(manifest.read_bytes()[:-5])
    assert isinstance(importer.result(make()).error, drt.CacheCorruptError)


def test_a_cache_that_another_source_wrote_is_another_content(importer):
    class Own:
        name = "rows"

        def __iter__(self):
            yield drt.CacheInput(b"", {})

    importer.runtime.write_cache(Own(), importer.root)
    assert isinstance(importer.result(make()).error, drt.CacheExistsError)


def test_the_manifest_says_codec_schema_and_features(importer):
    importer(make())
    attributes = json.loads((importer.root / "rows" / "manifest.json").read_text())["attributes"]
    assert attributes["hf.codec"] == "arrow"
    assert Features.from_dict(json.loads(attributes["hf.features"])) == FEATURES
    assert set(attributes) == {"hf.codec", "hf.columns", "hf.features", "hf.schema", "hf.version"}


def test_a_folder_that_cannot_be_written_to_serves_what_it_holds(importer, monkeypatch, tmp_path):
    dataset = saved(make(), tmp_path / "saved")
    importer(dataset)
    shutil.rmtree(importer.root / ".fingerprints")

    def refuse(*arguments, **options):
        raise PermissionError

    # The tests may run as root, whom no mode of a folder stops.
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert importer.result(dataset).results[0].reused


def test_names_come_from_the_dataset_and_its_split(importer, tmp_path):
    dataset = make()
    with pytest.raises(drt.ConfigError, match="has none; give name="):
        importer(dataset, name=None)
    dataset.info.dataset_name = "films"
    assert importer(dataset, name=None).caches["name"].to_list() == ["films"]
    train = datasets.DatasetDict(train=dataset)
    assert importer(train, name=None, split="train").caches["name"].to_list() == ["films-train"]


@pytest.mark.parametrize("loader", ["csv", "parquet", "json"])
def test_the_name_of_a_loader_is_no_name(importer, tmp_path, loader):
    getattr(make().remove_columns("ids"), f"to_{loader}")(str(tmp_path / "rows"))
    dataset = datasets.load_dataset(loader, data_files=str(tmp_path / "rows"), split="train")
    with pytest.raises(drt.ConfigError, match=f"only that of its loader, '{loader}'; give name="):
        importer(dataset, name=None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"codec": "pickle"}, "codec must be 'auto', 'raw', 'msgpack', 'arrow', got 'pickle'"),
        ({"codec": "raw"}, "codec='raw' must have exactly one column, of bytes or text, got 'text'"),
        ({"num_proc": 0}, "num_proc must be an integer of at least 1, got 0"),
        ({"num_proc": True}, "num_proc must be an integer of at least 1, got True"),
        ({"class_names": 1}, "class_names must be True or False, got 1"),
        ({"key": 5}, "key must be a str or None, got 5"),
        ({"writer_config": None}, "writer_config must be a WriterConfig, got None"),
        ({"name": 3}, "name must be a str or None, got 3"),
        ({"name": "x" * 300}, "name"),
        ({"metadata_columns": 3}, "metadata_columns must be 'auto', None or a sequence of column names, got 3"),
        ({"split": "foo"}, "split must be None for a dataset that is no split, got 'foo'"),
        ({"split": 3}, "split must be None for a dataset that is no split, got 3"),
        ({"split": ""}, "split must be None for a dataset that is no split, got ''"),
        ({"split": "test"}, None),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(importer, options, message):
    if message is None:
        with pytest.raises(drt.ConfigError, match="split must be one of 'train', got 'test'"):
            importer(datasets.DatasetDict(train=make()), **options)
    else:
        with pytest.raises(drt.ConfigError, match=message):
            importer(make(), **options)
    assert not importer.root.exists()


def test_a_codec_that_cannot_hold_the_features_is_refused(importer):
    moments = datasets.Dataset.from_dict({"a": [1]}).cast_column("a", Value("timestamp[us]"))
    with pytest.raises(
        drt.ConfigError, match=r"codec='msgpack' cannot hold 'a' \(timestamp\[us\]\); use codec='arrow'"
    ):
        importer(moments, codec="msgpack")


def test_a_single_column_of_bytes_or_text_is_the_payload_itself(importer):
    texts = importer(datasets.Dataset.from_dict({"text": ["a", "", "täxt"]}), "texts")
    assert [sample.data for sample in texts] == [b"a", b"", "täxt".encode()]
    data = importer(datasets.Dataset.from_dict({"data": [b"\0\1", b""]}), "bytes")
    assert [sample.data for sample in data] == [b"\0\1", b""]
    assert hf.to_dataset(data).to_dict() == {"data": [b"\0\1", b""]}


def test_a_single_column_with_nulls_is_not_stored_raw_but_a_view_without_them_is(importer):
    dataset = datasets.Dataset.from_dict({"text": ["a", None]})
    cached = importer(dataset)
    assert [hf.decoder(cached)(sample)["text"] for sample in cached] == ["a", None]
    view = importer(dataset.select([0]), "view")
    assert view[0].data == b"a"
    result = importer.result(dataset, "asked", codec="raw")
    assert "sample 1" in result.message
    assert "null" in result.message


@pytest.mark.parametrize("name", ["text", "csv", "json"])
@pytest.mark.parametrize("form", ["{}", "./{}"])
def test_a_folder_called_like_a_loader_is_read_and_not_the_current_one(importer, tmp_path, monkeypatch, name, form):
    (tmp_path / name).mkdir()
    (tmp_path / name / "train.csv").write_text("a\n1\n")
    (tmp_path / "train.txt").write_text("wrong\n")
    (tmp_path / "train.csv").write_text("a\n2\n")
    (tmp_path / "train.json").write_text('{"a": 3}\n')
    monkeypatch.chdir(tmp_path)
    for source in (form.format(name), Path(form.format(name))):
        assert hf.to_dataset(importer(source, split="train")).to_dict() == {"a": [1]}


def test_a_folder_that_datasets_fails_on_is_told_with_the_cause(importer, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("a,b\n1,2\n")
    (tmp_path / "data" / "b.csv").write_text("c\n1\n")
    with pytest.raises(drt.ConfigError) as raised:
        importer(tmp_path / "data")
    deepest = raised.value
    while deepest.__cause__ is not None:
        deepest = deepest.__cause__
    assert deepest is not raised.value.__cause__
    assert str(deepest) in str(raised.value)


def test_what_datasets_cannot_load_is_a_clear_error(importer, tmp_path):
    with pytest.raises(drt.ConfigError, match="must be a dataset of Hugging Face's datasets or a path, got a list"):
        importer([1, 2])
    with pytest.raises(drt.ConfigError, match="must be a folder or a file that exists"):
        importer(tmp_path / "absent")
    (tmp_path / "a.xyz").write_text("")
    with pytest.raises(drt.ConfigError, match="its ending must be one of"):
        importer(tmp_path / "a.xyz")
    (tmp_path / "broken.parquet").write_text("no parquet")
    with pytest.raises(drt.ConfigError, match="must be data that datasets reads"):
        importer(tmp_path / "broken.parquet")
