"""Layouts of TFRecord files: of ImageNet, of object detection, and of TensorFlow Datasets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from layout import lines, of_files, png, samples_of
from tfrecords import tfrecord

_NAMES = ("cat", "dog")
_COUNT = 8


def _imagenet() -> Mapping[str, bytes]:
    def example(n: int) -> dict[str, Any]:
        return {
            "image/encoded": png(n), "image/filename": f"{n}.JPEG", "image/class/label": n % 2 + 1,
            "image/class/text": _NAMES[n % 2], "image/height": 24,
        }  # fmt: skip

    return {
        f"imagenet/train-{shard:05}-of-00002": tfrecord([*map(example, range(4 * shard, 4 * shard + 4))])
        for shard in range(2)
    }


def _left(n: int) -> list[float]:
    return [0.25 * i for i in range(n % 3)]


def _detection() -> Mapping[str, bytes]:
    def example(n: int) -> dict[str, Any]:
        left = _left(n)
        return {
            "image/encoded": png(n), "image/filename": f"{n}.jpg",
            "image/object/bbox/xmin": left, "image/object/bbox/ymin": [0.25] * len(left),
            "image/object/bbox/xmax": [x + 0.5 for x in left], "image/object/bbox/ymax": [0.75] * len(left),
            "image/object/class/label": [i + 1 for i in range(n % 3)],
            "image/object/class/text": [*_NAMES[: n % 3]],
            "image/object/area": [100.0 + n] * len(left),
        }  # fmt: skip

    return {"coco/coco_train.record-00000-of-00001": tfrecord([*map(example, range(_COUNT))])}


def _of_detection(n: int) -> dict[str, Any]:
    boxes = np.array([[x * 32, 6, (x + 0.5) * 32, 18, i] for i, x in enumerate(_left(n))]).reshape(-1, 5)
    return {"boxes": boxes, "area": np.full(n % 3, 100.0 + n)}


def _datasets() -> Mapping[str, bytes | str]:
    splits, tensor = {"train": range(6), "test": range(6, _COUNT)}, {"dtype": "float32", "encoding": "none"}
    features = {
        "image": {"image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8", "encodingFormat": "png"}},
        "label": {"classLabel": {"numClasses": "2"}},
        "matrix": {"tensor": {**tensor, "shape": {"dimensions": ["2", "2"]}}},
    }
    about = [{"name": name, "shardLengths": [str(len(rows))]} for name, rows in splits.items()]
    files: dict[str, bytes | str] = {
        "label.labels.txt": lines(*_NAMES),
        "features.json": json.dumps({"featuresDict": {"features": features}}),
        "dataset_info.json": json.dumps({"name": "pets", "fileFormat": "tfrecord", "splits": about}),
    }
    for name, rows in splits.items():
        files[f"pets-{name}.tfrecord-00000-of-00001"] = tfrecord(
            [{"image": png(n), "label": n % 2, "file_name": f"{n}.png", "matrix": [float(n), 1, 2, 3]} for n in rows]
        )
    return {f"pets/1.0.0/{name}": data for name, data in files.items()}


def _of_datasets(n: int) -> dict[str, Any]:
    return {"label": _NAMES[n % 2], "matrix": np.array([[n, 1], [2, 3]], np.float32)}


_NEEDS = ("google_crc32c",)
LAYOUTS = (
    of_files(
        "ImageNet as TFRecord files",
        _imagenet,
        samples_of("{}.JPEG", _COUNT, lambda n: {"label": _NAMES[n % 2], "height": 24}),
        _NEEDS,
    ),
    of_files(
        "TFRecord files of TensorFlow's object detection",
        _detection,
        samples_of("{}.jpg", _COUNT, _of_detection),
        _NEEDS,
    ),
    of_files(
        "a folder of TensorFlow Datasets",
        _datasets,
        {
            f"{'train' if n < 6 else 'test'}/{key}": sample
            for n, (key, sample) in enumerate(samples_of("{}.png", _COUNT, _of_datasets).items())
        },
        _NEEDS,
    ),
)
