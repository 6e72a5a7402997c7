"""Ctrl-C, in every phase: KeyboardInterrupt within a second, finished sources kept, nothing else left."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

WORKER = Path(__file__).with_name("interrupt_worker.py")


def start(phase, root):
    command = [sys.executable, str(WORKER), phase, str(root)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def interrupt(process):
    """Interrupt a program; give the seconds that it went on."""
    begun = time.perf_counter()
    process.send_signal(signal.SIGINT)
    rest, _ = process.communicate(timeout=30)
    assert rest == "interrupted\n"
    return time.perf_counter() - begun


@pytest.mark.parametrize("phase", ["sleeping", "sleeping alone", "writing", "writing alone"])
def test_writing_ends_within_a_second_and_keeps_only_what_was_finished(phase, tmp_path, nothing_left):
    process = start(phase, tmp_path)
    time.sleep(0.3)
    assert interrupt(process) < 1.5
    nothing_left(tmp_path, "finished", "finished_too")


READING = ["reading", "reading alone", "reading batches", "reading rows", "reading and validating", "reading the order"]


@pytest.mark.parametrize("phase", [*READING, "digesting"])
def test_reading_ends_within_a_second(phase, tmp_path, nothing_left):
    process = start(phase, tmp_path)
    time.sleep(0.3)
    assert interrupt(process) < 1.5
    nothing_left(tmp_path, "finished")


def test_waiting_for_another_writer_ends_within_a_second(tmp_path, nothing_left):
    writer = start("sleeping", tmp_path)
    # The finished caches are there already, so the second program goes on to wait for the lock of the first.
    waiting = start("waiting", tmp_path)
    time.sleep(0.3)
    assert waiting.poll() is None
    assert interrupt(waiting) < 1.5
    assert interrupt(writer) < 1.5
    nothing_left(tmp_path, "finished", "finished_too")
