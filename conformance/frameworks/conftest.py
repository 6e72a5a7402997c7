"""Caches with payloads of every kind, and processes that start where several frameworks have threads."""

from __future__ import annotations

import multiprocessing
import os

# What the frameworks tell of the machine when they are imported is no result.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest

from dataset_rt.testing.checks import Caches
from drivers import ALL, NAMED

# A file that is about an importer, or about all frameworks at once, is left out where these are not named.
collect_ignore = [] if "hf" in NAMED else ["test_imported_datasets.py"]
if set(NAMED) != set(ALL):
    collect_ignore.append("test_page.py")

# Empty, a single byte, NULs at both ends (as the source makes them), and a mebibyte.
SIZES = (5, 0, 1, 17, 1 << 20, 2, 64, 1, 0, 128)


def pytest_configure(config: pytest.Config) -> None:
    """Let through what torch says of small machines."""
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create:UserWarning")


@pytest.fixture(scope="session", autouse=True)
def workers_are_not_forked():
    """JAX, TensorFlow and the core have threads here, beside which no process may be forked."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("forkserver", force=True)
    if "torch" in NAMED:
        # The server imports once what every worker needs.
        multiprocessing.set_forkserver_preload(["dataset_rt_torch"])
    yield
    multiprocessing.set_start_method(before, force=True)


class EditedCaches(Caches):
    """The same caches under a table with rows left out, doubled and weighted."""

    def open(self, *, epoch_len=None, **fields):
        dataset = super().open(**fields)
        table = dataset.get_metadata()
        kept = table[[9, 4, 4, 1, 0, 2, 3, 7]]
        if fields.get("replacement", True):
            kept = kept.with_columns(weight=(kept["number"] + 0.5) ** 3)
        dataset.update_metadata(kept)
        dataset.set_epoch_len(len(table) if epoch_len is None else epoch_len)
        return dataset


@pytest.fixture(scope="session")
def caches(tmp_path_factory):
    return Caches(tmp_path_factory.mktemp("caches"), SIZES)


@pytest.fixture(scope="session")
def edited_caches(tmp_path_factory):
    return EditedCaches(tmp_path_factory.mktemp("edited"), SIZES)
