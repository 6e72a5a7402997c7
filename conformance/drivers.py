"""The drivers that a run of `frameworks/` is about.

`DATASET_RT_DRIVERS` names them, separated by commas; without it these are all that the project has. What is named and
not installed is skipped, as `needs NAME`.
"""

from __future__ import annotations

import os
from importlib.util import find_spec

import pytest

from dataset_rt.testing import Driver, driver_names, find_driver

# What an adapter's environment must hold beside the adapter.
FRAMEWORKS = {"torch": ("torch",), "jax": ("jax", "grain"), "tf": ("tensorflow",), "hf": ("datasets",)}
ALL = ("core", *FRAMEWORKS)
NAMED = tuple(os.environ.get("DATASET_RT_DRIVERS", ",".join(ALL)).split(","))
# `hf` imports datasets and leaves the delivery to the core, so its loader is the core's.
LOADERS = tuple(name for name in NAMED if name != "hf")
ADAPTERS = tuple(name for name in NAMED if name != "core")


def driver_of(name: str) -> Driver:
    """Find a driver, or skip the test that asks for it."""
    if name not in driver_names() or any(find_spec(module) is None for module in FRAMEWORKS.get(name, ())):
        pytest.skip(f"needs {name}: the adapter dataset-rt-{name} and its framework are not installed")
    return find_driver(name)


def driver_with(name: str, *capabilities: str) -> Driver:
    """Find a driver, or skip the test where the driver says that it lacks what the test is about."""
    driver = driver_of(name)
    lacking = sorted(set(capabilities) - driver.capabilities)
    if lacking:
        pytest.skip(f"needs {lacking[0]}: the driver {name} declares no such capability")
    return driver


def worker_counts(driver: Driver) -> tuple[int, ...]:
    """The numbers of workers to try."""
    return (0, 2) if "workers" in driver.capabilities else (0,)
