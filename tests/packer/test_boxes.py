"""Boxes move with their images: while packing, by `image_size=`, and through every transform.

What is right is said by pixels: a bright box is painted into each image, and found again in what a store holds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import rejects_of
from numpy.typing import NDArray
from PIL import Image
from running import reader_of, run_here

import rawpack_packer
from rawpack import Reader, UsageError, Workers
from rawpack.disk.manifest import load, parse, seal, unseal
from rawpack.errors import DamagedStoreError
from rawpack.transforms import (
    CenterCrop,
    ColorJitter,
    Lambda,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)

COUNT = 16


def painted(i: int) -> tuple[NDArray[np.uint8], tuple[int, int, int, int]]:
    """A dark image with one bright box, and where that is: left, top, right, bottom."""
    rng = np.random.default_rng(i)
    height, width = int(rng.integers(90, 160)), int(rng.integers(90, 160))
    left, top = int(rng.integers(20, 40)), int(rng.integers(20, 40))
    right, bottom = left + int(rng.integers(24, 40)), top + int(rng.integers(24, 40))
    image = np.zeros((height, width, 3), np.uint8)
    image[top:bottom, left:right] = 255
    return image, (left, top, right, bottom)


def found(image: NDArray[Any]) -> tuple[int, int, int, int] | None:
    """Where the bright pixels of an image (H, W, C) lie; None where there are none."""
    bright = np.asarray(image, np.float64).mean(axis=2) > 127
    if not bright.any():
        return None
    rows, columns = np.flatnonzero(bright.any(axis=1)), np.flatnonzero(bright.any(axis=0))
    return int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1


def check(image: NDArray[Any], boxes: NDArray[Any], slack: float = 1.0) -> bool:
    """Compare what a sample says with what its pixels show. Whether there was a box to see."""
    seen = found(image)
    if seen is None:
        assert len(boxes) == 0 or min(boxes[0, 2] - boxes[0, 0], boxes[0, 3] - boxes[0, 1]) < slack
        return False
    assert len(boxes) == 1
    np.testing.assert_allclose(boxes[0, :4], seen, atol=slack)
    assert boxes[0, 4] == 7
    return True


def packed(path: Path, form: str = "xyxy", **options: Any) -> Path:
    """A store of painted images, their boxes written in one of the forms."""
    samples = []
    for image, (left, top, right, bottom) in map(painted, range(COUNT)):
        height, width = image.shape[:2]
        row = {
            "xyxy": [left, top, right, bottom, 7],
            "xywh": [left, top, right - left, bottom - top, 7],
            "yolo": [7, (left + right) / 2 / width, (top + bottom) / 2 / height,
                     (right - left) / width, (bottom - top) / height],
        }[form]  # fmt: skip
        mask = (image[..., 0] > 0).astype(np.uint8)
        samples.append({"image": Image.fromarray(image), "boxes": np.array([row], np.float64), "mask": mask})
    rawpack_packer.pack(samples, path, workers=0, fields={"boxes": form, "mask": "mask"}, **options)
    return path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The painted images, each at its own size."""
    return packed(tmp_path_factory.mktemp("boxes") / "store", size="keep", format="hdf5")


@pytest.mark.parametrize(
    ("form", "options"),
    [
        ("xyxy", {"size": "keep"}),
        ("xywh", {"size": (48, 96), "fit": "stretch"}),
        ("yolo", {"size": 40, "crop": "25,30,60,50"}),
        ("xywh", {"size": "keep", "crop": "25,30,60,50"}),
    ],
    ids=str,
)
def test_boxes_lie_where_the_pixels_do(options: dict[str, Any], form: str, tmp_path: Path) -> None:
    """Whatever the recipe cuts and scales, a stored box is around what it was around, however the source writes it."""
    reader = Reader(packed(tmp_path / "store", form, **options))
    assert reader.fields["boxes"].shape == (None, 5)
    samples = [reader[i] for i in range(COUNT)]
    assert sum(check(sample["image"], sample["boxes"]) for sample in samples) > COUNT // 2


def test_boxes_are_cut_to_the_image_and_counted(tmp_path: Path) -> None:
    """What sticks out is cut off; a box of which nothing is left goes, as does one without an area; all are counted."""
    boxes = [[40, 0, 60, 100, 1], [0, 0, 50, 100, 2], [60, 10, 140, 90, 3], [5, 5, 9, 9, 4], [70, 20, 70, 60, 5]]
    samples = [{"image": Image.fromarray(np.zeros((100, 200, 3), np.uint8)), "boxes": boxes}]
    summary = rawpack_packer.pack(samples, tmp_path / "s", size=50, workers=0, fields={"boxes": "xyxy"})
    # 200 x 100 becomes 100 x 50, of which columns 25 to 75 stay.
    assert Reader(tmp_path / "s")[0]["boxes"].tolist() == [[0, 0, 5, 50, 1], [5, 5, 45, 45, 3]]
    counts = summary.manifest.counts
    assert (counts["boxes_cut"], counts["boxes_outside"], counts["boxes_empty"]) == (1, 2, 1)
    assert "boxes without a width or height, left out: 1" in str(summary)


@pytest.mark.parametrize(
    ("form", "boxes", "words"),
    [
        ("xyxy", [[10, 10, 5, 20, 0]], "right - left"),
        ("xyxy", [[10, 10, float("nan"), 20, 0]], "not finite"),
        ("yolo", [[0, 30, 30, 10, 10]], "fractions of the image"),
        ("xyxy", [[1, 2, 3, 4]], "boxes has shape"),
    ],
)
def test_what_is_no_box_is_rejected(form: str, boxes: Any, words: str, tmp_path: Path) -> None:
    """A row that can be no box rejects its sample as bad_field, with the numbers."""
    good = [[0.1, 0.1, 0.2, 0.2, 0.3]] if form != "yolo" else [[0, 0.5, 0.5, 0.2, 0.3]]
    image = Image.fromarray(np.zeros((20, 20, 3), np.uint8))
    samples = [{"image": image, "boxes": good}, {"image": image, "boxes": boxes}]
    rawpack_packer.pack(samples, tmp_path / "s", size="keep", workers=0, fields={"boxes": form}, max_rejects=1)
    (reject,) = rejects_of(tmp_path / "s")
    assert reject["reason"] == "bad_field"
    assert words in reject["detail"]


@pytest.mark.parametrize(
    "transform",
    [
        None,
        [RandomHorizontalFlip(), RandomVerticalFlip(), ColorJitter(brightness=0.1)],
        [RandomCrop(70, padding=12), RandomHorizontalFlip()],
        [Resize(80), CenterCrop(50)],
    ],
    ids=str,
)
def test_boxes_of_batches_move_with_their_images(transform: Any, kept: Path) -> None:
    batches = Reader(kept).batches(
        8, shuffle=True, seed=3, fields=["image", "boxes"], image_size=72, transform=transform, workers=0
    )
    seen = [check(image, boxes, 1.6) for _ in range(2) for batch in batches for image, boxes in _pairs(batch)]
    assert len(seen) == 2 * COUNT
    assert sum(seen) > COUNT


@pytest.mark.parametrize("backend", ["process", "thread"])
def test_boxes_and_masks_are_moved_by_what_workers_drew(backend: Any, kept: Path) -> None:
    """What workers do to an image is done to its mask, and to its boxes in the process that hands them over."""
    batches = Reader(kept).batches(
        8, shuffle=True, fields=["mask", "image", "boxes"], workers=Workers(2, backend=backend),
        transform=[RandomResizedCrop(48), RandomHorizontalFlip(), RandomVerticalFlip()],
    )  # fmt: skip
    seen = 0
    for batch in batches:
        for image, mask, boxes in zip(batch["image"], batch["mask"], batch["boxes"], strict=True):
            seen += check(image, boxes, 1.6)
            check(mask * np.uint8(255), boxes, 1.6)
    assert seen > COUNT // 2


def _pairs(batch: dict[str, Any]) -> Any:
    return zip(batch["image"], batch["boxes"], strict=True)


def test_boxes_move_with_the_frames_of_clips(tmp_path: Path) -> None:
    """All frames of a clip are cropped and turned alike, and each frame's boxes with them."""
    frames = []
    for i in range(40):
        left, top = 20 + 3 * (i % 20), 60 - 2 * (i % 20)
        image = np.zeros((120, 140, 3), np.uint8)
        image[top : top + 30, left : left + 26] = 255
        boxes = np.array([[left, top, left + 26, top + 30, 7]], np.float64)
        frames.append({"image": image, "boxes": boxes, "video": i // 20, "frame": i % 20})
    reader = reader_of(frames, tmp_path / "s", workers=0, fields={"boxes": "xyxy"})
    batches = reader.clips(5, step=2).batches(
        4, shuffle=True, fields=["image", "boxes"], workers=2,
        transform=[RandomResizedCrop(64), RandomHorizontalFlip(), RandomVerticalFlip()],
    )  # fmt: skip
    clips = [clip for batch in batches for clip in _pairs(batch)]
    seen = [check(image, boxes, 1.6) for clip in clips for image, boxes in zip(*clip, strict=True)]
    assert len(seen) == 16 * 5
    assert sum(seen) > 40


def test_a_function_that_resizes_is_refused_beside_boxes(kept: Path) -> None:
    """A function says nothing of points: with boxes in the batch that is an error; without them it is not."""
    transform = [Lambda(lambda image: image[:16, :16], shape=(16, 16, 3))]
    with pytest.raises(UsageError, match=r"does not say where their boxes go.*move\(\)"):
        Reader(kept).batches(4, fields=["image", "boxes"], transform=transform)
    assert next(iter(Reader(kept).batches(4, fields=["image"], transform=transform, workers=0)))["image"].shape[1] == 16


def test_boxes_lie_in_pictures_alone(tmp_path: Path) -> None:
    """Beside arrays that are no pictures, boxes are refused; beside arrays of pixels they move as beside files."""
    with pytest.raises(UsageError, match="which need pictures"):
        rawpack_packer.pack(
            [{"image": np.zeros(7, np.float32), "boxes": [[0, 0, 1, 1, 0]]}], tmp_path / "s", fields={"boxes": "xyxy"}
        )
    samples = [{"image": np.zeros((40, 80, 3), np.float32), "boxes": [[20, 0, 40, 20, 0]]}]
    rawpack_packer.pack(samples, tmp_path / "t", size=20, workers=0, fields={"boxes": "xyxy"})
    assert Reader(tmp_path / "t")[0]["boxes"].tolist() == [[0, 0, 10, 10, 0]]


CLASSES = {"a": ["cat", "dog"], "b": ["bird", "cat"], "c": ["dog", "eel", "bird"]}


@pytest.fixture(scope="module")
def of_classes(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Stores of two images with a box of each of some classes: the first box is 8 wide, the second 9, ..."""
    root = tmp_path_factory.mktemp("classes")
    for store, names in CLASSES.items():
        objects = {"bbox": [[0, 0, 8 + number, 8] for number in range(len(names))], "category": names}
        rawpack_packer.pack(
            {"image": 2 * [Image.new("RGB", (64, 32))], "objects": 2 * [objects]}, root / store, size="keep", workers=0,
            fields={"objects": "xyxy"}, classes=names, keys=[f"{store}{i}" for i in range(2)],
        )  # fmt: skip
    return [root / store for store in CLASSES]


@pytest.mark.parametrize("way", ["append", "merge, convert and subset"])
def test_boxes_keep_the_names_of_their_classes(way: str, of_classes: list[Path], tmp_path: Path) -> None:
    """Stores whose classes have other numbers are made one: every box has the class that it had, by its name; and no
    class that boxes have is counted as one without an image."""
    made = tmp_path / "all"
    commands: dict[str, list[tuple[object, ...]]] = {
        "append": [("convert", of_classes[0], made), *(("append", store, made) for store in of_classes[1:])],
        "merge, convert and subset": [
            ("merge", *of_classes, tmp_path / "merged"),
            ("convert", "--format", "hdf5", tmp_path / "merged", tmp_path / "converted"),
            ("subset", "--limit", 6, tmp_path / "converted", made),
        ],
    }
    for command in commands[way]:
        ran = run_here(command[0], "--workers", 0, *command[1:])
        assert (ran.code, "without an image" in ran.out) == (0, False), ran
    reader = Reader(made)
    assert reader.classes == ("cat", "dog", "bird", "eel")
    assert len(reader) == 6
    for sample in reader:
        names = CLASSES[sample["key"][0]]
        assert [reader.classes[int(box[4])] for box in sample["boxes"]] == names
        assert sample["boxes"][:, 2].tolist() == [8 + number for number in range(len(names))]
    assert json.loads((made / "store.json").read_bytes())["counts"].get("empty_classes", 0) == 0


@pytest.mark.parametrize("wrong", [{"boxes": "xywh"}, {"shape": [None, 3]}], ids=str)
def test_a_manifest_whose_boxes_are_none_is_refused(wrong: dict[str, Any], kept: Path) -> None:
    """A reader refuses forms that it does not know, and boxes that are no rows of four floats."""
    assert load(kept)[0].fields["boxes"].is_boxes
    text, _ = unseal((kept / "store.json").read_bytes(), "it")
    tree = json.loads(text)
    tree["fields"]["boxes"] |= wrong
    with pytest.raises(DamagedStoreError):
        parse(seal(json.dumps(tree, indent=1).encode()), "it")
