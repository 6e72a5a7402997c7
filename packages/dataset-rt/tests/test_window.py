"""Windows for adapters: reserved like an iterator's, dealt to ranks, and saved at any batch."""

import itertools
import os
import pickle

import numpy as np
import polars as pl
import pytest

import dataset_rt as drt

ROWS = 23


@pytest.fixture
def path(cache_of):
    return cache_of("samples", [{"label": number % 3} for number in range(ROWS)])


@pytest.fixture
def dataset(open_caches, path):
    return open_caches(path, shuffle=True, seed=7)


def ids(samples):
    return [sample.sample_id for sample in samples]


def records(window):
    return window.records(0, window.num_draws).tolist()


def batches_of(window):
    """Record numbers of each batch that the window says it has."""
    size = window.batch_size
    return [window.records(number * size, size).tolist() for number in range(window.num_batches)]


def test_a_window_has_the_draws_of_an_iterator(dataset, open_caches, path):
    for epoch_len in (ROWS, 5, 40):
        dataset.set_epoch_len(epoch_len)
        start = dataset.position
        window = dataset.ticket().reserve()
        assert (window.start, window.end, dataset.position) == (start, start + epoch_len, start + epoch_len)
        assert records(window) == dataset.stream().records(start, epoch_len).tolist()
        assert window.positions(0, epoch_len).tolist() == list(range(start, start + epoch_len))


def test_a_ticket_moves_nothing_and_counts_what_it_would_reserve(dataset):
    ticket = dataset.ticket(4)
    assert (ticket.num_draws, ticket.num_batches, dataset.position) == (ROWS, 6, 0)
    assert ticket.state_dict() == dataset.state_dict()
    dataset.load_state_dict(dataset.state_dict() | {"position": 20, "window": [0, ROWS]})
    assert (ticket.num_draws, ticket.num_batches) == (3, 1)
    assert dataset.ticket(4, drop_last=True).num_batches == ROWS // 4, "a rest without a full batch is passed over"
    window = ticket.reserve()
    assert (window.start, window.end) == (20, ROWS)


def test_a_ticket_keeps_the_table_and_epoch_length_of_its_making(dataset):
    ticket = dataset.ticket()
    old = dataset.stream().records(0, ROWS).tolist()
    dataset.update_metadata(dataset.get_metadata().head(4))
    dataset.set_epoch_len(3)
    window = ticket.reserve()
    assert records(window) == old
    assert dataset.position == 0, "a window of a table that was replaced does not move the dataset"
    assert window.stream().num_rows == ROWS


@pytest.mark.parametrize("remainder", ["extend", "drop", "uneven"])
@pytest.mark.parametrize("world_size", [1, 2, 3, 8])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_of_a_ticket_deal_the_stream_as_views_do(open_caches, path, remainder, world_size, drop_last):
    for rank in range(world_size):
        whole = open_caches(path, shuffle=True, seed=7)
        view = open_caches(path, shuffle=True, seed=7).shard(rank, world_size, remainder=remainder)
        assert view.world == (rank, world_size, remainder)
        for _ in range(3):
            ticket = whole.ticket(2, drop_last=drop_last, rank=rank, world_size=world_size, remainder=remainder)
            of_view = view.ticket(2, drop_last=drop_last)
            promised = ticket.num_batches
            window, expected = ticket.reserve(), view.iter_batches(2, drop_last=drop_last)
            assert records(of_view.reserve()) == records(window)
            view.load_state_dict(window.state_dict(batches=0))
            batches = batches_of(window)
            assert len(batches) == promised
            assert batches == [batch.column("sample_id").to_pylist() for batch in expected]
            assert window.world == (rank, world_size, remainder)
            assert view.position == whole.position == window.end


@pytest.mark.parametrize("remainder", ["extend", "drop"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("world_size", [1, 3])
def test_the_state_behind_any_number_of_batches_is_that_of_the_cores_own_iterator(
    open_caches, path, remainder, drop_last, world_size
):
    arguments = {"rank": 0, "world_size": world_size, "remainder": remainder}
    dataset, view = open_caches(path), open_caches(path).shard(**arguments)
    window = dataset.ticket(4, drop_last=drop_last, **arguments).reserve()
    iterator = view.iter_batches(4, drop_last=drop_last)
    for batches in range(window.num_batches + 1):
        assert batches == 0 or next(iterator)
        expected = window.state_dict(batches=batches)
        # Before its first `next` an iterator is not in a window yet.
        assert batches == 0 or iterator.state_dict() == expected
        assert window.state_dict() == dataset.state_dict() == expected
        if batches < window.num_batches:
            window.advance()
    window.finish()
    assert dataset.state_dict()["position"] == window.end
    assert dataset.state_dict()["window"] is None


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("epoch_len", [1, 3, 4, 7, 8])
def test_a_window_has_no_state_behind_more_batches_than_it_has(dataset, epoch_len, drop_last):
    dataset.set_epoch_len(epoch_len)
    window = dataset.ticket(4, drop_last=drop_last, rank=0, world_size=1, remainder="uneven").reserve()
    most = window.num_batches
    for batches in range(most + 1):
        window.state_dict(batches=batches)
    for batches in (most + 1, most + 2, 2**64 - 1):
        with pytest.raises(drt.ConfigError, match=rf"batches must be in \[0, {most}\].*got {batches}$"):
            window.state_dict(batches=batches)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("epoch_len", [4, 7, 8])
def test_a_window_refuses_to_advance_beyond_its_last_batch_and_stays_there(dataset, epoch_len, drop_last):
    dataset.set_epoch_len(epoch_len)
    window = dataset.ticket(4, drop_last=drop_last).reserve()
    for _ in range(window.num_batches):
        window.advance()
    state = window.state_dict()
    for _ in range(2):
        with pytest.raises(drt.ConfigError, match=rf"once for each of the window's {window.num_batches} batches"):
            window.advance()
        assert window.state_dict() == dataset.state_dict() == state
    window.finish()
    with pytest.raises(drt.ConfigError, match="not after finish"):
        window.advance()


@pytest.mark.parametrize(("epoch_len", "drop_last"), [(ROWS, False), (ROWS, True), (20, True)])
def test_each_step_over_advancing_notes_one_batch_until_none_is_left(dataset, epoch_len, drop_last):
    windows = []
    for _ in range(2):
        dataset.load_state_dict(dataset.state_dict() | {"position": 0, "window": None, "epoch_len": epoch_len})
        windows.append(dataset.ticket(4, drop_last=drop_last).reserve())
    counted, called = windows
    steps = counted.advancing()
    for _ in range(counted.num_batches):
        assert next(steps) is None
        called.advance()
        assert counted.state_dict() == called.state_dict()
    with pytest.raises(drt.ConfigError, match="batch"):
        next(steps)
    assert counted.state_dict() == called.state_dict()


def test_every_rest_loads_from_a_windows_state(dataset, open_caches, path):
    window = dataset.ticket(4).reserve()
    whole = batches_of(window) + batches_of(dataset.ticket(4).reserve())
    for batches in range(window.num_batches + 1):
        other = open_caches(path, shuffle=True, seed=7)
        other.load_state_dict(window.state_dict(batches=batches))
        rest = [batches_of(other.ticket(4).reserve()) for _ in range(2 if batches < window.num_batches else 1)]
        assert list(itertools.chain(*rest)) == whole[batches:]


def test_a_reserved_window_reads_ahead_and_advances_only_when_told(dataset):
    window = dataset.ticket(4).reserve()
    expected = records(window)
    assert ids(window.iter_samples()) == expected
    batches = [batch.column("sample_id").to_pylist() for batch in window.iter_batches()]
    assert batches == batches_of(window)
    assert dataset.state_dict()["position"] == 0
    window.advance()
    assert dataset.state_dict()["position"] == 4


def test_draws_are_cut_like_slices(dataset):
    window = dataset.ticket().reserve()
    assert window.records(20, 100).tolist() == records(window)[20:]
    assert window.positions(23, 5).size == window.records(2**64 - 1, 2**64 - 1).size == 0
    with pytest.raises(drt.ConfigError, match=r"first must be in \[0, 2\*\*64\), got -1"):
        window.records(-1, 1)


def test_a_stream_gives_windows_anywhere_and_moves_nothing(dataset):
    dataset.update_metadata(dataset.get_metadata().with_columns(weight=1.0 + pl.int_range(pl.len())))
    stream = dataset.stream()
    for start in (0, 5, 10**15):
        for rank in range(3):
            window = stream.window(start, 4, rank=rank, world_size=3)
            assert records(window) == stream.records(start, 24)[rank::3].tolist()
            assert (window.end, window.num_draws, window.num_batches) == (start + 24, 8, 2)
    assert stream.window(0, epoch_len=5).num_draws == 5
    assert dataset.position == 0
    with pytest.raises(drt.ConfigError, match=r"2\^64 - 1"):
        stream.window(2**64 - 1)
    with pytest.raises(drt.ConfigError, match="epoch_len must be at least 1, got 0"):
        stream.window(0, epoch_len=0)


def test_a_window_of_a_stream_has_states_that_load(dataset):
    window = dataset.stream().window(ROWS, 4)
    expected = batches_of(window)
    dataset.load_state_dict(window.state_dict(batches=2))
    assert batches_of(dataset.ticket(4).reserve()) == expected[2:]


def test_a_cursor_of_a_stream_moves_by_itself(dataset, open_caches, path):
    dataset.set_epoch_len(10)
    cursor = dataset.stream().cursor()
    other = pickle.loads(pickle.dumps(dataset.stream())).cursor()
    for expected in (range(10), range(10, 20)):
        for one in (cursor, other):
            window = one.ticket(4).reserve()
            assert window.positions(0, 10).tolist() == list(expected)
            window.advance()
            assert one.state_dict() == window.state_dict(batches=1)
    assert (cursor.position, cursor.epoch_len, cursor.world, dataset.position) == (20, 10, None, 0)
    cursor.set_epoch_len(2)
    cursor.load_state_dict(cursor.state_dict())
    assert cursor.ticket().num_draws == 6, "the rest of the second window"
    assert cursor.stream().epoch_len == 2
    with pytest.raises(drt.StateMismatchError, match="seed"):
        open_caches(path, shuffle=True, seed=8).stream().cursor().load_state_dict(cursor.state_dict())


def test_a_whole_stream_reads_every_record_and_pickles_small(dataset):
    table = dataset.get_metadata()
    assert dataset.stream().is_whole
    dataset.update_metadata(pl.concat([table.tail(3).reverse()] * 500))
    stream = dataset.stream()
    assert not stream.is_whole
    whole = stream.whole()
    assert whole.is_whole
    assert whole.num_rows == whole.epoch_len == ROWS
    assert len(pickle.dumps(whole)) < 1_000 < len(pickle.dumps(stream))
    drawn = stream.records(0, 5)
    assert whole.fetch_records(drawn) == stream.fetch_records(drawn)


def test_table_records_follow_the_table_as_it_is_shown(open_caches, cache_of):
    left = cache_of("left", [{}] * 3)
    right = cache_of("right", [{}] * 4)
    for paths in ((left, right), (right, left)):
        dataset = open_caches(*paths, shuffle=True)
        for table in (dataset.get_metadata(), dataset.get_metadata().reverse().head(5)):
            dataset.update_metadata(table)
            stream = dataset.stream()
            found = stream.fetch_records(stream.table_records(0, table.height))
            assert found == dataset.read(range(table.height))
            assert stream.table_records(2, 1).tolist() == stream.table_records(0, 3).tolist()[2:]
            with pytest.raises(drt.ConfigError, match="must be at most the"):
                stream.table_records(1, table.height)
        unedited = open_caches(*paths, shuffle=True).stream()
        unpickled = pickle.loads(pickle.dumps(unedited))
        assert unpickled.table_records(0, 7).tolist() == unedited.table_records(0, 7).tolist()


def test_a_window_is_read_in_a_forked_child(dataset):
    window = dataset.ticket(4).reserve()
    expected = batches_of(window)
    list(window.iter_batches())
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            batches = [batch.column("sample_id").to_pylist() for batch in window.iter_batches()]
            os.write(writing, b"same" if batches == expected == batches_of(window) else b"other")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read() == b"same"
    assert os.waitpid(child, 0)[1] == 0


def test_wrong_arguments_are_refused(dataset):
    stream, view = dataset.stream(), dataset.shard(0, 2)
    cases = [
        (lambda: dataset.ticket(0), "batch_size must be at least 1, got 0"),
        (lambda: stream.window(0, 0), "batch_size must be at least 1, got 0"),
        (lambda: dataset.ticket(drop_last=1), "drop_last must be True or False, got 1"),
        (lambda: stream.window(0, drop_last=1), "drop_last must be True or False, got 1"),
        (lambda: dataset.ticket(rank=1), "rank and world_size must be given together, got 1 and None"),
        (lambda: dataset.ticket(rank=2, world_size=2), r"rank must be in \[0, 2\), got 2"),
        (lambda: dataset.ticket(remainder="drop"), "remainder must come with rank and world_size, got 'drop' alone"),
        (lambda: dataset.ticket(rank=0, world_size=1, remainder="all"), 'remainder must be "extend"'),
        (lambda: dataset.ticket(rank=0, world_size=1, remainder=None), 'remainder must be "extend"'),
        (lambda: dataset.ticket(rank=0, world_size=24, remainder="drop"), "epoch_len must be at least the world size"),
        (lambda: view.ticket(rank=0, world_size=2), "must not be a rank's view already"),
        (lambda: stream.window(0, rank=2, world_size=2), r"rank must be in \[0, 2\), got 2"),
        (lambda: dataset.ticket().reserve().state_dict(batches=-1), r"batches must be in \[0, 2\*\*64\), got -1"),
        (drt.Window, "made by WindowTicket.reserve"),
        (drt.WindowTicket, "made by CachedDataset.ticket"),
        (drt.StreamCursor, "made by SampleStream.cursor"),
    ]
    for call, message in cases:
        with pytest.raises(drt.ConfigError, match=message):
            call()


def test_they_show_what_they_are(dataset):
    ticket = dataset.ticket(4, rank=1, world_size=2, remainder="drop")
    assert repr(ticket) == "WindowTicket(num_draws=11, num_batches=3)"
    assert repr(ticket.reserve()) == (
        "Window(start=0, end=22, rank=1 of 2, remainder='drop', num_draws=11, num_batches=3)"
    )
    assert repr(dataset.stream().cursor()) == f"StreamCursor(rows={ROWS}, epoch_len={ROWS}, position=0)"
    assert np.uint64(3) == dataset.ticket(np.int64(3)).reserve().batch_size
