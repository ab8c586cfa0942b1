"""Crops the same area of an image from each candidate, so that a person can judge the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.report.page import picture
from rawpack_packer.samples.sample import prepare
from rawpack_packer.sources.view import View
from rawpack_packer.tune.plan.candidates import Candidate
from rawpack_packer.tune.plan.loss import as_read, psnr, ssim

SIDE = 160
"""Pixels of a crop."""
_IMAGES, _LOOKED_AT = 3, 24
Pixels = NDArray[np.uint8]


@dataclass(frozen=True)
class Crop:
    """One crop, as the page shows it."""

    name: str
    uri: str
    height: int
    width: int
    psnr_db: float | None = None
    """For the whole image; None for the raw pixels."""
    ssim: float | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class Strip:
    """Crops of one image: the raw pixels first."""

    key: str
    crops: tuple[Crop, ...]


def strips(sample: View, candidates: Sequence[Candidate]) -> list[Strip]:
    """Crops of the images that lose most, least, and in between, each where the lowest quality loses most.

    Shows the lossy candidates of the first size and color; empty if none is lossy.
    """
    lossy = [one for one in candidates if one.lossy]
    lossy = [one for one in lossy if one.group == lossy[0].group]
    if not lossy:
        return []
    lowest = min(lossy, key=lambda one: one.recipe.quality if isinstance(one.recipe.quality, int) else 100)
    found: list[tuple[float, int, Pixels]] = []
    for i in np.linspace(0, len(sample) - 1, min(_LOOKED_AT, len(sample))).astype(int).tolist():
        try:
            pixels = prepare(sample[i].image, lowest.raw_recipe).image
        except DecodeError:
            continue
        found.append((ssim(pixels, as_read(pixels, lowest.recipe)[0]), i, pixels))
    found.sort(key=lambda one: one[0])
    places = np.linspace(0, len(found) - 1, min(_IMAGES, len(found))).astype(int).tolist()
    return [_strip(sample.key(found[k][1]), found[k][2], lossy, lowest) for k in places]


def _strip(key: str, pixels: Pixels, lossy: Sequence[Candidate], lowest: Candidate) -> Strip:
    y, x = _worst_place(pixels, as_read(pixels, lowest.recipe)[0])

    def crop(name: str, image: Pixels, **values: float | int | None) -> Crop:
        part = np.ascontiguousarray(image[y : y + SIDE, x : x + SIDE])
        return Crop(name, picture(part), part.shape[0], part.shape[1], **values)  # type: ignore[arg-type]

    crops = [crop("raw", pixels, bytes=pixels.nbytes)]
    for one in lossy:
        read, size = as_read(pixels, one.recipe)
        crops.append(crop(one.name, read, psnr_db=psnr(pixels, read), ssim=ssim(pixels, read), bytes=size))
    return Strip(key, tuple(crops))


def _worst_place(image: Pixels, other: Pixels) -> tuple[int, int]:
    """Top and left of the crop with the largest squared error."""
    error = ((image.astype(np.float64) - other) ** 2).sum(axis=2)
    total = np.pad(error, ((1, 0), (1, 0))).cumsum(axis=0).cumsum(axis=1)
    h, w = min(SIDE, image.shape[0]), min(SIDE, image.shape[1])
    sums = total[h:, w:] - total[:-h, w:] - total[h:, :-w] + total[:-h, :-w]
    y, x = np.unravel_index(int(sums.argmax()), sums.shape)
    return int(y), int(x)
