"""What a JPEG decoder is: one method, the same contract whichever library does the work."""

from __future__ import annotations

import mmap
import re
from abc import ABC, abstractmethod
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.jpeg.decoder_warnings import (
    JUNK_BEFORE_END,
    LibjpegError,
    decode_error,
    without_cause,
)
from rawpack.jpeg.header import JpegHeader, read_header

Color: TypeAlias = Literal["rgb", "gray", "cmyk"]
Data: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | NDArray[Any]
Pixels: TypeAlias = NDArray[np.uint8]

CHANNELS: dict[str, int] = {"rgb": 3, "gray": 1, "cmyk": 4}
SCALES = (1, 2, 4, 8)


class JpegDecoder(ABC):
    """A library that decodes JPEG. Any thread may call it; the GIL is released while pixels are made."""

    name: str
    """As in RAWPACK_JPEG: "simplejpeg", "turbojpeg", "opencv"."""
    package_version: str
    """Of the Python package, "1.9.0"."""

    @property
    @abstractmethod
    def library(self) -> str | None:
        """The C library beneath and its version, "libjpeg-turbo 3.1.2"; None where it cannot be told."""

    @cached_property
    def version(self) -> str:
        """Of package and library, "1.9.0 (libjpeg-turbo 3.1.2)": what a manifest records after the name."""
        return f"{self.package_version} ({self.library})" if self.library else self.package_version

    def __repr__(self) -> str:
        return f"<JpegDecoder {self.name} {self.version}>"

    def decode(
        self,
        data: Data,
        *,
        color: Color = "rgb",
        scale: int = 1,
        out: Pixels | None = None,
        warnings: list[str] | None = None,
    ) -> Pixels:
        """The whole image: uint8 (H, W, 3) RGB, (H, W, 1) gray or (H, W, 4) CMYK as stored, H and W divided by `scale`
        (1, 2, 4 or 8) and rounded up. EXIF orientation is not applied.

        `data`: contiguous, not copied: a slice of a mapped file serves, and must not change meanwhile.
        `color`: a gray JPEG gives equal channels as "rgb", a color JPEG its luma as "gray". A JPEG of four
        components decodes as "cmyk", and nothing else does: YCCK turned to CMYK, Adobe's inversion kept.
        `out`: C order, uint8, of exactly the result's shape; filled and returned. After an error its content is
        undefined.
        `warnings`: gets libjpeg's words on oddities of the file that leave the pixels complete (see
        `rawpack.jpeg.decoder_warnings`).

        Raises DecodeError with reason "empty", "not_an_image", "truncated", "corrupt" or "unsupported", and UsageError
        for nonsense in the arguments.
        """
        view = as_bytes(data)
        header = read_header(view)
        shape = _result_shape(header, color, scale)
        if out is not None:
            check_out(out, shape)
        try:
            return self._decode(view, shape, color, scale, out, False)
        except LibjpegError as complaint:
            return self._decode_again(view, str(complaint), shape, color, scale, out, warnings)

    def _decode_again(
        self,
        view: memoryview,
        message: str,
        shape: tuple[int, int, int],
        color: Color,
        scale: int,
        out: Pixels | None,
        warnings: list[str] | None,
    ) -> Pixels:
        """After a first complaint: the image without the complaint's cause, where that is harmless; else the error."""
        seen: list[str] = []
        while True:
            junk_before_end = JUNK_BEFORE_END.fullmatch(message) is not None
            mended = view if junk_before_end else without_cause(view, message)
            if mended is None or message in seen:
                raise decode_error(view, message)
            seen.append(message)
            view = mended
            try:
                image = self._decode(view, shape, color, scale, out, junk_before_end)
            except LibjpegError as complaint:
                message = str(complaint)
                continue
            if warnings is not None:
                warnings.extend(seen)
            return image

    @abstractmethod
    def _decode(
        self,
        view: memoryview,
        shape: tuple[int, int, int],
        color: Color,
        scale: int,
        out: Pixels | None,
        junk_before_end: bool,
    ) -> Pixels:
        """The image of `shape`, in `out` where there is one.

        Raises LibjpegError with libjpeg's message for its errors and warnings alike, but not for the warning
        `JUNK_BEFORE_END` where `junk_before_end` says that it is expected.
        """


def as_bytes(data: Data) -> memoryview:
    """The bytes of `data` as a flat memoryview, without a copy. Raises UsageError where they do not lie together."""
    view = data.data if isinstance(data, np.ndarray) else memoryview(data)
    if view.ndim == 1 and view.format == "B" and view.contiguous:
        return view
    if not view.c_contiguous:
        raise UsageError(f"JPEG data must be contiguous in memory; this has shape {view.shape}, strides {view.strides}")
    return view.cast("B")


def check_out(out: Pixels, shape: tuple[int, int, int]) -> None:
    """Raise UsageError unless `out` is a C-ordered, writable uint8 array of `shape`."""
    if out.shape == shape and out.dtype == np.uint8 and out.flags.carray:
        return
    flags = "" if out.flags.c_contiguous else ", not in C order"
    flags += "" if out.flags.writeable else ", read-only"
    raise UsageError(f"the image is uint8 {shape} in C order, but out is {out.dtype} {out.shape}{flags}")


def check_options(color: str, scale: int) -> None:
    """Raise UsageError for a color or a scale that there is not."""
    if color not in CHANNELS:
        raise UsageError(f"color {color!r}: choose one of {', '.join(map(repr, CHANNELS))}")
    if scale not in SCALES:
        raise UsageError(f"scale {scale!r}: choose one of {', '.join(map(repr, SCALES))}")


def _result_shape(header: JpegHeader, color: Color, scale: int) -> tuple[int, int, int]:
    check_options(color, scale)
    if (header.components == 4) != (color == "cmyk"):
        raise DecodeError("unsupported", f"a JPEG of {header.components} components cannot be decoded as {color!r}")
    return -(-header.height // scale), -(-header.width // scale), CHANNELS[color]


def turbo_version(path: str) -> str | None:
    """The version that a shared library says of the libjpeg-turbo inside it; None where it says none."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    found = re.search(rb"libjpeg-turbo version (\d[\d.]*)", content)
    return f"libjpeg-turbo {found[1].decode()}" if found else None
