"""Importing Hugging Face datasets, and iterating the cache beside iterating the dataset itself.

Three kinds of rows: small text, images of 2 KB (left as bytes by both), and 512 tokens with a label. The dataset is
mapped from disk, as `load_dataset` leaves it. Both loops end with the same Python values: ours by `decoder`, theirs as
the dataset gives them; for tokens also as NumPy arrays. Shuffled is a whole permuted pass for both.

    nox -s "loaders(adapter='hf')"                              # everything, in an environment of its own
    nox -s "loaders(adapter='hf')" -- --rounds 1 --scale 0.1    # a short look
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from harness.environments import Environment, EnvironmentMissing, core_wheel, installed_version
from harness.machine import machine_line
from harness.paths import DIST
from harness.ratios import ratio
from harness.results import Result, Row
from harness.rounds import interleave
from harness.table import markdown, troubles, update_section
from harness.worker import Worker

PART = "hf-loaders"
BATCH = 256
SEED = 1
OURS, THEIRS = "dataset-rt", "HF datasets"
# Rows of each kind.
SUBJECTS = {"text": 100_000, "2 KB images": 100_000, "512 tokens": 20_000}
OPERATIONS = ("ordered", "shuffled", "shuffled, batches of 256")
ARRAYS = ("shuffled, arrays", "shuffled, arrays, batches of 256")


class Rows:
    """A dataset and its cache; runs in a worker."""

    def __init__(self, folder: str, subject: str, rows: int) -> None:
        import datasets

        import dataset_rt as drt

        datasets.disable_progress_bars()
        self.folder = Path(folder)
        self.runtime = drt.DatasetRuntime()
        self.make(subject, rows).save_to_disk(str(self.folder / "saved"))
        self.dataset = datasets.load_from_disk(str(self.folder / "saved"))
        self.shuffled = self.dataset.shuffle(seed=SEED)
        self.import_rows(view=False)

    @staticmethod
    def make(subject: str, rows: int) -> Any:
        """Make the rows; they cost nothing while something is timed."""
        import datasets
        import numpy as np

        random = np.random.default_rng(0)
        labels = [row % 10 for row in range(rows)]
        label = datasets.ClassLabel(num_classes=10)
        if subject == "text":
            texts = [f"row {row}: " + "some words of a review " * (row % 8) for row in range(rows)]
            features = datasets.Features(
                {"text": datasets.Value("string"), "label": label, "score": datasets.Value("float64")}
            )
            columns = {"text": texts, "label": labels, "score": random.random(rows).tolist()}
        elif subject == "2 KB images":
            block = random.bytes(2_048 + rows)
            images = [{"bytes": block[row : row + 2_048], "path": f"{row}.jpg"} for row in range(rows)]
            features = datasets.Features({"image": datasets.Image(decode=False), "label": label})
            columns = {"image": images, "label": labels}
        else:
            tokens = datasets.List(datasets.Value("int32"))
            features = datasets.Features({"input_ids": tokens, "label": label})
            columns = {"input_ids": list(random.integers(0, 50_000, (rows, 512), dtype=np.int32)), "label": labels}
        return datasets.Dataset.from_dict(columns, features=features)

    def open(self, **options: Any) -> Any:
        """Open the cache for whole passes."""
        import dataset_rt as drt

        return self.runtime.cached_dataset(
            self.folder / "caches" / "rows", reader_config=drt.ReaderConfig(replacement=False, **options)
        )

    def import_rows(self, *, view: bool) -> int:
        """Write the cache anew; give the rows."""
        import dataset_rt as drt
        import dataset_rt_hf as hf

        shutil.rmtree(self.folder / "caches", ignore_errors=True)
        source = self.shuffled if view else self.dataset
        cached = hf.import_dataset(
            source, self.runtime, self.folder / "caches", reader_config=drt.ReaderConfig(), name="rows"
        ).unwrap()
        return len(cached)

    def ours(self, *, shuffle: bool, batches: bool, arrays: bool) -> int:
        """Iterate and decode the cache; give the rows."""
        import dataset_rt_hf as hf

        cached = self.open(shuffle=shuffle, seed=SEED)
        decode = hf.decoder(cached, arrays=arrays)
        rows = 0
        if batches:
            for batch in cached.iter_batches(BATCH):
                rows += len(decode.batch(batch)["label"])
        else:
            for sample in cached:
                rows += "label" in decode(sample)
        return rows

    def theirs(self, *, shuffle: bool, batches: bool, arrays: bool) -> int:
        """Iterate the dataset itself; give the rows."""
        dataset = self.shuffled if shuffle else self.dataset
        if arrays:
            dataset = dataset.with_format("numpy")
        if batches:
            return sum(len(batch["label"]) for batch in dataset.iter(BATCH))
        return sum("label" in row for row in dataset)


def hf_wheel() -> str:
    """Give the adapter's wheel in dist/.

    Raises:
        EnvironmentMissing: there is none, or more than one.
    """
    wheels = sorted(DIST.glob("dataset_rt_hf-*.whl"))
    if len(wheels) != 1:
        raise EnvironmentMissing(
            f"exactly one wheel of dataset-rt-hf expected in {DIST}, found {len(wheels)}; build it"
        )
    return str(wheels[0])


def measure(worker: Worker, subject: str, *, rounds: int) -> list[Row]:
    """Measure everything about one kind of rows, interleaved."""
    result = []
    operations = OPERATIONS + (ARRAYS if subject == "512 tokens" else ())
    for operation in operations:
        how = {
            "shuffle": operation != "ordered",
            "batches": "batches" in operation,
            "arrays": "arrays" in operation,
        }
        contenders = {OURS: partial(worker.rate, "ours", **how), THEIRS: partial(worker.rate, "theirs", **how)}
        outcome = interleave(contenders, rounds=rounds)
        result.append(Row(subject, operation, "rows/s", outcome.figures, outcome.failed))
    imports = {
        "plain": partial(worker.rate, "import_rows", view=False),
        "shuffled view": partial(worker.rate, "import_rows", view=True),
    }
    outcome = interleave(imports, rounds=rounds)
    result.append(Row(subject, "import", "rows/s", outcome.figures, outcome.failed))
    return result


def render(result: Result) -> str:
    """Give the tables of the README's section."""
    lines = []
    for row in result.rows:
        if row.operation == "import":
            plain, view = row.figures["plain"], row.figures["shuffled view"]
            cells = [f"{statistics.median(figures):,.0f}" for figures in (plain, view)]
            lines.append([row.subject, *cells, str(ratio(plain, view))])
    header = ["import, rows/s", "plain", "shuffled view", "time of the view / of the plain one"]
    loops = []
    for row in result.rows:
        if row.operation != "import":
            ours, theirs = row.figures[OURS], row.figures[THEIRS]
            cells = [f"{statistics.median(figures):,.0f}" for figures in (ours, theirs)]
            loops.append([f"{row.subject}, {row.operation}", *cells, str(ratio(ours, theirs))])
    return "\n".join(
        [
            f"{result.machine}; {result.rounds} interleaved rounds; datasets {result.versions[THEIRS]}.\n",
            markdown(["iterated, rows/s", OURS, THEIRS, "ratio (range)"], loops),
            markdown(header, lines),
            troubles(result),
        ]
    )


def main() -> None:
    """Measure, save the figures, and update the README."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (default 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="factor on the number of rows (default 1)")
    parser.add_argument("--dry", action="store_true", help="print the tables and change no file")
    options = parser.parse_args()

    python = Environment("hf-loaders", (core_wheel(), hf_wheel(), "pillow")).make()
    versions = {OURS: installed_version(python, "dataset-rt-hf"), THEIRS: installed_version(python, "datasets")}
    rows = []
    for subject, count in SUBJECTS.items():
        with tempfile.TemporaryDirectory(prefix="hf-loaders-") as folder:
            arguments = {"folder": folder, "subject": subject, "rows": max(1_000, int(count * options.scale))}
            with Worker(python, "hf_loaders:Rows", arguments) as worker:
                rows += measure(worker, subject, rounds=options.rounds)
    result = Result(PART, machine_line(), versions, options.rounds, options.scale, rows)
    if options.dry:
        print(render(result))
        return
    result.save()
    update_section(PART, render(result))


if __name__ == "__main__":
    main()
