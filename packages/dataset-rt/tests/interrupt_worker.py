"""A program to be interrupted: says when it is there, and what ended it.

python interrupt_worker.py PHASE ROOT
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import dataset_rt as drt
from dataset_rt import _core

QUIET = drt.WriterConfig(show_progress=False, prefetch_size=4)


class Endless:
    """Samples for ever, as fast as they are taken; or one, and then a long sleep."""

    name = "interrupted"

    def __init__(self, *, sleeps):
        self.sleeps = sleeps

    def __iter__(self):
        print("ready", flush=True)
        while True:
            yield drt.CacheInput(b"x" * 100_000, {"label": 1})
            if self.sleeps:
                time.sleep(60)


class Finished:
    name = "finished"

    def __iter__(self):
        return (drt.CacheInput(bytes([number]), {"label": number}) for number in range(50))


class FinishedToo(Finished):
    name = "finished_too"


def main() -> None:
    # In the background of a shell a program inherits that SIGINT is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    phase, root = sys.argv[1], Path(sys.argv[2])
    num_workers = 1 if phase.endswith("alone") else 2
    runtime = drt.DatasetRuntime(num_workers=num_workers)
    reader = drt.ReaderConfig()
    try:
        if phase.startswith("verifying"):
            print("ready", flush=True)
            _core.verify(root, content=False, num_workers=num_workers, progress=lambda _: None)
        finished = runtime.from_cache_sources(Finished(), root, reader_config=reader, writer_config=QUIET)
        if phase.startswith("reading"):
            dataset = finished.unwrap()
            dataset.set_epoch_len(2**40)
            print("ready", flush=True)
            while phase == "reading rows":
                dataset.read(list(range(50)) * 20_000)
            while phase == "reading and validating":
                config = drt.ReaderConfig(validate_cache=True)
                runtime.cached_dataset(root / "finished", reader_config=config)
            if phase == "reading the order":
                dataset.stream().order_digest(0, 10**12)
            if phase == "reading batches":
                for _ in dataset.iter_batches(32):
                    pass
            for _ in dataset:
                pass
        elif phase == "digesting":
            runtime.content_digest(Endless(sleeps=False))
        elif phase == "waiting":
            print("ready", flush=True)
            runtime.write_cache(Endless(sleeps=False), root, writer_config=QUIET)
        else:
            source = Endless(sleeps=phase.startswith("sleeping"))
            runtime.write_cache([FinishedToo(), source], root, writer_config=QUIET)
    except KeyboardInterrupt:
        print("interrupted", flush=True)


if __name__ == "__main__":
    main()
