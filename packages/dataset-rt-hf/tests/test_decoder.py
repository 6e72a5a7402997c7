"""The decoder: single samples, batches, arrays, columns, several caches, hostile payloads."""

import contextlib
import pickle
import threading

import datasets
import numpy as np
import polars as pl
import pytest
from datasets import Features, LargeList, List, Value

import dataset_rt as drt
import dataset_rt_hf as hf
from dataset_rt.testing import find_driver
from hf_rows import same

TOKENS = Features({"ids": List(Value("int32")), "text": Value("string"), "n": Value("int64")})


def tokens(start: int = 0, stop: int = 40) -> datasets.Dataset:
    rows = [{"ids": list(range(n % 5)) if n % 7 else None, "text": f"text {n}", "n": n} for n in range(start, stop)]
    return datasets.Dataset.from_list(rows, features=TOKENS)


def test_a_decoder_travels_to_other_processes_and_threads(importer):
    cached = importer(tokens())
    decode = pickle.loads(pickle.dumps(hf.decoder(cached)))
    assert [decode(sample) for sample in cached] == list(tokens())
    found = {}

    def run(number):
        found[number] = [decode(cached[row]) for row in range(number, 40, 4)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: list(tokens())[number::4] for number in range(4)}


@pytest.mark.parametrize("codec", ["arrow", "msgpack"])
def test_columns_are_given_in_the_order_that_was_asked_for(importer, codec):
    cached = importer(tokens(), codec=codec)
    decode = hf.decoder(cached, columns=["n", "ids"])
    expected = [{"n": row["n"], "ids": row["ids"]} for row in tokens()]
    assert same([decode(sample) for sample in cached], expected)
    batch = cached.read_batch(range(40))
    assert list(decode.batch(batch)) == ["n", "ids"]
    assert decode.table(batch).to_pylist() == expected


def test_a_column_that_is_not_there_is_refused(importer):
    cached = importer(tokens())
    with pytest.raises(drt.ConfigError, match="got 'absent'; it has 'ids', 'text', 'n'"):
        hf.decoder(cached, columns=["absent"])
    with pytest.raises(drt.ConfigError, match="columns must be a sequence of names, got 'ids'"):
        hf.decoder(cached, columns="ids")
    with pytest.raises(drt.ConfigError, match="media must be True or False, got 1"):
        hf.decoder(cached, media=1)
    with pytest.raises(drt.ConfigError, match="dataset must be a CachedDataset, got a Dataset"):
        hf.decoder(tokens())


@pytest.mark.parametrize("codec", ["arrow", "msgpack"])
def test_lists_of_numbers_come_as_arrays_that_may_be_written_to(importer, codec):
    features = Features(
        {
            "ids": List(Value("int32")),
            "large": LargeList(Value("float16")),
            "pair": List(Value("uint8"), length=2),
            "nulls": List(Value("int64")),
            "plain": Value("int8"),
        }
    )
    rows = [
        {"ids": [1, 2], "large": [0.5], "pair": [1, 255], "nulls": [1, None], "plain": 5},
        {"ids": [], "large": None, "pair": None, "nulls": [7], "plain": None},
    ]
    if codec == "msgpack":
        del features["pair"]
        rows = [{name: value for name, value in row.items() if name != "pair"} for row in rows]
    cached = importer(datasets.Dataset.from_list(rows, features=features), codec=codec)
    decode = hf.decoder(cached, arrays=True)
    expected = [
        {
            "ids": np.array([1, 2], dtype=np.int32),
            "large": np.array([0.5], dtype=np.float16),
            "pair": np.array([1, 255], dtype=np.uint8),
            "nulls": [1, None],
            "plain": 5,
        },
        {
            "ids": np.array([], dtype=np.int32),
            "large": None,
            "pair": None,
            "nulls": np.array([7]),
            "plain": None,
        },
    ]
    expected = [{name: row[name] for name in features} for row in expected]
    found = [decode(sample) for sample in cached]
    assert same(found, expected)
    batch = decode.batch(cached.read_batch([0, 1]))
    assert same(batch, {name: [row[name] for row in expected] for name in features})
    found[0]["ids"] += 1
    batch["ids"][0] += 1
    assert same(decode(cached[0]), expected[0])


def test_multi_dimensional_features_come_as_arrays_of_their_shape(importer):
    features = Features(
        {"a": datasets.Array2D((2, 2), "float32"), "b": datasets.Array3D((None, 1, 1), "int8"), "t": Value("time32[s]")}
    )
    rows = {"a": [[[1, 2], [3, 4]], None], "b": [[[[1]]], [[[1]], [[2]]]], "t": [None, None]}
    dataset = datasets.Dataset.from_dict(rows, features=features)
    for columns in (["a", "b"], ["a", "b", "t"]):
        decode = hf.decoder(importer(dataset), arrays=True, columns=columns)
        cached = importer(dataset)
        first, second = decode(cached[0]), decode(cached[1])
        assert same(first["a"], np.array([[1, 2], [3, 4]], dtype=np.float32))
        assert second["a"] is None
        assert same(second["b"], np.array([[[1]], [[2]]], dtype=np.int8))
        assert same(decode.batch(cached.read_batch([1, 0]))["a"], [None, first["a"]])


def test_a_decoder_takes_a_sample_as_well_as_a_batch(importer):
    cached = importer(tokens())
    decode = hf.decoder(cached, identities=True)
    batch = cached.read_batch(range(3, 9))
    assert same(decode(batch), decode.batch(batch))
    assert decode(batch)["n"] == [decode(cached[row])["n"] for row in range(3, 9)]


def test_identities_come_along_so_that_losses_find_their_rows(importer):
    cached = importer(tokens())
    decode = hf.decoder(cached, columns=["n"], identities=True)
    cache_id = cached.caches["cache_id"][0]
    assert decode(cached[3]) == {"n": 3, "cache_id": cache_id, "sample_id": 3}
    batch = decode.batch(cached.read_batch([5, 3]))
    assert same(batch["sample_id"], np.array([5, 3], dtype=np.uint64))
    assert same(batch["cache_id"], np.array([cache_id] * 2, dtype=np.uint64))
    other = importer(datasets.Dataset.from_dict({"sample_id": [1]}), "other")
    with pytest.raises(drt.ConfigError, match="the dataset has a column of that name"):
        hf.decoder(other, identities=True)


def test_caches_that_were_imported_in_different_ways_are_read_side_by_side(importer):
    names = ["one", "other"]
    importer(tokens(0, 20), "one", codec="arrow")
    importer(tokens(20, 40), "other", codec="msgpack")
    cached = importer.runtime.cached_dataset(
        [importer.root / name for name in names], reader_config=drt.ReaderConfig(shuffle=False)
    )
    rows = [33, 2, 21, 19, 2]
    expected = [list(tokens())[row] for row in rows]
    decode = hf.decoder(cached)
    assert [decode(cached[row]) for row in rows] == expected
    batch = cached.read_batch(rows)
    assert decode.batch(batch) == {name: [row[name] for row in expected] for name in TOKENS}
    assert decode.table(batch).to_pylist() == expected
    assert hf.to_dataset(cached).to_list() == list(tokens())


def test_a_batch_of_caches_with_other_columns_is_refused(importer):
    importer(tokens(), "one", metadata_columns=None)
    importer(tokens().remove_columns("n"), "other", metadata_columns=None)
    cached = importer.runtime.cached_dataset(
        [importer.root / "one", importer.root / "other"], reader_config=drt.ReaderConfig(shuffle=False)
    )
    batch = cached.read_batch([0, 45])
    with pytest.raises(drt.ConfigError, match="choose some by columns="):
        hf.decoder(cached).batch(batch)
    with pytest.raises(drt.ConfigError, match="caches of equal features"):
        hf.decoder(cached).table(batch)
    assert hf.decoder(cached, columns=["text"]).batch(batch) == {"text": ["text 0", "text 5"]}
    with pytest.raises(drt.ConfigError, match="export them one by one"):
        hf.to_dataset(cached)


def test_a_sample_of_another_cache_is_refused(importer):
    decode = hf.decoder(importer(tokens(), "one"))
    with pytest.raises(drt.ConfigError, match="must be of the caches that the decoder was made for"):
        decode(importer(tokens(5, 9), "other")[0])


def test_a_cache_that_was_not_imported_has_no_decoder(importer):
    class Own:
        name = "own"

        def __iter__(self):
            yield drt.CacheInput(b"", {})

    importer.runtime.write_cache(Own(), importer.root)
    cached = importer.runtime.cached_dataset(importer.root / "own", reader_config=drt.ReaderConfig())
    with pytest.raises(drt.ConfigError, match="must be imported by dataset_rt_hf.import_dataset"):
        hf.decoder(cached)


@contextlib.contextmanager
def _noting(messages):
    try:
        yield
    except drt.MetadataError as error:
        messages.append(str(error))
        raise


@pytest.mark.parametrize("codec", ["arrow", "msgpack"])
def test_a_payload_that_is_no_row_is_an_error_that_names_the_sample_and_never_a_crash(importer, codec):
    whole = importer(tokens(), codec=codec)
    sound = whole[1].data
    broken = [b"", b"\xff", b"\xff" * 300, sound[:-1], sound[: len(sound) // 2], b"\0" * len(sound)]
    broken += [sound[:place] + b"\xfe\xff\xff\x7f" + sound[place + 4 :] for place in range(0, len(sound), 3)]
    decode = hf.decoder(whole)
    cache_id = whole.caches["cache_id"][0]
    messages = []
    for payload in broken:
        # Some of them still are rows, of other values.
        with contextlib.suppress(drt.MetadataError), _noting(messages):
            decode(drt.CachedSample(payload, {}, cache_id, 7))
    assert len(messages) > len(broken) // 3
    assert all(message.startswith(f"cache_id {cache_id}, sample_id 7: a row by codec") for message in messages)


def test_a_broken_payload_in_a_batch_is_found(importer):
    class Own:
        name = "own"

        def __init__(self, attributes, payloads):
            self.attributes, self.payloads = attributes, payloads

        def __iter__(self):
            yield from (drt.CacheInput(payload, {}) for payload in self.payloads)

    whole = importer(tokens(), metadata_columns=None)
    attributes = {entry["key"]: entry["value"] for entry in whole.caches["attributes"][0].to_list()}
    payloads = [whole[0].data, whole[1].data, b"nothing"]
    importer.runtime.write_cache(Own(attributes, payloads), importer.root)
    forged = importer.runtime.cached_dataset(importer.root / "own", reader_config=drt.ReaderConfig(shuffle=False))
    decode = hf.decoder(forged)
    for read in (decode.batch, decode.table):
        with pytest.raises(drt.MetadataError, match="sample_id 2: a row by codec 'arrow'"):
            read(forged.read_batch([0, 1, 2]))


def test_a_weighted_filtered_dataset_is_decoded_in_its_own_order(importer):
    cached = hf.import_dataset(
        tokens(), importer.runtime, importer.root, reader_config=drt.ReaderConfig(seed=5), name="rows"
    ).unwrap()
    cached.update_metadata(cached.get_metadata().filter(pl.col("n") % 2 == 0))
    decode = hf.decoder(cached, columns=["n"])
    one_by_one = [decode(sample)["n"] for sample in cached.with_metadata(cached.get_metadata())]
    in_batches = [
        n for batch in cached.with_metadata(cached.get_metadata()).iter_batches(7) for n in decode.batch(batch)["n"]
    ]
    assert one_by_one == in_batches
    assert {n % 2 for n in one_by_one} == {0}


def test_the_order_of_an_imported_dataset_is_the_streams(importer):
    cached = importer(tokens())
    shuffled = importer.runtime.cached_dataset(importer.root / "rows", reader_config=drt.ReaderConfig(seed=9))
    decode = hf.decoder(cached)
    numbers = []
    loader = find_driver("hf").loader(shuffled, 7)
    for batch in loader.epoch():
        samples = zip(batch.payloads, batch.cache_ids.tolist(), batch.sample_ids.tolist(), strict=True)
        numbers += [decode(drt.CachedSample(data, {}, cache_id, number))["n"] for data, cache_id, number in samples]
    assert numbers == shuffled.stream().rows(0, 40).tolist()


def test_an_export_follows_the_table(importer):
    cached = importer(tokens())
    cached.update_metadata(cached.get_metadata().filter(pl.col("n") > 30).reverse())
    assert hf.to_dataset(cached).to_list() == list(tokens())[:30:-1]


def test_an_export_to_a_file_is_mapped_from_there(importer, tmp_path):
    cached = importer(tokens())
    path = tmp_path / "back.arrow"
    back = hf.to_dataset(cached, path=path)
    assert [entry["filename"] for entry in back.cache_files] == [str(path)]
    assert back.features == TOKENS
    assert back.to_list() == list(tokens())
    assert [entry.name for entry in tmp_path.glob("*.arrow")] == ["back.arrow"]
    with pytest.raises(drt.ConfigError, match="must be a file that does not exist yet"):
        hf.to_dataset(cached, path=path)


def test_an_export_can_be_imported_again_as_the_same_cache(importer, tmp_path):
    cached = importer(tokens())
    result = importer.result(hf.to_dataset(cached, path=tmp_path / "back.arrow"))
    assert result.results[0].reused


def test_the_repr_is_short(importer):
    assert repr(hf.decoder(importer(tokens()))) == "Decoder(columns=['ids', 'text', 'n'], caches=1)"


@pytest.mark.parametrize("columns", [3, [1], [["a"]], ["absent"]])
def test_columns_that_are_none_are_refused(importer, columns):
    cached = importer(datasets.Dataset.from_dict({"a": [1]}))
    with pytest.raises(drt.ConfigError, match="columns must be"):
        hf.decoder(cached, columns=columns)


def test_a_table_without_columns_has_the_rows_of_its_batch(importer):
    cached = importer(datasets.Dataset.from_dict({"a": [1, 2, 3]}))
    table = hf.decoder(cached, columns=[]).table(cached.read_batch(range(3)))
    assert (table.num_rows, table.num_columns) == (3, 0)


def test_arrays_of_texts_are_refused_where_numpys_are_wanted(importer):
    features = datasets.Features(
        {"texts": datasets.Array2D((2, 1), "string"), "numbers": datasets.Array2D((1, 2), "int32")}
    )
    rows = {"texts": [[["a"], ["b"]]], "numbers": [[[1, 2]]]}
    cached = importer(datasets.Dataset.from_dict(rows, features=features))
    with pytest.raises(drt.ConfigError, match="arrays=True must be for arrays of numbers or bools, but column 'texts'"):
        hf.decoder(cached, arrays=True)
    found = hf.decoder(cached, arrays=True, columns=["numbers"])(cached[0])["numbers"]
    assert (found.dtype, found.tolist()) == (np.dtype("int32"), [[1, 2]])
    assert hf.decoder(cached)(cached[0])["texts"] == [["a"], ["b"]]
