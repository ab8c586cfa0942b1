"""The bare limit of packing: processes that read, decode, resize, crop, encode and write, and nothing else."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import numpy as np

from contract import Epoch, Pixels, Settings


class BarePack:
    """Each process does every n-th file and writes one file of its own; their start is part of the time."""

    needs: tuple[str, ...] = ("cv2", "simplejpeg")

    def __init__(self, *, jpeg: bool) -> None:
        self._jpeg = jpeg

    def prepare(self, settings: Settings) -> None: ...

    def open(self, settings: Settings) -> None:
        self._settings = settings

    def epoch(self, n: int) -> Epoch:
        settings, of = self._settings, self._settings.workers or 1
        began = time.perf_counter()
        files = sorted(str(path) for path in Path(settings.images).rglob("*.jpg"))
        outputs = [settings.folder / f"bare-{number}" for number in range(of)]
        context = multiprocessing.get_context("spawn")
        team = [
            context.Process(target=pack, args=(files[k::of], str(outputs[k]), settings.shape[:2], self._jpeg))
            for k in range(of)
        ]
        for process in team:
            process.start()
        for process in team:
            process.join()
        took = time.perf_counter() - began
        if any(process.exitcode for process in team):
            raise RuntimeError("a bare packing process failed")
        for output in outputs:
            output.unlink()
        return Epoch(len(files), took)


def pack(files: list[str], output: str, size: tuple[int, int], jpeg: bool) -> None:
    """Bring each file to `size` (height, width) and append it to the output, as pixels or as a JPEG file."""
    import cv2

    cv2.setNumThreads(1)
    with open(output, "wb", buffering=1 << 20) as out:
        for file in files:
            image = bring(file, size)
            out.write((encode(image) if jpeg else image).data)


def bring(file: str, size: tuple[int, int]) -> Pixels:
    """The file's image, scaled to cover `size` (height, width), its centre cut out: RGB (height, width, 3)."""
    import cv2
    import simplejpeg

    height, width = size
    with open(file, "rb") as source:
        image = simplejpeg.decode_jpeg(source.read(), "RGB")
    scale = max(height / image.shape[0], width / image.shape[1])
    scaled = max(width, round(image.shape[1] * scale)), max(height, round(image.shape[0] * scale))
    shrinks = scale < 1
    image = cv2.resize(image, scaled, interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR)
    top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return np.ascontiguousarray(image[top : top + height, left : left + width])


def encode(image: Pixels) -> Pixels:
    """A JPEG file (n,) of RGB pixels, as rawpack makes it by default."""
    import cv2

    options = [
        cv2.IMWRITE_JPEG_QUALITY, 90,
        cv2.IMWRITE_JPEG_RST_INTERVAL, -(-image.shape[1] // 16),
        cv2.IMWRITE_JPEG_SAMPLING_FACTOR, cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    ]  # fmt: skip
    encoded: Pixels = cv2.imencode(".jpg", cv2.cvtColor(image, cv2.COLOR_RGB2BGR), options)[1]
    return encoded
