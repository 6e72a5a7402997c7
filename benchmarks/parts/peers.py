"""Writing and reading 1 KiB and 100 KiB beside every peer, with the page cache warm."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from harness.environments import EnvironmentMissing
from harness.limit import build_limit, limit_rate
from harness.machine import machine_line
from harness.options import Options
from harness.payloads import RandomPayloads
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import figures_table, ratios_table, troubles
from harness.worker import Worker
from parts.stores import opened, records_file, row_of_reads, rows_of_writes
from peers.registry import OURS, peers, raw, started
from peers.registry import ours as ours_of

PART = "peers"
# Payload size in bytes, how many of them, and whether slow contenders take only their share.
CASES = (("1 KiB", 1024, 200_000), ("100 KiB", 102_400, 4_000))
ALONE = f"{OURS}, num_workers=1"
BATCHES = f"{OURS}, iter_batches(256)"
COPY = "memory copy, Rust, one thread"
COPY_BY_TWO = "memory copy, Rust, two threads"
PREAD = "pread, Rust, one thread"


def run(options: Options) -> Result:
    """Measure."""
    result = Result(PART, machine_line(), {}, options.rounds, options.scale, [])
    try:
        program = build_limit()
    except EnvironmentMissing as error:
        program = None
        result.absent |= dict.fromkeys((COPY, COPY_BY_TWO, PREAD), str(error))
    for subject, size, full_count in CASES:
        count = options.scaled(full_count, least=512)
        folder = options.folder / f"peers-{size}"
        payloads = RandomPayloads(size, count)
        contenders = [ours_of(), raw(), *peers()]
        with started(contenders, payloads.described(), folder) as running:
            result.versions.update(running.versions)
            result.absent.update(running.absent)
            workers = running.workers
            result.rows.append(rows_of_writes(subject, workers, rounds=options.rounds))
            first_bytes = {contender.name: sum(payloads.block[: contender.count_of(count)]) for contender in contenders}
            failed = opened(workers, first_bytes)
            for operation in ("ordered", "shuffled"):
                beside = limits(program, operation, records_file(folder), size)
                if operation == "shuffled" and OURS in workers:
                    beside |= further_ways(workers[OURS])
                row = row_of_reads(subject, operation, workers, rounds=options.rounds, beside=beside)
                row.failed.update(failed)
                result.rows.append(row)
            if OURS in workers:
                validated = interleave({OURS: partial(workers[OURS].rate, "validate")}, rounds=options.rounds)
                result.rows.append(Row(subject, "validate", "bytes/s", validated.figures, validated.failed))
        shutil.rmtree(folder)
        os.sync()
    return result


def limits(program: Path | None, order: str, file: Path, size: int) -> dict[str, Callable[[], float]]:
    """Give the loops in Rust over the file of the bare Python loop, if they could be built."""
    if program is None:
        return {}
    ways = ((COPY, "copy", 1), (COPY_BY_TWO, "copy", 2), (PREAD, "pread", 1))
    return {name: partial(limit_rate, program, way, order, file, size, threads=threads) for name, way, threads in ways}


def further_ways(worker: Worker) -> dict[str, Callable[[], float]]:
    """Give our other ways of reading shuffled, each run once beforehand."""
    ways = ((ALONE, "alone"), (BATCHES, "batches"))
    for _, method in ways:
        worker.call(method)
    return {name: partial(worker.rate, method) for name, method in ways}


def render(result: Result) -> str:
    """Give figures, ratios and what did not run."""
    shown = [row for row in result.rows if row.operation != "validate"]
    compared = Result(PART, result.machine, result.versions, result.rounds, result.scale, shown, result.absent)
    return (
        "Samples a second, medians:\n\n"
        f"{figures_table(compared)}\n"
        f"Ratios of the same rounds, median (lowest to highest), above 1 where dataset-rt is faster:\n\n"
        f"{ratios_table(compared, reference=OURS)}\n"
        f"{troubles(compared)}"
    )
