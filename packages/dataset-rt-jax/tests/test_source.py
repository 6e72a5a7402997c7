"""The contract of a source of Grain's."""

import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import cloudpickle
import grain
import jax
import numpy as np
import polars as pl
import pytest

import dataset_rt as drt
from dataset_rt_jax import CacheDataSource, PositionSampler, StreamMapDataset


def test_it_is_a_random_access_data_source_over_the_active_rows_in_the_populations_numbering(open_dataset, number_of):
    dataset = open_dataset(20)
    table = dataset.get_metadata().filter(pl.col("label") != 2)
    dataset.update_metadata(table.sample(fraction=1, shuffle=True, seed=5))
    source = CacheDataSource(dataset, decode=number_of)
    assert isinstance(source, grain.sources.RandomAccessDataSource)
    assert len(source) == 16
    assert [source[row] for row in range(16)] == dataset.stream().table()["sample_id"].to_list()
    # Each row once with Grain's own sampler, and never one that was removed.
    loader = grain.load(source, shuffle=True, seed=1, num_epochs=2)
    assert sorted(loader) == sorted(2 * table["sample_id"].to_list())
    assert list(grain.MapDataset.source(source)) == [source[row] for row in range(16)]


def test_in_order_its_rows_are_those_of_the_table(open_dataset, number_of):
    dataset = open_dataset(20, mode="ordered")
    dataset.update_metadata(dataset.get_metadata().reverse())
    assert CacheDataSource(dataset, decode=number_of)[:] == list(range(20))[::-1]


def test_indices_may_be_numpys_negative_or_slices(open_dataset, number_of):
    source = CacheDataSource(open_dataset(20), decode=number_of)
    for index in (3, np.int64(3), np.uint8(3), np.array(3), -17, np.int32(-17)):
        assert source[index] == 3
    assert source[2:8:3] == [2, 5]
    assert source[::-1] == list(range(20))[::-1]
    assert source[30:] == []


@pytest.mark.parametrize("index", [20, -21, np.int64(20), 2**70])
def test_an_index_that_no_row_has_is_an_index_error(open_dataset, index):
    with pytest.raises(IndexError, match=rf"index must be in \[-20, 20\), got {index}"):
        CacheDataSource(open_dataset(20))[index]


@pytest.mark.parametrize("index", [None, 1.0, "1", True, np.array([1, 2])])
def test_what_is_no_index_is_refused_with_what_came(open_dataset, index):
    made = [CacheDataSource(open_dataset(20)), StreamMapDataset(open_dataset(20)), PositionSampler(open_dataset(20))]
    for indexed in made:
        with pytest.raises(drt.ConfigError, match="index must be an integer, got"):
            indexed[index]


def test_a_map_dataset_has_no_last_element(open_dataset):
    with pytest.raises(IndexError, match="index must be at least 0, got -1"):
        StreamMapDataset(open_dataset(20))[-1]


def test_threads_read_the_same_as_one_does(open_dataset, number_of):
    dataset = open_dataset(100, mode="without_replacement")
    source = CacheDataSource(dataset, decode=number_of)
    batches = StreamMapDataset(dataset, batch_size=8, decode=number_of)
    rows, numbers = [7 * place % 100 for place in range(2_000)], list(range(60)) * 5
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(source.__getitem__, rows)) == rows
        found = [batch.tolist() for batch in pool.map(batches.__getitem__, numbers)]
    assert found == [batches[number].tolist() for number in numbers]


@pytest.mark.parametrize("edited", [False, True])
def test_all_of_them_pickle_small_and_read_the_same_afterwards(open_dataset, decode_batch, edited):
    dataset = open_dataset(100)
    if edited:
        dataset.update_metadata(dataset.get_metadata().reverse().with_columns(weight=pl.col("label") + 1.0))
    source, sampler = CacheDataSource(dataset), PositionSampler(dataset, epochs=3, start=5)
    batches = StreamMapDataset(dataset, batch_size=8, decode_batch=decode_batch)
    for tool in (pickle, cloudpickle):
        again = pickle.loads(tool.dumps([source, sampler, batches]))
        assert len(tool.dumps([source, sampler, batches])) < 4_000 + edited * 3 * 16 * 100
        assert again[0][:] == source[:]
        assert [again[1][index] for index in range(300)] == [sampler[index] for index in range(300)]
        assert again[2][20]["sample_id"].tolist() == batches[20]["sample_id"].tolist()
        assert [repr(made) for made in again] == [repr(made) for made in (source, sampler, batches)]


def test_a_world_is_looked_up_before_it_travels_and_never_again(open_dataset, monkeypatch):
    made = StreamMapDataset(open_dataset(20))
    monkeypatch.setattr(jax, "process_count", lambda: 4)
    monkeypatch.setattr(jax, "process_index", lambda: 3)
    pickled = pickle.dumps(made)
    monkeypatch.undo()
    assert (len(made), len(pickle.loads(pickled)), len(StreamMapDataset(open_dataset(20)))) == (5, 5, 20)
    assert "world_size=4" in repr(made)


REPRESENT = """
import sys, dataset_rt as drt, dataset_rt_jax as adapter
config = drt.ReaderConfig(seed=11)
dataset = drt.DatasetRuntime().cached_dataset(sys.argv[1:], reader_config=config)
print(repr(adapter.CacheDataSource(dataset)), repr(adapter.PositionSampler(dataset, rank=0, world_size=2)), sep="\\n")
"""


def test_what_they_say_of_themselves_is_the_same_in_another_process_and_folder(open_dataset, cache_of, write, tmp_path):
    dataset = open_dataset(20)
    here = [repr(CacheDataSource(dataset)), repr(PositionSampler(dataset, rank=1, world_size=2))]
    elsewhere = write(20, tmp_path)
    for path in (cache_of(20), elsewhere):
        command = [sys.executable, "-W", "error", "-c", REPRESENT, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
        assert done.stdout.splitlines() == here
    assert str(tmp_path) not in here[0]


def test_what_they_say_of_themselves_differs_with_content_table_and_seed(open_dataset, write, tmp_path):
    edited = open_dataset(20)
    edited.update_metadata(edited.get_metadata().head(19).extend(edited.get_metadata().head(1)))
    weighted = open_dataset(20)
    weighted.update_metadata(weighted.get_metadata().with_columns(weight=pl.col("label") + 1.0))
    datasets = [
        open_dataset(20),
        open_dataset(20, write(20, tmp_path, first=1)),
        open_dataset(20, seed=12),
        open_dataset(20, mode="without_replacement"),
        edited,
        weighted,
    ]
    assert len({repr(CacheDataSource(dataset)) for dataset in datasets}) == len(datasets)
    sampled = [repr(PositionSampler(dataset)) for dataset in datasets]
    dataset = datasets[0]
    changes = ({"start": 1}, {"epochs": 2}, {"seed": 1}, {"rank": 0, "world_size": 2}, {"remainder": "drop"})
    sampled += [repr(PositionSampler(dataset, **change)) for change in changes]
    dataset.set_epoch_len(19)
    sampled.append(repr(PositionSampler(dataset)))
    assert len(set(sampled)) == len(sampled)


def test_a_decode_that_gives_none_is_refused_with_the_reason(open_dataset):
    dataset = open_dataset(20)
    reads = [
        lambda: CacheDataSource(dataset, decode=lambda sample: None)[0],
        lambda: list(grain.MapDataset.source(CacheDataSource(dataset, decode=lambda sample: None))),
        lambda: StreamMapDataset(dataset, decode=lambda sample: None)[0],
        lambda: StreamMapDataset(dataset, batch_size=2, decode=lambda sample: None)[0],
    ]
    for read in reads:
        with pytest.raises(drt.ConfigError, match="decode must not return None: Grain leaves such elements out"):
            read()
    with pytest.raises(drt.ConfigError, match="decode_batch must not return None"):
        StreamMapDataset(dataset, batch_size=2, decode_batch=lambda batch: None)[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"decode_batch": len}, "decode_batch and drop_last need a batch_size"),
        ({"drop_last": True}, "decode_batch and drop_last need a batch_size"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"batch_size": 2.0}, "batch_size must be an integer, got 2.0"),
        ({"decode": "float32"}, "decode must be a function, got 'float32'"),
        ({"batch_size": 2, "decode": len, "decode_batch": len}, "must not both be given"),
        ({"start": -1}, r"start must be in \[0, 2\*\*64\), got -1"),
        ({"rank": 1}, "rank and world_size must be given together, got 1 and None"),
        ({"world_size": 2}, "rank and world_size must be given together, got None and 2"),
        ({"rank": 2, "world_size": 2}, r"rank must be in \[0, 2\), got 2"),
        ({"remainder": "pad"}, '"extend", "drop" or "uneven", got'),
    ],
)
def test_arguments_out_of_range_are_refused(open_dataset, arguments, message):
    with pytest.raises(drt.ConfigError, match=message):
        len(StreamMapDataset(open_dataset(20), **arguments))


@pytest.mark.parametrize("world", [{"rank": 0, "world_size": 2}, {"remainder": "drop"}])
def test_a_world_beside_a_views_own_is_refused(open_dataset, world):
    view = open_dataset(20).shard(1, 2)
    for make in (StreamMapDataset, PositionSampler):
        with pytest.raises(drt.ConfigError, match="rank 1 of 2 already"):
            make(view, **world)
