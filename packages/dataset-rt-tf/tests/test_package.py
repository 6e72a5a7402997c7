"""What the installed package promises beside its functions."""

import importlib.metadata
import json
import subprocess
import sys

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

import dataset_rt_tf

NAME = "dataset-rt-tf"
FRAMEWORKS = {"datasets", "grain", "jax", "keras", "tensorflow", "torch"}
OWN_FRAMEWORKS = {"keras", "tensorflow"}
LOWEST_FRAMEWORK_VERSIONS = {"tensorflow": "2.16", "tensorflow-cpu": "2.16"}


def requirements() -> dict[str, Requirement]:
    parsed = [Requirement(line) for line in importlib.metadata.requires(NAME) or []]
    return {requirement.name: requirement for requirement in parsed}


def output_of(program: str) -> str:
    command = [sys.executable, "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_module_names_the_version_of_its_distribution() -> None:
    assert dataset_rt_tf.__version__ == importlib.metadata.version(NAME)


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


def test_everything_public_is_there_and_documented() -> None:
    for name in dataset_rt_tf.__all__:
        assert getattr(dataset_rt_tf, name).__doc__
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        dataset_rt_tf.missing  # noqa: B018


def test_importing_it_imports_no_other_framework_and_no_more_of_its_own() -> None:
    program = """
import json, sys, dataset_rt, tensorflow
before = set(sys.modules)
import dataset_rt_tf
print(json.dumps([sorted(set(sys.modules) - before), list(sys.modules)]))
"""
    added, everything = json.loads(output_of(program))
    assert {name.partition(".")[0] for name in added} <= {"dataset_rt_tf", "secrets"}
    assert "dataset_rt_tf.keras" not in added
    assert not {name.partition(".")[0] for name in everything} & (FRAMEWORKS - OWN_FRAMEWORKS)


def test_without_tensorflow_the_error_names_both_distributions() -> None:
    program = """
import sys
sys.modules["tensorflow"] = None
try:
    import dataset_rt_tf
except ImportError as error:
    print(error)
"""
    said = output_of(program)
    assert "install tensorflow, or tensorflow-cpu" in said
    assert "dataset-rt-tf[tensorflow-cpu]" in said
