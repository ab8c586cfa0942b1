"""TFRecord files: samples equal what TensorFlow reads, and files that are damaged or lie are refused.

The files in `fixtures/tfrecord` were written by TensorFlow 2.21 and TensorFlow Datasets 4.9.10, and `expected.json` is
what TensorFlow itself read from them; `make.py` there made both. Damaged files are made here, byte by byte.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pictures import encoded, picture
from running import reason_of
from test_source_conformance import write_again
from tfrecords import example, masked, record, tfrecord

from rawpack import UsageError
from rawpack.errors import DecodeError
from rawpack_packer.sources import FieldKind, Source, open_source
from rawpack_packer.sources.fields import Boxes
from rawpack_packer.testing import SourceConformance

FIXTURES = Path(__file__).parents[1] / "support" / "fixtures" / "tfrecord"
EXPECTED: dict[str, list[dict[str, list[Any]]]] = json.loads((FIXTURES / "expected.json").read_text())
PNG = encoded(picture(8, 9, 0))
IMAGENET = EXPECTED["imagenet/train-00000-of-00002"] + EXPECTED["imagenet/train-00001-of-00002"]
DETECTION = EXPECTED["detection/coco_val.record-00000-of-00001"]
OWN = EXPECTED["own.tfrecord"]
BIG = (1 << 53) + 1
PETS = EXPECTED["pets/1.0.0/pets-train.tfrecord-00000-of-00001"]


def opened(folder: Path, data: bytes, **options: Any) -> Source:
    path = folder / "set.tfrecord"
    path.write_bytes(data)
    return open_source(path, **options)


def column(source: Source, name: str) -> list[Any]:
    """The values of a field, as lists and numbers."""
    values = [source[i].fields[name] for i in range(len(source))]
    return [one.rows.tolist() if isinstance(one, Boxes) else one.tolist() if hasattr(one, "tolist") else one
            for one in values]  # fmt: skip


def hashes(source: Source) -> list[str]:
    images = [source[i].image for i in range(len(source))]
    return [hashlib.sha256(one).hexdigest() for one in images if isinstance(one, bytes)]


class TestTfrecord(SourceConformance):
    name = "own.tfrecord"

    def open(self, folder: Path) -> Source:
        if not (folder / self.name).exists():
            shutil.copy(FIXTURES / self.name, folder / self.name)
        return open_source(folder / self.name, image_column="image", fields=["depth:image", "words:str"])

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i:08}", None) for i in range(len(OWN))]

    def change(self, folder: Path) -> bool:
        write_again(folder / self.name)
        return True


def test_imagenet() -> None:
    """Classes are counted from 0 and have their names, keys are the names of files; all else is a field."""
    source = open_source(FIXTURES / "imagenet")
    assert hashes(source) == [one["image/encoded"][0] for one in IMAGENET]
    assert [source.key(i) for i in range(10)] == [one["image/filename"][0] for one in IMAGENET]
    assert column(source, "label") == [one["image/class/label"][0] - 1 for one in IMAGENET]
    assert source.info.classes == ("cat", "dog", "3", "fox")
    assert source.info.empty_classes == ("3",)
    assert [source.info.classes[i] for i in column(source, "label")] == [one["image/class/text"][0] for one in IMAGENET]
    for name in ("height", "width", "channels", "colorspace", "format", "class/synset"):
        assert column(source, name.rpartition("/")[2]) == [one[f"image/{name}"][0] for one in IMAGENET]
    assert [*source.info.fields] == ["label", "channels", "synset", "colorspace", "format", "height", "width"]


def test_object_detection() -> None:
    """Boxes have the number of their class, counted from 0, and are fractions of the image; what is said of objects
    follows them."""
    source = open_source(FIXTURES / "detection")
    assert source.info.classes == ("cat", "2", "eel")
    assert [source.key(i) for i in range(5)] == [one["image/filename"][0] for one in DETECTION]
    for rows, one in zip(column(source, "boxes"), DETECTION, strict=True):
        left, top, right, bottom = (np.array(one[f"image/object/bbox/{side}"]) for side in
                                    ("xmin", "ymin", "xmax", "ymax"))  # fmt: skip
        classes = np.array(one["image/object/class/label"]) - 1
        wanted = np.stack([classes, (left + right) / 2, (top + bottom) / 2, right - left, bottom - top], axis=1)
        np.testing.assert_allclose(np.reshape(rows, (-1, 5)), wanted, rtol=1e-6)
    assert source.info.fields["area"] == FieldKind("float32", (None,), follows="rows")
    assert column(source, "is_crowd") == [one["image/object/is_crowd"] for one in DETECTION]


@pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress], ids=["plain", "gzip", "zlib"])
def test_features_of_all_shapes(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    """Also of a file that is compressed: vectors, lists of any length, the lowest number, what is missing, texts with
    accents; what no field can hold is named."""
    data = compress((FIXTURES / "own.tfrecord").read_bytes())
    source = opened(tmp_path, data, image_column="image", fields=["words:str", "depth:image"])
    assert hashes(source) == [one["image"][0] for one in OWN]
    assert hashes(source.part(2, 3)) == [OWN[2]["image"][0]]  # type: ignore[arg-type]
    assert column(source, "label") == [one["target"][0] for one in OWN]
    for name in ("embedding", "ids"):
        assert column(source, name) == [one[name] for one in OWN]
    assert column(source, "big") == [one["big"][0] for one in OWN]
    assert np.isnan(column(source, "score")[1])
    assert [column(source, "score")[i] for i in (0, 2, 3)] == [OWN[i]["score"][0] for i in (0, 2, 3)]
    assert column(source, "words") == ["", "é", json.dumps(["é", "é"], ensure_ascii=False), ""]
    depths = [source[i].fields["depth"] for i in range(4)]
    assert [hashlib.sha256(one).hexdigest() for one in depths] == [one["depth"][0] for one in OWN]  # type: ignore[arg-type]
    assert source.info.problems == ("column 'blob' is left out: no field can store bytes",)


def test_tensorflow_datasets() -> None:
    """A folder is divided by the names of its files; dtypes, shapes and names of classes are those of its JSON and
    lists, found through the folder of the version."""
    source = open_source(FIXTURES / "pets" / "1.0.0" / "train", fields=["segmentation:mask"])
    assert hashes(source) == [one["image"][0] for one in PETS]
    assert (len(source), source.info.classes) == (5, ("cat", "dog", "eel", "fox"))
    assert [source.key(i) for i in range(5)] == [one["file_name"][0] for one in PETS]
    assert column(source, "label") == [one["label"][0] for one in PETS]
    assert column(source, "good") == [bool(one["good"][0]) for one in PETS]
    assert column(source, "matrix") == [np.reshape(one["matrix"], (2, 3)).tolist() for one in PETS]
    assert column(source, "bytes") == [one["bytes"] for one in PETS]
    assert source.info.fields["bytes"] == FieldKind("uint8", (None,))
    assert source.info.fields["segmentation"].mask
    for rows, one in zip(column(source, "boxes"), PETS, strict=True):
        top, left, bottom, right = np.reshape(one["objects/bbox"], (-1, 4)).T
        wanted = np.stack([one["objects/label"], (left + right) / 2, (top + bottom) / 2, right - left, bottom - top], 1)
        np.testing.assert_allclose(np.reshape(rows, (-1, 5)), wanted, rtol=1e-6)


def test_lists_of_texts(tmp_path: Path) -> None:
    """They are declared; if not, the summary says how to store them."""
    words = [[], ["ä"], ["b", "", "c\n"]]
    data = tfrecord([{"image": PNG, "words": one} for one in words])
    assert column(opened(tmp_path, data, fields=["words:str[?]"]), "words") == words
    (problem,) = opened(tmp_path, data).info.problems
    assert "words:str[?] stores them as a list, words:str as JSON text" in problem


def test_a_user_names_features_by_all_or_the_end_of_their_names() -> None:
    for synset in ("image/class/synset", "synset"):
        source = open_source(
            FIXTURES / "imagenet", label_column=synset, columns=["image/height"], key_column="filename"
        )
        assert source.info.classes == ("n00000001", "n00000002", "n00000004")
        assert [*source.info.fields] == ["label", "height"]
    assert open_source(FIXTURES / "detection", classes=["a", "b", "c"]).info.classes == ("a", "b", "c")
    with pytest.raises(UsageError, match=r"is 2; there are 2 classes"):
        open_source(FIXTURES / "detection", classes=["a", "b"])


SIDES = {f"image/object/bbox/{side}": [0.5] for side in ("xmin", "ymin", "ymax")}


def test_boxes_and_shapes_may_be_declared(tmp_path: Path) -> None:
    """A list of numbers has the shape that the user says."""
    data = tfrecord({"image": PNG, "b": [0.0, 1.0, 4.0, 5.0] * i, "m": [1, 2, 3, 4]} for i in range(3))
    source = opened(tmp_path, data, fields=["b:xyxy[4]", "m:uint8[2,2]"])
    assert column(source, "b") == [[], [[0, 1, 4, 5]], [[0, 1, 4, 5]] * 2]
    assert column(source, "m") == [[[1, 2], [3, 4]]] * 3
    source = opened(tmp_path, tfrecord([{"image": PNG, "label": [1, 2]}] * 2))
    assert source.info.fields == {"label": FieldKind("int64", (2,))}


@pytest.mark.parametrize(
    ("examples", "fields", "message"),
    [
        ([{"b": []}, {"b": [0.0, 1.0, 4.0, 5.0]}], ["b:xyxy"], "record 1: b has 4 numbers, which is not"),
        ([{"m": [1, 2, 3, 4]}], ["m:uint8[3]"], "record 0: m has 4 numbers"),
        ([{"m": [1, 2, 3, 4]}], ["m:bool[4]"], "record 0: m is 2, which bool cannot represent"),
        ([{"n": 1}], ["n:image"], "images and masks are files"),
        ([{"n": 1}], ["n:str[?]"], "n contains int64, and texts were declared"),
        ([{"label": 1}, {"label": 1.5}], [], "record 1: label contains float32, and in the"),
        ([{**SIDES, "image/object/bbox/xmax": [0.5, 1.0]}], [], "record 0: there are 1 boxes and 2"),
    ],
)
def test_what_does_not_fit(examples: list[dict[str, Any]], fields: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        opened(tmp_path, tfrecord({"image": PNG, **one} for one in examples), fields=fields)


@pytest.mark.parametrize(("numbers", "stored"), [([2, 3], [1, 2]), ([0, 3], [0, 3])])
def test_classes_of_boxes_that_are_counted_from_1_are_said(
    numbers: list[int], stored: list[int], tmp_path: Path
) -> None:
    """Without names, nothing else shows that they are others in the store; where 0 occurs, they are not."""
    sides = {f"image/object/bbox/{side}": [0.25, 0.5] for side in ("xmin", "ymin", "xmax", "ymax")}
    data = tfrecord([{"image": PNG, **sides, "image/object/class/label": numbers}])
    source = opened(tmp_path, data)
    assert [row[0] for row in column(source, "boxes")[0]] == stored
    said = ("classes are counted from 1 in image/object/class/label, and from 0 in the store",)
    assert source.info.problems == (said if stored != numbers else ())
    assert opened(tmp_path, data, classes=["a0", "b1", "c2", "d3"]).info.problems == ()


def test_whole_numbers_that_are_missing_are_left_out(tmp_path: Path) -> None:
    """Unless the user says what stands for them; labels are -1."""
    data = tfrecord([{"image": PNG, "n": 5, "label": 1}, {"image": PNG}])
    source = opened(tmp_path, data)
    said = "column 'n' is left out: some records have none: declare --field n:float64 (NaN) or n:int64[?]"
    assert source.info.problems == (said,)
    assert column(source, "label") == [1, -1]
    assert column(opened(tmp_path, data, fields=["n:int64[?]"]), "n") == [[5], []]
    assert np.array_equal(column(opened(tmp_path, data, fields=["n:float64"]), "n"), [5, np.nan], equal_nan=True)


@pytest.mark.parametrize(
    ("dtype", "number"), [("float64", BIG), ("float32", (1 << 24) + 1), ("uint8", 256), ("uint64", -1)]
)
def test_whole_numbers_are_never_rounded(dtype: str, number: int, tmp_path: Path) -> None:
    """Nor made others by a declaration: the record of the first one is named. What is exact is kept."""
    data = tfrecord([{"image": PNG, "n": 5}, {"image": PNG, "n": number}])
    with pytest.raises(UsageError, match=f"record 1: n is {number}, which {dtype} cannot represent"):
        opened(tmp_path, data, fields=[f"n:{dtype}"])
    exact = tfrecord([{"image": PNG, "n": 1 << 62}])
    assert column(opened(tmp_path, exact, fields=["n:float64"]), "n") == [1 << 62]


def test_numbers_may_be_unpacked(tmp_path: Path) -> None:
    """As old writers have them."""
    floats = [struct.pack("<f", one) for one in (0.5, -1)]
    data = example({"image": PNG, "n": [5, 7], "v": [0.5, -1.0]}).replace(b"\x0a\x02\x05\x07", b"\x08\x05\x08\x07")
    data = data.replace(b"\x0a\x08" + b"".join(floats), b"\x0d" + b"\x0d".join(floats))
    source = opened(tmp_path, record(data))
    assert (column(source, "n"), column(source, "v")) == ([[5, 7]], [[0.5, -1]])


def test_what_tensorflow_datasets_says_must_be_true(tmp_path: Path) -> None:
    """The number of records in each file, and JSON that can be read."""
    folder = tmp_path / "pets"
    shutil.copytree(FIXTURES / "pets" / "1.0.0", folder)
    file = folder / "pets-test.tfrecord-00000-of-00001"
    file.write_bytes(file.read_bytes() * 2)
    with pytest.raises(UsageError, match=r"has 6 records, and the dataset_info\.json next to it says 3"):
        open_source(folder / "test")
    for text in ("{", '{"featuresDict": []}', '{"featuresDict": {"features": {"label": {"tensor": {"shape": 5}}}}}'):
        (folder / "features.json").write_text(text)
        with pytest.raises(UsageError, match=r"features\.json is not what TensorFlow Datasets writes"):
            open_source(folder / "train")


ONE = record(example({"image": PNG, "label": 1}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "has no records"),
        (b"RecordIO" * 9, "is no TFRecord file: it does not begin with a length and its checksum"),
        (ONE + b"junk" * 9, f"is damaged at byte {len(ONE)}: no record begins there"),
        (ONE + ONE[:-1], f"is truncated: it ends inside the record at byte {len(ONE)}"),
        (struct.pack("<Q", 1 << 60) + masked(struct.pack("<Q", 1 << 60)) + bytes(99), "is truncated"),
        (record(PNG), "the record at byte 0 contains no tf.train.Example"),
        (ONE[:-1] + b"!", "has no records that are not damaged"),
    ],
)
def test_what_is_no_intact_file_is_refused(data: bytes, message: str, tmp_path: Path) -> None:
    """With the path, the byte and the cure, and before anything is packed; compressed or not."""
    with pytest.raises(UsageError, match=message) as caught:
        opened(tmp_path, data)
    assert str(tmp_path / "set.tfrecord") in str(caught.value)
    for compressed in (gzip.compress(data), zlib.compress(data)):
        (tmp_path / "set.tfrecord.gz").write_bytes(compressed)
        with pytest.raises(UsageError, match=message):
            open_source(tmp_path / "set.tfrecord.gz")


def test_a_record_with_another_checksum_is_rejected_alone(tmp_path: Path) -> None:
    """Whether its image, its label or its last byte is damaged; it adds no class and no field."""
    images = [encoded(picture(40, 50, i)) for i in range(8)]
    whole = [record(example({"image": image, "class": f"c{i % 2}", "id": f"{i}"})) for i, image in enumerate(images)]
    whole[2] = whole[2].replace(b"c0", b"x0")
    whole[4] = whole[4][:900] + bytes([whole[4][900] ^ 1]) + whole[4][901:]
    whole[6] = whole[6][:-1] + bytes([whole[6][-1] ^ 1])
    whole[7] = whole[7].replace(b"\x0a\x02id", b"\x0a\x02ix")
    source = opened(tmp_path, b"".join(whole))
    assert (source.info.classes, {*source.info.fields}) == (("c0", "c1"), {"label"})
    assert [source.key(i) for i in (0, 1, 3, 5)] == ["0", "1", "3", "5"]
    assert [reason_of(source, i) for i in range(8)] == ["", "", "corrupt", "", "corrupt", "", "corrupt", "corrupt"]
    with pytest.raises(DecodeError, match="does not match its checksum"):
        source[2]
