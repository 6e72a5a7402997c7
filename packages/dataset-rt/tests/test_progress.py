"""The progress display, on a real terminal, in a pipe, and switched off."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

SHOW = """
import sys, threading, time
from dataset_rt.progress import WriteProgress

threads = threading.active_count()
with WriteProgress(2, enabled={enabled}) as progress:
    progress.start("first", 400)
    for step in range(4):
        progress.update(100, 50_000_000)
        time.sleep(0.15)
    progress.finish()
    progress.waiting("second", "process 4711")
    time.sleep(0.15)
    progress.waiting("second", "process 4711")
    progress.start("second", None)
    for step in range(3):
        progress.update(5, 5)
        time.sleep(0.15)
    progress.finish()
assert threading.active_count() == threads, threading.enumerate()
print("tqdm" in sys.modules)
"""


def on_terminal(program: str, size: tuple[int, int] = (24, 120)) -> tuple[str, str]:
    """Run a program with standard error on a terminal; give what it showed and printed."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", *size, 0, 0))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=slave) as process:
        os.close(slave)
        shown = b""
        ends = time.monotonic() + 60
        while time.monotonic() < ends:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    chunk = os.read(master, 65536)
                except OSError:
                    # Linux says so when the last writer has closed the terminal.
                    break
                if not chunk:
                    break
                shown += chunk
        os.close(master)
        output = process.stdout.read().decode()
        assert process.wait(10) == 0, shown.decode()
    return shown.decode(), output.strip()


def in_pipe(program: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return done.stderr, done.stdout.strip()


@pytest.fixture(scope="module")
def terminal() -> str:
    shown, imported = on_terminal(SHOW.format(enabled=True))
    assert imported == "True"
    return shown


def test_a_terminal_shows_rates_sources_and_time_left(terminal):
    line = re.search(
        r"first: +50%.* 200/400 \[00:00<00:0\d, +[\d.]+ samples/s, +[\d.]+ MB/s, 0/2 sources done\]", terminal
    )
    assert line, terminal


def test_a_finished_source_is_counted(terminal):
    assert re.search(r"first: 100%.* 400/400 \[.* 1/2 sources done\]", terminal), terminal
    assert re.search(r"second: 15 samples \[.* 2/2 sources done\]", terminal), terminal


def test_the_megabytes_a_second_are_those_of_the_payload(terminal):
    samples, megabytes = re.findall(r"first: 100%.*?([\d.]+) samples/s, ([\d.]+) MB/s", terminal)[-1]
    assert float(megabytes) == pytest.approx(float(samples) * 0.5, rel=0.02)


def test_a_source_without_a_length_shows_no_time_left(terminal):
    lines = re.findall(r"second: \d+ samples \[[^\]]*\]", terminal)
    assert lines
    assert all("<" not in line and "%" not in line for line in lines)


def test_waiting_names_who_is_waited_for_and_how_long(terminal):
    assert re.search(r"second: waiting for process 4711 \[00:00\]", terminal), terminal


def test_a_pipe_shows_nothing():
    shown, _ = in_pipe(SHOW.format(enabled=True))
    assert shown == ""


def test_switched_off_it_shows_nothing_and_does_not_import_tqdm():
    shown, imported = on_terminal(SHOW.format(enabled=False))
    assert shown == ""
    assert imported == "False"


def test_importing_the_module_does_not_import_tqdm():
    _, imported = in_pipe("import sys, dataset_rt.progress\nprint('tqdm' in sys.modules)")
    assert imported == "False"


def test_an_error_closes_the_line_and_passes_through():
    program = """
from dataset_rt.progress import WriteProgress
try:
    with WriteProgress(1, enabled=True) as progress:
        progress.start("first", 10)
        progress.update(3, 3)
        raise RuntimeError("the source failed")
except RuntimeError as error:
    print(error)
"""
    shown, output = on_terminal(program)
    assert output == "the source failed"
    assert shown.endswith("\n")
    assert "0/1 sources done" in shown


def test_a_source_that_promised_too_few_samples_goes_on_without_time_left():
    program = """
from dataset_rt.progress import WriteProgress
with WriteProgress(1, enabled=True) as progress:
    progress.start("first", 10)
    progress.update(30, 30)
    progress.finish()
"""
    shown, _ = on_terminal(program)
    assert re.search(r"first: 30 samples \[.* 1/1 sources done\]", shown), shown


def test_a_source_that_is_done_without_a_line_counts():
    program = """
from dataset_rt.progress import WriteProgress
with WriteProgress(2, enabled=True) as progress:
    progress.finish()
    progress.start("second", 1)
    progress.update(1, 1)
    progress.finish()
"""
    shown, _ = on_terminal(program)
    assert "second: 100%" in shown
    assert "2/2 sources done" in shown


def test_a_terminal_that_does_not_know_its_size_shows_lines_too():
    program = """
from dataset_rt.progress import WriteProgress
with WriteProgress(1, enabled=True) as progress:
    progress.start("first", 1)
    progress.update(1, 1)
    progress.finish()
"""
    shown, _ = on_terminal(program, size=(0, 0))
    assert re.search(r"first: 100%.* 1/1 .* 1/1 sources d", shown), shown


def test_without_a_standard_error_it_shows_nothing():
    program = """
import sys
sys.stderr = None
from dataset_rt.progress import WriteProgress
with WriteProgress(1, enabled=True) as progress:
    progress.start("first", 1)
    progress.update(1, 1)
    progress.finish()
print("done")
"""
    assert in_pipe(program) == ("", "done")


def test_other_bars_of_the_program_keep_their_own_settings():
    program = """
from tqdm.auto import tqdm
before = tqdm.monitor_interval
from dataset_rt.progress import WriteProgress
with WriteProgress(1, enabled=True) as progress:
    progress.start("first", 1)
    progress.finish()
print(tqdm.monitor_interval == before > 0, tqdm.monitor)
"""
    assert on_terminal(program)[1] == "True None"


def test_counting_is_cheap():
    program = """
import time
from dataset_rt.progress import WriteProgress
with WriteProgress(1, enabled=True) as progress:
    progress.start("first", 200_000)
    began = time.perf_counter()
    for step in range(200_000):
        progress.update(1, 1000)
    print(time.perf_counter() - began)
    progress.finish()
"""
    # About 0.1 s where this was measured; a line drawn at every call takes over 5 s.
    assert float(on_terminal(program)[1]) < 2.0
