"""Encoders of images and masks, and their inverses. See `recipe.tables.Encoder`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.errors import DecodeError
from rawpack.jpeg import restart_interval
from rawpack.pixels import png
from rawpack_packer.images import yuv420
from rawpack_packer.images.jpeg_tables import jpegli_tables
from rawpack_packer.recipe.recipe import KEPT_QUALITY, Recipe

_SAMPLING = {
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}
_PILLOW_SAMPLING = {"444": 0, "422": 1, "420": 2}
_MAX_JPEG_SIDE = 65_500


def as_is(image: NDArray[Any], recipe: Recipe) -> NDArray[Any]:
    """The values, in C order."""
    return np.ascontiguousarray(image)


def to_jpeg(image: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.uint8]:
    """An image (H, W, C) as a baseline JPEG file (n,), with a restart marker after each row of blocks."""
    height, width, channels = image.shape
    if max(height, width) > _MAX_JPEG_SIDE:
        raise DecodeError("too_large", f"{width}x{height} pixels; a JPEG has at most {_MAX_JPEG_SIDE} a side")
    quality = int(recipe.quality) if recipe.quality not in (None, "keep") else KEPT_QUALITY
    sampling = recipe.subsampling or "444"
    if recipe.jpeg_tables:
        return _with_tables(image, jpegli_tables(quality, sampling), sampling)
    options = [
        cv2.IMWRITE_JPEG_QUALITY, quality,
        cv2.IMWRITE_JPEG_RST_INTERVAL, restart_interval(width, sampling),
    ]  # fmt: skip
    if channels == 3:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLING[sampling]]
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if channels == 3 else image
    done, encoded = cv2.imencode(".jpg", bgr, options)
    if not done:
        raise DecodeError("unsupported", f"OpenCV could not encode {width}x{height} pixels")
    return np.asarray(encoded, np.uint8).reshape(-1)


def _with_tables(image: NDArray[np.uint8], tables: Sequence[list[int]], sampling: str) -> NDArray[np.uint8]:
    """The same with these quantization tables, by Pillow: OpenCV's encoder takes none."""
    from PIL import Image

    file, gray = io.BytesIO(), image.shape[2] == 1
    options = {} if gray else {"subsampling": _PILLOW_SAMPLING[sampling]}
    Image.fromarray(image[..., 0] if gray else image).save(
        file, "JPEG", qtables=tables[:1] if gray else tables, restart_marker_rows=1, **options
    )
    return np.frombuffer(file.getvalue(), np.uint8)


def from_jpeg(stored: NDArray[np.uint8], shape: tuple[int, ...], recipe: Recipe) -> NDArray[np.uint8]:
    """The pixels (H, W, C) of a JPEG file (n,)."""
    return jpeg.decoder().decode(stored, color=recipe.pixels)


def jpeg_libraries() -> dict[str, str]:
    """The version of the JPEG encoder."""
    return {"encoder": f"opencv {cv2.__version__}"}


def to_png(mask: NDArray[Any], recipe: Recipe) -> NDArray[np.uint8]:
    """A mask (H, W, C) as a PNG file (n,)."""
    return png.encode(np.ascontiguousarray(mask))


def to_planes(image: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.uint8]:
    """An image (H, W, 3) as planes (n,) of YCgCo 4:2:0."""
    return yuv420.from_rgb(image)


def from_planes(stored: NDArray[np.uint8], shape: tuple[int, ...], recipe: Recipe) -> NDArray[np.uint8]:
    """The pixels (H, W, 3) of planes (n,)."""
    from rawpack.pixels.yuv420 import to_rgb

    return to_rgb(stored, (shape[0], shape[1]))


def planes_libraries() -> dict[str, str]:
    """The version of the conversion to planes."""
    return {"encoder": f"rawpack.yuv420 {yuv420.VERSION}"}
