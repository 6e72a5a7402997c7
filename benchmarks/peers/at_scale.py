"""dataset-rt with many samples: the worker of the part `scale`. Every method gives plain figures."""

import pickle
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl

import dataset_rt as drt
from harness.memory import private_bytes

SEED = 7


class Rows:
    """Samples of one payload size with three stored columns: int, float and string."""

    def __init__(self, name: str, count: int, payload_bytes: int) -> None:
        self.name = name
        self.count = count
        self.payload = bytes(payload_bytes)

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Give all of them."""
        for number in range(self.count):
            split = "valid" if number % 7 == 0 else "train"
            yield drt.CacheInput(self.payload, {"label": number % 1000, "score": number * 0.5, "split": split})


def seconds_of(call: Callable[[], Any], repeat: int) -> list[float]:
    """Time a call a few times."""
    times = []
    for _ in range(repeat):
        begun = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - begun)
        del result
    return times


class AtScale:
    """Caches by name in one folder, and the dataset that was opened last.

    Args:
        folder: where the caches lie.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.runtime = drt.DatasetRuntime()
        self.datasets: dict[str, drt.CachedDataset] = {}

    def write(self, name: str, count: int, payload_bytes: int) -> int:
        """Write a cache and give the number of samples."""
        config = drt.WriterConfig(show_progress=False)
        (result,) = self.runtime.write_cache(Rows(name, count, payload_bytes), self.folder, writer_config=config)
        if not isinstance(result, drt.CacheWriteSuccess):
            raise result.error
        return result.samples

    def dataset(self, name: str, **reader: Any) -> drt.CachedDataset:
        """Open a cache anew."""
        config = drt.ReaderConfig(seed=SEED, **reader)
        return self.runtime.cached_dataset(self.folder / name, reader_config=config)

    def keep(self, name: str) -> int:
        """Open a cache for the calls that follow; give the private memory that this took, in bytes."""
        before = private_bytes()
        self.datasets[name] = self.dataset(name)
        return private_bytes() - before

    def opening(self, name: str) -> list[float]:
        """Give the seconds of opening a cache."""
        return seconds_of(lambda: self.dataset(name), 20)

    def first_state(self, name: str) -> list[float]:
        """Give the seconds of the first state of an unedited table: it digests the table once."""
        return seconds_of(self.dataset(name).state_dict, 1)

    def pickled(self, name: str) -> dict[str, Any]:
        """Give the size of a pickled stream in bytes, and the seconds of unpickling."""
        data = pickle.dumps(self.dataset(name).stream())
        return {"bytes": len(data), "seconds": seconds_of(lambda: pickle.loads(data), 5)}

    def draws(self, name: str, count: int) -> int:
        """Iterate this many draws of a kept dataset."""
        dataset = self.datasets[name]
        dataset.set_epoch_len(count)
        total = 0
        for sample in dataset:
            total += sample.data[0]
        return count

    def growth(self, name: str, draws: int, **reader: Any) -> int:
        """Iterate draws and give by how many bytes private memory was at most above what it was before."""
        dataset = self.dataset(name, **reader)
        dataset.set_epoch_len(draws)
        before = most = private_bytes()
        for number, sample in enumerate(dataset):
            sample.data[0]
            if number % 1024 == 0:
                most = max(most, private_bytes())
        return max(most, private_bytes()) - before

    def edit(self, name: str) -> dict[str, list[float]]:
        """Give the seconds of putting back the table with its rows shuffled, without and with unequal weights."""
        dataset = self.datasets[name]
        table = dataset.get_metadata().sample(fraction=1.0, shuffle=True, seed=SEED)
        weighted = table.with_columns(weight=(1.0 + pl.col("label") % 5) / pl.len().over("label"))
        return {
            "equal": seconds_of(lambda: dataset.update_metadata(table), 3),
            "weighted": seconds_of(lambda: dataset.update_metadata(weighted), 3),
        }

    def state(self, name: str) -> list[float]:
        """Give the seconds of a state of the edited table."""
        return seconds_of(self.datasets[name].state_dict, 20)

    def bytes_of_weights(self, name: str) -> float:
        """Give what the weights hold, in bytes a row."""
        dataset = self.datasets[name]
        return float(dataset.stream()._core.weight_bytes) / dataset.get_metadata().height

    def weighted_draws(self, name: str, count: int) -> int:
        """Compute the row numbers of so many draws in this thread."""
        self.datasets[name].stream().rows(0, count)
        return count

    def far(self, name: str) -> dict[str, list[float]]:
        """Give the seconds of loading a state at position 10^15 and of the first sample there."""
        dataset = self.datasets[name]
        state = {**dataset.state_dict(), "position": 10**15, "window": None}
        loading = seconds_of(lambda: dataset.load_state_dict(state), 20)
        return {"load": loading, "first": seconds_of(lambda: next(iter(dataset)), 1)}
