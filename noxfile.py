"""The project's only task runner: plain `nox` sets up and passes everything, `nox -s NAME` does one part of it.

Every session that needs the core tests the wheel that `build` put into `dist/`, never the folders of the checkout.
After nox's own summary this file prints which Pythons ran the core's tests and every test that was skipped. Under
`CI=true` a missing Python or a skipped test is a failure, unless `DATASET_RT_WITHOUT` declares it: a comma-separated
list such as `python3.13,mounts`, where a test names what it lacks by a skip reason that begins with `needs NAME`.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

import nox
from uv import find_uv_bin

nox.needs_version = ">=2025.10"
nox.options.default_venv_backend = "uv"
nox.options.download_python = "never"
nox.options.sessions = [
    "lint", "rust", "build", "types", "tests", "system", "conformance", "lowest", "sdist", "install", "adapters",
    "together", "docs", "quickstart", "harness",
]  # fmt: skip

ROOT = Path(__file__).parent
CORE = ROOT / "packages" / "dataset-rt"
ADAPTERS = ("torch", "jax", "tf", "hf")
DIST = ROOT / "dist"
REPORTS = ROOT / ".nox" / "reports"

IN_CI = os.environ.get("CI", "").lower() in {"1", "true"}
DECLARED_ABSENT = {name.strip() for name in os.environ.get("DATASET_RT_WITHOUT", "").split(",") if name.strip()}
ALL_PYTHONS = ("3.10", "3.11", "3.12", "3.13")
PYTHONS = [version for version in ALL_PYTHONS if f"python{version}" not in DECLARED_ABSENT]
nox.options.error_on_missing_interpreters = IN_CI
if "3.10" not in PYTHONS:
    nox.options.sessions = [name for name in nox.options.sessions if name != "lowest"]

# What the core's tests import beside the core's own dependencies.
TEST_TOOLS = ("pytest>=8", "hypothesis>=6.100", "blake3>=1.0.8")

# What an adapter's tests and examples import beside the adapter, its framework and pytest.
ADAPTER_TOOLS = {
    "torch": ("packaging", "torchdata>=0.11", "lightning>=2.4", "accelerate>=1.0", "scikit-learn"),
    "jax": ("packaging", "optax", "orbax-checkpoint", "scikit-learn"),
    "tf": ("packaging", "scikit-learn"),
    "hf": ("packaging", "pillow", "bokeh-sampledata", "scikit-learn"),
}
# The core's test files about what its native code does to disks and processes, which is the same under every Python:
# `system` runs them once, and the sessions for several Pythons leave them out.
SYSTEM_TESTS = tuple(f"packages/dataset-rt/tests/test_{name}.py" for name in ("publication", "disk", "reading"))
WITHOUT_SYSTEM_TESTS = tuple(f"--ignore={path}" for path in SYSTEM_TESTS)
# The core's test files that hold grids, of which `tests` runs a part.
GRIDS = ("resume", "ranks", "table", "publication", "reading", "metadata")
# The adapters' test files that hold grids, likewise.
ADAPTER_GRIDS = {"torch": "orders", "jax": "orders", "tf": "checkpoint"}

# The scripts in examples/ that need an adapter; each runs twice in one fresh folder.
ADAPTER_EXAMPLES: dict[str, tuple[str, ...]] = {
    "torch": ("torch_digits.py",),
    "jax": ("jax_digits.py",),
    "tf": ("tf_digits.py",),
    "hf": ("hf_films.py",),
}

# What builds the pages and checks what came out.
PAGES_TOOLS = ("mkdocs-material>=9.6", "mkdocstrings[python]>=0.30", "ruff~=0.17.5", "pytest>=8")
# What the programs of the pages import beside the packages.
DOCS_TOOLS = (
    *PAGES_TOOLS,
    *("joblib>=1.4", "scikit-learn"),
    # The adapters' tutorials and guides.
    *("orbax-checkpoint", "pillow"),
)

# One a part of the format, as rust/fuzz/ has them.
FUZZ_TARGETS = ("manifest", "index", "metadata", "record")
# What the benchmarks' harness itself imports; every contender has an environment of its own.
BENCH_TOOLS = ("matplotlib>=3.9", "scikit-learn", "pillow", "uv")
# The adapters whose loaders are measured beside others.
LOADER_BENCHMARKS = ("torch", "jax", "tf", "hf")

# What happened, for the summary at the end.
pythons_that_ran: dict[str, str] = {}
pytest_reports: list[Path] = []
skips: list[tuple[str, str, str]] = []


def put_pyenv_interpreters_on_path() -> None:
    """Make `python3.1x` mean pyenv's real interpreters: its shims answer only for versions that are switched on."""
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    for version in ALL_PYTHONS:
        found = [path for path in versions.glob(f"{version}.*/bin/python{version}") if path.parts[-3][5:].isdigit()]
        if found:
            newest = max(found, key=lambda path: int(path.parts[-3][5:]))
            os.environ["PATH"] = os.pathsep.join([str(newest.parent), os.environ["PATH"]])


put_pyenv_interpreters_on_path()
os.environ["UV_PYTHON_DOWNLOADS"] = "never"
os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
# What datasets of Hugging Face converts stays in here, and nothing is asked of its Hub.
os.environ["HF_HOME"] = str(ROOT / ".nox" / "huggingface")
os.environ["HF_HUB_OFFLINE"] = "1"


@atexit.register
def print_summary() -> None:
    """Say which Pythons the core's tests ran on and what was skipped, so that a green run hides nothing."""
    if pythons_that_ran:
        print("\nThe core's tests, by Python:")
        for version in ALL_PYTHONS:
            if f"python{version}" in DECLARED_ABSENT:
                print(f"  {version}: declared absent")
            elif version in pythons_that_ran:
                print(f"  {version}: {pythons_that_ran[version]}")
            elif shutil.which(f"python{version}"):
                print(f"  {version}: not asked for")
            else:
                print(f"  {version}: MISSING, no such interpreter on this machine")
    if pytest_reports:
        print(f"\nSkipped tests: {len(skips)}")
        for session, test, reason in skips:
            print(f"  {session}: {test}: {reason}")


def cargo(session: nox.Session, *arguments: str) -> None:
    """Run cargo in the workspace, always with one Python: the binding is built again whenever that changes."""
    environment = {"PYO3_PYTHON": sys.executable, "VIRTUAL_ENV": None}
    with session.chdir(ROOT / "rust"):
        session.run("cargo", *arguments, external=True, env=environment)


def core_wheel(session: nox.Session) -> str:
    """Find the core's wheel in `dist/`; more than one would leave open which of them is tested."""
    wheels = sorted(DIST.glob("dataset_rt-*.whl"))
    if len(wheels) != 1:
        session.error(f"exactly one core wheel expected in {DIST}, found {[wheel.name for wheel in wheels]}")
    return str(wheels[0])


def adapter_wheels(*names: str) -> list[str]:
    """Find the wheels of these adapters, or of all, in `dist/`, as requirements that bring their frameworks."""
    # TensorFlow is the user's choice of two packages; the smaller one serves tests.
    extras = {"tf": "[tensorflow-cpu]"}
    return [
        f"{wheel}{extras.get(name, '')}"
        for name in names or ADAPTERS
        for wheel in DIST.glob(f"dataset_rt_{name}-*.whl")
    ]


def run_example(session: nox.Session, example: str) -> None:
    """Run a script of examples/ twice in one fresh folder: the second run finds what the first one cached."""
    folder = Path(session.create_tmp()) / Path(example).stem
    shutil.rmtree(folder, ignore_errors=True)
    for run in ("first run", "second run: the cache is there"):
        session.log(f"{example}, {run}")
        session.run("python", str(ROOT / "examples" / example), str(folder))


def run_pytest(session: nox.Session, *arguments: str, executable: str = "pytest", name: str | None = None) -> None:
    """Run pytest, remember what it skipped, and under CI fail for a skip that nobody declared."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    report = REPORTS / f"{name or session.name}.xml"
    report.unlink(missing_ok=True)
    external = executable != "pytest"
    try:
        session.run(executable, "-p", "no:cacheprovider", f"--junitxml={report}", *arguments, external=external)
    finally:
        undeclared = note_skips(session.name, report)
    if IN_CI and undeclared:
        session.error(f"{undeclared} skipped tests whose reason DATASET_RT_WITHOUT does not declare")


def note_skips(session_name: str, report: Path) -> int:
    """Add a report's skips to the summary; give the number of those that no capability declared absent explains."""
    undeclared = 0
    if not report.exists():
        return undeclared
    pytest_reports.append(report)
    for case in ElementTree.parse(report).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is not None:
            reason = skipped.get("message") or skipped.get("type") or ""
            skips.append((session_name, f"{case.get('classname')}::{case.get('name')}", reason))
            needed = re.match(r"needs ([\w.-]+)", reason)
            undeclared += needed is None or needed[1] not in DECLARED_ABSENT
    return undeclared


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and lints of Python and Rust."""
    session.install("ruff~=0.17.5")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    cargo(session, "fmt", "--all", "--check")
    cargo(session, "fmt", "--manifest-path", "fuzz/Cargo.toml", "--check")
    cargo(session, "clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings")
    limit = ("--manifest-path", "../benchmarks/limit/Cargo.toml")
    cargo(session, "fmt", *limit, "--check")
    cargo(session, "clippy", *limit, "--target-dir", "target", "--locked", "--", "-D", "warnings")


@nox.session(venv_backend="none")
def rust(session: nox.Session) -> None:
    """Run the Rust tests, by cargo-nextest where it is installed, and the doc tests."""
    runner = ["nextest", "run"] if shutil.which("cargo-nextest") else ["test", "--lib", "--tests"]
    cargo(session, *runner, "--no-fail-fast", "--workspace", "--locked")
    cargo(session, "test", "--doc", "--workspace", "--locked")


@nox.session
def build(session: nox.Session) -> None:
    """Build the release wheel of the core and the adapters' wheels into dist/, and check what all five promise."""
    session.install("maturin>=1.9,<2", "hatchling>=1.27", "pytest>=8")
    DIST.mkdir(exist_ok=True)
    for stale in DIST.glob("dataset_rt*.whl"):
        stale.unlink()
    with session.chdir(CORE):
        session.run(
            *("maturin", "build", "--release", "--locked", "--interpreter", sys.executable, "--out", str(DIST)),
            env={"PYO3_PYTHON": sys.executable, "VIRTUAL_ENV": None},
        )
    for name in ADAPTERS:
        with session.chdir(ROOT / "packages" / f"dataset-rt-{name}"):
            session.run("hatchling", "build", "--target", "wheel", "--directory", str(DIST))
    run_pytest(session, "packages/test_packages.py")


@nox.session(venv_backend="none", requires=["build"])
def wheels(session: nox.Session) -> None:
    """Build all five wheels into dist/ and print their tags."""
    for wheel in [core_wheel(session), *adapter_wheels()]:
        name, version, *tags = Path(wheel.partition("[")[0]).stem.split("-")
        print(f"{name} {version}: {'-'.join(tags)}")


@nox.session(requires=["build"])
def types(session: nox.Session) -> None:
    """Check the types of all five packages as they are installed, and the core's stub against its module."""
    session.install(core_wheel(session), *adapter_wheels())
    session.install("mypy~=2.4", "types-tqdm", "nox[uv]", "pytest>=8")
    packages = ["dataset_rt", *(f"dataset_rt_{name}" for name in ADAPTERS)]
    session.run("mypy", *(argument for package in packages for argument in ("--package", package)))
    for script in (
        "noxfile.py",
        "examples/quickstart.py",
        *(f"examples/{example}" for examples in ADAPTER_EXAMPLES.values() for example in examples),
        "conformance/one_order.py",
        "conformance/pin_streams.py",
        "testdata/format/make_v1.py",
    ):
        session.run("mypy", script)
    contenders = sorted((ROOT / "benchmarks" / "peers").glob("*.py"))
    loaders_of_adapters = [f"benchmarks/{adapter}_loaders.py" for adapter in LOADER_BENCHMARKS]
    session.run("mypy", "benchmarks/run.py", *loaders_of_adapters, *map(str, contenders))
    session.run("python", "-m", "mypy.stubtest", "dataset_rt._core", "--mypy-config-file", "pyproject.toml")


@nox.session(python=PYTHONS, requires=["build"])
def tests(session: nox.Session) -> None:
    """Run the core's tests against the wheel, on every supported Python with the same wheel."""
    version = str(session.python)
    pythons_that_ran[version] = "FAILED"
    session.install(core_wheel(session), *TEST_TOOLS)
    run_pytest(session, "packages/dataset-rt/tests", *WITHOUT_SYSTEM_TESTS, *session.posargs)
    pythons_that_ran[version] = "passed"


@nox.session(requires=["build"])
def system(session: nox.Session) -> None:
    """Kill, refuse and starve the wheel's writers and readers: what no Python version changes."""
    session.install(core_wheel(session), *TEST_TOOLS)
    run_pytest(session, *SYSTEM_TESTS, *session.posargs)


@nox.session(requires=["build"])
def conformance(session: nox.Session) -> None:
    """Hold the core's order to the vectors, the pinned streams, the oracle and statistics."""
    session.install(core_wheel(session), *TEST_TOOLS)
    run_pytest(session, "conformance/tests", *session.posargs)


@nox.session(python="3.10", requires=["build"])
def lowest(session: nox.Session) -> None:
    """Run the core's tests with the lowest version of every direct dependency that its pins allow."""
    # Read from pyproject.toml, because a wheel's dependencies do not count as direct ones.
    session.install("--resolution", "lowest-direct", "--requirements", str(CORE / "pyproject.toml"))
    session.install("--no-deps", core_wheel(session))
    session.install(*TEST_TOOLS)
    session.run(find_uv_bin(), "pip", "list", external=True)
    run_pytest(session, "packages/dataset-rt/tests", *WITHOUT_SYSTEM_TESTS)


@nox.session
def sdist(session: nox.Session) -> None:
    """Install the core's sdist by pip into an empty environment away from the checkout, and run the tests in it."""
    session.install("maturin>=1.9,<2")
    with tempfile.TemporaryDirectory(prefix="dataset-rt-sdist-") as temporary:
        away = Path(temporary)
        with session.chdir(CORE):
            session.run("maturin", "sdist", "--out", str(away))
        archive = next(away.glob("dataset_rt-*.tar.gz"))
        session.run(sys.executable, "-m", "venv", str(away / "empty"), external=True)
        python = str(away / "empty" / "bin" / "python")
        # The target folder only saves compiling the dependencies again; the crates of the sdist are built from it.
        target = os.environ.get("CARGO_TARGET_DIR", str(ROOT / "rust" / "target"))
        session.run(
            *(python, "-m", "pip", "install", "--quiet", str(archive), *TEST_TOOLS),
            external=True,
            env={"CARGO_TARGET_DIR": target, "VIRTUAL_ENV": None},
        )
        # The tests lie in the sdist; the settings and the vectors that they read are put where they expect them.
        shutil.unpack_archive(archive, away / "unpacked", filter="data")
        shutil.copytree(next((away / "unpacked").glob("*/tests")), away / "packages" / "dataset-rt" / "tests")
        shutil.copytree(ROOT / "testdata", away / "testdata")
        shutil.copy(ROOT / "pyproject.toml", away)
        with session.chdir(away):
            arguments = ("packages/dataset-rt/tests", *WITHOUT_SYSTEM_TESTS)
            run_pytest(session, *arguments, executable=str(away / "empty" / "bin" / "pytest"))


@nox.session(venv_backend="none", requires=["build"])
def install(session: nox.Session) -> None:
    """Install an adapter from dist/ into an empty environment, with the package index in reach.

    The index holds an older project under the core's name. What must come is the core of dist/, and without dist/ no
    version below 1 may ever come.
    """
    with tempfile.TemporaryDirectory(prefix="dataset-rt-install-") as temporary:
        away = Path(temporary)
        session.run(sys.executable, "-m", "venv", str(away / "empty"), external=True)
        python = str(away / "empty" / "bin" / "python")

        report = away / "report.json"
        session.run(
            *(python, "-m", "pip", "install", "--dry-run", "--quiet", "--report", str(report)),
            *("--find-links", str(DIST), "dataset-rt-torch"),
            external=True,
        )
        chosen = {entry["metadata"]["name"]: entry for entry in json.loads(report.read_text())["install"]}
        for name in ("dataset-rt", "dataset-rt-torch"):
            if not chosen[name]["download_info"]["url"].startswith(DIST.as_uri()):
                session.error(f"pip would take {name} from {chosen[name]['download_info']['url']}, not from {DIST}")

        adapter_alone = next(DIST.glob("dataset_rt_torch-*.whl"))
        without_dist = away / "without-dist.json"
        # pip fails as long as the index holds no core 1.x; once it does, that is what must be chosen.
        said = session.run(
            *(python, "-m", "pip", "install", "--dry-run", "--quiet", "--report", str(without_dist), "--no-cache-dir"),
            str(adapter_alone),
            external=True,
            silent=True,
            success_codes=[0, 1],
        )
        if without_dist.exists():
            chosen = {entry["metadata"]["name"]: entry for entry in json.loads(without_dist.read_text())["install"]}
            version = chosen["dataset-rt"]["metadata"]["version"]
            if not version.startswith("1."):
                session.error(f"pip would take dataset-rt {version}, which is outside the adapter's pin")
        elif not re.search(
            r"No matching distribution found for dataset-rt(<2,>=1\.0|>=1\.0,<2)$", str(said), re.MULTILINE
        ):
            # Any other failure would prove nothing about the pin; that the index is in reach, torch above has shown.
            session.error(f"pip failed for another reason than the core's pin:\n{said}")
        else:
            session.log(f"without dist/ pip refuses, as it should:\n{said}")

        # The real installation, by uv: torch is gigabytes.
        session.run(
            *(find_uv_bin(), "pip", "install", "--python", python, "--find-links", str(DIST), "dataset-rt-torch"),
            external=True,
        )
        program = (
            "import importlib.metadata as metadata, dataset_rt, dataset_rt_torch, torch;"
            "version = metadata.version('dataset-rt'); assert version.startswith('1.'), version;"
            "print('dataset-rt', version, 'from', dataset_rt.__file__, 'beside torch', torch.__version__)"
        )
        with session.chdir(away):
            session.run(python, "-c", program, external=True)


@nox.session(requires=["build"])
@nox.parametrize("adapter", ADAPTERS)
def adapters(session: nox.Session, adapter: str) -> None:
    """Run each adapter's tests and examples, and what all drivers must agree on, in an environment of its own."""
    session.install(core_wheel(session), *adapter_wheels(adapter), *TEST_TOOLS, *ADAPTER_TOOLS[adapter])
    run_pytest(session, f"packages/dataset-rt-{adapter}/tests", *session.posargs, name=f"adapters-{adapter}")
    session.env["DATASET_RT_DRIVERS"] = f"core,{adapter}"
    # The promises of a driver alone are among its package's tests.
    shared = ("conformance/frameworks", "--ignore=conformance/frameworks/test_promises.py")
    run_pytest(session, *shared, name=f"frameworks-{adapter}")
    for example in ADAPTER_EXAMPLES[adapter]:
        run_example(session, example)


@nox.session(requires=["build"])
def together(session: nox.Session) -> None:
    """Install all adapters and frameworks into one environment, and hold them to one order."""
    session.install(core_wheel(session), *adapter_wheels(), *TEST_TOOLS)
    run_pytest(session, "conformance/frameworks", *session.posargs)


@nox.session(requires=["build"])
def docs(session: nox.Session) -> None:
    """Build the pages, every warning an error, look for dead links, and run each page's Python twice."""
    session.install(core_wheel(session), *adapter_wheels(), *DOCS_TOOLS)
    build_pages(session)
    run_pytest(session, "docs/test_links.py", "docs/test_pages.py", *session.posargs)


@nox.session
def browser(session: nox.Session) -> None:
    """Open every page in chromium, light and dark, wide and narrow; installs chromium where it is missing."""
    session.env["DATASET_RT_CHROMIUM"] = chromium(session)
    session.install(*PAGES_TOOLS, "playwright>=1.50")
    build_pages(session)
    run_pytest(session, "docs/test_browser.py", *session.posargs)


def build_pages(session: nox.Session) -> None:
    """Build the pages into site/, of which nothing older stays."""
    session.run("mkdocs", "build", "--clean", "--strict", "--quiet", env={"NO_MKDOCS_2_WARNING": "1"})


def chromium(session: nox.Session) -> str:
    """Find the system's chromium; root on Debian or Ubuntu gets it by apt-get where it is missing."""
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        session.run("apt-get", "update", "--quiet", external=True)
        # The fonts are recommended only, and without any there is nothing to see.
        packages = ("chromium", "fonts-dejavu-core", "fonts-liberation")
        session.run(
            *("apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages),
            external=True,
            env={"DEBIAN_FRONTEND": "noninteractive"},
        )
        found = shutil.which("chromium")
    if found is None:
        session.error(f"none of {', '.join(names)} is on the path; on Debian, as root: apt-get install chromium")
    return found


@nox.session(requires=["build"])
def quickstart(session: nox.Session) -> None:
    """Run the main job twice in a fresh folder: the second run finds what the first one cached."""
    session.install(core_wheel(session), "scikit-learn")
    run_example(session, "quickstart.py")


@nox.session(requires=["build"])
def grid(session: nox.Session) -> None:
    """Run the grids of resumes, ranks, kills and damages, and metadata of gigabytes; `tests` runs a part of each."""
    session.install(core_wheel(session), *TEST_TOOLS)
    session.env["DATASET_RT_GRID"] = "full"
    # Pytest's last line is the result: how many combinations ran.
    tests_of_grids = [f"packages/dataset-rt/tests/test_{name}.py" for name in GRIDS]
    run_pytest(session, *tests_of_grids, *session.posargs)
    for adapter, name in ADAPTER_GRIDS.items():
        session.install(*adapter_wheels(adapter), *ADAPTER_TOOLS[adapter])
        tests_of_grid = f"packages/dataset-rt-{adapter}/tests/test_{name}.py"
        run_pytest(session, tests_of_grid, *session.posargs, name=f"grid-{adapter}")


@nox.session(requires=["build"])
def harness(session: nox.Session) -> None:
    """Test the benchmarks' harness, with small payloads and without a look at the clock."""
    session.install(*BENCH_TOOLS, "pytest>=8")
    run_pytest(session, "benchmarks/tests", *session.posargs)


@nox.session(requires=["build"])
def bench(session: nox.Session) -> None:
    """Measure beside others and write benchmarks/README.md; arguments after `--` are parts and options of run.py."""
    session.install(*BENCH_TOOLS)
    session.run("python", "benchmarks/run.py", *session.posargs)


@nox.session(requires=["build"])
@nox.parametrize("adapter", LOADER_BENCHMARKS)
def loaders(session: nox.Session, adapter: str) -> None:
    """Measure an adapter's loaders beside those of others, and put the tables into benchmarks/README.md."""
    session.install("uv")
    session.run("python", f"benchmarks/{adapter}_loaders.py", *session.posargs)


def cargo_tool(session: nox.Session, name: str) -> dict[str, str | None]:
    """Install a command of cargo's in `.nox/` where the machine lacks it; give the environment that finds it."""
    root = ROOT / ".nox" / "cargo-tools"
    path = os.pathsep.join([os.environ["PATH"], str(root / "bin")])
    if shutil.which(name, path=path) is None:
        session.run("cargo", "install", name, "--locked", "--root", str(root), external=True)
    return {"PATH": path, "VIRTUAL_ENV": None}


@nox.session(venv_backend="none")
def fuzz(session: nox.Session) -> None:
    """Try made-up bytes on each part of the format, a minute each or as many seconds as stand after `--`.

    What it finds lies in rust/fuzz/artifacts/; mend it, and keep the file in rust/fuzz/regressions/, which the Rust
    tests replay. Needs a nightly compiler.
    """
    seconds = int(session.posargs[0]) if session.posargs else 60
    session.run("cargo", "+nightly", "--version", external=True)
    environment = cargo_tool(session, "cargo-fuzz")
    with session.chdir(ROOT / "rust" / "fuzz"):
        for target in FUZZ_TARGETS:
            corpus = Path("corpus", target)
            corpus.mkdir(parents=True, exist_ok=True)
            kept = [str(folder) for folder in (Path("seeds", target), Path("regressions", target)) if folder.is_dir()]
            session.run(
                *("cargo", "+nightly", "fuzz", "run", "--fuzz-dir", ".", target, str(corpus), *kept, "--"),
                # One allocation above 64 MiB is a finding: no input has more than 4 KiB.
                *(f"-max_total_time={seconds}", "-malloc_limit_mb=64", "-timeout=60", "-max_len=4096"),
                external=True,
                env=environment,
            )


@nox.session(requires=["build"])
def audit(session: nox.Session) -> None:
    """Compare the locked crates and the core's Python packages with the public lists of advisories; needs a network."""
    environment = cargo_tool(session, "cargo-deny")
    # What the fuzz targets are linked with is published nowhere, so its licences do not matter.
    for workspace, checks in (("rust", ("licenses",)), ("rust/fuzz", ())):
        with session.chdir(ROOT / workspace):
            session.run(
                *("cargo", "deny", "--locked", "--config", str(ROOT / "rust" / "deny.toml")),
                *("check", "advisories", "bans", "sources", *checks),
                external=True,
                env=environment,
            )
    session.install(core_wheel(session), "pip-audit>=2.9")
    # Without ourselves: of this name the index may only know an older project. Strict: what cannot be looked up fails.
    frozen = str(session.run(find_uv_bin(), "pip", "freeze", external=True, silent=True))
    requirements = Path(session.create_tmp()) / "requirements.txt"
    requirements.write_text("".join(f"{line}\n" for line in frozen.splitlines() if not line.startswith("dataset-rt")))
    session.run("pip-audit", "--strict", "--no-deps", "--disable-pip", "--requirement", str(requirements))
