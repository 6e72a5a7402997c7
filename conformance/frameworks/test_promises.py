"""Every driver keeps every promise, with all frameworks that are named in one process."""

import pytest

from dataset_rt.testing import CHECKS
from drivers import NAMED, driver_of, driver_with


@pytest.mark.parametrize("name", NAMED)
def test_a_driver_has_the_name_that_it_is_found_by(name):
    assert driver_of(name).name == name


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
@pytest.mark.parametrize("name", NAMED)
def test_every_driver_keeps_every_promise(name, check, tmp_path):
    check(driver_with(name, *check.needs), tmp_path)
