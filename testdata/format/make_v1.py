"""Writes the caches of this folder with the installed release, and what must be read back from them.

It only ever makes new files: caches that a release wrote stay as they are, so that every later release is held to
reading them.

    python testdata/format/make_v1.py FOLDER
"""

import datetime
import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import dataset_rt as drt

PAYLOADS = [b"", b"\0", b"one line of text\n" * 40, bytes(range(256)) * 3, "naïve 例".encode(), b"\xff" * 2000]
ROWS: list[Mapping[str, drt.MetadataValue]] = [
    {"flag": True, "count": -(2**63), "score": 0.5, "text": "a", "day": datetime.date(1, 1, 1)},
    {"flag": None, "count": 2**63 - 1, "score": math.nan, "text": "", "day": None},
    {"flag": False, "count": 0, "score": -0.0, "text": None, "day": datetime.date(9999, 12, 31)},
    {"flag": True, "count": None, "score": None, "text": "例\0", "day": datetime.date(1969, 12, 31)},
    {"flag": True, "count": 1, "score": math.inf, "text": "x" * 100, "day": datetime.date(2000, 2, 29)},
    {"flag": False, "count": 2, "score": 5e-324, "text": "é", "day": datetime.date(1970, 1, 1)},
]
MOMENTS = [None, datetime.datetime(1, 1, 1), datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999)]


class Golden:
    """Every metadata kind with nulls, and payloads that compress and that do not."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.attributes = {"licence": "Apache-2.0", "note": "golden: é\n"}

    def __iter__(self) -> Iterator[drt.CacheInput]:
        """Yield the samples."""
        for number, (payload, row) in enumerate(zip(PAYLOADS, ROWS, strict=True)):
            yield drt.CacheInput(payload, {**row, "moment": MOMENTS[number % 3]})


def main() -> None:
    """Write a cache for each codec, with two shards or more, and the expectations beside them."""
    folder = Path(sys.argv[1])
    expected = {}
    for algo in ("none", "lz4", "zstd"):
        config = drt.WriterConfig(
            show_progress=False, shard_compression=drt.ShardCompression(algo=algo), max_shard_bytes=900
        )
        runtime = drt.DatasetRuntime()
        reader = drt.ReaderConfig(shuffle=False)
        source = Golden(f"golden_{algo}_v1")
        dataset = runtime.from_cache_sources(source, folder, reader_config=reader, writer_config=config).unwrap()
        expected[source.name] = {
            "content_digest": runtime.content_digest(source),
            "payload_sha256": [hashlib.sha256(sample.data).hexdigest() for sample in dataset],
            "metadata": [{name: str(value) for name, value in sample.metadata.items()} for sample in dataset],
        }
    (folder / "expected.json").write_text(json.dumps(expected, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
