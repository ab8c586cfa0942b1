"""Photo-like images and the files they are saved in."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]


def picture(height: int, width: int, seed: int) -> Pixels:
    """Smooth colours with a little noise, as photographs have: (height, width, 3)."""
    random = np.random.default_rng(seed)
    coarse = random.integers(0, 256, (max(2, height // 16), max(2, width // 16), 3)).astype(np.uint8)
    smooth = np.asarray(Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC), np.float64)
    return (smooth + random.normal(0, 1.5, smooth.shape)).clip(0, 255).astype(np.uint8)


def save(path: Path, pixels: Pixels, **options: Any) -> Path:
    """Write an image file, its folders too; the type is that of the name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    if path.suffix.lower() in (".jpg", ".jpeg"):
        options = {"quality": 95} | options
    image.save(path, **options)
    return path


def encoded(pixels: Pixels, kind: str = "PNG", **options: Any) -> bytes:
    """The bytes of an image file."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, kind, **options)
    return file.getvalue()


def averaged(image: NDArray[Any], size: tuple[int, int]) -> NDArray[np.float64]:
    """An image (H, W, C), shrunk by exact averages: each pixel counts by the part of it that is covered."""

    def weights(old: int, new: int) -> NDArray[np.float64]:
        edges, pixel = np.arange(new + 1) * old / new, np.arange(old)
        overlap = np.minimum(edges[1:, None], pixel + 1) - np.maximum(edges[:-1, None], pixel)
        covered: NDArray[np.float64] = overlap.clip(0) * new / old
        return covered

    rows, columns = weights(image.shape[0], size[0]), weights(image.shape[1], size[1])
    made: NDArray[np.float64] = np.einsum("iy,yxc,jx->ijc", rows, image.astype(float), columns, optimize=True)
    return made


def linked(root: Path, count: int, size: tuple[int, int], *, of: int = 6, bad: Iterable[int] = ()) -> Path:
    """So many names of a few images, (height, width) each, in two classes by turns. bad: numbers of further files, in
    the second class, that are none."""
    firsts = [save(root / f"class {k % 2}" / f"{k:03d}.jpg", picture(*size, k)) for k in range(of)]
    for i in range(of, count):
        os.link(firsts[i % of], root / f"class {i % 2}" / f"{i:03d}.jpg")
    for i in bad:
        (root / "class 1" / f"{i:03d} bad.jpg").write_text("no image")
    return root


SIZES = ((60, 80), (131, 70), (48, 48), (70, 131), (97, 51))
"""Heights and widths of the images of `images`."""
