"""Windows that neither ranks nor batches divide: every framework deals them as the oracle does."""

import itertools

import pytest

from drivers import LOADERS, driver_of
from oracle import ORDERED, PERMUTATION, REMAINDERS, REPLACEMENT, Dataset, Row, World

FIELDS = {REPLACEMENT: {}, PERMUTATION: {"replacement": False}, ORDERED: {"shuffle": False}}


def as_oracle(dataset, mode, world):
    columns = ("cache_id", "sample_id", "weight")
    rows = zip(*(dataset.get_metadata()[name].to_list() for name in columns), strict=True)
    model = Dataset([Row(*row) for row in rows], mode, 42)
    model.set_epoch_len(dataset.epoch_len)
    return model.shard(world)


@pytest.mark.parametrize("drop_last", [False, True], ids=["short_batches_kept", "short_batches_dropped"])
@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("name", LOADERS)
def test_every_window_of_every_rank_is_the_oracles(name, remainder, drop_last, edited_caches):
    driver = driver_of(name)
    # Ten draws for three ranks in batches of four: a rank has three or four. Seven for two in batches of two and three.
    shapes = ((10, 3, 4), (7, 2, 2), (7, 2, 3))
    for mode, (epoch_len, size, batch_size) in itertools.product(FIELDS, shapes):
        for rank in range(size):
            dataset = edited_caches.open(epoch_len=epoch_len, **FIELDS[mode])
            model = as_oracle(dataset, mode, World(rank, size, remainder))
            loader = driver.loader(
                dataset, batch_size, rank=rank, world_size=size, remainder=remainder, drop_last=drop_last
            )
            what = f"{mode}, {epoch_len} draws, rank {rank} of {size}, batches of {batch_size}"
            try:
                for window in range(3):
                    assert loader.state_dict()["position"] == model.state().position, f"start of {window}, {what}"
                    expected = model.iterate(batch_size, drop_last=drop_last)
                    for number, batch in enumerate(loader.epoch()):
                        rows = expected.next()
                        assert rows is not None, f"one batch too many: {number} of {window}, {what}"
                        found = list(zip(batch.cache_ids.tolist(), batch.sample_ids.tolist(), strict=True))
                        assert found == [row[:2] for row in rows], f"batch {number} of {window}, {what}"
                        state = loader.state_dict()
                        pending = None if state["window"] is None else tuple(state["window"])
                        assert (state["position"], pending) == (model.state().position, model.state().window), what
                    assert expected.next() is None, f"a batch is missing in {window}, {what}"
            finally:
                loader.close()
