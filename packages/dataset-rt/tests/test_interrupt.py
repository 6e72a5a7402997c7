"""Ctrl-C, in every phase: KeyboardInterrupt within a second, finished sources kept, nothing else left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import blake3
import pytest

import dataset_rt as drt
from dataset_rt import _core

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


@pytest.mark.parametrize("phase", ["verifying", "verifying alone"])
def test_verifying_a_shard_of_many_gibibytes_ends_within_a_second(phase, cache_of):
    path = cache_of("large", [{"label": 1}])
    grow(path, 2**36)
    process = start(phase, path)
    time.sleep(0.3)
    assert process.poll() is None
    assert interrupt(process) < 1.5


def test_an_interrupt_while_faults_become_exceptions_is_none_of_them(cache_of, monkeypatch):
    path = cache_of("damaged", [{"label": 1}] * 3)
    (path / "index.bin").unlink()

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(drt.CacheCorruptError, "__init__", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _core.verify(path, content=False, num_workers=1, progress=lambda _: None)


def grow(path, length):
    """Give the only shard of a cache a length, by a hole that takes no space, and a manifest that says the same."""
    shard, manifest = path / "shards" / "000000.bin", path / "manifest.json"
    added = length - shard.stat().st_size
    os.truncate(shard, length)
    parts = json.loads(manifest.read_text())
    del parts["digest"]
    parts["files"]["shards/000000.bin"]["bytes"] = length
    for name in ("payload_bytes", "stored_bytes", "max_payload_bytes"):
        parts[name] += added
    digest = blake3.blake3(encoded(parts)).hexdigest()
    manifest.write_bytes(encoded({**parts, "digest": digest}))


def encoded(parts):
    return json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def test_waiting_for_another_writer_ends_within_a_second(tmp_path, nothing_left):
    writer = start("sleeping", tmp_path)
    # The finished caches are there already, so the second program goes on to wait for the lock of the first.
    waiting = start("waiting", tmp_path)
    time.sleep(0.3)
    assert waiting.poll() is None
    assert interrupt(waiting) < 1.5
    assert interrupt(writer) < 1.5
    nothing_left(tmp_path, "finished", "finished_too")
