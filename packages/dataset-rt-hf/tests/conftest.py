"""Nothing is fetched, nothing is kept: datasets works offline and in a temporary folder."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# datasets reads these when it is imported.
_HOME = tempfile.TemporaryDirectory(prefix="dataset-rt-hf-tests-")
os.environ["HF_HOME"] = _HOME.name
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_OFFLINE"] = "1"

import datasets  # noqa: E402

import dataset_rt as drt  # noqa: E402
import dataset_rt_hf as hf  # noqa: E402

ORDERED = drt.ReaderConfig(shuffle=False)


@pytest.fixture(scope="session")
def runtime() -> Iterator[drt.DatasetRuntime]:
    with drt.DatasetRuntime(num_workers=2) as runtime:
        yield runtime


class Importer:
    """Imports into one temporary folder."""

    def __init__(self, runtime: drt.DatasetRuntime, root: Path) -> None:
        self.runtime = runtime
        self.root = root

    def result(self, source: object, name: str | None = "rows", **options: object) -> drt.CacheSourcesDatasetResult:
        return hf.import_dataset(source, self.runtime, self.root, reader_config=ORDERED, name=name, **options)

    def __call__(self, source: object, name: str | None = "rows", **options: object) -> drt.CachedDataset:
        return self.result(source, name, **options).unwrap()


@pytest.fixture
def importer(runtime: drt.DatasetRuntime, tmp_path: Path) -> Importer:
    return Importer(runtime, tmp_path / "caches")


@pytest.fixture(autouse=True)
def _progress_bars_as_they_were() -> Iterator[None]:
    disabled = datasets.are_progress_bars_disabled()
    yield
    (datasets.disable_progress_bars if disabled else datasets.enable_progress_bars)()
