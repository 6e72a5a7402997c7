"""The recorder, the replay, the finding of drivers, and checks that fail where a driver breaks its promise."""

from __future__ import annotations

import dataclasses
import struct
import subprocess
import sys

import blake3
import numpy as np
import pytest

import dataset_rt as drt
from dataset_rt.testing import CHECKS, Delivery, OrderRecorder, driver_names, find_driver, replay


@pytest.fixture
def open_dataset(runtime, source_of, tmp_path):
    sources = [
        source_of("few", [{"number": n} for n in range(5)]),
        source_of("more", [{"number": n} for n in range(7)]),
    ]
    quiet = drt.WriterConfig(show_progress=False)

    def opened(**fields):
        reader = drt.ReaderConfig(**{"seed": 7, **fields})
        return runtime.from_cache_sources(sources, tmp_path, reader_config=reader, writer_config=quiet).unwrap()

    return opened


def test_what_a_recorder_saw_equals_the_order_digest_of_the_stream(open_dataset):
    dataset = open_dataset()
    recorder, of_samples = OrderRecorder(), OrderRecorder()
    for _ in range(3):
        for batch in dataset.iter_batches(5):
            recorder.record(batch["cache_id"], batch["sample_id"])
    assert recorder.draws == 36
    assert recorder.digest() == dataset.stream().order_digest(0, 36)
    of_samples.record_samples(open_dataset())
    assert of_samples.digest() == dataset.stream().order_digest(0, 12) != recorder.digest()


def test_what_a_rank_saw_equals_the_order_digest_in_steps_of_the_world_size(open_dataset):
    for rank in range(5):
        view = open_dataset().shard(rank, 5)
        recorder = OrderRecorder()
        for _ in range(2):
            recorder.record_samples(view)
        assert recorder.draws == 6
        assert recorder.digest() == view.stream().order_digest(rank, 6, step=5)


@pytest.mark.parametrize("change", ["swap", "drop", "double"])
def test_a_recorder_notices_a_sample_swapped_lost_or_doubled(open_dataset, change):
    dataset = open_dataset(shuffle=False)
    samples = list(dataset)
    changed = {"swap": [samples[1], samples[0], *samples[2:]], "drop": samples[1:], "double": [samples[0], *samples]}
    recorder = OrderRecorder()
    recorder.record_samples(changed[change])
    assert recorder.digest() != dataset.stream().order_digest(0, recorder.draws)


def test_a_recorder_takes_single_numbers_lists_and_arrays_of_any_byte_order():
    expected = blake3.blake3(struct.pack("<4Q", 1, 2, 3, 4)).hexdigest()
    for first, second in ((([1, 3]), ([2, 4])), (np.array([1, 3], ">i8"), np.array([2, 4], "<u8"))):
        recorder = OrderRecorder()
        recorder.record(first, second)
        assert (recorder.digest(), recorder.draws) == (expected, 2)
    single = OrderRecorder()
    single.record(1, 2)
    single.record(np.uint64(3), 4)
    single.record([], [])
    assert (single.digest(), single.draws) == (expected, 2)
    assert repr(single) == f"OrderRecorder(draws=2, digest={expected!r})"


@pytest.mark.parametrize(
    ("cache_ids", "sample_ids", "message"),
    [
        ([1.0], [2], "cache_ids must be integers of at least 0, got float64 values"),
        ([1], [-2], "sample_ids must be integers of at least 0"),
        (["1"], [2], "cache_ids must be integers"),
        (np.array([1], "int32"), [2], "cache_ids must be 64-bit integers, got int32"),
        ([1, 2], [3], r"must name the same samples, got shapes \(2,\) and \(1,\)"),
        ([[1], [2]], [3, 4], "must name the same samples"),
    ],
)
def test_a_recorder_refuses_what_are_no_identities(cache_ids, sample_ids, message):
    recorder = OrderRecorder()
    with pytest.raises(drt.ConfigError, match=message):
        recorder.record(cache_ids, sample_ids)
    assert recorder.draws == 0


def test_a_digest_in_steps_hashes_every_step_th_draw_up_to_the_last_position(open_dataset):
    stream = open_dataset().stream()
    last = 2**64 - 1
    for start, count, step in ((0, 40, 3), (last - 30, 11, 3), (last, 1, last), (5, 0, 9), (1, 2, last - 1)):
        samples = stream.fetch(range(start, start + count * step, step))
        expected = b"".join(struct.pack("<2Q", sample.cache_id, sample.sample_id) for sample in samples)
        assert stream.order_digest(start, count, step=step) == blake3.blake3(expected).hexdigest()
    for start, count, step in ((0, 1, 0), (last - 30, 12, 3), (2, 2, last - 1), (0, 2**33, 2**33)):
        with pytest.raises(drt.ConfigError, match=r"step must be at least 1|last draw must be at most 2\^64 - 1"):
            stream.order_digest(start, count, step=step)


def test_a_replay_digests_order_and_payloads_of_all_epochs(open_dataset):
    samples = [sample for dataset in [open_dataset()] for _ in range(2) for sample in dataset]
    order = b"".join(struct.pack("<2Q", sample.cache_id, sample.sample_id) for sample in samples)
    payloads = b"".join(struct.pack("<Q", len(sample.data)) + sample.data for sample in samples)
    digest = replay(open_dataset, find_driver("core"), epochs=2)
    population = open_dataset().stream().population_digest
    assert dataclasses.astuple(digest) == (
        drt.ORDER_VERSION,
        population,
        24,
        blake3.blake3(order).hexdigest(),
        blake3.blake3(payloads).hexdigest(),
    )
    assert str(digest) == (
        f"order_version=1 population={population} draws=24 order={digest.order} payloads={digest.payloads}"
    )


def test_a_replay_is_the_same_at_any_world_size_and_batch_size(open_dataset):
    core = find_driver("core")
    alone = replay(open_dataset, core, epochs=2, batch_size=5)
    assert [replay(open_dataset, core, epochs=2, world_size=world) for world in (2, 3, 4)] == [alone] * 3
    assert replay(open_dataset, core, epochs=2, world_size=5, remainder="uneven") == alone
    assert replay(open_dataset, core, epochs=2, world_size=5).draws == 30
    assert replay(open_dataset, core, epochs=2, world_size=5, remainder="drop").draws == 20


def test_a_replay_differs_with_the_seed_the_table_and_the_payloads(open_dataset, runtime, source_of, tmp_path):
    core = find_driver("core")
    expected = replay(open_dataset, core)

    def edited():
        dataset = open_dataset()
        dataset.update_metadata(dataset.get_metadata()[1:])
        return dataset

    reseeded = replay(lambda: open_dataset(seed=8), core)
    assert (reseeded.population, reseeded.draws) == (expected.population, expected.draws)
    assert reseeded.order != expected.order
    assert replay(edited, core).population != expected.population


def test_a_driver_that_is_not_there_is_named_with_those_that_are():
    assert "core" in driver_names()
    with pytest.raises(drt.ConfigError, match="no driver named 'mxnet' is installed, only .*core.*: pip install"):
        find_driver("mxnet")


def test_a_driver_of_a_third_party_is_found_by_its_entry_point(tmp_path):
    info = tmp_path / "other_adapter-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-adapter\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dataset_rt.adapters]\nother = other_adapter:OtherDriver\n")
    (tmp_path / "other_adapter.py").write_text(
        "class OtherDriver:\n    name = 'other'\n    capabilities = frozenset()\n"
    )
    program = (
        "from dataset_rt.testing import driver_names, find_driver\n"
        "assert 'other' in driver_names(), driver_names()\n"
        "assert find_driver('other').name == 'other'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={"PYTHONPATH": str(tmp_path)})


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_cores_driver_keeps_every_promise(check, tmp_path):
    assert check.needs <= find_driver("core").capabilities
    check(find_driver("core"), tmp_path)


class Broken:
    """The core's driver with one fault."""

    name = "broken"
    capabilities = frozenset({"state", "table", "errors"})

    def __init__(self, fault):
        self.fault = fault

    def loader(self, dataset, batch_size, **options):
        return BrokenLoader(find_driver("core").loader(dataset, batch_size, **options), self.fault)


class BrokenLoader:
    def __init__(self, loader, fault):
        self.loader = loader
        self.fault = fault
        self.first_epoch = None

    def epoch(self):
        try:
            for number, batch in enumerate(self.loader.epoch()):
                yield self.changed(number, batch)
        except drt.CacheCorruptError:
            if self.fault != "swallows errors":
                raise

    def changed(self, number, batch):
        if self.fault == "swaps samples":
            return Delivery(batch.cache_ids[::-1], batch.sample_ids[::-1], batch.payloads[::-1])
        if self.fault == "strips NULs":
            return batch._replace(payloads=[payload.rstrip(b"\0") for payload in batch.payloads])
        if self.fault == "loses a sample":
            return Delivery(*(part[1:] if number == 1 else part for part in batch))
        return batch

    def state_dict(self):
        state = self.loader.state_dict()
        if self.fault == "counts what was read ahead":
            state["position"] = min(state["position"] + 4, 2**63)
        return state

    def load_state_dict(self, state):
        if self.fault == "takes any state":
            return
        self.loader.load_state_dict(state)

    def close(self):
        self.loader.close()


class Deaf(Broken):
    """Keeps the table of the moment when the loader was made, and forgets the ranks."""

    def loader(self, dataset, batch_size, **options):
        if self.fault == "ignores ranks":
            return super().loader(dataset, batch_size)
        return super().loader(dataset.with_metadata(dataset.get_metadata()), batch_size, **options)


@pytest.mark.parametrize(
    ("driver", "broken_promise"),
    [
        (Broken("swaps samples"), "order_and_payloads_are_the_streams"),
        (Broken("loses a sample"), "order_and_payloads_are_the_streams"),
        (Broken("strips NULs"), "payloads_of_a_mebibyte_arrive_whole"),
        (Deaf("ignores ranks"), "ranks_together_are_the_stream"),
        (Broken("counts what was read ahead"), "a_state_of_any_step_resumes_exactly"),
        (Broken("counts what was read ahead"), "a_state_resumes_at_another_world_size"),
        (Broken("takes any state"), "a_state_of_another_stream_is_refused"),
        (Deaf("keeps the first table"), "an_edited_table_reaches_the_next_window"),
        (Broken("swallows errors"), "a_corrupt_shard_is_named_to_the_training_loop"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.fault,
)
def test_a_check_fails_for_a_driver_that_breaks_its_promise(driver, broken_promise, tmp_path):
    (check,) = (check for check in CHECKS if check.name == broken_promise)
    with pytest.raises(AssertionError):
        check(driver, tmp_path)


def test_every_check_is_seen_to_fail():
    marks = test_a_check_fails_for_a_driver_that_breaks_its_promise.pytestmark
    assert {promise for _, promise in marks[0].args[1]} == {check.name for check in CHECKS}


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        *(
            (name, value, f"{name} must be at least 1, got {value}")
            for name in ("batch_size", "epochs", "world_size")
            for value in (0, -1)
        ),
        ("num_workers", -1, r"num_workers must be in \[0, 2\*\*64\), got -1"),
        *(
            (name, value, f"{name} must be an integer, got {value}")
            for name in ("batch_size", "epochs", "world_size", "num_workers")
            for value in (True, 1.5, None)
        ),
        ("remainder", None, 'remainder must be "extend", "drop" or "uneven", got None'),
        ("remainder", "rest", "remainder must be .*, got 'rest'"),
    ],
)
def test_a_replay_refuses_arguments_out_of_range(open_dataset, argument, value, message):
    with pytest.raises(drt.ConfigError, match=message):
        replay(open_dataset, find_driver("core"), **{argument: value})


def test_a_replay_refuses_an_open_dataset(open_dataset):
    with pytest.raises(drt.ConfigError, match="open_dataset must be a function"):
        replay(open_dataset(), find_driver("core"))
