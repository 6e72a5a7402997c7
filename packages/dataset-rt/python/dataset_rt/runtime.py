"""Writing caches and opening them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn

from typing_extensions import Self

from dataset_rt import _core
from dataset_rt.columns import kind_of
from dataset_rt.config import ReaderConfig, WriterConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import CacheExistsError, ConfigError, DatasetRTError, SourceError
from dataset_rt.integers import integer
from dataset_rt.progress import WriteProgress
from dataset_rt.results import (
    CacheSourcesDatasetError,
    CacheSourcesDatasetResult,
    CacheSourcesDatasetSuccess,
    CacheWriteError,
    CacheWriteResult,
    CacheWriteSuccess,
)
from dataset_rt.sources import CacheInput, CacheSource, SkippedInput

__all__ = ["DatasetRuntime"]

_LOGGER = logging.getLogger("dataset_rt")
_MOST_WORKERS = 1024
"""More threads than this are surely a slip."""


class DatasetRuntime:
    """Native threads, and the operations that share them.

    The threads start at the first need and end with the runtime. With one worker, in
    a forked child and for random access, the calling thread does the work.

    Args:
        num_workers: The most threads to start, in [1, 1024]. None: as many as the
            process may use processors, but no more than 8.

    Raises:
        ConfigError: If `num_workers` is no integer (a bool is none) or outside its range.
    """

    def __init__(self, *, num_workers: int | None = None) -> None:
        if num_workers is not None:
            num_workers = integer(num_workers, "num_workers")
            if not 1 <= num_workers <= _MOST_WORKERS:
                raise ConfigError(f"num_workers must be in [1, {_MOST_WORKERS}], got {num_workers}")
        self._core = _core.Runtime(num_workers)

    @property
    def num_workers(self) -> int:
        """The most threads that this runtime starts."""
        return self._core.num_workers

    def __reduce__(self) -> NoReturn:
        raise TypeError("a DatasetRuntime cannot be pickled; make one in each process")

    def __repr__(self) -> str:
        return f"DatasetRuntime(num_workers={self.num_workers})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Let the threads end. Datasets stay usable and read in the calling thread."""
        self._core.close()

    def write_cache(
        self,
        sources: CacheSource | Sequence[CacheSource],
        path: str | os.PathLike[str],
        *,
        writer_config: WriterConfig = WriterConfig(),
    ) -> list[CacheWriteResult]:
        """Write a cache for each source under `path / source.name`.

        One failing source does not stop the others and leaves nothing behind.

        Args:
            sources: One source, or several.
            path: The folder that holds the caches; made if it is not there.
            writer_config: How to write.

        Returns:
            One result a source, in input order. A cache that is already there is a
            `CacheWriteError` holding a `CacheExistsError`; what the source's own code
            raised is the `__cause__` of a `SourceError`.

        Raises:
            ConfigError: If an argument is of a wrong type, a name cannot be a
                cache's, or two sources have one name.
        """
        named, root = _checked(sources, path, writer_config)
        with WriteProgress(len(named), enabled=writer_config.show_progress) as progress:
            return [self._write(name, source, root, writer_config, progress, reuse=False) for name, source in named]

    def from_cache_sources(
        self,
        sources: CacheSource | Sequence[CacheSource],
        path: str | os.PathLike[str],
        *,
        reader_config: ReaderConfig,
        writer_config: WriterConfig = WriterConfig(),
        allow_partial: bool = False,
    ) -> CacheSourcesDatasetResult:
        """Write the caches that are missing under `path`, and open all of them as one dataset.

        A complete cache is reused without iterating its source; whether the source
        changed is not looked at. Several processes may call this at once for one
        folder: one writes each cache, the others wait for it.

        Args:
            sources: One source, or several.
            path: The folder that holds the caches.
            reader_config: How to sample and read.
            writer_config: How to write.
            allow_partial: Whether to open the caches that succeeded although others
                failed. Nothing to open is an error all the same.

        Returns:
            `CacheSourcesDatasetSuccess` or `CacheSourcesDatasetError`, with one result
            a source in input order.

        Raises:
            ConfigError: As in `write_cache`.
        """
        _expect(reader_config, ReaderConfig, "reader_config")
        named, root = _checked(sources, path, writer_config)
        with WriteProgress(len(named), enabled=writer_config.show_progress) as progress:
            results = [self._write(name, source, root, writer_config, progress, reuse=True) for name, source in named]
        failures = [result for result in results if isinstance(result, CacheWriteError)]
        paths = [result.path for result in results if isinstance(result, CacheWriteSuccess)]
        if failures and (not allow_partial or not paths):
            first = failures[0]
            more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
            return CacheSourcesDatasetError(results, f"{first.source_name}: {first.message}{more}")
        try:
            return CacheSourcesDatasetSuccess(self.cached_dataset(paths, reader_config=reader_config), results)
        except DatasetRTError as error:
            return CacheSourcesDatasetError(results, str(error), error=error)

    def cached_dataset(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        reader_config: ReaderConfig,
    ) -> CachedDataset:
        """Open complete caches as one dataset.

        Args:
            paths: The caches' folders; their order is that of the first table.
            reader_config: How to sample and read.

        Returns:
            A dataset over all samples, each with weight 1, at position 0.

        Raises:
            CacheNotFoundError: If there is no complete cache in a folder.
            CacheCorruptError: If a file is not what the manifest says.
            CacheIOError: If a file cannot be read.
            CacheVersionError: If a cache has another format version.
            ConfigError: If an argument is of a wrong type, no path is given, or the same
                cache is given twice.
            MetadataError: If the caches' columns do not agree in names, order and kinds.
        """
        _expect(reader_config, ReaderConfig, "reader_config")
        if isinstance(paths, (str, os.PathLike)):
            paths = [paths]
        core = self._core.open(
            [_path(path, "paths") for path in paths],
            seed=reader_config.seed,
            shuffle=reader_config.shuffle,
            replacement=reader_config.replacement,
            prefetch_size=reader_config.prefetch_size,
            prefetch_bytes=reader_config.prefetch_bytes,
            validate_cache=reader_config.validate_cache,
            verify_reads=reader_config.verify_reads,
            io=reader_config.io,
        )
        return CachedDataset._over(core)

    def content_digest(self, source: CacheSource, *, on_error: str = "fail") -> str:
        """Compute the content digest that the source's cache would have, without writing it.

        Two sources have the same digest exactly when they have the same name, columns
        and samples, however they would be stored. It reads the whole source.

        Args:
            source: One source.
            on_error: As in `WriterConfig`: "fail" or "skip".

        Returns:
            64 hexadecimal digits; a cache's own stands in its manifest.

        Raises:
            SourceError: If a sample is refused, there is none, or the source's own code
                raised, which is the `__cause__` then.
            ConfigError: If an argument is wrong, or the source's name, `attributes` or
                `metadata_schema` cannot be a cache's.
        """
        if on_error not in ("fail", "skip"):
            raise ConfigError(f'on_error must be "fail" or "skip", got {on_error!r}')
        named = _named(source)
        if len(named) != 1:
            names = _shortened([name for name, _ in named])
            raise ConfigError(f"source must be one source, got {len(named)}, {names}; call it for each of them")
        [(name, source)] = named
        return self._core.content_digest(source, name, schema=_schema(source, name), skip=on_error == "skip")

    def _write(
        self,
        name: str,
        source: CacheSource,
        root: Path,
        config: WriterConfig,
        progress: WriteProgress,
        *,
        reuse: bool,
    ) -> CacheWriteResult:
        report = _Report()
        try:
            result = self._write_or_reuse(name, source, root, config, progress, report, reuse=reuse)
        except DatasetRTError as error:
            # Only what is wrong with this source or its cache: what a signal's handler raises goes on to the caller.
            return CacheWriteError(
                name,
                str(error),
                samples=report.samples,
                skipped=report.skipped,
                first_errors=report.first_errors,
                error=error,
            )
        progress.finish()
        return result

    def _write_or_reuse(
        self,
        name: str,
        source: CacheSource,
        root: Path,
        config: WriterConfig,
        progress: WriteProgress,
        report: _Report,
        *,
        reuse: bool,
    ) -> CacheWriteSuccess:
        found = self._core.find_published(root, name)
        if found is None:
            progress.start(name, _length(source))
            told: set[str] = set()

            def waiting(holder: str) -> None:
                if holder not in told:
                    told.add(holder)
                    # For logs: the display below is quiet where standard error is no terminal.
                    _LOGGER.info("%s: waiting for %s, which writes this cache", name, holder)
                progress.waiting(name, holder)

            found, reused, samples, skipped, first_errors, error = self._core.write_cache(
                source,
                root,
                name,
                attributes=_attributes(source, name),
                schema=_schema(source, name),
                algo=config.shard_compression.algo,
                level=config.shard_compression.level,
                max_shard_bytes=config.max_shard_bytes,
                prefetch_size=config.prefetch_size,
                prefetch_bytes=config.prefetch_bytes,
                validate=config.validate_cache,
                skip=config.on_error == "skip",
                progress=progress.update,
                waiting=waiting,
            )
            report.samples, report.skipped, report.first_errors = samples, skipped, tuple(first_errors)
            if error is not None:
                raise error
            if found is not None and not reused:
                return CacheWriteSuccess(
                    name, found, samples=samples, skipped=skipped, first_errors=report.first_errors
                )
        if found is None:
            raise DatasetRTError(f"internal error of dataset-rt, please report it: no cache and no error for {name!r}")
        if not reuse:
            raise CacheExistsError(
                f"a cache is already at {found}; remove the folder or give the source another name", path=found
            )
        opened = self._open_one(found, validate=config.validate_cache)
        return CacheWriteSuccess(name, Path(found), samples=opened.rows, reused=True)

    def _open_one(self, path: str | os.PathLike[str], *, validate: bool) -> _core.Dataset:
        defaults = ReaderConfig()
        return self._core.open(
            [Path(path)],
            seed=0,
            shuffle=False,
            replacement=True,
            prefetch_size=defaults.prefetch_size,
            prefetch_bytes=defaults.prefetch_bytes,
            validate_cache=validate,
            verify_reads=True,
            io=defaults.io,
        )


class _Report:
    """How far a write came, for the result of one that failed."""

    samples: int = 0
    skipped: int = 0
    first_errors: tuple[str, ...] = ()


def _checked(
    sources: CacheSource | Sequence[CacheSource],
    path: str | os.PathLike[str],
    writer_config: WriterConfig,
) -> tuple[list[tuple[str, CacheSource]], Path]:
    _expect(writer_config, WriterConfig, "writer_config")
    return _named(sources), _path(path, "path")


def _named(sources: object) -> list[tuple[str, CacheSource]]:
    """The sources with their names, each of which stands once."""
    single = isinstance(sources, (str, bytes)) or hasattr(type(sources), "name") or not isinstance(sources, Iterable)
    named_itself = single or "name" in getattr(sources, "__dict__", {})
    several: Any = [sources] if named_itself else sources
    named: list[tuple[str, CacheSource]] = []
    for source in several:
        if isinstance(source, (CacheInput, SkippedInput)):
            raise ConfigError(
                f"sources must be sources, not their samples, got {_shortened(source)}; "
                "give the samples a class with a name and __iter__"
            )
        try:
            name = getattr(source, "name", None)
        except Exception as error:
            raise ConfigError(f"a source's name must be readable, but {_shortened(source)} raised: {error}") from error
        if not isinstance(name, str):
            raise ConfigError(f"a source must have a name that is a str, got {name!r} from {_shortened(source)}")
        if not hasattr(source, "__iter__"):
            raise ConfigError(f"a source must have __iter__, got {_shortened(source)}")
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ConfigError(f"a source's name must be text that UTF-8 can hold, got {name!r}") from None
        if any(name == known for known, _ in named):
            raise ConfigError(f"each source must have a name of its own, got {name!r} twice")
        named.append((name, source))
    if not named:
        raise ConfigError("sources must be at least one source, got none")
    return named


@contextmanager
def _asking(source_name: str, attribute: str) -> Iterator[None]:
    """What the source's own code raises here fails this source, and not the call with all the others."""
    try:
        yield
    except DatasetRTError:
        raise
    except Exception as error:
        raised = _shortened(error)
        message = f"source {source_name!r}: {attribute} that can be read expected, but reading it raised {raised}"
        raise SourceError(message, source_name=source_name) from error


def _optional(source: CacheSource, attribute: str) -> Any:
    """An attribute that a source may have, or None."""
    try:
        return getattr(source, attribute)
    except AttributeError:
        # A property that fails by an AttributeError of its own must not pass for one that is not there.
        if hasattr(type(source), attribute):
            raise
        return None


def _attributes(source: CacheSource, source_name: str) -> dict[str, str]:
    with _asking(source_name, "attributes"):
        attributes = _optional(source, "attributes")
        if attributes is not None and not isinstance(attributes, Mapping):
            raise ConfigError(f"attributes must be a mapping from str to str, got {_shortened(attributes)}")
        copied = dict(attributes or {})
    for key, value in copied.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise ConfigError(f"attributes must be a mapping from str to str, got {key!r}: {_shortened(value)}")
        try:
            (key + value).encode()
        except UnicodeEncodeError:
            raise ConfigError(
                f"attributes must be text that UTF-8 can hold, got {key!r}: {_shortened(value)}"
            ) from None
    return copied


def _schema(source: CacheSource, source_name: str) -> list[tuple[str, str]] | None:
    with _asking(source_name, "metadata_schema"):
        schema = _optional(source, "metadata_schema")
        if schema is None:
            return None
        if not isinstance(schema, Mapping):
            raise ConfigError(f"metadata_schema must be a Polars schema, got {_shortened(schema)}")
        columns = dict(schema)
    kinds: list[tuple[str, str]] = []
    for column, dtype in columns.items():
        kind = kind_of(dtype)
        if not isinstance(column, str) or kind is None:
            kinds_named = 'Boolean, Int64, Float64, String, Date or Datetime("us")'
            raise ConfigError(f"metadata_schema: {column!r} must be {kinds_named}, got {dtype!r}")
        kinds.append((column, kind))
    return kinds


def _length(source: CacheSource) -> int | None:
    """The length that the source gives, which serves the display alone: none where asking for it fails."""
    try:
        return len(source)  # type: ignore[arg-type]  # sources without a length are the point
    except Exception:  # noqa: BLE001  # whatever its __len__ raises
        return None


def _path(path: object, argument: str) -> Path:
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigError(f"{argument} must be a path, got {_shortened(path)}")
    named = os.fspath(path)
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{argument} must be a path of text, got {named!r}")
    return Path(named)


def _expect(value: object, kind: type, argument: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(f"{argument} must be a {kind.__name__}, got {_shortened(value)}")


def _shortened(value: object) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001  # a broken repr must not hide what is being said of the value
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:80]}…"
