#!/usr/bin/env python3
"""Make a folder of photo-like JPEG files: ten classes, a sub-folder each, about 500x400 pixels, always the same.

    python make_photos.py FOLDER [--images 400]

A file costs as many bytes and as much decoding as a photograph's: smooth light, shapes with edges, fine texture.
Needs numpy and OpenCV.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import sys
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

CLASSES = ("apple", "bridge", "candle", "dune", "engine", "forest", "glacier", "harbour", "island", "jungle")
_QUALITY = 95


def main() -> None:
    parser = argparse.ArgumentParser(description="Make a folder of photo-like JPEG files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=400, help="how many in all [400]")
    asked = parser.parse_args()
    if asked.images < 1:
        parser.error("--images from 1 on")
    if asked.folder.exists():
        parser.error(f"{asked.folder} exists already; name a new folder")
    # Under another name until all are there: what carries the name is whole.
    partial = asked.folder.with_name(asked.folder.name + ".partial")
    make = functools.partial(write, partial)
    with multiprocessing.Pool() as pool:
        for path in pool.imap_unordered(make, range(asked.images), chunksize=8):
            if path:
                sys.exit(f"{path} cannot be written")
    partial.rename(asked.folder)
    print(f"{asked.images} images in {len(CLASSES)} classes made in {asked.folder}")


def write(folder: Path, number: int) -> str:
    """Write image `number`; the path of a file that could not be written, else ""."""
    folder = folder / CLASSES[number % len(CLASSES)]
    folder.mkdir(parents=True, exist_ok=True)
    path = str(folder / f"{folder.name}-{number // len(CLASSES):04d}.jpg")
    image = photo(np.random.default_rng([0, number]), number % len(CLASSES))
    return "" if cv2.imwrite(path, image, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY]) else path


def photo(random: np.random.Generator, kind: int) -> NDArray[np.uint8]:
    """One image, BGR (H, W, 3); `kind` gives its colors."""
    sides = int(random.integers(330, 421)), int(random.integers(440, 541))
    height, width = sides if random.random() < 0.8 else sides[::-1]
    tint = 80 + 40 * np.cos(2 * np.pi * kind / len(CLASSES) + np.arange(3) * 2.1)
    image = _clouds(random, height, width, 4, 3) * np.float32(90) + tint.astype(np.float32)
    for _ in range(int(random.integers(4, 10))):
        mask = np.zeros((height, width), np.uint8)
        center = int(random.integers(width)), int(random.integers(height))
        axes = int(random.integers(15, width // 3)), int(random.integers(15, height // 3))
        cv2.ellipse(mask, center, axes, float(random.integers(180)), 0, 360, 255, -1, cv2.LINE_AA)
        inside = mask > 127
        shade = _clouds(random, height, width, 6, 1)[inside] * np.float32(60)
        image[inside] = random.uniform(20, 235, 3).astype(np.float32) + shade
    # Finer and fainter, octave by octave, and stronger in some places than in others: as in photographs.
    texture = random.standard_normal((height, width, 1), np.float32) * np.float32(6)
    for cells, strength in ((24, 22), (64, 18), (160, 15)):
        texture += _clouds(random, height, width, cells, 1) * np.float32(strength)
    roughness = np.clip(_clouds(random, height, width, 5, 1) + np.float32(0.8), 0.05, 2)
    return np.asarray(np.clip(image + texture * roughness, 0, 255), np.uint8)


def _clouds(random: np.random.Generator, height: int, width: int, cells: int, channels: int) -> NDArray[np.float32]:
    """Smooth noise (H, W, channels), about -1 to 1, with so many bumps on the longer side."""
    grid = random.standard_normal((cells + 1, cells + 1, channels), np.float32) * np.float32(0.5)
    side = max(height, width)
    noise = np.asarray(cv2.resize(grid, (side, side), interpolation=cv2.INTER_CUBIC), np.float32)
    return noise.reshape(side, side, channels)[:height, :width]


if __name__ == "__main__":
    main()
