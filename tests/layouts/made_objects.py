"""Layouts of objects in images, as annotation tools, data sets and tables have them; and of Python objects."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from cases import Files, write
from cases_arrays import Data
from cases_beside import parquet
from layout import FIXTURES, Layout, Samples, copied, lines, of_files, pixels, pngs, shot
from numpy.typing import NDArray
from pictures import encoded, picture
from PIL import Image

HEIGHT, WIDTH = 40, 60
CLASSES = ["hen", "ant", "owl"]
OBJECTS: list[list[tuple[float, float, float, float, int]]] = [
    [(5, 4, 30, 20.5, 0), (40, 10, 50, 35, 1)], [(1, 2, 21, 12, 0)], [], [(30, 20, 58, 38, 1)],
]  # fmt: skip
"""Left, top, right, bottom and class of the objects in each image; none is an owl."""
EVERY = range(len(OBJECTS))


def _images(names: str) -> dict[str, bytes | str]:
    return {names.format(i): encoded(picture(HEIGHT, WIDTH, i)) for i in EVERY}


def _samples(keys: str, fields: Callable[[int], Mapping[str, Any]]) -> Samples:
    return {keys.format(i): {"image": picture(HEIGHT, WIDTH, i), **fields(i)} for i in EVERY}


def _boxes(rows: Any, width: int = 5) -> NDArray[np.float32]:
    return np.array(rows, np.float32).reshape(-1, width)


def _sorted(i: int) -> NDArray[np.float32]:
    """The boxes of an image, where the classes are the sorted names of those that occur."""
    return _boxes([[*sides, 1 - label] for *sides, label in OBJECTS[i]])


# ---------------------------------------------------------------------------------------------- data sets

_COCO = {
    "images": [{"id": i + 1, "file_name": f"{i:03}.png", "height": HEIGHT, "width": WIDTH} for i in EVERY],
    "annotations": [
        {"id": 10 * i + k, "image_id": i + 1, "category_id": 7 + label, "bbox": [x, y, right - x, bottom - y],
         "area": 9.5, "iscrowd": int(i == 3)}
        for i in EVERY for k, (x, y, right, bottom, label) in enumerate(OBJECTS[i])
    ],
    "categories": [{"id": 7 + k, "name": name} for k, name in enumerate(CLASSES)],
}  # fmt: skip


def _of_coco(i: int) -> Mapping[str, Any]:
    things, crowds = ([], OBJECTS[i]) if i == 3 else (OBJECTS[i], [])
    numbers = np.arange(len(things))
    return {
        "boxes": _boxes(things), "crowds": _boxes(crowds), "image_id": i + 1,
        "annotation_id": 10 * i + numbers, "area": np.full(len(things), 9.5),
    }  # fmt: skip


def _yolo() -> Files:
    files: dict[str, bytes | str] = {}
    for i, data in enumerate(_images("{}").values()):
        split = ("train", "val")[i % 2]
        files[f"pets/images/{split}/{i:03}.png"] = data
        files[f"pets/labels/{split}/{i:03}.txt"] = lines(
            *(
                f"{label} {(x + right) / 2 / WIDTH} {(y + bottom) / 2 / HEIGHT} {(right - x) / WIDTH} "
                f"{(bottom - y) / HEIGHT}"
                for x, y, right, bottom, label in OBJECTS[i]
            )
        )
    names = f"names: [{', '.join(CLASSES)}]"
    return {**files, "pets/data.yaml": lines("train: images/train", "val: images/val", names)}


def _voc(i: int) -> str:
    objects = "".join(
        f"<object><name>{CLASSES[label]}</name><pose>Left</pose><truncated>{k}</truncated>"
        f"<difficult>{1 - k}</difficult><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{right}</xmax>"
        f"<ymax>{bottom}</ymax></bndbox></object>"
        for k, (x, y, right, bottom, label) in enumerate(OBJECTS[i])
    )
    return f"<annotation>{objects}</annotation>"


def _of_voc(i: int) -> Mapping[str, Any]:
    numbers = np.arange(len(OBJECTS[i]))
    return {"boxes": _sorted(i), "pose": 2 + 0 * numbers, "difficult": 1 - numbers, "truncated": numbers}


# ---------------------------------------------------------------------------------------------- annotation tools


def _of_labelme(root: Path) -> Samples:
    read = json.loads((FIXTURES / "labelme/expected.json").read_text())
    classes, samples = ["cat", "dog", "owl"], {}
    for path in sorted((root / "photos").glob("*.jpg")):
        boxes, outlines, groups = [], [], []
        for shape in read.get(path.name, ()):
            points = np.array(shape["points"])
            if shape["shape_type"] == "circle":
                radius = np.hypot(*(points[1] - points[0]))
                points = np.array([points[0] - radius, points[0] + radius])
            elif shape["shape_type"] in ("line", "point"):
                continue
            if shape["shape_type"] == "polygon":
                outlines += [[x, y, len(boxes), 0] for x, y in points]
            boxes.append([*points.min(axis=0), *points.max(axis=0), classes.index(shape["label"])])
            groups.append(-1 if shape["group_id"] is None else shape["group_id"])
        samples[path.name] = {
            "image": pixels(path), "boxes": _boxes(boxes), "polygons": _boxes(outlines, 4),
            "group_id": np.array(groups),
        }  # fmt: skip
    return samples


def _of_cvat(root: Path) -> Samples:
    """Boxes as datumaro reads them; the corners of the turned one by a rotation matrix."""
    classes, samples = ["owl", "cat", "dog", "yak"], {}
    for name, shapes in json.loads((FIXTURES / "cvat/expected.json").read_text()).items():
        kept = [one for one in shapes if one["type"] not in ("polyline", "label") and len(one["points"]) != 2]
        boxes, outlines, points = [], [], np.zeros((len(kept), 3, 3))
        for row, one in enumerate(kept):
            x, y, width, height = one["box"]
            boxes.append([x, y, x + width, y + height, classes.index(one["label"])])
            if one["type"] == "polygon":
                outlines += [[x, y, row, 0] for x, y in np.reshape(one["points"], (-1, 2))]
            elif one["type"] == "points":
                points[row] = [[x, y, 2] for x, y in np.reshape(one["points"], (-1, 2))]
            elif one["type"] == "rotated_bbox":
                cx, cy, width, height, angle = one["points"]
                turn = np.array([[np.cos(a := np.radians(angle)), -np.sin(a)], [np.sin(a), np.cos(a)]])
                corners = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * (width / 2, height / 2) @ turn.T + (cx, cy)
                boxes[-1][:4] = [*corners.min(axis=0), *corners.max(axis=0)]
                outlines += [[x, y, row, 0] for x, y in corners]
        samples[f"{name}.png"] = {
            "image": pixels(root / f"task/images/{name}.png"), "boxes": _boxes(boxes),
            "polygons": _boxes(outlines, 4), "keypoints": points,
            "occluded": np.array([one["occluded"] for one in kept]),
            "group_id": np.array([one["group"] or -1 for one in kept]),
        }  # fmt: skip
    return samples


# ---------------------------------------------------------------------------------------------- tables

_IDS = ("/m/0bt9lr", "/m/01yrx", "/m/09d5_")


def _open_images() -> Files:
    """Rows in an order that is not that of the images."""
    rows = [(k, i, row) for i in EVERY for k, row in enumerate(OBJECTS[i])]
    return {
        **_images("photos/{:03}.jpg"),
        "class-descriptions-boxable.csv": lines(*map(",".join, zip(_IDS, CLASSES, strict=True))),
        "train-annotations-bbox.csv": lines(
            "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,"
            "IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside",
            *(
                f"{i:03},xclick,{_IDS[label]},1,{x / WIDTH},{right / WIDTH},{y / HEIGHT},{bottom / HEIGHT},"
                f"{k},0,{i % 2},0,-1"
                for k, i, (x, y, right, bottom, label) in sorted(rows)
            ),
        ),
    }


def _of_open_images(i: int) -> Mapping[str, Any]:
    numbers = np.arange(len(OBJECTS[i]))
    flags = {"IsOccluded": numbers, "IsGroupOf": 0 * numbers + i % 2, "IsInside": 0 * numbers - 1}
    zeros = dict.fromkeys(("IsTruncated", "IsDepiction"), 0 * numbers)
    about = {"ImageID": f"{i:03}", "Source": "xclick", "Confidence": 0 * numbers + 1}
    return {"boxes": _boxes(OBJECTS[i]), **about, **flags, **zeros}


def _row_per_box() -> Files:
    rows = (
        [f"{i:03}.png,{','.join(map(str, sides))},{CLASSES[label]}" for *sides, label in OBJECTS[i]]
        or [f"{i:03}.png,,,,,"]
        for i in EVERY
    )  # fmt: skip
    text = lines("image_id,x1,y1,x2,y2,class", *(row for of_one in rows for row in of_one))
    return {**_images("photos/{:03}.png"), "photos/boxes.csv": text}


def _objects(i: int) -> dict[str, list[Any]]:
    """As the Hub's detection sets have them."""
    rows = OBJECTS[i]
    return {
        "id": [10 * i + k for k in range(len(rows))],
        "area": [(right - x) * (bottom - y) for x, y, right, bottom, _ in rows],
        "bbox": [[x, y, right - x, bottom - y] for x, y, right, bottom, _ in rows],
        "category": [label for *_, label in rows],
    }


def _of_objects(i: int) -> Mapping[str, Any]:
    objects = _objects(i)
    numbers = {name: np.array(objects[name]) for name in ("id", "area")}
    return {"image_id": i, "boxes": _boxes(OBJECTS[i]), **numbers}


def _parquet() -> Files:
    category = {"feature": {"names": CLASSES, "_type": "ClassLabel"}, "_type": "List"}
    images = [{"bytes": data, "path": name} for name, data in _images("{}.png").items()]
    columns = {"image_id": [*EVERY], "image": images, "objects": [*map(_objects, EVERY)]}
    about = {"image": {"_type": "Image"}, "objects": {"category": category}}
    return {"pets/data/train-00000-of-00001.parquet": parquet(columns, about)}


_METADATA = lines(*(json.dumps({"file_name": f"{i:03}.png", "image_id": i, "objects": _objects(i)}) for i in EVERY))

# ---------------------------------------------------------------------------------------------- Python objects

_BREEDS = ("pug", "corgi", "pug", "beagle", "corgi", "pug")


def _paths(root: Path) -> list[str]:
    write(root, pngs("{:03}.png", len(_BREEDS)))
    return [str(root / f"{n:03}.png") for n in range(len(_BREEDS))]


def _frame(module: str) -> Callable[[Path], Mapping[str, Any]]:
    return lambda root: {"frame": __import__(module).DataFrame({"path": _paths(root), "label": [*_BREEDS]})}


def _hugging_face(root: Path) -> Mapping[str, Any]:
    import datasets

    names, numbers = sorted(set(_BREEDS)), range(len(_BREEDS))
    columns = {"img": _paths(root), "breed": [*map(names.index, _BREEDS)], "age": [*numbers]}
    kinds = {"img": datasets.Image(), "breed": datasets.ClassLabel(names=names), "age": datasets.Value("int64")}
    return {"dataset": datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))}


def _hugging_face_objects(root: Path) -> Mapping[str, Any]:
    import datasets

    inner = {
        "bbox": datasets.Sequence(datasets.Sequence(datasets.Value("float32"), length=4)),
        "category": datasets.Sequence(datasets.ClassLabel(names=["ear", "nose"])),
        "area": datasets.Sequence(datasets.Value("int64")),
    }
    objects: list[Any] = [
        {"bbox": [[20, 12, 9, 8], [2, 3, 4, 5]], "category": [1, 0], "area": [72, 20]},
        {"bbox": [], "category": [], "area": []},
    ]
    features = datasets.Features({"image": datasets.Image(), "objects": inner})
    columns = {"image": _paths(root)[:2], "objects": objects}
    return {"dataset": datasets.Dataset.from_dict(columns, features=features)}


def _dataset(have: str, dataset: Data) -> Layout:
    return Layout(have, lambda root: {"dataset": dataset})


def _detection(i: int) -> tuple[Image.Image, dict[str, Any]]:
    """As in torchvision's tutorial on detection."""
    boxes = np.array([[n, n + 1, n + 9, n + 12] for n in range(i % 3)], np.float32).reshape(-1, 4)
    labels = np.arange(1, i % 3 + 1)
    return Image.fromarray(shot(i)), {"boxes": boxes, "labels": labels, "area": labels * 99.0, "image_id": i}


class _CocoDetection(Data):
    """As torchvision's."""

    coco = type("coco", (), {"cats": {9: {"id": 9, "name": "cat"}, 4: {"id": 4, "name": "dog"}}})


def _annotated(i: int) -> tuple[Image.Image, list[dict[str, Any]]]:
    things = [{"bbox": [n, 2, 9, 8], "category_id": (9, 4)[n % 2], "iscrowd": int(n == 2)} for n in range(i)]
    return Image.fromarray(shot(i)), things


LAYOUTS = (
    of_files(
        "COCO's instances",
        {**_images("val2017/{:03}.png"), "annotations/instances_val2017.json": json.dumps(_COCO)},
        _samples("{:03}.png", _of_coco),
    ),
    of_files(
        "YOLO's folders with a data.yaml",
        _yolo,
        {
            f"{split}/images/{split}/{key}": sample
            for split, part in (("train", 0), ("val", 1))
            for key, sample in [*_samples("{:03}.png", lambda i: {"boxes": _boxes(OBJECTS[i])}).items()][part::2]
        },
        ("yaml",),
    ),
    of_files(
        "Pascal VOC",
        {
            **_images("VOCdevkit/VOC2012/JPEGImages/{:03}.jpg"),
            **{f"VOCdevkit/VOC2012/Annotations/{i:03}.xml": _voc(i) for i in EVERY},
        },
        _samples("JPEGImages/{:03}.jpg", _of_voc),
    ),
    Layout("labelme's files next to the images", copied("labelme/photos", "photos"), _of_labelme),
    Layout("an export of CVAT for images", copied("cvat/export", "task"), _of_cvat),
    of_files(
        "Open Images' boxes, `ID.jpg` in photos/",
        _open_images,
        {key: one for key, one in _samples("{:03}.jpg", _of_open_images).items() if len(one["boxes"])},
    ),
    of_files("a csv with a row for each box", _row_per_box, _samples("{:03}.png", lambda i: {"boxes": _sorted(i)})),
    of_files("Parquet files with `objects`", _parquet, _samples("{}.png", _of_objects), ("pyarrow",)),
    of_files(
        "a metadata.jsonl with `objects`",
        {**_images("photos/{:03}.png"), "photos/metadata.jsonl": _METADATA},
        _samples("{:03}.png", _of_objects),
    ),
    Layout("a pandas DataFrame of paths and labels", _frame("pandas"), needs=("pandas",)),
    Layout("a polars DataFrame of paths and labels", _frame("polars"), needs=("polars",)),
    Layout("a Hugging Face `Dataset`", _hugging_face, needs=("datasets",)),
    Layout("a Hugging Face `Dataset` with `objects`", _hugging_face_objects, needs=("datasets",)),
    _dataset("a dataset whose labels are texts", Data(6, lambda i: (Image.fromarray(shot(i)), _BREEDS[i]))),
    _dataset("a detection dataset: (image, dict of `boxes` and `labels`)", Data(5, _detection)),
    _dataset("torchvision's `CocoDetection`: (image, list of annotations)", _CocoDetection(5, _annotated)),
    _dataset(
        "a dataset of arrays of different sizes, as by `cv2.imread`",
        Data(6, lambda i: (picture(24 + 4 * (i % 3), 32, i), i % 2)),
    ),
    Layout(
        "a generator, or a stream without a length",
        lambda root: {"stream": ({"image": shot(n), "label": ("cat", "dog", "eel")[n % 3]} for n in range(9))},
    ),
)
