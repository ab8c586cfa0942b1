"""CIFAR-10 and CIFAR-100, in every version that their authors give: the same images and labels as were written.

The files are miniatures with the names and contents of the originals: pickles of dicts with rows of red, green and blue
planes, as Python 2 wrote them; and the binary version, a label or two before each row.
"""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from archived import MakesAFolder
from pictures import picture
from running import pack, run_here

from rawpack import Reader
from rawpack.errors import UsageError
from rawpack_packer.sources import DividedError, Source, open_source
from rawpack_packer.testing import SourceConformance

ROWS = 3
"""Images in a batch; the originals have 10,000."""
TEN = ["airplane", "automobile", "bird", "cat"]
FINE, COARSE = ["apple", "aquarium_fish", "baby"], ["aquatic_mammals", "fish"]
TRAIN = [f"data_batch_{i}" for i in range(1, 6)]


def image(number: int) -> np.ndarray[Any, Any]:
    return picture(32, 32, number)


def planes(first: int) -> np.ndarray[Any, Any]:
    """(ROWS, 3072): red, then green, then blue of each image."""
    return np.stack([np.concatenate([image(first + i)[..., c].ravel() for c in range(3)]) for i in range(ROWS)])


def python2(value: Any) -> bytes:
    """A pickle whose texts are those of Python 2, as in the originals: `_codecs` and Python 3's bytes do not occur."""
    if isinstance(value, dict):
        return b"}(" + b"".join(python2(key) + python2(one) for key, one in value.items()) + b"u"
    if isinstance(value, list):
        return b"](" + b"".join(map(python2, value)) + b"e"
    if isinstance(value, int):
        return b"K" + bytes([value])
    if isinstance(value, np.ndarray):
        shape = b"M" + value.shape[0].to_bytes(2, "little") + b"M" + value.shape[1].to_bytes(2, "little") + b"\x86"
        dtype = b"cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        data = b"T" + value.nbytes.to_bytes(4, "little") + value.tobytes()
        start = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        return start + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb"
    return b"U" + bytes([len(value)]) + value.encode()


def write(folder: Path, files: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder


def label(number: int) -> int:
    return number % 4


def ten_python(folder: Path) -> Path:
    files = {}
    for k, name in enumerate([*TRAIN, "test_batch"]):
        labels = [label(k * ROWS + i) for i in range(ROWS)]
        names = [f"{TEN[one]}_s_{i:06d}.png" for i, one in enumerate(labels)]
        batch = {"batch_label": name, "labels": labels, "data": planes(k * ROWS), "filenames": names}
        files[name] = b"\x80\x02" + python2(batch) + b"."
    meta = {"num_cases_per_batch": 3, "label_names": TEN, "num_vis": 200}
    return write(folder / "cifar-10-batches-py", {**files, "batches.meta": b"\x80\x02" + python2(meta) + b"."})


def ten_binary(folder: Path) -> Path:
    files = {}
    for k, name in enumerate([*TRAIN, "test_batch"]):
        rows = planes(k * ROWS)
        files[f"{name}.bin"] = b"".join(bytes([label(k * ROWS + i)]) + rows[i].tobytes() for i in range(ROWS))
    return write(folder / "cifar-10-batches-bin", {**files, "batches.meta.txt": ("\n".join(TEN) + "\n\n").encode()})


def hundred_python(folder: Path) -> Path:
    files = {}
    for k, name in enumerate(("train", "test")):
        numbers = range(k * ROWS, (k + 1) * ROWS)
        batch = {
            b"filenames": [b"x.png"] * ROWS, b"batch_label": b"training", b"data": planes(k * ROWS),
            b"fine_labels": [i % 3 for i in numbers], b"coarse_labels": [i % 2 for i in numbers],
        }  # fmt: skip
        files[name] = pickle.dumps(batch, 2)
    meta = {b"fine_label_names": FINE, b"coarse_label_names": COARSE}
    return write(folder / "cifar-100-python", {**files, "meta": pickle.dumps(meta, 2)})


def hundred_binary(folder: Path) -> Path:
    files = {"fine_label_names.txt": "\n".join(FINE).encode(), "coarse_label_names.txt": "\n".join(COARSE).encode()}
    for k, name in enumerate(("train.bin", "test.bin")):
        rows = planes(k * ROWS)
        pairs = [bytes([number % 2, number % 3]) for number in range(k * ROWS, (k + 1) * ROWS)]
        files[name] = b"".join(pair + row.tobytes() for pair, row in zip(pairs, rows, strict=True))
    return write(folder / "cifar-100-binary", files)


def packed(folder: Path, name: str) -> Path:
    """The `.tar.gz` of a folder."""
    with tarfile.open(folder.parent / name, "w:gz") as archive:
        archive.add(folder, folder.name)
    return folder.parent / name


WRITERS = {
    "cifar-10-python.tar.gz": ten_python,
    "cifar-10-binary.tar.gz": ten_binary,
    "cifar-100-python.tar.gz": hundred_python,
    "cifar-100-binary.tar.gz": hundred_binary,
}


class TestCifar10(SourceConformance):
    def open(self, folder: Path) -> Source:
        return open_source(ten_python(folder) if not list(folder.iterdir()) else next(folder.iterdir()), "cifar")

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i:08d}", image(i)) for i in range(6 * ROWS)]


@pytest.mark.parametrize("archived", [False, True])
@pytest.mark.parametrize("name", WRITERS)
def test_every_version_has_its_images_and_labels(tmp_path: Path, name: str, archived: bool) -> None:
    """The folder and its archive, whole and by splits."""
    folder = WRITERS[name](tmp_path)
    path = packed(folder, name) if archived else folder
    ten = "10-" in name
    training = (5 if ten else 1) * ROWS
    splits = {"train": range(training), "test": range(training, training + ROWS)}
    for split, numbers in splits.items():
        source = open_source(path / split)
        assert source.info.kind == "cifar"
        assert source.info.classes == tuple(TEN if ten else FINE)
        assert len(source) == len(numbers)
        for i, number in enumerate(numbers):
            assert np.array_equal(source[i].image, image(number))
            expected = {"label": label(number)} if ten else {"label": number % 3, "coarse_label": number % 2}
            assert source[i].fields == expected
    assert len(open_source(path, "cifar")) == training + ROWS
    with pytest.raises(DividedError, match="--splits train,test"):
        open_source(path)


def test_the_command_packs_both_splits(tmp_path: Path) -> None:
    """Into two stores with the same classes, at their own size."""
    path = packed(ten_python(tmp_path), "cifar-10-python.tar.gz")
    stores = pack(path, tmp_path / "stores", "--splits", "train,test")
    train, test = Reader(stores / "train"), Reader(stores / "test")
    assert (len(train), len(test)) == (5 * ROWS, ROWS)
    assert list(train.classes or ()) == list(test.classes or ()) == TEN
    assert np.array_equal(train[7]["image"], image(7))
    assert int(test[1]["label"]) == label(5 * ROWS + 1)
    assert run_here("pack", path.parent / "cifar-10-batches-py", tmp_path / "one").err.count("--splits train,test") == 1


def test_a_pickle_that_would_run_code_is_refused_by_name(tmp_path: Path) -> None:
    folder = ten_python(tmp_path)
    (folder / "data_batch_3").write_bytes(pickle.dumps({"data": MakesAFolder(tmp_path / "ran"), "labels": [1]}))
    with pytest.raises(UsageError, match=r"data_batch_3 is not read as a pickle: it would import '(posix|os)\.mkdir'"):
        open_source(folder / "train")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("data_batch_2", b"text", "damaged"),
        ("data_batch_2", pickle.dumps({"data": np.zeros((2, 3071), np.uint8)}), "no images"),
        ("data_batch_2", pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}), "does not have a label"),
        ("data_batch_2", pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": [9]}), "is 9; there are 4"),
        ("batches.meta", pickle.dumps({}), "no names of classes"),
        ("batches.meta", pickle.dumps({"label_names": ["a", "a"]}), "two classes"),
        ("data_batch_2", None, "has no data_batch_2"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, data: bytes | None, message: str) -> None:
    folder = ten_python(tmp_path)
    (folder / name).unlink()
    if data is not None:
        (folder / name).write_bytes(data)
    with pytest.raises(UsageError, match=message):
        open_source(folder / "train")


def test_damaged_archives_are_refused(tmp_path: Path) -> None:
    path = packed(ten_binary(tmp_path), "cifar-10-binary.tar.gz")
    data = path.read_bytes()
    for broken in (b"", b"text", data[: len(data) // 2]):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match=r"not an intact|has no"):
            open_source(path / "train")
    flipped = bytearray(data)
    flipped[-5] ^= 1  # of the checksum
    for broken, message in ((data + data, "more members follow the mark of its end"), (bytes(flipped), "CRC|length")):
        path.write_bytes(broken)
        with pytest.raises(UsageError, match=f"not an intact .tar.gz: .*({message})"):
            open_source(path / "train")
    (path.parent / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(b"x" * 3072)
    with pytest.raises(UsageError, match="no multiple of 3,073"):
        open_source(path.parent / "cifar-10-batches-bin" / "test")
    with pytest.raises(UsageError, match="not CIFAR"):
        open_source(tmp_path, "cifar")
