"""Sample streams: what adapters build on agrees with iteration, travels between processes and never changes."""

import itertools
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dataset_rt as drt

MODES = {
    "ordered": {"shuffle": False},
    "with_replacement": {"shuffle": True, "seed": 11},
    "without_replacement": {"shuffle": True, "replacement": False, "seed": 11},
}
LAST = 2**64 - 1


def equal(table):
    """Some rows repeated, some gone, in another order, all of one weight."""
    return pl.concat([table.tail(20), table.head(9), table.head(4)])


def weighted(table):
    return equal(table).with_columns(weight=0.25 + pl.int_range(pl.len()) % 5)


EDITS = {"unedited": None, "edited": equal, "weighted": weighted}
CASES = [(mode, edit) for mode in MODES for edit in EDITS if (mode, edit) != ("without_replacement", "weighted")]


@pytest.fixture
def paths(cache_of):
    return [
        cache_of("left", [{"label": number % 3} for number in range(23)]),
        cache_of("right", [{"label": number} for number in range(18)]),
    ]


def opened(open_caches, paths, mode, edit):
    dataset = open_caches(*paths, **MODES[mode])
    if EDITS[edit] is not None:
        dataset.update_metadata(EDITS[edit](dataset.get_metadata()))
    return dataset


@pytest.fixture(params=CASES, ids="-".join)
def dataset(request, open_caches, paths):
    return opened(open_caches, paths, *request.param)


def identities(samples):
    return [(sample.cache_id, sample.sample_id) for sample in samples]


# --- Agreement


def test_everything_that_a_stream_delivers_agrees_with_iteration(dataset):
    stream = dataset.stream()
    table, count = stream.table(), 3 * dataset.get_metadata().height
    dataset.set_epoch_len(count)
    expected = list(dataset)

    rows, records = stream.rows(0, count), stream.records(0, count)
    assert rows.dtype == records.dtype == np.uint64
    assert rows.shape == records.shape == (count,)
    by_row = table.select("cache_id", "sample_id").rows()
    assert [by_row[row] for row in rows] == identities(expected)
    assert stream.fetch(range(count)) == expected
    assert stream.fetch_records(records) == expected
    assert stream.fetch_rows(rows) == expected
    named = stream.identities(0, count)
    assert [part.dtype for part in named] == [np.uint64, np.uint64]
    assert list(zip(*(part.tolist() for part in named), strict=True)) == identities(expected)
    assert [stream[position] for position in range(count)] == expected
    for batch in (stream.fetch_batch(range(count)), stream.fetch_records_batch(records.tolist())):
        assert isinstance(batch, pa.RecordBatch)
        assert batch.schema.names == ["cache_id", "sample_id", "label", "data"]
        assert batch.to_pylist() == [
            {"cache_id": sample.cache_id, "sample_id": sample.sample_id, **sample.metadata, "data": sample.data}
            for sample in expected
        ]


def test_any_part_of_a_stream_is_that_part_of_the_whole(dataset):
    stream, whole = dataset.stream(), dataset.stream().rows(0, 200).tolist()
    for start, count in itertools.product((0, 1, 32, 33, 41, 66, 120), (0, 1, 33, 80)):
        assert stream.rows(start, count).tolist() == whole[start : start + count]
    backwards = [199, 0, 41, 41, 7]
    by_row = stream.table().select("cache_id", "sample_id").rows()
    assert identities(stream.fetch(backwards)) == [by_row[whole[position]] for position in backwards]


def test_records_count_through_all_caches_and_outlive_an_edit(open_caches, paths):
    dataset = open_caches(*paths, **MODES["with_replacement"])
    every = sorted(dataset.get_metadata().select("cache_id", "sample_id").rows())
    before = dataset.stream()
    records = before.records(0, 50)
    assert [every[record] for record in records] == identities(before.fetch(range(50)))
    dataset.update_metadata(dataset.get_metadata().head(3))
    after = dataset.stream()
    # Also records that the table of now has left out.
    assert after.fetch_records(records) == before.fetch(range(50))
    assert identities(after.fetch_records(range(41))) == every


def test_the_table_is_the_population_in_its_own_numbering(open_caches, paths):
    columns = ["cache_id", "sample_id", "label", "weight"]
    for edit in EDITS.values():
        for mode in ("ordered", "with_replacement"):
            dataset = open_caches(*paths, **MODES[mode])
            shown = dataset.get_metadata() if edit is None else edit(dataset.get_metadata())
            dataset.update_metadata(shown.with_columns(extra=1))
            expected = shown if mode == "ordered" else shown.sort("cache_id", "sample_id", "weight")
            table = dataset.stream().table()
            assert table.columns == columns
            assert table.equals(expected.select(columns))


def test_a_stream_is_of_the_table_that_it_was_taken_from(open_caches, paths):
    dataset = open_caches(*paths, **MODES["with_replacement"])
    dataset.set_epoch_len(5)
    stream = dataset.stream()
    described = repr(stream), stream.rows(0, 50).tolist(), stream.num_rows, stream.epoch_len
    list(dataset)
    dataset.update_metadata(weighted(dataset.get_metadata()))
    assert (repr(stream), stream.rows(0, 50).tolist(), stream.num_rows, stream.epoch_len) == described
    assert described[2:] == (41, 5)
    assert dataset.position == 0


def test_reading_a_stream_moves_no_position(dataset):
    stream, state = dataset.stream(), dataset.state_dict()
    stream.rows(0, 10), stream.fetch([5]), stream.fetch_batch([6]), stream.order_digest(0, 10), stream[3]
    assert (dataset.position, dataset.state_dict()) == (0, state)


def test_a_rank_view_has_the_stream_of_all_ranks(dataset):
    assert repr(dataset.shard(1, 3).stream()) == repr(dataset.stream())
    assert dataset.shard(1, 3).stream().order_digest(0, 99) == dataset.stream().order_digest(0, 99)


# --- The digest of an order


def test_the_order_digest_is_blake3_of_the_identities(dataset):
    stream = dataset.stream()
    digests = [stream.order_digest(0, count) for count in range(30)]
    assert all(len(digest) == 64 for digest in digests)
    # BLAKE3 of nothing: from its specification.
    assert digests[0] == "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
    assert len(set(digests)) == 30


def test_order_digests_are_equal_exactly_when_the_order_is(open_caches, paths):
    def digest(*folders, mode="with_replacement", start=0, **fields):
        return open_caches(*folders, **{**MODES[mode], **fields}).stream().order_digest(start, 5_000)

    first = digest(*paths)
    assert digest(*reversed(paths)) == first
    others = [
        digest(*paths, seed=12),
        digest(*paths, mode="without_replacement"),
        digest(*paths, start=1),
        digest(paths[0]),
    ]
    assert len({first, *others}) == 5
    # Identities, not row numbers, so tables that draw the same samples agree.
    dataset = open_caches(*paths, **MODES["ordered"])
    table, expected = dataset.get_metadata(), dataset.stream().order_digest(0, 5_000)
    dataset.update_metadata(pl.concat([table, table]))
    assert dataset.stream().order_digest(0, 5_000) == expected
    dataset.update_metadata(table.reverse())
    assert dataset.stream().order_digest(0, 5_000) != expected


def test_the_order_digest_reads_no_payload(open_caches, paths):
    dataset = open_caches(*paths, **MODES["with_replacement"])
    expected = dataset.stream().order_digest(0, 1_000)
    for path in paths:
        for shard in (path / "shards").iterdir():
            shard.write_bytes(bytes(shard.stat().st_size))
    assert open_caches(*paths, **MODES["with_replacement"]).stream().order_digest(0, 1_000) == expected
    with pytest.raises(drt.CacheCorruptError):
        dataset.stream().fetch(range(100))


# --- The end of the stream


def test_draws_at_the_end_of_the_stream_can_be_named(dataset):
    stream = dataset.stream()
    rows = stream.rows(LAST - 9, 10)
    assert rows.shape == (10,)
    assert stream.rows(LAST, 1).tolist() == rows.tolist()[-1:]
    by_row = stream.table().select("cache_id", "sample_id").rows()
    positions = range(LAST - 9, LAST + 1)
    assert identities(stream.fetch(positions)) == [by_row[row] for row in rows]
    assert identities([stream[LAST]]) == [by_row[rows[-1]]]
    assert len(stream.order_digest(LAST - 9, 10)) == 64
    if "ordered" in repr(stream):
        assert rows.tolist() == [position % stream.num_rows for position in positions]


def test_draws_past_the_end_of_the_stream_are_refused(dataset):
    stream = dataset.stream()
    for call in (stream.rows, stream.records, stream.identities, stream.order_digest):
        with pytest.raises(drt.ConfigError, match=r"start \+ count must be at most 2\^64"):
            call(LAST, 2)
        with pytest.raises(drt.ConfigError, match=r"start must be in \[0, 2\*\*64\)"):
            call(2**64, 1)
    for position in (2**64, -1):
        with pytest.raises(IndexError, match=r"position must be in \[0, 2\*\*64\)"):
            stream[position]
        for fetch in (stream.fetch, stream.fetch_batch):
            with pytest.raises(drt.ConfigError, match=r"positions must be in \[0, 2\*\*64\)"):
                fetch([0, position])


# --- Arguments


@pytest.mark.parametrize("number", [-1, 1.0, "1", None, True])
def test_a_start_or_count_that_is_no_natural_number_is_refused(open_caches, paths, number):
    stream = open_caches(*paths).stream()
    for call in (stream.rows, stream.records, stream.identities, stream.order_digest):
        with pytest.raises(drt.ConfigError, match="start must be"):
            call(number, 1)
        with pytest.raises(drt.ConfigError, match="count must be"):
            call(0, number)


def test_a_count_that_no_memory_holds_is_an_error_and_no_abort(paths):
    program = (
        "import sys, dataset_rt as drt\n"
        "dataset = drt.DatasetRuntime(num_workers=1).cached_dataset(sys.argv[1:], reader_config=drt.ReaderConfig())\n"
        "stream = dataset.stream()\n"
        "for count in (2**40, 2**60, 2**63):\n"
        "    for call in (stream.rows, stream.records, stream.identities):\n"
        "        try:\n"
        "            call(0, count)\n"
        "        except (drt.ConfigError, MemoryError) as error:\n"
        "            print(type(error).__name__, error)\n"
        "        else:\n"
        "            raise SystemExit('no error')\n"
    )
    command = ["bash", "-c", 'ulimit -v 8000000; exec "$@"', "-", sys.executable, "-c", program, *map(str, paths)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert len(run.stdout.splitlines()) == 9


@pytest.mark.parametrize("numbers", [[0.5], ["0"], [None], [True], [-1]])
def test_positions_and_records_that_are_no_natural_numbers_are_refused(open_caches, paths, numbers):
    stream = open_caches(*paths).stream()
    for call in (stream.fetch, stream.fetch_batch):
        with pytest.raises(drt.ConfigError, match="positions must be"):
            call(numbers)
    for call in (stream.fetch_records, stream.fetch_records_batch):
        with pytest.raises(drt.ConfigError, match="records must be"):
            call(numbers)
    with pytest.raises(drt.ConfigError, match="rows must be"):
        stream.fetch_rows(numbers)


@pytest.mark.parametrize("record", [41, 10**6, LAST])
def test_a_record_that_is_not_there_is_refused_by_its_number(open_caches, paths, record):
    stream = open_caches(*paths).stream()
    for call in (stream.fetch_records, stream.fetch_records_batch):
        with pytest.raises(drt.ConfigError, match=str(record)):
            call([0, record, 1])


@pytest.mark.parametrize("row", [3, 41, LAST])
def test_a_row_that_is_not_there_is_refused_by_its_number(open_caches, paths, row):
    dataset = open_caches(*paths)
    dataset.update_metadata(dataset.get_metadata().head(3))
    with pytest.raises(drt.ConfigError, match=str(row)):
        dataset.stream().fetch_rows([0, row])


def test_numbers_may_be_of_any_integer_type(open_caches, paths):
    stream = open_caches(*paths, **MODES["with_replacement"]).stream()
    expected = stream.fetch([3, 5])
    for kind in (
        np.array,
        tuple,
        iter,
        lambda numbers: map(np.int32, numbers),
        lambda numbers: np.array(numbers, "<u8"),
    ):
        assert stream.fetch(kind([3, 5])) == expected
        assert stream.fetch_batch(kind([3, 5])).num_rows == 2
    assert stream[np.int64(3)] == stream[np.uint64(3)] == expected[0]
    assert stream.rows(np.int8(3), np.uint16(2)).tolist() == stream.rows(3, 2).tolist()
    assert stream.fetch([]) == []
    assert stream.fetch_batch([]).num_rows == stream.fetch_records_batch([]).num_rows == 0
    with pytest.raises(drt.ConfigError, match="position must be an integer, got '3'"):
        stream["3"]


def test_a_stream_is_made_by_a_dataset_alone():
    with pytest.raises(drt.ConfigError, match="stream"):
        drt.SampleStream()


def test_what_rows_gives_may_be_written_to(open_caches, paths):
    stream = open_caches(*paths, **MODES["with_replacement"]).stream()
    rows, expected = stream.rows(0, 10), stream.rows(0, 10).tolist()
    rows[:] = 0
    assert stream.rows(0, 10).tolist() == expected


# --- Pickles and representations


def test_a_pickled_stream_is_small_however_large_the_unedited_cache(million, open_caches):
    dataset = open_caches(million, shuffle=True)
    stream = dataset.stream()
    pickled = pickle.dumps(stream)
    assert len(pickled) < 16_384
    # The very same, no matter how many rows: what grows is digits at most.
    again = pickle.loads(pickled)
    assert again.num_rows == 1_000_000
    assert again.order_digest(0, 10_000) == stream.order_digest(0, 10_000)
    assert repr(again) == repr(stream)


def test_a_pickled_stream_of_an_edited_table_adds_at_most_sixteen_bytes_a_row(million, open_caches):
    dataset = open_caches(million, shuffle=True)
    bare = len(pickle.dumps(dataset.stream()))
    table = dataset.get_metadata()
    dataset.update_metadata(table.tail(600_000).with_columns(weight=1.0 + pl.col("sample_id") % 9, extra=pl.lit("x")))
    stream = dataset.stream()
    pickled = pickle.dumps(stream)
    # The digest and the lengths of three byte strings are the rest.
    assert len(pickled) <= bare + 16 * 600_000 + 256
    again = pickle.loads(pickled)
    assert (repr(again), again.order_digest(0, 10_000)) == (repr(stream), stream.order_digest(0, 10_000))


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_stream_comes_out_of_a_pickle_as_it_went_in(dataset, protocol):
    dataset.set_epoch_len(9)
    stream = dataset.stream()
    again = pickle.loads(pickle.dumps(stream, protocol))
    twice = pickle.loads(pickle.dumps(again, protocol))
    for other in (again, twice):
        assert (repr(other), other.epoch_len, other.num_rows) == (repr(stream), 9, stream.num_rows)
        assert other.rows(0, 300).tolist() == stream.rows(0, 300).tolist()
        assert other.fetch(range(100)) == stream.fetch(range(100))
        assert other.table().equals(stream.table())
        assert other.population_digest == stream.population_digest


def test_a_pickle_whose_caches_are_gone_or_replaced_says_which(open_caches, paths, cache_of, tmp_path):
    pickled = pickle.dumps(open_caches(*paths).stream())
    shutil.rmtree(paths[1])
    with pytest.raises(drt.CacheNotFoundError, match="right"):
        pickle.loads(pickled)
    cache_of("right", [{"label": 1}, {"label": 2}])
    with pytest.raises(drt.ConfigError, match=r"right.*another cache"):
        pickle.loads(pickled)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_opener_opens_the_same_stream_and_no_cache_before_it_is_called(dataset, paths, protocol):
    dataset.set_epoch_len(9)
    stream = dataset.stream()
    pickled = pickle.dumps(stream.opener(), protocol)
    assert abs(len(pickled) - len(pickle.dumps(stream, protocol))) < 128
    again = pickle.loads(pickled)()
    assert (repr(again), again.epoch_len) == (repr(stream), 9)
    assert again.fetch(range(100)) == stream.fetch(range(100))
    for path in paths:
        shutil.rmtree(path)
    opener = pickle.loads(pickled)
    with pytest.raises(drt.CacheNotFoundError):
        opener()


def test_open_files_do_not_travel(open_caches, paths):
    streams = []
    for case in CASES:
        dataset = opened(open_caches, paths, *case)
        # Its files are open now.
        list(dataset)
        streams.append(dataset.stream())
    program = (
        "import pickle, sys\n"
        "for stream in pickle.loads(sys.stdin.buffer.read()):\n"
        "    print(repr(stream), stream.order_digest(0, 500), len(stream.fetch(range(50))))\n"
    )
    pickled = pickle.dumps(streams)
    run = subprocess.run([sys.executable, "-c", program], input=pickled, stdout=subprocess.PIPE, check=True, timeout=60)
    expected = [f"{stream!r} {stream.order_digest(0, 500)} 50" for stream in streams]
    assert run.stdout.decode().splitlines() == expected


def test_the_representation_depends_on_content_and_not_on_folders(open_caches, paths, tmp_path):
    stream = open_caches(*paths, **MODES["with_replacement"]).stream()
    copies = [Path(shutil.copytree(path, tmp_path / "elsewhere" / path.name)) for path in paths]
    assert repr(open_caches(*copies, **MODES["with_replacement"]).stream()) == repr(stream)
    assert repr(open_caches(*reversed(paths), **MODES["with_replacement"]).stream()) == repr(stream)
    assert not any(str(part) in repr(stream) for part in (tmp_path, hex(id(stream)), "0x"))


def test_the_representation_differs_where_content_table_or_configuration_do(open_caches, paths, cache_of, tmp_path):
    def shown(*folders, edit=None, epoch_len=None, **fields):
        dataset = open_caches(*folders, **{**MODES["with_replacement"], **fields})
        if edit is not None:
            dataset.update_metadata(edit(dataset.get_metadata()))
        if epoch_len is not None:
            dataset.set_epoch_len(epoch_len)
        return repr(dataset.stream())

    changed = cache_of("left", [{"label": 1 + number % 3} for number in range(23)], root=tmp_path / "changed")
    texts = [
        shown(*paths),
        shown(*paths, seed=12),
        shown(*paths, shuffle=False),
        shown(*paths, replacement=False),
        shown(paths[0]),
        shown(changed, paths[1]),
        shown(*paths, epoch_len=40),
        shown(*paths, edit=lambda table: table.head(40)),
        shown(*paths, edit=lambda table: pl.concat([table.head(40), table.head(1)])),
        shown(*paths, edit=lambda table: table.with_columns(weight=1.0 + pl.int_range(pl.len()) % 2)),
    ]
    assert len(set(texts)) == len(texts)


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_pickled_streams_work_in_children_where_polars_cannot_be_used(open_caches, paths, tmp_path, method):
    streams = [opened(open_caches, paths, *case).stream() for case in CASES]
    file = tmp_path / "streams.pickle"
    file.write_bytes(pickle.dumps(streams))
    program = Path(__file__).with_name("stream_worker.py")
    run = subprocess.run(
        [sys.executable, str(program), method, str(file)],
        stdout=subprocess.PIPE,
        check=True,
        timeout=60,
        env={**os.environ, "PYTHONHASHSEED": "5"},
    )
    found = json.loads(run.stdout)
    assert found["here"] == found["child"]
    positions = [0, 1, 40, 3, LAST, 3]
    for stream, delivered in zip(streams, found["child"], strict=True):
        samples = stream.fetch(positions)
        assert delivered == {
            "repr": repr(stream),
            "rows": stream.rows(0, 100).tolist(),
            "records": stream.records(0, 100).tolist(),
            "digest": stream.order_digest(0, 100),
            "samples": [[sample.data.decode(), *list(sample)[1:]] for sample in samples],
            "batch": [
                [sample.cache_id for sample in samples],
                [sample.sample_id for sample in samples],
                [sample.metadata["label"] for sample in samples],
            ],
            "one": stream[7].sample_id,
            "by_record": [sample.sample_id for sample in stream.fetch(range(9))],
        }


# --- Threads


def test_thirty_two_threads_that_read_one_stream_agree_with_one(dataset):
    stream = dataset.stream()
    count = 400
    expected = {
        "rows": stream.rows(0, count).tolist(),
        "samples": stream.fetch(range(count)),
        "batch": stream.fetch_batch(range(count)),
        "digest": stream.order_digest(0, count),
    }
    start, wrong = threading.Barrier(32), []

    def read(number):
        try:
            start.wait(timeout=30)
            for step in range(20):
                # Other passes of the stream in between: they would push the wanted one out of a shared memory.
                stream.rows(10_000 * (number + 1) + step, 50)
                place = (37 * number + 11 * step) % count
                assert stream.rows(place, count - place).tolist() == expected["rows"][place:]
                part = range(place, min(place + 20, count))
                assert stream.fetch(part) == expected["samples"][part.start : part.stop]
                assert stream.fetch_batch(part).equals(expected["batch"].slice(part.start, len(part)))
                assert stream[place] == expected["samples"][place]
            assert stream.order_digest(0, count) == expected["digest"]
            assert pickle.loads(pickle.dumps(stream)).order_digest(0, count) == expected["digest"]
        except BaseException as error:
            wrong.append(error)
            raise

    threads = [threading.Thread(target=read, args=(number,), daemon=True) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
        assert not thread.is_alive()
    assert wrong == []
