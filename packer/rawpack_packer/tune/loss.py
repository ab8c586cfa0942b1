"""What JPEG or reduced chroma loses of an image: PSNR, SSIM, and crops for a person to judge."""

from __future__ import annotations

import contextlib
import math
import statistics
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.tables import resolve
from rawpack.errors import DecodeError
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.recipe.tables import encoder_of
from rawpack_packer.samples.sample import encoded, prepare
from rawpack_packer.sources.table.table import Table
from rawpack_packer.tune.candidates import Candidate

Pixels = NDArray[np.uint8]
SIDE = 160
"""Pixels of a crop."""
_COMPARED, _SHOWN = 24, 3
"""Images by which loss is measured, and those of which crops are kept."""
_SIGMA, _WINDOW = 1.5, (11, 11)
_C1, _C2 = (0.01 * 255) ** 2, (0.03 * 255) ** 2


@dataclass(frozen=True)
class Loss:
    """What is lost compared to the same pixels stored raw."""

    psnr_db: float
    ssim: float


@dataclass(frozen=True)
class Crop:
    """A part of an image, as it is read from one candidate."""

    name: str
    pixels: Pixels
    bytes: int
    """Of the whole image in the store."""
    loss: Loss | None = None
    """Of the whole image; None for the raw pixels."""


@dataclass(frozen=True)
class Strip:
    """Crops of one image, the raw pixels first."""

    key: str
    crops: tuple[Crop, ...]


def compare(
    sample: Table, candidates: Sequence[Candidate], seconds: float, bad: Collection[int] = ()
) -> tuple[dict[str, Loss], list[Strip]]:
    """What candidates lose: means over some images of the sample, further ones too, without those that lose nothing;
    and crops of the images that lose most, least, and in between, each where the lowest quality loses most.

    The crops are of the candidates of the first size and color that lose anything. seconds: after this time no further
    image is compared, but always three. bad: samples that are left out, because they could not be packed.
    """
    lossy = [one for one in candidates if one.lossy]
    if not lossy:
        return {}, []
    shown = [one for one in lossy if one.group == lossy[0].group]
    lowest = min(shown, key=lambda one: one.recipe.quality if isinstance(one.recipe.quality, int) else 100)
    groups = {one.group: one.raw_recipe for one in lossy}
    losses: dict[str, list[Loss]] = {one.name: [] for one in lossy}
    strips, began = list[tuple[float, Strip]](), time.monotonic()
    numbers = np.linspace(0, len(sample) - 1, min(_COMPARED, len(sample))).astype(int)
    shuffled = np.random.default_rng(0).permutation(numbers).tolist()
    for key, name, channels, data in _pictures(sample, (i for i in shuffled if i not in bad)):
        if len(strips) >= _SHOWN and time.monotonic() - began > seconds:
            break
        try:
            pixels = {group: prepare(data, recipe.of(name, channels)).image for group, recipe in groups.items()}
        except DecodeError:
            continue
        read = {one.name: as_read(pixels[one.group], one.recipe.of(name, channels)) for one in lossy}
        found = {one.name: _loss(pixels[one.group], read[one.name][0]) for one in lossy}
        for candidate, loss in found.items():
            if math.isfinite(loss.psnr_db):  # a gray picture has no color to lose
                losses[candidate].append(loss)
        raw = pixels[lowest.group]
        part = _worst_part(raw, read[lowest.name][0])
        crops = [Crop(one.name, read[one.name][0][part].copy(), read[one.name][1], found[one.name]) for one in shown]
        strips.append((found[lowest.name].ssim, Strip(key, (Crop("raw", raw[part].copy(), raw.nbytes), *crops))))
    strips.sort(key=lambda one: one[0])
    places = np.linspace(0, len(strips) - 1, min(_SHOWN, len(strips))).astype(int).tolist()
    return {name: _mean(values) for name, values in losses.items() if values}, [strips[k][1] for k in places]


def _pictures(sample: Table, rows: Iterable[int]) -> Iterator[tuple[str, str, int | None, Any]]:
    """The pictures of these samples, of several of a sample each: what it is called, its field, how many channels of it
    are stored, None for those of the recipe, and its file."""
    further = {name: kind.shape[2] for name, kind in sample.info.fields.items() if kind.image == "picture"}
    for i in rows:
        with contextlib.suppress(DecodeError):
            item = sample[i]
            yield sample.key(i) + (f": {IMAGE}" if further else ""), IMAGE, None, item.image
            for name, channels in further.items():
                yield f"{sample.key(i)}: {name}", name, channels, item.fields[name]


def as_read(image: Pixels, recipe: Recipe) -> tuple[Pixels, int]:
    """An image (H, W, C) as it is read back from a store made by `recipe`, and the bytes it takes there."""
    stored = encoded(image, recipe.encoding, recipe, [])
    decode = encoder_of(recipe.encoding).decode
    return resolve(decode)(stored, image.shape, recipe) if decode else image, stored.nbytes


def psnr(image: Pixels, other: Pixels) -> float:
    """Peak signal-to-noise ratio in dB over all channels of two images (H, W, C); infinite where they are equal."""
    error = float(np.mean((image.astype(np.float64) - other) ** 2))
    return math.inf if error == 0 else 10 * math.log10(255**2 / error)


def ssim(image: Pixels, other: Pixels) -> float:
    """Structural similarity of the luma of two images (H, W, C), 1.0 where they are equal.

    As Wang, Bovik, Sheikh and Simoncelli (2004) define it: a Gaussian window of 11 x 11 with sigma 1.5, the mean over
    all places where it is inside the image; over the whole image where that is smaller than the window.
    """
    x, y = _luma(image), _luma(other)
    mean_x, mean_y = _blurred(x), _blurred(y)
    var_x, var_y = _blurred(x * x) - mean_x**2, _blurred(y * y) - mean_y**2
    both = _blurred(x * y) - mean_x * mean_y
    index = ((2 * mean_x * mean_y + _C1) * (2 * both + _C2)) / ((mean_x**2 + mean_y**2 + _C1) * (var_x + var_y + _C2))
    inside = index[5:-5, 5:-5]
    return float((inside if inside.size else index).mean())


def _loss(image: Pixels, other: Pixels) -> Loss:
    return Loss(psnr(image, other), ssim(image, other))


def _mean(losses: Sequence[Loss]) -> Loss:
    return Loss(statistics.mean(one.psnr_db for one in losses), statistics.mean(one.ssim for one in losses))


def _worst_part(image: Pixels, other: Pixels) -> tuple[slice, slice]:
    """The rows and columns of the crop with the largest squared error."""
    h, w = min(SIDE, image.shape[0]), min(SIDE, image.shape[1])
    total = cv2.integral(((image.astype(np.float64) - other) ** 2).sum(axis=2))
    sums = total[h:, w:] - total[:-h, w:] - total[h:, :-w] + total[:-h, :-w]
    y, x = np.unravel_index(int(sums.argmax()), sums.shape)
    return slice(int(y), int(y) + h), slice(int(x), int(x) + w)


def _luma(image: Pixels) -> NDArray[np.float64]:
    weights = np.array([0.299, 0.587, 0.114]) if image.shape[2] == 3 else np.ones(1)
    luma: NDArray[np.float64] = image.astype(np.float64) @ weights
    return luma


def _blurred(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(cv2.GaussianBlur(values, _WINDOW, _SIGMA, borderType=cv2.BORDER_REFLECT_101), np.float64)
