"""Putting the bytes of files that rows only point to into the rows.

`datasets` has a function for this. It is not used because it reads files whose bytes are there already for some
features, and names neither the row nor the file when one is missing.
"""

from __future__ import annotations

import os
from typing import Any

import datasets
import pyarrow as pa
import pyarrow.compute as pc
from datasets.utils.file_utils import is_local_path, xopen

from dataset_rt_hf.features import has_media, is_media

__all__ = ["EMBEDDED_BYTES", "MissingFileError", "TooManyBytesError", "embed_files"]

EMBEDDED_BYTES = 256 * 1024 * 1024
"""Bytes of one column that are in memory together, unless a single row has more; Arrow's arrays end at 2 GiB."""


class TooManyBytesError(Exception):
    """The media of several rows are too large to be together."""


class MissingFileError(Exception):
    """A file that a row points to cannot be read.

    Args:
        row: The row's number in the batch.
        column: Name of its column.
        path: The file.
        reason: Why not.
    """

    def __init__(self, row: int, column: str, path: str, reason: str) -> None:
        super().__init__(row, column, path, reason)
        self.row, self.column, self.path, self.reason = row, column, path, reason


def embed_files(batch: pa.RecordBatch, features: datasets.Features) -> tuple[pa.RecordBatch, bool]:
    """Give every medium its bytes, and a path that is a name alone.

    Bytes that are there stay as they are; nothing is decoded.

    Args:
        batch: Rows in the features' schema.
        features: The features of its columns, in order.

    Returns:
        The batch, and whether any file was read.

    Raises:
        MissingFileError: If a file cannot be read.
        TooManyBytesError: If files were read and a column of several rows has more bytes than
            `EMBEDDED_BYTES`; fewer rows at once may do.
    """
    arrays, read_any = [], False
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        if not has_media(features[name]):
            arrays.append(column)
            continue
        embedding = _Embedding(EMBEDDED_BYTES if batch.num_rows > 1 else None)
        try:
            arrays.append(embedding.apply(column, features[name]))
        except (OSError, ValueError) as error:
            row = _first_refused(column, features[name])
            raise MissingFileError(row, name, embedding.path, f"{type(error).__name__}: {error}") from error
        read_any |= embedding.read_any
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names), read_any


def _first_refused(column: pa.Array, feature: Any) -> int:
    for row in range(len(column)):
        try:
            _Embedding().apply(column.slice(row, 1), feature)
        except (OSError, ValueError):  # noqa: PERF203
            return row
    return 0


class _Embedding:
    """One column's media; remembers the file that was read last."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._bytes = 0
        self.path = ""
        self.read_any = False

    def apply(self, array: pa.Array, feature: Any) -> pa.Array:
        if is_media(feature):
            return self._medium(array)
        if isinstance(feature, dict):
            children = [
                self.apply(child, child_feature)
                for child, child_feature in zip(array.flatten(), feature.values(), strict=True)
            ]
            return pa.StructArray.from_arrays(children, names=list(feature), mask=array.is_null())
        if not isinstance(feature, (datasets.List, datasets.LargeList)) or not has_media(feature):
            return array
        if pa.types.is_fixed_size_list(array.type):
            size = array.type.list_size
            values = self.apply(array.values.slice(array.offset * size, len(array) * size), feature.feature)
            return pa.FixedSizeListArray.from_arrays(values, size, mask=array.is_null())
        # flatten() leaves out what lies under nulls; their lists are empty.
        lengths = pc.fill_null(pc.list_value_length(array), 0)
        ends = pc.cumulative_sum(lengths)
        offsets = pa.concat_arrays([pa.array([0], ends.type), ends])
        kind = pa.LargeListArray if pa.types.is_large_list(array.type) else pa.ListArray
        return kind.from_arrays(offsets, self.apply(array.flatten(), feature.feature), mask=array.is_null())

    def _medium(self, array: pa.StructArray) -> pa.StructArray:
        # flatten() counts what lies under a null struct as null.
        fields = dict(zip([child.name for child in array.type], array.flatten(), strict=True))
        stored, paths = fields["bytes"], fields["path"].to_pylist()
        missing = pc.and_(pc.is_null(stored), pc.is_valid(fields["path"]))
        if pc.any(missing).as_py():
            self.read_any = True
            values = []
            for value, path, is_missing in zip(stored.to_pylist(), paths, missing.to_pylist(), strict=True):
                values.append(self._read(path) if is_missing else value)
                self._bytes += len(values[-1] or b"")
                if self._limit is not None and self._bytes > self._limit:
                    raise TooManyBytesError
            stored = pa.array(values, stored.type)
        names = pa.array([None if path is None else _base_name(path) for path in paths], fields["path"].type)
        return pa.StructArray.from_arrays([stored, names], names=["bytes", "path"], mask=array.is_null())

    def _read(self, path: str) -> bytes:
        self.path = path
        # xopen also reads addresses and members of archives, as datasets' own decoding would.
        with open(path, "rb") if is_local_path(path) else xopen(path, "rb") as file:  # noqa: PTH123
            data: bytes = file.read()
        return data


def _base_name(path: str) -> str:
    # In zip://a.png::/folder/b.zip the member comes first.
    return os.path.basename(path.split("::")[0])  # noqa: PTH119
