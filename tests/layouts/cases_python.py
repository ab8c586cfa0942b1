"""Python objects."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case, image
from PIL import Image

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3)).astype(np.uint8)
_CHANCE = np.random.default_rng(1)


class Data:
    """A dataset by what makes a sample."""

    def __init__(self, sample: Callable[[int], Any], length: int = 4) -> None:
        self._sample, self._length = sample, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Any:
        return self._sample(i)


def _frame(root: Path) -> Any:
    import pandas as pd

    for n in range(2):
        (root / f"{n}.png").write_bytes(image(".png", n))
    return pd.DataFrame({"path": [str(root / f"{n}.png") for n in range(2)], "label": ["cat", "dog"]})


def _hugging_face(columns: Callable[[], Any]) -> Callable[[Path], Any]:
    """A Dataset of images and other columns. columns: name -> values and kind."""

    def make(root: Path) -> Any:
        import datasets

        files = [{"bytes": image(".png", n), "path": None} for n in range(2)]
        every = {"image": (files, datasets.Image()), **columns()}
        features = datasets.Features({name: kind for name, (_, kind) in every.items()})
        return datasets.Dataset.from_dict({name: values for name, (values, _) in every.items()}, features=features)

    return make


def _classes() -> Any:
    import datasets

    return {"label": ([1, -1], datasets.ClassLabel(names=["cat", "dog"]))}


def _lists() -> Any:
    import datasets

    return {"tags": ([[], [3]], datasets.Sequence(datasets.Value("int32")))}


def _times() -> Any:
    import datasets

    return {"when": ([datetime(2026, 1, 1), datetime(2026, 1, 2)], datasets.Value("timestamp[s]"))}


_DATASETS = ("datasets",)


def value(name: str, source: Any, wrong: str = "", needs: tuple[str, ...] = (), **options: Any) -> Case:
    return Case(name, None, source if callable(source) else lambda root: source, options, wrong, needs)


def data(name: str, sample: Callable[[int], Any], wrong: str = "", length: int = 4) -> Case:
    return value(name, lambda root: Data(sample, length), wrong)


CASES = (
    data("a dataset of Pillow's images and texts", lambda i: (Image.fromarray(PIXELS[i]), ("cat", "dog")[i % 2])),
    data("a dataset of files in memory", lambda i: (image(".png", i), i)),
    data("a dataset of paths", lambda i: (f"{i}.jpg", i)),
    data("a dataset of label and image", lambda i: (i % 2, PIXELS[i])),
    data("a dataset of three", lambda i: (PIXELS[i], i % 2, float(i))),
    data("a dataset of pairs of images", lambda i: (PIXELS[i], PIXELS[i])),
    data("a dataset of channels first", lambda i: (PIXELS[i].transpose(2, 0, 1), i)),
    data("a dataset of floats", lambda i: (PIXELS[i] / np.float32(255), i)),
    data("a dataset of None", lambda i: None),
    data("an empty dataset", lambda i: (PIXELS[i], i), length=0),
    data("a dataset that fails", lambda i: {}["image"]),
    data("labels of several types", lambda i: (PIXELS[i], i if i % 2 else "cat")),
    data("a random crop in the dataset", lambda i: (PIXELS[i] + _CHANCE.integers(0, 2, dtype=np.uint8), i)),
    data("labels that are numbers in texts", lambda i: (PIXELS[i], ("1", "2", "10", "2")[i])),
    value("columns", {"image": PIXELS, "label": [0, 1, 0, 1], "text": ["a", "b", "c", "d"]}),
    value("columns without an image", {"label": [0, 1]}),
    value("columns of different lengths", {"image": PIXELS, "label": [0, 1]}),
    value("an array", PIXELS),
    value("an array of one image", PIXELS[0]),
    value("a list of paths", ["photos/0.jpg", "photos/1.jpg"]),
    value("an image file in bytes", image()),
    value("None", None),
    value("a Dataset with a label that is missing", _hugging_face(_classes), needs=_DATASETS),
    value("a Dataset whose first list is empty", _hugging_face(_lists), needs=_DATASETS),
    value("a Dataset with times", _hugging_face(_times), needs=_DATASETS),
    value("a path's option for an object", PIXELS, labels_file="labels.csv"),
)
