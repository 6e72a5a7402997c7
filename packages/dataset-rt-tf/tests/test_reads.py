"""Small batches are read several at a time, and of what is right nothing shows it but the speed."""

import gc

import numpy as np
import pytest
import tensorflow as tf

import dataset_rt as drt
import dataset_rt_tf as drt_tf
from dataset_rt_tf.cut import Cut

ARRAYS = drt.array_decoder("uint8", (4,), metadata=("label",))


def expected_batches(dataset, batch_size, start, stop):
    ids = [sample.sample_id for sample in dataset.stream().fetch(range(start, stop))]
    return [ids[k : k + batch_size] for k in range(0, len(ids), batch_size)]


def counted_reads(monkeypatch):
    """The sizes of all reads from now on, in draws."""
    sizes = []
    fetch = drt.SampleStream.fetch_records_batch

    def counting(stream, records):
        sizes.append(len(records))
        return fetch(stream, records)

    monkeypatch.setattr(drt.SampleStream, "fetch_records_batch", counting)
    return sizes


@pytest.mark.parametrize("batch_size", [1, 2, 3, 4, 7, 64, 499, 500, 501])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_are_those_of_the_stream_whatever_is_read_together(numbered, batch_size, drop_last):
    dataset = numbered(500)
    if drop_last and batch_size > 500:
        with pytest.raises(drt.ConfigError, match="no full batch"):
            drt_tf.as_dataset(dataset, batch_size, drop_last=True, decode_batch=ARRAYS)
        return
    batches = drt_tf.as_dataset(dataset, batch_size, drop_last=drop_last, decode_batch=ARRAYS)
    for k in range(2):
        expected = expected_batches(dataset, batch_size, 500 * k, 500 * (k + 1))
        if drop_last and len(expected[-1]) < batch_size:
            expected.pop()
        found = list(batches)
        assert len(batches) == len(found)
        assert [batch["sample_id"].numpy().tolist() for batch in found] == expected
        for batch, ids in zip(found, expected, strict=True):
            assert (batch["data"].numpy() == np.array(ids)[:, None] % 256).all()
            assert batch["label"].numpy().tolist() == [number % 3 for number in ids]
            assert batch["data"].shape == (len(ids), 4)


def test_small_batches_are_read_together_and_a_short_one_alone(numbered, monkeypatch):
    dataset = numbered(500)
    batches = drt_tf.as_dataset(dataset, 7, decode_batch=ARRAYS, num_parallel_calls=1)
    sizes = counted_reads(monkeypatch)
    assert len(list(batches)) == 72
    assert sizes == [7 * 16] * 4 + [7 * 7, 3]


def test_a_read_takes_at_most_two_mebibytes(runtime, tmp_path, monkeypatch):
    class Large:
        name = "large"

        def __iter__(self):
            return (drt.CacheInput(bytes([number]) * (100 << 10), {}) for number in range(50))

    quiet = drt.WriterConfig(show_progress=False)
    dataset = runtime.from_cache_sources(
        Large(), tmp_path, reader_config=drt.ReaderConfig(seed=1), writer_config=quiet
    ).unwrap()
    sizes = counted_reads(monkeypatch)
    decoder = drt.array_decoder("uint8", (100 << 10,))
    for batch_size, expected in ((3, [18, 18, 12, 2]), (16, [16, 16, 16, 2]), (30, [30, 20])):
        batches = drt_tf.as_dataset(dataset, batch_size, decode_batch=decoder, num_parallel_calls=1)
        sizes.clear()
        for batch in batches:
            assert (batch["data"].numpy() == batch["sample_id"].numpy()[:, None]).all()
        assert sizes == expected


def test_stored_strings_count_whether_they_are_decoded_or_not(written, monkeypatch):
    dataset = written([(bytes([number] * 4), {"label": number, "text": "x" * 300_000}) for number in range(20)])
    sizes = counted_reads(monkeypatch)
    for decode_batch in (None, ARRAYS):
        batches = drt_tf.as_dataset(dataset, 2, decode_batch=decode_batch, num_parallel_calls=1)
        sizes.clear()
        assert [number for batch in batches for number in batch["label"].numpy()] == list(range(20))
        # Three batches of 600 kB are the most below two mebibytes.
        assert sizes == [6, 6, 6, 2]


def test_what_a_function_of_ones_own_decodes_is_one_batch(numbered):
    rows = []

    def decode_batch(batch):
        rows.append(batch.num_rows)
        return ARRAYS(batch)

    batches = drt_tf.as_dataset(numbered(500), 7, decode_batch=decode_batch, num_parallel_calls=1)
    rows.clear()
    assert len(list(batches)) == 72
    assert rows == [7] * 71 + [3]


@pytest.mark.parametrize("wrong", [{"num_parallel_calls": 0}, {"num_parallel_calls": -5}, {"prefetch": -5}])
def test_parallelism_out_of_range_is_refused(numbered, wrong):
    with pytest.raises(drt.ConfigError, match=f"{next(iter(wrong))} must be"):
        drt_tf.as_dataset(numbered(), 4, **wrong)


def test_batches_that_are_kept_keep_their_bytes(numbered):
    # Slices of one read share its memory, which must not be filled again while one of them is alive.
    dataset = numbered(500)
    batches = drt_tf.as_dataset(dataset, 16, decode_batch=ARRAYS)
    kept = []
    for _ in range(20):
        kept += [batch for number, batch in enumerate(batches) if number % 31 == 0]
        gc.collect()
    for batch in kept:
        assert (batch["data"].numpy() == batch["sample_id"].numpy()[:, None] % 256).all()


def test_lengths_that_a_signature_leaves_open_are_read_batch_by_batch(numbered, monkeypatch):
    signature = {
        "data": tf.TensorSpec((None,), tf.uint8),
        "label": tf.TensorSpec((), tf.int64),
        "cache_id": tf.TensorSpec((), tf.uint64),
        "sample_id": tf.TensorSpec((), tf.uint64),
    }
    batches = drt_tf.as_dataset(numbered(), 4, decode_batch=ARRAYS, output_signature=signature, num_parallel_calls=1)
    assert batches.element_spec["data"] == tf.TensorSpec((None, None), tf.uint8)
    sizes = counted_reads(monkeypatch)
    assert [batch["data"].shape for batch in batches] == [(4, 4), (4, 4), (2, 4)]
    assert sizes == [4, 4, 2]


@pytest.mark.parametrize("together", [1, 2, 3, 64])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_reads_of_a_window_are_its_batches(numbered, together, drop_last):
    stream = numbered(10).stream()
    for batch_size in range(1, 13):
        cut = Cut(batch_size, drop_last, (0, 1, "extend"), together)
        for rows in range(1, 11):
            window = cut.window(stream, 0, rows)
            found = []
            for number in range(cut.reads(window)):
                first, batches, draws = cut.read(window, number)
                found += [list(range(k, k + draws)) for k in range(first, first + batches * draws, draws)]
            expected = [list(range(k, min(k + batch_size, rows))) for k in range(0, rows, batch_size)]
            assert found == expected[: window.num_batches]


def test_strings_beside_arrays_are_read_together(numbered):
    decoder = drt.array_decoder("uint8", (4,), metadata=("text",))
    found = list(drt_tf.as_dataset(numbered(), 3, decode_batch=decoder))
    for batch in found:
        assert batch["text"].numpy().tolist() == [f"n{number}\0".encode() for number in batch["sample_id"].numpy()]
    assert [len(batch["text"]) for batch in found] == [3, 3, 3, 1]


def test_an_error_among_batches_that_are_read_together_names_the_sample(written):
    samples = [(bytes([number] * 4), {"label": number}) for number in range(40)]
    samples[29] = (b"longer", {"label": 29})
    iterator = iter(drt_tf.as_dataset(written(samples), 2, decode_batch=ARRAYS, num_parallel_calls=1))
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"sample_id 29: a payload of 4 bytes expected"):
        list(iterator)
