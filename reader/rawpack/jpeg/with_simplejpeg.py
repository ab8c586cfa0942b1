"""simplejpeg: a thin layer over libjpeg-turbo, which its wheel includes. The default: the same on every machine."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

from rawpack.jpeg.decoder import Color, JpegDecoder, LibjpegError, Pixels, Shape

_COLORSPACE = {"rgb": "RGB", "gray": "GRAY", "cmyk": "CMYK"}


class SimplejpegDecoder(JpegDecoder):
    """Decodes directly into `out`. Refuses unusual sampling factors ("unsupported").

    `scale` selects the smallest of libjpeg's scales that gives the result's shape. An image with no side above 6 pixels
    may therefore be reduced with a coarser filter than in the other backends.
    """

    name = "simplejpeg"

    def __init__(self) -> None:
        import simplejpeg

        self.package_version = simplejpeg.__version__
        self._decode_jpeg = simplejpeg.decode_jpeg

    @cached_property
    def library(self) -> str | None:
        from simplejpeg import _jpeg

        return library_in(_jpeg.__file__)

    def _decode(self, view: memoryview, shape: Shape, color: Color, scale: int, out: Pixels | None) -> Pixels:
        least_height, least_width = (0, 0) if scale == 1 else shape[:2]
        try:
            image: Pixels = self._decode_jpeg(
                view,
                _COLORSPACE[color],
                min_height=least_height,
                min_width=least_width,
                buffer=out,
                strict=True,
            )
        except ValueError as error:
            raise LibjpegError(str(error)) from None
        return image if out is None else out


def library_in(path: str) -> str | None:
    """The version of libjpeg-turbo in a shared library, by its text; None where it cannot be read."""
    try:
        content = Path(path).read_bytes()
    except OSError:
        return None
    found = re.search(rb"libjpeg-turbo version (\d[\d.]*)", content)
    return f"libjpeg-turbo {found[1].decode()}" if found else None
