"""Layouts of arrays, and of what libraries leave in their folders. Oracles: what was written, h5py, lmdb."""

from __future__ import annotations

import gzip
import io
import struct
from pathlib import Path
from typing import Any

import h5py
import lmdb
import numpy as np
from layout import Layout, Samples
from pictures import picture
from PIL import Image

_FASHION = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_SIZES = {"train": 7, "val": 4, "test": 5}


def _images(split: str, shape: tuple[int, ...] = (28, 28)) -> np.ndarray[Any, Any]:
    return np.random.default_rng(len(split)).integers(0, 256, (_SIZES[split], *shape)).astype(np.uint8)


def _labels(split: str) -> np.ndarray[Any, Any]:
    return (np.arange(_SIZES[split]) * 3 % 10).astype(np.uint8)


def _file(suffix: str, seed: int) -> bytes:
    """An image file: a picture of its own size."""
    file = io.BytesIO()
    Image.fromarray(picture(20 + seed, 30, seed)).save(file, {".jpg": "JPEG", ".png": "PNG"}[suffix])
    return file.getvalue()


def _pixels(file: bytes) -> np.ndarray[Any, Any]:
    return np.asarray(Image.open(io.BytesIO(file)).convert("RGB"))


def _idx(array: np.ndarray[Any, Any]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def _fashion(root: Path) -> None:
    """As torchvision leaves it: each file, and what it was unpacked from."""
    raw = root / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for split, name in (("train", "train"), ("test", "t10k")):
        for kind, array in (("images-idx3", _images(split)), ("labels-idx1", _labels(split))):
            (raw / f"{name}-{kind}-ubyte").write_bytes(_idx(array))
            (raw / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(_idx(array)))


def _rows(
    *splits: str, names: tuple[str, ...] | None = None, shape: tuple[int, ...] = (28, 28, 1), prefix: bool = True
) -> Samples:
    """Samples of splits, whose keys are numbers; gray images have one channel."""
    return {
        f"{split}/{i:08d}" if prefix else f"{i:08d}": {
            "image": image.reshape(shape),
            "label": names[label] if names else label,
        }
        for split in splits
        for i, (image, label) in enumerate(zip(_images(split, shape), _labels(split).tolist(), strict=True))
    }


def _keras(root: Path) -> None:
    np.savez(
        root / "mnist.npz",
        x_train=_images("train"), y_train=_labels("train"), x_test=_images("test"), y_test=_labels("test"),
    )  # fmt: skip


def _medmnist(root: Path) -> None:
    arrays = {f"{split}_images": _images(split, (28, 28, 3)) for split in _SIZES}
    np.savez_compressed(
        root / "bloodmnist.npz", **arrays, **{f"{split}_labels": _labels(split).reshape(-1, 1) for split in _SIZES}
    )


def _findings(split: str) -> np.ndarray[Any, Any]:
    return (np.arange(_SIZES[split] * 14).reshape(-1, 14) % 3 == 0).astype(np.uint8)


def _chestmnist(root: Path) -> None:
    arrays = {f"{split}_images": _images(split) for split in _SIZES}
    np.savez(root / "chestmnist.npz", **arrays, **{f"{split}_labels": _findings(split) for split in _SIZES})


def _of_chestmnist(root: Path) -> Samples:
    return {
        f"{split}/{i:08d}": {"image": image[..., None], "label": findings}
        for split in _SIZES
        for i, (image, findings) in enumerate(zip(_images(split), _findings(split), strict=True))
    }


def _pcam(root: Path) -> None:
    """Images and labels in files of their own, with what else is downloaded."""
    (root / "pcam").mkdir()
    for split, name in (("train", "train"), ("val", "valid"), ("test", "test")):
        stem = root / "pcam" / f"camelyonpatch_level_2_split_{name}"
        with h5py.File(f"{stem}_x.h5", "w") as file:
            file.create_dataset("x", data=_images(split, (96, 96, 3)), chunks=(2, 96, 96, 3), compression="gzip")
        with h5py.File(f"{stem}_y.h5", "w") as file:
            file["y"] = _labels(split).reshape(-1, 1, 1, 1)
        Path(f"{stem}_meta.csv").write_text("coord_x,coord_y\n")


def _galaxies(root: Path) -> None:
    with h5py.File(root / "Galaxy10.h5", "w") as file:
        file["images"], file["ans"] = _images("train", (69, 69, 3)), _labels("train")


def _parts(root: Path) -> None:
    with h5py.File(root / "digits.h5", "w") as file:
        for split in ("train", "test"):
            file[f"{split}/x"], file[f"{split}/y"] = _images(split), _labels(split)


def _groups(root: Path) -> None:
    with h5py.File(root / "pets.h5", "w") as file:
        for n in range(6):
            file[f"{('cat', 'dog')[n % 2]}/{n:03}"] = picture(24, 32, n)


def _of_groups(root: Path) -> Samples:
    with h5py.File(root / "pets.h5") as file:
        return {
            f"{group}/{name}": {"image": one[()], "label": group} for group in file for name, one in file[group].items()
        }


def _padded(root: Path) -> None:
    with h5py.File(root / "photos.h5", "w") as file:
        file["images"] = np.array([_file((".jpg", ".png")[n % 2], n) for n in range(6)])
        file["labels"] = np.arange(6) % 3


def _of_padded(root: Path) -> Samples:
    with h5py.File(root / "photos.h5") as file:
        rows = zip(file["images"][()], file["labels"][()].tolist(), strict=True)
        return {f"{i:08d}": {"image": _pixels(bytes(image)), "label": label} for i, (image, label) in enumerate(rows)}


def _lmdb(root: Path) -> None:
    with lmdb.open(str(root / "captions.lmdb"), map_size=1 << 26) as database, database.begin(write=True) as write:
        for n in range(6):
            write.put(f"{n:03}.jpg".encode(), _file(".jpg", n))
            write.put(f"{n:03}.txt".encode(), f"the {n}th picture, \u00e9".encode())
            write.put(f"{n:03}.cls".encode(), str(n % 3).encode())


def _of_lmdb(root: Path) -> Samples:
    with lmdb.open(str(root / "captions.lmdb"), readonly=True, lock=False) as database, database.begin() as read:
        every = dict(read.cursor())
    return {
        key.decode(): {
            "image": _pixels(image),
            "label": int(every[key[:-4] + b".cls"]),
            "text": every[key[:-4] + b".txt"].decode(),
        }
        for key, image in every.items()
        if key.endswith(b".jpg")
    }


def _npy(root: Path) -> None:
    (root / "shapes").mkdir()
    np.save(root / "shapes" / "x_train.npy", _images("train", (16, 20, 3)))
    np.save(root / "shapes" / "y_train.npy", _labels("train"))


def _npy_splits(root: Path) -> None:
    _npy(root)
    np.save(root / "shapes" / "x_test.npy", _images("test", (16, 20, 3)))
    np.save(root / "shapes" / "y_test.npy", _labels("test"))


LAYOUTS = (
    Layout(
        "torchvision's `FashionMNIST/raw`, or MNIST's", _fashion, lambda root: _rows("train", "test", names=_FASHION)
    ),
    Layout("Keras' `mnist.npz`: `x_train`, `y_train`, `x_test`, `y_test`", _keras, lambda root: _rows("train", "test")),
    Layout(
        "MedMNIST's `.npz`: `train_images`, `train_labels`, `val_images`, ...",
        _medmnist,
        lambda root: _rows("train", "val", "test", shape=(28, 28, 3)),
    ),
    Layout("the same, with several findings for each image: labels (N, 14)", _chestmnist, _of_chestmnist),
    Layout(
        "images in `..._train_x.h5`, labels in `..._train_y.h5` (PCam)",
        _pcam,
        lambda root: {
            key.replace("val/", "valid/"): one for key, one in _rows("train", "val", "test", shape=(96, 96, 3)).items()
        },
    ),
    Layout(
        "HDF5 with images, and labels or other values of as many rows",
        _galaxies,
        lambda root: _rows("train", shape=(69, 69, 3), prefix=False),
    ),
    Layout(
        "HDF5 with splits: `train/x`, `train/y`, `test/x`, or `x_train`", _parts, lambda root: _rows("train", "test")
    ),
    Layout("HDF5 with a group for each class, and a data set for each image", _groups, _of_groups),
    Layout(
        "HDF5 with image files as bytes: of one length (`S`), opaque, or variable", _padded, _of_padded, tolerance=0
    ),
    Layout("an LMDB of `name.jpg`, `name.txt` and `name.cls`", _lmdb, _of_lmdb),
    Layout(
        "`x_train.npy` and `y_train.npy`, or `images.npy` and `labels.npy`",
        _npy,
        lambda root: _rows("train", shape=(16, 20, 3), prefix=False),
    ),
    Layout(
        "the same, with `x_test.npy` and `y_test.npy`",
        _npy_splits,
        lambda root: _rows("train", "test", shape=(16, 20, 3)),
    ),
)
