"""Reading: iteration and its windows, random access, batches, samples and what a dataset says of itself."""

import copy
import datetime
import itertools
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dataset_rt as drt

ROWS = 7


@pytest.fixture
def path(cache_of):
    return cache_of("digits", [{"label": number % 3} for number in range(ROWS)])


@pytest.fixture
def ordered(open_caches, path):
    return open_caches(path)


@pytest.fixture
def shuffled(open_caches, path):
    return open_caches(path, shuffle=True, seed=5)


def ids(samples):
    return [sample.sample_id for sample in samples]


def drawn(open_caches, path, count, **fields):
    """The first draws of a fresh dataset, in one window."""
    dataset = open_caches(path, **{"shuffle": True, "seed": 5, **fields})
    dataset.set_epoch_len(count)
    return ids(dataset)


# --- Windows


def test_table_order_goes_round_and_round_across_iterators(ordered):
    assert len(ordered) == ROWS
    assert ids(ordered) == list(range(ROWS))
    ordered.set_epoch_len(5)
    assert ids(ordered) == [0, 1, 2, 3, 4]
    assert ids(ordered) == [5, 6, 0, 1, 2]
    ordered.set_epoch_len(2 * ROWS)
    assert ids(ordered) == [*range(3, ROWS), *range(ROWS), 0, 1, 2]


def test_iterators_continue_one_stream(open_caches, path, shuffled):
    whole = drawn(open_caches, path, 60)
    found = []
    for length in (7, 1, 20, 2, 30):
        shuffled.set_epoch_len(length)
        assert len(shuffled) == length
        found += ids(shuffled)
    assert found == whole


def test_shuffled_epochs_differ_and_repeat_samples(open_caches, path):
    stream = drawn(open_caches, path, 1_000)
    windows = [tuple(stream[start : start + ROWS]) for start in range(0, 994, ROWS)]
    assert len(set(windows)) > 100
    assert any(len(set(window)) < ROWS for window in windows)
    shares = np.bincount(stream, minlength=ROWS) / len(stream)
    assert np.all(np.abs(shares - 1 / ROWS) < 0.05)


def test_the_seed_alone_decides_the_order(open_caches, path):
    assert drawn(open_caches, path, 50) == drawn(open_caches, path, 50)
    assert drawn(open_caches, path, 50, seed=6) != drawn(open_caches, path, 50)
    assert drawn(open_caches, path, 50, seed=2**64 - 1) != drawn(open_caches, path, 50, seed=2**63 - 1)


@pytest.mark.parametrize("workers", [1, 2, 5])
@pytest.mark.parametrize("fields", [{"prefetch_size": 1}, {"prefetch_size": 8}, {"prefetch_bytes": 1}, {}])
def test_neither_workers_nor_prefetch_change_the_order(open_caches, path, workers, fields):
    expected = drawn(open_caches, path, 300)
    with drt.DatasetRuntime(num_workers=workers) as runtime:
        config = drt.ReaderConfig(seed=5, **fields)
        dataset = runtime.cached_dataset([path], reader_config=config)
        dataset.set_epoch_len(300)
        assert ids(dataset) == expected


def test_a_window_is_reserved_at_the_first_next_and_not_before(ordered):
    iterator = iter(ordered)
    assert ordered.position == 0
    next(iterator)
    assert ordered.position == ROWS
    assert ids(iterator) == list(range(1, ROWS))
    assert ordered.position == ROWS


def test_iterators_made_early_take_their_windows_in_the_order_of_use(ordered):
    ordered.set_epoch_len(2)
    first, second = iter(ordered), iter(ordered)
    assert next(second).sample_id == 0
    assert next(first).sample_id == 2
    assert (ids(second), ids(first)) == ([1], [3])


def test_an_iterator_that_was_broken_off_keeps_its_window(ordered):
    for sample in ordered:
        assert sample.sample_id == 0
        break
    ordered.set_epoch_len(3)
    assert ids(ordered) == [0, 1, 2]
    assert ordered.position == ROWS + 3


def test_an_iterator_keeps_the_epoch_length_of_its_making(ordered):
    iterator = iter(ordered)
    ordered.set_epoch_len(2)
    assert len(ids(iterator)) == ROWS
    assert len(ids(ordered)) == 2


def test_an_iterator_that_has_ended_stays_ended(ordered):
    iterator = iter(ordered)
    assert iter(iterator) is iterator
    assert len(list(iterator)) == ROWS
    for _ in range(3):
        with pytest.raises(StopIteration):
            next(iterator)
    assert ordered.position == ROWS


def test_two_iterators_advance_side_by_side_on_one_thread(path):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        dataset = runtime.cached_dataset([path], reader_config=drt.ReaderConfig(shuffle=False, prefetch_size=2))
        pairs = list(zip(iter(dataset), iter(dataset), strict=True))
    assert [(first.sample_id, second.sample_id) for first, second in pairs] == [(row, row) for row in range(ROWS)]


@pytest.mark.parametrize("length", [0, -1, True, 1.5, "3", None, 2**64, np.float64(3)], ids=repr)
def test_an_epoch_length_that_is_no_positive_integer_is_refused(ordered, length):
    ordered.set_epoch_len(4)
    with pytest.raises((drt.ConfigError, TypeError), match=re.escape(repr(length))):
        ordered.set_epoch_len(length)
    assert len(ordered) == 4


def test_an_epoch_length_may_be_a_numpy_integer(ordered):
    ordered.set_epoch_len(np.int32(3))
    assert ids(ordered) == [0, 1, 2]


# --- Random access


@pytest.mark.parametrize("kind", ["ordered", "shuffled"])
def test_random_access_takes_row_numbers_of_the_table_and_moves_nothing(request, kind):
    dataset = request.getfixturevalue(kind)
    table = dataset.get_metadata().reverse()
    dataset.update_metadata(table)
    next(iter(dataset))
    before = dataset.position
    expected = table["sample_id"].to_list()
    assert [dataset[row].sample_id for row in range(ROWS)] == expected
    assert [dataset[row - ROWS].sample_id for row in range(ROWS)] == expected
    assert dataset[np.uint8(2)].sample_id == expected[2]
    assert ids(dataset.read([3, 0, 3])) == [expected[row] for row in (3, 0, 3)]
    assert ids(dataset.read(np.array([6, 1]))) == [expected[6], expected[1]]
    assert ids(dataset.read(range(2, 5))) == expected[2:5]
    assert dataset.read([]) == []
    batch = dataset.read_batch([5, 5, 0])
    assert batch.column("sample_id").to_pylist() == [expected[row] for row in (5, 5, 0)]
    identity = dataset.caches["cache_id"].item()
    assert dataset.get_item(identity, 4) == dataset[expected.index(4)]
    assert dataset.position == before


def test_random_access_is_by_rows_even_if_the_epoch_is_shorter_or_longer(ordered):
    ordered.set_epoch_len(2)
    assert ordered[ROWS - 1].sample_id == ROWS - 1
    ordered.set_epoch_len(100)
    with pytest.raises(IndexError):
        ordered[ROWS]


@pytest.mark.parametrize("row", [ROWS, -ROWS - 1, 2**40, -(2**70), 2**70])
def test_a_row_past_the_end_is_an_index_error(ordered, row):
    with pytest.raises(IndexError, match=re.escape(str(row))):
        ordered[row]
    with pytest.raises((IndexError, drt.ConfigError), match=re.escape(str(row))):
        ordered.read([0, row])


@pytest.mark.parametrize("row", ["1", 1.0, None, 1.5], ids=repr)
def test_a_row_that_is_no_integer_is_refused(ordered, row):
    with pytest.raises((TypeError, drt.ConfigError)):
        ordered[row]
    with pytest.raises((TypeError, drt.ConfigError)):
        ordered.read([row])


def test_an_identity_that_is_not_there_is_refused_by_its_number(ordered):
    identity = ordered.caches["cache_id"].item()
    for cache_id, sample_id, named in ((identity, ROWS, ROWS), (identity ^ 1, 0, identity ^ 1)):
        with pytest.raises((drt.DatasetRTError, LookupError), match=str(named)):
            ordered.get_item(cache_id, sample_id)


def test_random_access_reaches_samples_that_the_table_left_out(ordered):
    ordered.update_metadata(ordered.get_metadata().head(2))
    identity = ordered.caches["cache_id"].item()
    assert ordered.get_item(identity, ROWS - 1).sample_id == ROWS - 1


# --- Batches


@pytest.mark.parametrize("batch_size", [1, 2, 3, ROWS, 50])
@pytest.mark.parametrize("shuffle", [False, True])
def test_batches_are_the_same_draws_as_samples(open_caches, path, batch_size, shuffle):
    dataset, twin = open_caches(path, shuffle=shuffle), open_caches(path, shuffle=shuffle)
    for _ in range(3):
        samples = list(dataset)
        batches = list(twin.iter_batches(batch_size))
        sizes = [batch.num_rows for batch in batches]
        assert sizes == [batch_size] * (ROWS // batch_size) + [ROWS % batch_size] * (ROWS % batch_size > 0)
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert rows == [
            {"cache_id": sample.cache_id, "sample_id": sample.sample_id, **sample.metadata, "data": sample.data}
            for sample in samples
        ]
        assert dataset.position == twin.position


def test_a_batch_has_identities_the_stored_columns_and_the_payload(cache_of, open_caches, table):
    dataset = open_caches(cache_of("kinds", table.to_dicts()))
    (batch,) = dataset.iter_batches(100)
    assert isinstance(batch, pa.RecordBatch)
    assert batch.schema.names == ["cache_id", "sample_id", *table.columns, "data"]
    assert batch.schema.types == [
        pa.uint64(), pa.uint64(), pa.bool_(), pa.int64(), pa.float64(), pa.large_string(), pa.date32(),
        pa.timestamp("us"), pa.large_binary(),
    ]  # fmt: skip
    batch.validate(full=True)
    assert pl.DataFrame(pl.from_arrow(batch)).select(table.columns).equals(table)


def test_a_short_last_batch_is_left_out_when_asked_and_the_position_moves_past_it(ordered):
    batches = list(ordered.iter_batches(3, drop_last=True))
    assert [batch.column("sample_id").to_pylist() for batch in batches] == [[0, 1, 2], [3, 4, 5]]
    assert ordered.position == ROWS
    ordered.set_epoch_len(6)
    assert [batch.num_rows for batch in ordered.iter_batches(3, drop_last=True)] == [3, 3]
    assert list(ordered.iter_batches(50, drop_last=True)) == []
    assert ordered.position == ROWS + 12


def test_a_batch_outlives_its_dataset_and_runtime(path):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        dataset = runtime.cached_dataset([path], reader_config=drt.ReaderConfig(shuffle=False))
        batches = list(dataset.iter_batches(2))
        del dataset
    assert batches[0].column("data").to_pylist() == [b"payload 0", b"payload 1"]


@pytest.mark.parametrize("size", [0, -1, True, 2.5, "2", None], ids=repr)
def test_a_batch_size_that_is_no_positive_integer_is_refused(ordered, size):
    with pytest.raises((drt.ConfigError, TypeError), match=re.escape(repr(size))):
        list(ordered.iter_batches(size))
    assert ordered.position == 0


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_size_below_one_is_refused_with_the_rule(ordered, size):
    with pytest.raises(drt.ConfigError, match=f"^batch_size must be at least 1, got {size}$"):
        list(ordered.iter_batches(size))


def test_payloads_decode_to_arrays(cache_of, open_caches):
    images = np.arange(5 * 12, dtype=np.float32).reshape(5, 3, 4)
    path = cache_of("images", [drt.CacheInput(image.tobytes(), {"label": row}) for row, image in enumerate(images)])
    decode = drt.array_decoder(np.float32, (3, 4), metadata=["label"])
    dataset = open_caches(path)
    decoded = [decode(batch) for batch in dataset.iter_batches(2)]
    np.testing.assert_array_equal(np.concatenate([part["data"] for part in decoded]), images)
    assert np.concatenate([part["label"] for part in decoded]).tolist() == list(range(5))
    picked = decode(dataset.read_batch([4, 0]))
    np.testing.assert_array_equal(picked["data"], images[[4, 0]])
    assert picked["data"].flags.owndata


# --- Samples


@pytest.fixture
def sample(cache_of, open_caches, table):
    return open_caches(cache_of("kinds", table.to_dicts()))[0]


def test_a_sample_unpacks_like_a_tuple(sample):
    data, metadata, cache_id, sample_id = sample
    assert (data, metadata, cache_id, sample_id) == (sample.data, sample.metadata, sample.cache_id, sample.sample_id)
    assert len(sample) == 4
    assert (sample[0], sample[3], sample[-1]) == (data, sample_id, sample_id)
    assert [type(part) for part in sample] == [bytes, dict, int, int]
    match sample:
        case drt.CachedSample(data=found, sample_id=0):
            assert found == b"payload 0"
        case _:
            pytest.fail("no match by keyword")


def test_metadata_are_plain_python_values(sample):
    assert sample.metadata == {
        "flag": True,
        "label": 0,
        "score": 0.0,
        "text": "",
        "day": datetime.date(2020, 1, 1),
        "moment": datetime.datetime(1970, 1, 1),
    }
    assert [type(value) for value in sample.metadata.values()] == [
        bool, int, float, str, datetime.date, datetime.datetime,
    ]  # fmt: skip


@pytest.mark.parametrize("field", ["data", "metadata", "cache_id", "sample_id", "other"])
def test_a_sample_is_read_only(sample, field):
    with pytest.raises((AttributeError, TypeError)):
        setattr(sample, field, 1)
    with pytest.raises(TypeError):
        sample[0] = b""


def test_samples_compare_by_what_they_are(cache_of, open_caches, sample, table, tmp_path):
    again = open_caches(cache_of("kinds", table.to_dicts(), tmp_path / "elsewhere"))
    assert again[0] == sample
    assert again[1] != sample
    assert sample != 5
    assert sample == (sample.data, sample.metadata, sample.cache_id, sample.sample_id)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_samples_pickle_and_copy(sample, protocol):
    for again in (pickle.loads(pickle.dumps(sample, protocol)), copy.copy(sample), copy.deepcopy(sample)):
        assert type(again) is type(sample)
        assert again == sample
        assert again.metadata == sample.metadata


def test_a_pickled_sample_is_small_and_needs_no_cache(cache_of, open_caches, tmp_path):
    rows = [{"label": number, "text": "x" * 1_000} for number in range(1_000)]
    sample = open_caches(cache_of("many", rows))[3]
    pickled = pickle.dumps(sample)
    assert len(pickled) < 3_000
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).metadata['label'])"
    done = subprocess.run([sys.executable, "-c", program], input=pickled, capture_output=True, check=True, cwd="/")
    assert done.stdout == b"3\n"


def test_a_sample_prints_short(cache_of, open_caches):
    item = drt.CacheInput(b"\xff" * 1_000_000, {"text": "y" * 1_000_000})
    sample = open_caches(cache_of("large", [item]))[0]
    text = repr(sample)
    assert text.startswith("CachedSample(")
    assert str(sample.cache_id) in text
    assert "sample_id=0" in text
    assert len(text) < 500


def test_a_sample_outlives_its_dataset(path):
    with drt.DatasetRuntime(num_workers=1) as runtime:
        samples = list(runtime.cached_dataset([path], reader_config=drt.ReaderConfig(shuffle=False)))
    assert [sample.data for sample in samples] == [f"payload {row}".encode() for row in range(ROWS)]
    assert [sample.metadata["label"] for sample in samples] == [row % 3 for row in range(ROWS)]


# --- What a dataset says of itself


def test_caches_lists_what_is_open(cache_of, open_caches):
    first = cache_of("first", [{"x": 1}, {"x": 2}])
    second = cache_of("second", [drt.CacheInput(b"12345", {"x": 1})])
    caches = open_caches(second, first).caches
    assert caches.columns == ["cache_id", "name", "path", "samples", "payload_bytes", "attributes"]
    assert caches["cache_id"].dtype == pl.UInt64
    assert caches["name"].to_list() == ["second", "first"]
    assert caches["path"].to_list() == [str(second), str(first)]
    assert caches["samples"].to_list() == [1, 2]
    assert caches["payload_bytes"].to_list() == [5, 18]


def test_the_representation_shows_rows_epoch_position_seed_and_mode(shuffled, ordered):
    shuffled.set_epoch_len(1234)
    next(iter(shuffled))
    text = repr(shuffled)
    for part in (str(ROWS), "1234", "seed=5"):
        assert part in text
    assert "position=1234" in text
    assert "\n" not in text
    assert repr(ordered) != repr(shuffled)


# --- Opening


def test_no_cache_is_an_error_with_the_path(open_caches, tmp_path):
    with pytest.raises(drt.CacheNotFoundError, match="missing") as refused:
        open_caches(tmp_path / "missing")
    assert refused.value.path == tmp_path / "missing"
    assert isinstance(refused.value, FileNotFoundError)
    (tmp_path / "empty").mkdir()
    with pytest.raises(drt.CacheNotFoundError, match="empty"):
        open_caches(tmp_path / "empty")


def test_the_same_cache_twice_is_refused(open_caches, path, tmp_path):
    with pytest.raises(drt.ConfigError, match=re.escape(str(path))):
        open_caches(path, path)
    (tmp_path / "link").symlink_to(tmp_path / "caches")
    with pytest.raises(drt.ConfigError) as refused:
        open_caches(path, tmp_path / "link" / "digits")
    assert str(path) in str(refused.value)
    assert str(tmp_path / "link" / "digits") in str(refused.value)


def test_two_copies_of_one_cache_are_refused(open_caches, cache_of, tmp_path):
    rows = [{"x": 1}]
    first, second = cache_of("digits", rows, tmp_path / "a"), cache_of("digits", rows, tmp_path / "b")
    with pytest.raises(drt.ConfigError) as refused:
        open_caches(first, second)
    assert str(first) in str(refused.value)
    assert str(second) in str(refused.value)


@pytest.mark.parametrize("other", [{"y": 1}, {"x": 1.0}, {"x": 1, "y": 1}, {}])
def test_caches_with_other_columns_are_refused(open_caches, cache_of, other):
    first = cache_of("first", [drt.CacheInput(b"", {"x": 1})])
    second = cache_of("second", [drt.CacheInput(b"", other)])
    with pytest.raises(drt.MetadataError) as refused:
        open_caches(first, second)
    assert str(first) in str(refused.value)
    assert str(second) in str(refused.value)


def test_no_paths_are_refused(runtime):
    with pytest.raises(drt.ConfigError):
        runtime.cached_dataset([], reader_config=drt.ReaderConfig())


@pytest.mark.parametrize("config", [None, {}, "fast", drt.WriterConfig()])
def test_a_reader_configuration_of_another_type_is_refused(runtime, path, config):
    with pytest.raises((drt.ConfigError, TypeError), match="reader_config"):
        runtime.cached_dataset([path], reader_config=config)


@pytest.mark.parametrize("workers", [0, -1, True, 1.5, "2", 10**9], ids=repr)
def test_a_worker_count_outside_its_range_is_refused(workers):
    with pytest.raises(drt.ConfigError, match=f"num_workers must be .*, got {workers!r}"):
        drt.DatasetRuntime(num_workers=workers)


@pytest.mark.parametrize("workers", [np.int8(3), np.uint64(3)])
def test_a_worker_count_may_be_a_numpy_integer(workers):
    with drt.DatasetRuntime(num_workers=workers) as runtime:
        assert runtime.num_workers == 3


@pytest.mark.parametrize("workers", [np.bool_(1), np.float64(3), np.int64(0)])
def test_other_numpy_scalars_are_no_worker_count(workers):
    with pytest.raises(drt.ConfigError, match="num_workers must be"):
        drt.DatasetRuntime(num_workers=workers)


def test_caches_given_in_another_folder_order_keep_their_own_in_the_table(open_caches, cache_of):
    first, second = cache_of("first", [{"x": 1}, {"x": 2}]), cache_of("second", [{"x": 3}])
    assert open_caches(first, second).get_metadata()["x"].to_list() == [1, 2, 3]
    assert open_caches(second, first).get_metadata()["x"].to_list() == [3, 1, 2]
    assert [sample.metadata["x"] for sample in open_caches(second, first)] == [3, 1, 2]


def test_the_paths_of_one_population_in_another_order_give_the_same_stream(open_caches, cache_of):
    paths = [cache_of(name, [{"x": number} for number in range(5)]) for name in ("a", "b", "c")]
    streams = set()
    for order in itertools.permutations(paths):
        dataset = open_caches(*order, shuffle=True, seed=9)
        dataset.set_epoch_len(100)
        streams.add(tuple((sample.cache_id, sample.sample_id) for sample in dataset))
    assert len(streams) == 1


# --- Damage


def flip(file, offset):
    content = bytearray(file.read_bytes())
    content[offset] ^= 1
    file.write_bytes(content)


def test_a_flipped_payload_byte_is_found_by_file_and_sample(open_caches, path):
    shard = path / "shards" / "000000.bin"
    flip(shard, 16 + 2 * len(b"payload 0"))
    dataset = open_caches(path)
    assert dataset[1].data == b"payload 1"
    for read in (lambda: dataset[2], lambda: list(dataset), lambda: dataset.read([2]), lambda: dataset.read_batch([2])):
        with pytest.raises(drt.CacheCorruptError) as found:
            read()
        assert (found.value.file, found.value.sample) == (shard, 2)
        assert str(shard) in str(found.value)
        assert "sample 2" in str(found.value)
        assert found.value.expected != found.value.found
    with pytest.raises(drt.CacheCorruptError, match=r"000000\.bin"):
        open_caches(path, validate_cache=True)


def test_any_flipped_byte_gives_the_data_or_an_error(open_caches, path, tree):
    original = found = [tuple(sample) for sample in open_caches(path)]
    for name, content in tree(path).items():
        for offset in range(0, len(content), max(1, len(content) // 40)):
            flip(path / name, offset)
            named = ""
            try:
                found = [tuple(sample) for sample in open_caches(path)]
            except (drt.CacheCorruptError, drt.CacheVersionError) as error:
                named = str(error)
            assert str(path) in named or found == original, (name, offset, named)
            with pytest.raises((drt.CacheCorruptError, drt.CacheVersionError)):
                open_caches(path, validate_cache=True)
            (path / name).write_bytes(content)
    assert [tuple(sample) for sample in open_caches(path, validate_cache=True)] == original


@pytest.mark.parametrize("damage", ["shorter", "longer", "gone", "empty", "folder"])
def test_a_file_of_another_length_is_found_when_opening(open_caches, path, tree, damage):
    for name, content in tree(path).items():
        file = path / name
        if damage == "shorter":
            file.write_bytes(content[:-1])
        elif damage == "longer":
            file.write_bytes(content + b"\0")
        elif damage == "empty":
            file.write_bytes(b"")
        else:
            file.unlink()
        if damage == "folder":
            file.mkdir()
        missing = name == "manifest.json" and damage in ("gone", "folder")
        expected = (drt.CacheCorruptError, drt.CacheNotFoundError) if missing else drt.CacheCorruptError
        with pytest.raises(expected, match=re.escape(str(path))):
            open_caches(path)
        if damage == "folder":
            file.rmdir()
        file.write_bytes(content)


def test_a_file_that_is_none_of_the_caches_is_found_when_it_is_validated(open_caches, path):
    foreign = path / "shards" / "000001.bin"
    foreign.write_bytes(b"left by a copy of something else")
    # It plays no part in reading.
    assert len(list(open_caches(path))) == len(open_caches(path))
    with pytest.raises(drt.CacheCorruptError, match="move it elsewhere") as found:
        open_caches(path, validate_cache=True)
    assert (found.value.file, found.value.found) == (foreign, "a file of 32 bytes")


def test_the_manifest_of_another_cache_with_the_same_name_and_lengths_is_found(cache_of, read_back, tmp_path):
    one = cache_of("digits", [drt.CacheInput(b"one", {"label": 1})] * 3, tmp_path / "one")
    two = cache_of("digits", [drt.CacheInput(b"two", {"label": 1})] * 3, tmp_path / "two")
    (one / "manifest.json").write_bytes((two / "manifest.json").read_bytes())
    with pytest.raises(drt.CacheCorruptError) as found:
        read_back(one)
    assert found.value.file == one / "index.bin"
    # With the index, too, the first record tells.
    (one / "index.bin").write_bytes((two / "index.bin").read_bytes())
    with pytest.raises(drt.CacheCorruptError) as found:
        read_back(one)
    assert (found.value.file, found.value.sample) == (one / "shards" / "000000.bin", 0)


def test_a_cache_under_another_name_is_found_when_opening(open_caches, path):
    moved = path.rename(path.with_name("letters"))
    with pytest.raises(drt.CacheCorruptError) as found:
        open_caches(moved)
    assert "digits" in str(found.value)
    assert "letters" in str(found.value)


# --- Manners


def test_importing_the_package_is_light():
    program = (
        "import sys, dataset_rt\n"
        "heavy = {'torch', 'jax', 'tensorflow', 'datasets', 'tqdm', 'pandas', 'sklearn'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_exists_and_is_documented():
    assert sorted(drt.__all__) == list(drt.__all__) or len(set(drt.__all__)) == len(drt.__all__)
    for name in drt.__all__:
        member = getattr(drt, name)
        if isinstance(member, type) or callable(member):
            assert member.__doc__, name


def test_readers_write_nothing(open_caches, path, tree):
    root = path.parent
    before = tree(root), {entry: entry.stat().st_mtime_ns for entry in root.rglob("*")}
    dataset = open_caches(path, shuffle=True)
    list(dataset)
    list(dataset.iter_batches(2))
    assert (tree(root), {entry: entry.stat().st_mtime_ns for entry in root.rglob("*")}) == before


def test_iterators_that_are_dropped_leave_no_threads(path):
    def threads():
        return len(list(Path("/proc/self/task").iterdir()))

    with drt.DatasetRuntime(num_workers=2) as runtime:
        dataset = runtime.cached_dataset([path], reader_config=drt.ReaderConfig(prefetch_size=2))
        dataset.set_epoch_len(10_000)
        next(iter(dataset))
        before = threads()
        for _ in range(300):
            next(iter(dataset))
        assert threads() <= before + 2


def test_a_program_ends_with_an_unfinished_iterator(path):
    program = (
        "import sys, dataset_rt as drt\n"
        "dataset = drt.DatasetRuntime(num_workers=2).cached_dataset([sys.argv[1]], reader_config=drt.ReaderConfig())\n"
        "dataset.set_epoch_len(10**9)\n"
        "iterator = iter(dataset)\n"
        "next(iterator)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True, timeout=30)
