"""A run that one framework saved goes on in any other, from every step."""

import itertools
import json

import pytest

from dataset_rt.testing import find_driver
from dataset_rt.testing.checks import flatten, promised, resumes_exactly
from drivers import LOADERS, driver_with

PAIRS = list(itertools.product(LOADERS, repeat=2))


@pytest.mark.parametrize(("saving", "loading"), PAIRS, ids=[f"{saving}-to-{loading}" for saving, loading in PAIRS])
def test_a_state_of_every_step_resumes_in_every_framework(saving, loading, edited_caches):
    resumes_exactly(driver_with(saving, "state"), driver_with(loading, "state"), edited_caches)


def states_of(driver, dataset, steps):
    """The state before the first batch and after each one, as text."""
    loader = driver.loader(dataset, 4, rank=0, world_size=2)
    try:
        found = [loader.state_dict()]
        batches = itertools.chain.from_iterable(loader.epoch() for _ in itertools.count())
        for _ in range(steps):
            next(batches)
            found.append(loader.state_dict())
    finally:
        loader.close()
    return [json.dumps(state, sort_keys=True) for state in found]


@pytest.mark.parametrize("name", LOADERS)
def test_states_are_the_same_in_every_framework_field_by_field(name, edited_caches):
    found = states_of(driver_with(name, "state"), edited_caches.open(epoch_len=13), 6)
    assert found == states_of(find_driver("core"), edited_caches.open(epoch_len=13), 6)
    assert max(map(len, found)) < 4096


def test_one_epoch_passes_through_all_frameworks_and_back(edited_caches):
    drivers = [driver_with(name, "state") for name in (*LOADERS, *LOADERS[::-1])]
    whole = edited_caches.open(epoch_len=3 * len(drivers))
    state, received = whole.state_dict(), []
    for driver in drivers:
        loader = driver.loader(edited_caches.open(), 3)
        try:
            loader.load_state_dict(json.loads(json.dumps(state)))
            received.append(next(loader.epoch()))
            state = loader.state_dict()
        finally:
            loader.close()
    assert flatten(received) == promised(whole, 0, 3 * len(drivers))
    # The epoch is over, so the state is that of the next one's start.
    assert (state["position"], state["window"]) == (3 * len(drivers), None)
