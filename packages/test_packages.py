"""What all five packages have in common, checked on the wheels in dist/ and on the files beside them."""

import ast
import itertools
import re
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("dataset-rt", "dataset-rt-torch", "dataset-rt-jax", "dataset-rt-tf", "dataset-rt-hf")


def wheel(package: str) -> Path:
    (only,) = (ROOT / "dist").glob(f"{package.replace('-', '_')}-*.whl")
    return only


def members(package: str) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel(package)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def metadata(package: str) -> Message:
    (text,) = (content for name, content in members(package).items() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(text.decode())


@pytest.mark.parametrize("package", PACKAGES)
def test_every_copy_of_the_licence_is_the_roots(package: str) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    copy = ROOT / "packages" / package / "LICENSE"
    assert not copy.is_symlink()
    assert copy.read_bytes() == licence
    shipped = [content for name, content in members(package).items() if name.endswith("/licenses/LICENSE")]
    assert shipped == [licence]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_wheel_names_its_licence_its_pythons_and_that_it_is_typed(package: str) -> None:
    fields = metadata(package)
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.10"
    assert f"{package.replace('-', '_')}/py.typed" in members(package)


def test_the_core_is_one_wheel_for_the_stable_interface_of_python_3_10_and_later() -> None:
    assert "-cp310-abi3-" in wheel("dataset-rt").name
    names = members("dataset-rt")
    assert "dataset_rt/_core.pyi" in names
    assert "dataset_rt/_core.abi3.so" in names


def test_the_core_depends_on_no_framework() -> None:
    required = {re.split(r"[^\w-]", line)[0] for line in metadata("dataset-rt").get_all("Requires-Dist", [])}
    assert {name.replace("_", "-") for name in required} == {
        *("click", "numpy", "polars", "pyarrow", "pydantic", "tqdm", "typing-extensions"),
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_the_changelog_begins_each_packages_section_with_the_version_that_is_built(package: str) -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text()
    section = re.search(rf"^## {package}\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    assert section is not None
    newest = re.search(r"^### (\S+)", section[1], re.MULTILINE)
    assert newest is not None
    assert newest[1] == metadata(package)["Version"]


def test_the_crates_have_the_version_of_the_core_package() -> None:
    workspace = (ROOT / "rust" / "Cargo.toml").read_text()
    version = re.search(r'^\[workspace\.package\]\nversion = "([^"]+)"', workspace, re.MULTILINE)
    assert version is not None
    assert version[1] == metadata("dataset-rt")["Version"]


def test_ci_runs_the_command_that_the_readme_gives_for_the_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text()
    commands = [line for line in script.splitlines() if "nox" in line and not line.startswith("#")]
    assert commands == ['python3 -m venv .venv && .venv/bin/pip install "nox[uv]" && .venv/bin/nox']
    assert commands[0] in (ROOT / "README.md").read_text().splitlines()


def test_the_readme_names_the_rust_version_of_the_workspace() -> None:
    workspace = (ROOT / "rust" / "Cargo.toml").read_text()
    version = re.search(r'^rust-version = "([^"]+)"', workspace, re.MULTILINE)
    assert version is not None
    assert f"Rust {version[1]}" in (ROOT / "README.md").read_text()


# What could make data into code: builtins by their bare names, other functions by the last part of theirs.
RUNNING_BUILTINS = {"eval", "exec", "compile", "__import__"}
RUNNING_FUNCTIONS = {"loads", "Unpickler", "import_module", "run_path", "system", "popen"}
RUNNING_CALLS = {"np.load", "numpy.load", "torch.load", "yaml.load"}
RUNNING_MODULES = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "runpy", "subprocess"}
# Reading JSON runs nothing.
HARMLESS = {"json.loads"}
# An exception takes its cause along as bytes inside its own pickle: whoever unpickles it has trusted those already.
EXPECTED = {"dataset_rt/errors.py": ["pickle", "pickle.loads"]}


def suspicious(source: str) -> list[str]:
    """Every call in some Python that could run data, and every import of a module that can, with their lines."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            last = name.rpartition(".")[2]
            runs = name in RUNNING_BUILTINS | RUNNING_CALLS or last in RUNNING_FUNCTIONS
            if runs and name not in HARMLESS:
                found.append(f"{node.lineno}: {name}")
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{node.lineno}: {name}" for name in names if name.partition(".")[0] in RUNNING_MODULES]
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_no_package_unpickles_evaluates_or_starts_anything(package: str) -> None:
    files = {name: content.decode() for name, content in members(package).items() if name.endswith(".py")}
    assert files
    found = {name: [line.partition(": ")[2] for line in suspicious(source)] for name, source in files.items()}
    expected = {name: calls for name, calls in EXPECTED.items() if name in files}
    assert {name: calls for name, calls in found.items() if calls} == expected


@pytest.mark.parametrize(
    "line",
    [
        *("import pickle", "from pickle import Pickler", "import subprocess as other", "eval(text)", "exec(text)"),
        *(
            "pickle.loads(data)",
            "numpy.load(file)",
            "os.system(line)",
            "importlib.import_module(name)",
        ),
    ],
)
def test_the_search_for_what_runs_data_finds_it(line: str) -> None:
    assert len(suspicious(f"def function():\n    {line}\n")) == 1
    assert suspicious("json.loads(text)\nre.compile(text)\nmodel.evaluate(data)\n") == []


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name != "_"


def private_names(sources: Iterable[str]) -> set[str]:
    """Every name with an underscore before it that some Python defines: functions, classes, variables, attributes."""
    found = set()
    for node in itertools.chain.from_iterable(ast.walk(ast.parse(source)) for source in sources):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
    return set(filter(is_private, found))


def private_uses(source: str, *, core: set[str], own: set[str]) -> list[str]:
    """Every use that an adapter's module makes of what the core keeps for itself, with its line.

    Python does not say of what type an object is, so the name decides: one that the core defines belongs to the core,
    except on `self` and `cls` where the adapter defines it, too.
    """
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in core:
            is_own = isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and node.attr in own
            found += [] if is_own else [f"{node.lineno}: {ast.unparse(node)}"]
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            parts = [f"{module}{alias.name}".split(".") for alias in node.names]
            private = [name for name in parts if name[0] == "dataset_rt" and any(map(is_private, name))]
            found += [f"{node.lineno}: {'.'.join(name)}" for name in private]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("attr"):
            texts = [item.value for item in node.args if isinstance(item, ast.Constant)]
            found += [f"{node.lineno}: {text}" for text in texts if text in core]
    return found


def modules(package: str) -> dict[str, str]:
    """The Python of a wheel, stubs included."""
    return {name: content.decode() for name, content in members(package).items() if name.endswith((".py", ".pyi"))}


@pytest.mark.parametrize("package", PACKAGES[1:])
def test_an_adapter_uses_nothing_that_the_core_keeps_for_itself(package: str) -> None:
    files = modules(package)
    names = {"core": private_names(modules(PACKAGES[0]).values()), "own": private_names(files.values())}
    assert {"_core", "_over", "_restore"} <= names["core"]
    assert {name: uses for name, source in files.items() if (uses := private_uses(source, **names))} == {}


@pytest.mark.parametrize(
    "line",
    [
        *("window._core.advance", "self._core", "cls._core", "SampleStream._over(core)", "stream.made()._named"),
        *("from dataset_rt import _core", "from dataset_rt._core import Window", "import dataset_rt._core as core"),
        *("getattr(window, '_core')", "setattr(window, '_named', 1)", "hasattr(self, '_core')"),
    ],
)
def test_the_search_for_what_the_core_keeps_for_itself_finds_it(line: str) -> None:
    names = {"core": {"_core", "_over", "_named"}, "own": {"_named", "_plan"}}
    assert len(private_uses(f"def function(self, cls):\n    {line}\n", **names)) == 1
    own = "self._named(1)\ncls._named\nloader._plan\n"
    assert private_uses(f"{own}os._exit(1)\nstream.__reduce__()\nfrom dataset_rt import Window\n", **names) == []
