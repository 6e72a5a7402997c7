"""What the commands of `dataset-rt` have in common: where caches are looked for, and how errors are told."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from dataset_rt import _core
from dataset_rt.errors import CacheNotFoundError, ConfigError, DatasetRTError, MetadataError
from dataset_rt.reports import printable

__all__ = ["FAULTY", "UNSAID", "caches_at", "errors_told", "paths_given", "say"]

FAULTY = 1
"""Exit code: a cache is not what was published. 0 is fine, and 2, which click gives, a wrong use of the command."""
UNSAID = 3
"""Exit code: what was found could not be printed."""

paths_given = click.argument("paths", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))


def caches_at(paths: tuple[Path, ...]) -> list[Path]:
    """Every cache at the paths, each once, called as the paths were given."""
    found: dict[Path, Path] = {}
    for path in paths:
        for cache in _core.find_caches(path):
            found.setdefault(cache, path if cache == path.resolve() else path / cache.name)
    return list(found.values())


@contextmanager
def errors_told() -> Iterator[None]:
    """Say what is wrong in one line, without a traceback, and exit with the code for it."""
    try:
        yield
    except (CacheNotFoundError, ConfigError, MetadataError) as error:
        raise click.UsageError(printable(str(error))) from error
    except DatasetRTError as error:
        click.echo(f"Error: {printable(str(error))}", err=True)
        sys.exit(FAULTY)


def say(text: str) -> None:
    """Print, or say why that cannot be done, and exit with the code for it."""
    try:
        click.echo(text)
    except OSError as error:
        # What is left in the buffer would be tried again, and fail again, while the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        # Whoever reads no further knows that.
        if not isinstance(error, BrokenPipeError):
            click.echo(f"Error: cannot write the output: {error.strerror}", err=True)
        sys.exit(UNSAID)
