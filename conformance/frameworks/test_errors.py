"""Damage is the same error in every framework, also where a worker meets it."""

import pytest

import dataset_rt as drt
from dataset_rt.testing.checks import Caches
from drivers import LOADERS, driver_of, worker_counts


def error_through(driver, dataset, num_workers):
    loader = driver.loader(dataset, 2, num_workers=num_workers)
    try:
        list(loader.epoch())
    except Exception as error:  # noqa: BLE001
        return error
    finally:
        loader.close()
    return None


@pytest.mark.parametrize("harm", ["cut off", "flipped"])
@pytest.mark.parametrize("name", LOADERS)
def test_damage_is_one_error_in_every_framework_at_any_number_of_workers(name, harm, tmp_path):
    driver = driver_of(name)
    caches = Caches(tmp_path)
    (shard,) = (caches.paths[0] / "shards").iterdir()
    content = bytearray(shard.read_bytes())
    if harm == "flipped":
        content[len(content) // 2] ^= 0xFF
    opened = {count: caches.open(shuffle=False) for count in worker_counts(driver)}
    reference = caches.open(shuffle=False)
    shard.chmod(0o644)
    shard.write_bytes(content[: len(content) // 2] if harm == "cut off" else content)
    with pytest.raises(drt.CacheCorruptError) as expected:
        list(reference)
    assert shard.name in str(expected.value)
    for count, dataset in opened.items():
        error = error_through(driver, dataset, count)
        assert error is not None, f"{count} workers: the damage went unnoticed"
        if "errors" in driver.capabilities:
            assert isinstance(error, drt.CacheCorruptError), f"{count} workers: {error!r}"
            assert (error.file, error.sample) == (expected.value.file, expected.value.sample)
            assert (error.expected, error.found) == (expected.value.expected, expected.value.found)
        assert str(expected.value) in str(error), f"{count} workers"
