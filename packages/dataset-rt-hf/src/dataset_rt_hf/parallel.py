"""Encoding batches in several processes, in order and with a bounded number under way."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool

import pyarrow as pa

import dataset_rt as drt
from dataset_rt_hf.plan import Encoded, Plan

__all__ = ["check_guarded", "encode_all"]

_UNDER_WAY = 2
"""Batches that wait for each process, so that none waits for the reader."""

_NO_GUARD = 'a script that uses num_proc needs `if __name__ == "__main__":` around its work'

_plan: Plan
_source_name: str


def encode_all(
    tables: Iterable[tuple[int, pa.Table]], plan: Plan, source_name: str, *, num_proc: int
) -> Iterator[tuple[int, Encoded]]:
    """Encode tables, in this process or in `num_proc` others; the result is the same.

    Args:
        tables: First row number and rows.
        plan: How to encode.
        source_name: The source, for messages.
        num_proc: Number of processes; 1 is this one.

    Yields:
        The first row number and the samples of each table, in order.

    Raises:
        SourceError: As in `Plan.encode`, or if the processes cannot start or die.
    """
    if num_proc == 1:
        for row, table in tables:
            yield row, plan.encode(table, row, source_name)
        return
    # The runtime has threads, which no forked child survives in a known state.
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(num_proc, context, initializer=_begin, initargs=(plan, source_name))
    waiting: deque[tuple[int, Future[Encoded]]] = deque()
    try:
        for row, table in tables:
            waiting.append((row, pool.submit(_encode, row, _to_bytes(table))))
            if len(waiting) >= _UNDER_WAY * num_proc:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
    except BrokenProcessPool as error:
        raise drt.SourceError(
            f"source {source_name!r}: {num_proc} processes that encode expected, but one could not start or died; "
            f"{_NO_GUARD}; num_proc=1 starts none",
            source_name=source_name,
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def check_guarded() -> None:
    """Refuse in a process that has just been started and runs the user's script for the second time.

    Going on, it would wait for the cache that its parent is writing, which waits for it.

    Raises:
        ConfigError: If the script has no guard.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise drt.ConfigError(_NO_GUARD)


def _begin(plan: Plan, source_name: str) -> None:
    global _plan, _source_name
    _plan, _source_name = plan, source_name
    # Ctrl-C is the parent's to handle; it then ends the pool.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _encode(row: int, data: bytes) -> Encoded:
    with pa.ipc.open_stream(data) as reader:
        return _plan.encode(reader.read_all(), row, _source_name)


def _to_bytes(table: pa.Table) -> bytes:
    # Pickled, a slice would take the whole column along.
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data: bytes = sink.getvalue().to_pybytes()
    return data
