"""The command `dataset-rt-hf`."""

from __future__ import annotations

import re
from pathlib import Path

import click

import dataset_rt as drt
from dataset_rt_hf.importing import import_dataset

__all__ = ["main"]


_OPTIONS = {
    "metadata_columns": "--column",
    "class_names": "--class-names",
    "num_proc": "--num-proc",
    "split": "--split",
    "name": "--name",
    "codec": "--codec",
    "key": "--key",
}
_ARGUMENT = re.compile(
    rf"(?<!\S)({'|'.join(_OPTIONS)})(?:=(\[\.\.\.\]|True\b|None\b)?|(?= must be ))(?=(['\"\w])?)", re.ASCII
)


def _in_options(message: str) -> str:
    """A message with the options of the command in place of the arguments of `import_dataset`."""
    return _ARGUMENT.sub(lambda found: _OPTIONS[found[1]] + (" " if found[3] else ""), message)


@click.group()
@click.version_option(package_name="dataset-rt-hf")
def main() -> None:
    """Bring Hugging Face datasets into caches of dataset-rt."""


@main.command("import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--split", help="The split to import; all of them if left out.")
@click.option("--name", help="Name of the cache; a split's is NAME-SPLIT. By default the dataset's own.")
@click.option("--key", help="Your word for this content, which alone decides whether a cache is reused.")
@click.option("--column", "columns", multiple=True, help="A column for the metadata table, several times for several.")
@click.option("--codec", type=click.Choice(["auto", "raw", "msgpack", "arrow"]), default="auto", show_default=True)
@click.option("--num-proc", type=int, default=1, show_default=True, help="How many processes encode.")
@click.option("--class-names", is_flag=True, help="Also put the names of class labels into the metadata table.")
def import_command(
    source: Path,
    target: Path,
    split: str | None,
    name: str | None,
    key: str | None,
    columns: tuple[str, ...],
    codec: str,
    num_proc: int,
    class_names: bool,  # noqa: FBT001
) -> None:
    """Import SOURCE into caches under TARGET.

    SOURCE is a folder written by save_to_disk, a folder or a file of Parquet, CSV, JSON or Arrow, or a folder of
    images. Where the cache is there already and holds the same, nothing is written.
    """
    try:
        results = import_dataset(
            source,
            drt.DatasetRuntime(),
            target,
            reader_config=drt.ReaderConfig(),
            split=split,
            name=name,
            key=key,
            metadata_columns=columns or "auto",
            codec=codec,
            num_proc=num_proc,
            class_names=class_names,
        )
    except drt.DatasetRTError as error:
        raise click.ClickException(_in_options(str(error))) from error
    failed = False
    for result in results.values() if isinstance(results, dict) else [results]:
        for written in result.results:
            if isinstance(written, drt.CacheWriteError):
                failed = True
                click.echo(f"Error: {written.source_name}: {_in_options(written.message)}", err=True)
            else:
                what = "found" if written.reused else "written"
                click.echo(f"{written.source_name}: {written.samples} samples {what} in {written.path}")
    if failed:
        raise SystemExit(1)
