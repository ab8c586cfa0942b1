"""Layouts of arrays, and of what libraries leave in their folders: what was written is what is to be read."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
from cases import write
from cases_arrays import idx, npy
from cases_beside import npz
from layout import Layout, Samples, of_files, pixels, shot
from pictures import encoded

_FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
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


def _fashion() -> Mapping[str, bytes | str]:
    """As torchvision leaves it: each file, and what it was unpacked from."""
    files: dict[str, bytes | str] = {}
    for split, name in (("train", "train"), ("test", "t10k")):
        for kind, array in (("images-idx3", _images(split)), ("labels-idx1", _labels(split))):
            path = f"FashionMNIST/raw/{name}-{kind}-ubyte"
            files |= {path: idx(array), f"{path}.gz": gzip.compress(idx(array))}
    return files


def _hdf5(data: Mapping[str, Mapping[str, Any]]) -> Callable[[Path], None]:
    """Makes files of HDF5. data: file -> data set -> its values; images are compressed."""

    def make(root: Path) -> None:
        for name, sets in data.items():
            (root / name).parent.mkdir(exist_ok=True)
            with h5py.File(root / name, "w") as file:
                for path, values in sets.items():
                    compression = "gzip" if np.ndim(values) == 4 else None
                    file.create_dataset(path, data=values, compression=compression)

    return make


def _of_hdf5(have: str, data: Mapping[str, Mapping[str, Any]], samples: Samples) -> Layout:
    return Layout(have, _hdf5(data), lambda root: samples)


def _pcam(root: Path) -> None:
    """Images and labels in files of their own, with what else is downloaded."""
    stem = "pcam/camelyonpatch_level_2_split"
    for split in ("train", "valid", "test"):
        images, labels = _images(split, 96, 96, 3), _labels(split).reshape(-1, 1, 1, 1)
        _hdf5({f"{stem}_{split}_x.h5": {"x": images}, f"{stem}_{split}_y.h5": {"y": labels}})(root)
        write(root, {f"{stem}_{split}_meta.csv": "coord_x,coord_y\n"})


def _lmdb(root: Path) -> None:
    with lmdb.open(str(root / "captions.lmdb"), map_size=1 << 26) as database, database.begin(write=True) as write:
        for n, file in enumerate(_FILES):
            write.put(f"{n:03}.jpg".encode(), file)
            write.put(f"{n:03}.txt".encode(), f"the {n}th picture, \u00e9".encode())
            write.put(f"{n:03}.cls".encode(), str(n % 3).encode())


def _of_lmdb(root: Path) -> Samples:
    return {
        f"{n:03}.jpg": {"image": pixels(file), "label": n % 3, "text": f"the {n}th picture, \u00e9"}
        for n, file in enumerate(_FILES)
    }


def _shapes(*splits: str) -> dict[str, bytes | str]:
    images = {f"shapes/x_{split}.npy": npy(_images(split, 16, 20, 3)) for split in splits}
    return {**images, **{f"shapes/y_{split}.npy": npy(_labels(split)) for split in splits}}


_MNIST = npz(
    x_train=_images("train"), y_train=_labels("train"), x_test=_images("test"), y_test=_labels("test")
)  # fmt: skip
_OF_MED = ("train", "val", "test")
_BLOOD = npz(
    **{f"{split}_images": _images(split, 28, 28, 3) for split in _OF_MED},
    **{f"{split}_labels": _labels(split).reshape(-1, 1) for split in _OF_MED},
)
_CHEST = npz(
    **{f"{split}_images": _images(split) for split in _OF_MED},
    **{f"{split}_labels": _findings(split) for split in _OF_MED},
)
_PETS = {f"{('cat', 'dog')[n % 2]}/{n:03}": shot(n) for n in range(6)}

LAYOUTS = (
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
        {"bloodmnist.npz": _BLOOD},
        _rows(*_OF_MED, shape=(28, 28, 3)),
    ),
    of_files(
        "the same, with several findings for each image: labels (N, 14)",
        {"chestmnist.npz": _CHEST},
        _rows(*_OF_MED, labels=_findings),
    ),
    Layout(
        "images in `..._train_x.h5`, labels in `..._train_y.h5` (PCam)",
        _pcam,
        lambda root: _rows("train", "valid", "test", shape=(96, 96, 3)),
    ),
    _of_hdf5(
        "HDF5 with images, and labels or other values of as many rows",
        {"Galaxy10.h5": {"images": _images("train", 69, 69, 3), "ans": _labels("train")}},
        _rows("train", shape=(69, 69, 3)),
    ),
    _of_hdf5(
        "HDF5 with splits: `train/x`, `train/y`, `test/x`, or `x_train`",
        {
            "digits.h5": {
                **{f"{split}/x": _images(split) for split in ("train", "test")},
                **{f"{split}/y": _labels(split) for split in ("train", "test")},
            }
        },
        _rows("train", "test"),
    ),
    _of_hdf5(
        "HDF5 with a group for each class, and a data set for each image",
        {"pets.h5": _PETS},
        {path: {"image": image, "label": path.partition("/")[0]} for path, image in _PETS.items()},
    ),
    _of_hdf5(
        "HDF5 with image files as bytes: of one length (`S`), opaque, or variable",
        {"photos.h5": {"images": np.array(_FILES), "labels": np.arange(6) % 3}},
        {f"{n:08d}": {"image": pixels(file), "label": n % 3} for n, file in enumerate(_FILES)},
    ),
    Layout("an LMDB of `name.jpg`, `name.txt` and `name.cls`", _lmdb, _of_lmdb),
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
