"""Datasets of torchvision's kind, (image, target), become boxes with the numbers of classes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from folders import rejects_of
from pictures import picture
from PIL import Image
from running import reader_of as packed

from rawpack import Reader
from rawpack.targets import torchvision_targets

HEIGHT, WIDTH = 40, 60


class Scenes:
    """As the tutorial of torchvision has it; sample 2 has no object."""

    def __init__(self, convert: Any = np.asarray) -> None:
        self.convert = convert

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> tuple[Any, dict[str, Any]]:
        return Image.fromarray(picture(HEIGHT, WIDTH, i)), {k: self.convert(v) for k, v in self.target(i).items()}

    @staticmethod
    def target(i: int) -> dict[str, Any]:
        count = 0 if i == 2 else 1 + i % 3
        random = np.random.default_rng(i)
        corner = random.integers(0, 20, (count, 2))
        boxes = np.concatenate([corner, corner + random.integers(5, 20, (count, 2))], axis=1).astype(np.float32)
        masks = np.zeros((count, HEIGHT, WIDTH), np.uint8)
        for n, (left, top, right, bottom) in enumerate(boxes.astype(int)):
            masks[n, top:bottom, left:right] = 1
        return {
            "boxes": boxes.reshape(count, 4),
            "labels": random.integers(1, 4, count),
            "image_id": np.array([100 + i]),
            "area": random.random(count).astype(np.float32),
            "iscrowd": np.zeros(count, np.int64),
            "masks": masks,
        }


def check(reader: Reader) -> None:
    for i in range(6):
        sample, target = reader[i], Scenes.target(i)
        wanted = np.column_stack([target["boxes"], target["labels"]])
        np.testing.assert_array_equal(sample["boxes"], wanted)
        np.testing.assert_array_equal(sample["area"], target["area"])
        np.testing.assert_array_equal(sample["iscrowd"], target["iscrowd"])
        np.testing.assert_array_equal(sample["image"], picture(HEIGHT, WIDTH, i))
        assert sample["image_id"] == 100 + i
        instances = np.zeros((HEIGHT, WIDTH), int)
        for n, mask in enumerate(target["masks"], 1):
            instances[mask == 1] = n
        np.testing.assert_array_equal(sample["instances"][..., 0], instances)
        np.testing.assert_array_equal(sample["object"], np.arange(1, len(wanted) + 1))


@pytest.mark.parametrize(("stream", "workers"), [(True, 0), (False, 2)])
def test_a_dict_of_boxes_and_labels(stream: bool, workers: int, tmp_path: Path) -> None:
    scenes: Any = Scenes()
    reader = packed((scenes[i] for i in range(6)) if stream else scenes, tmp_path / "s", workers=workers)
    check(reader)
    (batch,) = reader.batches(6, fields=["image", "boxes"])
    for i, target in enumerate(torchvision_targets(batch)):
        np.testing.assert_array_equal(target["boxes"], Scenes.target(i)["boxes"])
        np.testing.assert_array_equal(target["labels"], Scenes.target(i)["labels"])


def test_tensors(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    check(packed(Scenes(torch.as_tensor), tmp_path / "s"))


def annotations(i: int) -> list[dict[str, Any]]:
    """Of image i; image 0 has none. The ids of categories have gaps."""
    return [
        {"id": 10 * i + n, "image_id": i, "category_id": (7, 3, 90)[n % 3], "area": 4.0, "iscrowd": int(n == 2),
         "bbox": [n, 2 * n, 5 + i, 6], "segmentation": [[0, 0, 1, 1, 2, 0]]}
        for n in range(i)
    ]  # fmt: skip


class Coco:
    """As torchvision's CocoDetection is: the annotations as they stand in the file."""

    class coco:  # noqa: N801
        cats: ClassVar = {n: {"id": n, "name": name} for n, name in ((90, "tree"), (3, "cat"), (7, "dog"))}

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> tuple[Image.Image, list[dict[str, Any]]]:
        return Image.fromarray(picture(HEIGHT, WIDTH, i)), annotations(i)


def test_annotations_without_categories_keep_their_ids(tmp_path: Path) -> None:
    given = [(picture(HEIGHT, WIDTH, i), annotations(i)) for i in range(4)]
    reader = packed(given, tmp_path / "s")
    assert reader.classes is None
    for i in range(4):
        single = [one for one in annotations(i) if not one["iscrowd"]]
        wanted = [[x, y, x + w, y + h, one["category_id"]] for one in single for x, y, w, h in [one["bbox"]]]
        np.testing.assert_array_equal(reader[i]["boxes"], np.reshape(wanted, (-1, 5)))


def test_targets_that_are_damaged_are_rejected(tmp_path: Path) -> None:
    whole = {"boxes": [[1, 2, 3, 4]], "labels": [1]}
    wrong: list[Any] = [{**whole, "labels": [1, 2]}, {**whole, "boxes": [[1, 2, 3]]}, {**whole, "boxes": None}]
    given = [(picture(8, 8, i), target) for i, target in enumerate([whole, *wrong, whole])]
    assert len(packed(given, tmp_path / "s", workers=0, max_rejects=3)) == 2
    rejects = rejects_of(tmp_path / "s")
    assert [one["reason"] for one in rejects] == ["bad_field"] * 3
    assert "it has 1 boxes and 2 labels" in rejects[0]["detail"]
    strange = Coco()
    strange.coco = type("coco", (), {"cats": {3: {"name": "cat"}, 7: {"name": "dog"}}})  # type: ignore[misc, assignment]
    packed(strange, tmp_path / "strange", workers=0, max_rejects=4)
    assert "category_id 90 is none of the 2 categories" in rejects_of(tmp_path / "strange")[0]["detail"]


def test_lists_that_are_no_annotations_stay(tmp_path: Path) -> None:
    """Several labels of an image, of which it may have none."""
    given = [{"image": picture(8, 8, i), "label": label} for i, label in enumerate([["a", "b"], [], ["c"]])]
    reader = packed(given, tmp_path / "s")
    assert [list(reader[i]["label"]) for i in range(3)] == [["a", "b"], [], ["c"]]
