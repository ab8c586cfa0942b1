"""Layouts of TFRecord files: of ImageNet, of object detection, and of TensorFlow Datasets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from layout import Layout, Samples
from pictures import encoded, picture
from tfrecords import tfrecord

_NAMES = ("cat", "dog")
_COUNT = 8


def _pixels(n: int) -> Any:
    return picture(24, 32, n)


def _imagenet(root: Path) -> None:
    (root / "imagenet").mkdir()
    for shard in range(2):
        examples = [
            {
                "image/encoded": encoded(_pixels(n)),
                "image/filename": f"{n}.JPEG",
                "image/class/label": n % 2 + 1,
                "image/class/text": _NAMES[n % 2],
                "image/height": 24,
            }
            for n in range(4 * shard, 4 * shard + 4)
        ]
        (root / "imagenet" / f"train-{shard:05}-of-00002").write_bytes(tfrecord(examples))


def _of_imagenet(root: Path) -> Samples:
    return {f"{n}.JPEG": {"image": _pixels(n), "label": _NAMES[n % 2], "height": 24} for n in range(_COUNT)}


def _left(n: int) -> list[float]:
    return [0.25 * i for i in range(n % 3)]


def _detection(root: Path) -> None:
    (root / "coco").mkdir()
    examples = [
        {
            "image/encoded": encoded(_pixels(n)),
            "image/filename": f"{n}.jpg",
            "image/object/bbox/xmin": _left(n),
            "image/object/bbox/ymin": [0.25] * len(_left(n)),
            "image/object/bbox/xmax": [x + 0.5 for x in _left(n)],
            "image/object/bbox/ymax": [0.75] * len(_left(n)),
            "image/object/class/label": [i + 1 for i in range(n % 3)],
            "image/object/class/text": [_NAMES[i] for i in range(n % 3)],
            "image/object/area": [100.0 + n] * len(_left(n)),
        }
        for n in range(_COUNT)
    ]
    (root / "coco" / "coco_train.record-00000-of-00001").write_bytes(tfrecord(examples))


def _of_detection(root: Path) -> Samples:
    return {
        f"{n}.jpg": {
            "image": _pixels(n),
            "boxes": np.array([[x * 32, 6, (x + 0.5) * 32, 18, i] for i, x in enumerate(_left(n))]).reshape(-1, 5),
            "area": np.full(n % 3, 100.0 + n),
        }
        for n in range(_COUNT)
    }


def _datasets(root: Path) -> None:
    folder = root / "pets" / "1.0.0"
    folder.mkdir(parents=True)
    (folder / "label.labels.txt").write_text("cat\ndog\n")
    splits, tensor = {"train": range(6), "test": range(6, _COUNT)}, {"dtype": "float32", "encoding": "none"}
    features = {
        "image": {"image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8", "encodingFormat": "png"}},
        "label": {"classLabel": {"numClasses": "2"}},
        "matrix": {"tensor": {**tensor, "shape": {"dimensions": ["2", "2"]}}},
    }
    (folder / "features.json").write_text(json.dumps({"featuresDict": {"features": features}}))
    about = [{"name": name, "shardLengths": [str(len(rows))]} for name, rows in splits.items()]
    (folder / "dataset_info.json").write_text(json.dumps({"name": "pets", "fileFormat": "tfrecord", "splits": about}))
    for name, rows in splits.items():
        examples = [
            {"image": encoded(_pixels(n)), "label": n % 2, "file_name": f"{n}.png", "matrix": [float(n), 1, 2, 3]}
            for n in rows
        ]
        (folder / f"pets-{name}.tfrecord-00000-of-00001").write_bytes(tfrecord(examples))


def _of_datasets(root: Path) -> Samples:
    return {
        f"{'train' if n < 6 else 'test'}/{n}.png": {
            "image": _pixels(n),
            "label": _NAMES[n % 2],
            "matrix": np.array([[n, 1], [2, 3]], np.float32),
        }
        for n in range(_COUNT)
    }


LAYOUTS = (
    Layout("ImageNet as TFRecord files", _imagenet, _of_imagenet, needs=("google_crc32c",)),
    Layout("TFRecord files of TensorFlow's object detection", _detection, _of_detection, needs=("google_crc32c",)),
    Layout("a folder of TensorFlow Datasets", _datasets, _of_datasets, needs=("google_crc32c",)),
)
