"""What is in a batch, how edits reach it, and how errors of a worker arrive."""

import itertools
import pickle
import resource
import shutil
import subprocess
import sys
import time
from datetime import date

import numpy as np
import polars as pl
import pytest
import torch
from torch.utils.data import DataLoader

import dataset_rt as drt
from dataset_rt_torch import (
    StreamBatchSampler,
    StreamDataset,
    StreamIterableDataset,
    collate_samples,
    make_dataloader,
)

PAYLOADS = [b"", b"\0", b"text\0\0\0", bytes(range(256)), b"\0" * 10, np.random.default_rng(0).bytes(1 << 20)]


class Rows:
    """Samples of given payloads and metadata."""

    def __init__(self, name, payloads, rows=None):
        self.name = name
        self.samples = list(zip(payloads, rows or [{}] * len(payloads), strict=True))

    def __iter__(self):
        for data, metadata in self.samples:
            yield drt.CacheInput(data, metadata)


def ids(batch):
    return batch["sample_id"].tolist()


# --- Contents


@pytest.mark.parametrize("iterable", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_payloads_arrive_byte_by_byte(open_cache, write, tmp_path, workers, iterable):
    dataset = open_cache(write(tmp_path, Rows("payloads", PAYLOADS)), shuffle=False)
    (batch,) = make_dataloader(dataset, len(PAYLOADS), num_workers=workers, iterable=iterable)
    assert batch["data"] == PAYLOADS


@pytest.mark.parametrize("workers", [0, 1])
def test_tensors_are_writable_and_own_their_memory(dataset, workers):
    decode = drt.array_decoder("u1", (2, 3), metadata=("label", "score", "text"))
    loader = make_dataloader(dataset, 8, num_workers=workers, decode_batch=decode)
    kept = []
    for batch in loader:
        data = batch["data"]
        assert data.dtype == torch.uint8
        assert data[:, 0, 0].tolist() == ids(batch)
        data += 1
        data.mul_(2)
        kept.append((data, ids(batch)))
    # No later batch came into the memory of an earlier one.
    assert all(data[:, 1, 2].tolist() == [2 * (number + 1) for number in numbers] for data, numbers in kept)
    assert batch["label"].dtype == torch.int64
    assert batch["score"].dtype == torch.float64
    assert batch["text"].tolist() == [f"row {number}" for number in ids(batch)]


@pytest.mark.parametrize("workers", [0, 1])
def test_decode_gives_items_that_torch_collates(dataset, workers):
    loader = make_dataloader(dataset, 4, num_workers=workers, decode=pixel_and_label)
    pixels, labels = next(iter(loader))
    assert pixels.shape == (4,)
    assert (pixels % 5).tolist() == labels.tolist()


def pixel_and_label(sample):
    return sample.data[0], sample.metadata["label"]


@pytest.mark.parametrize("iterable", [False, True])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_list_by_decode_batch_is_a_whole_batch(dataset, workers, iterable):
    loader = make_dataloader(dataset, 4, num_workers=workers, decode_batch=two_fields, iterable=iterable)
    expected = dataset.stream().records(0, 23).tolist()
    for number, batch in enumerate(loader):
        assert type(batch) is list
        numbers, labels = batch
        assert numbers.tolist() == expected[number * 4 :][:4]
        assert labels.tolist() == [number % 5 for number in numbers.tolist()]
    samples = StreamDataset(dataset, decode_batch=two_fields)
    assert [field.tolist() for field in samples[3]] == [[3], [3]]
    own = DataLoader(samples, batch_size=4, collate_fn=lambda fields: [len(field) for field in fields])
    assert next(iter(own)) == [4, 4]


def two_fields(batch):
    return [batch.column(name).to_numpy() for name in ("sample_id", "label")]


@pytest.mark.parametrize("workers", [0, 1])
def test_arrays_of_any_byte_order_and_strides_become_tensors(dataset, workers):
    loader = make_dataloader(dataset, 4, num_workers=workers, decode_batch=odd_arrays)
    expected = dataset.stream().records(0, 4).tolist()
    batch = next(iter(loader))
    assert {name: tensor.dtype for name, tensor in batch.items()} == dict.fromkeys(batch, torch.int64)
    assert batch["turned"].tolist() == expected[::-1]
    assert batch["packed"].tolist() == batch["foreign"].tolist() == batch["repeated"][0].tolist() == expected
    for tensor in batch.values():
        tensor += 1


def odd_arrays(batch):
    numbers = batch.column("sample_id").to_numpy().astype("i8")
    packed = np.zeros(len(numbers), dtype=[("number", "i8"), ("flag", "u1")])
    packed["number"] = numbers
    return {
        "turned": numbers[::-1],
        "packed": packed["number"],
        "foreign": numbers.astype(">u8"),
        "repeated": np.broadcast_to(numbers.astype("u8"), (2, len(numbers))),
    }


def test_a_collate_function_of_ones_own_gets_the_samples(dataset):
    (first, *_) = make_dataloader(dataset, 4, collate_fn=list)
    assert [type(sample) for sample in first] == [drt.CachedSample] * 4


def test_samples_collate_to_tensors_where_all_values_are_numbers(open_cache, write, tmp_path):
    rows = [
        {"flag": True, "count": 1, "score": 0.5, "maybe": None, "text": "ä\0", "day": date(2020, 1, 1)},
        {"flag": False, "count": -(2**63), "score": float("inf"), "maybe": 2, "text": "", "day": date(1969, 12, 31)},
    ]
    dataset = open_cache(write(tmp_path, Rows("rows", [b"a", b"b"], rows)), shuffle=False)
    (batch,) = make_dataloader(dataset, 2)
    assert batch["flag"].tolist() == [True, False]
    assert batch["flag"].dtype == torch.bool
    assert batch["count"].tolist() == [1, -(2**63)]
    assert batch["score"].tolist() == [0.5, float("inf")]
    assert batch["maybe"] == [None, 2]
    assert batch["text"] == ["ä\0", ""]
    assert batch["day"] == [date(2020, 1, 1), date(1969, 12, 31)]


def test_a_whole_batch_keeps_its_structure_and_what_torch_has_no_type_for():
    dates = np.array(["2020-01-01"], dtype="datetime64[D]")
    swapped = np.array([1, 2], dtype=">i4")
    batch = {"pair": (np.zeros(2, "f4"), [np.ones(3)]), "dates": dates, "swapped": swapped, "name": "x", "raw": b"y"}
    made = collate_samples(batch)
    assert made["pair"][0].dtype == torch.float32
    assert made["pair"][1][0].tolist() == [1, 1, 1]
    assert made["dates"] is dates
    assert made["swapped"].tolist() == [1, 2]
    assert (made["name"], made["raw"]) == ("x", b"y")
    fixed = np.arange(3)
    fixed.flags.writeable = False
    collate_samples(fixed).add_(1)
    assert fixed.tolist() == [0, 1, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_losses_find_their_rows(dataset, workers):
    cache_id = dataset.caches["cache_id"][0]
    loader = make_dataloader(dataset, 4, num_workers=workers)
    for batch in loader:
        assert batch["cache_id"].view(torch.uint64).tolist() == [cache_id] * len(batch["sample_id"])
        assert batch["label"].tolist() == [number % 5 for number in ids(batch)]


# --- Rows by number


def test_a_plain_index_is_a_row_of_the_table(dataset):
    dataset.update_metadata(dataset.get_metadata().reverse().head(7))
    for samples in (StreamDataset(dataset), pickle.loads(pickle.dumps(StreamDataset(dataset)))):
        assert len(samples) == 7
        assert [samples[row].sample_id for row in (0, 6, -1)] == [22, 16, 16]
        assert [sample.sample_id for sample in samples.__getitems__([2, np.int64(1)])] == [20, 21]
        for row in (7, -8, 2**62 - 1):
            with pytest.raises(IndexError, match=r"row must be in \[-7, 7\)"):
                samples[row]
    assert StreamDataset(dataset, decode=pixel_and_label)[0] == (22, 2)
    assert StreamDataset(dataset, decode_batch=drt.array_decoder("u1", 6))[0]["data"].shape == (1, 6)


def test_torchs_own_samplers_never_show_a_filtered_row(dataset):
    dataset.update_metadata(dataset.get_metadata().filter(pl.col("label") == 1))
    loader = DataLoader(StreamDataset(dataset), batch_size=2, shuffle=True, collate_fn=collate_samples)
    for _ in range(3):
        seen = sorted(itertools.chain.from_iterable(ids(batch) for batch in loader))
        assert seen == [1, 6, 11, 16, 21]


def test_a_pickled_dataset_is_small_and_carries_no_position(dataset):
    assert len(pickle.dumps(StreamDataset(dataset))) < 1_000
    assert len(pickle.dumps(StreamIterableDataset(dataset, 4))) < 2_500


# --- Edits


@pytest.mark.parametrize("start", ["fork", "forkserver"])
def test_edits_reach_persistent_workers_with_the_next_epoch(dataset, start):
    loader = make_dataloader(dataset, 4, num_workers=2, persistent_workers=True, multiprocessing_context=start)
    workers = None
    for hard in ([3, 4], [20, 21, 22], [7]):
        seen = list(itertools.chain.from_iterable(ids(batch) for batch in loader))
        # The losses of this epoch make the table of the next one.
        assert seen
        losses = pl.col("sample_id").is_in(hard)
        table = dataset.get_metadata()
        kept = table.with_columns(weight=pl.when(losses).then(1e9).otherwise(1e-9))
        dataset.update_metadata(kept, reset_stream=False)
        assert len(loader) == 6
        harder = set(itertools.chain.from_iterable(ids(batch) for batch in loader))
        assert harder <= set(hard)
        processes = {worker.pid for worker in loader._iterator._workers}
        assert workers in (None, processes), "the workers are those of the first epoch"
        workers = processes


def test_filtered_rows_never_come_again_and_lengths_follow(dataset):
    loader = make_dataloader(dataset, 4, num_workers=1, persistent_workers=True)
    list(loader)
    dataset.update_metadata(dataset.get_metadata().filter(pl.col("label") == 2))
    for _ in range(4):
        assert len(loader) == 2
        assert {number % 5 for batch in loader for number in ids(batch)} == {2}


def test_a_running_epoch_keeps_its_table(dataset):
    expected = dataset.stream().records(0, 23).tolist()
    loader = make_dataloader(dataset, 4)
    iterator = iter(loader)
    seen = ids(next(iterator))
    dataset.update_metadata(dataset.get_metadata().head(1))
    assert list(itertools.chain(seen, *map(ids, iterator))) == expected
    assert [ids(batch) for batch in loader] == [[0]]


def test_a_changed_population_refuses_an_old_state(dataset):
    loader = make_dataloader(dataset, 4)
    next(iter(loader))
    state = loader.state_dict()
    dataset.update_metadata(dataset.get_metadata().head(5))
    with pytest.raises(drt.StateMismatchError, match="rows"):
        loader.load_state_dict(state)
    assert [len(batch["sample_id"]) for batch in loader] == [4, 1]


def test_an_iterable_loader_refuses_an_edited_table(dataset):
    loader = make_dataloader(dataset, 4, iterable=True)
    list(loader)
    dataset.update_metadata(dataset.get_metadata().head(5))
    with pytest.raises(drt.ConfigError, match="table of an iterable loader must stay as it was"):
        next(iter(loader))


# --- Faults


def corrupt(path):
    """Flip a byte of the payload of one record in the middle."""
    (shard,) = path.glob("shards/*.bin")
    content = bytearray(shard.read_bytes())
    found = content.find(bytes([11]) * 6)
    content[found] ^= 0xFF
    shard.write_bytes(content)


@pytest.mark.parametrize("kind", ["made", "made iterable", "plain"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_corrupt_shard_reaches_the_parent_as_our_error(open_cache, cache, tmp_path, kind, workers):
    path = tmp_path / cache.name
    shutil.copytree(cache, path)
    corrupt(path)
    dataset = open_cache(path, shuffle=False)
    if kind == "plain":
        sampler = StreamBatchSampler(dataset, 4)
        loader = DataLoader(StreamDataset(dataset), batch_sampler=sampler, num_workers=workers, collate_fn=list)
    else:
        loader = make_dataloader(dataset, 4, num_workers=workers, iterable=kind == "made iterable")
    iterator = iter(loader)
    next(iterator)
    next(iterator)
    begun = time.monotonic()
    with pytest.raises(drt.CacheCorruptError) as caught:
        next(iterator)
    assert time.monotonic() - begun < 10
    assert caught.value.sample == 11
    assert caught.value.file.is_relative_to(path)
    if kind != "plain":
        with pytest.raises(drt.CacheCorruptError):
            next(iterator)
        assert loader.state_dict()["position"] == 8


def test_wrong_arguments_are_refused(dataset):
    view = dataset.shard(0, 2, remainder="drop")
    decode = drt.array_decoder("u1", 6)
    cases = [
        (lambda: make_dataloader(dataset, 0), "batch_size must be at least 1, got 0"),
        (lambda: make_dataloader(dataset, 2, shuffle=True), "shuffle must be left out, got True"),
        (lambda: make_dataloader(dataset, 2, sampler=[1]), r"sampler must be left out, got \[1\]"),
        (lambda: make_dataloader(dataset, 2, in_order=False), "in_order must be left out, got False"),
        (lambda: make_dataloader(dataset, 2, drop_last=1), "drop_last must be True or False, got 1"),
        (lambda: make_dataloader(dataset, 2, iterable=1), "iterable must be True or False, got 1"),
        (lambda: make_dataloader(dataset, 2, rank=1), "rank and world_size must be given together, got 1 and None"),
        (lambda: make_dataloader(dataset, 2, rank=2, world_size=2), r"rank must be in \[0, 2\), got 2"),
        (lambda: make_dataloader(dataset, 2, remainder="most"), 'remainder must be "extend", "drop" or "uneven"'),
        (lambda: make_dataloader(view, 2, rank=0, world_size=2), "must be left out for a rank's view"),
        (lambda: make_dataloader(view, 2, remainder="uneven"), "remainder must be left out for a rank's view"),
        (lambda: make_dataloader([1], 2), r"dataset must be a CachedDataset or its stream\(\), got list"),
        (lambda: StreamDataset([1]), r"dataset must be a CachedDataset or its stream\(\), got list"),
        (lambda: StreamDataset(dataset, decode=3), "decode must be callable, got 3"),
        (lambda: StreamDataset(dataset, decode=list, decode_batch=decode), "must not be given both"),
        (lambda: StreamIterableDataset(dataset, 2).set_position(-1), r"start must be in \[0, 2\*\*64\), got -1"),
    ]
    for call, message in cases:
        with pytest.raises(drt.ConfigError, match=message):
            call()


def test_a_loader_leaves_torchs_random_state_to_the_user(dataset):
    """Without workers no more numbers are drawn than a DataLoader draws: one, when an iteration begins."""
    torch.manual_seed(1)
    list(make_dataloader(dataset, 4))
    after = torch.rand(1)
    torch.manual_seed(1)
    list(DataLoader(StreamDataset(dataset), batch_size=4, collate_fn=list))
    assert torch.equal(after, torch.rand(1))


def test_a_program_ends_though_an_iteration_is_unfinished(cache):
    program = (
        "import sys, dataset_rt as drt; from pathlib import Path; from dataset_rt_torch import make_dataloader\n"
        "dataset = drt.DatasetRuntime().cached_dataset([Path(sys.argv[1])], reader_config=drt.ReaderConfig())\n"
        "left = [iter(make_dataloader(dataset, 4, num_workers=workers)) for workers in (0, 1)]\n"
        "print([len(next(iterator)['data']) for iterator in left])\n"
    )
    command = [sys.executable, "-W", "error", "-c", program, str(cache)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[4, 4]\n", "")


# --- What workers send


def large_and_small(batch):
    numbers = batch.column("sample_id").to_numpy().astype("i8")
    return {
        "large": np.repeat(numbers[:, None].astype("u1"), 1 << 19, axis=1),
        "small": (numbers * 2, [numbers % 2 == 0]),
        "none": numbers[:0].reshape(0, 3),
        "half": torch.from_numpy(numbers).to(torch.bfloat16),
        "turned": torch.from_numpy(np.stack([numbers, numbers])).T,
        "text": ["a", None],
    }


def test_small_tensors_arrive_as_bytes_and_large_ones_in_shared_memory(dataset):
    loader = make_dataloader(dataset, 4, num_workers=1, decode_batch=large_and_small, drop_last=True)
    expected = dataset.stream().records(0, 20).reshape(5, 4).tolist()
    for batch, numbers in zip(loader, expected, strict=True):
        assert batch["large"].shape == (4, 1 << 19)
        assert batch["large"][:, -1].tolist() == numbers
        doubled, (is_even,) = batch["small"]
        assert doubled.tolist() == [2 * number for number in numbers]
        assert is_even.dtype == torch.bool
        assert is_even.tolist() == [number % 2 == 0 for number in numbers]
        assert batch["none"].shape == (0, 3)
        assert batch["half"].tolist() == numbers
        assert batch["turned"].tolist() == [[number, number] for number in numbers]
        assert batch["text"] == ["a", None]
        assert [batch["large"].is_shared(), doubled.is_shared(), is_even.is_shared()] == [True, False, False]
        for tensor in (batch["large"], doubled):
            tensor += 1


def test_a_collate_function_around_ours_gets_tensors_in_a_worker(dataset):
    loader = make_dataloader(dataset, 4, num_workers=1, collate_fn=numbers_of)
    assert next(iter(loader)).tolist() == dataset.stream().records(0, 4).tolist()


def numbers_of(batch):
    return collate_samples(batch)["sample_id"] + 0


# --- Memory


def test_a_batch_that_is_kept_never_changes(open_cache, write, tmp_path):
    dataset = open_cache(write(tmp_path, Rows("wide", [bytes([number]) * (1 << 16) for number in range(16)])))
    loader = make_dataloader(dataset, 4, decode_batch=drt.array_decoder("u1", 1 << 16))
    kept = [(batch["data"], ids(batch)) for _ in range(3) for batch in loader]
    assert all((data == torch.tensor(numbers)[:, None]).all() for data, numbers in kept)
    assert len({data.data_ptr() for data, _ in kept}) == 12


@pytest.mark.parametrize("by_number", [False, True])
def test_a_batch_that_is_dropped_gives_its_memory_to_the_next_epoch(open_cache, write, tmp_path, by_number):
    # More than glibc ever keeps for itself: what is not given on is new memory, which costs a fault a page.
    size, pages = 9 << 20, (36 << 20) // resource.getpagesize()
    dataset = open_cache(write(tmp_path, Rows("large", [bytes([number]) * size for number in range(4)])))
    decode = drt.array_decoder("u1", size)
    loader = make_dataloader(dataset, 4, decode_batch=decode)
    samples = StreamDataset(dataset, decode_batch=decode)

    def epoch():
        (batch,) = [samples.__getitems__(range(4))] if by_number else loader
        assert sorted(ids(batch))[0] in range(4)

    epoch()
    epoch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        epoch()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 2 * pages, "of 4 batches"
