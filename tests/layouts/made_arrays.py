"""Layouts of arrays, and of what other loaders wrote."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
from cases import Files, write
from cases_arrays import idx
from cases_beside import npy, npz
from layout import Layout, Samples, copied, of_files, pixels, shot
from pictures import encoded

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

LAYOUTS = (
    *_ARRAYS,
    *(
        Layout(have, copied(f"tfrecord/{fixture}", to), needs=("google_crc32c",))
        for have, fixture, to in (
            ("ImageNet as TFRecord files", "imagenet", "imagenet"),
            ("TFRecord files of TensorFlow's object detection", "detection", "coco"),
            ("a folder of TensorFlow Datasets", "pets", "pets"),
        )
    ),
    Layout("MDS of MosaicML Streaming: shards and an `index.json`", copied("mds/splits/train", "set")),
    Layout("MDS in folders of splits", copied("mds/splits", "set")),
    Layout("what `litdata.optimize` writes: chunks and an `index.json`", copied("litdata/dicts", "set")),
    Layout("the same, whose samples are tuples of an image and a label", copied("litdata/pairs", "pairs")),
    Layout("a LeRobot dataset, v3: many episodes in each video", copied("lerobot/v30/h264", "robot"), needs=("av",)),
    Layout("a LeRobot dataset, v2: a video for each episode", copied("lerobot/v21/h264", "robot"), needs=("av",)),
)
