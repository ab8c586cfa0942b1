"""Encoders of images and masks, and their inverses. See `recipe.tables.Encoder`."""

from __future__ import annotations

import io
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.errors import DecodeError
from rawpack.formats.codecs import zstd
from rawpack.pixels import bands, png
from rawpack.pixels.geometry import planar_bytes
from rawpack.pixels.yuv420 import to_rgb
from rawpack_packer.images.jpeg import jpegli_tables
from rawpack_packer.recipe import KEPT_QUALITY, Recipe

_SAMPLING = {
    "420": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "422": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "440": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "444": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}
_PILLOW_SAMPLING = {"444": 0, "422": 1, "420": 2}
_MAX_JPEG_SIDE = 65_500
_HEADERS, _MOST_BYTES = 4096, 2
"""More bytes of a file than its tables take, and more than one of its values takes: noise at quality 100 has 1.1."""

PLANES_VERSION = 2
"""Recorded in stores. To be increased when any byte of a result changes."""
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
_SPARE = 6
"""Fractional bits that chroma keeps until it is fitted."""
_FIT_BITS = 14
_FIT = (10934, -3641, 1214, -405, 135, -45)
"""The least-squares fit on one axis, in 16384ths: value k is the sum of _FIT[j] times pixels 2k - 2j and 2k + 1 + 2j.

The exact series is 2/3 (-1/3)^j, the inverse of the triangle filter's product with itself. The first value here is
adjusted so that the sum is one half and flat areas do not change.
"""
_TOGETHER = 1 << 16
"""Pixels that are converted at once: they and their results fit into a core's cache."""
_REACH = len(_FIT)
"""Pairs of pixels beyond each end that the fit uses: the image is mirrored there."""


def as_is(image: NDArray[Any], recipe: Recipe) -> NDArray[Any]:
    """The values, in C order."""
    return np.ascontiguousarray(image)


def to_jpeg(image: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.uint8]:
    """An image (H, W, C) as a baseline JPEG file (n,), with a restart marker after each row of blocks."""
    height, width, channels = image.shape
    if max(height, width) > _MAX_JPEG_SIDE:
        raise DecodeError("too_large", f"{width}x{height} pixels; a JPEG has at most {_MAX_JPEG_SIDE} a side")
    quality = int(recipe.quality) if recipe.quality not in (None, "keep") else KEPT_QUALITY
    if recipe.jpeg_tables:
        sampling = "" if channels == 1 else recipe.subsampling or "444"
        return with_tables(image, jpegli_tables(quality, sampling), sampling)
    sampling = recipe.subsampling or "444"
    blocks = -(-width // (16 if sampling in ("420", "422") else 8))
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, blocks]
    if channels == 3:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLING[sampling]]
    bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR) if channels == 3 else image
    done, encoded = cv2.imencode(".jpg", bgr, options)
    if not done:
        raise DecodeError("unsupported", f"OpenCV could not encode {width}x{height} pixels")
    return np.asarray(encoded, np.uint8).reshape(-1)


def with_tables(image: NDArray[np.uint8], tables: Sequence[list[int]], sampling: str) -> NDArray[np.uint8]:
    """The same with these quantization tables and optimized codes, by Pillow: OpenCV's encoder takes no tables."""
    from PIL import Image, ImageFile

    file, (height, width, channels) = io.BytesIO(), image.shape
    gray = channels == 1
    options = {} if gray else {"subsampling": _PILLOW_SAMPLING[sampling]}
    # Optimized files are written in one piece, for which Pillow has this buffer; noise needs more than it reckons with.
    # Never lowered again: another thread may be about to encode. Of what is not used, no memory is taken.
    most = _HEADERS + _MOST_BYTES * channels * -(-height // 16) * -(-width // 16) * 256
    ImageFile.MAXBLOCK = max(ImageFile.MAXBLOCK, most)
    # Pillow copies RGB, pixel by pixel, but takes these as they are.
    pixels = np.ascontiguousarray(image) if gray else cv2.cvtColor(image, cv2.COLOR_RGB2RGBA)
    mode = "L" if gray else "RGBX"
    Image.frombuffer(mode, (width, height), pixels, "raw", mode, 0, 1).save(
        file, "JPEG", qtables=tables[:1] if gray else tables, restart_marker_rows=1, optimize=True, **options
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
    return rgb_to_planes(image)


def from_planes(stored: NDArray[np.uint8], shape: tuple[int, ...], recipe: Recipe) -> NDArray[np.uint8]:
    """The pixels (H, W, 3) of planes (n,)."""
    return to_rgb(stored, (shape[0], shape[1]))


def to_zstd(image: NDArray[Any], recipe: Recipe) -> NDArray[np.uint8]:
    """An image or mask as one frame (n,) of zstd."""
    return zstd.compress(bands.differences(image))


def to_zstd_planes(image: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.uint8]:
    """An image (H, W, 3) as planes of YCgCo 4:2:0 in one frame (n,) of zstd."""
    return packed_planes(rgb_to_planes(image), (image.shape[0], image.shape[1]))


def packed_planes(planes: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Planes (n,) of an image of this size in one frame of zstd."""
    shapes = zstd.planes_of(size)
    ends = np.cumsum([rows * values for rows, values in shapes])[:-1]
    parts = zip(np.split(planes, ends), shapes, strict=True)
    return zstd.compress(bands.differences_of([part.reshape(shape) for part, shape in parts]))


def from_zstd_planes(stored: NDArray[np.uint8], shape: tuple[int, ...], recipe: Recipe) -> NDArray[np.uint8]:
    """The pixels (H, W, 3) of such a frame."""
    size = shape[0], shape[1]
    raw = zstd.decompress(stored, planar_bytes(size), 0)
    return to_rgb(zstd.undone_planes(raw, size), size)


def zstd_libraries() -> dict[str, str]:
    """The version of zstd, which decides the bytes of its frames."""
    return {"zstd": zstd.library().zstd_version}


def zstd_planes_libraries() -> dict[str, str]:
    """The same, and the version of the conversion to planes."""
    return planes_libraries() | zstd_libraries()


def planes_libraries() -> dict[str, str]:
    """The version of the conversion to planes."""
    return {"encoder": f"rawpack.yuv420 {PLANES_VERSION}"}


def rgb_to_planes(image: Bytes) -> Bytes:
    """The planes Y, Cg and Co of an image (H, W, 3) in one flat array, for `rawpack.pixels.yuv420.planes_of`.

    Chroma is not the average of four pixels, which the reader's triangle filter would blur again. It is a fit: the
    plane from which that filter restores the pixels' chroma with the least squared error. An image from a 4:2:0 JPEG,
    whose decoder used the same filter, thus nearly keeps the chroma of that JPEG. Integer arithmetic makes the planes
    the same on every machine.

    Needs 16 bytes per pixel of memory, no more than decoding does.
    """
    height, width, _ = image.shape
    luma = np.empty((height, width), np.uint8)
    greens, oranges = np.empty((2, height, width), np.int16)
    step = max(1, _TOGETHER // width)
    for start in range(0, height, step):
        rows = slice(start, start + step)
        red, green, blue = (channel.astype(np.int16) for channel in cv2.split(image[rows]))
        both = red + blue
        green *= 2
        luma[rows] = (both + green + 2) >> 2
        greens[rows] = (green - both) << _SPARE - 2
        oranges[rows] = (red - blue) << _SPARE - 1
    return np.concatenate([luma, _chroma(greens), _chroma(oranges)], axis=None)


def _chroma(values: NDArray[np.int16]) -> Bytes:
    """The plane (ceil(H / 2), ceil(W / 2)) from which the triangle filter restores this chroma best."""
    fitted = _transposed(_fitted(_transposed(_fitted(values))))
    fitted += (128 << _SPARE) + (1 << _SPARE - 1)
    fitted >>= _SPARE
    return fitted.clip(0, 255).astype(np.uint8)


def _fitted(values: Ints | NDArray[np.int16]) -> Ints:
    """The fit along the first axis: (n, m) to (ceil(n / 2), m)."""
    longer = values[_mirrored(len(values))].astype(np.int32, copy=False)
    first, second, count = longer[0::2], longer[1::2], -(-len(values) // 2)
    fitted = np.full((count, values.shape[1]), 1 << _FIT_BITS - 1, np.int32)
    for j, weight in enumerate(_FIT):
        pair = first[_REACH - j : _REACH - j + count] + second[_REACH + j : _REACH + j + count]
        pair *= weight
        fitted += pair
    fitted >>= _FIT_BITS
    return fitted


@lru_cache(maxsize=64)
def _mirrored(count: int) -> NDArray[np.int64]:
    """The row, of `count`, at each position from `_REACH` pairs before the first to as many after the last. If `count`
    is odd, the last row is repeated."""
    even = count + count % 2
    places = np.arange(-2 * _REACH, even + 2 * _REACH) % (2 * even)
    return np.minimum(np.minimum(places, 2 * even - 1 - places), count - 1)


def _transposed(values: Ints) -> Ints:
    return np.asarray(cv2.transpose(values), np.int32)
