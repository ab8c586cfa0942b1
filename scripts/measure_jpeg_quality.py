#!/usr/bin/env python3
"""Compare JPEG by jpegli's tables with JPEG by the standard's at each quality: loss, bytes, and decoding time.

    python scripts/measure_jpeg_quality.py PHOTOS [--videos VIDEOS] [--solve] [--most 400]

Prints a row for each set of images and each quality: median PSNR of both and their difference, the share of the bytes,
and how many times as fast jpegli's files are decoded, in interleaved pairs of which the least time counts. --solve
prints the distance of equal median PSNR instead: `_DISTANCES` in packer/rawpack_packer/images/jpeg.py has these values.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import rawpack
from rawpack import Reader
from rawpack_packer.images import jpeg as tables
from rawpack_packer.recipe import Recipe, make_recipe
from rawpack_packer.samples import encoders

Images = list[NDArray[np.uint8]]
SETS: dict[str, dict[str, Any]] = {
    "256, 4:2:0": {"size": 256},
    "256, 4:2:2": {"size": 256, "subsampling": "422"},
    "256, 4:4:4": {"size": 256, "subsampling": "444"},
    "256, gray": {"size": 256, "color": "gray"},
    "64, 4:2:0": {"size": 64},
    "frames, 256": {"size": 256, "videos": True},
}
QUALITIES = (50, 60, 70, 75, 80, 85, 90, 93, 95, 97, 98, 100)
_ROUNDS, _STEPS = 5, 12


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare JPEG by jpegli's tables with JPEG by the standard's.")
    parser.add_argument("photos", type=Path)
    parser.add_argument("--videos", type=Path)
    parser.add_argument("--most", type=int, default=400, help="images of a set [400]")
    parser.add_argument("--solve", action="store_true")
    asked = parser.parse_args()
    for name, options in SETS.items():
        videos = options.pop("videos", False)
        source = asked.videos if videos else asked.photos
        if source is None:
            continue
        images = pixels(source, asked.most, **{key: options[key] for key in options.keys() - {"subsampling"}})
        for quality in QUALITIES:
            both = [
                make_recipe(format="lmdb", quality=quality, jpeg_tables=one, **options)
                for one in ("standard", "jpegli")
            ]
            if asked.solve:
                print(f"{name:12} q{quality:<4}distance {solved(images, both[0]):.3f}", flush=True)
            else:
                print(f"{name:12} q{quality:<4}" + "  ".join(compared(images, both)), flush=True)


def pixels(source: Path, most: int, **options: Any) -> Images:
    """Images of a source as a store has them, evenly spaced."""
    with tempfile.TemporaryDirectory() as folder:
        rawpack.pack(source, Path(folder, "store"), **options)
        reader = Reader(Path(folder, "store"))
        rows = np.arange(min(most, len(reader))) * len(reader) // min(most, len(reader))
        return [np.ascontiguousarray(reader[int(row)]["image"]) for row in rows]


def compared(images: Images, recipes: list[Recipe]) -> Iterator[str]:
    """The columns of a row."""
    files = [[encoders.to_jpeg(image, recipe) for image in images] for recipe in recipes]
    losses = [median_psnr(images, *each) for each in zip(files, recipes, strict=True)]
    yield f"{losses[0]:.2f} dB  {losses[1]:.2f} dB  {losses[1] - losses[0]:+.2f}"
    sizes = [np.mean([len(file) for file in some]) for some in files]
    yield f"{sizes[0]:,.0f} B  {sizes[1]:,.0f} B  {sizes[1] / sizes[0]:.3f}"
    least = np.full((2, len(images)), np.inf)
    for number in range(_ROUNDS):
        for k in range(len(images)):
            for which in (0, 1) if number % 2 else (1, 0):
                began = time.thread_time()
                encoders.from_jpeg(files[which][k], images[k].shape, recipes[which])
                least[which, k] = min(least[which, k], time.thread_time() - began)
    each = least.mean(axis=1) * 1e6
    yield f"{each[0]:.0f} us  {each[1]:.0f} us  {each[0] / each[1]:.2f}"


def solved(images: Images, recipe: Recipe) -> float:
    """The distance whose median PSNR is that of a recipe with the standard's tables."""
    wanted = median_psnr(images, [encoders.to_jpeg(image, recipe) for image in images], recipe)
    low, high = 0.005, 300.0
    for _ in range(_STEPS):
        middle = (low * high) ** 0.5
        sampling = recipe.subsampling or ""
        made = tables.tables_at(middle, sampling)
        files = [encoders.with_tables(image, made, sampling) for image in images]
        low, high = (middle, high) if median_psnr(images, files, recipe) > wanted else (low, middle)
    return float((low * high) ** 0.5)


def median_psnr(images: Images, files: Images, recipe: Recipe) -> float:
    decoded = (encoders.from_jpeg(file, image.shape, recipe) for image, file in zip(images, files, strict=True))
    return float(np.median([cv2.PSNR(image, other) for image, other in zip(images, decoded, strict=True)]))


if __name__ == "__main__":
    main()
