"""Errors of loader workers, so that the parent raises what the worker raised.

A DataLoader sends the type and the text of a worker's exception, and makes the parent's
exception of them by calling the type with the text. That fails for a type that takes
more, and loses every attribute. Here the type that is sent carries the error itself.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data import get_worker_info

from dataset_rt import DatasetRTError

__all__ = ["errors_reach_the_parent"]


class _Carrier(type):
    """Type of an error's type; calling the latter gives the error that it carries."""

    error: DatasetRTError

    def __call__(cls, *args: Any, **_: Any) -> Any:
        error = cls.error
        # The text holds the worker's traceback.
        if args and hasattr(error, "add_note"):
            error.add_note(str(args[0]))
        return error


def _carrier(error: DatasetRTError) -> _Carrier:
    kind = type(error)
    return _Carrier(kind.__name__, (kind,), {"error": error, "__module__": kind.__module__, "__doc__": kind.__doc__})


def _reduce(carrier: _Carrier) -> tuple[Any, ...]:
    return _carrier, (carrier.error,)


copyreg.pickle(_Carrier, _reduce)


@contextmanager
def errors_reach_the_parent() -> Iterator[None]:
    """In a worker process, raise this package's errors such that a DataLoader hands them on whole."""
    try:
        yield
    except DatasetRTError as error:
        if get_worker_info() is None:
            raise
        # The constructors of the errors take more than `args`, and calling a carrier makes nothing new.
        carrier: Any = _carrier(error)
        raised = carrier.__new__(carrier)
        raised.args = error.args
        raised.__dict__.update(error.__dict__)
        raise raised.with_traceback(error.__traceback__) from error.__cause__
