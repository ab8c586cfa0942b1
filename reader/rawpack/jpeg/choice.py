"""Which JPEG decoder this process uses: the first in `BACKENDS` that works, or the one that RAWPACK_JPEG names.

Both are equally fast. simplejpeg comes first: its wheel includes libjpeg-turbo, and the call reports damage itself.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import numpy as np

from rawpack.errors import DecodeError, RawpackError, UsageError
from rawpack.jpeg.decoder import JpegDecoder
from rawpack.jpeg.with_nvimgcodec import RegionDecoder
from rawpack.jpeg.with_opencv import OpencvDecoder
from rawpack.jpeg.with_simplejpeg import SimplejpegDecoder

BACKENDS: dict[str, Callable[[], JpegDecoder]] = {
    "simplejpeg": SimplejpegDecoder,
    "opencv": OpencvDecoder,
}
"""In the order of preference."""

VARIABLE = "RAWPACK_JPEG"


Opened = TypeVar("Opened", bound=JpegDecoder | RegionDecoder)


@cache
def decoder() -> JpegDecoder:
    """The decoder of this process, chosen at the first call.

    Raises UsageError where RAWPACK_JPEG is not the name of a backend, RawpackError where that backend does not work, or
    none does.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in BACKENDS:
        raise UsageError(f"{VARIABLE}={wanted!r}: choose one of {', '.join(BACKENDS)}, or unset it")
    failures: list[str] = []
    for name in [wanted] if wanted else BACKENDS:
        opened = open_backend(name)
        if isinstance(opened, JpegDecoder):
            return opened
        failures.append(f"{name}: {opened}")
    if wanted:
        raise RawpackError(f"{VARIABLE}={wanted} does not work here: {failures[0]}; unset {VARIABLE} to use another")
    raise RawpackError(f"no JPEG decoder works here; `pip install simplejpeg` brings one. {'; '.join(failures)}")


@cache
def region_decoder() -> RegionDecoder | None:
    """The decoder of regions of this process, loaded at the first call: in a worker, after the fork. None where it does
    not work, and where RAWPACK_JPEG says which library decodes."""
    opened = None if os.environ.get(VARIABLE) else open_regions()
    return opened if isinstance(opened, RegionDecoder) else None


@cache
def others() -> list[JpegDecoder]:
    """The other decoders that work here, for files that the chosen one does not support."""
    opened = [open_backend(name) for name in BACKENDS if name != decoder().name]
    return [backend for backend in opened if isinstance(backend, JpegDecoder)]


@cache
def open_backend(name: str) -> JpegDecoder | str:
    """The backend of this name, once it has decoded a small JPEG; else why it does not work, in one line."""
    return _opened(BACKENDS[name], _try_out)


@cache
def open_regions() -> RegionDecoder | str:
    """The same for the decoder of regions."""
    return _opened(RegionDecoder, _try_out_regions)


def _opened(make: Callable[[], Opened], try_out: Callable[[Opened], None]) -> Opened | str:
    try:
        backend = make()
        try_out(backend)
    except Exception as error:  # loading a C library may fail in any way
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return backend


def _try_out(backend: JpegDecoder) -> None:
    """Raise RawpackError unless the backend decodes a JPEG of 8 x 8 mid-gray pixels, and refuses it truncated."""
    image = backend.decode(_MID_GRAY)
    if image.shape != (8, 8, 3) or image.min() != 128 or image.max() != 128:
        raise RawpackError(f"decodes mid-gray pixels to {image.min()}..{image.max()}, {image.shape}")
    try:
        backend.decode(_MID_GRAY[:-2])
    except DecodeError:
        return
    raise RawpackError("does not notice a truncated file")


def _try_out_regions(regions: RegionDecoder) -> None:
    """Raise RawpackError unless it decodes a box to the pixels that the chosen decoder computes."""
    import simplejpeg

    y, x = np.mgrid[:64, :64]
    scene = np.stack([x * 4, y * 4, x * y % 256], axis=2).astype(np.uint8)
    data = memoryview(simplejpeg.encode_jpeg(scene, quality=90, colorsubsampling="420"))
    part = regions.decode(data, (17, 23, 20, 30))
    if part is None or not np.array_equal(part, decoder().decode(data)[17:37, 23:53]):
        raise RawpackError("does not decode the pixels that the other libraries decode")


_MID_GRAY = base64.b64decode(
    "/9j/2wBDAP//////////////////////////////////////////////////////////////////////////////////////"
    "wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z"
)
