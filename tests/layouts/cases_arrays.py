"""Arrays in files: NumPy's, IDX, HDF5, CIFAR's, MATLAB's; videos; and Python objects."""

from __future__ import annotations

import gzip
import pickle
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from archived import tar
from cases import Case, Files, files, lone, names, write
from cases_beside import npy, npz

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3)).astype(np.uint8)
LABELS = np.arange(3)


def idx(array: np.ndarray[Any, Any]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def hdf5(name: str, **data: Any) -> Callable[[Path], None]:
    def make(root: Path) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        with h5py.File(root / name, "w") as file:
            for path, value in data.items():
                file[path.replace("__", "/")] = value

    return make


def _parts(root: Path) -> None:
    for n in range(3):
        hdf5(f"set/part{n}.h5", images=PIXELS, labels=LABELS)(root)


def mnist(folder: str) -> Files:
    made = {}
    for split in ("train", "t10k"):
        made[f"{folder}/{split}-images-idx3-ubyte"] = idx(PIXELS[..., 0])
        made[f"{folder}/{split}-labels-idx1-ubyte"] = idx(LABELS.astype(np.uint8))
    return made


def _cifar() -> bytes:
    batch = pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [1]}, 2)
    made = dict.fromkeys(names("cifar-10-batches-py/{data_batch_{1,2,3,4,5},test_batch}"), batch)
    about = pickle.dumps({b"label_names": [b"plane", b"car"]}, 2)
    return gzip.compress(tar({**made, "cifar-10-batches-py/batches.meta": about}), mtime=0)


_SPLITS = npz(x_train=PIXELS, y_train=LABELS, x_test=PIXELS[:2], y_test=LABELS[:2])

ARRAYS = (
    lone("an .npy", "set.npy", npy(PIXELS)),
    lone("an .npy whose channels come first", "set.npy", npy(PIXELS.transpose(0, 3, 1, 2))),
    lone("an .npy of objects", "set.npy", npy(np.array([{}, {}], object))),
    Case("labels of another length", "set", {"set/images.npy": npy(PIXELS), "set/labels.npy": npy(np.arange(9))}),
    Case("an .npy for each image", "set", {f"set/{n}.npy": npy(PIXELS[n]) for n in range(3)}),
    lone("an .npz of other names", "set.npz", npz(data=PIXELS, target=LABELS)),
    lone("one split of an .npz", "mnist.npz", _SPLITS, inside="test"),
    lone("an .npz with names of classes", "set.npz", npz(image=PIXELS, label=np.array(["b", "a", "b"]))),
    Case("FashionMNIST's folder", "FashionMNIST", mnist("FashionMNIST/raw")),
    Case("one split of MNIST", "MNIST/train", mnist("MNIST/raw")),
    Case("HDF5 in parts", "set", _parts),
    Case(".npz in parts", "set", {f"set/a{n}.npz": npz(image=PIXELS, label=LABELS) for n in range(3)}),
    Case("one split of HDF5", "set.h5/test", hdf5("set.h5", train__x=PIXELS, test__x=PIXELS, test__y=LABELS)),
    Case(
        "HDF5 of a group for each sample", "set.h5", hdf5("set.h5", s0__rgb=PIXELS[0], s1__rgb=PIXELS[1], s1__label=1)
    ),
    lone("CIFAR's archive", "cifar-10-python.tar.gz", _cifar()),
)


def _videos(*names: str) -> Callable[[Path], None]:
    """Videos of two frames."""

    def make(root: Path) -> None:
        from videos import encode

        for name in names:
            encode(root / name, "mpeg4", 2)

    return make


def _with_more(more: Files) -> Callable[[Path], None]:
    """A folder of a video and other files."""

    def make(root: Path) -> None:
        _videos("set/a.mp4")(root)
        write(root, more)

    return make


_video = partial(Case, needs=("av",))
_SPLIT = _videos("set/train/run/a.mp4", "set/val/run/b.mp4")
VIDEOS = (
    _video("a folder of videos", "set", _videos("set/a.mp4", "set/b.mp4")),
    _video("one split of them", "set/train", _SPLIT),
    _video("images and videos", "set", _with_more(files("set/{0,1}.jpg"))),
    _video("a table of videos, in their folder", "set", _with_more({"set/list.csv": "path,label\na.mp4,run\n"})),
    _video("metadata.csv of videos", "set", _with_more({"set/metadata.csv": "file_name,label\na.mp4,run\n"})),
)


class Data:
    """A dataset as many people write it. sample: what it makes of a number."""

    def __init__(self, length: int, sample: Callable[[int], Any]) -> None:
        self._length, self._sample = length, sample

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Any:
        return self._sample(i)


def _value(name: str, source: Any, **options: Any) -> Case:
    return Case(name, None, lambda root: source, options)


def _data(name: str, sample: Callable[[int], Any]) -> Case:
    return _value(name, Data(3, sample))


_CHANCE = np.random.default_rng(1)
PYTHON = (
    _data("a dataset of paths", lambda i: (f"{i}.jpg", i)),
    _data("a dataset of label and image", lambda i: (i % 2, PIXELS[i])),
    _data("a dataset of pairs of images", lambda i: (PIXELS[i], PIXELS[i])),
    _data("a dataset of channels first", lambda i: (PIXELS[i].transpose(2, 0, 1), i)),
    _value("an empty dataset", Data(0, lambda i: None)),
    _data("labels of several types", lambda i: (PIXELS[i], i if i % 2 else "cat")),
    _data("a random crop in the dataset", lambda i: (PIXELS[i] + _CHANCE.integers(0, 2, (8, 8, 3), np.uint8), i)),
    _data("labels that are numbers in texts", lambda i: (PIXELS[i], ("2", "10", "2")[i])),
    _value("columns", {"image": PIXELS, "label": [0, 1, 0], "text": ["a", "b", "c"]}),
    _value("a path's option for an object", PIXELS, labels_file="labels.csv"),
)

CASES = {"arrays": ARRAYS, "videos": VIDEOS, "python": PYTHON}
