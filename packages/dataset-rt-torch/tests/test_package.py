"""What the installed package promises."""

import importlib.metadata
import json
import subprocess
import sys

from packaging.requirements import Requirement
from packaging.version import Version

import dataset_rt_torch
from dataset_rt_torch.driver import TorchDriver

NAME = "dataset-rt-torch"
FRAMEWORKS = {"datasets", "grain", "jax", "keras", "tensorflow", "torch"}
OWN_FRAMEWORKS = {"torch"}
LOWEST_FRAMEWORK_VERSIONS = {"torch": "2.4"}


def requirements() -> dict[str, Requirement]:
    parsed = [Requirement(line) for line in importlib.metadata.requires(NAME) or []]
    return {requirement.name: requirement for requirement in parsed}


def test_the_module_names_the_version_of_its_distribution() -> None:
    assert dataset_rt_torch.__version__ == importlib.metadata.version(NAME)


def test_the_pin_takes_the_core_from_1_0_and_never_an_older_or_a_later_major() -> None:
    core = requirements()["dataset-rt"].specifier
    versions = ("0.4.8", "0.99", "1.0.0", "1.7.2", "2.0.0")
    assert [version for version in versions if version in core] == ["1.0.0", "1.7.2"]


def test_the_framework_has_a_lower_bound_and_no_cap() -> None:
    named = requirements()
    assert set(named) == {"dataset-rt", *LOWEST_FRAMEWORK_VERSIONS}
    for framework, lowest in LOWEST_FRAMEWORK_VERSIONS.items():
        bounds = list(named[framework].specifier)
        assert [(bound.operator, Version(bound.version)) for bound in bounds] == [(">=", Version(lowest))]


def test_the_licence_and_the_marker_of_types_are_installed() -> None:
    metadata = importlib.metadata.metadata(NAME)
    assert metadata["License-Expression"] == "Apache-2.0"
    files = {path.name: path for path in importlib.metadata.files(NAME) or []}
    assert "Apache License" in files["LICENSE"].read_text()
    assert files["py.typed"].locate().is_file()


def test_it_registers_as_an_adapter() -> None:
    (entry,) = importlib.metadata.entry_points(group="dataset_rt.adapters", name="torch")
    assert entry.load() is TorchDriver


def test_every_public_name_is_there_and_documented() -> None:
    for name in dataset_rt_torch.__all__:
        assert getattr(dataset_rt_torch, name).__doc__
        assert name in (importlib.metadata.metadata(NAME)["Description"])


def test_importing_it_imports_no_other_framework() -> None:
    program = "import json, sys, dataset_rt_torch; print(json.dumps([name.partition('.')[0] for name in sys.modules]))"
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True)
    assert not set(json.loads(done.stdout)) & (FRAMEWORKS - OWN_FRAMEWORKS)
