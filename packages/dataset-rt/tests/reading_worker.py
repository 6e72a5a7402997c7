"""Reads a cache whose files change under it, here or in a worker process, and says what came.

`reading_worker.py ROOT JSON` with a list of {"io", "way", "place", "damage", "workers"}: "way" is how it reads, "place"
is "here" or how worker processes are started, "damage" is what happens to some shards after the first samples. It
prints a line of JSON for each: the samples that came, after comparing them with what was written, and the error that
ended it.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import pickle
import queue
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dataset_rt as drt

SAMPLES, LENGTH, A_SHARD = 400, 5_000, 20
DAMAGED = (0, 1, 15)


def payload(number: int) -> bytes:
    return number.to_bytes(4, "little") * (LENGTH // 4)


class Numbered:
    name = "numbered"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number in range(SAMPLES):
            yield drt.CacheInput(payload(number), {"number": number})


def write(root: Path) -> Path:
    """A cache of twenty shards."""
    config = drt.WriterConfig(show_progress=False, max_shard_bytes=16 + A_SHARD * LENGTH)
    (result,) = drt.DatasetRuntime(num_workers=1).write_cache(Numbered(), root, writer_config=config)
    assert isinstance(result, drt.CacheWriteSuccess), result
    return result.path


def truncate(shard: Path) -> None:
    os.truncate(shard, 100)


def empty(shard: Path) -> None:
    os.truncate(shard, 0)


def shorten(shard: Path) -> None:
    """By the last byte alone: all but one sample are still there."""
    os.truncate(shard, shard.stat().st_size - 1)


def remove(shard: Path) -> None:
    shard.unlink()


def replace(shard: Path) -> None:
    """By another file of the same length and a right header, as a copying program would."""
    content = shard.read_bytes()
    other = shard.with_suffix(".new")
    other.write_bytes(content[:16] + bytes(len(content) - 16))
    other.replace(shard)


def overwrite(shard: Path) -> None:
    """The same in place."""
    with shard.open("r+b") as file:
        file.seek(16)
        file.write(bytes(shard.stat().st_size - 16))


def samples(dataset: drt.CachedDataset) -> Iterator[tuple[int, bytes]]:
    for sample in dataset:
        yield sample.sample_id, sample.data


def batches(dataset: drt.CachedDataset) -> Iterator[tuple[int, bytes]]:
    for batch in dataset.iter_batches(8):
        yield from zip(batch["sample_id"].to_pylist(), batch["data"].to_pylist(), strict=True)


def rows(dataset: drt.CachedDataset) -> Iterator[tuple[int, bytes]]:
    for number in range(SAMPLES):
        sample = dataset[number]
        yield sample.sample_id, sample.data


def positions(dataset: drt.CachedDataset) -> Iterator[tuple[int, bytes]]:
    stream = dataset.stream()
    for number in range(0, SAMPLES, 4):
        for sample in stream.fetch(range(number, number + 4)):
            yield sample.sample_id, sample.data


WAYS: dict[str, Callable[[drt.CachedDataset], Iterator[tuple[int, bytes]]]] = {
    "samples": samples,
    "batches": batches,
    "rows": rows,
    "positions": positions,
}


def consume(found: Iterator[tuple[int, bytes]], damage: Callable[[], None]) -> dict[str, Any]:
    """Take samples; after the first ones, damage; go on to the end or the error."""
    taken, error = [], None
    try:
        for sample_id, data in found:
            assert data == payload(sample_id), f"sample {sample_id} is wrong"
            taken.append(sample_id)
            if len(taken) == 5:
                damage()
    except drt.DatasetRTError as raised:
        # As out of a worker.
        error = pickle.loads(pickle.dumps(raised))
    return {"taken": taken, "error": told(error)}


def told(error: BaseException | None) -> Any:
    if error is None:
        return None
    parts = {name: str(getattr(error, name, None)) for name in ("file", "sample", "expected", "found", "path")}
    return {"type": type(error).__name__, "message": str(error), **parts}


def read_here(request: dict[str, Any], damage: Callable[[], None]) -> dict[str, Any]:
    config = drt.ReaderConfig(shuffle=False, io=request["io"], prefetch_size=4)
    dataset = drt.DatasetRuntime(num_workers=request["workers"]).cached_dataset(request["path"], reader_config=config)
    return consume(WAYS[request["way"]](dataset), damage)


def serve(stream: drt.SampleStream, way: str, asked: Any, given: Any) -> None:
    """Be a loader's worker: lists of positions come in, samples or the error go out."""
    faulthandler.enable()
    while (numbers := asked.get()) is not None:
        given.put(found_or_raised(stream, way, numbers))


def found_or_raised(stream: drt.SampleStream, way: str, numbers: list[int]) -> list[tuple[int, bytes]] | Exception:
    try:
        if way == "batches":
            batch = stream.fetch_batch(numbers)
            return list(zip(batch["sample_id"].to_pylist(), batch["data"].to_pylist(), strict=True))
        return [(sample.sample_id, sample.data) for sample in stream.fetch(numbers)]
    except Exception as error:  # noqa: BLE001  # whatever it is, the parent decides
        return error


def read_in_a_worker(request: dict[str, Any], damage: Callable[[], None]) -> dict[str, Any]:
    """As loaders do: two batches are always on their way."""
    context = multiprocessing.get_context(request["place"])
    config = drt.ReaderConfig(shuffle=False, io=request["io"])
    stream = drt.DatasetRuntime(num_workers=2).cached_dataset(request["path"], reader_config=config).stream()
    if request["place"] == "fork":
        # The child inherits open files and mappings.
        stream.fetch(range(0, SAMPLES, A_SHARD))
    asked, given = context.Queue(), context.Queue()
    worker = context.Process(target=serve, args=(stream, request["way"], asked, given))
    worker.start()

    def answers() -> Iterator[tuple[int, bytes]]:
        starts = list(range(0, SAMPLES, 4))
        for number, start in enumerate(starts):
            asked.put(list(range(start, start + 4)))
            if number < 2:
                continue
            yield from answer()
        for _ in range(2):
            yield from answer()

    def answer() -> list[tuple[int, bytes]]:
        while True:
            try:
                found = given.get(timeout=1)
                break
            except queue.Empty:
                # A signal would have ended it without a word.
                assert worker.is_alive(), f"the worker ended with {worker.exitcode}"
        if isinstance(found, BaseException):
            raise found
        return list(found)

    outcome = consume(answers(), damage)
    asked.put(None)
    worker.join(60)
    return {**outcome, "exitcode": worker.exitcode}


def main() -> None:
    """Do every case, each with a copy of the cache of its own."""
    root, cases = Path(sys.argv[1]), json.loads(sys.argv[2])
    faulthandler.enable()
    written = write(root)
    for number, case in enumerate(cases):
        path = root / str(number) / "numbered"
        shutil.copytree(written, path)
        damaged: Callable[[Path], None] = globals()[case["damage"]]

        def damage(path: Path = path, damaged: Callable[[Path], None] = damaged) -> None:
            # The shard that is being read, one that may have been read ahead, and one far ahead.
            for shard in DAMAGED:
                damaged(path / "shards" / f"{shard:06}.bin")

        read = read_here if case["place"] == "here" else read_in_a_worker
        print(json.dumps(read({**case, "path": str(path)}, damage)), flush=True)
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
