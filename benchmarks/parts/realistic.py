"""Payloads as users have them, beside every peer: JPEG crops, pickled dictionaries, and prose under zstd."""

import shutil
import statistics

from harness.machine import machine_line
from harness.options import Options
from harness.payloads import pack
from harness.realistic import jpeg_crops, pickled_dictionaries, prose
from harness.results import Result, Row
from harness.table import figures_table, ratios_table, troubles
from parts.stores import opened, row_of_reads, rows_of_writes
from peers.registry import OURS, Contender, lmdb, lmdb_with_zstd, peers, raw, started
from peers.registry import ours as ours_of

PART = "realistic"
ZSTD = f"{OURS}, zstd"


def run(options: Options) -> Result:
    """Measure."""
    result = Result(PART, machine_line(), {}, options.rounds, options.scale, [])
    everybody = [ours_of(), raw(), *peers()]
    measure(result, options, "JPEG", jpeg_crops(options.scaled(8_000, least=64)), everybody)
    measure(result, options, "pickle", pickled_dictionaries(options.scaled(200_000, least=512)), everybody)
    compressing = [ours_of(ZSTD, compression="zstd"), ours_of(), lmdb_with_zstd(), lmdb()]
    measure(result, options, "prose", prose(options.scaled(40_000, least=64)), compressing)
    return result


def measure(result: Result, options: Options, subject: str, payloads: list[bytes], contenders: list[Contender]) -> None:
    """Store and read one kind of payload, and note its sizes and what it takes on disk."""
    folder = options.folder / f"realistic-{subject}"
    folder.mkdir(parents=True)
    packed = pack(payloads, folder / "payloads")
    sizes = sorted(map(len, payloads))
    result.notes.append(
        f"{subject}: {len(sizes):,} payloads of {sizes[0]:,} to {sizes[-1]:,} bytes, "
        f"median {statistics.median_low(sizes):,}."
    )
    with started(contenders, packed.described(), folder) as running:
        result.versions.update(running.versions)
        result.absent.update(running.absent)
        workers = running.workers
        result.rows.append(rows_of_writes(subject, workers, rounds=options.rounds))
        failed = opened(workers)
        for operation in ("ordered", "shuffled"):
            row = row_of_reads(subject, operation, workers, rounds=options.rounds)
            row.failed.update(failed)
            result.rows.append(row)
        shares = {contender.name: contender.count_of(len(payloads)) for contender in contenders}
        stored = {
            name: [worker.call("stored_bytes").value / sum(map(len, payloads[: shares[name]]))]
            for name, worker in workers.items()
        }
        result.rows.append(Row(subject, "on disk", "bytes a byte", stored))
    shutil.rmtree(folder)


def render(result: Result) -> str:
    """Give figures, ratios and sizes, a table for each kind of payload."""
    shown = "".join(f"{note}\n" for note in result.notes)
    for subject in dict.fromkeys(row.subject for row in result.rows):
        rows = [row for row in result.rows if row.subject == subject]
        reads = [row for row in rows if row.operation != "on disk"]
        reference = ZSTD if any(ZSTD in row.figures for row in rows) else OURS
        shown += (
            f"\n**{subject}**, samples a second, and bytes on disk for each byte of payload:\n\n"
            f"{figures_table(Result(PART, '', result.versions, 0, 0, rows))}\n"
            f"{ratios_table(Result(PART, '', {}, 0, 0, reads), reference=reference)}"
        )
    return f"{shown}\n{troubles(result)}"
