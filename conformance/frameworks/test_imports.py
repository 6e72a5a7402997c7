"""An adapter brings its own framework along, and no other."""

import json
import subprocess
import sys

import pytest

from drivers import ADAPTERS, ALL, FRAMEWORKS, driver_of

# How a framework alone is imported: what it brings along by itself is not the adapter's doing.
ALONE = {
    "torch": "import torch",
    "jax": "import jax, grain",
    "tf": "import tensorflow",
    "hf": "import datasets",
}
FOREIGN = {
    name: {
        *(module for other, modules in FRAMEWORKS.items() if other != name for module in modules),
        *(f"dataset_rt_{other}" for other in FRAMEWORKS if other != name),
        *({"keras", "flax", "lightning", "accelerate"} - ({"keras"} if name == "tf" else set())),
    }
    for name in ALL
}
USE = "from dataset_rt.testing import find_driver; find_driver({name!r})"


def foreign_modules(name, program):
    """The frameworks and adapters other than `name`'s that a program imports in a process of its own."""
    shown = f"{program}\nimport json, sys; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1])) & FOREIGN[name]


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_adapter_and_its_driver_import_no_other_framework(name):
    driver_of(name)
    beside = foreign_modules(name, ALONE[name])
    assert foreign_modules(name, f"{ALONE[name]}\nimport dataset_rt_{name}\n{USE.format(name=name)}") == beside


def test_the_core_and_its_driver_import_no_framework_at_all():
    assert foreign_modules("core", f"import dataset_rt\n{USE.format(name='core')}") == set()


@pytest.mark.parametrize("other", ADAPTERS)
def test_an_import_of_another_framework_is_noticed(other):
    driver_of(other)
    assert f"dataset_rt_{other}" in foreign_modules("core", f"import dataset_rt, dataset_rt_{other}")
    assert set(FRAMEWORKS[other]) <= foreign_modules("core", f"import dataset_rt, dataset_rt_{other}")
