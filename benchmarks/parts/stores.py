"""Stores measured side by side: written, then read in order and shuffled, round by round."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from harness.results import Row
from harness.rounds import interleave
from harness.worker import Worker, WorkerError


def rows_of_writes(subject: str, workers: dict[str, Worker], *, rounds: int) -> Row:
    """Write in every round anew; what a contender wrote last stays to be read.

    Args:
        subject: what is written.
        workers: the contenders; one that fails is taken out, since it has nothing to read.
        rounds: how many.
    """

    def write(worker: Worker) -> float:
        worker.call("clear")
        return worker.call("write").rate

    outcome = interleave({name: partial(write, worker) for name, worker in workers.items()}, rounds=rounds)
    for name in outcome.failed:
        del workers[name]
    return Row(subject, "write", "samples/s", outcome.figures, outcome.failed)


def opened(workers: dict[str, Worker], expected: Mapping[str, int] | None = None) -> dict[str, str]:
    """Open each store and read it once in order and once shuffled, which warms the page cache and is not counted.

    Args:
        workers: the contenders; one that fails or reads something else is taken out.
        expected: for each the sum of all payloads' first bytes, where that tells payloads apart.

    Returns:
        Why contenders were taken out.
    """
    failed = {}
    for name, worker in list(workers.items()):
        reason = reason_against(worker, None if expected is None else expected[name])
        if reason:
            failed[name] = reason
            del workers[name]
    return failed


def reason_against(worker: Worker, expected: int | None) -> str:
    """Open one store, read it twice, and say what is wrong with it; empty if nothing is."""
    try:
        worker.call("open")
        worker.call("ordered")
        found = worker.call("first_bytes").value
        worker.call("shuffled")
    except WorkerError as error:
        return str(error)
    if expected is not None and found != expected:
        return f"it read other payloads: their first bytes add up to {found}, not to {expected}"
    return ""


def row_of_reads(
    subject: str,
    operation: str,
    workers: Mapping[str, Worker],
    *,
    rounds: int,
    beside: Mapping[str, Callable[[], float]] | None = None,
) -> Row:
    """Measure one way of reading.

    Args:
        subject: what is read.
        operation: the method that reads, and the name of the row.
        workers: the contenders.
        rounds: how many.
        beside: further measurements in the same rounds.
    """
    asked = {name: partial(worker.rate, operation) for name, worker in workers.items()}
    outcome = interleave({**asked, **(beside or {})}, rounds=rounds)
    return Row(subject, operation, "samples/s", outcome.figures, outcome.failed)


def records_file(folder: Path) -> Path:
    """Give the file of the bare Python loop, which the loops in Rust read too."""
    return folder / "bare-Python-loop" / "records"
