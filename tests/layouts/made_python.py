"""Layouts of Python objects, which a line of Python packs; of a stream, which is iterated once, without a length."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cases import write
from layout import Layout, Samples, pngs, samples_of, shot
from pictures import picture
from PIL import Image

_BREEDS = ("pug", "corgi", "pug", "beagle", "corgi", "pug")


def _table(root: Path) -> dict[str, Any]:
    write(root, pngs("{:03}.png", len(_BREEDS)))
    paths = [str(root / f"{n:03}.png") for n in range(len(_BREEDS))]
    return {"path": paths, "label": list(_BREEDS), "age": [*range(len(_BREEDS))]}


def _of_table(keys: str) -> Samples:
    return samples_of(keys, len(_BREEDS), lambda n: {"label": _BREEDS[n], "age": n})


def _of_frame(root: Path) -> Samples:
    return _of_table(f"{root}/{{:03}}.png")


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


_OBJECTS: list[dict[str, Any]] = [
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


def _boxes(rows: Any) -> Any:
    return np.array(rows, np.float32).reshape(-1, 5)


def _of_objects(root: Path) -> Samples:
    found = {}
    for n, one in enumerate(_OBJECTS):
        rows = [[x, y, x + w, y + h, k] for (x, y, w, h), k in zip(one["bbox"], one["category"], strict=True)]
        found[f"{n:08}"] = {"image": shot(n), "boxes": _boxes(rows), "area": np.array(one["area"], np.int64)}
    return found


def _of_stream() -> Samples:
    return samples_of("{:08}", 9, lambda n: {"label": ("cat", "dog", "eel")[n % 3], "score": n / 4})


class _Data:
    """A dataset as many people write it. sample: what it makes of a number."""

    def __init__(self, length: int, sample: Callable[[int], Any]) -> None:
        self._length, self._sample = length, sample

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Any:
        return self._sample(i)


def _detection(i: int) -> tuple[Image.Image, dict[str, Any]]:
    """As in torchvision's tutorial on detection."""
    boxes = [[n, n + 1, n + 9, n + 12] for n in range(i % 3)]
    labels = np.arange(1, i % 3 + 1)
    target = {"boxes": np.array(boxes, np.float32).reshape(-1, 4), "labels": labels, "area": labels * 99.0}
    return Image.fromarray(shot(i)), {**target, "image_id": i}


def _of_detection(i: int) -> dict[str, Any]:
    rows = [[n, n + 1, n + 9, n + 12, n + 1] for n in range(i % 3)]
    return {"boxes": _boxes(rows), "area": 99.0 * np.arange(1, i % 3 + 1), "image_id": i}


class _Coco(_Data):
    """As torchvision's CocoDetection."""

    coco = type("coco", (), {"cats": {9: {"id": 9, "name": "cat"}, 4: {"id": 4, "name": "dog"}}})


def _annotated(i: int) -> tuple[Image.Image, list[dict[str, Any]]]:
    things = [{"bbox": [n, 2, 9, 8], "category_id": (9, 4)[n % 2], "iscrowd": int(n == 2)} for n in range(i)]
    return Image.fromarray(shot(i)), things


def _of_coco(i: int) -> dict[str, Any]:
    rows = [[n, 2, n + 9, 10, 1 - n % 2] for n in range(i)]
    return {"boxes": _boxes(rows[:2] + rows[3:]), "crowds": _boxes(rows[2:3])}


def _of_any_size(i: int) -> Any:
    return picture(24 + 4 * (i % 3), 32, i)


LAYOUTS = (
    Layout("a pandas DataFrame of paths and labels", _frame("pandas"), _of_frame, ("pandas",)),
    Layout("a polars DataFrame of paths and labels", _frame("polars"), _of_frame, ("polars",)),
    Layout("a Hugging Face `Dataset`", _hugging_face, lambda root: _of_table("{:08}"), ("datasets",)),
    Layout("a Hugging Face `Dataset` with `objects`", _objects, _of_objects, ("datasets",)),
    Layout(
        "a dataset whose labels are texts",
        lambda root: {"dataset": _Data(6, lambda i: (Image.fromarray(shot(i)), _BREEDS[i]))},
        lambda root: samples_of("{:08}", 6, lambda i: {"label": _BREEDS[i]}),
    ),
    Layout(
        "a detection dataset: (image, dict of `boxes` and `labels`)",
        lambda root: {"dataset": _Data(5, _detection)},
        lambda root: samples_of("{:08}", 5, _of_detection),
    ),
    Layout(
        "torchvision's `CocoDetection`: (image, list of annotations)",
        lambda root: {"dataset": _Coco(5, _annotated)},
        lambda root: samples_of("{:08}", 5, _of_coco),
    ),
    Layout(
        "a dataset of arrays of different sizes, as by `cv2.imread`",
        lambda root: {"dataset": _Data(6, lambda i: (_of_any_size(i), i % 2))},
        lambda root: {f"{i:08}": {"image": _of_any_size(i), "label": i % 2} for i in range(6)},
    ),
    Layout(
        "a generator, or a stream without a length",
        lambda root: {"stream": (sample for sample in _of_stream().values())},
        lambda root: _of_stream(),
    ),
)
