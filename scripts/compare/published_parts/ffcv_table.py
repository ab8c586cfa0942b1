"""6. FFCV's table: random crops of images at 256, 384 and 512 pixels, from memory and from a network disk."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from published_parts.common import once, pack, photos, size_of, store
from published_parts.contract import Method, Part, Relation, Task, Values
from published_parts.slow_store import served

SIDES, CROP, BATCH = (256, 384, 512), 224, 256
IMAGENET = 1_281_167
THEIR_CPUS = 96
NETWORK_BYTES_PER_S = 910e6 / THEIR_CPUS
"""For each CPU: the report's raw images of 256 pixels came from its network disk at 910 MB/s."""
RAW, HALF, JPEG = "FFCV, raw", "FFCV, half and half", "FFCV, JPEG 90"
_WRITING: dict[str, dict[str, Any]] = {
    RAW: {"write_mode": "raw"},
    HALF: {"write_mode": "proportion", "compress_probability": 0.5, "jpeg_quality": 90},
    JPEG: {"write_mode": "jpg", "jpeg_quality": 90},
}
Pixels = NDArray[np.uint8]


def prepare(task: Task) -> None:
    _files(task)
    for side in SIDES:
        images: Any = AsImages(_files(task), side)
        pack(task, f"side-{side}", images, size="keep", shard_size=8 << 20)
        pack(task, f"side-{side}-ycgco420", images, ("memmap",), size="keep", color="ycgco420")


def _count(task: Task) -> int:
    return task.count(512, 32)


def _files(task: Task) -> list[str]:
    """The photographs, in the order of all stores."""
    return [str(path) for path in photos(task, _count(task))]


class Resized:
    """Photographs whose longer side is at most `side`, as with FFCV's `max_resolution`; RGB, with labels."""

    def __init__(self, files: list[str], side: int) -> None:
        self._files, self._side = files, side

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, i: int) -> tuple[Pixels, int]:
        import cv2

        image: Any = cv2.imread(self._files[i])
        scale = self._side / max(image.shape[:2])
        if scale < 1:
            height, width = (max(1, round(length * scale)) for length in image.shape[:2])
            image = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        return np.ascontiguousarray(image[..., ::-1]), i % 1000


class AsImages(Resized):
    """The same photographs as PIL images, which rawpack packs at their own sizes."""

    def __getitem__(self, i: int) -> tuple[Any, int]:
        from PIL import Image

        pixels, label = super().__getitem__(i)
        return Image.fromarray(pixels), label


def by_ffcv(label: str, task: Task) -> Values:
    from ffcv.fields import IntField, RGBImageField
    from ffcv.fields.decoders import IntDecoder, RandomResizedCropRGBImageDecoder
    from ffcv.loader import Loader, OrderOption
    from ffcv.transforms import RandomHorizontalFlip, Squeeze, ToTensor
    from ffcv.writer import DatasetWriter

    cpus, found = _cpus(), {}
    for side in SIDES[: task.count(3, 1)]:
        files = photos_here(task)

        def write(path: Path, side: int = side, files: list[str] = files) -> None:
            fields = {"image": RGBImageField(**_WRITING[label]), "label": IntField()}
            # Files are padded to whole pages: with the default of 8 MiB, that would be a sixth of such a small file.
            writer = DatasetWriter(str(path), fields, page_size=1 << 21, num_workers=cpus)
            writer.from_indexed_dataset(Resized(files, side))

        path = once(task.folder / f"{label.replace(', ', '-').replace(' ', '-')}-{side}.beton", write)
        found[_size(side)] = _gigabytes(path, len(files))
        pipelines = {
            "image": [RandomResizedCropRGBImageDecoder((CROP, CROP)), RandomHorizontalFlip(), ToTensor()],
            "label": [IntDecoder(), ToTensor(), Squeeze()],
        }
        loader = Loader(
            str(path), batch_size=_batch(task), num_workers=cpus, order=OrderOption.RANDOM, os_cache=True,
            drop_last=True, pipelines=pipelines,
        )  # fmt: skip
        found[_rate(side)] = _images_per_s(lambda loader=loader: (images for images, _ in loader)) / cpus  # type: ignore[misc]
    return found


def photos_here(task: Task) -> list[str]:
    """The same photographs, found without the modules that made the links."""
    (folder,) = task.folder.glob(f"images-*-{_count(task)}")
    return [str(path) for path in sorted(folder.rglob("*.jpg"))]


def ours(format: str, task: Task, *, color: str = "") -> Values:
    from rawpack import Reader
    from rawpack.transforms import RandomHorizontalFlip, RandomResizedCrop

    transform, found = [RandomResizedCrop(CROP), RandomHorizontalFlip()], {}
    for side in SIDES:
        path = store(task, f"side-{side}{color}", format)
        batches = Reader(path).batches(_batch(task), shuffle=True, transform=transform, drop_last=True)
        found[_size(side)] = _gigabytes(path, len(Reader(path)))
        found[_rate(side)] = _images_per_s(lambda batches=batches: (batch["image"] for batch in batches)) / _cpus()  # type: ignore[misc]
        if color or side == SIDES[1]:
            continue
        bytes_per_s = NETWORK_BYTES_PER_S * _cpus()
        with served(task.folder, 0.001, bytes_per_s) as port, tempfile.TemporaryDirectory(dir=task.folder) as cache:
            reader = Reader(f"http://127.0.0.1:{port}/{path.name}", cache=cache)
            # All of them: a shard is fetched whole, whatever is read of it.
            far = reader.batches(64, shuffle="block", transform=transform)
            began = time.perf_counter()
            images = sum(len(batch["image"]) for batch in far)
            found[_network(side)] = images / (time.perf_counter() - began) / _cpus()
            del far
    return found


def _images_per_s(epoch: Callable[[], Iterable[Any]]) -> float:
    """The rate of a few epochs after a first one, which fills caches, starts workers and, in FFCV, compiles."""
    for _ in epoch():
        pass
    began, images = time.perf_counter(), 0
    while time.perf_counter() - began < 1:
        for batch in epoch():
            int(batch[:, ::97, ::97].sum())
            images += len(batch)
    return images / (time.perf_counter() - began)


def _batch(task: Task) -> int:
    return task.count(BATCH, 8)


def _cpus() -> int:
    return len(os.sched_getaffinity(0))


def _gigabytes(path: Path, images: int) -> float:
    return size_of(path) / images * IMAGENET / 1e9


def _rate(side: int) -> str:
    return f"images/s per CPU, {side} px"


def _network(side: int) -> str:
    return f"network disk, {side} px"


def _size(side: int) -> str:
    return f"GB, {side} px"


_SIZES = {RAW: (169.8, 371.2, 616.2), HALF: (58.4, 124.7, 202.0), JPEG: (22.0, 40.3, 65.5)}
MEMMAP, LMDB = "rawpack, memmap", "rawpack, lmdb"

PART = Part(
    number=6,
    name="ffcv_table",
    title="FFCV's table",
    unit=(
        "Random-resized crops of 224x224 and flips, in batches of 256: images/s per CPU, and the size of the whole of "
        "ImageNet in GB. The network disk delivers 9.5 MB/s per CPU."
    ),
    columns=(*map(_rate, SIDES), *(_network(side) for side in SIDES[::2]), *map(_size, SIDES)),
    prepare=prepare,
    methods=(
        *(
            Method(label, partial(by_ffcv, label), needs=("ffcv",), environment="ffcv", most_rounds=2)
            for label in (RAW, HALF, JPEG)
        ),
        *(
            Method(
                f"rawpack, {format}",
                partial(ours, format),
                needs=("aiohttp",),
                reads=tuple(f"side-{side}.{format}" for side in SIDES),
            )
            for format in ("memmap", "hdf5", "lmdb")
        ),
        Method("rawpack, memmap, planes", partial(ours, "memmap", color="-ycgco420")),
    ),
    published={
        (RAW, _rate(256)): round(172_801 / THEIR_CPUS),
        (JPEG, _rate(512)): round(31_278 / THEIR_CPUS),
        (RAW, _network(256)): round(6_870 / THEIR_CPUS, 1),
        (RAW, _network(512)): round(1_956 / THEIR_CPUS, 1),
        (JPEG, _network(512)): round(16_631 / THEIR_CPUS, 1),
        **{
            (label, _size(side)): size
            for label, sizes in _SIZES.items()
            for side, size in zip(SIDES, sizes, strict=True)
        },
    },
    relations=(
        Relation(
            "From memory, raw at 256 px outruns JPEG at 512",
            (RAW, _rate(256)),
            (JPEG, _rate(512)),
            theirs=172_801 / 31_278,
        ),
        Relation(
            "rawpack, next to FFCV's ratio: from memory, memmap at 256 px outruns lmdb at 512",
            (MEMMAP, _rate(256)),
            (LMDB, _rate(512)),
            theirs=172_801 / 31_278,
        ),
        Relation(
            "rawpack, next to FFCV's ratio: from a network disk, lmdb at 512 px outruns memmap at 256",
            (LMDB, _network(512)),
            (MEMMAP, _network(256)),
            theirs=16_631 / 6_870,
        ),
        Relation(
            "rawpack, next to FFCV's ratio: from a network disk, lmdb at 512 px outruns memmap at 512",
            (LMDB, _network(512)),
            (MEMMAP, _network(512)),
            theirs=16_631 / 1_956,
        ),
        *(
            Relation(
                f"Raw takes more disk than JPEG 90, {side} px",
                (RAW, _size(side)),
                (JPEG, _size(side)),
                theirs=raw / jpeg,
            )
            for side, raw, jpeg in zip(SIDES, _SIZES[RAW], _SIZES[JPEG], strict=True)
        ),
        Relation(
            "rawpack, next to FFCV's ratio: memmap takes more disk than lmdb, 256 px",
            (MEMMAP, _size(256)),
            (LMDB, _size(256)),
            theirs=169.8 / 22.0,
        ),
        Relation(
            "Half and half takes less than raw, 256 px", (HALF, _size(256)), (RAW, _size(256)), theirs=58.4 / 169.8
        ),
        *(
            Relation(f"rawpack: memmap against FFCV raw, {side} px", (MEMMAP, _rate(side)), (RAW, _rate(side)))
            for side in SIDES
        ),
        *(
            Relation(f"rawpack: lmdb against FFCV JPEG 90, {side} px", (LMDB, _rate(side)), (JPEG, _rate(side)))
            for side in SIDES
        ),
    ),
)
