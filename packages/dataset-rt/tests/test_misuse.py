"""Slips and hostile sources: each ends in an error that says what to do, and none in an abort, a hang or a panic."""

from __future__ import annotations

import collections.abc
import logging
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dataset_rt as drt


@pytest.fixture
def dataset(cache_of, open_caches):
    return open_caches(cache_of("digits", [{"label": row % 10} for row in range(500)]), shuffle=True)


def test_counts_that_no_memory_holds_are_refused(dataset):
    stream = dataset.stream()
    for count in (2**46, 2**61, 2**62):
        for call in (stream.rows, stream.records):
            with pytest.raises(drt.ConfigError, match="ask for fewer"):
                call(0, count)
    dataset.set_epoch_len(2**62)
    for batch_size in (2**46, 2**61):
        with pytest.raises(drt.ConfigError, match="ask for fewer"):
            next(dataset.iter_batches(batch_size))


def test_a_batch_of_no_rows_has_the_columns_of_every_batch(dataset):
    expected = next(dataset.iter_batches(4)).schema
    stream = dataset.stream()
    for batch in (dataset.read_batch([]), stream.fetch_batch([]), stream.fetch_records_batch([])):
        assert batch.num_rows == 0
        assert batch.schema == expected
    assert dataset.read([]) == []
    assert dataset.read(np.array([], dtype=np.int64)) == []


END = object()


def next_or_refusal(iterator, refused):
    try:
        return next(iterator, END)
    except drt.ConfigError as error:
        refused.append(str(error))
        return None


def test_an_iterator_that_threads_share_says_so_and_loses_nothing(dataset):
    dataset.set_epoch_len(20_000)
    for make in (lambda: iter(dataset), lambda: dataset.iter_batches(7)):
        expected = list(dataset.stream().rows(dataset.position, 20_000))
        iterator, taken, refused = make(), [], []

        def drain(iterator=iterator, taken=taken, refused=refused):
            while (item := next_or_refusal(iterator, refused)) is not END:
                taken.extend([] if item is None else [item])

        threads = [threading.Thread(target=drain) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all("one thread at a time" in message for message in refused)
        if isinstance(taken[0], drt.CachedSample):
            ids = [sample.sample_id for sample in taken]
        else:
            ids = [row for batch in taken for row in batch["sample_id"].to_pylist()]
        assert sorted(ids) == sorted(expected)


class Raises:
    name = "raises"

    def __init__(self, where, error):
        self.where, self.error = where, error

    def __iter__(self):
        if self.where == "iter":
            raise self.error
        metadata = HostileMapping(self.error) if self.where == "mapping" else {"label": 1}
        return iter([drt.CacheInput(b"x", {"label": 1}), drt.CacheInput(b"y", metadata)])

    def __len__(self):
        if self.where == "len":
            raise self.error
        return 2


class HostileMapping(collections.abc.Mapping):
    def __init__(self, error):
        self.error = error

    def __getitem__(self, key):
        raise self.error

    def __iter__(self):
        return iter(["label"])

    def __len__(self):
        return 1


def test_a_source_that_cannot_be_iterated_is_a_source_error_with_its_cause(write, nothing_left, tmp_path):
    cause = ZeroDivisionError("division by zero")
    result = write(Raises("iter", cause))
    assert isinstance(result.error, drt.SourceError)
    assert result.error.__cause__ is cause
    assert "raises" in result.message
    assert "division by zero" in result.message
    nothing_left(tmp_path / "caches")


@pytest.mark.parametrize("show_progress", [True, False])
def test_a_length_that_cannot_be_asked_for_does_not_matter(write, show_progress):
    result = write(Raises("len", RuntimeError("no length")), show_progress=show_progress)
    assert isinstance(result, drt.CacheWriteSuccess)
    assert result.samples == 2


def test_a_mapping_that_raises_is_refused_with_its_sample_and_can_be_skipped(write, tmp_path):
    source = Raises("mapping", KeyError("evil"))
    result = write(source)
    assert (result.error.source_name, result.error.sample, result.error.field) == ("raises", 1, "metadata")
    result = write(source, on_error="skip")
    assert (result.samples, result.skipped) == (1, 1)


def test_a_name_that_cannot_be_read_is_refused(runtime, tmp_path):
    class Nameless:
        @property
        def name(self):
            raise RuntimeError("no name today")

        def __iter__(self):
            return iter([])

    with pytest.raises(drt.ConfigError, match="no name today"):
        runtime.write_cache([Nameless()], tmp_path)


class Attributed:
    """A source of which an optional attribute cannot be read."""

    name = "attributed"

    def __init__(self, attribute, error):
        self.attribute, self.error = attribute, error

    @property
    def attributes(self):
        if self.attribute == "attributes":
            raise self.error
        return HostileMapping(self.error) if self.attribute == "attributes' values" else None

    @property
    def metadata_schema(self):
        if self.attribute == "metadata_schema":
            raise self.error
        return HostileMapping(self.error) if self.attribute == "metadata_schema's values" else None

    def __iter__(self):
        yield drt.CacheInput(b"x", {"label": 1})


@pytest.mark.parametrize("error", [RuntimeError("not today"), AttributeError("not today")], ids=["other", "attribute"])
@pytest.mark.parametrize(
    "attribute", ["attributes", "metadata_schema", "attributes' values", "metadata_schema's values"]
)
def test_an_attribute_that_cannot_be_read_fails_its_source_alone(
    runtime, source_of, nothing_left, tmp_path, attribute, error
):
    sources = [source_of("before", [{"x": 1}]), Attributed(attribute, error), source_of("after", [{"x": 1}])]
    config = drt.WriterConfig(show_progress=False)
    before, failed, after = runtime.write_cache(sources, tmp_path, writer_config=config)
    assert isinstance(before, drt.CacheWriteSuccess)
    assert isinstance(after, drt.CacheWriteSuccess)
    assert isinstance(failed, drt.CacheWriteError)
    assert isinstance(failed.error, drt.SourceError)
    assert failed.error.source_name == "attributed"
    assert failed.error.__cause__ is error
    for part in ("attributed", attribute.split("'")[0], "not today"):
        assert part in failed.message
    nothing_left(tmp_path, "before", "after")
    if "metadata_schema" in attribute:
        with pytest.raises(drt.SourceError, match="not today"):
            runtime.content_digest(Attributed(attribute, error))


def test_a_generator_as_source_is_told_to_become_a_class(runtime, tmp_path):
    samples = (drt.CacheInput(b"x", {}) for _ in range(3))
    with pytest.raises(drt.ConfigError, match="class with a name"):
        runtime.write_cache(samples, tmp_path)


def test_a_source_that_asks_for_its_own_cache_is_refused_at_once(runtime, tmp_path):
    class Nested:
        name = "nested"

        def __iter__(self):
            config = drt.WriterConfig(show_progress=False)
            yield drt.CacheInput(b"x", {})
            runtime.from_cache_sources(
                Nested(), tmp_path, reader_config=drt.ReaderConfig(), writer_config=config
            ).unwrap()

    (result,) = runtime.write_cache(Nested(), tmp_path)
    assert isinstance(result.error, drt.SourceError)
    assert "must not ask for the cache that is being written" in result.message


def test_what_a_signal_handler_raises_while_waiting_reaches_the_caller(runtime, source_of, tmp_path):
    script = """
        import sys, time
        import dataset_rt as drt

        class Slow:
            name = "slow"

            def __iter__(self):
                yield drt.CacheInput(b"x", {})
                print("writing", flush=True)
                time.sleep(60)

        drt.DatasetRuntime().write_cache(Slow(), sys.argv[1], writer_config=drt.WriterConfig(show_progress=False))
    """
    command = [sys.executable, "-c", textwrap.dedent(script), str(tmp_path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def deadline(*_):
        raise TimeoutError("my deadline")

    before = signal.signal(signal.SIGALRM, deadline)
    try:
        assert writer.stdout.readline() == "writing\n"
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(TimeoutError, match="my deadline"):
            runtime.write_cache(source_of("slow", [{"x": 1}]), tmp_path)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        writer.kill()
        writer.communicate()


def test_waiting_for_another_process_is_logged_once(source_of, tmp_path, caplog):
    started, go_on = threading.Event(), threading.Event()

    class Slow:
        name = "shared"

        def __iter__(self):
            yield drt.CacheInput(b"x", {"x": 1})
            started.set()
            go_on.wait()

    config = drt.WriterConfig(show_progress=False)
    first = threading.Thread(
        target=drt.DatasetRuntime(num_workers=2).write_cache, args=(Slow(), tmp_path), kwargs={"writer_config": config}
    )
    first.start()
    started.wait()
    results = []

    def reuse():
        runtime = drt.DatasetRuntime(num_workers=2)
        source = source_of("shared", [{"x": 1}])
        results.append(runtime.from_cache_sources(source, tmp_path, reader_config=drt.ReaderConfig()))

    with caplog.at_level(logging.INFO, logger="dataset_rt"):
        second = threading.Thread(target=reuse)
        second.start()
        time.sleep(0.4)
        go_on.set()
        second.join()
        first.join()
    assert [record.getMessage() for record in caplog.records] == [
        f"shared: waiting for process {os.getpid()} on {os.uname().nodename}, which writes this cache"
    ]
    assert results[0].results[0].reused


def test_ctrl_c_interrupts_a_long_digest(dataset):
    stream = dataset.stream()
    # A program in the background of a shell inherits that SIGINT is ignored, so the test sets what it means.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        begun = time.perf_counter()
        with pytest.raises(KeyboardInterrupt):
            stream.order_digest(0, 2**40)
        assert time.perf_counter() - begun < 2
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


def test_zeros_of_another_sign_are_another_value(cache_of, open_caches):
    import polars as pl

    dataset = open_caches(cache_of("zeros", [{"x": -0.0}, {"x": 0.0}]))
    dataset.update_metadata(dataset.get_metadata())
    with pytest.raises(drt.MetadataError, match=r"row 0 .*-0\.0.*0\.0"):
        dataset.update_metadata(dataset.get_metadata().with_columns(x=pl.lit(0.0)))


def test_long_keys_and_values_are_shortened_in_messages(write, source_of):
    for items in ([{"k" * 5_000: 1}], [{"x": "s"}, {"x": 10**400}], [{"data": 1}]):
        result = write(source_of("digits", items))
        assert isinstance(result.error, drt.SourceError), result
        assert len(result.message) < 500
    broken = drt.SkippedInput("r" * 10_000)
    result = write(source_of("letters", [broken, drt.CacheInput(b"", {})]), on_error="skip")
    assert len(result.first_errors[0]) <= 500


def test_what_cannot_be_pickled_says_what_can(runtime, dataset):
    with pytest.raises(TypeError, match=r"dataset\.stream\(\)"):
        pickle.dumps(iter(dataset))
    with pytest.raises(TypeError, match=r"dataset\.stream\(\)"):
        pickle.dumps(dataset.iter_batches(3))
    with pytest.raises(TypeError, match="each process"):
        pickle.dumps(runtime)


@pytest.mark.parametrize("rows", [5, None, 1.5])
def test_rows_that_are_no_list_are_refused(dataset, rows):
    for call in (dataset.read, dataset.read_batch, dataset.stream().fetch):
        with pytest.raises(drt.ConfigError, match="must be integers in a list"):
            call(rows)


@pytest.mark.parametrize("number", ["a", True, 1.5, None], ids=repr)
def test_a_row_and_a_draw_that_are_no_integers_are_refused_alike(dataset, number):
    with pytest.raises(drt.ConfigError, match=f"row must be an integer, got {number!r}"):
        dataset[number]
    with pytest.raises(drt.ConfigError, match=f"position must be an integer, got {number!r}"):
        dataset.stream()[number]


def test_a_slice_of_draws_is_told_to_use_fetch(dataset):
    with pytest.raises(drt.ConfigError, match=r"fetch\(range\(start, stop\)\)"):
        dataset.stream()[1:3]


def test_a_slice_is_told_to_use_read(dataset):
    with pytest.raises(drt.ConfigError, match="read"):
        dataset[0:3]


def test_refusals_in_one_thread_do_not_stop_another_that_looks_at_the_dataset(dataset):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    stop = threading.Event()

    def refuse():
        while not stop.is_set():
            with pytest.raises(drt.ConfigError):
                dataset.set_epoch_len(0)

    thread = threading.Thread(target=refuse, daemon=True)
    thread.start()
    try:
        for _ in range(20_000):
            assert dataset.position == 0
    finally:
        stop.set()
        thread.join(30)
        sys.setswitchinterval(before)
    assert not thread.is_alive()


def read_characters():
    return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])


@pytest.mark.parametrize("batch_size", [64, 200, 256, 500])
def test_the_next_batch_is_read_while_the_consumer_works_on_this_one(cache_of, open_caches, batch_size):
    payload = 4096
    items = [drt.CacheInput(bytes([row % 256]) * payload, {}) for row in range(1_500)]
    # Only what is read by system calls is counted there.
    dataset = open_caches(cache_of("payloads", items), prefetch_size=256, io="positioned")
    before = read_characters()
    batches = dataset.iter_batches(batch_size)
    next(batches)
    time.sleep(0.3)
    # The batch that was delivered, and at least one more.
    assert read_characters() - before >= 2 * batch_size * payload
    assert len(list(batches)) > 1


def test_a_process_that_reuses_anothers_cache_never_begins_its_source(runtime, tmp_path):
    begun = []
    started, go_on = threading.Event(), threading.Event()

    class Shared:
        name = "shared"

        def __init__(self, number):
            self.number = number

        def __iter__(self):
            begun.append(self.number)
            started.set()
            go_on.wait(30)
            return iter([drt.CacheInput(b"x", {})])

    def build(number):
        config = drt.WriterConfig(show_progress=False)
        drt.DatasetRuntime(num_workers=2).from_cache_sources(
            Shared(number), tmp_path, reader_config=drt.ReaderConfig(), writer_config=config
        ).unwrap()

    first = threading.Thread(target=build, args=(1,))
    first.start()
    started.wait(30)
    others = [threading.Thread(target=build, args=(number,)) for number in (2, 3)]
    for other in others:
        other.start()
    time.sleep(0.3)
    go_on.set()
    for thread in (first, *others):
        thread.join(30)
    assert begun == [1]


def test_a_timedelta_is_no_number(write, source_of):
    result = write(source_of("digits", [{"x": np.timedelta64(5, "ns")}]))
    assert isinstance(result.error, drt.SourceError)
    assert result.error.field == "x"


def test_the_length_hint_knows_a_loaded_rest(dataset):
    import operator

    dataset.set_epoch_len(10)
    iterator = iter(dataset)
    assert operator.length_hint(iterator) == 10
    for _ in range(4):
        next(iterator)
    assert operator.length_hint(iterator) == 6
    dataset.load_state_dict(dataset.state_dict())
    assert operator.length_hint(iter(dataset)) == 6
    assert operator.length_hint(dataset.iter_batches(4)) == 2
    assert len(list(dataset)) == 6


def test_a_state_of_another_order_version_is_refused_for_that_whatever_else_it_holds(dataset):
    state = dataset.state_dict()
    for wrong in ({"window": {"a": 1}}, {"mode": 3}, {"position": "later"}, {}):
        with pytest.raises(drt.StateMismatchError) as found:
            dataset.load_state_dict({**state, **wrong, "order_version": 2})
        assert found.value.field == "order_version"


def test_a_bool_is_no_position_and_a_list_is_no_state(dataset):
    state = {**dataset.state_dict(), "position": 10}
    with pytest.raises(drt.StateMismatchError, match="window"):
        dataset.load_state_dict({**state, "window": [True, 57]})
    for wrong in ([], list(state.items()), "state", None):
        with pytest.raises(drt.ConfigError, match="state must be a dict"):
            dataset.load_state_dict(wrong)


def test_an_epoch_longer_than_len_can_say_has_a_message_and_is_true(dataset):
    dataset.set_epoch_len(2**63)
    assert dataset
    with pytest.raises(OverflowError, match="epoch_len"):
        len(dataset)


def test_an_endless_stream_refuses_to_be_iterated(dataset):
    with pytest.raises(TypeError, match="not iterable"):
        iter(dataset.stream())
