"""What writing and opening caches gave: values to match on, not exceptions."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from dataset_rt.errors import DatasetRTError

if TYPE_CHECKING:
    from dataset_rt.dataset import CachedDataset

__all__ = [
    "CacheSourcesDatasetError",
    "CacheSourcesDatasetResult",
    "CacheSourcesDatasetSuccess",
    "CacheWriteError",
    "CacheWriteResult",
    "CacheWriteSuccess",
]

# Stands for "no exception was given", so that `error` is never None for its reader.
_NOT_GIVEN: Exception = DatasetRTError("no exception was given")


@dataclass(frozen=True)
class CacheWriteSuccess:
    """A source's cache is complete.

    `case CacheWriteSuccess(source_name, path)` matches by position; the other
    attributes only by keyword.

    Attributes:
        source_name: Name of the source.
        path: The cache's folder.
        samples: How many samples the cache holds.
        skipped: How many the source or the writer left out (0 if reused).
        first_errors: The first few reasons for that, in order.
        reused: Whether the cache was there already and the source not iterated.
    """

    source_name: str
    path: Path
    samples: int = field(default=0, kw_only=True)
    skipped: int = field(default=0, kw_only=True)
    first_errors: tuple[str, ...] = field(default=(), kw_only=True)
    reused: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class CacheWriteError:
    """A source's cache was not written, and nothing of it was left behind.

    `case CacheWriteError(source_name, message)` matches by position; the other
    attributes only by keyword. As text it is its message.

    Attributes:
        source_name: Name of the source.
        message: What went wrong.
        samples: How many samples had been taken when it failed.
        skipped: How many had been left out until then.
        first_errors: The first few reasons for that, in order.
        reused: Always False; there so that all results have the same attributes.
        error: The exception. A `DatasetRTError` with the message if none is given.
            Two results are compared without it.
    """

    source_name: str
    message: str
    samples: int = field(default=0, kw_only=True)
    skipped: int = field(default=0, kw_only=True)
    first_errors: tuple[str, ...] = field(default=(), kw_only=True)
    reused: bool = field(default=False, kw_only=True)
    error: Exception = field(default=_NOT_GIVEN, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Make an exception of the message where none is given."""
        if self.error is _NOT_GIVEN:
            object.__setattr__(self, "error", DatasetRTError(self.message))

    def __str__(self) -> str:
        return self.message


CacheWriteResult: TypeAlias = CacheWriteSuccess | CacheWriteError
"""What became of one source."""


class _NotYetADataset:
    """Says what to do to those who take a result for its dataset."""

    # Type checkers know the attributes, and shall go on refusing others.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}; the dataset is what its unwrap() gives",
                name=name,
                obj=self,
            )


@dataclass(frozen=True)
class CacheSourcesDatasetSuccess(_NotYetADataset):
    """Every cache that was asked for is complete and open.

    Matches by keyword and by position.

    Attributes:
        dataset: The dataset over all caches that succeeded, in input order.
        results: One result a source, in input order. With `allow_partial=True`
            there may be errors among them.
    """

    dataset: CachedDataset
    results: list[CacheWriteResult]

    def unwrap(self) -> CachedDataset:
        """The dataset, so that `from_cache_sources(...).unwrap()` works on every result."""
        return self.dataset


@dataclass(frozen=True)
class CacheSourcesDatasetError(_NotYetADataset):
    """At least one source failed, or the caches could not be opened together.

    Matches by keyword and by position. As text it is its message, so it can be
    handed to an exception.

    Attributes:
        results: One result a source, in input order. Caches that were finished
            stay, and are reused the next time.
        message: What went wrong.
        error: The exception that `unwrap` raises: by default the first failed
            result's. Two results are compared without it.
    """

    results: list[CacheWriteResult]
    message: str
    error: Exception = field(default=_NOT_GIVEN, kw_only=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Take the first failure as the exception if none is given."""
        if self.error is _NOT_GIVEN:
            failures = (result.error for result in self.results if isinstance(result, CacheWriteError))
            object.__setattr__(self, "error", next(failures, DatasetRTError(self.message)))

    def __str__(self) -> str:
        return self.message

    def unwrap(self) -> NoReturn:
        """Raise the first failure.

        Raises:
            DatasetRTError: `error`. What a source's own code raised is the `__cause__`
                of a `SourceError`.
        """
        raise self.error


CacheSourcesDatasetResult: TypeAlias = CacheSourcesDatasetSuccess | CacheSourcesDatasetError
"""What `from_cache_sources` gives."""
