"""The table of docs/concepts/one-order.md, from a run through every framework that is named there.

`python conformance/one_order.py` runs the frameworks and writes the table between the marks of the page.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

import dataset_rt as drt
from dataset_rt._core import ORDER_VERSION, OrderHasher, PayloadHasher
from dataset_rt.testing import Delivery, DeliveryDigest, find_driver, replay

PAGE = Path(__file__).parent.parent / "docs" / "concepts" / "one-order.md"
BEGIN = "<!-- written by conformance/one_order.py -->"
END = "<!-- end -->"
TITLES = {"core": "the core alone", "torch": "PyTorch", "jax": "JAX and Grain", "tf": "TensorFlow"}
# Batch size, ranks and workers of each run: all different, because they must not matter.
RUNS = {
    "core": [(32, 1, 0), (7, 4, 0)],
    "torch": [(32, 1, 0), (10, 2, 2)],
    "jax": [(16, 1, 2), (9, 5, 0)],
    "tf": [(64, 1, 4), (3, 2, 0)],
}
EPOCHS = 2
ROWS = 300
EPOCH_LEN = 200


class Numbers:
    """300 samples: sample n has the number as text, as often as its last digit says, and its last digit as a column."""

    name = "numbers_v1"

    def __iter__(self) -> Iterator[drt.CacheInput]:
        for number in range(ROWS):
            yield drt.CacheInput(str(number).encode() * (number % 10), {"digit": number % 10})


def opener(folder: Path) -> Callable[[], drt.CachedDataset]:
    """Write the cache; give what opens it with a third of its rows left out and the others weighted."""
    runtime = drt.DatasetRuntime(num_workers=2)
    quiet = drt.WriterConfig(show_progress=False)

    def open_dataset() -> drt.CachedDataset:
        reader = drt.ReaderConfig(seed=42)
        found = runtime.from_cache_sources(Numbers(), folder, reader_config=reader, writer_config=quiet)
        dataset = found.unwrap()
        table = dataset.get_metadata().filter(pl.col("digit") % 3 > 0)
        dataset.update_metadata(table.with_columns(weight=pl.col("digit") / 2))
        dataset.set_epoch_len(EPOCH_LEN)
        return dataset

    return open_dataset


def relay(open_dataset: Callable[[], drt.CachedDataset]) -> DeliveryDigest:
    """Both epochs, each framework in turn taking three batches of 16 from where the one before it stopped."""
    order, payloads, draws = OrderHasher(), PayloadHasher(), 0
    dataset = open_dataset()
    state = dataset.state_dict()
    for name in itertools.cycle(TITLES):
        loader = find_driver(name).loader(open_dataset(), 16)
        try:
            loader.load_state_dict(state)
            for batch in itertools.islice(loader.epoch(), 3):
                add(batch, order, payloads)
                draws += len(batch.payloads)
                state = loader.state_dict()
        finally:
            loader.close()
        if draws >= EPOCHS * EPOCH_LEN:
            break
    population = dataset.stream().population_digest
    return DeliveryDigest(ORDER_VERSION, population, draws, order.hexdigest(), payloads.hexdigest())


def add(batch: Delivery, order: OrderHasher, payloads: PayloadHasher) -> None:
    """Hash a batch as `replay` does."""
    order.add(np.asarray(batch.cache_ids, "<u8").tobytes(), np.asarray(batch.sample_ids, "<u8").tobytes())
    for payload in batch.payloads:
        payloads.add(payload)


def table() -> str:
    """Run everything; give the table's lines."""
    lines = ["| through | batch | ranks | workers | draws | order | payloads |", "|---|---|---|---|---|---|---|"]

    def line(*cells: object, digest: DeliveryDigest) -> str:
        hashes = (f"`{digest.order[:16]}…`", f"`{digest.payloads[:16]}…`")
        return f"| {' | '.join(map(str, (*cells, digest.draws, *hashes)))} |"

    with tempfile.TemporaryDirectory(prefix="dataset-rt-one-order-") as folder:
        open_dataset = opener(Path(folder))
        for name, runs in RUNS.items():
            for batch_size, world_size, num_workers in runs:
                digest = replay(
                    *(open_dataset, find_driver(name)),
                    batch_size=batch_size,
                    epochs=EPOCHS,
                    world_size=world_size,
                    num_workers=num_workers,
                )
                lines.append(line(TITLES[name], batch_size, world_size, num_workers, digest=digest))
        lines.append(line("each in turn, three batches at a time", 16, 1, 0, digest=relay(open_dataset)))
    return "\n".join(lines)


def written(page: str, text: str) -> str:
    """The page with this text between its marks."""
    head, found, rest = page.partition(BEGIN)
    _, found_end, tail = rest.partition(END)
    if not found or not found_end:
        raise ValueError(f"{PAGE} must have the marks {BEGIN} and {END}")
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{tail}"


def main() -> None:
    """Write the table into the page."""
    # Before a framework is imported: it would tell of the machine. And no process is forked beside threads.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    multiprocessing.set_start_method("forkserver")
    PAGE.write_text(written(PAGE.read_text(), table()))


if __name__ == "__main__":
    main()
