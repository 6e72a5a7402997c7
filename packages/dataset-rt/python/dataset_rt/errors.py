"""The exceptions of dataset_rt.

All of them derive from `DatasetRTError`. They are ordinary Python classes, so
that one can also be a `ValueError` or an `OSError`, and all of them survive
`pickle` and `copy` with type, message, attributes and notes, and with their cause
if that one can be pickled: an error in a loader's worker process reaches the parent
as what it was.
"""

from __future__ import annotations

import errno as _errno
import os
import pickle
from pathlib import Path
from typing import Any

__all__ = [
    "CacheCorruptError",
    "CacheExistsError",
    "CacheIOError",
    "CacheNotFoundError",
    "CacheVersionError",
    "ConfigError",
    "DatasetRTError",
    "MetadataError",
    "SourceError",
    "StateMismatchError",
]

# An OSError keeps these in its C structure, not in `__dict__`.
_SYSTEM_FIELDS = ("errno", "strerror", "filename", "filename2")
_CAUSE = "_pickled_cause"


def _restore(kind: type[DatasetRTError], args: tuple[Any, ...]) -> DatasetRTError:
    """Make an exception without its constructor; pickle then fills in the state."""
    error = kind.__new__(kind, *args)
    # OSError leaves `args` to its own constructor, which is not called here.
    error.args = args
    return error


class DatasetRTError(Exception):
    """Base of every exception of this package.

    Args:
        message: What went wrong: which value, which rule, what to do.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)

    def __str__(self) -> str:
        """The message alone (an OSError would put its number and path around it)."""
        return str(self.args[0]) if self.args else ""

    def __reduce__(self) -> tuple[Any, ...]:
        """Rebuild from the attributes, so that no subclass's constructor matters."""
        state = dict(self.__dict__)
        if isinstance(self, OSError):
            for name in _SYSTEM_FIELDS:
                value = getattr(self, name, None)
                if value is not None:
                    state[name] = value
        notes = state.get("__notes__")
        if isinstance(notes, list):
            # A copy that gets a note must not add it to the original.
            state["__notes__"] = list(notes)
        if self.__cause__ is not None:
            # As bytes of its own: a cause that cannot be pickled, or made again in a process that lacks its class, must
            # not keep the error from travelling.
            try:
                state[_CAUSE] = pickle.dumps(self.__cause__)
            except Exception:  # noqa: BLE001  # whatever the cause's own code raises
                state.pop(_CAUSE, None)
        return _restore, (type(self), self.args), state

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        """Take the attributes, and the cause if this process can make it."""
        attributes = dict(state or {})
        pickled = attributes.pop(_CAUSE, None)
        super().__setstate__(attributes)
        if isinstance(pickled, bytes):
            try:
                cause = pickle.loads(pickled)
            except Exception:  # noqa: BLE001  # whatever the cause's own code raises
                return
            if isinstance(cause, BaseException):
                self.__cause__ = cause


class ConfigError(DatasetRTError, ValueError):
    """An argument or a configuration's field is outside its rule."""


class MetadataError(DatasetRTError, ValueError):
    """A metadata table breaks a rule, or caches do not go together."""


class CacheNotFoundError(DatasetRTError, FileNotFoundError):
    """There is no complete cache at a path.

    Args:
        message: What is missing there.
        path: The cache's folder.

    Attributes:
        path: The cache's folder.
    """

    path: Path

    def __init__(self, message: str, *, path: str | os.PathLike[str]) -> None:
        super().__init__(message)
        self.path = Path(path)
        self.errno = _errno.ENOENT
        self.strerror = os.strerror(_errno.ENOENT)
        self.filename = os.fspath(path)


class CacheExistsError(DatasetRTError, FileExistsError):
    """A complete cache is there already, and caches are never overwritten.

    Args:
        message: Which cache it is and what to do.
        path: The cache's folder.

    Attributes:
        path: The cache's folder.
    """

    path: Path

    def __init__(self, message: str, *, path: str | os.PathLike[str]) -> None:
        super().__init__(message)
        self.path = Path(path)
        self.errno = _errno.EEXIST
        self.strerror = os.strerror(_errno.EEXIST)
        self.filename = os.fspath(path)


class CacheIOError(DatasetRTError, OSError):
    """The operating system refused to read or write a cache.

    Args:
        message: Path, operation and the system's reason.
        path: The file or folder.
        operation: What was tried.
        bytes: How many bytes were to be read or written, where that is known.
        errno: The system's error number, where it gave one.

    Attributes:
        path: The file or folder.
        operation: What was tried.
        bytes: How many bytes were to be read or written, or None.
        errno: The system's error number, or None.
        filename: The path as text.
    """

    path: Path
    operation: str
    bytes: int | None

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str],
        operation: str,
        bytes: int | None = None,  # noqa: A002
        errno: int | None = None,
    ) -> None:
        super().__init__(message)
        self.path = Path(path)
        self.operation = operation
        self.bytes = bytes
        self.filename = os.fspath(path)
        if errno is not None:
            self.errno = errno
            self.strerror = os.strerror(errno)


class CacheCorruptError(DatasetRTError):
    """Bytes on disk are not the bytes that were published.

    Args:
        message: File, sample, rule, expected and found value.
        file: The file, or the cache's folder.
        sample: The sample concerned, where one is.
        expected: What must be there.
        found: What is.

    Attributes:
        file: The file, or the cache's folder.
        sample: The sample's id, or None.
        expected: What must be there.
        found: What is.
    """

    file: Path
    sample: int | None
    expected: str
    found: str

    def __init__(
        self,
        message: str,
        *,
        file: str | os.PathLike[str],
        sample: int | None = None,
        expected: str,
        found: str,
    ) -> None:
        super().__init__(message)
        self.file = Path(file)
        self.sample = sample
        self.expected = expected
        self.found = found


class CacheVersionError(DatasetRTError):
    """A file was written in a version of the format that this release does not read.

    Args:
        message: File and versions, and what to do.
        file: The file.
        expected: The version that this release reads.
        found: The version that the file names.

    Attributes:
        file: The file.
        expected: The version that this release reads.
        found: The version that the file names.
    """

    file: Path
    expected: int
    found: int

    def __init__(
        self,
        message: str,
        *,
        file: str | os.PathLike[str],
        expected: int,
        found: int,
    ) -> None:
        super().__init__(message)
        self.file = Path(file)
        self.expected = expected
        self.found = found


class SourceError(DatasetRTError):
    """A source failed, or yielded something that cannot be cached.

    Args:
        message: Source, sample, field, what was expected and what came.
        source_name: Name of the source.
        sample: Number of the sample as the source yields them, from 0, where one
            is concerned.
        field: The metadata field, or `data`, where one is concerned.

    Attributes:
        source_name: Name of the source.
        sample: Number of the sample, or None.
        field: The metadata field, `data`, or None.
    """

    source_name: str
    sample: int | None
    field: str | None

    def __init__(
        self,
        message: str,
        *,
        source_name: str,
        sample: int | None = None,
        field: str | None = None,
    ) -> None:
        super().__init__(message)
        self.source_name = source_name
        self.sample = sample
        self.field = field


class StateMismatchError(DatasetRTError, ValueError):
    """A saved state belongs to another population, seed, mode or version.

    Args:
        message: The field, both values and what to do.
        field: The field of the state.
        expected: The value of this dataset.
        found: The value in the state.

    Attributes:
        field: The field of the state.
        expected: The value of this dataset.
        found: The value in the state.
    """

    field: str
    expected: str
    found: str

    def __init__(self, message: str, *, field: str, expected: str, found: str) -> None:
        super().__init__(message)
        self.field = field
        self.expected = expected
        self.found = found
