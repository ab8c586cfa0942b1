#!/usr/bin/env python3
"""Measure ways of storing chroma at half the resolution, and of bringing it back: PSNR, and images/s of a core.

    scripts/measure_planes.py PHOTOS [--size 256]

Chroma is fitted, as `--color ycgco420` does it, or averaged over two by two pixels; it is brought back by linear
interpolation, or by repeating values. Planes of YCbCr, OpenCV's own conversion and JPEG files are measured too.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.errors import DecodeError
from rawpack.pixels.yuv420 import planes_of, to_rgb
from rawpack_packer.recipe.recipe import make_recipe
from rawpack_packer.samples.encoders import rgb_to_planes, to_jpeg
from rawpack_packer.samples.sample import prepare
from rawpack_packer.tune.loss import psnr

Bytes = NDArray[np.uint8]
_HEAD: tuple[str, ...] = ("stored", "brought back", "bytes", "PSNR: median", "lowest", "images/s")
_REPEATS, _TIMED = 5, 48


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("photos", type=Path, help="folder with image files")
    parser.add_argument("--size", default="256", help="as of rawpack pack [256]")
    asked = parser.parse_args()
    cv2.setNumThreads(1)
    images, recipe = [], make_recipe(size=asked.size)
    for path in sorted(path for path in asked.photos.rglob("*") if path.is_file()):
        try:
            images.append(prepare(path.read_bytes(), recipe).image)
        except DecodeError:
            continue
    rows: list[tuple[str, ...]] = [_HEAD, ("---",) * len(_HEAD)]
    for (stored, back), (encode, decode) in ways().items():
        rows.append((stored, back, *measure(images, encode, decode)))
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    print(
        f"\n{len(images):,} images at --size {asked.size}. images/s: of one core, its CPU time, the best of {_REPEATS}."
    )


Encode = Callable[[Bytes], Bytes]
Decode = Callable[[Bytes, Bytes], object]
"""Of stored bytes, into an array (H, W, 3)."""


def ways() -> dict[tuple[str, str], tuple[Encode, Decode]]:
    """What is stored and how it is brought back -> the functions that do it."""
    found: dict[tuple[str, str], tuple[Encode, Decode]] = {
        ("fitted", "triangle filter (rawpack)"): (
            rgb_to_planes,
            lambda stored, out: to_rgb(stored, _size(out), out=out),
        ),
        ("averaged", "triangle filter (rawpack)"): (averaged, lambda stored, out: to_rgb(stored, _size(out), out=out)),
        ("averaged, YCbCr", "OpenCV, linear"): (_to_ycbcr, partial(_from_ycbcr, how=cv2.INTER_LINEAR)),
        ("averaged, YCbCr", "OpenCV, repeated"): (_to_ycbcr, partial(_from_ycbcr, how=cv2.INTER_NEAREST)),
        ("OpenCV, YCbCr of limited range", "OpenCV, repeated"): (_to_i420, _from_i420),
    }
    for quality in ("90", "95"):
        recipe = make_recipe(format="lmdb", quality=quality)
        found[f"JPEG, quality {quality}", "decoded"] = (
            partial(to_jpeg, recipe=recipe),
            lambda stored, out: jpeg.decode_whole(stored, out=out),
        )
    return found


def measure(images: list[Bytes], encode: Encode, decode: Decode) -> tuple[str, ...]:
    """Bytes of an image, median and least PSNR in dB, and images per second of CPU time."""
    stored = [encode(image) for image in images]
    outs = [np.empty_like(image) for image in images[:_TIMED]]
    loss = []
    for image, data in zip(images, stored, strict=True):
        out = np.empty_like(image)
        decode(data, out)
        loss.append(psnr(image, out))
    best = float("inf")
    for _ in range(_REPEATS):
        began = time.process_time()
        for data, out in zip(stored, outs, strict=False):
            decode(data, out)
        best = min(best, (time.process_time() - began) / len(outs))
    return (
        f"{statistics.mean(len(data) for data in stored):,.0f}",
        f"{statistics.median(loss):.1f} dB", f"{min(loss):.1f} dB",
        format(float(format(1 / best, ".3g")), ",.0f"),
    )  # fmt: skip


def averaged(image: Bytes) -> Bytes:
    """The planes of `rgb_to_planes`, with each two by two pixels' mean as chroma. Of even sides."""
    height, width = _size(image)
    red, green, blue = np.moveaxis(_means(image), 2, 0)
    chroma = [(2 * green - red - blue) / 4 + 128, (red - blue) / 2 + 128]
    planes = [plane.round().clip(0, 255).astype(np.uint8) for plane in chroma]
    return np.concatenate([rgb_to_planes(image)[: height * width], *planes], axis=None)


def _to_ycbcr(image: Bytes) -> Bytes:
    """Planes of JFIF's YCbCr, with means as chroma."""
    ycrcb = cv2.cvtColor(image, cv2.COLOR_RGB2YCrCb)
    chroma = _means(ycrcb)[..., :0:-1].round().astype(np.uint8)
    return np.concatenate([ycrcb[..., 0], *np.moveaxis(chroma, 2, 0)], axis=None)


def _from_ycbcr(stored: Bytes, out: Bytes, how: int) -> None:
    luma, chroma = planes_of(stored, _size(out))
    blue, red = (cv2.resize(plane, luma.shape[::-1], interpolation=how) for plane in chroma)
    cv2.cvtColor(cv2.merge((luma, red, blue)), cv2.COLOR_YCrCb2RGB, dst=out)


def _means(image: NDArray[np.generic]) -> NDArray[np.float64]:
    """Of two by two pixels."""
    height, width, channels = image.shape
    return np.asarray(image.reshape(height // 2, 2, width // 2, 2, channels).mean(axis=(1, 3)), np.float64)


def _to_i420(image: Bytes) -> Bytes:
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2YUV_I420), np.uint8).reshape(-1)


def _from_i420(stored: Bytes, out: Bytes) -> None:
    cv2.cvtColor(stored.reshape(-1, out.shape[1]), cv2.COLOR_YUV2RGB_I420, dst=out)


def _size(image: Bytes) -> tuple[int, int]:
    return image.shape[0], image.shape[1]


if __name__ == "__main__":
    main()
