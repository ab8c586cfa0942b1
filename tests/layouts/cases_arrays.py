"""Arrays in files: NumPy's, IDX, HDF5, CIFAR's, MATLAB's."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from archived import tar
from cases import Case, Files, lone, names
from cases_beside import npz

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)
LABELS = np.arange(3)


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def hdf5(name: str, **data: Any) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(root / name, "w") as file:
            for path, value in data.items():
                file[path.replace("__", "/")] = value

    return make


def parts(name: str) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        for n in range(3):
            hdf5(name.format(n), images=PIXELS, labels=LABELS)(root)

    return make


def mnist(folder: str, end: str = "") -> Files:
    made = {}
    for split in ("train", "t10k"):
        made[f"{folder}/{split}-images-idx3-ubyte{end}"] = idx(PIXELS[..., 0])
        made[f"{folder}/{split}-labels-idx1-ubyte{end}"] = idx(LABELS.astype(np.uint8))
    return {name: gzip.compress(data, mtime=0) if end else data for name, data in made.items()}


def cifar() -> dict[str, bytes]:
    batch = pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1]}, 2)
    names = [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]
    folder = "cifar-10-batches-py"
    made = {f"{folder}/{name}": batch for name in names}
    return {**made, f"{folder}/batches.meta": pickle.dumps({b"label_names": [b"plane", b"car"]}, 2)}


def _matlab(root: Path) -> None:
    with h5py.File(root / "set.mat", "w", userblock_size=512) as file:
        file["images"], file["labels"] = PIXELS.transpose(0, 3, 2, 1), LABELS[None].astype(float)
    with (root / "set.mat").open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file")


_HUNDRED = {b"data": np.zeros((1, 3072), np.uint8), b"fine_labels": [1], b"coarse_labels": [0]}
_NAMES_OF_HUNDRED = {b"fine_label_names": [b"apple", b"baby"], b"coarse_label_names": [b"x"]}
_CIFAR = "cifar-10-python.tar.gz"
_SPLITS = {"x_train": PIXELS, "y_train": LABELS, "x_test": PIXELS[:2], "y_test": LABELS[:2]}

CASES = (
    lone("an .npy", "set.npy", npy(PIXELS)),
    lone("an .npy of one image", "set.npy", npy(PIXELS[0])),
    lone("an .npy of floats", "set.npy", npy(PIXELS / np.float32(255))),
    lone("an .npy of int64", "set.npy", npy(PIXELS.astype(np.int64))),
    lone("an .npy whose channels come first", "set.npy", npy(PIXELS.transpose(0, 3, 1, 2))),
    lone("an .npy of objects", "set.npy", npy(np.array([{}, {}], object))),
    lone("an .npy that is cut", "set.npy", npy(PIXELS)[:200]),
    Case(
        "images.npy beside labels.npy", "set/images.npy", {"set/images.npy": npy(PIXELS), "set/labels.npy": npy(LABELS)}
    ),
    Case("labels of another length", "set", {"set/images.npy": npy(PIXELS), "set/labels.npy": npy(np.arange(9))}),
    Case("an .npy for each image", "set", {f"set/{n}.npy": npy(PIXELS[n]) for n in range(3)}),
    lone("an .npz of images and labels", "set.npz", npz(image=PIXELS, label=LABELS)),
    lone("an .npz of other names", "set.npz", npz(data=PIXELS, target=LABELS)),
    lone("an .npz of two images", "set.npz", npz(left=PIXELS, right=PIXELS)),
    lone("one split of an .npz", "mnist.npz", npz(**_SPLITS), inside="test"),
    lone("a split that an .npz lacks", "mnist.npz", npz(**_SPLITS), inside="val"),
    lone("an .npz with names of classes", "set.npz", npz(image=PIXELS, label=np.array(["b", "a", "b"]))),
    lone("a file of IDX", "train-images-idx3-ubyte", idx(PIXELS[..., 0])),
    Case("MNIST's files, gzipped", "raw", mnist("raw", ".gz")),
    Case("FashionMNIST's folder", "FashionMNIST", mnist("FashionMNIST/raw")),
    Case("one split of MNIST", "MNIST/train", mnist("MNIST/raw")),
    Case("HDF5 in parts", "set", parts("set/part{}.h5")),
    Case(".npz in parts", "set", {f"set/a{n}.npz": npz(image=PIXELS, label=LABELS) for n in range(3)}),
    Case("HDF5 of two sets of images", "set.h5", hdf5("set.h5", left=PIXELS, right=PIXELS)),
    Case(
        "one split of HDF5",
        "set.h5/test",
        hdf5("set.h5", train__x=PIXELS, train__y=LABELS, test__x=PIXELS, test__y=LABELS),
    ),
    Case(
        "HDF5 of a group for each sample",
        "set.h5",
        hdf5("set.h5", s0__rgb=PIXELS[0], s0__label=0, s1__rgb=PIXELS[1], s1__label=1),
    ),
    Case("a folder of HDF5", "sets", hdf5("sets/train_x.h5", x=PIXELS)),
    lone("an .h5 of something else", "set.h5", "words"),
    Case("MATLAB's files since 7.3", "set.mat", _matlab),
    lone("CIFAR's archive", _CIFAR, gzip.compress(tar(cifar()), mtime=0)),
    lone("one split of CIFAR's archive", _CIFAR, gzip.compress(tar(cifar()), mtime=0), inside="test"),
    Case(
        "CIFAR's binary folder",
        "cifar-10-batches-bin",
        {
            **dict.fromkeys(names("cifar-10-batches-bin/{data_batch_{1,2,3,4,5},test_batch}.bin"), bytes(3073)),
            "cifar-10-batches-bin/batches.meta.txt": "plane\ncar\n\n",
        },
    ),
    Case(
        "CIFAR-100's folder",
        "cifar-100-python",
        {
            **dict.fromkeys(names("cifar-100-python/{train,test}"), pickle.dumps(_HUNDRED, 2)),
            "cifar-100-python/meta": pickle.dumps(_NAMES_OF_HUNDRED, 2),
        },
    ),
)
