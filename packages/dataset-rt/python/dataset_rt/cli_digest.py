"""The command `dataset-rt digest`: what a training loop would receive, in one line."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import polars as pl

from dataset_rt.cli_parts import FAULTY, caches_at, errors_told, paths_given, say
from dataset_rt.config import ReaderConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import DatasetRTError
from dataset_rt.reports import printable
from dataset_rt.runtime import DatasetRuntime
from dataset_rt.testing import Driver, find_driver, replay

__all__ = ["digest"]

_COUNT = click.IntRange(min=1)


@click.command()
@paths_given
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), default=0, show_default=True, help="Seed of the order.")
@click.option("--epochs", type=_COUNT, default=1, show_default=True, help="How many epochs.")
@click.option("--epoch-len", type=_COUNT, help="Draws an epoch; as many as the table has rows unless given.")
@click.option("--shuffle/--no-shuffle", default=True, show_default=True, help="Drawn, or in the table's order.")
@click.option(
    "--replacement/--no-replacement", default=True, show_default=True, help="By weight, or each row once a pass."
)
@click.option(
    "--table",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Parquet file of the edited metadata table; all samples, equally often, unless given.",
)
@click.option("--world-size", type=_COUNT, default=1, show_default=True, help="How many ranks deal the draws.")
@click.option(
    "--remainder",
    type=click.Choice(["extend", "drop", "uneven"]),
    default="extend",
    show_default=True,
    help="What ranks do with an epoch that they do not divide.",
)
@click.option("--batch-size", type=_COUNT, default=32, show_default=True, help="Samples a batch.")
@click.option("--workers", type=click.IntRange(min=0), default=0, show_default=True, help="The loader's workers.")
@click.option(
    "--through", default="core", show_default=True, help="Whose loader delivers: core, or an adapter, as torch."
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object instead of a line.")
def digest(
    paths: tuple[Path, ...],
    *,
    seed: int,
    epochs: int,
    epoch_len: int | None,
    shuffle: bool,
    replacement: bool,
    table: Path | None,
    world_size: int,
    remainder: str,
    batch_size: int,
    workers: int,
    through: str,
    as_json: bool,
) -> None:
    """Say in one line which samples a training loop receives, and in which order.

    All caches at the paths make one dataset, whose epochs run through a framework's
    loader. Two lines are equal exactly when order and payloads were. The line does
    not depend on batch size or workers, nor on ranks that divide the epoch.
    """
    with errors_told():
        driver = _driver(through)
        edited = None if table is None else _table(table)
        config = ReaderConfig(seed=seed, shuffle=shuffle, replacement=replacement)
        caches = caches_at(paths)

        def open_dataset() -> CachedDataset:
            dataset = runtime.cached_dataset(caches, reader_config=config)
            if edited is not None:
                dataset.update_metadata(edited)
            if epoch_len is not None:
                dataset.set_epoch_len(epoch_len)
            return dataset

        with DatasetRuntime() as runtime, _foreign_errors_told(driver):
            line = replay(
                open_dataset,
                driver,
                batch_size=batch_size,
                epochs=epochs,
                world_size=world_size,
                remainder=remainder,
                num_workers=workers,
            )
    say(json.dumps(dataclasses.asdict(line)) if as_json else str(line))


def _driver(name: str) -> Driver:
    try:
        return find_driver(name)
    except ImportError as error:
        raise click.UsageError(
            f"--through {name}: the adapter is installed, but it cannot be imported: {error}"
        ) from error


def _table(path: Path) -> pl.DataFrame:
    try:
        return pl.read_parquet(path)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise click.UsageError(
            f"--table {path} must be a Parquet file, as DataFrame.write_parquet makes it: {error}"
        ) from error


@contextmanager
def _foreign_errors_told(driver: Driver) -> Iterator[None]:
    """Say in one line what a framework made of our errors, where it does not hand them on as they are."""
    try:
        yield
    except DatasetRTError:
        raise
    except Exception as error:
        if "errors" in driver.capabilities:
            raise
        click.echo(f"Error: {printable(str(error).partition(chr(10))[0])}", err=True)
        sys.exit(FAULTY)
