"""PyTurboJPEG: a ctypes layer over the system's libturbojpeg. The extra "turbojpeg"."""

from __future__ import annotations

import ctypes
import inspect
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rawpack.errors import RawpackError
from rawpack.jpeg.decoder import Color, JpegDecoder, LibjpegError, Pixels, Shape
from rawpack.jpeg.with_simplejpeg import library_in

_SONAME = "libturbojpeg.so.0"
"""On Linux. By this name it is loaded without PyTurboJPEG's own search, which starts other programs."""


class TurbojpegDecoder(JpegDecoder):
    """Decodes directly into `out`, but with 1.8.0 by a copy. Version 2 needs libjpeg-turbo 3."""

    name = "turbojpeg"

    def __init__(self) -> None:
        from importlib.metadata import version

        import turbojpeg

        class Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
            # The package passes libjpeg's warnings to `warnings.warn`, whose filters all threads share, and returns
            # what it has of the picture.
            def _TurboJPEG__report_error(self, handle: Any) -> None:  # noqa: N802
                raise LibjpegError(self._TurboJPEG__get_error_string(handle))

        self.package_version = version("PyTurboJPEG")
        try:
            ctypes.CDLL(_SONAME)
        except OSError:
            path = None
        else:
            path = _SONAME
        try:
            self._turbo = Strict(path)
        except RuntimeError as error:
            if "libjpeg-turbo 3" in str(error):
                raise RawpackError(
                    f"PyTurboJPEG {self.package_version} needs libjpeg-turbo 3, which was not found; for libjpeg-turbo "
                    "2: pip install 'PyTurboJPEG>=1.8,<2'"
                ) from None
            raise RawpackError(
                "libturbojpeg was not found: install it (Debian: libturbojpeg0, Ubuntu: libturbojpeg, macOS: "
                "jpeg-turbo)"
            ) from None
        self._takes_out = "dst" in inspect.signature(turbojpeg.TurboJPEG.decode).parameters
        self._pixel_format = {"rgb": turbojpeg.TJPF_RGB, "gray": turbojpeg.TJPF_GRAY, "cmyk": turbojpeg.TJPF_CMYK}

    @cached_property
    def library(self) -> str | None:
        """By the text in the library that this process has mapped; None where the system does not say which."""
        try:
            mapped = Path("/proc/self/maps").read_text().splitlines()
        except OSError:
            return None
        paths = [line.split(maxsplit=5)[-1] for line in mapped if "libturbojpeg" in line]
        return library_in(paths[0]) if paths else None

    def _decode(self, view: memoryview, shape: Shape, color: Color, scale: int, out: Pixels | None) -> Pixels:
        into = {"dst": out} if self._takes_out else {}
        image: Pixels = self._turbo.decode(view, self._pixel_format[color], None if scale == 1 else (1, scale), **into)
        if image.shape != shape:
            raise LibjpegError(f"libturbojpeg decodes {image.shape}, but the header says {shape}")
        if out is None or image is out:
            return image
        np.copyto(out, image)
        return out
