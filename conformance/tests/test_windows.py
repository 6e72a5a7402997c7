"""Windows dealt to ranks: together they are the single stream, whoever saves, and however many go on."""

from itertools import chain, zip_longest

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dataset_rt as drt
import oracle
from oracle import LAST_END, MODES, ORDERED, REMAINDERS, Row, World
from reproducible import REPRODUCIBLE

MANY = settings(REPRODUCIBLE, max_examples=300)

ABSENT = object()
sizes = st.integers(1, 9)
lengths = st.integers(1, 40)
rules = st.sampled_from(REMAINDERS)


def dealt(hands):
    """The draws of all ranks, as they lie in the stream."""
    return [one for one in chain(*zip_longest(*hands, fillvalue=ABSENT)) if one is not ABSENT]


def identity(sample):
    return sample.cache_id, sample.sample_id


def expected_draws(dataset, rows_of, start, count):
    """The draws by the oracle."""
    core = dataset.state_dict()
    table = rows_of(dataset.get_metadata())
    numbering = oracle.number_population(table, core["mode"])
    stream = oracle.Stream(core["mode"], core["seed"], [table[row].weight for row in numbering])
    return [table[numbering[stream.row(start + draw)]][:2] for draw in range(count)]


def move(dataset, position, epoch_len):
    """Put a dataset anywhere, by a state."""
    dataset.load_state_dict({**dataset.state_dict(), "position": position, "epoch_len": epoch_len, "window": None})


@MANY
@given(mode=st.sampled_from(MODES), start=st.integers(0, 100) | st.just(2**63), length=lengths, size=sizes, rule=rules)
def test_all_ranks_of_successive_windows_interleaved_are_the_stream(caches, rows_of, mode, start, length, size, rule):
    if rule == "drop" and length < size:
        length += size
    whole = caches.open(7, 10, mode=mode, seed=4)
    move(whole, start, length)
    views = [whole.shard(rank, size, remainder=rule) for rank in range(size)]
    stride = World(0, size, rule).stride(length)
    for window in range(3):
        hands = [[identity(sample) for sample in view] for view in views]
        if rule != "uneven":
            assert len(set(map(len, hands))) == 1
        assert [len(view) for view in views] == [len(hand) for hand in hands]
        assert dealt(hands) == expected_draws(whole, rows_of, start + window * stride, stride)
        assert {view.position for view in views} == {start + (window + 1) * stride}


@MANY
@given(length=lengths, size=sizes, rule=rules, batch=st.integers(1, 12), drop_last=st.booleans())
def test_neither_batch_size_nor_drop_last_moves_the_next_window(caches, length, size, rule, batch, drop_last):
    if rule == "drop" and length < size:
        length += size
    whole = caches.open(7, 10, mode=ORDERED, seed=0)
    whole.set_epoch_len(length)
    stride = World(0, size, rule).stride(length)
    for rank in range(size):
        view = whole.shard(rank, size, remainder=rule)
        batches = list(view.iter_batches(batch, drop_last=drop_last))
        full, short = divmod(len(view), batch)
        assert [part.num_rows for part in batches] == [batch] * full + [short] * (short > 0 and not drop_last)
        assert view.position == view.state_dict()["position"] == stride
        assert view.state_dict()["window"] is None


@MANY
@given(
    mode=st.sampled_from(MODES),
    length=lengths,
    runs=st.lists(
        st.tuples(sizes, rules, st.integers(0, 12), st.randoms(use_true_random=False)), min_size=2, max_size=6
    ),
)
def test_a_chain_of_resumes_at_any_world_size_loses_and_repeats_nothing(caches, rows_of, mode, length, runs):
    """Each run takes some draws on all ranks, crossing windows, and any rank's state starts the next one."""
    reader = caches.open(7, 10, mode=mode, seed=6)
    reader.set_epoch_len(length)
    saved = reader.state_dict()
    found = []
    for size, rule, steps, chance in runs:
        if rule == "drop" and length < size:
            rule = "extend"
        views = []
        for rank in range(size):
            fresh = caches.open(7, 10, mode=mode, seed=6)
            fresh.load_state_dict(saved)
            views.append(fresh.shard(rank, size, remainder=rule))
        iterators = [iter(view) for view in views]
        for _ in range(steps):
            given_out = [next(iterator, None) for iterator in iterators]
            found += [identity(sample) for sample in given_out if sample is not None]
            # A rank without a last draw of an uneven window is done with it, and so are all behind it.
            if None in given_out:
                for rank, iterator in enumerate(iterators):
                    assert next(iterator, None) is None
                    iterators[rank] = iter(views[rank])
        running = [view for view in views if view.state_dict()["window"] is not None]
        states = [view.state_dict() for view in (running or views)]
        assert all(state == states[0] for state in states)
        saved = chance.choice(states)
    assert saved["position"] == len(found)
    assert found == expected_draws(reader, rows_of, 0, len(found))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rule", REMAINDERS)
def test_windows_reach_the_last_position_and_not_beyond(caches, rows_of, mode, rule):
    for size, length, short in ((1, 5, 5), (3, 6, 6), (3, 7, 9)):
        whole = caches.open(7, 10, mode=mode, seed=1)
        move(whole, LAST_END - short, length)
        views = [whole.shard(rank, size, remainder=rule) for rank in range(size)]
        hands = [[identity(sample) for sample in view] for view in views]
        stride = World(0, size, rule).stride(length)
        assert dealt(hands) == expected_draws(whole, rows_of, LAST_END - short, stride)
        for view in views:
            before = view.state_dict()
            with pytest.raises(drt.ConfigError, match="2\\^64"):
                next(iter(view))
            assert view.state_dict() == before


@pytest.mark.parametrize(
    ("size", "rule", "batch", "first_draws", "next_start"),
    [(1, "extend", 4, [10, 11, 12, 13], 20), (2, "extend", 3, [11, 13, 15], 21), (2, "drop", 2, [9, 11], 19)],
)
def test_a_rest_without_a_full_batch_is_passed_over(caches, size, rule, batch, first_draws, next_start):
    dataset = caches.open(40, mode=ORDERED, seed=0)
    dataset.load_state_dict({**dataset.state_dict(), "position": 7, "epoch_len": 10, "window": [0, 10]})
    view = dataset.shard(0, size, remainder=rule)
    first = next(view.iter_batches(batch, drop_last=True))
    assert first.column("sample_id").to_pylist() == first_draws
    assert view.position == next_start


def test_the_model_itself_never_gives_an_empty_epoch_after_a_resume():
    """The same cases, and all their neighbours, for the oracle alone."""
    for size in (1, 2, 3, 5):
        for rule in REMAINDERS:
            for position in range(1, 12):
                for batch, drop_last in ((1, False), (1, True), (3, True), (4, False), (12 // size, True)):
                    # A longer batch would leave every window empty, not only a rest.
                    batch = min(batch, 12 // size)
                    table = [Row(1, number, 1.0) for number in range(50)]
                    model = oracle.Dataset(table, ORDERED, 0)
                    model.load(oracle.State(position, 12, (0, 12)))
                    views = [model.shard(World(rank, size, rule)) for rank in range(size)]
                    delivered = [view.iterate(batch, drop_last=drop_last).next() for view in views]
                    assert any(delivered), (size, rule, position, batch, drop_last)
                    assert len({view.position for view in views}) == 1
