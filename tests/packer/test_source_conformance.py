"""One contract, every kind of source: the tests that `rawpack_packer.testing` gives to sources of others, too."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import h5py
import numpy as np
import pytest
from folders import files_of
from pictures import encoded, picture, save
from videos import encode, looked_through_here  # noqa: F401

import rawpack_packer
from rawpack_packer.sources import Table, open_dataset, open_source, open_stores
from rawpack_packer.sources.table.columns import Numbers
from rawpack_packer.testing import SourceConformance

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="packs by worker processes")


FIXTURES = Path(__file__).parents[1] / "support" / "fixtures"


def once(folder: Path, name: str = "source") -> tuple[Path, bool]:
    """Where a source is written, and whether that is still to be done."""
    return folder / name, not (folder / name).exists()


def write_again(path: Path) -> None:
    """Write a file's own bytes again, at another time."""
    path.write_bytes(path.read_bytes())
    os.utime(path, ns=(10**18, 10**18))


@cache
def store_of(names: str, layout: str) -> dict[str, bytes]:
    """The files of a store of small images, of a class with each name in turn."""
    with TemporaryDirectory() as folder:
        for i, name in enumerate(names):
            save(Path(folder) / "images" / name / f"{i}.png", picture(20, 30, i))
        store = Path(folder) / "store"
        rawpack_packer.pack(Path(folder) / "images", store, size=16, workers=0, format=layout)
        return files_of(store)


@cache
def clip() -> bytes:
    """A video."""
    with TemporaryDirectory() as folder:
        return encode(Path(folder) / "clip.mp4", "libx264", 9).read_bytes()


def write(root: Path, files: Mapping[str, bytes]) -> None:
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


class TestFolder(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            for i in range(7):
                save(root / "ab"[i % 2] / f"{i}.png", picture(20, 30, i))
            (root / "a" / "bad.jpg").write_text("no image")
            (root / "b" / "empty.jpg").touch()
            (root / "b" / "link.jpg").symlink_to("nowhere")
            (root / "c").mkdir()
        return open_source(root)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        root = folder / "source"
        names = sorted(str(path.relative_to(root)) for path in root.glob("*/*"))
        broken = ("b/empty.jpg", "b/link.jpg")
        return [(name, None if name in broken else (root / name).read_bytes()) for name in names]

    def change(self, folder: Path) -> bool:
        write_again(folder / "source" / "a" / "0.png")
        return True


class TestListing(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            for i in range(6):
                save(root / f"{i}.png", picture(20, 30, i))
                save(root / f"mask {i}.png", picture(20, 30, i)[..., 0])
            with (root / "set.csv").open("w", newline="") as file:
                rows = [[f"{i}.png", "xy"[i % 2], i / 3, f"text {i}", f"mask {i}.png"] for i in range(6)]
                csv.writer(file).writerows([["path", "label", "score", "note", "mask"], *rows])
        return open_source(root / "set.csv", fields={"mask": "mask"})

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i}.png", (folder / "source" / f"{i}.png").read_bytes()) for i in range(6)]

    def change(self, folder: Path) -> bool:
        write_again(folder / "source" / "0.png")
        return True


class TestPairs(SourceConformance):
    """A folder, and one of further images, which lacks a file."""

    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            for i in range(6):
                save(root / "ab"[i % 2] / f"{i}.jpg", picture(20, 30, i))
                save(folder / "clean" / "ab"[i % 2] / f"{i}.png", picture(20, 30, i + 9))
            (folder / "clean" / "a" / "2.png").unlink()
        return open_source(root, images={"clean": folder / "clean"})

    def change(self, folder: Path) -> bool:
        write_again(folder / "clean" / "a" / "0.png")
        return True


class TestPairsInHdf5(SourceConformance):
    """Arrays whose channels come first, and image files."""

    def open(self, folder: Path) -> Table:
        path, new = once(folder, "pairs.h5")
        if new:
            with h5py.File(path, "w") as file:
                file["left"] = np.stack([np.moveaxis(picture(20, 30, i), -1, 0) for i in range(5)])
                file["right"] = np.stack([np.moveaxis(picture(20, 30, i + 9), -1, 0) for i in range(5)])
                depth = file.create_dataset("depth", (5,), h5py.vlen_dtype(np.uint8))
                for i in range(5):
                    depth[i] = np.frombuffer(encoded(picture(20, 30, i)[..., 0]), np.uint8)
        fields = {"right": "image", "depth": "image"}
        return open_source(path, array="image=left:chw,right=right,depth=depth", fields=fields)

    def change(self, folder: Path) -> bool:
        write_again(folder / "pairs.h5")
        return True


class TestCoco(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            for i in range(4):
                save(root / f"{i}.png", picture(20, 30, i))
            boxes = [{"id": k, "image_id": k % 3, "category_id": 7, "bbox": [1, 2, 3, 4 + k]} for k in range(5)]
            images = [{"id": i, "file_name": f"{i}.png", "height": 20, "width": 30} for i in range(4)]
            categories = [{"id": 7, "name": "cat"}]
            whole = {"images": images, "annotations": boxes, "categories": categories}
            (root / "set.json").write_text(json.dumps(whole))
        return open_source(root / "set.json")


class TestYolo(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            for i in range(4):
                save(root / "images" / f"{i}.png", picture(20, 30, i))
            (root / "labels").mkdir()
            (root / "labels" / "1.txt").write_text("0 .5 .5 .2 .2\n1 .25 .5 .1 .1\n")
            (root / "classes.txt").write_text("cat\ndog\n")
        return open_source(root)


class TestLabelme(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            shutil.copytree(FIXTURES / "labelme" / "photos", root)
            (root / "002.json").unlink()
        return open_source(root)

    def change(self, folder: Path) -> bool:
        write_again(folder / "source" / "000.jpg")
        return True


class TestCvat(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            shutil.copytree(FIXTURES / "cvat" / "export", root)
        return open_source(root)


class TestRowsOfBoxes(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            for i in range(4):
                save(root / f"{i}.png", picture(20, 30, i))
            rows = "".join(f"{k % 3},{k},1,{k + 5},9,{'ab'[k % 2]},{k}\n" for k in range(7))
            (root / "boxes.csv").write_text(f"image_id,x1,y1,x2,y2,class,number\n{rows}3,,,,,,\n")
        return open_source(root / "boxes.csv")


class TestArrays(SourceConformance):
    images = np.random.default_rng(0).integers(0, 60_000, (5, 7, 6, 2), np.uint16)

    def open(self, folder: Path) -> Table:
        path, new = once(folder, "set.npy")
        if new:
            np.save(path, self.images)
        return open_source(path)

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        return [(f"{i:08d}", image) for i, image in enumerate(self.images)]

    def change(self, folder: Path) -> bool:
        write_again(folder / "set.npy")
        return True


class TestZippedArrays(SourceConformance):
    def open(self, folder: Path) -> Table:
        path, new = once(folder, "set.npz")
        if new:
            texts = np.array(["a", "bb", "", "dd"])
            np.savez(path, image=np.zeros((4, 6, 5, 3), np.uint8), label=[0, 1, 0, 1], note=texts)
        return open_source(path)


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


@pytest.mark.usefixtures("looked_through_here")
class TestVideo(SourceConformance):
    def open(self, folder: Path) -> Table:
        root, new = once(folder)
        if new:
            write(root, {"a/one.mp4": clip(), "b/two.mp4": clip(), "b/bad.mp4": b"no video"})
        return open_source(root)

    def change(self, folder: Path) -> bool:
        write_again(folder / "source" / "a" / "one.mp4")
        return True


class TestStore(SourceConformance):
    layout = "memmap"

    def open(self, folder: Path) -> Table:
        store, new = once(folder, "packed")
        if new:
            write(store, store_of("ababab", self.layout))
        return open_stores(store)


class TestLmdbStore(TestStore):
    layout = "lmdb"


class TestStores(SourceConformance):
    """Two stores whose classes overlap: "b" is 1 in one store and 0 in the other."""

    def open(self, folder: Path) -> Table:
        stores = []
        for name, classes in (("one", "ababa"), ("two", "bcbcb")):
            store, new = once(folder, name)
            stores.append(store)
            if new:
                write(store, store_of(classes, "memmap"))
        return open_stores(stores, prefixes=["1/", "2/"])

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        one, two = ("a/0", "a/2", "a/4", "b/1", "b/3"), ("b/0", "b/2", "b/4", "c/1", "c/3")
        return [(f"1/{key}.png", None) for key in one] + [(f"2/{key}.png", None) for key in two]

    def test_classes_are_united_by_name(self, tmp_path: Path) -> None:
        """A label is the same class in all samples, whatever its number was."""
        source = self.open(tmp_path)
        classes = source.info.classes
        assert classes == ("a", "b", "c")
        assert [classes[int(source[i].fields["label"])] for i in range(10)] == [*"aaabb", *"bbbcc"]  # type: ignore[arg-type]


class TestView(TestFolder):
    def open(self, folder: Path) -> Table:
        return super().open(folder).take(np.array([0, 1, 4, 5, 9])).with_classes(("new", "b", "a", "c"))

    def expected(self, folder: Path) -> Sequence[tuple[str, Any]]:
        whole = super().expected(folder)
        return [whole[i] for i in (0, 1, 4, 5, 9)]


class TestFramesInAView(TestVideo):
    def open(self, folder: Path) -> Table:
        rows = np.array([0, 1, 5, 9, 12])
        return super().open(folder).take(rows).joined({"video": Numbers(np.array([4, 4, 4, 7, 7]))})
