"""What a source of samples looks like, and what it yields."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np

__all__ = ["CacheInput", "CacheSource", "MetadataValue", "Payload", "SkippedInput"]

Payload: TypeAlias = bytes | bytearray | memoryview
"""A sample's bytes. Views may be strided; they are taken in C order."""

MetadataValue: TypeAlias = bool | int | float | str | datetime.date | datetime.datetime | np.generic | None
"""One metadata value. A NumPy scalar is taken as its Python kind."""


class CacheInput(NamedTuple):
    """One sample that a source yields.

    Attributes:
        data: The payload, stored and given back byte for byte. One buffer may serve
            for all samples: of a bytearray or a view a copy is taken at once, and
            the source's iterator goes on only after that.
        metadata: Column name to value; the same names on every sample. They
            become the columns of the metadata table, in the first sample's order.
            Integers must fit in 64 bits with sign; datetimes have no zone and are
            exact in microseconds. `cache_id`, `sample_id`, `weight` and `data` are
            reserved.
    """

    data: Payload
    metadata: Mapping[str, MetadataValue]


@dataclass(frozen=True)
class SkippedInput:
    """Says that the source leaves a broken sample out.

    With `WriterConfig(on_error="skip")` it is counted and the ids of the other
    samples stay dense; with `on_error="fail"` it fails the source.

    Attributes:
        reason: Why the sample is left out; the first few are reported.
    """

    reason: str


@runtime_checkable
class CacheSource(Protocol):
    """A named iterable of samples; any class with these two members is one.

    Two more attributes are read where a source has them: `metadata_schema`, a
    Polars schema that fixes the columns' kinds beforehand, and `attributes`, a
    mapping from str to str that the cache keeps beside the samples. `__len__`, if
    there is one, serves the progress display only.

    The name is the cache's folder and part of its identity: 1 to 200 bytes of
    UTF-8 in NFC, one path segment that neither begins with a dot nor ends with
    one or a space.
    """

    @property
    def name(self) -> str:
        """Name of the source, and of its cache."""

    def __iter__(self) -> Iterator[CacheInput | SkippedInput]:
        """Yield the samples in the order in which they are numbered."""
