"""MDS and litdata: what their own packages wrote is read as they wrote it, and damage is found."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from PIL import Image
from test_source_conformance import write_again

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources import Source, open_source
from rawpack_packer.testing import SourceConformance

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures"
MDS, LITDATA = FIXTURES / "mds", FIXTURES / "litdata"
PACKED = [
    *(f"mds/packed/{codec}" for codec in ("br", "bz2", "gz", "snappy", "zstd")),
    *(f"litdata/packed/{level}" for level in ("chunk", "batch", "sample")),
]


def expected(name: str) -> list[dict[str, Any]]:
    """What its own package read, the images of a list one by one."""
    found: list[dict[str, Any]]
    if name.endswith("rows"):
        found = json.loads((LITDATA / "rows.json").read_text())[name.partition("/")[2]]
    else:
        found = json.loads((FIXTURES / name).with_name("expected.json").read_text())
    for one in found:
        one |= one.pop("nested", {})
        if "litdata" in name:
            one["label"] = one.pop("y", None) if name.endswith("rows") else one.pop("class")
        one.pop("blob", None)  # no image
        for key, values in [*one.items()]:
            if isinstance(values, list) and values and is_image(values[0]):
                del one[key]
                one |= {f"{key}_{n}": value for n, value in enumerate(values)}
    return found


def is_image(value: Any) -> bool:
    return isinstance(value, dict) and {*value} <= {"bytes", "pixels"}


def check_value(value: Any, wanted: Any, said: str) -> None:
    if is_image(wanted):
        (how,) = wanted
        if isinstance(value, bytes) and how == "pixels":
            value = np.asarray(Image.open(io.BytesIO(value)))
        data = value if isinstance(value, bytes) else value.tobytes()
        assert hashlib.sha256(data).hexdigest() == wanted[how], said
    elif isinstance(value, str) and not isinstance(wanted, str):
        assert json.loads(value) == wanted, said
    elif isinstance(wanted, str):
        assert value == wanted, said
    else:
        np.testing.assert_array_equal(np.asarray(value), np.array(wanted, np.asarray(value).dtype), said)


@pytest.mark.parametrize("name", ["mds/every", "litdata/every", "litdata/rows", "litdata/packed/rows"])
def test_every_encoding_is_read_as_it_was_written(name: str) -> None:
    """Also rows of Arrow, which it may have compressed itself."""
    wanted, images = expected(name), "jpeg" if name.startswith("mds") else "image"
    further = [key for key, value in wanted[0].items() if is_image(value) and key != images]
    source = open_source(FIXTURES / name, image_column=images, fields=dict.fromkeys(further, "image"))
    assert len(source) == len(wanted)
    for i, one in enumerate(wanted):
        found = {**source[i].fields, images: source[i].image}
        assert {*found} == {*one}
        for key, value in one.items():
            check_value(found[key], value, f"sample {i}, {key}")


@pytest.mark.parametrize("name", ["rows", "packed/rows"])
def test_damaged_rows_of_arrow_are_refused(name: str, tmp_path: Path) -> None:
    """Wherever a byte is other than litdata wrote it, what is read is refused, or has the same fields."""
    shutil.copytree(LITDATA / name, tmp_path / "set")
    chunk = tmp_path / "set" / "chunk-0-0.bin"
    data, refused, fields = chunk.read_bytes(), 0, {*open_source(LITDATA / name, image_column="image").info.fields}
    for at in range(5, len(data), 499):
        chunk.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
        try:
            assert {*open_source(tmp_path / "set", image_column="image")[0].fields} == fields
        except (UsageError, DecodeError):
            refused += 1
    assert refused
    for cut in (1, 12, len(data) // 2):
        chunk.write_bytes(data[:-cut])
        with pytest.raises(UsageError, match=r"damaged|lead out"):
            open_source(tmp_path / "set", image_column="image")


@pytest.mark.parametrize("name", PACKED)
def test_compressed_shards_are_those_that_are_not(name: str, tmp_path: Path) -> None:
    plain = "mds/splits/train" if name.startswith("mds") else "litdata/pairs"
    found, wanted = open_source(FIXTURES / name), open_source(FIXTURES / plain)
    assert len(found) == len(wanted) == 4
    for i in range(4):
        assert (found[i].image, found[i].fields) == (wanted[i].image, wanted[i].fields)
    image = found.part(3, 4)[0].image
    assert isinstance(image, bytes)
    assert image.startswith(b"\xff\xd8\xff")


def test_tensors_whose_channels_come_first(tmp_path: Path) -> None:
    """The user has to say it, as of any array."""
    source = open_source(LITDATA / "chw", image_column="image:chw")
    for i in range(4):
        y, x = np.mgrid[:20, :24]
        pixels = np.stack([(y * 5 + x * (c + 2) + 31 * i) % 256 for c in range(3)], axis=-1)
        np.testing.assert_array_equal(source[i].image, pixels)


@pytest.mark.parametrize("folder", [MDS, LITDATA])
def test_pickles_are_refused_with_what_packs_them(folder: Path) -> None:
    """A page has the lines of Python; without the column, the rest is packed."""
    with pytest.raises(UsageError, match="can run code when it is read") as refused:
        open_source(folder / "pickled")
    assert "docs/how-to/what-is-not-read.md#mds-and-litdata" in str(refused.value)
    (rest,) = re.findall(r"--columns (\S+)", str(refused.value))
    assert len(open_source(folder / "pickled", columns=rest)) == 4


@pytest.mark.parametrize(("name", "old", "new", "said"), [
    ("litdata/pairs", '"jpeg", "int"', '"video:mp4", "int"', "a serializer of litdata that rawpack does not read"),
    ("litdata/pairs", '"encryption": null', '"encryption": {}', "encrypted"),
    ("litdata/pairs", "PyTreeLoader", "ParquetLoader", "--source parquet"),
    ("mds/splits/train", '"jpeg"', '"jpeg2"', "an encoding that rawpack does not know"),
])  # fmt: skip
def test_what_is_not_read_is_named(name: str, old: str, new: str, said: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(FIXTURES / name, tmp_path / "set"))
    text = (root / "index.json").read_text()
    assert old in text
    (root / "index.json").write_text(text.replace(old, new))
    with pytest.raises(UsageError, match=re.escape(said)):
        open_source(root)


def test_labels_keys_and_classes() -> None:
    source = open_source(MDS / "every", image_column="jpeg", key_column="text", label_column="str_int", columns=())
    assert [source.key(i) for i in range(5)] == [f"sample {i}, ä" for i in range(5)]
    assert source.labels.tolist() == [10**12 + i for i in range(5)]  # type: ignore[attr-defined]
    by_name = open_source(MDS / "every", image_column="jpeg", label_column="text", columns=())
    assert by_name.info.classes == tuple(f"sample {i}, ä" for i in range(5))


def refused(root: Path, **options: Any) -> str:
    with pytest.raises(UsageError) as error:
        open_source(root, **options)
    assert str(error.value).isprintable()
    return str(error.value)


def test_a_hash_that_differs(tmp_path: Path) -> None:
    """A byte of an image is changed, which nothing else would show before it is read."""
    root = Path(shutil.copytree(MDS / "every", tmp_path / "set"))
    data = bytearray((root / "shard.00001.mds").read_bytes())
    data[-3000] ^= 1
    (root / "shard.00001.mds").write_bytes(data)
    assert "shard.00001.mds is damaged: its sha1" in refused(root, image_column="jpeg")


@pytest.mark.parametrize("name", ["mds/cifar", "litdata/pairs", *PACKED])
def test_shards_that_are_cut_or_gone(name: str, tmp_path: Path) -> None:
    root = Path(shutil.copytree(FIXTURES / name, tmp_path / "set"))
    shard = max(path for path in root.iterdir() if path.name != "index.json")
    data = shard.read_bytes()
    for size in (0, 3, 40, len(data) // 2, len(data) - 1):
        shard.write_bytes(data[:size])
        assert shard.name in refused(root)
    shard.write_bytes(data + b"\0")
    if name not in ("litdata/packed/batch", "litdata/packed/sample", "litdata/packed/chunk"):  # which have no sizes
        assert shard.name in refused(root)
    shard.unlink()
    either = re.sub(r"\.mds\.\w+$", ".mds", re.sub(r"\.zstd\.bin$", ".bin", str(shard)))
    names = f"{shard} or {either}" if either != str(shard) else shard
    assert refused(root) == f"there is no file {names}: {root}/index.json names it: copy it too"


@pytest.mark.parametrize("name", ["mds/cifar", "litdata/pairs"])
def test_an_index_or_a_length_that_lies(name: str, tmp_path: Path) -> None:
    """A value that is shorter than its sample says would shift all that follow."""
    root = Path(shutil.copytree(FIXTURES / name, tmp_path / "set"))
    text, shards = (root / "index.json").read_text(), sorted(path for path in root.iterdir() if path.suffix != ".json")
    for old, new, said in (
        (shards[-1].name, f"../{shards[-1].name}", "outside its folder"),
        (r'"(samples|chunk_size)": \d+(?=[^}]*"(?:filename|version)")', r'"\1": 7', "samples, and its index says 7"),
        (r"^\{", "[", "is no source|no image|cannot be read|not what"),
    ):
        (root / "index.json").write_text(re.sub(old, new, text, count=1))
        assert re.search(said, refused(root, kind=name.partition("/")[0])), (old, new)
    (root / "index.json").write_text(text)
    data = bytearray(shards[0].read_bytes())
    (start,) = struct.unpack_from("<I", data, 8)  # of sample 1
    (length,) = struct.unpack_from("<I", data, start)
    struct.pack_into("<I", data, start, length - 1)
    shards[0].write_bytes(data)
    assert "is damaged: sample 1 has" in refused(root, kind=name.partition("/")[0])


def write_mds(root: Path, columns: dict[str, str], rows: list[list[bytes]]) -> Path:
    """MDS in one shard, by its description alone."""
    root.mkdir()
    bodies = [b"".join([*(struct.pack("<I", len(value)) for value in row), *row]) for row in rows]
    starts = np.cumsum([4 + 4 * (len(rows) + 1), *map(len, bodies)])
    data = struct.pack("<I", len(rows)) + starts.astype("<u4").tobytes() + b"".join(bodies)
    (root / "a.mds").write_bytes(data)
    shard = {
        "column_names": [*columns], "column_encodings": [*columns.values()], "column_sizes": [None] * len(columns),
        "format": "mds", "version": 2, "samples": len(rows), "compression": None, "hashes": [], "zip_data": None,
        "raw_data": {"basename": "a.mds", "bytes": len(data), "hashes": {}},
    }  # fmt: skip
    (root / "index.json").write_text(json.dumps({"version": 2, "shards": [shard]}))
    return root


def test_a_bad_sample_is_rejected_and_no_other(tmp_path: Path) -> None:
    image = encoded(picture(20, 30, 0), "JPEG")
    rows = [[image, b'{"a": 0}'], [image, b"{"], [image, b'{"a": 2}'], [b"", b"null"]]
    source = open_source(write_mds(tmp_path / "set", {"image": "jpeg", "about": "json"}, rows))
    assert [source[i].fields["about"] for i in (0, 2)] == ['{"a": 0}', '{"a": 2}']
    with pytest.raises(DecodeError, match=r"about: it cannot be decoded"):
        source[1]
    with pytest.raises(DecodeError):
        source[3]


def test_an_image_that_claims_more_than_it_has(tmp_path: Path) -> None:
    """No memory is taken for what is not there."""
    rows = [
        [struct.pack("<III", 60000, 60000, 3) + b"RGB" + bytes(64)],
        [struct.pack("<III", 4, 4, 1) + b"L" + bytes(16)],
    ]
    source = open_source(write_mds(tmp_path / "set", {"image": "pil"}, rows))
    with pytest.raises(DecodeError, match="60000x60000"):
        source[0]
    assert np.shape(source[1].image) == (4, 4)


def test_arrays_that_differ_in_their_shape(tmp_path: Path) -> None:
    """The first axis of a field may have any length; images of uint8 are pictures of any size."""
    rows = [
        [
            bytes([8, 3 << 2, h, 6, 3]) + bytes(range(h * 18)),
            bytes([34, 2 << 2, h, 4]) + np.arange(4.0 * h, dtype="<f4").tobytes(),
        ]
        for h in (5, 6)
    ]
    source = open_source(write_mds(tmp_path / "set", {"image": "ndarray", "points": "ndarray"}, rows))
    assert source.info.image is None
    assert source.info.fields["points"].shape == (None, 4)
    assert [np.shape(source[i].image) for i in range(2)] == [(5, 6, 3), (6, 6, 3)]
    assert np.shape(source[1].fields["points"]) == (6, 4)


class TestMds(SourceConformance):
    def open(self, folder: Path) -> Source:
        if not (folder / "set").exists():
            shutil.copytree(MDS / "every", folder / "set")
        return open_source(folder / "set", image_column="jpeg", fields={"views_1": "image", "depth": "mask"})

    def change(self, folder: Path) -> bool:
        write_again(folder / "set" / "shard.00000.mds")
        return True


def test_an_index_that_changed_is_noticed(tmp_path: Path) -> None:
    """A run that resumes compares the states of all files."""
    root = Path(shutil.copytree(MDS / "splits" / "train", tmp_path / "set"))
    before = open_source(root).states()
    os.utime(root / "index.json", ns=(10**18, 10**18))
    assert not np.array_equal(open_source(root).states(), before)


class TestLitdata(SourceConformance):
    def open(self, folder: Path) -> Source:
        if not (folder / "set").exists():
            shutil.copytree(LITDATA / "packed" / "batch", folder / "set")
        return open_source(folder / "set")

    def change(self, folder: Path) -> bool:
        write_again(folder / "set" / "chunk-0-0.bin")
        return True
