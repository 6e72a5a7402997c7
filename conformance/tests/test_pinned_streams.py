"""The pinned streams of testdata/order/: the oracle still makes them, and the core gives every answer in them."""

import json
from pathlib import Path

import polars as pl
import pytest

import dataset_rt as drt
import pin_streams
from dataset_rt import _core
from walks import play

STREAMS, WALKS = (
    json.loads((pin_streams.ORDER_FILES / name).read_text()) for name in ("streams_v1.json", "walks_v1.json")
)


class CoreIterator:
    """The core's side of an iterator."""

    def __init__(self, iterator, cache_ids):
        self.iterator = iterator
        self.cache_ids = cache_ids

    def take(self):
        delivered = next(self.iterator, None)
        if delivered is None:
            return None
        if isinstance(delivered, drt.CachedSample):
            return [[self.cache_ids.index(delivered.cache_id), delivered.sample_id]]
        ids, samples = (delivered.column(name).to_pylist() for name in ("cache_id", "sample_id"))
        return [[self.cache_ids.index(cache_id), sample] for cache_id, sample in zip(ids, samples, strict=True)]

    def state(self):
        return moving_part(self.iterator.state_dict())


class CoreDataset:
    """The core's side of a dataset; `reopen` gives a fresh one with the first table."""

    def __init__(self, dataset, reopen):
        self.dataset = dataset
        self.reopen = reopen
        self.cache_ids = dataset.caches["cache_id"].to_list()

    def shard(self, rank, size, remainder):
        return CoreDataset(self.dataset.shard(rank, size, remainder=remainder), self.reopen)

    def iterate(self, batch_size, *, drop_last):
        if batch_size is None:
            return CoreIterator(iter(self.dataset), self.cache_ids)
        return CoreIterator(self.dataset.iter_batches(batch_size, drop_last=drop_last), self.cache_ids)

    def set_epoch_len(self, epoch_len):
        self.dataset.set_epoch_len(epoch_len)

    def update(self, table, *, reset):
        rows, weights = zip(*table, strict=True)
        first = self.reopen().get_metadata()
        edited = first[list(rows)].with_columns(weight=pl.Series(weights))
        self.dataset.update_metadata(edited, reset_stream=reset)

    def resume(self):
        later = self.reopen()
        later.update_metadata(self.dataset.get_metadata())
        later.load_state_dict(json.loads(json.dumps(self.dataset.state_dict())))
        return CoreDataset(later, self.reopen)

    def position(self):
        return self.dataset.position

    def length(self):
        return len(self.dataset)

    def state(self):
        return moving_part(self.dataset.state_dict())


def moving_part(state):
    return {name: state[name] for name in ("position", "epoch_len", "window")}


def label(case):
    return f"{case['mode']}, {case['name']}, {case['seed']}"


def test_the_oracle_still_writes_the_same_files():
    for name, text in pin_streams.contents().items():
        assert (pin_streams.ORDER_FILES / name).read_text() == text


def test_every_file_is_explained_in_the_readme():
    explained = (pin_streams.ORDER_FILES / "README.md").read_text()
    for path in sorted(Path(pin_streams.ORDER_FILES).iterdir()):
        assert path.name == "README.md" or f"`{path.name}`" in explained, path.name


@pytest.mark.parametrize("case", STREAMS["cases"], ids=label)
def test_the_core_draws_the_pinned_streams(case):
    mode, seed, start, rows = case["mode"], int(case["seed"], 16), int(case["start"], 16), case["rows"]
    if "weights" in case:
        assert _core.rows(mode, seed, case["weights"], start, len(rows)) == rows
    else:
        assert _core.rows_of_equal(mode, seed, case["population_rows"], start, len(rows)) == rows


def test_the_caches_of_the_walks_have_their_identities(caches):
    for cache in WALKS["caches"]:
        opened = caches.open(cache["samples"], mode="ordered", seed=0).caches
        assert opened["name"].to_list() == [cache["name"]]
        assert opened["cache_id"].to_list() == [int(cache["cache_id"], 16)]


@pytest.mark.parametrize("case", WALKS["cases"], ids=label)
def test_the_core_walks_the_pinned_walks(case, caches):
    counts = [cache["samples"] for cache in WALKS["caches"]]

    def reopen():
        return caches.open(*counts, mode=case["mode"], seed=int(case["seed"], 16))

    answered = play(case["events"], CoreDataset(reopen(), reopen))
    for found, expected in zip(answered, case["events"], strict=True):
        assert found == expected
