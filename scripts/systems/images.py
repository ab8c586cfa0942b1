"""What the adapters share: the images to pack, and decoding and cropping for systems that have none of their own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from systems.job import Job

Pixels = NDArray[np.uint8]
QUALITY = 90
_AREA, _ASPECT = (0.08, 1.0), (3 / 4, 4 / 3)
_SLICE = 16


class Source:
    """The images of a job in order: sample i is made from file i."""

    def __init__(self, job: Job) -> None:
        self.files = image_files(job.images)
        self.kind, self.shape, self._workers = job.kind, job.shape, max(1, job.workers)

    def __len__(self) -> int:
        return len(self.files)

    def image(self, i: int) -> Pixels:
        """The pixels of sample i: (height, width, channels)."""
        return fitted(self.files[i], self.shape)

    def sample(self, i: int) -> Any:
        """What is stored for file i: pixels (height, width, channels), or the bytes of a JPEG file."""
        return self.image(i) if self.kind == "raw" else encoded(self.image(i)).tobytes()

    def samples(self) -> Iterator[tuple[int, Any]]:
        """(i, sample) in order, made by the job's number of processes: for systems whose writer has none of its own."""
        with multiprocessing.get_context("spawn").Pool(self._workers, _start, (self,)) as pool:
            yield from enumerate(pool.imap(_make, range(len(self)), chunksize=_SLICE))


_made: Source
"""What a process of the pool works on."""


def _start(source: Source) -> None:
    global _made
    _made = source


def _make(i: int) -> Any:
    return _made.sample(i)


def image_files(folder: str | Path) -> list[str]:
    """The JPEG files below a folder; the PNG files if there are none."""
    return sorted(map(str, Path(folder).rglob("*.jpg"))) or sorted(map(str, Path(folder).rglob("*.png")))


def fitted(file: str, shape: tuple[int, int, int]) -> Pixels:
    """The file's image of that shape, see `fit`: RGB or gray."""
    import cv2

    single_threaded()
    height, width, channels = shape
    if channels == 1:
        image: Any = cv2.imread(file, cv2.IMREAD_GRAYSCALE)
    else:
        import simplejpeg

        image = simplejpeg.decode_jpeg(Path(file).read_bytes(), "RGB")
    return fit(image, height, width).reshape(shape)


def fit(image: Any, height: int, width: int) -> Pixels:
    """An image scaled to cover that size and cropped at the center as torchvision does it."""
    import cv2

    scale = max(height / image.shape[0], width / image.shape[1])
    scaled = max(width, int(image.shape[1] * scale + 1e-6)), max(height, int(image.shape[0] * scale + 1e-6))
    if scaled != (image.shape[1], image.shape[0]):
        image = cv2.resize(image, scaled, interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR)
    top, left = round((image.shape[0] - height) / 2), round((image.shape[1] - width) / 2)
    return np.ascontiguousarray(image[top : top + height, left : left + width])


def encoded(image: Pixels, *, restarts: bool = False) -> Pixels:
    """A JPEG file (n,) of RGB pixels; with a restart marker after each row of blocks, as rawpack has it."""
    import cv2

    options = [cv2.IMWRITE_JPEG_QUALITY, QUALITY]
    options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420]
    options += [cv2.IMWRITE_JPEG_RST_INTERVAL, -(-image.shape[1] // 16)] * restarts
    found: Pixels = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)[1]
    return found


@cache
def single_threaded() -> None:
    """Keep OpenCV from starting threads: each system has its own workers."""
    import cv2

    cv2.setNumThreads(1)


def decoded(data: bytes, job: Job) -> Pixels:
    """A JPEG file as an image of the job's side: its center, or a random-resized-crop that may be flipped."""
    import simplejpeg

    return cropped(simplejpeg.decode_jpeg(data, "RGB"), job.side, job.crop)


def cropped(image: Pixels, side: int, crop: str, random: Any = np.random) -> Pixels:
    """The center, or a random-resized-crop that may be flipped, as a contiguous image of that side. random: what draws
    it: numpy's global generator, or a `RandomState`."""
    if crop == "centre":
        top, left = (image.shape[0] - side) // 2, (image.shape[1] - side) // 2
        return np.ascontiguousarray(image[top : top + side, left : left + side])
    import cv2

    single_threaded()
    top, left, height, width = random_box(image.shape[0], image.shape[1], random)
    box = image[top : top + height, left : left + width]
    sized = cv2.resize(box, (side, side), interpolation=cv2.INTER_AREA)
    return cv2.flip(sized, 1) if random.random() < 0.5 else sized  # type: ignore[return-value]


def random_box(height: int, width: int, random: Any = np.random) -> tuple[int, int, int, int]:
    """Top, left, height and width of a crop, drawn as by torchvision's RandomResizedCrop."""
    for _ in range(10):
        area = height * width * random.uniform(*_AREA)
        aspect = float(np.exp(random.uniform(*np.log(_ASPECT))))
        w, h = round((area * aspect) ** 0.5), round((area / aspect) ** 0.5)
        if 0 < w <= width and 0 < h <= height:
            return random.randint(height - h + 1), random.randint(width - w + 1), h, w
    return 0, 0, height, width
