"""The harness's end of a worker process: one contender, one call at a time."""

import json
import os
import select
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.paths import BENCHMARKS

# Longer than any measurement takes on a slow machine; a peer that passes it counts as one that hangs.
PATIENCE_SECONDS = 600.0


class WorkerError(Exception):
    """A contender raised, ended or hung; the message says which, with the end of its traceback or output."""


@dataclass(frozen=True)
class Answer:
    """What a call gave.

    Attributes:
        seconds: how long the call took inside the worker, start-up and transport left out.
        value: what the method returned; for a measurement the number of samples.
    """

    seconds: float
    value: Any

    @property
    def rate(self) -> float:
        """Value a second; for methods that return what they handled."""
        return float(self.value) / self.seconds


class Worker:
    """A running contender; a context manager that ends the process.

    Args:
        python: interpreter of the contender's environment.
        target: `module:Class`, importable from the folder of the benchmarks.
        arguments: keyword arguments of the class, as JSON can hold them.
        patience: seconds until a call without an answer is given up.

    Raises:
        WorkerError: the class cannot be imported or made.
    """

    def __init__(
        self, python: Path, target: str, arguments: dict[str, Any], *, patience: float = PATIENCE_SECONDS
    ) -> None:
        self.target = target
        self.patience = patience
        self.output = tempfile.TemporaryFile()  # noqa: SIM115  (closed by close)
        self.process = subprocess.Popen(
            [str(python), "-m", "harness.serve", target, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.output,
            cwd=BENCHMARKS,
            env={**os.environ, "PYTHONPATH": str(BENCHMARKS), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        try:
            self.receive()
        except WorkerError:
            self.close()
            raise

    def call(self, method: str, **arguments: Any) -> Answer:
        """Call a method of the contender and wait for its end.

        Args:
            method: its name.
            arguments: its keyword arguments, as JSON can hold them.

        Raises:
            WorkerError: it raised, the process ended, or no answer came in time.
        """
        assert self.process.stdin is not None
        line = json.dumps({"method": method, "arguments": arguments}) + "\n"
        try:
            self.process.stdin.write(line.encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            raise WorkerError(f"{self.target} has ended: {self.last_output()}") from None
        return self.receive()

    def rate(self, method: str, **arguments: Any) -> float:
        """Call a method that returns how much it handled, and give that a second; see `call`."""
        return self.call(method, **arguments).rate

    def receive(self) -> Answer:
        """Wait for an answer."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], self.patience)
        if not ready:
            self.process.kill()
            raise WorkerError(f"{self.target} gave no answer within {self.patience:.0f} s: {self.last_output()}")
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            raise WorkerError(f"{self.target} ended with code {code}: {self.last_output()}")
        answer = json.loads(line)
        if "error" in answer:
            raise WorkerError(f"{self.target} raised: {answer['error'].strip()[-1200:]}")
        return Answer(answer["seconds"], answer["value"])

    def last_output(self) -> str:
        """Give the end of what the worker printed."""
        self.output.seek(0)
        return " ".join(self.output.read().decode(errors="replace").split())[-400:] or "it printed nothing"

    def close(self) -> None:
        """End the process: it stops when its input ends, or is killed if it does not."""
        if self.process.stdin is not None:
            self.process.stdin.close()
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.output.close()

    def __enter__(self) -> "Worker":  # noqa: PYI034  (typing has no Self on 3.10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
