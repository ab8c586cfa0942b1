"""Photo-like images and the files they are saved in."""

from __future__ import annotations

import io
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


SIZES = ((60, 80), (131, 70), (48, 48), (70, 131), (97, 51))
"""Heights and widths of the images of `images`."""
