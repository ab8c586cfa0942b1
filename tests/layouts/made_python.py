"""Layouts of Python objects, which a line of Python packs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from layout import Layout, Samples
from pictures import picture
from PIL import Image

_BREEDS = ("pug", "corgi", "pug", "beagle", "corgi", "pug")


def _sizes(n: int) -> tuple[int, int]:
    return 24 + 4 * (n % 3), 32


def _table(root: Path) -> dict[str, Any]:
    paths = [root / f"{n:03}.png" for n in range(len(_BREEDS))]
    for n, path in enumerate(paths):
        Image.fromarray(picture(24, 32, n)).save(path)
    return {"path": [*map(str, paths)], "label": list(_BREEDS), "age": [*range(len(_BREEDS))]}


def _of_table(root: Path) -> Samples:
    return {
        f"{n:08}": {"image": np.asarray(Image.open(root / f"{n:03}.png")), "label": label, "age": n}
        for n, label in enumerate(_BREEDS)
    }


def _of_frame(root: Path) -> Samples:
    return {str(root / f"{n:03}.png"): sample for n, sample in enumerate(_of_table(root).values())}


def _frame(module: str) -> Callable[[Path], Mapping[str, Any]]:
    def make(root: Path) -> Mapping[str, Any]:
        frames = __import__(module)
        return {"frame": frames.DataFrame(_table(root))}

    return make


def _hugging_face(root: Path) -> Mapping[str, Any]:
    import datasets

    names = sorted(set(_BREEDS))
    columns = {"img": _table(root)["path"], "breed": [*map(names.index, _BREEDS)], "age": [*range(len(_BREEDS))]}
    kinds = {"img": datasets.Image(), "breed": datasets.ClassLabel(names=names), "age": datasets.Value("int64")}
    return {"dataset": datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))}


_OBJECTS = [
    {"bbox": [[20, 12, 9, 8], [2, 3, 4, 5]], "category": [1, 0], "area": [72, 20]},
    {"bbox": [], "category": [], "area": []},
]


def _objects(root: Path) -> Mapping[str, Any]:
    import datasets

    kinds = {"bbox": datasets.Value("float32"), "category": datasets.ClassLabel(names=["ear", "nose"])}
    inner = {
        "bbox": datasets.Sequence(datasets.Sequence(kinds["bbox"], length=4)),
        "category": datasets.Sequence(kinds["category"]),
        "area": datasets.Sequence(datasets.Value("int64")),
    }
    features = datasets.Features({"image": datasets.Image(), "objects": inner})
    images = _table(root)["path"][: len(_OBJECTS)]
    return {"dataset": datasets.Dataset.from_dict({"image": images, "objects": _OBJECTS}, features=features)}


def _of_objects(root: Path) -> Samples:
    found = {}
    for n, one in enumerate(_OBJECTS):
        rows = [[x, y, x + w, y + h, k] for (x, y, w, h), k in zip(one["bbox"], one["category"], strict=True)]
        found[f"{n:08}"] = {
            "image": np.asarray(Image.open(root / f"{n:03}.png")),
            "boxes": np.array(rows, np.float32).reshape(-1, 5),
            "area": np.array(one["area"], np.int64),
        }
    return found


class _Named:
    """As many people write it."""

    def __len__(self) -> int:
        return len(_BREEDS)

    def __getitem__(self, i: int) -> tuple[Image.Image, str]:
        return Image.fromarray(picture(24, 32, i)), _BREEDS[i]


def _of_named(root: Path) -> Samples:
    return {f"{i:08}": {"image": picture(24, 32, i), "label": label} for i, label in enumerate(_BREEDS)}


class _Detection:
    """As in torchvision's tutorial on detection."""

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> tuple[Image.Image, dict[str, Any]]:
        boxes = [[n, n + 1, n + 9, n + 12] for n in range(i % 3)]
        labels = np.arange(1, i % 3 + 1)
        target = {"boxes": np.array(boxes, np.float32).reshape(-1, 4), "labels": labels, "area": labels * 99.0}
        return Image.fromarray(picture(24, 32, i)), {**target, "image_id": i}


def _of_detection(root: Path) -> Samples:
    found = {}
    for i in range(5):
        rows = [[n, n + 1, n + 9, n + 12, n + 1] for n in range(i % 3)]
        boxes, area = np.array(rows, float).reshape(-1, 5), 99.0 * np.arange(1, i % 3 + 1)
        found[f"{i:08}"] = {"image": picture(24, 32, i), "boxes": boxes, "area": area, "image_id": i}
    return found


class _Coco:
    """As torchvision's CocoDetection."""

    coco = type("coco", (), {"cats": {9: {"id": 9, "name": "cat"}, 4: {"id": 4, "name": "dog"}}})

    def __len__(self) -> int:
        return 5

    def __getitem__(self, i: int) -> tuple[Image.Image, list[dict[str, Any]]]:
        things = [{"bbox": [n, 2, 9, 8], "category_id": (9, 4)[n % 2], "iscrowd": int(n == 2)} for n in range(i)]
        return Image.fromarray(picture(24, 32, i)), things


def _of_coco(root: Path) -> Samples:
    found = {}
    for i in range(5):
        rows = [[n, 2, n + 9, 10, 1 - n % 2] for n in range(i)]
        boxes, crowds = ([row for n, row in enumerate(rows) if (n == 2) is crowd] for crowd in (False, True))
        found[f"{i:08}"] = {
            "image": picture(24, 32, i),
            "boxes": np.array(boxes, float).reshape(-1, 5),
            "crowds": np.array(crowds, float).reshape(-1, 5),
        }
    return found


class _Read:
    """`cv2.imread` of files of several sizes."""

    def __init__(self, root: Path) -> None:
        self._root = root
        for n in range(6):
            Image.fromarray(picture(*_sizes(n), n)).save(root / f"{n}.png")

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> tuple[Any, int]:
        import cv2

        image = cv2.imread(str(self._root / f"{i}.png"))
        assert image is not None
        return cv2.cvtColor(image, cv2.COLOR_BGR2RGB), i % 2


def _of_read(root: Path) -> Samples:
    return {f"{n:08}": {"image": np.asarray(Image.open(root / f"{n}.png")), "label": n % 2} for n in range(6)}


LAYOUTS = (
    Layout("a pandas DataFrame of paths and labels", _frame("pandas"), _of_frame, ("pandas",)),
    Layout("a polars DataFrame of paths and labels", _frame("polars"), _of_frame, ("polars",)),
    Layout("a Hugging Face `Dataset`", _hugging_face, _of_table, ("datasets",)),
    Layout("a Hugging Face `Dataset` with `objects`", _objects, _of_objects, ("datasets",)),
    Layout("a dataset whose labels are texts", lambda root: {"dataset": _Named()}, _of_named),
    Layout(
        "a detection dataset: (image, dict of `boxes` and `labels`)",
        lambda root: {"dataset": _Detection()},
        _of_detection,
    ),
    Layout("torchvision's `CocoDetection`: (image, list of annotations)", lambda root: {"dataset": _Coco()}, _of_coco),
    Layout(
        "a dataset of arrays of different sizes, as by `cv2.imread`", lambda root: {"dataset": _Read(root)}, _of_read
    ),
)
