"""Layouts of objects in images: boxes and outlines, as annotation tools, data sets and tables have them."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
from layout import Layout, Samples
from numpy.typing import NDArray
from pictures import encoded, picture
from PIL import Image

FIXTURES = Path(__file__).resolve().parents[1] / "support" / "fixtures"
HEIGHT, WIDTH = 40, 60
CLASSES = ["hen", "ant", "owl"]
OBJECTS: list[list[tuple[float, float, float, float, int]]] = [
    [(5, 4, 30, 20.5, 0), (40, 10, 50, 35, 1)], [(1, 2, 21, 12, 0)], [], [(30, 20, 58, 38, 1)],
]  # fmt: skip
"""Left, top, right, bottom and class of the objects in each image; none is an owl."""


def _images(folder: Path, end: str = ".png") -> list[str]:
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{i:03}{end}" for i in range(len(OBJECTS))]
    for i, name in enumerate(names):
        (folder / name).write_bytes(encoded(picture(HEIGHT, WIDTH, i)))
    return names


def _pixels(path: Path) -> NDArray[np.uint8]:
    return np.asarray(Image.open(path).convert("RGB"))


def _boxes(rows: Any, width: int = 5) -> NDArray[np.float32]:
    return np.array(rows, np.float32).reshape(-1, width)


# ---------------------------------------------------------------------------------------------- data sets


def _coco(root: Path) -> None:
    names = _images(root / "val2017")
    boxes = [
        {"id": 10 * i + k, "image_id": i + 1, "category_id": 7 + label, "bbox": [x, y, right - x, bottom - y],
         "area": 9.5, "iscrowd": int(i == 3)}
        for i, rows in enumerate(OBJECTS) for k, (x, y, right, bottom, label) in enumerate(rows)
    ]  # fmt: skip
    images = [{"id": i, "file_name": name, "height": HEIGHT, "width": WIDTH} for i, name in enumerate(names, 1)]
    categories = [{"id": 7 + k, "name": name} for k, name in enumerate(CLASSES)]
    (root / "annotations").mkdir()
    (root / "annotations/instances_val2017.json").write_text(
        json.dumps({"images": images, "annotations": boxes, "categories": categories})
    )


def _of_coco(root: Path) -> Samples:
    tree = json.loads((root / "annotations/instances_val2017.json").read_text())
    ids = sorted(one["id"] for one in tree["categories"])
    samples = {}
    for image in tree["images"]:
        all_of = [one for one in tree["annotations"] if one["image_id"] == image["id"]]
        rows: dict[int, list[Any]] = {0: [], 1: []}
        for one in all_of:
            x, y, width, height = one["bbox"]
            rows[one["iscrowd"]].append([x, y, x + width, y + height, ids.index(one["category_id"])])
        things = [one for one in all_of if not one["iscrowd"]]
        samples[image["file_name"]] = {
            "image": _pixels(root / "val2017" / image["file_name"]), "boxes": _boxes(rows[0]),
            "crowds": _boxes(rows[1]), "image_id": image["id"],
            "annotation_id": np.array([one["id"] for one in things]),
            "area": np.array([one["area"] for one in things]),
        }  # fmt: skip
    return samples


def _yolo(folder: Path) -> None:
    root = folder / "pets"
    for i, name in enumerate(_images(root / "all")):
        split = ("train", "val")[i % 2]
        (root / f"images/{split}").mkdir(parents=True, exist_ok=True)
        (root / f"labels/{split}").mkdir(parents=True, exist_ok=True)
        shutil.move(root / "all" / name, root / f"images/{split}/{name}")
        lines = [
            f"{label} {(x + right) / 2 / WIDTH} {(y + bottom) / 2 / HEIGHT} {(right - x) / WIDTH} "
            f"{(bottom - y) / HEIGHT}\n"
            for x, y, right, bottom, label in OBJECTS[i]
        ]
        (root / f"labels/{split}/{name[:-4]}.txt").write_text("".join(lines))
    (root / "data.yaml").write_text(f"train: images/train\nval: images/val\nnames: [{', '.join(CLASSES)}]\n")


def _of_yolo(folder: Path) -> Samples:
    root, samples = folder / "pets", {}
    for path in sorted((root / "images").rglob("*.png")):
        rows = []
        for line in Path(str(path).replace("images", "labels")[:-4] + ".txt").read_text().splitlines():
            label, x, y, width, height = map(float, line.split())
            left, top = (x - width / 2) * WIDTH, (y - height / 2) * HEIGHT
            rows.append([left, top, left + width * WIDTH, top + height * HEIGHT, label])
        samples[f"{path.parent.name}/images/{path.parent.name}/{path.name}"] = {
            "image": _pixels(path),
            "boxes": _boxes(rows),
        }
    return samples


def _voc(root: Path) -> None:
    voc = root / "VOCdevkit/VOC2012"
    (voc / "Annotations").mkdir(parents=True)
    for i, name in enumerate(_images(voc / "JPEGImages", ".jpg")):
        objects = "".join(
            f"<object><name>{CLASSES[label]}</name><pose>Left</pose><truncated>{k}</truncated><difficult>{1 - k}"
            f"</difficult><bndbox><xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{right}</xmax><ymax>{bottom}</ymax>"
            "</bndbox></object>"
            for k, (x, y, right, bottom, label) in enumerate(OBJECTS[i])
        )
        (voc / f"Annotations/{name[:-4]}.xml").write_text(f"<annotation>{objects}</annotation>")


def _of_voc(root: Path) -> Samples:
    voc, samples = root / "VOCdevkit/VOC2012", {}
    found = {path: ElementTree.parse(voc / f"Annotations/{path.stem}.xml") for path in (voc / "JPEGImages").iterdir()}
    classes = sorted({str(one.text) for tree in found.values() for one in tree.iterfind("object/name")})
    for path, tree in found.items():
        objects, rows = tree.findall("object"), []
        for one in objects:
            x, y, right, bottom = (
                float(one.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax")
            )
            rows.append([x - 1, y - 1, right, bottom, classes.index(one.findtext("name", ""))])
        samples[f"JPEGImages/{path.name}"] = {
            "image": _pixels(path), "boxes": _boxes(rows), "pose": np.full(len(rows), 2),
            **{name: np.array([int(one.findtext(name, "")) for one in objects]) for name in ("difficult", "truncated")},
        }  # fmt: skip
    return samples


# ---------------------------------------------------------------------------------------------- annotation tools


def _labelme(root: Path) -> None:
    shutil.copytree(FIXTURES / "labelme/photos", root / "photos")


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
            "image": _pixels(path), "boxes": _boxes(boxes), "polygons": _boxes(outlines, 4),
            "group_id": np.array(groups),
        }  # fmt: skip
    return samples


def _cvat(root: Path) -> None:
    shutil.copytree(FIXTURES / "cvat/export", root / "task")


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
            "image": _pixels(root / f"task/images/{name}.png"), "boxes": _boxes(boxes),
            "polygons": _boxes(outlines, 4), "keypoints": points,
            "occluded": np.array([one["occluded"] for one in kept]),
            "group_id": np.array([one["group"] or -1 for one in kept]),
        }  # fmt: skip
    return samples


# ---------------------------------------------------------------------------------------------- tables


def _open_images(root: Path) -> None:
    """Rows in an order that is not that of the images."""
    _images(root / "photos", ".jpg")
    ids = ["/m/0bt9lr", "/m/01yrx", "/m/09d5_"]
    (root / "class-descriptions-boxable.csv").write_text(
        "".join(f"{one},{name}\n" for one, name in zip(ids, CLASSES, strict=True))
    )
    with (root / "train-annotations-bbox.csv").open("w", newline="") as file:
        out = csv.writer(file)
        flags = ["IsOccluded", "IsTruncated", "IsGroupOf", "IsDepiction", "IsInside"]
        out.writerow(["ImageID", "Source", "LabelName", "Confidence", "XMin", "XMax", "YMin", "YMax", *flags])
        rows = [(i, k, row) for i, rows in enumerate(OBJECTS) for k, row in enumerate(rows)]
        for i, k, (x, y, right, bottom, label) in sorted(rows, key=lambda one: (one[1], one[0])):
            sides = [x / WIDTH, right / WIDTH, y / HEIGHT, bottom / HEIGHT]
            out.writerow([f"{i:03}", "xclick", ids[label], 1, *sides, k, 0, i % 2, 0, -1])


def _of_open_images(root: Path) -> Samples:
    with (root / "class-descriptions-boxable.csv").open(newline="") as file:
        ids = [row[0] for row in csv.reader(file)]
    samples: dict[str, dict[str, Any]] = {}
    with (root / "train-annotations-bbox.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = f"{row['ImageID']}.jpg"
            one = samples.setdefault(key, {"image": _pixels(root / "photos" / key), "boxes": []})
            one["ImageID"], one["Source"] = row["ImageID"], row["Source"]
            sides = [float(row[name]) for name in ("XMin", "YMin", "XMax", "YMax")]
            box = [side * length for side, length in zip(sides, (WIDTH, HEIGHT) * 2, strict=True)]
            one["boxes"].append([*box, ids.index(row["LabelName"])])
            for name in ("Confidence", "IsOccluded", "IsTruncated", "IsGroupOf", "IsDepiction", "IsInside"):
                one.setdefault(name, []).append(int(row[name]))
    return _arrays(samples)


def _arrays(samples: Mapping[str, dict[str, Any]]) -> Samples:
    for sample in samples.values():
        sample |= {name: np.array(value) for name, value in sample.items() if isinstance(value, list)}
    return samples


def _row_per_box(root: Path) -> None:
    names = _images(root / "photos")
    with (root / "photos/boxes.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["image_id", "x1", "y1", "x2", "y2", "class"])
        for i, name in enumerate(names):
            out.writerows([name, *row[:4], CLASSES[row[4]]] for row in OBJECTS[i])
            out.writerows([[name, "", "", "", "", ""]] if not OBJECTS[i] else [])


def _of_row_per_box(root: Path) -> Samples:
    classes = ["ant", "hen"]
    samples: dict[str, dict[str, Any]] = {}
    with (root / "photos/boxes.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            path = root / "photos" / row["image_id"]
            one = samples.setdefault(row["image_id"], {"image": _pixels(path), "boxes": _boxes([])})
            if row["x1"]:
                box = [*(float(row[name]) for name in ("x1", "y1", "x2", "y2")), classes.index(row["class"])]
                one["boxes"] = np.concatenate([one["boxes"], _boxes(box)])
    return samples


def _objects(i: int) -> dict[str, list[Any]]:
    """As the Hub's detection sets have them."""
    rows = OBJECTS[i]
    return {
        "id": [10 * i + k for k in range(len(rows))],
        "area": [(right - x) * (bottom - y) for x, y, right, bottom, _ in rows],
        "bbox": [[x, y, right - x, bottom - y] for x, y, right, bottom, _ in rows],
        "category": [label for *_, label in rows],
    }


def _sample(objects: Mapping[str, list[Any]], image: NDArray[np.uint8], number: int) -> dict[str, Any]:
    corners = [[x, y, x + width, y + height] for x, y, width, height in objects["bbox"]]
    return {
        "image": image, "image_id": number, "id": np.array(objects["id"]), "area": np.array(objects["area"]),
        "boxes": _boxes([[*box, label] for box, label in zip(corners, objects["category"], strict=True)]),
    }  # fmt: skip


def _parquet(root: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    category = {"feature": {"names": CLASSES, "_type": "ClassLabel"}, "_type": "List"}
    features = {"image": {"_type": "Image"}, "objects": {"category": category}}
    images = [{"bytes": encoded(picture(HEIGHT, WIDTH, i)), "path": f"{i}.png"} for i in range(len(OBJECTS))]
    columns = {"image_id": list(range(len(OBJECTS))), "image": images, "objects": [*map(_objects, range(len(OBJECTS)))]}
    table = pa.table(columns).replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    (root / "pets/data").mkdir(parents=True)
    pq.write_table(table, root / "pets/data/train-00000-of-00001.parquet", row_group_size=2)


def _of_parquet(root: Path) -> Samples:
    import pyarrow.parquet as pq

    rows = pq.read_table(root / "pets/data/train-00000-of-00001.parquet").to_pylist()
    return {
        row["image"]["path"]: _sample(
            row["objects"], np.asarray(Image.open(io.BytesIO(row["image"]["bytes"]))), row["image_id"]
        )
        for row in rows
    }


def _metadata(root: Path) -> None:
    names = _images(root / "photos")
    rows = [{"file_name": name, "image_id": i, "objects": _objects(i)} for i, name in enumerate(names)]
    (root / "photos/metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _of_metadata(root: Path) -> Samples:
    rows = map(json.loads, (root / "photos/metadata.jsonl").read_text().splitlines())
    return {
        row["file_name"]: _sample(row["objects"], _pixels(root / "photos" / row["file_name"]), row["image_id"])
        for row in rows
    }


LAYOUTS = (
    Layout("COCO's instances", _coco, _of_coco),
    Layout("YOLO's folders with a data.yaml", _yolo, _of_yolo, needs=("yaml",)),
    Layout("Pascal VOC", _voc, _of_voc),
    Layout("labelme's files next to the images", _labelme, _of_labelme),
    Layout("an export of CVAT for images", _cvat, _of_cvat),
    Layout("Open Images' boxes, `ID.jpg` in photos/", _open_images, _of_open_images),
    Layout("a csv with a row for each box", _row_per_box, _of_row_per_box),
    Layout("Parquet files with `objects`", _parquet, _of_parquet, needs=("pyarrow",)),
    Layout("a metadata.jsonl with `objects`", _metadata, _of_metadata),
)
