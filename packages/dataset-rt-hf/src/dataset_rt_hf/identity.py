"""Whether a cache that is there holds what would be imported.

Hugging Face's fingerprint changes with every save and format, so it can only say a quick yes, and only for rows that
lie in files: in memory the same fingerprint can stand for other rows. It is kept beside the caches, bound to the cache
that it was compared with; where it does not agree, the digest of the contents decides, or the user's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import datasets
from datasets.utils import tqdm

import dataset_rt as drt
from dataset_rt_hf.source import HFSource

__all__ = ["holds_the_same", "remember"]


def holds_the_same(
    source: HFSource, runtime: drt.DatasetRuntime, cache: Path, *, key: str | None, writer_config: drt.WriterConfig
) -> str | None:
    """Compare a source with a complete cache.

    Args:
        source: What would be imported.
        runtime: What computes the digest.
        cache: The cache's folder.
        key: The user's word for this content. If the cache has one too, nothing else counts.
        writer_config: How the source would be written: what of it counts, and whether progress is shown.

    Returns:
        None if the cache holds the same, otherwise what differs.

    Raises:
        DatasetRTError: If the cache or the source cannot be read.
    """
    manifest = (cache / "manifest.json").read_bytes()
    found = json.loads(manifest)
    attributes = found["attributes"]
    known = attributes.get("hf.key")
    if key is not None and known is not None:
        return None if known == key else f"it was imported with key={known!r}, and not {key!r}"
    quick = _quick(source, manifest)
    if quick is not None and _remembered(cache) == quick:
        return None
    planned = source.plan.attributes(None)
    for name, value in planned.items():
        if attributes.get(name) != value:
            return _difference(name.removeprefix("hf."), attributes.get(name), value)
    digest = runtime.content_digest(_Shown(source, show=writer_config.show_progress), on_error=writer_config.on_error)
    if digest != found["content_digest"]:
        return "its samples differ"
    remember(source, cache)
    return None


def remember(source: HFSource, cache: Path) -> None:
    """Keep the fingerprint of what the cache holds; a folder that cannot be written to goes without.

    Args:
        source: What was written or compared, row by row; a user's word is not enough.
        cache: The cache's folder.
    """
    place = _place(cache)
    try:
        quick = _quick(source, (cache / "manifest.json").read_bytes())
        if source.reads_files or quick is None:
            # A fingerprint says nothing of files that rows point to.
            place.unlink(missing_ok=True)
        elif _remembered(cache) != quick:
            place.parent.mkdir(exist_ok=True)
            place.write_text(quick + "\n")
    except OSError:
        return


def _place(cache: Path) -> Path:
    return cache.parent / ".fingerprints" / cache.name


def _remembered(cache: Path) -> str | None:
    try:
        return _place(cache).read_text().strip()
    except (OSError, ValueError):
        return None


def _quick(source: HFSource, manifest: bytes) -> str | None:
    """A digest of the cache's manifest and of fingerprint, files and plan, or None where a fingerprint proves nothing.

    That is for a stream, and for rows in memory: a function of `map` that draws random numbers
    or reads a file gives other rows under the same fingerprint.
    """
    dataset = source.dataset
    if not isinstance(dataset, datasets.Dataset) or not _lies_in_files(dataset.data):
        return None
    files = []
    for entry in dataset.cache_files:
        status = Path(entry["filename"]).stat()
        files.append([Path(entry["filename"]).name, status.st_size, status.st_mtime_ns])
    cached = hashlib.sha256(manifest).hexdigest()
    told = [dataset._fingerprint, len(dataset), files, _order(dataset), source.plan.attributes(None), cached]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _lies_in_files(table: Any) -> bool:
    if isinstance(table, datasets.table.ConcatenationTable):
        return all(_lies_in_files(block) for row in table.blocks for block in row)
    return isinstance(table, datasets.table.MemoryMappedTable)


def _order(dataset: datasets.Dataset) -> str | None:
    """A digest of a view's row numbers, which may lie in memory too."""
    if dataset._indices is None:
        return None
    digest = hashlib.sha256()
    for chunk in dataset._indices.column(0).chunks:
        digest.update(chunk.to_numpy())
    return digest.hexdigest()


def _difference(what: str, found: str | None, expected: str) -> str:
    """What differs between two attributes, by the first column where they hold columns."""
    if what in ("features", "columns") and found is not None:
        before, after = json.loads(found), json.loads(expected)
        for name in [*before, *(name for name in after if name not in before)]:
            if before.get(name) != after.get(name):
                there, here = (json.dumps(side[name]) if name in side else "nothing" for side in (before, after))
                return f"its {what} differ in {name!r}: {_shortened(there)}, and not {_shortened(here)}"
        there, here = (_shortened(", ".join(names)) for names in (before, after))
        return f"its {what} differ in their order: {there}, and not {here}"
    there = "nothing" if found is None else repr(found)
    return f"its {what} differ: {_shortened(there)}, and not {_shortened(repr(expected))}"


def _shortened(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:199]}…"


class _Shown:
    """A source whose reading shows progress, by the bars that users of datasets switch off."""

    def __init__(self, source: HFSource, *, show: bool) -> None:
        self._source = source
        # None is for tqdm to find out whether somebody looks.
        self._disable = None if show else True
        self.name = source.name
        self.metadata_schema = source.metadata_schema

    def __iter__(self) -> Iterator[drt.CacheInput]:
        dataset = self._source.dataset
        total = len(dataset) if isinstance(dataset, datasets.Dataset) else None
        yield from tqdm(
            self._source,
            desc=f"{self.name}: comparing with the cache",
            total=total,
            unit=" samples",
            disable=self._disable,
        )
