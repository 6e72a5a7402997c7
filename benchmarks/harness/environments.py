"""Virtual environments for contenders, one each, so that no peer's pins decide what another one runs on."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.paths import DIST, ENVIRONMENTS


class EnvironmentMissing(Exception):  # noqa: N818  (what is missing is the news, not an error of the harness)
    """A contender's environment cannot be made; the message is the reason that the table reports."""


def uv() -> str:
    """Find uv: beside this interpreter, else on the path.

    Raises:
        EnvironmentMissing: there is none.
    """
    beside = Path(sys.executable).with_name("uv")
    found = str(beside) if beside.exists() else shutil.which("uv")
    if found is None:
        raise EnvironmentMissing("uv is neither beside the interpreter nor on the path; install uv")
    return found


def core_wheel() -> str:
    """Give the core's wheel: the one that `DATASET_RT_BENCH_WHEEL` names, else the only one in dist/.

    Raises:
        EnvironmentMissing: there is none, or more than one.
    """
    named = os.environ.get("DATASET_RT_BENCH_WHEEL")
    wheels = [Path(named)] if named else sorted(DIST.glob("dataset_rt-*.whl"))
    if len(wheels) != 1 or not wheels[0].exists():
        raise EnvironmentMissing(f"exactly one core wheel expected, found {[str(path) for path in wheels]}; build it")
    return str(wheels[0])


@dataclass(frozen=True)
class Environment:
    """What to install for a contender.

    Attributes:
        name: folder of the environment, one path segment.
        requirements: as uv takes them; a wheel is named by its path.
    """

    name: str
    requirements: tuple[str, ...]

    def make(self, folder: Path = ENVIRONMENTS) -> Path:
        """Give the environment's interpreter; made on this interpreter's version, or reused if nothing changed.

        Args:
            folder: where the environments lie.

        Raises:
            EnvironmentMissing: something does not install, with the end of what uv said.
        """
        home = folder / self.name
        python = home / "bin" / "python"
        stamp = home / "made-of.json"
        made_of = json.dumps([sys.version, *(self.stamp(requirement) for requirement in self.requirements)])
        if stamp.exists() and stamp.read_text() == made_of:
            return python
        shutil.rmtree(home, ignore_errors=True)
        run_uv("venv", "--quiet", "--python", sys.executable, str(home))
        if self.requirements:
            # Bytecode now, so that no first import is measured with compiling in it.
            run_uv("pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *self.requirements)
        stamp.write_text(made_of)
        return python

    @staticmethod
    def stamp(requirement: str) -> str:
        """Give what tells a requirement from its successor: a wheel keeps its name when it is built again."""
        path = Path(requirement)
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.suffix == ".whl" else requirement


def run_uv(*arguments: str) -> None:
    """Run uv.

    Raises:
        EnvironmentMissing: uv fails; the message holds its last lines.
    """
    done = subprocess.run([uv(), *arguments], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise EnvironmentMissing(" ".join(done.stderr.split())[-400:])


def installed_version(python: Path, distribution: str) -> str:
    """Give the version of a distribution in an environment."""
    program = "import sys, importlib.metadata as metadata; print(metadata.version(sys.argv[1]))"
    done = subprocess.run([str(python), "-c", program, distribution], check=True, capture_output=True, text=True)
    return done.stdout.strip()
