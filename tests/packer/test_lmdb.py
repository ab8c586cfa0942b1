"""LMDB databases of other tools: samples are what liblmdb reads, and damaged files are refused without a crash.

The writers here are the loops of the scripts that people use, cut down to what they write: CRNN's and clovaai's
create_lmdb_dataset.py, LSUN's and BasicSR's export, folder2lmdb.py of Efficient-PyTorch, and Caffe's convert_imageset.
"""

from __future__ import annotations

import os
import pickle
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
from archived import MakesAFolder
from folders import states_of
from pictures import encoded, picture
from running import reason_of, stop_of
from test_source_conformance import write_again
from tfrecords import varint

from rawpack import Reader
from rawpack import pack as pack_store
from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources import Source, open_source
from rawpack_packer.sources.files import SourceChangedError
from rawpack_packer.sources.lmdb.look import entries
from rawpack_packer.testing import SourceConformance


def jpeg(seed: int, height: int = 24, width: int = 40) -> bytes:
    return encoded(picture(height, width, seed), "JPEG")


def files(count: int = 5) -> list[bytes]:
    """Image files: some are stored in a leaf of the tree, some in pages of their own."""
    return [jpeg(i, *((90, 120) if i % 2 else (8, 8))) for i in range(count)]


def write(path: Path, values: Mapping[bytes, bytes], *, subdir: bool = True) -> Path:
    with lmdb.open(str(path), map_size=1 << 26, subdir=subdir) as database, database.begin(write=True) as transaction:
        for key, value in values.items():
            transaction.put(key, value)
    (path / "lock.mdb" if subdir else Path(f"{path}-lock")).unlink()
    return path


def text_recognition(images: Sequence[bytes], texts: Sequence[str], digits: int = 9) -> dict[bytes, bytes]:
    """What clovaai's createDataset puts; CRNN's is the same."""
    cache = {}
    for number, (image, text) in enumerate(zip(images, texts, strict=True), 1):
        cache[f"image-{number:0{digits}d}".encode()] = image
        cache[f"label-{number:0{digits}d}".encode()] = text.encode()
    cache[b"num-samples"] = str(len(images)).encode()
    return cache


def folder2lmdb(samples: Sequence[tuple[Any, Any]]) -> dict[bytes, bytes]:
    """What folder2lmdb puts."""
    keys = [f"{i}".encode("ascii") for i in range(len(samples))]
    found = {key: pickle.dumps(sample) for key, sample in zip(keys, samples, strict=True)}
    return found | {b"__keys__": pickle.dumps(keys), b"__len__": pickle.dumps(len(keys))}


def datum(image: bytes | np.ndarray[Any, Any], label: int) -> bytes:
    """What convert_imageset puts: planes of blue, green and red, or with --encoded the file."""
    if isinstance(image, bytes):
        return b"\x22" + varint(len(image)) + image + b"\x28" + varint(label) + b"\x38\x01"
    planes = image[..., ::-1].transpose(2, 0, 1)
    sizes = b"".join(bytes([tag]) + varint(length) for tag, length in zip((8, 16, 24), planes.shape, strict=True))
    return sizes + b"\x22" + varint(planes.size) + planes.tobytes() + b"\x28" + varint(label)


def oracle(path: Path) -> list[tuple[bytes, bytes]]:
    """All that liblmdb reads."""
    with (
        lmdb.open(str(path), readonly=True, lock=False, subdir=path.is_dir()) as database,
        database.begin() as transaction,
    ):
        return list(transaction.cursor())


class TestFiles(SourceConformance):
    """LSUN and BasicSR: any key, an image file."""

    def values(self) -> dict[bytes, bytes]:
        return {b"%040x" % (i * 7919): image for i, image in enumerate(files())} | {b"zz": b"no image"}

    def open(self, folder: Path) -> Source:
        if not (folder / "set").exists():
            write(folder / "set", self.values())
            (folder / "set" / "meta_info.txt").write_text("0001.png (24,40,3) 1\n")
        return open_source(folder / "set")

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(key.decode(), value) for key, value in oracle(folder / "set")]

    def change(self, folder: Path) -> bool:
        write_again(folder / "set" / "data.mdb")
        return True


class OfOtherKeys(TestFiles):
    def test_workers_pack_what_one_process_packs(self, tmp_path: Path) -> None:
        """`TestFiles` has it."""


class TestTextRecognition(OfOtherKeys):
    def values(self) -> dict[bytes, bytes]:
        return text_recognition(files(), TEXTS)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"image-{i:09}", image) for i, image in enumerate(files(), 1)]


class TestPickles(OfOtherKeys):
    def values(self) -> dict[bytes, bytes]:
        return folder2lmdb([([image], np.array(i)) for i, image in enumerate(files())])

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i}", image) for i, image in enumerate(files())]


class TestDatum(OfOtherKeys):
    def values(self) -> dict[bytes, bytes]:
        some = [picture(6, 7 + i, i) for i in range(4)]
        return {b"%08d_a/%d.jpg" % (i, i): datum(image, i) for i, image in enumerate(some)}

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i:08d}_a/{i}.jpg", picture(6, 7 + i, i)) for i in range(4)]


@pytest.mark.parametrize("count", [1, 30, 3000])
def test_entries_are_what_liblmdb_reads(tmp_path: Path, count: int) -> None:
    """Every key, and its value at its offset, in order, in trees of one and of several levels, after deletions too."""
    random = np.random.default_rng(count)
    values = {
        b"%d" % key: random.bytes(int(random.choice([0, 5, 1900, 2100, 9000], p=[0.1, 0.6, 0.1, 0.1, 0.1])))
        for key in random.permutation(count * 3)[:count].tolist()
    }
    path = write(tmp_path / "set", values)
    with lmdb.open(str(path), map_size=1 << 26) as database, database.begin(write=True) as transaction:
        for key in list(values)[:: count // 10 + 2]:
            transaction.delete(key)
    data = (path / "data.mdb").read_bytes()
    found = list(entries(str(path / "data.mdb"), re.compile(b"^[12]"), at_once=1000))
    assert [(one.key, data[one.offset : one.offset + one.size]) for one in found] == oracle(path)
    for one in found:
        comes = one.size <= 4096 and one.key.startswith((b"1", b"2"))
        assert one.value == (data[one.offset : one.offset + one.size] if comes else None)


TEXTS = ["Words", "\u00e9t\u00e9", "", "a" * 300, "5"]


def test_numbers_without_an_image_or_a_text_are_rejected(tmp_path: Path) -> None:
    """They stay samples, so that those around them keep their numbers. The database is left alone, without a lock."""
    values = text_recognition(files(), list("abcde"), digits=6)
    del values[b"image-000002"], values[b"label-000003"]
    values[b"label-000004"], values[b"label-000005"] = b"\xff", b"e" * 5000
    path = write(tmp_path / "set", values)
    before, source = states_of(path), open_source(path)
    assert [reason_of(source, i) for i in range(5)] == ["", "empty", "bad_field", "bad_field", "bad_field"]
    assert source[0].fields["text"] == "a"
    assert states_of(path) == before


def test_datums_of_caffe_are_read(tmp_path: Path) -> None:
    color, image = picture(5, 9, 1), jpeg(3)
    datums = [datum(color, 3), datum(color[..., :1], -7), datum(image, 300), datum(color, 1)[:-2]]
    none = [datum(np.zeros((4, 4, 2), np.uint8), 0), datum(color, 1)[:60], b"\x0b\x01", b"\xff" * 20]
    source = open_source(write(tmp_path / "set", {b"%d" % i: one for i, one in enumerate([*datums, *none])}))
    assert np.array_equal(source[0].image, color)
    assert np.array_equal(source[1].image, color[..., 0])
    assert source[2].image == image
    assert [source[i].fields["label"] for i in range(4)] == [3, -7, 300, -1]
    for i in range(4, 8):
        with pytest.raises(DecodeError, match="no Datum"):
            source[i]


def test_pickles_of_folder2lmdb_are_read(tmp_path: Path) -> None:
    """Whichever of the shapes that versions of it write."""
    image = jpeg(1)
    samples = [(image, 0), ([image], np.array(1)), ([image], np.array([2])), ([image], [3]), (image, np.int64(4))]
    source = open_source(write(tmp_path / "set.lmdb", folder2lmdb(samples), subdir=False))
    assert [(source[i].image, source[i].fields["label"]) for i in range(5)] == [(image, i) for i in range(5)]


def test_pickles_that_would_run_code_are_refused_by_name(tmp_path: Path) -> None:
    """As the first sample, nothing is packed; later, the sample is rejected. Nothing runs."""
    image = jpeg(1)
    evil = MakesAFolder(tmp_path / "ran")
    with pytest.raises(UsageError, match=r"would import '(posix|os)\.mkdir'"):
        open_source(write(tmp_path / "one", folder2lmdb([(image, evil)])))
    source = open_source(write(tmp_path / "two", folder2lmdb([(image, 1), (image, evil), (picture(4, 4, 0), 1)])))
    for i, message in ((1, "would import"), (2, "contains a tuple of ndarray, int")):
        with pytest.raises(DecodeError, match=message):
            source[i]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({b"0": b"\0\0\0\0\1\0\0\0", b"__len__": b"\xff\xff", b"__keys__": b"x"}, "pyarrow.serialize"),
        ({b"num-samples": b"1", b"image_hr-000000001": b"x"}, "no key image-000000001"),
        (text_recognition([b"x"], ["a"]) | {b"num-samples": b"99"}, "num-samples says"),
        (text_recognition([b"x"], ["a"]) | {b"num-samples": b"x"}, "num-samples says"),
        ({b"a": b"\x08\x01\x10\x01\x18\x01\x35\x00\x00\x80\x3f"}, "floats"),
    ],
)
def test_other_schemes_are_refused_by_name(tmp_path: Path, values: dict[bytes, bytes], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        open_source(write(tmp_path / "set", values))


def test_databases_with_names_are_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "set"), max_dbs=2) as database:
        inner = database.open_db(b"inner", dupsort=True)
        with database.begin(write=True, db=inner) as transaction:
            transaction.put(b"a", b"x")
    with pytest.raises(UsageError, match="databases with names"):
        open_source(tmp_path / "set")


def test_a_database_that_kills_liblmdb_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Here, half of its pages are missing. This process says so, and liblmdb says nothing."""
    path = write(tmp_path / "set", {b"%04d" % i: b"x" * 50 for i in range(400)}) / "data.mdb"
    os.truncate(path, path.stat().st_size // 8192 * 4096)
    with pytest.raises(UsageError, match=r"crashes or hangs LMDB \(exit status -\d+\): it is damaged or truncated"):
        open_source(path.parent)
    assert capfd.readouterr() == ("", "")


def put(data: bytearray, form: str, at: int, *values: int) -> None:
    struct.pack_into("<" + form, data, at, *values)


def node(data: bytearray, page: int, number: int) -> int:
    """Where a node of a page is."""
    return page * 4096 + int(struct.unpack_from("<H", data, page * 4096 + 16 + 2 * number)[0])


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda data, root, leaves: put(data, "I", 16, 1), "not an LMDB file of a 64-bit little-endian machine"),
        (lambda data, root, leaves: [put(data, "H", at + 92, 4) for at in (0, 4096)], "several values for a key"),
        (lambda data, root, leaves: [put(data, "Q", at + 120, 399) for at in (0, 4096)], "its header says 399"),
        (lambda data, root, leaves: put(data, "HH", node(data, root, 0), root, 0), "cursor stack limit reached"),
        (lambda data, root, leaves: put(data, "Q", leaves[0] * 4096, 1 << 40), "a page has the number of another one"),
        (lambda data, root, leaves: put(data, "Q", leaves[1] * 4096, 77), r"page \d+ is missing, page 77 is in"),
        (lambda data, root, leaves: put(data, "HH", leaves[0] * 4096 + 16, *(node(data, leaves[0], k) % 4096
         for k in (1, 0))), "key b'0000' is not after b'0001'"),
    ],
)  # fmt: skip
def test_damaged_databases_are_refused(
    tmp_path: Path, harm: Callable[[bytearray, int, list[int]], object], message: str
) -> None:
    """By what the scan finds wrong in them: where liblmdb itself reads on, no sample is taken from elsewhere."""
    path = write(tmp_path / "set", {b"%04d" % i: b"x" * 50 for i in range(400)}) / "data.mdb"
    data = bytearray(path.read_bytes())
    _, root = max(
        struct.unpack_from("<Q", data, at + 144) + struct.unpack_from("<Q", data, at + 128) for at in (0, 4096)
    )
    count = (struct.unpack_from("<H", data, root * 4096 + 12)[0] - 16) // 2
    leaves = [struct.unpack_from("<I", data, node(data, root, k))[0] for k in range(count)]
    harm(data, root, leaves)
    path.write_bytes(data)
    with pytest.raises(UsageError, match=message):
        open_source(path.parent)


def test_a_database_that_changes_while_it_is_scanned_is_refused(tmp_path: Path) -> None:
    image = jpeg(0, 8, 8)
    path = write(tmp_path / "set", {b"%04d" % i: image for i in range(1000)}) / "data.mdb"
    with pytest.raises(SourceChangedError, match="it was written to"):
        open_source(path, progress=lambda _: os.utime(path, ns=(1, 1)))


def test_a_database_that_this_process_has_open_is_read(tmp_path: Path) -> None:
    """liblmdb itself opens no file twice in a process."""
    image = jpeg(1)
    path = write(tmp_path / "set", {b"a": image})
    with lmdb.open(str(path), readonly=True, lock=False):
        assert open_source(path)[0].image == image


def rows(*boxes: tuple[float, ...]) -> bytes:
    return np.array(boxes, np.float64).tobytes()


@pytest.mark.parametrize("end", ["txt", "label"])
def test_rows_of_numbers_are_boxes_that_move_with_crops(end: str, tmp_path: Path) -> None:
    """Whatever follows the dot; also where an image has so many that its value is read apart. Half of a wide image is
    cut by a square: its boxes are twice as wide and lose what is outside."""
    many = [(k % 3, 0.5, 0.5, 0.25, 0.5) for k in range(200)]
    values = {
        b"a.jpg": jpeg(0, 20, 40),
        f"a.{end}".encode(): rows((1, 0.25, 0.5, 0.5, 1), (0, 0.5, 0.5, 0.25, 0.5)),
        b"b.jpg": jpeg(1, 20, 40), f"b.{end}".encode(): rows(*many),
        b"c.jpg": jpeg(2, 20, 40), f"c.{end}".encode(): b"",
    }  # fmt: skip
    pack_store(write(tmp_path / "set", values), tmp_path / "store", fields=[f"boxes={end}:yolo"], size=20, workers=0)
    with Reader(tmp_path / "store") as reader:
        found = [np.array(sample["boxes"]).tolist() for sample in reader]
    assert found[0] == [[0, 0, 10, 20, 1], [5, 5, 15, 15, 0]]
    assert found[1] == [[5, 5, 15, 15, k % 3] for k in range(200)]
    assert found[2] == []


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (rows((1, 0.5, 0.5, 0.5, 1.5)), "key b.txt: row 0 is 1, 0.5, 0.5, 0.5, 1.5, and not a class number, x, y"),
        (rows((1, 0.5, float("nan"), 0.5, 0.5)), "key b.txt: row 0 is 1, 0.5, nan, 0.5, 0.5"),
        (np.ones(5, np.float32).tobytes(), "key b.txt: 20 bytes are not rows of five float64"),
    ],
)
def test_other_rows_reject_their_image(value: bytes, words: str, tmp_path: Path) -> None:
    """Numbers that are something else are not guessed at."""
    good = rows((1, 0.5, 0.5, 0.5, 1.005))
    values = {b"a.jpg": jpeg(0), b"a.txt": good, b"b.jpg": jpeg(1), b"b.txt": value}
    opened = open_source(write(tmp_path / "set", values), fields=["boxes=txt:yolo"])
    with pytest.raises(DecodeError, match=f"bad_field: boxes: {re.escape(words)}"):
        opened[1]
    assert opened[0].fields["boxes"].rows.tolist() == [[1, 0.5, 0.5, 0.5, 1]]  # type: ignore[union-attr]
    assert opened.info.problems == ("1 box with a number up to 0.01 outside of 0 to 1, clipped to it",)
    with pytest.raises(UsageError, match=re.escape(words.replace("key b", "key a"))):
        open_source(write(tmp_path / "none", {**values, b"a.txt": value}), fields=["boxes=txt:yolo"])


@pytest.mark.parametrize("options", [[], ["--field", "boxes=txt:yolo"]])
def test_pixels_and_boxes_are_asked_for(options: list[str], tmp_path: Path) -> None:
    """The size of pixels is not guessed: 27 x 48 pixels are as many as 36 x 36. What is printed leads to the boxes."""
    pixels = np.random.default_rng(0).integers(0, 256, (27, 48, 3), np.uint8)
    where = write(tmp_path / "set", {b"a.jpg": pixels.tobytes(), b"a.txt": rows((1, 0.5, 0.5, 0.5, 0.5))})
    stop = stop_of("pack", *options, where, tmp_path / "s")
    assert ("--array image=jpg:HEIGHTxWIDTH" if options else "add --field boxes=txt:yolo;") in stop
    assert "36" not in stop
    for said, image in ("27x48", pixels), ("27x48:bgr", pixels[..., ::-1]):
        opened = open_source(where, fields=["boxes=txt:yolo"], array=f"image=jpg:{said}")
        np.testing.assert_array_equal(opened[0].image, image)
    other = open_source(where, fields=["boxes=txt:yolo"], array="image=jpg:36x37")
    with pytest.raises(DecodeError, match="3,888 bytes are not 36 x 37 pixels of 1 or 3 bytes"):
        other[0]
