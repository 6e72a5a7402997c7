"""Reading with the page cache dropped: what a set larger than memory meets."""

import shutil
import subprocess
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from harness.cold import PageCacheKept, drop_page_cache
from harness.machine import machine_line
from harness.options import Options
from harness.payloads import RandomPayloads
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import figures_table, ratios_table, troubles
from harness.worker import WorkerError
from peers.registry import OURS, Contender, lmdb, started
from peers.registry import ours as ours_of

PART = "cold"
# 2 GiB each; a shuffled measurement takes only so many draws, since nothing is read twice by them.
CASES = (("1 KiB", 1024, 2_000_000, 40_000), ("100 KiB", 102_400, 20_000, 3_000))
DD = "dd"


def run(options: Options) -> Result:
    """Measure; without the right to drop the page cache the result only says so."""
    result = Result(PART, machine_line(), {}, options.rounds, options.scale, [])
    try:
        drop_page_cache()
    except PageCacheKept as error:
        result.notes.append(f"Not measured, the page cache cannot be dropped here: {error}.")
        return result
    for subject, size, full_count, full_draws in CASES:
        count, draws = options.scaled(full_count, least=512), options.scaled(full_draws, least=64)
        payloads = RandomPayloads(size, count)
        folder = options.folder / f"cold-{size}"
        contenders = [ours_of(), lmdb()]
        with started(contenders, payloads.described(), folder) as running:
            result.versions.update(running.versions)
            result.absent.update(running.absent)
            written = [contender for contender in contenders if contender.name in running.workers]
            for worker in running.workers.values():
                worker.call("clear")
                worker.call("write")

        measure(result, options, subject, payloads, draws, folder, written)
        shutil.rmtree(folder)
    return result


def measure(
    result: Result,
    options: Options,
    subject: str,
    payloads: RandomPayloads,
    draws: int,
    folder: Path,
    contenders: list[Contender],
) -> None:
    """Add the row of shuffled draws, and that of the bytes of an epoch in order with `dd` over our shards."""
    described = payloads.described()
    shuffled, ordered = {}, {}
    for contender in contenders:
        shuffled[contender.name] = partial(
            cold_rate, contender, described, folder, "open_cold", "shuffled", draws=draws
        )
        ordered[contender.name] = partial(cold_rate, contender, described, folder, "open", "ordered")
    outcome = interleave(shuffled, rounds=options.rounds)
    result.rows.append(Row(subject, "shuffled", "samples/s", outcome.figures, outcome.failed))
    in_order: dict[str, Callable[[], float]] = {
        name: partial(times, payloads.size, measurement) for name, measurement in ordered.items()
    }
    in_order[DD] = partial(dd_rate, folder / OURS)
    outcome = interleave(in_order, rounds=options.rounds)
    result.rows.append(Row(subject, "ordered", "bytes/s", outcome.figures, outcome.failed))


def times(factor: int, measurement: Callable[[], float]) -> float:
    """Turn samples a second into bytes a second."""
    return factor * measurement()


def cold_rate(
    contender: Contender, payloads: dict[str, Any], folder: Path, opening: str, method: str, **arguments: int
) -> float:
    """Measure in a new process: pages that a process has mapped survive the dropping.

    Args:
        contender: who.
        payloads: what is stored, as described.
        folder: where it is stored.
        opening: the method that opens, before the page cache is dropped.
        method: the method that reads, after it.
        arguments: of `opening`.
    """
    with started([contender], payloads, folder) as running:
        if contender.name not in running.workers:
            raise WorkerError(running.absent[contender.name])
        worker = running.workers[contender.name]
        worker.call(opening, **arguments)
        drop_page_cache()
        return worker.rate(method)


def dd_rate(folder: Path) -> float:
    """Read all shards by `dd`, one after another, and give bytes a second."""
    shards = sorted(folder.rglob("shards/*.bin"))
    if not shards:
        raise WorkerError(f"{folder} holds no shards to read by dd")
    drop_page_cache()
    begun = time.perf_counter()
    for shard in shards:
        subprocess.run(["dd", f"if={shard}", "of=/dev/null", "bs=1M"], check=True, capture_output=True)
    return sum(shard.stat().st_size for shard in shards) / (time.perf_counter() - begun)


def render(result: Result) -> str:
    """Give figures and ratios."""
    if not result.rows:
        return "".join(f"{note}\n" for note in result.notes)
    return (
        "Shuffled in samples a second, ordered in bytes a second, medians:\n\n"
        f"{figures_table(result)}\n{ratios_table(result, reference=OURS)}\n{troubles(result)}"
    )
