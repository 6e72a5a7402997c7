"""Whether a cache that is there holds what would be imported.

Hugging Face's fingerprint changes with every save and format, so it can only say a quick yes. It is kept beside the
caches; where it does not agree, the digest of the contents decides, or the user's key.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

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
    found = json.loads((cache / "manifest.json").read_bytes())
    attributes = found["attributes"]
    known = attributes.get("hf.key")
    if key is not None and known is not None:
        return None if known == key else f"it was imported with key={known!r}, and not {key!r}"
    if not source.reads_files and _remembered(cache) == _quick(source):
        return None
    planned = source.plan.attributes(None)
    for name, value in planned.items():
        if attributes.get(name) != value:
            what = name.removeprefix("hf.")
            return f"its {what} differ: {_shortened(attributes.get(name))}, and not {_shortened(value)}"
    digest = runtime.content_digest(_Shown(source, show=writer_config.show_progress), on_error=writer_config.on_error)
    return None if digest == found["content_digest"] else "its samples differ"


def remember(source: HFSource, cache: Path) -> None:
    """Keep the fingerprint of what the cache holds; a folder that cannot be written to goes without."""
    quick = _quick(source)
    place = _place(cache)
    try:
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


def _quick(source: HFSource) -> str | None:
    """A digest of fingerprint, files and plan, or None for a stream, which has no fingerprint to rely on."""
    dataset = source.dataset
    if not isinstance(dataset, datasets.Dataset):
        return None
    files = []
    for entry in dataset.cache_files:
        status = Path(entry["filename"]).stat()
        files.append([Path(entry["filename"]).name, status.st_size, status.st_mtime_ns])
    told = [dataset._fingerprint, len(dataset), files, source.plan.attributes(None)]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def _shortened(text: str | None) -> str:
    shown = repr(text)
    return shown if len(shown) <= 60 else f"{shown[:59]}…"


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
