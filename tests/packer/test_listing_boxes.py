"""Boxes as others keep them: YOLO's text file beside each image, and COCO's JSON.

The oracle is the arithmetic of both formats, done here once more by hand.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import changed, rejects_of
from pictures import picture, save
from running import pack

from rawpack import Reader, UsageError
from rawpack_packer.sources import open_source
from rawpack_packer.sources.fields import Boxes

SIZES = ((40, 60), (50, 30), (32, 32))
YOLO = ("0 0.5 0.5 0.2 0.4\n1 0.25 0.75 0.1 0.1\n", "", "2 0.5 0.5 1 1")


@pytest.fixture
def yolo(tmp_path: Path) -> Path:
    """Images and labels side by side, three images, one of them without a file of boxes, with the names of classes."""
    root = tmp_path / "set"
    for i, (height, width) in enumerate(SIZES):
        save(root / f"images/train/{i}.jpg", picture(height, width, i))
        (root / "labels/train").mkdir(parents=True, exist_ok=True)
        if i != 1:
            (root / f"labels/train/{i}.txt").write_text(YOLO[i])
    (root / "classes.txt").write_text("cat\ndog\nowl\nyak\n")
    return root


@pytest.fixture
def coco(tmp_path: Path) -> Path:
    """COCO's layout: annotations/instances_tiny.json, and the images in tiny/."""
    for i, (height, width) in enumerate(SIZES):
        save(tmp_path / f"tiny/{i}.jpg", picture(height, width, i))
    tree = {
        "info": {"year": 2000},
        "images": [
            {"id": 70 - i, "file_name": f"{i}.jpg", "height": height, "width": width}
            for i, (height, width) in enumerate(SIZES)
        ],
        "annotations": [
            {"id": 1, "image_id": 70, "category_id": 9, "bbox": [10, 5.5, 20, 10], "iscrowd": 0, "area": 200,
             "segmentation": [[10, 5, 30, 5, 30, 15]]},
            {"id": 2, "image_id": 68, "category_id": 3, "bbox": [0, 0, 32, 32]},
            {"id": 3, "image_id": 70, "category_id": 3, "bbox": [1, 2, 3, 4], "iscrowd": 0, "segmentation": []},
            {"id": 4, "image_id": 70, "category_id": 9, "bbox": [0, 0, 60, 40], "iscrowd": 1,
             "segmentation": {"counts": [1, 2], "size": [40, 60]}},
        ],
        "categories": [{"id": 9, "name": "dog"}, {"id": 3, "name": "cat"}, {"id": 5, "name": "owl"}],
    }  # fmt: skip
    path = tmp_path / "annotations/instances_tiny.json"
    path.parent.mkdir()
    path.write_text(json.dumps(tree))
    return path


# ---------------------------------------------------------------------------------------------- YOLO


# ---------------------------------------------------------------------------------------------- COCO


def test_coco_boxes_are_scaled_with_their_images(coco: Path, tmp_path: Path) -> None:
    """A 60 x 40 image scaled to cover 20 x 20 is 30 x 20, and its centre begins at column 5."""
    reader = Reader(pack(coco, tmp_path / "s", "--size", 20))
    np.testing.assert_allclose(reader[0]["boxes"], [[0, 2.75, 10, 7.75, 2]], atol=1e-5)
    counts = json.loads((tmp_path / "s/store.json").read_bytes())["counts"]
    assert counts["no_boxes"] == 1
    assert counts["segmentations"] == 1  # run lengths, those of the crowd
    assert counts["boxes_outside"] == 1
    assert counts["boxes_cut"] == 1  # that of the crowd


def test_coco_images_do_not_lead_out_of_their_folder(coco: Path, tmp_path: Path, monkeypatch: Any) -> None:
    """The JSON of somebody else cannot take an image from elsewhere into the store, by an absolute path or by `..`,
    unless --images says where its paths start. What stays in the set is packed, also in `annotations` and by links."""
    (tmp_path / "private").mkdir()
    secret = tmp_path / "private" / "0.jpg"
    shutil.copy(coco.parents[1] / "tiny" / "0.jpg", secret)
    tree = json.loads(coco.read_text())
    file = tmp_path / "set" / "annotations" / "all.json"
    file.parent.mkdir(parents=True)
    for i in (1, 2):
        shutil.copy(coco.parents[1] / "tiny" / f"{i}.jpg", file.parent.parent / f"{i}.jpg")
        tree["images"][i]["file_name"] = f"../{i}.jpg"
    for name in (str(secret), "../../private/0.jpg", "../x/../../private/0.jpg"):
        tree["images"][0]["file_name"] = name
        file.write_text(json.dumps(tree))
        monkeypatch.chdir(tmp_path / "private")
        for path in (file, Path("../set/annotations/all.json")):
            with pytest.raises(UsageError, match=rf"\$.images\[0\].file_name: {name} leads out of .*--images "):
                open_source(path)
        (tmp_path / "set" / "x").mkdir(exist_ok=True)
        assert len(open_source(file, images=file.parent)) == 3
    tree["images"][0]["file_name"] = "../0.jpg"
    file.write_text(json.dumps(tree))
    (file.parent.parent / "0.jpg").symlink_to(secret)
    assert len(open_source(file)) == 3


@pytest.mark.parametrize(
    ("names", "classes"),
    [(("cat 9", "cat", "cat"), ("cat 9", "cat", "cat 9 9")), (("cat", "cat 5", "cat"), ("cat", "cat 5", "cat 9"))],
)
def test_coco_categories_of_one_name_stay_apart(names: tuple[str, ...], classes: tuple[str, ...], coco: Path) -> None:
    """Of two with the same name the second has its id in it, as often as it takes to be another; boxes keep theirs."""
    categories = [{"id": i, "name": name} for i, name in zip((3, 5, 9), names, strict=True)]
    source = open_source(changed(coco, lambda tree: tree.update(categories=categories)))
    assert source.info.classes == classes
    assert source[0].fields["boxes"].rows[:, 4].tolist() == [2, 0]  # type: ignore[union-attr]


def test_boxes_of_an_image_of_another_size_are_rejected(coco: Path, tmp_path: Path) -> None:
    """An image that was resized or turned after its boxes were drawn is rejected, with both sizes; one whose size the
    file does not say is taken as it is."""
    save(tmp_path / "tiny/0.jpg", picture(20, 30, 0))
    pack(coco, tmp_path / "s", "--size", "keep", "--max-rejects", 1)
    (reject,) = rejects_of(tmp_path / "s")
    assert (reject["key"], reject["reason"]) == ("0.jpg", "bad_field")
    assert "an image of (40, 60) (height, width), but the image has (20, 30)" in reject["detail"]
    unsaid = changed(coco, lambda tree: [image.pop("height") for image in tree["images"]])
    assert len(Reader(pack(unsaid, tmp_path / "t", "--size", "keep"))) == 3


@pytest.mark.parametrize("kind", ["coco", "yolo"])
def test_classes_of_boxes_are_renumbered_with_the_classes(kind: str, coco: Path, yolo: Path) -> None:
    """Seen with one class more in front, each box's class is one more, and the box is where it was."""
    source = open_source(coco if kind == "coco" else yolo)
    assert source.info.classes is not None
    view = source.take(np.array([0, 2])).with_classes(("a new one", *source.info.classes))
    for i, at in enumerate((0, 2)):
        was, now = source[at].fields["boxes"], view.part(i, i + 1)[0].fields["boxes"]
        assert isinstance(was, Boxes)
        assert isinstance(now, Boxes)
        column = 0 if kind == "yolo" else 4
        np.testing.assert_array_equal(now.rows[:, column], was.rows[:, column] + 1)
        np.testing.assert_array_equal(np.delete(now.rows, column, 1), np.delete(was.rows, column, 1))
    assert view.states()[:2].tolist() == source.states()[[0, 2]].tolist()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t["images"][2].update(file_name="0.jpg"), "$.images[2].file_name: '0.jpg' belongs to $.images[0]"),
        (lambda t: t.pop("categories"), "categories"),
    ],
)
def test_a_bad_coco_file_is_refused(change: Any, words: str, coco: Path) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        open_source(changed(coco, change))
