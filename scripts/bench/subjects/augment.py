"""Bare loops of what transforms do: Albumentations' crops, OpenCV's resizing alone, rawpack's kernel alone, normalizing
in one loop of C, filling memory, and numpy on whole batches; and the calls of Python functions that a sample takes."""

from __future__ import annotations

import ctypes
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import data
from contract import Epoch, Pixels, Settings, Subject
from subjects.limits import TakeLoop
from subjects.stores import MEAN, STD, channels_of, side_of, steps
from systems.images import random_box, single_threaded

_BATCHES = 4
"""So many results lie in memory, as in a ring of slots: more than a cache holds."""
_SOURCE = """
void normalize(const unsigned char *image, float *out, long pixels, const float *scale, const float *shift) {
    for (long i = 0; i < pixels; i++)
        for (int c = 0; c < 3; c++) out[c * pixels + i] = image[3 * i + c] * scale[c] + shift[c];
}
"""


def albumentations(number: int, of: int, settings: Settings) -> Iterator[int]:
    """RandomResizedCrop with INTER_AREA and HorizontalFlip: see `Share`."""
    import albumentations as library
    import cv2

    single_threaded()
    side = side_of(settings)
    transform = library.Compose(
        [library.RandomResizedCrop(size=(side, side), interpolation=cv2.INTER_AREA), library.HorizontalFlip(p=0.5)]
    )
    rows, order = _shuffled(number, of, settings)
    out = np.ones((settings.batch, side, side, 3), np.uint8)
    yield 0
    while True:
        for k, row in enumerate(order):
            out[k % len(out)] = transform(image=rows[row])["image"]
            yield 1


def fused_normalize(number: int, of: int, settings: Settings) -> Iterator[int]:
    """uint8 (H, W, 3) to float32 (3, H, W), multiplied and shifted in one pass: see `Share`."""
    library = ctypes.CDLL(str(_library(settings)))
    height, width, _ = settings.shape
    rows, order = _shuffled(number, of, settings)
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


def resize(number: int, of: int, settings: Settings) -> Iterator[int]:
    """`cv2.resize` alone, bilinear, of crops that were drawn before: see `Share`."""
    import cv2

    single_threaded()
    side = side_of(settings)
    rows, order = _shuffled(number, of, settings)
    crops = []
    for row in order:
        top, left, height, width = random_box(*settings.shape[:2])
        crops.append(rows[row, top : top + height, left : left + width])
    out = np.ones((settings.batch, side, side, 3), np.uint8)
    yield 0
    while True:
        for k, crop in enumerate(crops):
            cv2.resize(crop, (side, side), out[k % len(out)])
            yield 1


def kernel(number: int, of: int, settings: Settings) -> Iterator[int]:
    """rawpack's own kernel in C, a call a batch: crops and flips that were drawn before, of shuffled rows of a warm
    mapped file, to float32 (3, side, side), normalized: see `Share`."""
    from rawpack.native.calls import IMAGE, resample

    side = side_of(settings)
    height, width, channels = settings.shape
    rows, order = _shuffled(number, of, settings)
    # One byte of every page: afterwards the whole file is in this process's page table.
    int(rows.reshape(-1)[::4096].sum())
    images = np.zeros(len(order), IMAGE)
    first = rows.ctypes.data
    images["pixels"] = first + np.array(order, np.uintp) * np.uintp(rows[0].nbytes)
    images["end"], images["stride"] = first + rows.nbytes, width * channels
    images["height"], images["width"], images["scaled"] = height, width, side
    images["box"] = [random_box(height, width) for _ in order]
    images["flips"] = np.random.default_rng(number).integers(2, size=len(order))
    mean, std = (np.array(one) for one in channels_of(settings))
    lines = np.ascontiguousarray(np.stack([1 / 255 / std, -mean / std], axis=1))
    tables = np.ascontiguousarray(np.arange(256) * lines[:, :1] + lines[:, 1:], np.float32)
    batch = min(settings.batch, len(order))
    out = np.ones((_BATCHES, batch, channels, side, side), np.float32)
    yield 0
    while True:
        for k, start in enumerate(range(0, len(order) - batch + 1, batch)):
            resample(images[start : start + batch], out[k % _BATCHES], planar=True, tables=tables, lines=lines)
            yield batch


def fill(number: int, of: int, settings: Settings) -> Iterator[int]:
    """Memory for float32 (3, H, W), filled with a value: see `Share`."""
    out = np.ones((settings.batch * _BATCHES // of, 3, *settings.shape[:2]), np.float32)
    yield 0
    while True:
        for image in out:
            image.fill(0.5)
            yield 1


class Calls(Subject):
    """Calls of Python functions for a sample that is cropped, flipped and normalized, in the process that makes it."""

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "memmap")

    def open(self, settings: Settings) -> None:
        self.settings = settings

    def epoch(self, n: int) -> Epoch:
        import calls
        from rawpack.transforms import Normalize

        transform = [*(steps("bilinear crops", self.settings) or ()), Normalize(*channels_of(self.settings))]
        line = calls.Line("", "memmap", self.settings.shape[0], "sample", None, lambda: transform)
        began = time.perf_counter()
        self.calls = calls.count(line, self.settings, quick=False)["calls"]
        return Epoch(self.settings.batch, time.perf_counter() - began)


def _shuffled(number: int, of: int, settings: Settings) -> tuple[Pixels, list[int]]:
    """All rows, mapped, and the numbers of this process's."""
    rows = np.load(data.array_path(settings), mmap_mode="r")
    return rows, np.random.default_rng(number).permutation(len(rows))[number::of].tolist()


def build(settings: Settings) -> None:
    """The rows, and the loop compiled for this machine, unless they are there."""
    data.make_array(settings)
    library = _library(settings)
    if not library.exists():
        source = library.with_suffix(".c")
        source.write_text(_SOURCE)
        subprocess.run(["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source], check=True)


def _library(settings: Settings) -> Path:
    return settings.folder / "normalize.so"


class NumpyBatch(TakeLoop):
    """A few calls of numpy for all images of a batch: flips, mean and deviation, channels first."""

    def _batches(self, n: int) -> Iterator[Pixels]:
        random = np.random.default_rng(n)
        mean, std = (np.array(one, np.float32) for one in channels_of(self.settings))
        scale, shift = np.float32(1 / 255) / std, -mean / std
        if len(scale) == 1:
            scale, shift = scale[0], shift[0]
        for chosen in self._rows(random):
            images = self._flat.take(chosen, axis=0).reshape(-1, *self.settings.shape)
            flipped = random.random(len(images)) < 0.5
            images[flipped] = images[flipped, :, ::-1]
            made = images * scale
            made += shift
            planes = np.ascontiguousarray(made.transpose(0, 3, 1, 2))
            yield planes.view("uint8").transpose(0, 2, 3, 1)
