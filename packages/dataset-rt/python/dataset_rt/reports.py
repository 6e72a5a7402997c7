"""What the commands say about a cache: as values for JSON, and as text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from dataset_rt import _core
from dataset_rt.config import ReaderConfig
from dataset_rt.dataset import CachedDataset
from dataset_rt.errors import CacheCorruptError, DatasetRTError
from dataset_rt.runtime import DatasetRuntime

__all__ = [
    "counted",
    "head",
    "info",
    "printable",
    "show_head",
    "show_info",
    "show_stats",
    "show_verify",
    "stats",
    "verify",
]

_PREVIEW_BYTES = 16
_MOST_CHARACTERS = 40
_MOST_COMMON = 3
_MOST_FAULTS = 1_000


def info(path: Path) -> dict[str, Any]:
    """What the manifest says, of a cache that can be opened."""
    manifest = json.loads(_core.manifest(path))
    return {
        "path": str(path),
        "name": manifest["source_name"],
        # Text: many readers of JSON round integers from 2**53 on.
        "cache_id": str(int(manifest["cache_id"], 16)),
        "content_digest": manifest["content_digest"],
        "format_version": manifest["format_version"],
        "writer": manifest["writer"],
        "samples": manifest["samples"],
        "payload_bytes": manifest["payload_bytes"],
        "stored_bytes": manifest["stored_bytes"],
        "max_payload_bytes": manifest["max_payload_bytes"],
        "file_bytes": sum(file["bytes"] for file in manifest["files"].values()),
        "shards": len(manifest["files"]) - 2,
        "codec": manifest["codec"],
        "columns": manifest["columns"],
        "attributes": manifest["attributes"],
    }


def show_info(cache: dict[str, Any]) -> str:
    """The lines of `info`."""
    codec = cache["codec"]
    level = "" if codec["level"] is None else f", level {codec['level']}"
    rows = [
        ("cache_id", cache["cache_id"]),
        ("content digest", cache["content_digest"]),
        ("written by", f"{cache['writer']}, format {cache['format_version']}"),
        ("samples", f"{cache['samples']:,}"),
        ("payload", f"{_size(cache['payload_bytes'])}, the longest {_size(cache['max_payload_bytes'])}"),
        ("stored", f"{_size(cache['stored_bytes'])}, codec {codec['algo']}{level}"),
        ("files", f"{_size(cache['file_bytes'])}, {counted(cache['shards'], 'shard')}"),
    ]
    rows += [(f"attribute {_short(key)}", _short(value)) for key, value in cache["attributes"].items()]
    lines = [printable(cache["path"]), *_table(rows)]
    if cache["columns"]:
        lines.append("")
        columns = [(_short(column["name"]), column["kind"], _yes(column["has_nulls"])) for column in cache["columns"]]
        lines += _table([("column", "kind", "nulls"), *columns])
    return "\n".join(lines)


def head(path: Path, count: int) -> dict[str, Any]:
    """The first samples of a cache."""
    dataset = _open(path)
    samples = dataset.read(range(min(count, len(dataset))))
    return {
        "path": str(path),
        "samples": [
            {
                "sample_id": sample.sample_id,
                "metadata": {key: _jsonable(value) for key, value in sample.metadata.items()},
                "payload_bytes": len(sample.data),
                "payload_begins": sample.data[:_PREVIEW_BYTES].hex(),
            }
            for sample in samples
        ],
    }


def show_head(cache: dict[str, Any]) -> str:
    """The table of `head`."""
    samples = cache["samples"]
    header = ("sample_id", *map(_short, samples[0]["metadata"]), "bytes", "payload begins")
    rows = [
        (
            str(sample["sample_id"]),
            *map(_short, sample["metadata"].values()),
            f"{sample['payload_bytes']:,}",
            sample["payload_begins"],
        )
        for sample in samples
    ]
    return "\n".join([printable(cache["path"]), *_table([header, *rows])])


def stats(path: Path) -> dict[str, Any]:
    """A summary of every metadata column and of the payloads' sizes."""
    table = _open(path).get_metadata()
    names = [name for name in table.columns if name not in ("cache_id", "sample_id", "weight")]
    payloads, stored = (np.frombuffer(lengths, dtype="<u8") for lengths in _core.record_lengths_of(path))
    return {
        "path": str(path),
        "samples": table.height,
        "payload_bytes": _sizes(payloads),
        "stored_bytes": _sizes(stored),
        "columns": [_column(table.get_column(name)) for name in names],
    }


def show_stats(cache: dict[str, Any]) -> str:
    """The tables of `stats`."""
    sizes = [
        (name, *(_size(cache[key][part]) for part in ("total", "min", "median", "mean", "max")))
        for name, key in (("payload", "payload_bytes"), ("stored", "stored_bytes"))
    ]
    lines = [
        f"{printable(cache['path'])}: {counted(cache['samples'], 'sample')}",
        *_table([("bytes", "total", "min", "median", "mean", "max"), *sizes]),
    ]
    if cache["columns"]:
        columns = [
            (
                *(_short(column[part]) for part in ("name", "kind")),
                *(f"{column[part]:,}" for part in ("nulls", "distinct")),
                *(_short(column[part]) for part in ("min", "mean", "max")),
                ", ".join(f"{_short(common['value'])} ({common['count']:,})" for common in column["most_common"]),
            )
            for column in cache["columns"]
        ]
        header = ("column", "kind", "nulls", "distinct", "min", "mean", "max", "most common")
        lines += ["", *_table([header, *columns])]
    return "\n".join(lines)


def verify(path: Path, progress: Callable[[int], object], *, content: bool) -> dict[str, Any]:
    """Every fault of a cache."""
    faults, samples, file_bytes = _core.verify(path, content=content, num_workers=None, progress=progress)
    return {
        "path": str(path),
        "samples": samples,
        "file_bytes": file_bytes,
        "faults": [_fault(fault, path.resolve()) for fault in faults],
    }


def show_verify(cache: dict[str, Any]) -> str:
    """The lines of `verify`."""
    faults, path = cache["faults"], printable(cache["path"])
    if not faults:
        return f"{path}: fine ({counted(cache['samples'], 'sample')}, {_size(cache['file_bytes'])})"
    lines = [f"{path}: {counted(len(faults), 'fault')}"]
    for fault in faults[:_MOST_FAULTS]:
        sample = "" if fault["sample"] is None else f", sample {fault['sample']}"
        lines.append(f"  {printable(fault['file'])}{sample}")
        lines.append(f"    expected  {printable(fault['expected'])}")
        lines.append(f"    found     {printable(fault['found'])}")
    if len(faults) > _MOST_FAULTS:
        lines.append(f"  and {len(faults) - _MOST_FAULTS:,} more, all of which --json lists")
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 fault", "2 faults"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def printable(text: str) -> str:
    """A text on one line that does nothing to a terminal: what cannot be seen is escaped."""
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode("ascii")
        for character in text
    )


def _fault(error: DatasetRTError, folder: Path) -> dict[str, Any]:
    """A fault's parts; the file by its path in the cache's folder."""
    file = getattr(error, "file", None) or getattr(error, "path", None) or folder
    inside = Path(file).relative_to(folder) if Path(file).is_relative_to(folder) else Path(file)
    parts = {"error": type(error).__name__, "file": str(inside), "sample": None, "message": str(error)}
    if isinstance(error, CacheCorruptError):
        return {**parts, "sample": error.sample, "expected": error.expected, "found": error.found}
    # Another version, or a file that the system does not give: they say it in their own attributes.
    expected = getattr(error, "expected", None)
    if expected is not None:
        return {**parts, "expected": f"format version {expected}", "found": f"{getattr(error, 'found', None)}"}
    return {**parts, "expected": "a file that can be read", "found": str(error)}


def _open(path: Path) -> CachedDataset:
    """A cache in the order of its samples, read in this thread."""
    return DatasetRuntime(num_workers=1).cached_dataset(path, reader_config=ReaderConfig(shuffle=False))


def _sizes(lengths: np.ndarray[Any, np.dtype[np.uint64]]) -> dict[str, int]:
    return {
        "total": int(lengths.sum()),
        "min": int(lengths.min()),
        "median": int(np.median(lengths)),
        "mean": int(lengths.mean()),
        "max": int(lengths.max()),
    }


def _column(column: pl.Series) -> dict[str, Any]:
    """How a column is filled; ends and mean are of what is neither null nor NaN."""
    nulls = column.null_count()
    present = column.drop_nulls()
    if present.dtype == pl.Float64:
        present = present.drop_nans()
    numeric = present.dtype.is_numeric()
    counts = present.to_frame("value").group_by("value").len("count") if present.len() else None
    common = [] if counts is None else counts.sort("count", "value", descending=[True, False]).head(_MOST_COMMON).rows()
    return {
        "name": column.name,
        "kind": str(column.dtype.base_type()),
        "nulls": nulls,
        "distinct": 0 if counts is None else counts.height,
        "min": _jsonable(present.min()),
        "mean": _jsonable(present.mean()) if numeric else None,
        "max": _jsonable(present.max()),
        "most_common": [{"value": _jsonable(value), "count": count} for value, count in common],
    }


def _jsonable(value: Any) -> Any:
    """A value that JSON holds: dates as ISO text, and what is no number by its name."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Columns of equal width, two spaces apart, all lines indented."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _short(value: object) -> str:
    """A value in one short line, as it can be told from others."""
    if value is None:
        return "-"
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    printable = text if text.isprintable() and text.strip() == text and text not in ("", "-") else repr(text)
    return printable if len(printable) <= _MOST_CHARACTERS else printable[: _MOST_CHARACTERS - 1] + "…"


def _size(count: int) -> str:
    """Bytes in the unit that leaves one to three digits before the point."""
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if amount < 999.95 or unit == "TB":
            return f"{count} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    raise AssertionError("the last unit returns")


def _yes(flag: bool) -> str:  # noqa: FBT001
    return "yes" if flag else "no"
