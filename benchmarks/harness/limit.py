"""The bare loops in Rust, built by cargo: what copying alone allows."""

import os
import subprocess
from pathlib import Path

from harness.environments import EnvironmentMissing
from harness.paths import BENCHMARKS, ROOT
from harness.worker import WorkerError

CRATE = BENCHMARKS / "limit"


def build_limit() -> Path:
    """Build the program and give its path.

    Raises:
        EnvironmentMissing: cargo is missing or fails.
    """
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "rust" / "target"))
    command = ["cargo", "build", "--release", "--locked", "--quiet"]
    try:
        done = subprocess.run(
            command,
            cwd=CRATE,
            env={**os.environ, "CARGO_TARGET_DIR": str(target)},
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise EnvironmentMissing("cargo is not on the path; install Rust") from None
    if done.returncode != 0:
        raise EnvironmentMissing(" ".join(done.stderr.split())[-400:])
    return target / "release" / "dataset-rt-limit"


def limit_rate(program: Path, way: str, order: str, file: Path, size: int, *, threads: int = 1) -> float:
    """Run one loop and give records a second.

    Args:
        program: what `build_limit` gave.
        way: `copy` out of a mapping, or `pread`.
        order: `ordered` or `shuffled`.
        file: records of one size end to end.
        size: of a record, in bytes.
        threads: how many share the records.

    Raises:
        WorkerError: the program fails.
    """
    command = [str(program), way, order, str(file), str(size), str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise WorkerError(f"{program.name} ended with code {done.returncode}: {done.stderr.strip()}")
    return float(done.stdout)
