"""A Hugging Face dataset as a source of samples."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TypeAlias

import datasets
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

import dataset_rt as drt
from dataset_rt_hf.codecs import ArrowCodec, automatic_codec, is_raw
from dataset_rt_hf.features import text_of_features
from dataset_rt_hf.message import storage_schema
from dataset_rt_hf.parallel import check_guarded, encode_all
from dataset_rt_hf.plan import Plan
from dataset_rt_hf.streams import DriftError, UntypedError, conform, stream_tables, unified_features
from dataset_rt_hf.table_columns import JUDGED_ROWS, choose_columns, listed_columns, undecided_columns

__all__ = ["AnyDataset", "HFSource"]

AnyDataset: TypeAlias = "datasets.Dataset | datasets.IterableDataset"

_BATCH_ROWS = 1_000
_BATCH_BYTES = 32 * 1024 * 1024
_COMPARED_ROWS = 100
"""How many rows of two passes over a stream are compared."""


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _samples(first: int, count: int) -> str:
    return f"samples {first} to {first + count - 1}" if count > 1 else f"sample {first}"


class HFSource:
    """A `Dataset` or `IterableDataset` as a `dataset_rt.CacheSource`.

    Formats and transforms are left out: what is stored is what `dataset.with_format(None)`
    holds, in its order after shuffle, select, filter and sort, with all columns. Media keep the
    bytes of their files; files that rows only point to are read.

    Args:
        dataset: What to import. An IterableDataset without features is read twice: once to find
            them. One whose strings must be judged, or without features, must begin with the same rows
            each time it is read.
        name: Name of the source, and of its cache.
        metadata_columns: "auto": bools, numbers, dates, timestamps and class labels, and strings
            that have at most 64 bytes in the first 10,000 rows. Otherwise columns by name, None
            for none. See `import_dataset`.
        class_names: Whether each ClassLabel gets a second column, `<column>_name`, of names.
        codec: "auto", "raw", "msgpack" or "arrow"; see `import_dataset`.
        key: Kept in the manifest, for `import_dataset`.
        num_proc: How many processes encode, at least 1.

    Raises:
        ConfigError: If an argument breaks its rule.
    """

    def __init__(
        self,
        dataset: AnyDataset,
        name: str,
        *,
        metadata_columns: str | Iterable[str] | None = "auto",
        class_names: bool = False,
        codec: str = "auto",
        key: str | None = None,
        num_proc: int = 1,
    ) -> None:
        if not isinstance(dataset, (datasets.Dataset, datasets.IterableDataset)):
            kind = type(dataset).__name__
            raise drt.ConfigError(f"dataset must be a Dataset or an IterableDataset, got a {kind}")
        if not isinstance(name, str):
            raise drt.ConfigError(f"name must be a str, got {name!r}")
        if not _is_count(num_proc):
            raise drt.ConfigError(f"num_proc must be an integer of at least 1, got {num_proc!r}")
        if num_proc > 1:
            check_guarded()
        if not isinstance(class_names, bool):
            raise drt.ConfigError(f"class_names must be True or False, got {class_names!r}")
        if key is not None and not isinstance(key, str):
            raise drt.ConfigError(f"key must be a str or None, got {key!r}")
        self.name = name
        self.dataset = dataset
        self.reads_files = False
        """Whether the last pass read files that rows point to."""
        self._asked = listed_columns(metadata_columns)
        self._class_names = class_names
        self._codec = codec
        self._key = key
        self._num_proc = num_proc
        self._beginning: str | None = None
        if dataset.features is not None:
            # Refused arguments show here, and not in the midst of writing.
            self._check(dataset.features)

    def _check(self, features: datasets.Features) -> None:
        longest = dict.fromkeys(undecided_columns(features, self._asked), 0)
        columns = choose_columns(features, self._asked, longest=longest, class_names=self._class_names)
        if self._codec != "auto":
            _ = Plan(text_of_features(features), self._codec, columns).codec

    @cached_property
    def plan(self) -> Plan:
        """How the rows become samples; looks at the first 10,000 of them where strings must be judged.

        Raises:
            SourceError: If a stream's types change.
            ConfigError: If the codec or the columns do not go with the features.
        """
        features = self.dataset.features
        if features is None:
            features = self._found_features()
        plan = Plan(text_of_features(features), "arrow", ())
        columns = choose_columns(
            plan.features, self._asked, longest=self._longest_strings(plan), class_names=self._class_names
        )
        codec = self._automatic_codec(plan) if self._codec == "auto" else self._codec
        chosen = Plan(plan.features_text, codec, columns)
        _ = chosen.codec
        return chosen

    @property
    def metadata_schema(self) -> dict[str, pl.DataType]:
        """The kinds of the table's columns, which hold though all of a column is null."""
        return {column.name: column.dtype for column in self.plan.columns}

    @property
    def attributes(self) -> dict[str, str]:
        """Codec, schema and features, kept beside the samples."""
        return self.plan.attributes(self._key)

    def __len__(self) -> int:
        """Number of rows, for the progress display.

        Raises:
            TypeError: If the dataset is a stream.
        """
        if isinstance(self.dataset, datasets.IterableDataset):
            raise TypeError("an IterableDataset has no length")
        return len(self.dataset)

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the rows in the dataset's order.

        Raises:
            SourceError: If a file is missing, a value cannot be stored, a stream's types change, it
                raises or it begins with other rows than in the pass before, or there is no row.
        """
        self.reads_files = False
        found_any = False
        for _, encoded in encode_all(self._tables(self.plan), self.plan, self.name, num_proc=self._num_proc):
            self.reads_files |= encoded.reads_files
            found_any |= len(encoded.payloads) > 0
            yield from map(drt.CacheInput, encoded.payloads, encoded.metadata)
        if not found_any:
            raise self._without_rows()

    # -- reading tables ------------------------------------------------------------

    def _raw_tables(self, dataset: AnyDataset) -> Iterator[pa.Table]:
        if isinstance(dataset, datasets.IterableDataset):
            yield from self._pass_over(dataset)
            return
        table = dataset.data
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * max(1, len(table)) // max(1, table.nbytes)))
        # "arrow" takes the place of any format, transform and choice of columns.
        yield from dataset.with_format("arrow").iter(rows)

    def _pass_over(self, stream: datasets.IterableDataset) -> Iterator[pa.Table]:
        """The tables of a stream, which must begin as in the pass before: an iterator that is used up would not."""
        row, begun = 0, False
        try:
            for table in stream_tables(stream, _BATCH_ROWS):
                if not begun:
                    self._check_beginning(table)
                begun = True
                yield table
                row += table.num_rows
            if not begun:
                self._check_beginning(None)
        except DriftError as error:
            raise self._drifted(error.row, error.column, error.before, error.after) from None
        except UntypedError as error:
            raise drt.SourceError(
                f"source {self.name!r}, {_samples(error.row, error.count)}, column {error.column!r}: values of one "
                f"type expected, but: {error.reason}; give the IterableDataset the features= that its values have",
                source_name=self.name,
                sample=error.row,
                field=error.column,
            ) from error
        except drt.DatasetRTError:
            raise
        except Exception as error:
            raise drt.SourceError(
                f"source {self.name!r}, samples {row} to at most {row + _BATCH_ROWS - 1}: rows expected, but the "
                f"stream raised {type(error).__name__}: {error}",
                source_name=self.name,
                sample=row,
            ) from error

    def _check_beginning(self, table: pa.Table | None) -> None:
        digest = hashlib.sha256()
        if table is not None:
            digest.update(repr(table.column_names).encode())
            for batch in table.slice(0, _COMPARED_ROWS).combine_chunks().to_batches():
                for payload in ArrowCodec(storage_schema(batch.schema)).encode(batch):
                    digest.update(payload)
        beginning = digest.hexdigest()
        if self._beginning not in (None, beginning):
            raise drt.SourceError(
                f"source {self.name!r}: a stream that begins with the same rows each time expected, as it is read more "
                "than once, but found others; let its function make a new iterator at each call, or give it features= "
                "and say metadata_columns=, so that one reading is enough",
                source_name=self.name,
            )
        self._beginning = beginning

    def _tables(self, plan: Plan) -> Iterator[tuple[int, pa.Table]]:
        """First row number and rows, in the features' schema."""
        row, schema = 0, plan.features.arrow_schema.remove_metadata()
        for table in self._raw_tables(self.dataset):
            if not table.schema.remove_metadata().equals(schema):
                table = self._conform(table, schema, row)
            # A shuffled view comes in as many chunks as it has rows.
            yield row, table.combine_chunks()
            row += table.num_rows

    def _conform(self, table: pa.Table, schema: pa.Schema, row: int) -> pa.Table:
        try:
            return conform(table, schema)
        except DriftError as error:
            raise self._drifted(row, error.column, error.before, error.after) from None
        except (ValueError, TypeError) as error:
            raise drt.SourceError(
                f"source {self.name!r}, {_samples(row, table.num_rows)}: rows of the dataset's features expected, but: "
                f"{error}",
                source_name=self.name,
                sample=row,
            ) from error

    def _found_features(self) -> datasets.Features:
        try:
            features = unified_features(self._raw_tables(self.dataset))
        except DriftError as error:
            raise self._drifted(error.row, error.column, error.before, error.after) from None
        if features is None:
            raise self._without_rows()
        return features

    def _without_rows(self) -> drt.SourceError:
        return drt.SourceError(
            f"source {self.name!r}: at least one row with a column expected, found none; leave it out",
            source_name=self.name,
        )

    def _drifted(self, row: int, column: str, before: str, after: str) -> drt.SourceError:
        return drt.SourceError(
            f"source {self.name!r}, from sample {row} on, column {column!r}: the type {before} of the samples before "
            f"expected, found {after}; only null may become another type, so give the IterableDataset its features",
            source_name=self.name,
            sample=row,
            field=column,
        )

    # -- looking at rows beforehand ------------------------------------------------

    def _longest_strings(self, plan: Plan) -> dict[str, int]:
        undecided = undecided_columns(plan.features, self._asked)
        if not undecided:
            return {}
        judged = self.dataset
        if isinstance(judged, datasets.Dataset):
            judged = judged.select_columns(undecided).select(range(min(JUDGED_ROWS, len(judged))))
        longest = dict.fromkeys(undecided, 0)
        left = JUDGED_ROWS
        for table in self._raw_tables(judged):
            for name in set(undecided) & set(table.column_names):
                column = table.column(name).slice(0, left)
                if not pa.types.is_null(column.type) and len(column):
                    lengths = pc.binary_length(column.cast(pa.large_string()))
                    longest[name] = max(longest[name], pc.max(lengths).as_py() or 0)
            left -= table.num_rows
            if left <= 0:
                break
        return longest

    def _automatic_codec(self, plan: Plan) -> str:
        schema = storage_schema(plan.features.arrow_schema)
        if (
            len(schema) == 1
            and is_raw(schema.types[0])
            and isinstance(self.dataset, datasets.Dataset)
            and not self._has_nulls(self.dataset)
        ):
            return "raw"
        return automatic_codec(schema)

    def _has_nulls(self, dataset: datasets.Dataset) -> bool:
        if dataset.data.column(0).null_count == 0:
            return False
        # The dataset may be a view that leaves the nulls out.
        return any(table.column(0).null_count for table in self._raw_tables(dataset))
