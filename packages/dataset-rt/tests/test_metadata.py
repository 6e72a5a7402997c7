"""Metadata at its limits: text of any kind and amount, damage in any batch, and readers that are not ours.

What each kind of value becomes, and which are refused, is in `test_write.py`; what tables may be given back is in
`test_table.py`.
"""

from __future__ import annotations

import json
import os

import polars as pl
import pyarrow as pa
import pytest

import dataset_rt as drt

FULL = os.environ.get("DATASET_RT_GRID") == "full"
# More than 32-bit offsets and signed 32-bit lengths count, in one batch; what each run does anyway shows the same path.
TOTAL_TEXT_BYTES = (2 << 30) + (64 << 20) if FULL else 48 << 20
TEXT_BYTES = 1 << 20


def text(number: int) -> str:
    return f"{number:08}" + "x" * (TEXT_BYTES - 8)


def test_text_of_more_than_two_gibibytes_comes_back(write, open_caches, tmp_path):
    count = TOTAL_TEXT_BYTES // TEXT_BYTES

    class Long:
        name = "long"

        def __iter__(self):
            for number in range(count):
                yield drt.CacheInput(b"%d" % number, {"text": text(number), "number": number})

    path = write(Long()).path
    assert (path / "metadata.arrow").stat().st_size > TOTAL_TEXT_BYTES
    dataset = open_caches(path)
    for number in {0, 1, count // 2, count - 1}:
        sample = dataset[number]
        assert sample.metadata == {"text": text(number), "number": number}
        assert sample.data == b"%d" % number
    table = dataset.get_metadata()
    assert table["text"].str.len_bytes().sum() == count * TEXT_BYTES
    assert table["text"].str.slice(0, 8).to_list() == [f"{number:08}" for number in range(count)]
    # Given back, it is compared value by value.
    dataset.update_metadata(table.slice(count // 2))
    assert len(dataset) == count - count // 2


@pytest.mark.parametrize(
    "characters",
    [
        "", "\0", "\0\0", "a\0b", " ", "\t\r\n", "\ufeff", "\ufffd", "\u200d\u202e", "é", "e\u0301", "ﬁ", "ß", "İi",
        "日本語", "العربية", "👩‍👩‍👧‍👦", "\U0010ffff", "\x7f\x80", "'\"\\", "null", "None", "nan",
    ],
    ids=ascii,
)  # fmt: skip
def test_text_is_kept_code_point_by_code_point(cache_of, open_caches, characters):
    others = ["", None, "other"]
    # A column cannot be called by a NUL: Arrow's interface ends names there.
    name = characters.replace("\0", "") or "empty"
    path = cache_of("texts", [{"text": value, name: value} for value in [characters, *others]])
    dataset = open_caches(path)
    assert [sample.metadata["text"] for sample in dataset] == [characters, *others]
    assert list(dataset[0].metadata) == ["text", name]
    table = dataset.get_metadata()
    assert table.get_column(name).to_list() == [characters, *others]
    dataset.update_metadata(table)
    with pytest.raises(drt.MetadataError, match="row 0"):
        dataset.update_metadata(table.with_columns(pl.Series("text", [characters + "\0", *others])))


def test_a_flipped_bit_in_any_batch_is_found_before_a_value_of_it_is_served(write, source_of, open_caches):
    rows = 65_536 + 4_000
    items = [drt.CacheInput(b"", {"label": number, "text": str(number)}) for number in range(rows)]
    path = write(source_of("two_batches", items)).path
    file = path / "metadata.arrow"
    content = file.read_bytes()
    regions = json.loads((path / "manifest.json").read_bytes())["metadata"]["batches"]
    assert len(regions) == 2
    samples = ((0, 65_535), (65_536, rows - 1))
    for number, region in enumerate(regions):
        for step in range(24):
            place = region["offset"] + step * (region["bytes"] - 1) // 23
            wrong = bytearray(content)
            wrong[place] ^= 1 << (step % 8)
            file.write_bytes(wrong)
            dataset = open_caches(path)
            for sample in samples[1 - number]:
                assert dataset[sample].metadata == {"label": sample, "text": str(sample)}
            reads = [lambda sample=sample: dataset[sample].metadata for sample in samples[number]]  # noqa: B023
            for read in (*reads, dataset.get_metadata, lambda: dataset.read_batch([samples[number][0]])):  # noqa: B023
                with pytest.raises(drt.CacheCorruptError, match=f"batch {number}") as found:
                    read()
                assert found.value.file == file
    file.write_bytes(content)
    assert open_caches(path).get_metadata().height == rows


@pytest.mark.parametrize("name", ["\0", "a\0b"])
def test_a_column_with_a_nul_in_its_name_is_refused(write, source_of, name):
    result = write(source_of("texts", [{name: 1}]))
    assert isinstance(result.error, drt.SourceError)
    assert "must hold no NUL character" in result.message


@pytest.mark.parametrize("mapped", [False, True])
def test_polars_and_pyarrow_open_the_metadata_by_themselves(cache_of, table, mapped):
    path = cache_of("digits", table.to_dicts()) / "metadata.arrow"
    assert pl.read_ipc(path).equals(table)
    assert pl.scan_ipc(path).filter(pl.col("text") == "a").collect().height == 2
    source = pa.memory_map(str(path)) if mapped else pa.OSFile(str(path))
    with source, pa.ipc.open_file(source) as reader:
        assert pl.from_arrow(reader.read_all()).equals(table)


def test_polars_and_pyarrow_open_metadata_without_columns(cache_of):
    path = cache_of("bare", [{}] * 3) / "metadata.arrow"
    assert pl.read_ipc(path).width == 0
    with pa.ipc.open_file(path) as reader:
        assert reader.schema == pa.schema([])
        assert reader.get_batch(0).num_rows == 3
