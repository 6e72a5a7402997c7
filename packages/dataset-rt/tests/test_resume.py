"""Saving and resuming: at every step, in another process, at another world size, and what is refused."""

import copy
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import dataset_rt as drt

MODES = {
    "ordered": {"shuffle": False},
    "with_replacement": {"shuffle": True, "seed": 11},
    "without_replacement": {"shuffle": True, "replacement": False, "seed": 11},
}
LENGTHS = (1, 2, 7, 50)


class Worker:
    """A process of `resume_worker.py`, which has seen nothing of this one but what is written to it."""

    def __init__(self):
        program = Path(__file__).with_name("resume_worker.py")
        self.process = subprocess.Popen(
            [sys.executable, str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, paths, config, state, windows, **more):
        # JSON on the way there, as in a checkpoint's file.
        request = {"paths": [str(path) for path in paths], "config": config, "state": state, "windows": windows, **more}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, f"the worker ended with {self.process.wait()}"
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=30) == 0
        self.process.stdout.close()


@pytest.fixture(scope="module")
def worker():
    made = Worker()
    yield made
    made.close()


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
    lengths = (*LENGTHS, 100)
    with drt.DatasetRuntime(num_workers=2) as runtime:
        results = runtime.write_cache(
            [Source(length) for length in lengths], tmp_path_factory.mktemp("resume"), writer_config=config
        )
    return dict(zip(lengths, (result.path for result in results), strict=True))


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def ids(samples):
    return [sample.sample_id for sample in samples]


def batch_ids(batches):
    return [sample for batch in batches for sample in batch.column("sample_id").to_pylist()]


def order_of(dataset, count):
    """The sample ids of the first draws, from the stream alone: no iterator takes part."""
    return dataset.stream().records(0, count).tolist()


# --- At every step


@pytest.mark.parametrize("prefetch", [1, 8, 64])
@pytest.mark.parametrize("length", LENGTHS)
def test_restoring_at_any_step_yields_the_same_tail_in_a_new_process(
    worker, caches, open_caches, mode, length, prefetch
):
    path, config = caches[length], {**MODES[mode], "prefetch_size": prefetch}
    dataset = open_caches(path, **config)
    whole = order_of(dataset, 6 * length)
    # (draws that were consumed, what was saved then). At a window's end it is saved before and after StopIteration.
    saved = [(0, dataset.state_dict())]
    for window in range(3):
        iterator = iter(dataset)
        saved.append((window * length, iterator.state_dict()))
        for step, sample in enumerate(iterator):
            consumed = window * length + step + 1
            assert sample.sample_id == whole[consumed - 1]
            saved += [(consumed, dataset.state_dict()), (consumed, iterator.state_dict())]
        saved += [((window + 1) * length, dataset.state_dict()), ((window + 1) * length, iterator.state_dict())]
    assert {consumed for consumed, _ in saved} == set(range(3 * length + 1))

    answered = {}
    for consumed, state in saved:
        assert state["position"] == consumed
        text = json.dumps(state)
        if text in answered:
            continue
        reply = answered[text] = worker.ask([path], config, state, 2)
        # Readable before the first sample.
        assert reply["position"] == consumed
        first_end = consumed - consumed % length + length
        expected = [whole[consumed:first_end], whole[first_end : first_end + length]]
        assert reply["windows"] == expected, (consumed, state)
        assert reply["state"]["position"] == first_end + length
    # The dataset and its newest iterator say the same, so there is one state a step and no more.
    assert len(answered) == 3 * length + 1


def test_a_fresh_interpreter_with_another_hash_seed_goes_on_with_the_same_samples(caches, open_caches, mode):
    path, config = caches[50], MODES[mode]
    dataset = open_caches(path, **config)
    iterator = iter(dataset)
    consumed = ids(itertools.islice(iterator, 33))
    request = {"paths": [str(path)], "config": config, "state": dataset.state_dict(), "windows": 2}
    run = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("resume_worker.py"))],
        input=json.dumps(request) + "\n",
        env={**os.environ, "PYTHONHASHSEED": "77"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=60,
    )
    windows = json.loads(run.stdout)["windows"]
    assert consumed + windows[0] + windows[1] == order_of(dataset, 100)


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize(("length", "size"), [(7, 1), (7, 3), (50, 10), (50, 7), (7, 9)])
def test_restoring_after_any_batch_yields_the_same_tail_in_a_new_process(
    worker, caches, open_caches, mode, length, size, drop_last
):
    path, config = caches[length], MODES[mode]
    dataset = open_caches(path, **config)
    whole = order_of(dataset, 6 * length)
    delivered = length - length % size if drop_last else length
    for window in range(2):
        start, iterator, taken = window * length, dataset.iter_batches(size, drop_last=drop_last), 0
        while True:
            batch = next(iterator, None)
            taken = min(taken + size, length)
            if batch is None or (drop_last and length - taken < size):
                # The last full batch moves past the short one that nobody gets.
                taken = length
            state = dataset.state_dict()
            assert state == iterator.state_dict()
            assert state["position"] == start + taken
            reply = worker.ask([path], config, state, 2, batch=[size, drop_last])
            if taken == length:
                expected = [whole[start + number * length :][:delivered] for number in (1, 2)]
            else:
                rest = length - taken
                rest -= rest % size if drop_last else 0
                expected = [whole[start + taken :][:rest], whole[start + length :][:delivered]]
            assert reply["windows"] == expected, (state, taken)
            if batch is None:
                break


# --- Lesson by lesson


def test_a_second_loader_and_a_new_process_both_go_on_with_the_draw_after_the_saved_one(
    worker, caches, open_caches, mode
):
    path = caches[50]
    dataset = open_caches(path, **MODES[mode])
    whole = order_of(dataset, 100)
    iterator = iter(dataset)
    assert ids(itertools.islice(iterator, 5)) == whole[:5]
    state = dataset.state_dict()
    assert next(iterator).sample_id == whole[5]
    assert worker.ask([path], MODES[mode], state, 2)["windows"] == [whole[5:50], whole[50:100]]
    dataset.load_state_dict(state)
    assert ids(dataset) == whole[5:50]
    assert ids(dataset) == whole[50:100]


def test_the_position_is_readable_after_loading_and_before_the_first_sample(caches, open_caches, mode):
    dataset = open_caches(caches[7], **MODES[mode])
    list(dataset)
    iterator = iter(dataset)
    next(iterator)
    state = dataset.state_dict()
    again = open_caches(caches[7], **MODES[mode])
    again.load_state_dict(state)
    assert again.position == 8
    assert again.state_dict() == state
    # Making an iterator, and asking it for its state, moves nothing either.
    unused = iter(again)
    assert (again.position, again.state_dict(), unused.state_dict()) == (8, state, state)


def test_a_window_that_is_resumed_many_times_keeps_absolute_positions_and_its_end(worker, caches, open_caches, mode):
    path, config = caches[50], MODES[mode]
    whole = order_of(open_caches(path, **config), 150)
    dataset = open_caches(path, **config)
    position = 0
    for steps in (3, 1, 10, 0, 20, 15):
        iterator = iter(dataset)
        assert ids(itertools.islice(iterator, steps)) == whole[position : position + steps]
        position += steps
        state = dataset.state_dict()
        assert state["position"] == position
        if position > 0:
            assert state["window"] == [0, 50]
        assert worker.ask([path], config, state, 2)["windows"] == [whole[position:50], whole[50:100]]
        dataset = open_caches(path, **config)
        dataset.load_state_dict(json.loads(json.dumps(state)))
    assert ids(dataset) == whole[49:50]
    assert ids(dataset) == whole[50:100]


def test_the_state_says_what_was_consumed_and_not_what_was_read_ahead(caches, open_caches, mode):
    for prefetch in (1, 8, 64):
        dataset = open_caches(caches[50], prefetch_size=prefetch, **MODES[mode])
        iterator = iter(dataset)
        for _ in range(5):
            next(iterator)
        # Time for the threads to fill what they may.
        time.sleep(0.02)
        assert dataset.state_dict()["position"] == iterator.state_dict()["position"] == 5


def test_resuming_late_in_a_long_epoch_reads_nothing_before_the_first_wanted_sample(tmp_path, write, source_of):
    payload = 4_096
    items = [drt.CacheInput(bytes([number % 251]) * payload, {}) for number in range(2_000)]
    path = write(source_of("long", items)).path
    program = (
        "import itertools, json, sys, dataset_rt as drt\n"
        "def read_bytes():\n"
        "    return int(open('/proc/self/io').read().split('rchar: ')[1].split()[0])\n"
        "runtime = drt.DatasetRuntime(num_workers=1)\n"
        "config = drt.ReaderConfig(shuffle=False, prefetch_size=1, io='positioned')\n"
        "dataset = runtime.cached_dataset(sys.argv[1], reader_config=config)\n"
        "list(itertools.islice(iter(dataset), 1))\n"
        "state = dataset.state_dict()\n"
        "dataset.load_state_dict({**state, 'position': 1_800})\n"
        "before = read_bytes()\n"
        "samples = list(dataset)\n"
        "assert [sample.sample_id for sample in samples] == list(range(1_800, 2_000))\n"
        "print(read_bytes() - before)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, str(path)], check=True, stdout=subprocess.PIPE, timeout=60)
    # The 200 samples that are left, and a page for what /proc itself says; not one of the 1800 before them.
    assert 200 * payload <= int(run.stdout) < 201 * payload + 4_096


@pytest.mark.parametrize("restart", [False, True])
def test_after_a_window_that_was_broken_off_the_next_iterator_goes_on_as_documented(
    worker, caches, open_caches, mode, restart
):
    path, config = caches[50], MODES[mode]
    whole = order_of(open_caches(path, **config), 200)
    for steps in range(20):
        dataset = open_caches(path, **config)
        dataset.set_epoch_len(20)
        iterator = iter(dataset)
        assert ids(itertools.islice(iterator, steps)) == whole[:steps]
        del iterator
        state = dataset.state_dict()
        assert state["position"] == steps
        if restart:
            # A restart gives the rest of the window that was broken off.
            reply = worker.ask([path], config, state, 2)
            assert reply["windows"] == [whole[steps:20], whole[20:40]]
        else:
            # A running process leaves it: the next iterator has a window of its own.
            start = 20 if steps else 0
            assert dataset.position == start
            assert ids(dataset) == whole[start : start + 20]
            assert dataset.state_dict()["position"] == start + 20


def test_a_dropped_iterator_is_reported_until_the_next_one_begins(caches, open_caches, mode):
    dataset = open_caches(caches[7], **MODES[mode])
    iterator = iter(dataset)
    next(iterator)
    next(iterator)
    del iterator
    assert (dataset.position, dataset.state_dict()["position"]) == (7, 2)
    unused = iter(dataset)
    assert dataset.state_dict()["position"] == 2
    next(unused)
    assert (dataset.position, dataset.state_dict()["position"]) == (14, 8)


def test_another_table_ends_what_the_state_says_of_a_running_iterator(caches, open_caches):
    dataset = open_caches(caches[7], **MODES["with_replacement"])
    iterator = iter(dataset)
    next(iterator)
    dataset.update_metadata(dataset.get_metadata().head(3), reset_stream=False)
    state = dataset.state_dict()
    assert (state["position"], state["rows"], state["epoch_len"], state["window"]) == (7, 3, 3, None)
    assert iterator.state_dict()["position"] == 1
    list(iterator)
    assert dataset.state_dict() == state
    dataset.update_metadata(dataset.get_metadata())
    assert dataset.state_dict()["position"] == 0


def test_a_state_at_the_exact_end_of_a_window_resumes_at_the_next_one(worker, caches, open_caches, mode):
    for length in LENGTHS:
        path, config = caches[length], MODES[mode]
        dataset = open_caches(path, **config)
        whole = order_of(dataset, 3 * length)
        iterator = iter(dataset)
        for _ in range(length):
            next(iterator)
        exhausted = dataset.state_dict()
        assert next(iterator, None) is None
        assert dataset.state_dict() == exhausted
        assert (exhausted["position"], exhausted["window"]) == (length, None)
        assert worker.ask([path], config, exhausted, 2)["windows"] == [whole[length : 2 * length], whole[2 * length :]]


def test_an_epoch_length_travels_with_the_state_and_a_later_one_leaves_the_rest_alone(caches, open_caches, mode):
    dataset = open_caches(caches[50], **MODES[mode])
    whole = order_of(dataset, 60)
    dataset.set_epoch_len(12)
    list(itertools.islice(dataset, 4))
    again = open_caches(caches[50], **MODES[mode])
    again.load_state_dict(dataset.state_dict())
    assert len(again) == 12
    again.set_epoch_len(5)
    assert ids(again) == whole[4:12]
    assert ids(again) == whole[12:17]
    assert again.state_dict()["epoch_len"] == 5


def test_one_rank_then_two_then_three_draw_contiguous_positions(worker, caches, open_caches, mode):
    path, config = caches[50], MODES[mode]
    dataset = open_caches(path, **config)
    whole = order_of(dataset, 200)
    assert ids(itertools.islice(dataset, 4)) == whole[:4]
    state, position = dataset.state_dict(), 4
    for world_size, steps in ((2, 6), (3, 5)):
        views = []
        for rank in range(world_size):
            view = open_caches(path, **config).shard(rank, world_size)
            view.load_state_dict(state)
            assert view.position == position
            views.append((view, ids(itertools.islice(view, steps))))
        taken = [sample for step in zip(*(found for _, found in views), strict=True) for sample in step]
        position += world_size * steps
        assert taken == whole[position - world_size * steps : position]
        states = [view.state_dict() for view, _ in views]
        # Whichever rank saved it, it is the same.
        assert all(other == states[0] for other in states)
        state = states[-1]
        assert (state["position"], state["window"]) == (position, [0, 50])
    assert worker.ask([path], config, state, 1)["windows"] == [whole[position:50]]


def dealt(start, length, world_size, remainder):
    """Draws of each rank and where the window ends: the rules, said once more and slowly."""
    if remainder == "extend":
        end = start + -(-length // world_size) * world_size
    elif remainder == "drop":
        end = start + length // world_size * world_size
    else:
        end = start + length
    draws = list(range(start, end))
    return [draws[rank::world_size] for rank in range(world_size)], end


@pytest.mark.parametrize("then", ["extend", "drop", "uneven"])
@pytest.mark.parametrize("before", ["extend", "drop", "uneven"])
def test_a_window_saved_in_its_middle_by_8_ranks_is_finished_by_3(worker, caches, open_caches, mode, before, then):
    path, config = caches[50], MODES[mode]
    whole = order_of(open_caches(path, **config), 300)
    shares, dealt_end = dealt(0, 50, 8, before)
    for steps in range(len(shares[0]) + 1):
        states = []
        for rank in range(8):
            view = open_caches(path, **config).shard(rank, 8, remainder=before)
            found = ids(itertools.islice(view, steps))
            assert found == [whole[draw] for draw in shares[rank][:steps]]
            if len(shares[rank]) >= steps:
                states.append(view.state_dict())
        consumed = min(8 * steps, dealt_end)
        assert all(state == states[0] for state in states)
        assert states[0]["position"] == consumed
        # What 3 ranks make of the rest of the nominal window; a rest that yields nothing is passed over.
        rest = max(50 - consumed, 0) if consumed < dealt_end else 0
        if rest == 0 or (then == "drop" and rest < 3):
            windows, after = dealt(consumed, 50, 3, then)
        else:
            windows, after = dealt(consumed, rest, 3, then)
        following, end = dealt(after, 50, 3, then)
        for rank in range(3):
            reply = worker.ask([path], config, states[0], 2, shard=[rank, 3, then])
            expected = [[whole[draw] for draw in share[rank]] for share in (windows, following)]
            assert reply["position"] == consumed
            assert reply["windows"] == expected, (steps, rank)
            assert reply["state"]["position"] == end


def test_a_rest_too_small_for_the_ranks_is_no_empty_epoch(caches, open_caches):
    dataset = open_caches(caches[50], **MODES["ordered"])
    list(itertools.islice(dataset, 48))
    state = dataset.state_dict()
    for rank in range(8):
        view = open_caches(caches[50], **MODES["ordered"]).shard(rank, 8, remainder="drop")
        view.load_state_dict(state)
        # Two draws are left for eight ranks: the next window starts with them.
        assert ids(view) == [draw % 50 for draw in range(48 + rank, 48 + 48, 8)]


def test_after_a_window_that_ranks_do_not_divide_the_next_one_starts_where_the_dealt_one_ended(
    caches, open_caches, mode
):
    dataset = open_caches(caches[50], **MODES[mode])
    whole = order_of(dataset, 400)
    for remainder, sizes in itertools.product(("extend", "drop", "uneven"), ((None, None), (4, False), (4, True))):
        size, drop_last = sizes
        start = 0
        views = [dataset.shard(rank, 3, remainder=remainder) for rank in range(3)]
        for _ in range(4):
            shares, start_of_next = dealt(start, 50, 3, remainder)
            for view, share in zip(views, shares, strict=True):
                if size is None:
                    found, kept = ids(view), len(share)
                else:
                    found = batch_ids(view.iter_batches(size, drop_last=drop_last))
                    kept = len(share) - (len(share) % size if drop_last else 0)
                assert found == [whole[draw] for draw in share[:kept]]
                assert view.position == view.state_dict()["position"] == start_of_next
            start = start_of_next


def test_windows_differ_from_each_other_and_each_is_reproducible(caches, open_caches):
    for mode in ("with_replacement", "without_replacement"):
        for seed in (0, 1, 2**64 - 1):
            config = {**MODES[mode], "seed": seed}
            one, other = (open_caches(caches[50], **config) for _ in range(2))
            windows = [tuple(one) for _ in range(5)]
            assert [tuple(other) for _ in range(5)] == windows
            assert len({tuple(ids(window)) for window in windows}) == 5
        orders = [ids(open_caches(caches[50], **{**MODES[mode], "seed": seed})) for seed in (0, 1, 2**64 - 1)]
        assert len(set(map(tuple, orders))) == 3


def test_filtered_rows_never_appear_again_in_any_later_window_or_process(worker, caches, open_caches, mode):
    path = caches[50]
    dataset = open_caches(path, **MODES[mode])
    list(dataset)
    kept = dataset.get_metadata().filter(pl.col("label") == 2)
    dataset.update_metadata(kept, reset_stream=False)
    allowed = set(kept["sample_id"])
    for _ in range(20):
        assert set(ids(dataset)) <= allowed
    again = open_caches(path, **MODES[mode])
    with pytest.raises(drt.StateMismatchError, match="rows"):
        again.load_state_dict(dataset.state_dict())
    again.update_metadata(kept)
    again.load_state_dict(dataset.state_dict())
    assert ids(again) == ids(dataset)


def test_a_weighted_run_resumes_in_a_new_process_with_the_same_weights(worker, caches, open_caches):
    path, config = caches[50], MODES["with_replacement"]
    weights = [1.0 + number % 7 for number in range(50)]
    dataset = open_caches(path, **config)
    table = dataset.get_metadata()
    # The rows of the saving run stand in another order: it is the same population all the same.
    dataset.update_metadata(table.with_columns(weight=pl.Series(weights)).reverse())
    whole = order_of(dataset, 100)
    assert whole != order_of(open_caches(path, **config), 100)
    assert ids(itertools.islice(dataset, 9)) == whole[:9]
    reply = worker.ask([path], config, dataset.state_dict(), 2, weights=weights)
    assert reply["windows"] == [whole[9:50], whole[50:100]]


def test_weights_changed_during_an_epoch_are_met_by_the_next_iterator_only(caches, open_caches):
    dataset = open_caches(caches[50], **MODES["with_replacement"])
    running = iter(dataset)
    expected = order_of(dataset, 50)
    found = [next(running).sample_id]
    only = dataset.get_metadata().with_columns(weight=pl.when(pl.col("sample_id") == 13).then(1e30).otherwise(1.0))
    dataset.update_metadata(only, reset_stream=False)
    assert ids(dataset) == [13] * 50
    assert found + ids(running) == expected


# --- Nudged weights


EPOCHS, NUDGED_ROWS = 20, 2_000


def rows_seen(dataset, reset_stream):
    """The share of rows that are ever drawn in 20 epochs whose weights are nudged by up to 1 % each time."""
    nudges = np.random.default_rng(3)
    seen = set()
    for _ in range(EPOCHS):
        weights = 1.0 + 0.01 * nudges.random(NUDGED_ROWS)
        dataset.update_metadata(dataset.get_metadata().with_columns(weight=weights), reset_stream=reset_stream)
        dataset.set_epoch_len(NUDGED_ROWS // 10)
        seen.update(ids(dataset))
    return len(seen) / NUDGED_ROWS


@pytest.fixture
def nudged(cache_of, open_caches):
    path = cache_of("nudged", [{"row": number} for number in range(NUDGED_ROWS)])
    return open_caches(path, shuffle=True, seed=1)


# m draws of n rows, each as likely as the next but for 1 %: a row stays unseen with probability (1 - 1/n)^m, so the
# share that is seen has the mean 1 - (1 - 1/n)^m. Occupancies are negatively associated, so its variance is at most
# that of independent rows. A row's own probability is within 1 % of 1/n, which moves the mean by at most
# 0.01 · (m/n) · exp(-m/n), its first derivative.
DRAWS = EPOCHS * NUDGED_ROWS // 10
UNSEEN = (1 - 1 / NUDGED_ROWS) ** DRAWS
DEVIATION = math.sqrt(UNSEEN * (1 - UNSEEN) / NUDGED_ROWS)
BIAS = 0.01 * DRAWS / NUDGED_ROWS * math.exp(-DRAWS / NUDGED_ROWS)


def test_going_on_with_nudged_weights_sees_as_many_rows_as_fresh_random_numbers(nudged):
    # Five deviations: missed by chance once in a million seeds, and this seed is fixed.
    assert abs(rows_seen(nudged, reset_stream=False) - (1 - UNSEEN)) < 5 * DEVIATION + BIAS


def test_resetting_with_nudged_weights_draws_nearly_the_same_rows_again(nudged):
    # Weights of 1 to 1.01 have a deviation of 0.0029, so the bridge that their cumulative sums make over 2,000 rows has
    # one of at most 0.0029 · sqrt(2,000) / 2 = 0.065 rows. No draw ever moves by a whole row then, fifteen
    # deviations, so it meets three rows at most: in all 20 epochs 30 % of the rows, not the 86 % of fresh numbers.
    assert rows_seen(nudged, reset_stream=True) <= 3 * (NUDGED_ROWS // 10) / NUDGED_ROWS < (1 - UNSEEN) / 2


# --- Size and speed


def test_a_state_is_small_and_quick_however_large_the_edited_table(million, open_caches):
    dataset = open_caches(million, shuffle=True)
    table = dataset.get_metadata()
    dataset.update_metadata(table.with_columns(weight=1.0 + pl.col("sample_id") % 7))
    next(iter(dataset))
    times = []
    for _ in range(200):
        start = time.perf_counter()
        state = dataset.state_dict()
        times.append(time.perf_counter() - start)
    assert statistics.median(times) < 0.001
    assert len(json.dumps(state)) < 4_096


def test_a_state_over_many_caches_is_as_small(runtime, tmp_path, source_of, open_caches):
    config = drt.WriterConfig(show_progress=False)
    sources = [source_of(f"part-{number:03}", [{"part": number}]) for number in range(100)]
    paths = [result.path for result in runtime.write_cache(sources, tmp_path, writer_config=config)]
    dataset = open_caches(*paths, shuffle=True)
    iterator = iter(dataset)
    next(iterator)
    state = json.loads(json.dumps(dataset.state_dict()))
    assert len(json.dumps(state)) < 4_096
    again = open_caches(*reversed(paths), shuffle=True)
    again.load_state_dict(state)
    assert ids(again) == ids(iterator)
    with pytest.raises(drt.StateMismatchError, match="caches"):
        open_caches(*paths[1:], shuffle=True).load_state_dict(state)


# --- What is refused


@pytest.fixture
def saved(caches, open_caches):
    dataset = open_caches(caches[50], **MODES["with_replacement"])
    list(itertools.islice(dataset, 5))
    return dataset.state_dict()


def assert_refused(dataset, state, field, advice):
    before = dataset.state_dict(), dataset.position
    with pytest.raises(drt.StateMismatchError) as refused:
        dataset.load_state_dict(state)
    error = refused.value
    assert isinstance(error, ValueError)
    assert error.field == field
    assert error.expected != error.found
    message = str(error)
    assert field in message
    assert advice in message, message
    assert (dataset.state_dict(), dataset.position) == before


@pytest.mark.parametrize(
    ("change", "field", "advice"),
    [
        ({"seed": 12}, "seed", "seed of the saved run"),
        ({"shuffle": False}, "mode", "shuffle and replacement of the saved run"),
        ({"replacement": False}, "mode", "shuffle and replacement of the saved run"),
    ],
)
def test_a_state_of_another_configuration_is_refused_by_its_field(caches, open_caches, saved, change, field, advice):
    dataset = open_caches(caches[50], **{**MODES["with_replacement"], **change})
    assert_refused(dataset, saved, field, advice)


def test_a_state_of_other_caches_is_refused_by_its_field(caches, open_caches, saved):
    dataset = open_caches(caches[7], **MODES["with_replacement"])
    assert_refused(dataset, saved, "caches", "open the caches of the saved run")
    dataset = open_caches(caches[7], caches[50], **MODES["with_replacement"])
    assert_refused(dataset, saved, "caches", "open the caches of the saved run")


def test_a_state_of_another_table_is_refused_by_its_field(caches, open_caches, saved):
    dataset = open_caches(caches[50], **MODES["with_replacement"])
    table = dataset.get_metadata()
    dataset.update_metadata(table.head(49))
    assert_refused(dataset, saved, "rows", "update_metadata with the table of the saved run")
    weight = pl.when(pl.col("sample_id") == 49).then(np.nextafter(1.0, 2.0)).otherwise(1.0)
    for edited in (table.with_columns(weight=weight), pl.concat([table.head(49), table.head(1)])):
        dataset.update_metadata(edited)
        assert_refused(dataset, saved, "population", "update_metadata with the table of the saved run")
    # The rows in another order are the same population where they are drawn in shuffled order ...
    dataset.update_metadata(table.reverse())
    dataset.load_state_dict(saved)
    # ... and another one in table order.
    ordered = open_caches(caches[50], **MODES["ordered"])
    state = ordered.state_dict()
    ordered.update_metadata(table.reverse())
    assert_refused(ordered, state, "population", "update_metadata with the table of the saved run")


MALFORMED = [
    ("order_version", 2, "a release of dataset-rt that has this order"),
    ("order_version", 0, "a release of dataset-rt that has this order"),
    ("order_version", "1", "as state_dict() gave it"),
    ("mode", "sorted", "shuffle and replacement of the saved run"),
    ("mode", 3, "as state_dict() gave it"),
    ("seed", 11.0, "as state_dict() gave it"),
    ("seed", -1, "as state_dict() gave it"),
    ("seed", True, "as state_dict() gave it"),
    ("position", -1, "as state_dict() gave it"),
    ("position", 2**64, "as state_dict() gave it"),
    ("position", "5", "as state_dict() gave it"),
    ("position", None, "as state_dict() gave it"),
    ("position", True, "as state_dict() gave it"),
    ("position", 51, "as state_dict() gave it"),
    ("epoch_len", 0, "as state_dict() gave it"),
    ("epoch_len", 1.5, "as state_dict() gave it"),
    ("window", [0], "as state_dict() gave it"),
    ("window", [0, 50, 100], "as state_dict() gave it"),
    ("window", [50, 0], "as state_dict() gave it"),
    ("window", "whole", "as state_dict() gave it"),
    ("window", [0, 2**64], "as state_dict() gave it"),
    ("rows", 49, "update_metadata with the table of the saved run"),
    ("rows", None, "as state_dict() gave it"),
    ("population", "0" * 64, "update_metadata with the table of the saved run"),
    ("population", None, "as state_dict() gave it"),
    ("caches", [], "open the caches of the saved run"),
    ("caches", ["0" * 16], "open the caches of the saved run"),
    ("caches", None, "as state_dict() gave it"),
]


@pytest.mark.parametrize(("field", "value", "advice"), MALFORMED)
def test_a_changed_field_of_a_state_is_refused_by_its_name(caches, open_caches, saved, field, value, advice):
    dataset = open_caches(caches[50], **MODES["with_replacement"])
    assert_refused(dataset, {**saved, field: value}, field, advice)


def test_a_missing_field_of_a_state_is_refused_by_its_name(caches, open_caches, saved):
    dataset = open_caches(caches[50], **MODES["with_replacement"])
    for field in saved:
        state = {name: value for name, value in saved.items() if name != field}
        assert_refused(dataset, state, field, "as state_dict() gave it")


@pytest.mark.parametrize("state", [None, 5, "state", b"{}"])
def test_what_is_no_state_at_all_is_refused(caches, open_caches, state):
    dataset = open_caches(caches[50])
    with pytest.raises(drt.ConfigError, match=r"state must be a dict as state_dict\(\) gave it"):
        dataset.load_state_dict(state)


def test_a_state_for_a_window_past_the_last_position_is_refused_when_it_is_begun(caches, open_caches, saved):
    dataset = open_caches(caches[50], **MODES["with_replacement"])
    last = 2**64 - 1
    dataset.load_state_dict({**saved, "position": last - 50, "window": None})
    whole = dataset.stream().records(last - 50, 51).tolist()
    assert ids(dataset) == whole[:50]
    assert dataset.position == last
    with pytest.raises(drt.ConfigError, match=r"2\^64 - 1"):
        next(iter(dataset))
    assert dataset.position == last


def test_a_state_that_the_ranks_cannot_divide_is_refused_by_its_field(caches, open_caches, saved):
    view = open_caches(caches[50], **MODES["with_replacement"]).shard(0, 8, remainder="drop")
    assert_refused(view, {**saved, "epoch_len": 7, "window": None}, "epoch_len", "fewer ranks")


def test_a_saved_state_is_not_changed_by_what_comes_later(caches, open_caches):
    dataset = open_caches(caches[50], **MODES["with_replacement"])
    iterator = iter(dataset)
    next(iterator)
    state = dataset.state_dict()
    kept = copy.deepcopy(state)
    list(iterator)
    dataset.load_state_dict(state)
    list(dataset)
    assert state == kept
