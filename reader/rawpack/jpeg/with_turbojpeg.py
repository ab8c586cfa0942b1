"""PyTurboJPEG: a ctypes layer over the system's libturbojpeg. Version 1 needs libjpeg-turbo 2, version 2 needs 3."""

from __future__ import annotations

import ctypes
import inspect
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from rawpack.jpeg.decoder import Color, JpegDecoder, LibjpegError, Pixels, Shape, turbo_version

_SONAME = "libturbojpeg.so.0"
"""On Linux. By this name it is loaded without PyTurboJPEG's own search, which starts other programs."""


class TurbojpegDecoder(JpegDecoder):
    """Decodes directly into `out` with PyTurboJPEG 1.8 and later, by a copy with earlier versions."""

    name = "turbojpeg"

    def __init__(self) -> None:
        from importlib.metadata import version

        import turbojpeg

        class Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
            # The package passes libjpeg's warnings to warnings.warn, whose filters are shared by all threads.
            def _TurboJPEG__report_error(self, handle: Any) -> None:  # noqa: N802
                raise LibjpegError(self._TurboJPEG__get_error_string(handle))

        self.package_version = version("PyTurboJPEG")
        try:
            ctypes.CDLL(_SONAME)
        except OSError:
            path = None
        else:
            path = _SONAME
        self._turbo = Strict(path)
        self._decodes_into_out = "dst" in inspect.signature(turbojpeg.TurboJPEG.decode).parameters
        self._pixel_format = {"rgb": turbojpeg.TJPF_RGB, "gray": turbojpeg.TJPF_GRAY, "cmyk": turbojpeg.TJPF_CMYK}

    @cached_property
    def library(self) -> str | None:
        try:
            mapped = Path("/proc/self/maps").read_text().splitlines()
        except OSError:
            return None
        paths = [line.split(maxsplit=5)[-1] for line in mapped if "libturbojpeg" in line]
        return turbo_version(paths[0]) if paths else None

    def _decode(self, view: memoryview, shape: Shape, color: Color, scale: int, out: Pixels | None) -> Pixels:
        factor = None if scale == 1 else (1, scale)
        if out is None or self._decodes_into_out:
            extra = {} if out is None else {"dst": out}
            return cast(Pixels, self._turbo.decode(view, self._pixel_format[color], factor, **extra))
        np.copyto(out, self._turbo.decode(view, self._pixel_format[color], factor))
        return out
