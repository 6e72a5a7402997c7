"""Checks that hold a driver to the stream; authors of adapters run them as their own tests."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dataset_rt.config import ReaderConfig, WriterConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import CacheCorruptError, StateMismatchError
from dataset_rt.runtime import DatasetRuntime
from dataset_rt.sources import CacheInput
from dataset_rt.testing.driver import Delivery, Driver

__all__ = ["CHECKS", "Check"]

# A sample's identity and its payload.
Sample = tuple[int, int, bytes]


@dataclass(frozen=True)
class Check:
    """One promise that every driver keeps.

    Calling it with a driver and an empty folder raises an AssertionError that says what
    was expected and what came, if the driver breaks the promise.

    Attributes:
        name: The promise, as an identifier.
        needs: The capabilities without which it cannot be checked.
        run: Does the check.
    """

    name: str
    needs: frozenset[str]
    run: Callable[[Driver, Path], None]

    def __call__(self, driver: Driver, folder: Path) -> None:
        """Run the check.

        Args:
            driver: The driver to hold to the promise; it has what `needs` names.
            folder: An empty folder for the caches.

        Raises:
            AssertionError: If the promise is broken.
        """
        self.run(driver, folder)


class NumberedSource:
    """Payloads of the given sizes, each unlike any other: bytes from a counter, NULs at both ends among them."""

    def __init__(self, name: str, sizes: Sequence[int]) -> None:
        self.name = name
        self._sizes = sizes

    def __iter__(self) -> Iterator[CacheInput]:
        for number, size in enumerate(self._sizes):
            pattern = b"\0%s/%d\xf0\x9f\x99\x82\0\0" % (self.name.encode(), number)
            data = (pattern * math.ceil(size / len(pattern)))[:size]
            # The last byte is NUL where there is room: arrays of fixed-length strings would drop it.
            yield CacheInput(data[:-1] + b"\0" if size > 1 else data, {"number": number, "class": number % 3})


class Caches:
    """Two caches, opened as often as asked, always at position 0."""

    def __init__(self, folder: Path, sizes: Sequence[int] = (5, 0, 1, 17, 300, 2, 64, 33, 9, 128)) -> None:
        self._runtime = DatasetRuntime(num_workers=2)
        half = len(sizes) // 2
        sources = [NumberedSource("first", sizes[:half]), NumberedSource("second", sizes[half:])]
        quiet = WriterConfig(show_progress=False)
        opened = self._runtime.from_cache_sources(sources, folder, reader_config=ReaderConfig(), writer_config=quiet)
        self.paths = [Path(path) for path in opened.unwrap().caches["path"]]

    def open(self, *, epoch_len: int | None = None, **fields: Any) -> CachedDataset:
        dataset = self._runtime.cached_dataset(self.paths, reader_config=ReaderConfig(**{"seed": 42, **fields}))
        if epoch_len is not None:
            dataset.set_epoch_len(epoch_len)
        return dataset


def flatten(batches: Sequence[Delivery]) -> list[Sample]:
    return [
        (int(cache_id), int(sample_id), payload)
        for batch in batches
        for cache_id, sample_id, payload in zip(batch.cache_ids, batch.sample_ids, batch.payloads, strict=True)
    ]


def promised(dataset: CachedDataset, start: int, count: int, step: int = 1) -> list[Sample]:
    """What the stream says of the draws from `start` on."""
    samples = dataset.stream().fetch(range(start, start + count * step, step))
    return [(sample.cache_id, sample.sample_id, sample.data) for sample in samples]


def expect(found: Any, expected: Any, what: str) -> None:
    if found != expected:
        raise AssertionError(f"{what}: expected {_shortened(expected)}, got {_shortened(found)}")


def _shortened(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 600 else f"{text[:600]}…"


def epochs_of(
    driver: Driver, dataset: CachedDataset, count: int, batch_size: int, **options: Any
) -> list[list[Delivery]]:
    loader = driver.loader(dataset, batch_size, **options)
    try:
        return [list(loader.epoch()) for _ in range(count)]
    finally:
        loader.close()


def worker_counts(driver: Driver) -> tuple[int, ...]:
    return (0, 2) if "workers" in driver.capabilities else (0,)


MODES: tuple[dict[str, Any], ...] = ({}, {"replacement": False}, {"shuffle": False})


def order_and_payloads_are_the_streams(driver: Driver, folder: Path) -> None:
    caches = Caches(folder)
    for mode, num_workers in itertools.product(MODES, worker_counts(driver)):
        for epoch_len, batch_size in ((10, 4), (13, 5), (1, 3)):
            dataset = caches.open(epoch_len=epoch_len, **mode)
            epochs = epochs_of(driver, dataset, 3, batch_size, num_workers=num_workers)
            what = f"{mode}, {num_workers} workers, epochs of {epoch_len} in batches of {batch_size}"
            for epoch, batches in enumerate(epochs):
                expect(flatten(batches), promised(dataset, epoch * epoch_len, epoch_len), f"epoch {epoch} with {what}")
                full, rest = divmod(epoch_len, batch_size)
                sizes = [batch_size] * full + [rest] * (rest > 0)
                expect([len(batch.payloads) for batch in batches], sizes, f"batch sizes with {what}")


def payloads_of_a_mebibyte_arrive_whole(driver: Driver, folder: Path) -> None:
    caches = Caches(folder, (1 << 20, 0, (1 << 20) + 1, 1))
    for num_workers in worker_counts(driver):
        dataset = caches.open(shuffle=False)
        (batches,) = epochs_of(driver, dataset, 1, 3, num_workers=num_workers)
        expect(flatten(batches), promised(dataset, 0, 4), f"{num_workers} workers")


def ranks_together_are_the_stream(driver: Driver, folder: Path) -> None:
    caches = Caches(folder)
    for remainder, world_size, drop_last in itertools.product(("extend", "drop", "uneven"), (2, 3), (False, True)):
        epoch_len, batch_size = 10, 4
        stride = {
            "extend": math.ceil(epoch_len / world_size) * world_size,
            "drop": epoch_len // world_size * world_size,
            "uneven": epoch_len,
        }[remainder]
        what = f"remainder {remainder}, {world_size} ranks, drop_last {drop_last}"
        for rank in range(world_size):
            dataset = caches.open(epoch_len=epoch_len)
            options = {"rank": rank, "world_size": world_size, "remainder": remainder, "drop_last": drop_last}
            epochs = epochs_of(driver, dataset, 3, batch_size, **options)
            share = len(range(rank, stride, world_size))
            count = share // batch_size * batch_size if drop_last else share
            for epoch, batches in enumerate(epochs):
                expected = promised(dataset, epoch * stride + rank, count, world_size)
                expect(flatten(batches), expected, f"epoch {epoch} of rank {rank} with {what}")


def a_state_of_any_step_resumes_exactly(driver: Driver, folder: Path) -> None:
    resumes_exactly(driver, driver, Caches(folder))


def resumes_exactly(saving: Driver, loading: Driver, caches: Caches) -> None:
    """Save with one driver after every batch, load with another, in other batches and at other worker counts."""
    epoch_len, batch_size = 10, 4
    counts = itertools.cycle(itertools.product(worker_counts(saving), worker_counts(loading)))
    for steps in range(7):
        saving_workers, loading_workers = next(counts)
        dataset = caches.open(epoch_len=epoch_len)
        loader = saving.loader(dataset, batch_size, num_workers=saving_workers)
        try:
            consumed = 0
            batches = itertools.chain.from_iterable(loader.epoch() for _ in itertools.count())
            for _ in range(steps):
                consumed += len(next(batches).payloads)
            state = loader.state_dict()
        finally:
            loader.close()
        what = f"{saving.name} to {loading.name} after {steps} batches, {saving_workers} to {loading_workers} workers"
        expect(state["position"], consumed, f"position, {what}")
        fresh = caches.open()
        loader = loading.loader(fresh, 3, num_workers=loading_workers)
        try:
            loader.load_state_dict(state)
            # Exactly at a window's end the next one starts.
            rest = epoch_len - consumed % epoch_len
            expect(flatten(list(loader.epoch())), promised(dataset, consumed, rest), f"the rest, {what}")
            following = promised(dataset, consumed + rest, epoch_len)
            expect(flatten(list(loader.epoch())), following, f"the next epoch, {what}")
        finally:
            loader.close()


def a_state_resumes_at_another_world_size(driver: Driver, folder: Path) -> None:
    caches = Caches(folder)
    dataset = caches.open(epoch_len=12)
    loader = driver.loader(dataset, 2, rank=1, world_size=2)
    try:
        epoch = loader.epoch()
        next(epoch), next(epoch)
        state = loader.state_dict()
    finally:
        loader.close()
    # Two batches of two on each of two ranks.
    expect(state["position"], 8, "position after two batches on two ranks")
    for world_size in (1, 4):
        for rank in range(world_size):
            loader = driver.loader(caches.open(), 3, rank=rank, world_size=world_size)
            try:
                loader.load_state_dict(state)
                expected = promised(dataset, 8 + rank, 4 // world_size, world_size)
                expect(flatten(list(loader.epoch())), expected, f"the rest on rank {rank} of {world_size}")
                expected = promised(dataset, 12 + rank, 12 // world_size, world_size)
                expect(flatten(list(loader.epoch())), expected, f"the next epoch on rank {rank} of {world_size}")
            finally:
                loader.close()


def a_state_of_another_stream_is_refused(driver: Driver, folder: Path) -> None:
    caches = Caches(folder)
    edited = caches.open()
    edited.update_metadata(edited.get_metadata()[:7])
    others = {"seed": caches.open(seed=43), "mode": caches.open(replacement=False), "population": edited}
    for field, other in others.items():
        loader = driver.loader(other, 4)
        try:
            next(loader.epoch())
            state = loader.state_dict()
        finally:
            loader.close()
        loader = driver.loader(caches.open(), 4)
        try:
            loader.load_state_dict(state)
            # A driver may look at a state only when it starts to deliver.
            list(loader.epoch())
        except StateMismatchError:
            continue
        except Exception as error:
            if "errors" not in driver.capabilities and field in str(error):
                continue
            raise
        finally:
            loader.close()
        raise AssertionError(f"a state with another {field} was accepted")


def an_edited_table_reaches_the_next_window(driver: Driver, folder: Path) -> None:
    caches = Caches(folder)
    for num_workers in worker_counts(driver):
        dataset = caches.open()
        loader = driver.loader(dataset, 4, num_workers=num_workers)
        try:
            expect(flatten(list(loader.epoch())), promised(dataset, 0, 10), f"before the edit, {num_workers} workers")
            table = dataset.get_metadata()
            kept = table[3:]
            heavier = kept.with_columns((kept["number"] + 1.0).alias("weight"))
            dataset.update_metadata(heavier, reset_stream=False)
            expected = promised(dataset, 10, dataset.stream().epoch_len)
            expect(flatten(list(loader.epoch())), expected, f"after the edit, {num_workers} workers")
        finally:
            loader.close()


def a_corrupt_shard_is_named_to_the_training_loop(driver: Driver, folder: Path) -> None:
    for num_workers in worker_counts(driver):
        caches = Caches(folder / f"{num_workers} workers")
        dataset = caches.open(shuffle=False)
        shard = max((caches.paths[1] / "shards").iterdir(), key=lambda path: path.stat().st_size)
        damaged = bytearray(shard.read_bytes())
        damaged[len(damaged) // 2] ^= 0xFF
        shard.chmod(0o644)
        shard.write_bytes(damaged)
        loader = driver.loader(dataset, 2, num_workers=num_workers)
        try:
            list(loader.epoch())
        except CacheCorruptError as error:
            expect(Path(error.file).name, shard.name, f"the file of the error, {num_workers} workers")
            continue
        except Exception as error:
            if "errors" not in driver.capabilities and shard.name in str(error):
                continue
            raise
        finally:
            loader.close()
        raise AssertionError(f"a flipped byte went unnoticed, {num_workers} workers")


def _check(run: Callable[[Driver, Path], None], *needs: str) -> Check:
    return Check(run.__name__, frozenset(needs), run)


CHECKS: tuple[Check, ...] = (
    _check(order_and_payloads_are_the_streams),
    _check(payloads_of_a_mebibyte_arrive_whole),
    _check(ranks_together_are_the_stream),
    _check(a_state_of_any_step_resumes_exactly, "state"),
    _check(a_state_resumes_at_another_world_size, "state"),
    _check(a_state_of_another_stream_is_refused, "state"),
    _check(an_edited_table_reaches_the_next_window, "table"),
    _check(a_corrupt_shard_is_named_to_the_training_loop),
)
