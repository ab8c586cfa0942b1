"""Bare loops over raw rows in memory: Albumentations' crops and flips, and normalising in one fused loop of C."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import data
from contract import Epoch, Settings
from subjects.rawpack_augment import MEAN, STD, side_of
from subjects.team import Share, WorkerSet

_BATCHES = 4
"""So many results lie in memory, as in a ring of slots: more than a cache holds."""
_SOURCE = """
void normalize(const unsigned char *image, float *out, long pixels, const float *scale, const float *shift) {
    for (long i = 0; i < pixels; i++)
        for (int c = 0; c < 3; c++) out[c * pixels + i] = image[3 * i + c] * scale[c] + shift[c];
}
"""


class BareAugment:
    """A team of processes, each at its share of the rows."""

    def __init__(self, share: Share, needs: tuple[str, ...]) -> None:
        self._share, self.needs = share, needs

    def prepare(self, settings: Settings) -> None:
        data.make_array(settings)
        if self._share is fused_normalize:
            build(settings)

    def open(self, settings: Settings) -> None:
        self._seconds = settings.seconds
        self._team = WorkerSet(settings.workers or 1, self._share, settings)

    def epoch(self, n: int) -> Epoch:
        return self._team.run(self._seconds)


def albumentations(number: int, of: int, settings: Settings) -> Iterator[int]:
    """RandomResizedCrop with INTER_AREA and HorizontalFlip: see `Share`."""
    import albumentations as library
    import cv2

    cv2.setNumThreads(1)
    side = side_of(settings)
    transform = library.Compose(
        [library.RandomResizedCrop(size=(side, side), interpolation=cv2.INTER_AREA), library.HorizontalFlip(p=0.5)]
    )
    rows = np.load(data.array_path(settings), mmap_mode="r")
    order = np.random.default_rng(number).permutation(len(rows))[number::of].tolist()
    out = np.ones((settings.batch, side, side, 3), np.uint8)
    yield 0
    while True:
        for k, row in enumerate(order):
            out[k % len(out)] = transform(image=rows[row])["image"]
            yield 1


def fused_normalize(number: int, of: int, settings: Settings) -> Iterator[int]:
    """uint8 (H, W, 3) to float32 (3, H, W), multiplied and shifted in one pass: see `Share`."""
    library = ctypes.CDLL(str(build(settings)))
    height, width, _ = settings.shape
    rows = np.load(data.array_path(settings), mmap_mode="r")
    order = np.random.default_rng(number).permutation(len(rows))[number::of].tolist()
    out = np.ones((settings.batch * _BATCHES // of, 3, height, width), np.float32)
    scale = np.array([1 / 255 / s for s in STD], np.float32)
    shift = np.array([-m / s for m, s in zip(MEAN, STD, strict=True)], np.float32)
    pointers = [ctypes.c_void_p(one.ctypes.data) for one in (scale, shift)]
    pixels, done = ctypes.c_long(height * width), 0
    yield 0
    while True:
        for row in order:
            image, target = rows[row], out[done % len(out)]
            library.normalize(
                ctypes.c_void_p(image.ctypes.data), ctypes.c_void_p(target.ctypes.data), pixels, *pointers
            )
            done += 1
            yield 1


def build(settings: Settings) -> Path:
    """The loop, compiled for this machine, unless it is there."""
    library = settings.folder / "normalize.so"
    if not library.exists():
        source = library.with_suffix(".c")
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source], check=True)
    return library
