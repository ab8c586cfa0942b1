"""What the adapters share: the images to pack, and decoding and cropping for systems that have none of their own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from job import Job

Pixels = NDArray[np.uint8]
SIDE = 224
"""Pixels per side of a raw image, and of every image that is delivered."""
JPEG_SIDE = 256
"""Pixels per side of a JPEG file in a store."""
QUALITY = 90
_AREA, _ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
_SLICE = 16


class Source:
    """The photographs in order: sample i is made from file i."""

    def __init__(self, images: str | Path) -> None:
        self.files = sorted(str(path) for path in Path(images).rglob("*.jpg"))

    def __len__(self) -> int:
        return len(self.files)

    def image(self, i: int, side: int) -> Pixels:
        """The file's image, scaled to cover `side` pixels and cropped at the center as torchvision does it: RGB."""
        import cv2
        import simplejpeg

        single_threaded()
        image = simplejpeg.decode_jpeg(Path(self.files[i]).read_bytes(), "RGB")
        height, width = image.shape[:2]
        short = min(height, width)
        scaled = max(side, width * side // short), max(side, height * side // short)
        how = cv2.INTER_AREA if side < short else cv2.INTER_LINEAR
        image = cv2.resize(image, scaled, interpolation=how)
        top, left = (round((n - side) / 2) for n in image.shape[:2])
        return np.ascontiguousarray(image[top : top + side, left : left + side])

    def sample(self, i: int, kind: str) -> Any:
        """What is stored for file i: pixels (224, 224, 3), or the bytes of a JPEG file."""
        if kind == "raw":
            return self.image(i, SIDE)
        import cv2

        options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420]
        image = cv2.cvtColor(self.image(i, JPEG_SIDE), cv2.COLOR_RGB2BGR)
        return cv2.imencode(".jpg", image, options)[1].tobytes()

    def samples(self, job: Job) -> Iterator[tuple[int, Any]]:
        """(i, sample) in order, made by `job.workers` processes: for systems whose writer has none of its own."""
        context = multiprocessing.get_context("spawn")
        with context.Pool(job.workers, _start, (job.images, job.kind)) as pool:
            yield from enumerate(pool.imap(_make, range(len(self)), chunksize=_SLICE))


_made: tuple[Source, str]
"""What a process of the pool works on."""


def _start(images: str, kind: str) -> None:
    global _made
    single_threaded()
    _made = Source(images), kind


def _make(i: int) -> Any:
    return _made[0].sample(i, _made[1])


@cache
def single_threaded() -> None:
    """Keep OpenCV from starting threads: each system has its own workers."""
    import cv2

    cv2.setNumThreads(1)


def decoded(data: bytes, crop: str) -> Pixels:
    """A JPEG file as an image of 224 x 224: its center, or a random-resized-crop that may be flipped."""
    import simplejpeg

    return cropped(simplejpeg.decode_jpeg(data, "RGB"), crop)


def cropped(image: Pixels, crop: str) -> Pixels:
    """The center, or a random-resized-crop that may be flipped, as a contiguous image of 224 x 224."""
    if crop == "centre":
        top, left = (image.shape[0] - SIDE) // 2, (image.shape[1] - SIDE) // 2
        return np.ascontiguousarray(image[top : top + SIDE, left : left + SIDE])
    import cv2

    single_threaded()
    top, left, height, width = random_box(*image.shape[:2])
    box = image[top : top + height, left : left + width]
    sized = cv2.resize(box, (SIDE, SIDE), interpolation=cv2.INTER_AREA)
    return cv2.flip(sized, 1) if np.random.random() < 0.5 else sized  # type: ignore[return-value]


def random_box(height: int, width: int) -> tuple[int, int, int, int]:
    """Top, left, height and width of a crop, drawn as by torchvision's RandomResizedCrop."""
    for _ in range(10):
        area = height * width * np.random.uniform(*_AREA)
        aspect = float(np.exp(np.random.uniform(*np.log(_ASPECT))))
        w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            return np.random.randint(height - h + 1), np.random.randint(width - w + 1), h, w
    return 0, 0, height, width
