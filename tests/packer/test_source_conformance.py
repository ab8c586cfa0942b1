"""One contract, every kind of source: the tests that `rawpack_packer.testing` gives to sources of others, too."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import every_kind
import numpy as np
import pytest
from folders import files_of
from pictures import picture, save
from PIL import Image
from videos import encode, looked_through_here, number_of  # noqa: F401

from rawpack import DecodeError
from rawpack_packer.destination.journal import source_digest
from rawpack_packer.sources import Table, open_dataset, open_source, open_stores
from rawpack_packer.sources.table.columns import Numbers
from rawpack_packer.testing import SourceConformance

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packs by worker processes")

LABELS = (0, 1, 1, 0, 1, 0)
IMAGES = every_kind.pictures(*(f"{i}.png" for i in range(6)))
PIXELS = every_kind.pixels_of(IMAGES)
ONE_BAD = [(name, b"no image" if name == "2.png" else data) for name, data in IMAGES]
PLACES = {"voc": "JPEGImages/", "yolo": "images/"}
"""Kind -> what keys have before the name of the file."""


def write_again(path: Path) -> None:
    """Write a file's own bytes again, at another time."""
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(10**18, 10**18))


def write(root: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


@cache
def files_of_kind(kind: str, labels: Sequence[int | str] = LABELS) -> tuple[str, Mapping[str, bytes]]:
    """The path of a source of that kind in its folder, and all files of the folder."""
    with TemporaryDirectory() as folder:
        images = IMAGES if kind in ("npz", "store") else ONE_BAD
        made = every_kind.made(kind, Path(folder), labels, images[: len(labels)])
        return str(made.relative_to(folder)), files_of(Path(folder))


@pytest.mark.usefixtures("looked_through_here")
class TestKinds(SourceConformance):
    """Of six images, one of which cannot be decoded where the kind keeps files."""

    @pytest.fixture(autouse=True, params=sorted({*every_kind.TABLES, *every_kind.OTHERS} - {"columns"}))
    def a_kind(self, request: pytest.FixtureRequest) -> None:
        self.kind: str = request.param

    def open(self, folder: Path) -> Table:
        path, files = files_of_kind(self.kind)
        if not any(folder.iterdir()):
            write(folder, files)
        return open_source(folder / path)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]] | None:
        if self.kind in ("coco", "csv", "cvat", "jsonl", "labelme", *PLACES):
            return [(PLACES.get(self.kind, "") + name, data) for name, data in ONE_BAD]
        if self.kind in ("hdf5", "mds", "parquet", "tfrecord"):
            return [(f"{i:08d}", data) for i, (_, data) in enumerate(ONE_BAD)]
        if self.kind in ("recordio", "webdataset"):
            return [(name.removesuffix(".png"), data) for name, data in ONE_BAD]
        if self.kind == "npz":
            return [(f"{i:08d}", pixels) for i, pixels in enumerate(PIXELS)]
        if self.kind == "lmdb":
            return [(f"image-{i:09d}", data) for i, (_, data) in enumerate(ONE_BAD, 1)]
        in_folders = sorted((f"{label}/{name}", data) for label, (name, data) in zip(LABELS, ONE_BAD, strict=True))
        if self.kind == "store":
            return [(key, None) for key, _ in in_folders]
        if self.kind == "video":
            keys = [key.replace("png", "mp4") for key, _ in in_folders]
            return [(f"{key}#{frame:06d}", None) for key in keys for frame in range(1 if key == "1/2.mp4" else 2)]
        return in_folders

    def test_labels_are_those_that_were_written(self, tmp_path: Path) -> None:
        """Each sample has the label of what its key names: a number, a text, or the class of its box. A frame is one of
        its video, and an image of a store as near as JPEG is; others are files or arrays of `expected`."""
        source, read = self.open(tmp_path), 0
        for i in range(len(source)):
            try:
                item = source.part(i, i + 1)[0]
            except DecodeError:
                continue
            key, _, frame = item.key.partition("#")
            number = int(re.findall(r"\d+", key.removesuffix(".mp4"))[-1]) - (self.kind == "lmdb")
            fields: Any = item.fields
            if "boxes" in fields:
                (box,) = fields["boxes"].rows
                label = box[0 if self.kind == "yolo" else 4]
            else:
                label = fields["text" if self.kind == "lmdb" else "label"]
            assert int(label) == LABELS[number]
            if self.kind == "video":
                assert number_of(np.asarray(item.image)) == 2 * number + int(frame)
            if self.kind == "store":
                shown = np.asarray(Image.open(io.BytesIO(bytes(item.image))), int)
                assert np.abs(shown - PIXELS[number]).max() <= 12
            read += 1
        assert read == (10 if self.kind == "video" else 6)

    def change(self, folder: Path) -> bool:
        if self.kind in ("npz", "store"):  # which are open, or have checksums
            return False
        for path in folder.rglob("*"):
            if path.is_file():
                write_again(path)
        return True


@pytest.mark.parametrize("kind", ["coco", "csv", "cvat", "jsonl", "labelme", "voc", "yolo"])
def test_labels_in_other_files_than_the_images_belong_to_the_source(kind: str, tmp_path: Path) -> None:
    """A run that was begun does not go on where only such a file has changed."""
    digests, before = set[str](), dict[str, bytes]()
    for labels in (LABELS, LABELS[::-1]):
        path, files = files_of_kind(kind, labels)
        changed = {name: data for name, data in files.items() if before.get(name) != data}
        write(tmp_path, changed)
        for name in changed:
            os.utime(tmp_path / name, ns=(10**18, 10**18 + len(before)))
        before = dict(files)
        digests.add(source_digest(open_source(tmp_path / path)))
    assert not any(name.endswith(".png") for name in changed)
    assert len(digests) == 2


class TestPairs(SourceConformance):
    """A folder, and one of further images, which lacks a file."""

    def open(self, folder: Path) -> Table:
        root = folder / "source"
        if not root.exists():
            for i in range(6):
                save(root / "ab"[i % 2] / f"{i}.jpg", picture(20, 30, i))
                save(folder / "clean" / "ab"[i % 2] / f"{i}.png", picture(20, 30, i + 9))
            (folder / "clean" / "a" / "2.png").unlink()
        return open_source(root, images={"clean": folder / "clean"})

    def change(self, folder: Path) -> bool:
        write_again(folder / "clean" / "a" / "0.png")
        return True


class Faulty(list[Any]):
    """A list that raises for one of its samples."""

    targets = (0, 1, 0)

    def __getitem__(self, i: Any) -> Any:
        if i == 1:
            raise OSError("the tape broke")
        return super().__getitem__(i)


class TestDataset(SourceConformance):
    def open(self, folder: Path) -> Table:
        return open_dataset(Faulty((picture(8, 9, i), [0, 1, 0][i]) for i in range(3)), classes=["a", "b"])

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i:08d}", None if i == 1 else picture(8, 9, i)) for i in range(3)]


class TestStores(SourceConformance):
    """Two stores whose classes overlap: "b" is 1 in one store and 0 in the other."""

    def open(self, folder: Path) -> Table:
        for name, labels in (("one", "ababa"), ("two", "bcbcb")):
            write(folder / name, files_of_kind("store", labels)[1])
        return open_stores([folder / "one" / "store", folder / "two" / "store"], prefixes=["1/", "2/"])

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        keys = ["1/a/0", "1/a/2", "1/a/4", "1/b/1", "1/b/3", "2/b/0", "2/b/2", "2/b/4", "2/c/1", "2/c/3"]
        return [(f"{key}.png", None) for key in keys]


class TestView(SourceConformance):
    """Some rows of a folder, of other classes; several are no images."""

    def open(self, folder: Path) -> Table:
        root = folder / "source"
        if not root.exists():
            for i in range(7):
                save(root / "ab"[i % 2] / f"{i}.png", picture(20, 30, i))
            (root / "a" / "bad.jpg").write_text("no image")
            (root / "b" / "empty.jpg").touch()
            (root / "b" / "link.jpg").symlink_to("nowhere")
            (root / "c").mkdir()
        return open_source(root).take(np.array([0, 1, 4, 5, 8, 9])).with_classes(("new", "b", "a", "c"))

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        read = ("a/0.png", "a/2.png", "a/bad.jpg", "b/1.png")
        images = [(key, (folder / "source" / key).read_bytes()) for key in read]
        return [*images, ("b/empty.jpg", None), ("b/link.jpg", None)]

    def change(self, folder: Path) -> bool:
        write_again(folder / "source" / "a" / "0.png")
        return True


@pytest.mark.usefixtures("looked_through_here")
class TestFramesInAView(SourceConformance):
    """With numbers of videos in place of the source's own."""

    def open(self, folder: Path) -> Table:
        if not (folder / "a").exists():
            encode(folder / "a" / "one.mp4", "mpeg4", 9)
            encode(folder / "b" / "two.mp4", "mpeg4", 9)
            (folder / "b" / "bad.mp4").write_bytes(b"no video")
        rows = np.array([0, 1, 5, 9, 12])
        return open_source(folder).take(rows).joined({"video": Numbers(np.array([4, 4, 4, 7, 7]))})

    def change(self, folder: Path) -> bool:
        write_again(folder / "a" / "one.mp4")
        return True
