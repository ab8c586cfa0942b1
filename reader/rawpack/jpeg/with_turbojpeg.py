"""PyTurboJPEG: a ctypes layer over the system's libturbojpeg. Version 1 needs libjpeg-turbo 2, version 2 needs 3."""

from __future__ import annotations

import ctypes
import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from rawpack.jpeg.decoder import Color, JpegDecoder, Pixels, Shape, turbo_version
from rawpack.jpeg.decoder_warnings import JUNK_BEFORE_END, LibjpegError

_SONAME = "libturbojpeg.so.0"


class TurbojpegDecoder(JpegDecoder):
    """Decodes directly into `out` with PyTurboJPEG 1.8 and later, by a copy with earlier versions."""

    name = "turbojpeg"

    def __init__(self) -> None:
        from importlib.metadata import version

        import turbojpeg

        class Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
            junk_before_end = False

            # The package passes libjpeg's warnings to warnings.warn, whose filters are shared by all threads.
            def _TurboJPEG__report_error(self, handle: Any) -> None:  # noqa: N802
                message = self._TurboJPEG__get_error_string(handle)
                if not (self.junk_before_end and JUNK_BEFORE_END.fullmatch(message)):
                    raise LibjpegError(message)

        class AllowingJunkBeforeEnd(Strict):
            junk_before_end = True

        self.package_version = version("PyTurboJPEG")
        path = _library_path(turbojpeg.DEFAULT_LIB_PATHS)
        self._strict = Strict(path)
        self._allowing_junk_before_end = AllowingJunkBeforeEnd(path)
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

    def _decode(
        self, view: memoryview, shape: Shape, color: Color, scale: int, out: Pixels | None, junk_before_end: bool
    ) -> Pixels:
        library = self._allowing_junk_before_end if junk_before_end else self._strict
        factor = None if scale == 1 else (1, scale)
        if out is None or self._decodes_into_out:
            extra = {} if out is None else {"dst": out}
            return cast(Pixels, library.decode(view, self._pixel_format[color], factor, **extra))
        np.copyto(out, library.decode(view, self._pixel_format[color], factor))
        return out


def _library_path(known: Mapping[str, Sequence[str]]) -> str | None:
    """The library for PyTurboJPEG to load; None lets it search.

    On Linux, its search calls `ctypes.util.find_library`, which runs gcc and writes temporary files where it finds no
    library. Loading by name needs neither. Raises OSError where there is no library.
    """
    if sys.platform != "linux":
        return None
    try:
        ctypes.CDLL(_SONAME)
    except OSError:
        there = [path for path in known.get("Linux", ()) if Path(path).exists()]
        if not there:
            raise
        return there[0]
    return _SONAME
