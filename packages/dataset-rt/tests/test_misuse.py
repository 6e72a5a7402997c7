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


def test_ctrl_c_interrupts_reading_a_large_batch_and_a_long_digest(dataset):
    stream = dataset.stream()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    begun = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        stream.order_digest(0, 2**40)
    assert time.perf_counter() - begun < 2
    timer.join()


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


def test_a_slice_is_told_to_use_read(dataset):
    with pytest.raises(drt.ConfigError, match="read"):
        dataset[0:3]
