"""Caches that released versions wrote are read by this one, value for value."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

import dataset_rt as drt

FOLDERS = sorted((Path(__file__).parents[2] / "testdata" / "format").glob("v*/"))
CACHES = [folder / name for folder in FOLDERS for name in json.loads((folder / "expected.json").read_text())]


@pytest.mark.parametrize("path", CACHES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_cache_of_a_released_version_is_read_value_for_value(path):
    expected = json.loads((path.parent / "expected.json").read_text())[path.name]
    reader = drt.ReaderConfig(shuffle=False, validate_cache=True)
    dataset = drt.DatasetRuntime(num_workers=2).cached_dataset(path, reader_config=reader)
    samples = list(dataset)
    assert [hashlib.sha256(sample.data).hexdigest() for sample in samples] == expected["payload_sha256"]
    metadata = [{name: str(value) for name, value in sample.metadata.items()} for sample in samples]
    assert metadata == expected["metadata"]
    identity = int.from_bytes(bytes.fromhex(expected["content_digest"])[:8], "little") & (2**63 - 1)
    assert {sample.cache_id for sample in samples} == {identity}


def test_there_are_golden_caches_of_every_format_version():
    assert [folder.name for folder in FOLDERS] == [f"v{version}" for version in range(1, drt.FORMAT_VERSION + 1)]
    assert len(CACHES) >= 3
