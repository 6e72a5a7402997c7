"""Media keep the bytes of their files: nothing is decoded, nothing is encoded again."""

import hashlib
import io
import subprocess
import sys
import wave
from pathlib import Path

import datasets
import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

import dataset_rt as drt
import dataset_rt_hf as hf
import dataset_rt_hf.exporting
import dataset_rt_hf.media
import dataset_rt_hf.plan
from dataset_rt_hf.media import embed_files as embed
from hf_rows import same

# Each type of `datasets` that is a file, with what stands for one.
MEDIA = [
    name
    for name in ("Image", "Audio", "Video", "Pdf", "Nifti", "Mesh", "BioSequence", "BioStructure")
    if hasattr(datasets, name)
]


def jpeg(seed: int) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 255, (8, 9, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="JPEG")
    return stream.getvalue()


def wav(seed: int) -> bytes:
    stream = io.BytesIO()
    with wave.open(stream, "wb") as file:
        file.setparams((1, 2, 8_000, 0, "NONE", ""))
        file.writeframes(np.random.default_rng(seed).integers(-99, 99, 100, dtype=np.int16).tobytes())
    return stream.getvalue()


def stored(rows: list, feature: object) -> datasets.Dataset:
    """Rows as they are stored, without any encoder of `datasets`."""
    kind = pa.struct({"bytes": pa.binary(), "path": pa.string()})
    table = pa.table({"medium": pa.array(rows, kind)})
    return datasets.Dataset(datasets.table.InMemoryTable(table)).cast_column("medium", feature)


def sha(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("kind", MEDIA)
def test_media_keep_the_bytes_of_their_files_and_files_that_rows_point_to_are_embedded(importer, tmp_path, kind):
    contents = [wav(0) if kind == "Audio" else jpeg(0), b"not even a file of this kind", b""]
    paths = []
    for number, content in enumerate(contents):
        paths.append(tmp_path / f"file {number}.bin")
        paths[-1].write_bytes(content)
    rows = [
        {"bytes": contents[0], "path": "inside/of an archive/name.bin"},
        {"bytes": contents[1], "path": None},
        *({"bytes": None, "path": str(path)} for path in paths),
        None,
        {"bytes": None, "path": None},
    ]
    feature = getattr(datasets, kind)()
    cached = importer(stored(rows, feature))
    decode = hf.decoder(cached)
    found = [decode(sample)["medium"] for sample in cached]
    expected = [contents[0], contents[1], *contents, None]
    assert found.pop(5) is None
    assert [sha(row["bytes"]) for row in found] == [sha(content) for content in expected]
    assert [row["path"] for row in found] == ["name.bin", None, *(path.name for path in paths), None]
    assert hf.to_dataset(cached).features == {"medium": feature}


@pytest.mark.parametrize("codec", ["auto", "arrow"])
def test_images_deep_inside_a_row_are_embedded_too(importer, tmp_path, codec):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(1))
    there, here = {"bytes": None, "path": str(path)}, {"bytes": jpeg(2), "path": "b.jpg"}
    undecoded = datasets.Image(decode=False)
    features = datasets.Features(
        {
            "list": datasets.List(undecoded),
            "large": datasets.LargeList(undecoded),
            "pair": datasets.List(undecoded, length=2),
            "struct": {"image": undecoded, "deep": datasets.List({"image": undecoded, "n": datasets.Value("int64")})},
        }
    )
    rows = [
        {"list": [there, None, here], "large": [here], "pair": [there, here], "struct": {"image": there, "deep": []}},
        {"list": None, "large": None, "pair": None, "struct": None},
        {
            "list": [],
            "large": [there],
            "pair": [here, None],
            "struct": {"image": None, "deep": [{"image": there, "n": 1}]},
        },
    ]
    dataset = datasets.Dataset.from_list(rows, features=features).select([2, 1, 0])
    embedded = {"bytes": jpeg(1), "path": "a.jpg"}

    def expected(value):
        if isinstance(value, dict):
            return (
                embedded if value.get("path") == str(path) else {name: expected(child) for name, child in value.items()}
            )
        return [expected(child) for child in value] if isinstance(value, list) else value

    cached = importer(dataset, codec=codec)
    decode = hf.decoder(cached)
    assert [decode(sample) for sample in cached] == [expected(row) for row in reversed(rows)]


@pytest.mark.parametrize("limit", [1, 700])
def test_files_that_are_too_large_to_be_together_are_embedded_in_parts(importer, tmp_path, monkeypatch, limit):
    # Arrow's own limit of 2 GiB is too heavy for a test.
    monkeypatch.setattr(dataset_rt_hf.media, "EMBEDDED_BYTES", limit)
    rows = []
    for number in range(70):
        path = tmp_path / f"{number}.bin"
        path.write_bytes(bytes([number]) * 100)
        rows.append({"bytes": None, "path": str(path)} if number % 3 else {"bytes": bytes([number]), "path": None})
    read = []
    monkeypatch.setattr(
        dataset_rt_hf.plan, "embed_files", lambda *given: read.append(given[0].num_rows) or embed(*given)
    )
    cached = importer(stored(rows, datasets.Image(decode=False)))
    assert max(read) == 64
    assert min(read) == 1 if limit == 1 else min(read) in range(2, 9)
    found = [hf.decoder(cached)(sample)["medium"]["bytes"] for sample in cached]
    assert found == [bytes([number]) * (100 if number % 3 else 1) for number in range(70)]
    (tmp_path / "67.bin").unlink()
    result = importer.result(stored(rows, datasets.Image(decode=False)), "missing")
    assert (result.error.sample, result.error.field) == (67, "medium")


@pytest.mark.parametrize("codec", ["arrow", "msgpack", "raw"])
@pytest.mark.parametrize("to_file", [False, True])
def test_rows_that_are_too_large_to_be_together_are_exported_in_parts(importer, tmp_path, monkeypatch, codec, to_file):
    # Arrow's own limit of 2 GiB is too heavy for a test.
    monkeypatch.setattr(dataset_rt_hf.exporting, "_BYTES_AT_ONCE", 1_000)
    rows = [bytes([number]) * (5_000 if number == 33 else 40) for number in range(100)]
    dataset = datasets.Dataset.from_dict({"data": rows})
    back = hf.to_dataset(importer(dataset, codec=codec), path=tmp_path / "back.arrow" if to_file else None)
    assert back.to_dict() == {"data": rows}
    assert back.features == dataset.features
    if not to_file:
        sizes = [len(chunk) for chunk in back.data.column(0).chunks]
        assert 1 in sizes
        assert 2 <= max(sizes) <= 25


@pytest.mark.parametrize("kind", ["Image", "Audio", "Video", "Pdf"])
def test_media_are_known_as_such_in_releases_that_do_not_embed_them_themselves(importer, tmp_path, monkeypatch, kind):
    feature = getattr(datasets, kind)(decode=False)
    monkeypatch.delattr(type(feature), "embed_storage", raising=False)
    path = tmp_path / "a.bin"
    path.write_bytes(b"content")
    cached = importer(stored([{"bytes": None, "path": str(path)}], feature))
    path.unlink()
    assert hf.decoder(cached)(cached[0]) == {"medium": {"bytes": b"content", "path": "a.bin"}}


def test_decoded_media_are_what_datasets_gives(importer):
    images = [jpeg(number) for number in range(4)]
    dataset = stored([{"bytes": image, "path": None} for image in images] + [None], datasets.Image()).shuffle(seed=1)
    cached = importer(dataset)
    decode = hf.decoder(cached, media=True)
    assert same([decode(sample) for sample in cached], list(dataset))
    assert same(decode.batch(cached.read_batch(range(5))), dataset[:])


def test_pictures_that_datasets_encodes_are_kept_as_it_encoded_them(importer):
    pictures = [Image.fromarray(np.full((3, 4), number, dtype=np.uint8)) for number in range(3)]
    features = datasets.Features({"image": datasets.Image()})
    dataset = datasets.Dataset.from_dict({"image": pictures}, features=features)
    cached = importer(dataset)
    raw = dataset.cast_column("image", datasets.Image(decode=False))
    decode = hf.decoder(cached)
    assert [decode(sample) for sample in cached] == list(raw)


def test_a_stream_of_pictures_is_not_decoded_on_its_way(importer):
    images = [jpeg(number) for number in range(3)]

    def generate():
        for image in images:
            yield {"image": {"bytes": image, "path": None}}

    features = datasets.Features({"image": datasets.Image()})
    stream = datasets.IterableDataset.from_generator(generate, features=features)
    cached = importer(stream)
    assert [hf.decoder(cached)(sample)["image"]["bytes"] for sample in cached] == images


def test_a_missing_file_is_an_error_that_names_row_column_and_path(importer, tmp_path):
    there = tmp_path / "there.jpg"
    there.write_bytes(jpeg(0))
    rows = [{"bytes": None, "path": str(there)}] * 70 + [{"bytes": None, "path": str(tmp_path / "gone.jpg")}]
    result = importer.result(stored(rows, datasets.Image()))
    assert isinstance(result.error, drt.SourceError)
    assert (result.error.sample, result.error.field) == (70, "medium")
    assert "gone.jpg" in result.message
    assert "FileNotFoundError" in result.message
    assert [path.name for path in importer.root.iterdir() if not path.name.startswith(".")] == []


def test_a_file_that_changed_is_another_content_though_the_fingerprint_is_the_same(importer, tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(jpeg(0))
    dataset = stored([{"bytes": None, "path": str(path)}], datasets.Image())
    importer(dataset)
    assert importer.result(dataset).results[0].reused
    path.write_bytes(jpeg(1))
    assert isinstance(importer.result(dataset).error, drt.CacheExistsError)


def test_a_folder_of_images_is_imported_with_the_bytes_of_its_files(importer, tmp_path):
    folder = tmp_path / "pets"
    contents = {}
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(3):
            contents[f"{label}{number}.jpg"] = jpeg(len(contents))
            (folder / label / f"{label}{number}.jpg").write_bytes(contents[f"{label}{number}.jpg"])
    results = importer.result(folder, name=None, class_names=True)
    cached = results["train"].unwrap()
    assert cached.caches["name"].to_list() == ["pets-train"]
    rows = [hf.decoder(cached)(sample) for sample in cached]
    assert {row["image"]["path"]: row["image"]["bytes"] for row in rows} == contents
    assert sorted(cached.get_metadata()["label_name"].to_list()) == ["cat"] * 3 + ["dog"] * 3


WITHOUT_PILLOW = """
import sys

# As if they were not installed.
sys.modules.update(PIL=None, torchcodec=None)
import datasets
import dataset_rt as drt
import dataset_rt_hf as hf

assert not datasets.config.PIL_AVAILABLE
source, target = sys.argv[1:]
dataset = datasets.load_from_disk(source)
config = drt.ReaderConfig(shuffle=False)
cached = hf.import_dataset(dataset, drt.DatasetRuntime(), target, reader_config=config, name="media").unwrap()
decode = hf.decoder(cached)
assert all(decode(sample)["medium"]["bytes"] for sample in cached)
assert sys.modules["PIL"] is None and sys.modules["torchcodec"] is None
"""


@pytest.mark.parametrize("kind", ["Image", "Audio"])
def test_neither_pillow_nor_torchcodec_is_needed_to_import(tmp_path, kind):
    path = tmp_path / "file.bin"
    path.write_bytes(wav(0) if kind == "Audio" else jpeg(0))
    rows = [{"bytes": path.read_bytes(), "path": None}, {"bytes": None, "path": str(path)}]
    stored(rows, getattr(datasets, kind)()).save_to_disk(str(tmp_path / "saved"))
    command = [sys.executable, "-c", WITHOUT_PILLOW, str(tmp_path / "saved"), str(tmp_path / "caches")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_the_members_of_an_archive_are_embedded_under_their_own_names(importer, tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "images.zip", "w") as archive:
        archive.writestr("inner/a.jpg", jpeg(5))
    rows = [{"bytes": None, "path": f"zip://inner/a.jpg::{tmp_path / 'images.zip'}"}]
    cached = importer(stored(rows, datasets.Image()))
    assert hf.decoder(cached)(cached[0])["medium"] == {"bytes": jpeg(5), "path": "a.jpg"}


def test_caches_are_the_same_wherever_the_files_lie(importer, tmp_path):
    ids = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        (folder / "a.jpg").write_bytes(jpeg(0))
        dataset = stored([{"bytes": None, "path": str(folder / "a.jpg")}], datasets.Image())
        ids += importer(dataset).caches["cache_id"].to_list()
    assert ids[0] == ids[1]


def test_paths_may_be_of_any_kind(tmp_path, runtime):
    dataset = datasets.Dataset.from_dict({"a": [1]})
    for path in (str(tmp_path), Path(tmp_path)):
        hf.import_dataset(dataset, runtime, path, reader_config=drt.ReaderConfig(), name="a").unwrap()
