"""Ranks: what each one gets, how many batches, and that no rank needs another one."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest

import dataset_rt as drt

MODES = {
    "ordered": {"shuffle": False},
    "with_replacement": {"shuffle": True, "seed": 11},
    "without_replacement": {"shuffle": True, "replacement": False, "seed": 11},
}

# --- The grid


def pairwise(factors):
    """Few combinations in which every pair of values of two factors occurs: the best next one, over and over."""
    every = list(itertools.product(*factors.values()))

    def pairs(combination):
        return set(itertools.combinations(enumerate(combination), 2))

    missing = set().union(*map(pairs, every))
    chosen = []
    while missing:
        best = max(every, key=lambda combination: len(pairs(combination) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def grid(**factors):
    """Parametrize by all combinations under DATASET_RT_GRID=full, and by each pair of values otherwise."""
    full = os.environ.get("DATASET_RT_GRID") == "full"
    return pytest.mark.parametrize(
        tuple(factors), list(itertools.product(*factors.values())) if full else pairwise(factors)
    )


@pytest.fixture(scope="module")
def caches(tmp_path_factory):
    """A cache of every length, by its length."""

    class Source:
        def __init__(self, length):
            self.name = f"samples-{length}"
            self.length = length

        def __iter__(self):
            for number in range(self.length):
                yield drt.CacheInput(b"payload %d" % number, {"label": number % 5})

    config = drt.WriterConfig(show_progress=False)
    lengths = (1, 7, 100)
    with drt.DatasetRuntime(num_workers=2) as runtime:
        results = runtime.write_cache(
            [Source(length) for length in lengths], tmp_path_factory.mktemp("ranks"), writer_config=config
        )
    return dict(zip(lengths, (result.path for result in results), strict=True))


def ids(samples):
    return [sample.sample_id for sample in samples]


def share_of(start, length, rank, world_size, remainder):
    """The draws of one rank, and the end of what all ranks take: by counting, one draw after the other."""
    dealt = [start + number for number in range(length)]
    if remainder == "extend":
        while len(dealt) % world_size:
            dealt.append(dealt[-1] + 1)
    elif remainder == "drop":
        while len(dealt) % world_size:
            dealt.pop()
    return [draw for number, draw in enumerate(dealt) if number % world_size == rank], start + len(dealt)


@grid(
    length=[1, 7, 100],
    world_size=[1, 2, 3, 8],
    batch=[1, 4],
    drop_last=[False, True],
    remainder=["extend", "drop", "uneven"],
    mode=list(MODES),
)
def test_ranks_get_equal_batch_counts_a_right_length_and_together_the_single_stream(
    caches, open_caches, length, world_size, batch, drop_last, remainder, mode
):
    dataset = open_caches(caches[length], **MODES[mode])
    if remainder == "drop" and length < world_size:
        for rank in range(world_size):
            with pytest.raises(drt.ConfigError, match=rf"at least the world size {world_size} .*got {length}"):
                dataset.shard(rank, world_size, remainder=remainder)
        return
    whole = dataset.stream().records(0, 3 * (length + world_size)).tolist()
    views = [dataset.shard(rank, world_size, remainder=remainder) for rank in range(world_size)]
    start = end = 0
    for _ in range(3):
        counts = []
        for rank, view in enumerate(views):
            share, end = share_of(start, length, rank, world_size, remainder)
            assert len(view) == len(share)
            kept = len(share) - (len(share) % batch if drop_last else 0)
            batches = view.iter_batches(batch, drop_last=drop_last)
            assert batches.__length_hint__() == -(-kept // batch)
            found = [found.column("sample_id").to_pylist() for found in batches]
            counts.append(len(found))
            assert [len(numbers) for numbers in found] == [min(batch, kept - place) for place in range(0, kept, batch)]
            assert list(itertools.chain(*found)) == [whole[draw] for draw in share[:kept]]
            assert view.position == view.state_dict()["position"] == end
        # Equal on all ranks; `uneven` alone may give the first ones one more.
        assert max(counts) - min(counts) <= (1 if remainder == "uneven" else 0)
        start = end
    # The same windows, a sample at a time, dealt back together.
    start = 0
    views = [dataset.shard(rank, world_size, remainder=remainder) for rank in range(world_size)]
    for _ in range(2):
        shares = [ids(view) for view in views]
        end = views[0].position
        dealt = [sample for step in itertools.zip_longest(*shares) for sample in step if sample is not None]
        assert dealt == whole[start:end]
        start = end


@grid(
    length=[1, 7, 100],
    before=[1, 2, 3, 8],
    after=[1, 2, 3, 8],
    batch=[1, 4],
    drop_last=[False, True],
    remainder=["extend", "drop", "uneven"],
    mode=list(MODES),
)
def test_any_number_of_ranks_goes_on_after_any_step_of_any_other_number(
    caches, open_caches, length, before, after, batch, drop_last, remainder, mode
):
    if remainder == "drop" and length < max(before, after):
        with pytest.raises(drt.ConfigError, match="at least the world size"):
            open_caches(caches[length], **MODES[mode]).shard(0, max(before, after), remainder=remainder)
        return
    dataset = open_caches(caches[length], **MODES[mode])
    whole = dataset.stream().records(0, 4 * (length + 8)).tolist()
    # Rank 0 is the last to be done under every rule, so its state is the one to load.
    saver = dataset.shard(0, before, remainder=remainder)
    share, dealt_end = share_of(0, length, 0, before, remainder)
    batches = saver.iter_batches(batch, drop_last=drop_last)
    for step in itertools.count():
        taken = min(step * batch, len(share))
        if drop_last and step > 0 and len(share) - taken < batch:
            taken = len(share)
        consumed = dealt_end if taken == len(share) else min(taken * before, dealt_end)
        state = json.loads(json.dumps(saver.state_dict()))
        if step > 0:
            assert state["position"] == consumed
        rest = length - consumed if consumed < dealt_end else 0
        if rest <= 0 or (remainder == "drop" and rest < after):
            rest = length
        for rank in range(after):
            resumed = open_caches(caches[length], **MODES[mode]).shard(rank, after, remainder=remainder)
            resumed.load_state_dict(state)
            start, found = state["position"], []
            for window in (rest, length):
                mine, start = share_of(start, window, rank, after, remainder)
                found.append([whole[draw] for draw in mine])
            assert [ids(resumed), ids(resumed)] == found, (step, rank, state)
        if next(batches, None) is None:
            break


def test_the_default_grid_covers_every_pair_of_values():
    factors = {"one": [1, 2, 3], "two": "abcd", "three": [False, True]}
    chosen = pairwise(factors)
    for (place, values), (other, others) in itertools.combinations(enumerate(factors.values()), 2):
        found = {(combination[place], combination[other]) for combination in chosen}
        assert found == set(itertools.product(values, others))
    assert len(chosen) < 24


# --- Views


def test_a_view_has_a_position_of_its_own_that_starts_where_the_dataset_stands(caches, open_caches):
    dataset = open_caches(caches[100], **MODES["with_replacement"])
    whole = dataset.stream().records(0, 400).tolist()
    list(itertools.islice(dataset, 3))
    views = [dataset.shard(rank, 2) for rank in range(2)]
    assert [view.position for view in views] == [100, 100]
    assert [ids(view) for view in views] == [whole[100:200:2], whole[101:200:2]]
    assert (dataset.position, views[0].position) == (100, 200)
    assert ids(dataset) == whole[100:200]


def test_a_view_takes_over_a_rest_that_waits(caches, open_caches):
    saved = open_caches(caches[100], **MODES["with_replacement"])
    whole = saved.stream().records(0, 200).tolist()
    list(itertools.islice(saved, 40))
    dataset = open_caches(caches[100], **MODES["with_replacement"])
    dataset.load_state_dict(saved.state_dict())
    view = dataset.shard(1, 3)
    assert view.state_dict() == saved.state_dict()
    assert ids(view) == whole[41:100:3]


def test_an_epoch_length_on_a_view_is_that_of_all_ranks(caches, open_caches):
    dataset = open_caches(caches[100], **MODES["ordered"])
    view = dataset.shard(2, 3, remainder="uneven")
    view.set_epoch_len(10)
    assert (len(view), view.epoch_len, len(dataset)) == (3, 10, 100)
    assert ids(view) == [2, 5, 8]
    assert view.position == 10
    assert "rank=2 of 3" in repr(view)


def test_a_table_on_a_view_concerns_that_view_alone(caches, open_caches):
    dataset = open_caches(caches[100], **MODES["ordered"])
    view = dataset.shard(1, 2)
    view.update_metadata(view.get_metadata().filter(pl.col("label") == 0))
    assert ids(view) == list(range(5, 100, 10))
    assert len(dataset) == 100
    other = view.with_metadata(view.get_metadata().head(4))
    assert (len(other), ids(other)) == (2, [5, 15])
    assert "rank=1 of 2" in repr(other)


@pytest.mark.parametrize(
    ("rank", "world_size", "message"),
    [
        (4, 4, r"rank must be in \[0, 4\), got 4"),
        (0, 0, "world_size must be at least 1, got 0"),
        (-1, 4, r"rank must be in \[0, 4\), got -1"),
        (0, -1, "world_size must be at least 1, got -1"),
        (0, 2**64, "world_size"),
        (0.0, 2, "rank must be an integer, got 0.0"),
        (True, 2, "rank must be an integer, got True"),
        ("0", 2, "rank must be an integer"),
        (0, None, "world_size must be an integer, got None"),
    ],
)
def test_a_rank_outside_its_world_is_refused(caches, open_caches, rank, world_size, message):
    dataset = open_caches(caches[7])
    with pytest.raises(drt.ConfigError, match=message):
        dataset.shard(rank, world_size)


@pytest.mark.parametrize("remainder", ["pad", "", "EXTEND"])
def test_an_unknown_remainder_is_refused_with_those_that_exist(caches, open_caches, remainder):
    with pytest.raises(drt.ConfigError, match=f'"extend", "drop" or "uneven", got "{remainder}"'):
        open_caches(caches[7]).shard(0, 2, remainder=remainder)


@pytest.mark.parametrize("remainder", [3, None, True])
def test_a_remainder_that_is_no_text_is_refused(caches, open_caches, remainder):
    with pytest.raises(drt.ConfigError, match=f'remainder must be "extend", "drop" or "uneven", got {remainder!r}'):
        open_caches(caches[7]).shard(0, 2, remainder=remainder)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_view_of_a_view_is_refused(caches, open_caches, world_size):
    view = open_caches(caches[7]).shard(0, world_size)
    with pytest.raises(drt.ConfigError, match="rank's view already"):
        view.shard(0, 2)


def test_draws_too_few_for_all_ranks_are_refused_before_anything_changes(caches, open_caches):
    dataset = open_caches(caches[7])
    with pytest.raises(drt.ConfigError, match="at least the world size 8"):
        dataset.shard(0, 8, remainder="drop")
    view = dataset.shard(0, 7, remainder="drop")
    with pytest.raises(drt.ConfigError, match="at least the world size 7"):
        view.set_epoch_len(6)
    with pytest.raises(drt.ConfigError, match="at least the world size 7"):
        view.update_metadata(view.get_metadata().head(6))
    with pytest.raises(drt.ConfigError, match="at least the world size 7"):
        view.with_metadata(view.get_metadata().head(6))
    assert (view.epoch_len, view.get_metadata().height, ids(view)) == (7, 7, [0])


# --- Real processes


def begin(paths, rank, world_size, **more):
    """Start a rank; give its process."""
    more.setdefault("config", MODES["with_replacement"])
    request = {"paths": [str(path) for path in paths], "rank": rank, "world_size": world_size, **more}
    program = Path(__file__).with_name("rank_worker.py")
    return subprocess.Popen(
        [sys.executable, str(program), json.dumps(request)], stdout=subprocess.PIPE, text=True, bufsize=1
    )


def outcome(process):
    """What a rank said in the end."""
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return json.loads(output.splitlines()[-1])


@contextmanager
def ended(*processes):
    """Leave no process behind, however the test ends."""
    try:
        yield processes
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stdout.close()


def test_a_rank_needs_no_other_rank_to_exist(caches):
    with ended(begin([caches[100]], 2, 3, windows=3)) as (alone,):
        assert [len(window) for window in outcome(alone)["windows"]] == [34, 34, 34]


def test_a_rank_that_stops_early_or_stands_still_blocks_no_other(caches):
    paths = [caches[100]]
    ranks = [begin(paths, 0, 4), begin(paths, 1, 4, stop_after=1), begin(paths, 2, 4, sleep=60), begin(paths, 3, 4)]
    with ended(*ranks) as (quick, early, slow, last):
        assert slow.stdout.readline() == "begun\n"
        os.kill(slow.pid, signal.SIGSTOP)
        started = time.monotonic()
        assert [len(outcome(rank)["windows"][0]) for rank in (quick, early, last)] == [25, 1, 25]
        assert time.monotonic() - started < 30
        assert slow.poll() is None


def test_ranks_in_processes_are_the_single_stream_and_keep_the_class_shares_of_weighted_rows(caches, open_caches):
    world_size, epoch_len, heavy = 4, 8_000, 3
    common = {"heavy": heavy, "epoch_len": epoch_len}
    with ended(*(begin([caches[100]], rank, world_size, **common) for rank in range(world_size))) as ranks:
        outcomes = [outcome(rank) for rank in ranks]
    dataset = open_caches(caches[100], **MODES["with_replacement"])
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1.0 + 9.0 * (table["label"] == heavy)))
    dataset.set_epoch_len(epoch_len)
    shares = [[sample for _, sample in found["windows"][0]] for found in outcomes]
    assert [sample for step in zip(*shares, strict=True) for sample in step] == ids(dataset)
    assert all(found["state"] == dataset.state_dict() for found in outcomes)

    # 20 rows of weight 10 and 80 of weight 1.
    expected = 200 / 280
    for share in (*shares, list(itertools.chain(*shares))):
        found = sum(sample % 5 == heavy for sample in share) / len(share)
        # Five deviations of a binomial share: less than once in a million seeds, and this seed is fixed.
        assert abs(found - expected) < 5 * (expected * (1 - expected) / len(share)) ** 0.5


@pytest.mark.parametrize(("parts", "mode"), [(1, "ordered"), (3, "without_replacement")])
def test_a_rank_reads_its_share_of_the_bytes_and_no_more(tmp_path, runtime, source_of, parts, mode):
    payload, samples, world_size = 2_048, 1_200, 4
    items = [drt.CacheInput(bytes([number % 251]) * payload, {}) for number in range(samples // parts)]
    # Several shards a cache, and shards that no whole number of a rank's samples fills.
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=100_000)
    sources = [source_of(f"part-{part}", items) for part in range(parts)]
    paths = [result.path for result in runtime.write_cache(sources, tmp_path, writer_config=config)]
    assert all(len(list((path / "shards").iterdir())) > 3 for path in paths)

    fields = {"config": {**MODES[mode], "io": "positioned"}}
    with ended(*(begin(paths, rank, world_size, **fields) for rank in range(world_size))) as ranks:
        outcomes = [outcome(rank) for rank in ranks]
    read = [tuple(identity) for found in outcomes for identity in found["windows"][0]]
    assert len(set(read)) == len(read) == samples
    share = samples * payload // world_size
    for found in outcomes:
        # A tenth for what reading costs beside the payload: /proc itself, small files of the system.
        assert share <= found["bytes"] < 1.1 * share
