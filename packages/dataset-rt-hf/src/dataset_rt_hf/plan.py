"""Everything that says how a dataset's rows become samples, in a form that travels to other processes."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import datasets
import pyarrow as pa

import dataset_rt as drt
from dataset_rt_hf.codecs import ArrowCodec, MsgpackCodec, RawCodec, make_codec
from dataset_rt_hf.features import features_from_text, has_media
from dataset_rt_hf.media import MissingFileError, TooManyBytesError, embed_files
from dataset_rt_hf.message import storage_schema
from dataset_rt_hf.table_columns import TableColumn

__all__ = ["Encoded", "Plan", "cache_plans"]

_VERSION = "1"
_EMBEDDED_AT_ONCE = 64
"""Rows whose files are in memory together."""


@dataclass(frozen=True)
class Encoded:
    """A batch of samples.

    Attributes:
        payloads: One a row.
        metadata: One mapping a row.
        reads_files: Whether a file outside the dataset was read for it.
    """

    payloads: Sequence[bytes]
    metadata: Sequence[dict[str, Any]]
    reads_files: bool


@dataclass(frozen=True)
class Plan:
    """How rows become samples.

    Attributes:
        features_text: The features as JSON.
        codec_name: "raw", "msgpack" or "arrow".
        columns: The metadata table's columns.
    """

    features_text: str
    codec_name: str
    columns: tuple[TableColumn, ...]

    def __getstate__(self) -> dict[str, Any]:
        """Only what was given travels."""
        return {name: self.__dict__[name] for name in ("features_text", "codec_name", "columns")}

    @cached_property
    def features(self) -> datasets.Features:
        """The dataset's features."""
        return features_from_text(self.features_text)

    @cached_property
    def schema(self) -> pa.Schema:
        """The payloads' schema."""
        return storage_schema(self.features.arrow_schema)

    @cached_property
    def codec(self) -> RawCodec | MsgpackCodec | ArrowCodec:
        """What writes and reads payloads.

        Raises:
            ConfigError: If the codec cannot hold the features.
        """
        return make_codec(self.codec_name, self.schema)

    @cached_property
    def _has_media(self) -> bool:
        return any(has_media(feature) for feature in self.features.values())

    def attributes(self, key: str | None) -> dict[str, str]:
        """What the manifest keeps: enough to read the payloads without the dataset."""
        schema = base64.b64encode(self.schema.serialize().to_pybytes()).decode()
        names = {column.name: column.source for column in self.columns}
        return {
            "hf.version": _VERSION,
            "hf.codec": self.codec_name,
            "hf.features": self.features_text,
            "hf.schema": schema,
            "hf.columns": json.dumps(names, ensure_ascii=False),
            **({} if key is None else {"hf.key": key}),
        }

    def encode(self, table: pa.Table, first_row: int, source_name: str) -> Encoded:
        """Make samples of rows.

        Args:
            table: Rows in the features' schema.
            first_row: Number of the first of them, for messages.
            source_name: The source, for messages.

        Raises:
            SourceError: If a file is missing, or a value cannot be stored as the plan says.
        """
        payloads: list[bytes] = []
        metadata: list[dict[str, Any]] = []
        reads_files = False
        for whole in table.to_batches():
            size = _EMBEDDED_AT_ONCE if self._has_media else max(1, whole.num_rows)
            for start in range(0, whole.num_rows, size):
                batch = whole.slice(start, size)
                metadata.extend(self._metadata(batch, first_row + len(payloads), source_name))
                for embedded, read in self._embedded(batch, first_row + len(payloads), source_name):
                    reads_files |= read
                    payloads.extend(self._payloads(embedded, first_row + len(payloads), source_name))
        return Encoded(payloads, metadata, reads_files)

    def _embedded(self, batch: pa.RecordBatch, row: int, source_name: str) -> Iterator[tuple[pa.RecordBatch, bool]]:
        """Rows with the bytes of their files, as many at once as may be, and whether files were read for them."""
        try:
            embedded = embed_files(batch, self.features)
        except TooManyBytesError:
            half = batch.num_rows // 2
            yield from self._embedded(batch.slice(0, half), row, source_name)
            yield from self._embedded(batch.slice(half), row + half, source_name)
        except MissingFileError as error:
            raise drt.SourceError(
                f"source {source_name!r}, sample {row + error.row}, column {error.column!r}: a file that can "
                f"be read expected, but {error.path!r} cannot ({error.reason}); restore the file, or load the "
                "dataset where its files are",
                source_name=source_name,
                sample=row + error.row,
                field=error.column,
            ) from error
        else:
            yield embedded

    def _payloads(self, batch: pa.RecordBatch, row: int, source_name: str) -> Sequence[bytes]:
        try:
            return self.codec.encode(batch)
        except (ValueError, OverflowError) as error:
            place = _first_refused(batch, self.codec.encode)
            raise drt.SourceError(
                f"source {source_name!r}, sample {row + place}: a row that codec={self.codec_name!r} holds expected, "
                f"but: {error}",
                source_name=source_name,
                sample=row + place,
            ) from error

    def _metadata(self, batch: pa.RecordBatch, row: int, source_name: str) -> list[dict[str, Any]]:
        if not self.columns:
            return [{}] * batch.num_rows
        values = []
        for column in self.columns:
            array = batch.column(batch.schema.get_field_index(column.source))
            try:
                values.append(column.values(array))
            except (ValueError, OverflowError, IndexError) as error:
                place = _first_refused(array, column.values)
                raise drt.SourceError(
                    f"source {source_name!r}, sample {row + place}, column {column.source!r}: a value that the "
                    f"metadata table holds as {column.dtype} expected, found {_shown(array[place])} ({error}); leave "
                    "the column to the payload by metadata_columns=[...] without it",
                    source_name=source_name,
                    sample=row + place,
                    field=column.source,
                ) from error
        names = [column.name for column in self.columns]
        return [dict(zip(names, row_values, strict=True)) for row_values in zip(*values, strict=True)]


def _shown(value: pa.Scalar) -> str:
    try:
        return str(value)
    except (ValueError, OverflowError):
        return "one that Python has no value for"


def _first_refused(rows: Any, convert: Any) -> int:
    for row in range(len(rows)):
        try:
            convert(rows.slice(row, 1))
        except (ValueError, OverflowError, IndexError):  # noqa: PERF203
            return row
    return 0


def cache_plans(dataset: drt.CachedDataset) -> dict[int, Plan]:
    """The plan of each cache of a dataset, by `cache_id`.

    Raises:
        ConfigError: If a cache was not imported by this package, or by a later version of it.
    """
    plans = {}
    for cache in dataset.caches.iter_rows(named=True):
        attributes = {entry["key"]: entry["value"] for entry in cache["attributes"]}
        plans[cache["cache_id"]] = plan_from_attributes(attributes, str(cache["path"]))
    return plans


def plan_from_attributes(attributes: Mapping[str, str], path: str) -> Plan:
    """The plan that a cache was written by, without its table's columns.

    Raises:
        ConfigError: As in `cache_plans`.
    """
    version = attributes.get("hf.version")
    if version is None:
        raise drt.ConfigError(
            f"the cache must be imported by dataset_rt_hf.import_dataset, got {path}; decode its payloads yourself"
        )
    if version != _VERSION:
        raise drt.ConfigError(
            f"the cache's encoding must be version {_VERSION}, got {version} in {path}; update dataset-rt-hf"
        )
    return Plan(attributes["hf.features"], attributes["hf.codec"], ())
