"""Which JPEG decoder this process uses: the first of `CHOICES` that works, or the one that RAWPACK_JPEG names.

Both call libjpeg-turbo's own interface. simplejpeg comes first: its wheel includes libjpeg-turbo, so pixels and errors
do not depend on what is installed on the system. OpenCV decodes only what that interface refuses.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from functools import cache

from rawpack.errors import DecodeError, RawpackError, UsageError
from rawpack.jpeg.decoder import JpegDecoder
from rawpack.jpeg.with_opencv import OpencvDecoder
from rawpack.jpeg.with_simplejpeg import SimplejpegDecoder
from rawpack.jpeg.with_turbojpeg import TurbojpegDecoder

BACKENDS: dict[str, Callable[[], JpegDecoder]] = {
    "simplejpeg": SimplejpegDecoder,
    "turbojpeg": TurbojpegDecoder,
    "opencv": OpencvDecoder,
}
CHOICES = ("simplejpeg", "turbojpeg")

VARIABLE = "RAWPACK_JPEG"


@cache
def decoder() -> JpegDecoder:
    """The decoder of this process, chosen at the first call.

    Raises UsageError where RAWPACK_JPEG is not one of `CHOICES`, RawpackError where that one does not work, or none
    does.
    """
    wanted = os.environ.get(VARIABLE, "")
    if wanted and wanted not in CHOICES:
        raise UsageError(f"{VARIABLE}={wanted!r}: choose one of {', '.join(CHOICES)}, or unset it")
    failures: list[str] = []
    for name in [wanted] if wanted else CHOICES:
        opened = open_backend(name)
        if isinstance(opened, JpegDecoder):
            return opened
        failures.append(f"{name}: {opened}")
    if wanted:
        raise RawpackError(f"{VARIABLE}={wanted} does not work here: {failures[0]}; unset {VARIABLE} to use another")
    raise RawpackError(f"no JPEG decoder works here; `pip install simplejpeg` brings one. {'; '.join(failures)}")


@cache
def last_resort() -> JpegDecoder | None:
    """The decoder of files that the chosen one does not support; None where OpenCV does not work."""
    opened = open_backend("opencv")
    return opened if isinstance(opened, JpegDecoder) else None


@cache
def open_backend(name: str) -> JpegDecoder | str:
    """The backend of this name, once it has decoded a small JPEG; else why it does not work, in one line."""
    try:
        backend = BACKENDS[name]()
        _try_out(backend)
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


_MID_GRAY = base64.b64decode(
    "/9j/2wBDAP//////////////////////////////////////////////////////////////////////////////////////"
    "wAALCAAIAAgBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z"
)
