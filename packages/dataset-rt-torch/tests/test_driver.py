"""The DataLoader keeps the promises that every framework's driver keeps."""

import pytest

from dataset_rt.testing import CHECKS, find_driver
from dataset_rt_torch.driver import TorchDriver


def test_the_driver_is_found_by_the_adapters_name():
    assert isinstance(find_driver("torch"), TorchDriver)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_the_driver_keeps_every_promise(check, tmp_path):
    driver = find_driver("torch")
    assert check.needs <= driver.capabilities
    check(driver, tmp_path)
