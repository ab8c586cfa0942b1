"""Samples with several images, a mask and boxes: what each image is of the first, stores of them, and how they are held
against what was packed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from numpy.typing import NDArray

import rawpack_packer
from rawpack import Reader
from rawpack_packer import recipe

Pixels = NDArray[Any]
LEAST = 10
"""Samples of the smallest shard here: elsewhere it has 64."""
COUNT = LEAST + 3
SIZES = ((12, 16), (9, 7), (16, 5))
FIELDS: dict[str, Any] = {
    "inverted": "image", "target": "image", "gray": "image", "depth": "image", "heat": "image", "seg": "mask",
    "boxes": "xyxy",
}  # fmt: skip
LAYOUTS: dict[str, dict[str, Any]] = {
    "memmap": {"format": "memmap"},
    "hdf5": {"format": "hdf5"},
    "hdf5-gzip": {"format": "hdf5", "compression": "gzip"},
    "lmdb": {"format": "lmdb", "quality": 95, "subsampling": "4:4:4"},
    "memmap-planes": {"format": "memmap", "color": "ycgco420"},
    "hdf5-planes": {"format": "hdf5", "compression": "gzip", "color": "ycgco420"},
    "memmap-zstd": {"format": "memmap", "compression": "zstd"},
    "zstd-planes": {"format": "memmap", "compression": "zstd", "color": "ycgco420"},
}
EXACT = ("memmap", "hdf5", "hdf5-gzip", "memmap-zstd")
"""Layouts that keep all pixels."""
PICTURES = ("image", "inverted", "target", "gray")
NEAR = {"lmdb": 6, "memmap-planes": 4, "hdf5-planes": 4, "zstd-planes": 4}
"""How far a picture may be from what was packed, on average. Pictures of different samples differ by more than 20."""
NAMES = ("image", "inverted", "target", "gray", "depth", "heat", "seg")
"""Of images and masks."""


def first_of(number: int, size: tuple[int, int]) -> Pixels:
    """The first image of a sample: smooth, so that JPEG keeps it about as it is, and dark or bright by its number."""
    y, x = np.mgrid[: size[0], : size[1]]
    planes = [y * 3 + number * 37 % 180, x * 2 + number * 61 % 190, y + x + number * 23 % 170]
    return np.stack(planes, axis=2).clip(0, 255).astype(np.uint8)


def others_of(image: Pixels) -> dict[str, Pixels]:
    """What the other images, and the mask, of a sample are, by its first image."""
    return {
        "inverted": 255 - image,
        "target": image.repeat(4, axis=0).repeat(4, axis=1),
        "gray": image[..., 1:2],
        "depth": (image.sum(axis=2, keepdims=True) * 77).astype(np.uint16),
        "heat": image[..., :2].astype(np.float32) / 255 - 0.5,
        "seg": image[..., :1] // 32,
    }


def sample_of(number: int, size: tuple[int, int], *, floats: bool = True) -> dict[str, Any]:
    """A sample as the packer gets it. floats: with `heat`, which LMDB cannot hold."""
    image = first_of(number, size)
    others = {name: value for name, value in others_of(image).items() if floats or name != "heat"}
    return {"image": image, **others, "boxes": boxes_of(number), "number": number, "label": number % 2}


def boxes_of(number: int) -> NDArray[np.float32]:
    """The boxes of a sample."""
    return np.array([[1, 2, 4, 5, number % 2]] * (number % 3), np.float32).reshape(-1, 5)


class Samples:
    """Samples of one size, or of several, as a dataset."""

    classes = ("even", "odd")

    def __init__(self, numbers: Iterable[int] = range(COUNT), *, one_size: bool = True, floats: bool = True) -> None:
        self.numbers, self._sizes, self._floats = list(numbers), SIZES[: 1 if one_size else None], floats

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, i: int) -> dict[str, Any]:
        number = self.numbers[i]
        return sample_of(number, self._sizes[number % len(self._sizes)], floats=self._floats)


def check(found: Mapping[str, Any], layout: str, *, one_size: bool = True, without: str = "") -> int:
    """Fail unless a sample is the one that was packed: all images, or all but one; mask, boxes. Returns its number."""
    number = int(found["number"])
    size = SIZES[0 if one_size else number % len(SIZES)]
    for name, packed in _packed(number, size).items():
        if name not in found:
            assert name == without or (name == "heat" and layout == "lmdb")
            continue
        read = found[name]
        assert (read.dtype, read.shape) == (packed.dtype, packed.shape), name
        if layout in EXACT or name not in PICTURES or (name == "gray" and "planes" in layout):
            assert np.array_equal(read, packed), name
        else:
            assert np.abs(read.astype(int) - packed).mean() < NEAR[layout], name
    if "boxes" in found:
        assert np.array_equal(found["boxes"], boxes_of(number))
    return number


@cache
def _packed(number: int, size: tuple[int, int]) -> dict[str, Pixels]:
    """All images, and the mask, of a sample."""
    image = first_of(number, size)
    return {"image": image, **others_of(image)}


def fields_of(*, floats: bool) -> dict[str, Any]:
    """What fields are declared as."""
    return {name: kind for name, kind in FIELDS.items() if floats or name != "heat"}


def pack(folder: Path, layout: str, *, one_size: bool = True, floats: bool | None = None, **options: Any) -> Path:
    """A store of all samples, of several shards."""
    store, floats = folder / f"{layout}-{'one' if one_size else 'keep'}", layout != "lmdb" if floats is None else floats
    given, fields = Samples(one_size=one_size, floats=floats), fields_of(floats=floats)
    image = {} if one_size else {"image": ("uint8", (None, None, 3)), "size": "keep"}
    with mock.patch.object(recipe, "_MIN_PART", LEAST):
        made = rawpack_packer.pack(
            given, store, fields=fields, workers=0, shard_size="1", **image, **LAYOUTS[layout], **options
        )
    assert made.manifest.rejects.count == 0
    return store


def by_docs(store: Path) -> Iterator[dict[str, Any]]:
    """The samples of a store, read by the documentation of its format, without rawpack."""
    from readers_by_docs import StoreByDocs  # with what reads the formats

    for one in StoreByDocs(store).samples():
        yield {"image": one.image, "label": one.label, "key": one.key, **one.masks, **one.others}


def numbers_in(store: Path, layout: str, *, one_size: bool = True) -> list[int]:
    """The numbers of the samples, each of which is whole: by the documentation, and by `reader[i]`."""
    from rawpack_packer.api import verify

    found = [check(one, layout, one_size=one_size) for one in by_docs(store)]
    reader = Reader(store, verify=True)
    assert [check(reader[i], layout, one_size=one_size) for i in range(len(reader))] == found
    assert verify(store) == []
    return found


Stored = Callable[..., Path]


def stores_in(mktemp: Callable[[str], Path]) -> Stored:
    """`stored("lmdb", one_size=False)`: a store of `Samples`, packed once."""
    stores: dict[tuple[str, bool, bool], Path] = {}

    def get(layout: str, one_size: bool = True, floats: bool = True) -> Path:
        kind = layout, one_size, floats and layout != "lmdb"
        if kind not in stores:
            stores[kind] = pack(mktemp("stored"), layout, one_size=one_size, floats=kind[2])
        return stores[kind]

    return get


def check_batch(batch: Mapping[str, Any], numbers: Any) -> int:
    """How many samples a batch has, each with the images of its number."""
    for k, number in enumerate(np.asarray(numbers).tolist()):
        for name, values in _packed(number, SIZES[0]).items():
            if name in batch:
                found = np.asarray(batch[name][k])
                assert np.array_equal(found, values), name
                assert found.dtype == values.dtype
    return len(numbers)
