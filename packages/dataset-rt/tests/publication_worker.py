"""Writes caches in children that are killed, refused system calls or raced, and says what came of it.

`publication_worker.py JSON` with {"task", "root", …}: the task is the name of a function below, the rest its arguments.
It prints JSON. Children are forked, so that one of them costs milliseconds and not an import; this process itself
neither starts a thread nor opens a cache.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import system_calls
from system_calls import Call, exit_code, forked, watch

import dataset_rt as drt

SAMPLES = 60
INTERRUPTED = 9
READER = drt.ReaderConfig(shuffle=False)
# Every sample two kilobytes and a shard of a third of them, so that there are three shards.
WRITER = drt.WriterConfig(show_progress=False, max_shard_bytes=45_000, prefetch_size=16)


def payload(name: str, number: int) -> bytes:
    return random.Random(f"{name} {number}").randbytes(2000)


class Digits:
    """A source that notes in a file that it was begun, and takes its time if it is to."""

    def __init__(self, name: str, notes: Path | None = None, seconds: float = 0.0) -> None:
        self.name, self.notes, self.seconds = name, notes, seconds

    def __iter__(self) -> Iterator[drt.CacheInput]:
        if self.notes is not None:
            with self.notes.open("a") as notes:
                notes.write(f"{self.name}\n")
        for number in range(SAMPLES):
            if self.seconds:
                time.sleep(self.seconds / SAMPLES)
            yield drt.CacheInput(payload(self.name, number), {"label": number % 3})


def build(root: Path, names: list[str], workers: int, **source: Any) -> Any:
    runtime = drt.DatasetRuntime(num_workers=workers)
    sources = [Digits(name, **source) for name in names]
    return runtime.from_cache_sources(sources, root, reader_config=READER, writer_config=WRITER)


def is_whole(root: Path, name: str) -> None:
    """Fail unless the cache holds every byte of every sample."""
    config = READER.model_copy(update={"validate_cache": True})
    dataset = drt.DatasetRuntime(num_workers=1).cached_dataset(root / name, reader_config=config)
    found = [(sample.data, sample.metadata) for sample in dataset]
    assert found == [(payload(name, number), {"label": number % 3}) for number in range(SAMPLES)]


def published(root: Path, names: list[str]) -> list[str]:
    """The caches that there are, after making sure in a child that each is whole."""
    there = [name for name in names if (root / name).exists()]
    assert exit_code(forked(lambda: [is_whole(root, name) for name in there] and None)) == 0
    return there


def finish(root: Path, names: list[str], workers: int) -> None:
    """Build what is missing, in a child, and fail unless then all is there and nothing else."""

    def work() -> None:
        build(root, names, workers).unwrap()
        for name in names:
            is_whole(root, name)

    assert exit_code(forked(work)) == 0
    assert {entry.name for entry in root.iterdir()} == {*names, ".building", ".locks"}
    assert list((root / ".building").iterdir()) == []
    assert {entry.name for entry in (root / ".locks").iterdir()} == set(names)


class Below:
    """Counts the calls that can change something below a root, and has one of them fail or kill."""

    def __init__(self, root: Path, number: int = -1, verdict: int | None = None) -> None:
        self.root, self.number, self.verdict = str(root), number, verdict
        self.calls: list[Call] = []

    def __call__(self, call: Call) -> int | None:
        if not call.changes or not call.path.startswith(self.root):
            return None
        self.calls.append(call)
        return self.verdict if len(self.calls) == self.number + 1 else None


def supported() -> bool:
    """Whether the other tasks that watch calls can be done here."""
    return system_calls.supported()


def killed_before_every_call(root: str, workers: int) -> list[list[Any]]:
    """Kill a writer before its first call, its second, and so on; of each: the call and whether the cache was there."""
    outcomes = []
    for number in range(1000):
        folder = Path(root) / str(number)
        folder.mkdir()
        decide = Below(folder, number, system_calls.KILL)
        ended = watch(lambda folder=folder: build(folder, ["digits"], workers).unwrap() and None, decide)
        if len(decide.calls) <= number:
            assert ended == 0, ended
            return outcomes
        assert ended == -signal.SIGKILL, ended
        there = published(folder, ["digits"])
        outcomes.append([decide.calls[number].name, bool(there)])
        finish(folder, ["digits"], workers)
    raise AssertionError("the writer never comes to an end")


def killed_at_random_moments(root: str, workers: int, kills: int, seed: int) -> list[list[int]]:
    """Kill a writer of five sources again and again; of each kill: caches there, and sources begun afterwards."""
    names = [f"digits_{number}" for number in range(5)]
    moments, seconds = random.Random(seed), 0.03
    begun = time.monotonic()
    assert exit_code(forked(lambda: build(Path(root), names, workers, seconds=seconds).unwrap() and None)) == 0
    whole = time.monotonic() - begun
    outcomes = []
    for number in range(kills):
        folder, notes = Path(root) / "killed" / str(number), Path(root) / f"{number}.txt"
        child = forked(lambda folder=folder: build(folder, names, workers, seconds=seconds).unwrap() and None)
        time.sleep(moments.uniform(0.0, whole))
        os.kill(child, signal.SIGKILL)
        assert exit_code(child) in (-signal.SIGKILL, 0)
        there = published(folder, names) if folder.exists() else []
        notes.touch()
        again = forked(lambda folder=folder, notes=notes: build(folder, names, workers, notes=notes).unwrap() and None)
        assert exit_code(again) == 0
        # Finished sources are never begun again, and the others are, each once.
        assert notes.read_text().split() == [name for name in names if name not in there]
        outcomes.append([len(there), len(names) - len(there)])
        finish(folder, names, workers)
    return outcomes


def interrupted_at_every_call(root: str, workers: int) -> list[list[Any]]:
    """Send Ctrl-C at each call in turn; of each: the call, the seconds to the end, the caches and what else is left."""
    outcomes = []
    names = ["finished", "digits"]
    for number in range(1000):
        folder = Path(root) / str(number)
        exit_code(forked(lambda folder=folder: build(folder, names[:1], workers).unwrap() and None))
        calls: list[Call] = []
        sent = 0.0

        def work(folder: Path = folder) -> None:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                build(folder, names, workers).unwrap()
                # What came at the last moment is raised by the next steps of the interpreter.
                sum(range(1000))
            except KeyboardInterrupt:
                os._exit(INTERRUPTED)

        def decide(call: Call, folder: Path = folder, number: int = number, calls: list[Call] = calls) -> int | None:
            nonlocal sent
            if call.changes and call.path.startswith(str(folder)):
                calls.append(call)
                if len(calls) == number + 1:
                    sent = time.monotonic()
                    return system_calls.INTERRUPT
            return None

        ended = watch(work, decide)
        if not sent:
            assert ended == 0, ended
            return outcomes
        assert ended == INTERRUPTED, (number, ended)
        seconds = time.monotonic() - sent
        left = [path.name for path in (folder / ".building").glob("*")]
        outcomes.append([calls[number].name, seconds, published(folder, names), left])
        finish(folder, names, workers)
    raise AssertionError("the writer never comes to an end")


def helpers_outlive_their_writer(root: str, workers: int) -> dict[str, float]:
    """Kill writers whose sources have helpers that live on; the seconds that the next build takes for each kind."""
    found = {}
    for kind in ("fork", "multiprocessing", "subprocess"):
        folder, note = Path(root) / kind, Path(root) / f"{kind}.txt"

        class Helped(Digits):
            def __iter__(self, kind: str = kind, note: Path = note) -> Iterator[drt.CacheInput]:
                for number, item in enumerate(super().__iter__()):
                    if number == 30:
                        note.with_suffix(".new").write_text(str(helper(kind)))
                        note.with_suffix(".new").rename(note)
                        time.sleep(120)
                    yield item

        def work(folder: Path = folder, helped: type[Digits] = Helped) -> None:
            drt.DatasetRuntime(num_workers=workers).write_cache(helped("digits"), folder, writer_config=WRITER)

        child = forked(work)
        while not note.exists():
            time.sleep(0.01)
        os.kill(child, signal.SIGKILL)
        assert exit_code(child) == -signal.SIGKILL
        begun = time.monotonic()
        finish(folder, ["digits"], workers)
        found[kind] = time.monotonic() - begun
        # It lives: a signal can be sent to it.
        os.kill(int(note.read_text()), signal.SIGKILL)
    return found


def helper(kind: str) -> int:
    """A process that does nothing for a long time, and inherits whatever descriptors it can; its number."""
    if kind == "fork":
        return forked(lambda: time.sleep(120))
    if kind == "multiprocessing":
        process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(120,))
        process.start()
        return int(process.pid or 0)
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], close_fds=False).pid


def refused_at_every_call(root: str, workers: int, number: int) -> list[list[Any]]:
    """Let each call in turn fail with an error number; of each: the call, its path and what the writer reported."""
    outcomes = []
    for position in range(1000):
        folder, said = Path(root) / str(position), Path(root) / f"{position}.json"
        folder.mkdir()

        def work(folder: Path = folder, said: Path = said) -> None:
            (result,) = build(folder, ["digits"], workers).results
            error = getattr(result, "error", None)
            if error is not None:
                assert type(error) is drt.CacheIOError, repr(error)
                assert error.errno == number, error.errno
                assert str(error.path) in str(error), str(error)
                said.write_text(json.dumps([str(error.path), error.operation, error.bytes]))

        decide = Below(folder, position, number)
        assert watch(work, decide) == 0
        if len(decide.calls) <= position:
            return outcomes
        call = decide.calls[position]
        there = bool(published(folder, ["digits"]))
        report = json.loads(said.read_text()) if said.exists() else None
        # What failed was told, unless the cache could be published without it.
        assert there or report is not None, call
        if report is not None and call.name not in ("unlinkat", "rmdir"):
            left = [str(path) for path in (folder / ".building").glob("*")]
            assert left == [], (call, left)
        outcomes.append([call.name, call.path, there, report])
        finish(folder, ["digits"], workers)
    raise AssertionError("the writer never comes to an end")


def calls_of_a_write(root: str, workers: int) -> list[list[Any]]:
    """Every call of a write below its root, in order: name, path, target."""
    decide = Below(Path(root))
    assert watch(lambda: build(Path(root), ["digits"], workers).unwrap() and None, decide) == 0
    return [list(call[:3]) for call in decide.calls]


def calls_of_reading(root: str, workers: int) -> list[list[Any]]:
    """Every call of a process that opens a complete cache in every way and reads it, wherever its path is."""
    finish(Path(root), ["digits"], workers)
    calls: list[Call] = []

    def work() -> None:
        dataset = build(Path(root), ["digits"], workers).unwrap()
        dataset = drt.DatasetRuntime(num_workers=workers).cached_dataset(Path(root) / "digits", reader_config=READER)
        assert len(list(dataset)) == len(list(dataset.iter_batches(7))) * 7 - 3 == SAMPLES
        assert len(dataset.read([3, 1])) == len(dataset.stream().fetch([5, 6])) == 2
        is_whole(Path(root), "digits")

    assert watch(work, lambda call: calls.append(call)) == 0
    return [list(call) for call in calls]


def raced(root: str, workers: int, processes: int, refused: dict[str, int]) -> dict[str, Any]:
    """Build one cache in several processes at once, each of which is refused some calls; what each reported."""
    folder, barrier = Path(root) / "caches", Path(root) / "go"

    def work(number: int) -> None:
        for name, error in refused.items():
            system_calls.refuse(name, error)
        while not barrier.exists():
            time.sleep(0.001)
        result = build(folder, ["digits"], workers, notes=Path(root) / f"begun {number}", seconds=0.05)
        digest = json.loads((folder / "digits" / "manifest.json").read_bytes())["digest"]
        dataset, results = result.unwrap(), result.results
        assert [sample.sample_id for sample in dataset] == list(range(SAMPLES))
        (Path(root) / f"{number}.json").write_text(json.dumps([digest, results[0].reused]))

    children = [forked(lambda number=number: work(number)) for number in range(processes)]
    barrier.touch()
    assert [exit_code(child) for child in children] == [0] * processes
    reports = [json.loads((Path(root) / f"{number}.json").read_text()) for number in range(processes)]
    left = sorted(path.name for path in (folder / ".building").iterdir())
    assert published(folder, ["digits"]) == ["digits"]
    return {"reports": reports, "begun": len(list(Path(root).glob("begun *"))), "left": left}


def main() -> None:
    """Do the task."""
    request = json.loads(sys.argv[1])
    task: Callable[..., Any] = globals()[request.pop("task")]
    print(json.dumps(task(**request)))


if __name__ == "__main__":
    main()
