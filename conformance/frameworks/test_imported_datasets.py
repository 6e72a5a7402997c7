"""A Hugging Face dataset that was imported once arrives the same through every framework."""

import pytest

import dataset_rt as drt
from dataset_rt.testing import find_driver, replay
from dataset_rt.testing.checks import flatten
from drivers import NAMED, driver_of

ROWS = 30


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """A shuffled view of rows with texts, nulls, lists and bytes, and what opens its cache weighted by a column."""
    driver_of("hf")
    import datasets

    from dataset_rt_hf import import_dataset

    datasets.disable_progress_bars()
    rows = datasets.Dataset.from_dict(
        {
            "text": [None if number % 7 == 3 else f"row {number} \0🙂" * (number % 4) for number in range(ROWS)],
            "label": [number % 3 for number in range(ROWS)],
            "tokens": [list(range(number % 5)) for number in range(ROWS)],
            "raw": [bytes([0, number, 0]) for number in range(ROWS)],
        }
    ).shuffle(seed=1)
    root = tmp_path_factory.mktemp("imported")

    def open_dataset():
        found = import_dataset(
            *(rows, drt.DatasetRuntime(num_workers=2), root),
            name="rows",
            reader_config=drt.ReaderConfig(seed=5),
            writer_config=drt.WriterConfig(show_progress=False),
        )
        dataset = found.unwrap()
        table = dataset.get_metadata()
        dataset.update_metadata(table.with_columns(weight=table["label"] + 0.5))
        return dataset

    return rows, open_dataset


@pytest.mark.parametrize("name", NAMED)
def test_an_imported_dataset_has_one_digest_in_every_framework(name, imported):
    _, open_dataset = imported
    expected = replay(open_dataset, find_driver("core"), batch_size=3, epochs=2, world_size=3)
    assert replay(open_dataset, driver_of(name), batch_size=4, epochs=2, world_size=3) == expected
    assert expected.draws == 2 * ROWS


@pytest.mark.parametrize("name", NAMED)
def test_what_a_framework_delivers_of_it_decodes_to_the_rows_that_were_imported(name, imported):
    rows, open_dataset = imported
    from dataset_rt_hf import decoder

    dataset = open_dataset()
    decode = decoder(dataset)
    loader = driver_of(name).loader(open_dataset(), 7)
    try:
        delivered = flatten(list(loader.epoch()))
    finally:
        loader.close()
    assert len(delivered) == ROWS
    for (_, sample_id, payload), sample in zip(delivered, dataset, strict=True):
        assert payload == sample.data
        assert decode(sample) == rows[sample_id]
