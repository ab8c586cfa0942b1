"""Layouts of arrays, of TFRecord files and of what other loaders wrote: what is in them is what is to be read."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import cv2
import h5py
import lmdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cases import Files, write
from cases_arrays import idx
from cases_beside import npy, npz
from layout import Layout, Samples, copied, lines, of_files, pixels, png, samples_of, shot
from pictures import encoded
from tfrecords import tfrecord

# ---------------------------------------------------------------------------------------------- arrays

_FASHION = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
_SIZES = {"train": 7, "val": 4, "valid": 4, "test": 5}
_FILES = [encoded(shot(n), ("JPEG", "PNG")[n % 2]) for n in range(6)]


def _images(split: str, *shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(split)).integers(0, 256, (_SIZES[split], *(shape or (28, 28)))).astype(np.uint8)


def _labels(split: str) -> np.ndarray[Any, Any]:
    return (np.arange(_SIZES[split]) * 3 % 10).astype(np.uint8)


def _findings(split: str) -> np.ndarray[Any, Any]:
    return (np.arange(_SIZES[split] * 14).reshape(-1, 14) % 3 == 0).astype(np.uint8)


def _rows(*splits: str, shape: tuple[int, ...] = (28, 28, 1), labels: Callable[[str], Any] = _labels) -> Samples:
    """Samples of splits, or of one, whose keys are numbers; gray images have one channel."""
    return {
        f"{split}/{i:08d}" if len(splits) > 1 else f"{i:08d}": {"image": image.reshape(shape), "label": label}
        for split in splits
        for i, (image, label) in enumerate(zip(_images(split, *shape), labels(split), strict=True))
    }


def _fashion() -> Files:
    """As torchvision leaves it: each file, and what it was unpacked from."""
    files: dict[str, bytes | str] = {}
    for split, name in (("train", "train"), ("test", "t10k")):
        for kind, array in (("images-idx3", _images(split)), ("labels-idx1", _labels(split))):
            path = f"FashionMNIST/raw/{name}-{kind}-ubyte"
            files |= {path: idx(array), f"{path}.gz": gzip.compress(idx(array))}
    return files


def _hdf5(have: str, data: Mapping[str, Mapping[str, Any]], samples: Samples, beside: Files | None = None) -> Layout:
    """Files of HDF5. data: file -> data set -> its values; images are compressed. beside: other files."""

    def make(root: Path) -> None:
        write(root, beside or {})
        for name, sets in data.items():
            with h5py.File(root / name, "w") as file:
                for path, values in sets.items():
                    file.create_dataset(path, data=values, compression="gzip" if np.ndim(values) == 4 else None)

    return Layout(have, make, lambda root: samples)


def _lmdb(root: Path) -> None:
    with lmdb.open(str(root / "captions.lmdb"), map_size=1 << 26) as database, database.begin(write=True) as put:
        for n, file in enumerate(_FILES):
            for end, value in (("jpg", file), ("txt", f"picture {n}, \u00e9".encode()), ("cls", str(n % 3).encode())):
                put.put(f"{n:03}.{end}".encode(), value)


def _shapes(*splits: str) -> Files:
    return {
        f"shapes/{axis}_{split}.npy": npy(values)
        for split in splits
        for axis, values in (("x", _images(split, 16, 20, 3)), ("y", _labels(split)))
    }


def _med(labels: Callable[[str], Any], *shape: int) -> bytes:
    """MedMNIST's file."""
    images = {f"{split}_images": _images(split, *shape) for split in _OF_MED}
    return npz(**images, **{f"{split}_labels": labels(split) for split in _OF_MED})


_MNIST = npz(x_train=_images("train"), y_train=_labels("train"), x_test=_images("test"), y_test=_labels("test"))
_OF_MED, _OF_PCAM = ("train", "val", "test"), ("train", "valid", "test")
_PCAM = "pcam/camelyonpatch_level_2_split"
_PETS = {f"{('cat', 'dog')[n % 2]}/{n:03}": shot(n) for n in range(6)}

_ARRAYS = (
    of_files(
        "torchvision's `FashionMNIST/raw`, or MNIST's",
        _fashion,
        _rows("train", "test", labels=lambda split: [_FASHION[label] for label in _labels(split)]),
    ),
    of_files(
        "Keras' `mnist.npz`: `x_train`, `y_train`, `x_test`, `y_test`", {"mnist.npz": _MNIST}, _rows("train", "test")
    ),
    of_files(
        "MedMNIST's `.npz`: `train_images`, `train_labels`, `val_images`, ...",
        {"bloodmnist.npz": _med(lambda split: _labels(split).reshape(-1, 1), 28, 28, 3)},
        _rows(*_OF_MED, shape=(28, 28, 3)),
    ),
    of_files(
        "the same, with several findings for each image: labels (N, 14)",
        {"chestmnist.npz": _med(_findings)},
        _rows(*_OF_MED, labels=_findings),
    ),
    _hdf5(
        "images in `..._train_x.h5`, labels in `..._train_y.h5` (PCam)",
        {f"{_PCAM}_{split}_x.h5": {"x": _images(split, 96, 96, 3)} for split in _OF_PCAM}
        | {f"{_PCAM}_{split}_y.h5": {"y": _labels(split).reshape(-1, 1, 1, 1)} for split in _OF_PCAM},
        _rows(*_OF_PCAM, shape=(96, 96, 3)),
        {f"{_PCAM}_{split}_meta.csv": "coord_x,coord_y\n" for split in _OF_PCAM},
    ),
    _hdf5(
        "HDF5 with images, and labels or other values of as many rows",
        {"Galaxy10.h5": {"images": _images("train", 69, 69, 3), "ans": _labels("train")}},
        _rows("train", shape=(69, 69, 3)),
    ),
    _hdf5(
        "HDF5 with splits: `train/x`, `train/y`, `test/x`, or `x_train`",
        {
            "digits.h5": {f"{split}/x": _images(split) for split in ("train", "test")}
            | {f"{split}/y": _labels(split) for split in ("train", "test")}
        },
        _rows("train", "test"),
    ),
    _hdf5(
        "HDF5 with a group for each class, and a data set for each image",
        {"pets.h5": _PETS},
        {path: {"image": image, "label": path.partition("/")[0]} for path, image in _PETS.items()},
    ),
    _hdf5(
        "HDF5 with image files as bytes: of one length (`S`), opaque, or variable",
        {"photos.h5": {"images": np.array(_FILES), "labels": np.arange(6) % 3}},
        {f"{n:08d}": {"image": pixels(file), "label": n % 3} for n, file in enumerate(_FILES)},
    ),
    Layout(
        "an LMDB of `name.jpg`, `name.txt` and `name.cls`",
        _lmdb,
        lambda root: {
            f"{n:03}.jpg": {"image": pixels(file), "label": n % 3, "text": f"picture {n}, \u00e9"}
            for n, file in enumerate(_FILES)
        },
    ),
    of_files(
        "`x_train.npy` and `y_train.npy`, or `images.npy` and `labels.npy`",
        _shapes("train"),
        _rows("train", shape=(16, 20, 3)),
    ),
    of_files(
        "the same, with `x_test.npy` and `y_test.npy`",
        _shapes("train", "test"),
        _rows("train", "test", shape=(16, 20, 3)),
    ),
)

# ---------------------------------------------------------------------------------------------- TFRecord

_NAMES = ("cat", "dog")
_COUNT = 8


def _imagenet() -> Files:
    def example(n: int) -> dict[str, Any]:
        return {
            "image/encoded": png(n), "image/filename": f"{n}.JPEG", "image/class/label": n % 2 + 1,
            "image/class/text": _NAMES[n % 2], "image/height": 24,
        }  # fmt: skip

    return {f"imagenet/train-{k:05}-of-00002": tfrecord([example(4 * k + n) for n in range(4)]) for k in range(2)}


def _detection() -> Files:
    def example(n: int) -> dict[str, Any]:
        count = n % 3
        left = [0.25 * i for i in range(count)]
        return {
            "image/encoded": png(n), "image/filename": f"{n}.jpg",
            "image/object/bbox/xmin": left, "image/object/bbox/ymin": [0.25] * count,
            "image/object/bbox/xmax": [x + 0.5 for x in left], "image/object/bbox/ymax": [0.75] * count,
            "image/object/class/label": [i + 1 for i in range(count)], "image/object/class/text": [*_NAMES[:count]],
            "image/object/area": [100.0 + n] * count,
        }  # fmt: skip

    return {"coco/coco_train.record-00000-of-00001": tfrecord([*map(example, range(_COUNT))])}


def _of_detection(n: int) -> dict[str, Any]:
    boxes = np.array([[8 * i, 6, 8 * i + 16, 18, i] for i in range(n % 3)]).reshape(-1, 5)
    return {"boxes": boxes, "area": np.full(n % 3, 100.0 + n)}


_SPLITS = {"train": range(6), "test": range(6, _COUNT)}


def _datasets() -> Files:
    """As TensorFlow Datasets has it."""
    features = {
        "image": {"image": {"shape": {"dimensions": ["-1", "-1", "3"]}, "dtype": "uint8", "encodingFormat": "png"}},
        "label": {"classLabel": {"numClasses": "2"}},
        "matrix": {"tensor": {"dtype": "float32", "encoding": "none", "shape": {"dimensions": ["2", "2"]}}},
    }
    about = [{"name": name, "shardLengths": [str(len(rows))]} for name, rows in _SPLITS.items()]
    files: dict[str, bytes | str] = {
        "label.labels.txt": lines(*_NAMES),
        "features.json": json.dumps({"featuresDict": {"features": features}}),
        "dataset_info.json": json.dumps({"name": "pets", "fileFormat": "tfrecord", "splits": about}),
    }
    for name, rows in _SPLITS.items():
        files[f"pets-{name}.tfrecord-00000-of-00001"] = tfrecord(
            [{"image": png(n), "label": n % 2, "file_name": f"{n}.png", "matrix": [float(n), 1, 2, 3]} for n in rows]
        )
    return {f"pets/1.0.0/{name}": data for name, data in files.items()}


_RECORDS: tuple[tuple[str, Callable[[], Files], Samples], ...] = (
    (
        "ImageNet as TFRecord files",
        _imagenet,
        samples_of("{}.JPEG", _COUNT, lambda n: {"label": _NAMES[n % 2], "height": 24}),
    ),
    (
        "TFRecord files of TensorFlow's object detection",
        _detection,
        samples_of("{}.jpg", _COUNT, _of_detection),
    ),
    (
        "a folder of TensorFlow Datasets",
        _datasets,
        {
            f"{split}/{n}.png": {
                "image": shot(n),
                "label": _NAMES[n % 2],
                "matrix": np.array([[n, 1], [2, 3]], np.float32),
            }
            for split, rows in _SPLITS.items()
            for n in rows
        },
    ),
)

# ---------------------------------------------------------------------------------------------- other loaders


def _values(folder: Path) -> list[tuple[bytes, bytes]]:
    """The image and the label of each sample of all shards: of MDS after the length of the image, and the label first;
    of litdata after both lengths."""
    found = []
    for path in sorted(path for path in folder.iterdir() if path.name != "index.json"):
        data = path.read_bytes()
        starts = struct.unpack_from(f"<{int.from_bytes(data[:4], 'little') + 1}I", data, 4)
        samples = [data[start:end] for start, end in pairwise(starts)]
        found += [(one[12:], one[4:12]) if path.suffix == ".mds" else (one[8:-8], one[-8:]) for one in samples]
    return found


def _chunks(have: str, fixture: str, folder: str, splits: tuple[str, ...] = ("",)) -> Layout:
    """What MDS and litdata wrote."""

    def samples(root: Path) -> Samples:
        return {
            f"{split}{i:08d}": {"image": pixels(image), "label": int.from_bytes(label, "little")}
            for split in splits
            for i, (image, label) in enumerate(_values(root / folder / split))
        }

    return Layout(have, copied(fixture, folder), samples)


_TASKS = ("pick the cube", "open the drawer, ä")


def _of_robots(root: Path) -> Samples:
    """The rows in the order of the files, and the frames of all videos one after another, by OpenCV."""
    rows = pa.concat_tables(pq.read_table(path) for path in sorted(root.glob("robot/data/*/*.parquet"))).to_pylist()
    frames = []
    for path in sorted(root.glob("robot/videos/**/*.mp4")):
        video = cv2.VideoCapture(str(path))
        while (read := video.read())[0]:
            frames.append(cv2.cvtColor(read[1], cv2.COLOR_BGR2RGB))
    return {
        f"episode_{row['episode_index']:06d}#{row['frame_index']:06d}": {
            "image": frame,
            "video": row["episode_index"],
            "frame": row["frame_index"],
            "pts_seconds": np.float32(row["timestamp"]),
            "task": _TASKS[row["task_index"]],
            "action": np.array(row["action"], np.float32),
            **{name: row[name] for name in ("timestamp", "frame_index", "episode_index", "task_index")},
        }
        for row, frame in zip(rows, frames, strict=True)
    }


def _robots(have: str, version: str) -> Layout:
    return Layout(have, copied(f"lerobot/{version}/h264", "robot"), _of_robots, ("av",), 40)


LAYOUTS = (
    *_ARRAYS,
    *(of_files(have, files, samples, ("google_crc32c",)) for have, files, samples in _RECORDS),
    _chunks("MDS of MosaicML Streaming: shards and an `index.json`", "mds/splits/train", "set"),
    _chunks("MDS in folders of splits", "mds/splits", "set", ("train/", "val/")),
    _chunks("what `litdata.optimize` writes: chunks and an `index.json`", "litdata/dicts", "set"),
    _chunks("the same, whose samples are tuples of an image and a label", "litdata/pairs", "pairs"),
    _robots("a LeRobot dataset, v3: many episodes in each video", "v30"),
    _robots("a LeRobot dataset, v2: a video for each episode", "v21"),
)
