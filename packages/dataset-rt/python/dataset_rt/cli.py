"""The command `dataset-rt`: look into caches and check them and their order, without a program of one's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from dataset_rt import reports
from dataset_rt.cli_digest import digest
from dataset_rt.cli_parts import FAULTY, caches_at, errors_told, paths_given, say

__all__ = ["main"]

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a cache, instead of tables.")
_path = click.argument("path", type=click.Path(exists=True, path_type=Path))


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="dataset-rt", message="dataset-rt %(version)s")
def main() -> None:
    """Look into caches of training samples, check them, and digest their order.

    PATH is a cache's folder, or a folder with caches in it. The exit code is 0 if
    all is well, 1 if a cache is damaged or cannot be read, 2 if the command was used
    wrongly or there is no cache, and 3 if the output could not be written.
    """


main.add_command(digest)


@main.command()
@paths_given
@_json
def info(paths: tuple[Path, ...], *, as_json: bool) -> None:
    """Say what is in each cache: samples, sizes, columns, identity."""
    with errors_told():
        described = [reports.info(path) for path in caches_at(paths)]
    _print(described, reports.show_info, as_json=as_json)


@main.command()
@_path
@click.option("-n", "count", type=click.IntRange(min=1), default=5, show_default=True, help="How many samples.")
@_json
def head(path: Path, count: int, *, as_json: bool) -> None:
    """Show the first samples of each cache: metadata, and how the payload begins."""
    with errors_told():
        samples = [reports.head(cache, count) for cache in caches_at((path,))]
    _print(samples, reports.show_head, as_json=as_json)


@main.command()
@_path
@_json
def stats(path: Path, *, as_json: bool) -> None:
    """Summarise each cache: every metadata column, and the payloads' sizes."""
    with errors_told():
        summaries = [reports.stats(cache) for cache in caches_at((path,))]
    _print(summaries, reports.show_stats, as_json=as_json)


@main.command()
@paths_given
@click.option("--content", is_flag=True, help="Also read every sample, and compare what they are with their digest.")
@_json
def verify(paths: tuple[Path, ...], *, content: bool, as_json: bool) -> None:
    """Check every file of each cache, and list all faults.

    A file that is damaged is searched for the samples that are lost.
    """
    with errors_told():
        checked = []
        for path in caches_at(paths):
            with _progress(path, passes=2 if content else 1) as progress:
                checked.append(reports.verify(path, progress, content=content))
    _print(checked, reports.show_verify, as_json=as_json, between="\n")
    faults = sum(len(cache["faults"]) for cache in checked)
    faulty = sum(bool(cache["faults"]) for cache in checked)
    if faults:
        if not as_json:
            say(f"\n{reports.counted(faults, 'fault')} in {faulty} of {reports.counted(len(checked), 'cache')}")
        sys.exit(FAULTY)


@contextmanager
def _progress(path: Path, *, passes: int) -> Iterator[Callable[[int], object]]:
    """A bar on standard error while a cache is read, where somebody looks."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda _: None
        return
    total = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    # A bar that is updated by 0 bytes of 0 divides by them.
    with click.progressbar(length=max(total * passes, 1), label=reports.printable(path.name), file=sys.stderr) as bar:
        yield bar.update
        # What is no file of the manifest's was not read, and the manifest is not counted.
        bar.update(bar.length - bar.pos if bar.length else 0)


def _print(
    caches: list[dict[str, Any]], show: Callable[[dict[str, Any]], str], *, as_json: bool, between: str = "\n\n"
) -> None:
    if as_json:
        # ASCII alone: names of files need not be UTF-8, nor need the terminal.
        say(json.dumps(caches, indent=2, allow_nan=False))
    else:
        say(between.join(show(cache) for cache in caches))
