"""PyTurboJPEG: a ctypes layer over the system's libturbojpeg. 1.x works with libjpeg-turbo 2, 2.x with 3."""

from __future__ import annotations

import inspect
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np

from rawpack.jpeg.decoder import Color, JpegDecoder, Pixels, turbo_version
from rawpack.jpeg.decoder_warnings import JUNK_BEFORE_END, LibjpegError


class TurbojpegDecoder(JpegDecoder):
    """Decodes straight into `out` with PyTurboJPEG 1.8 and later."""

    name = "turbojpeg"

    def __init__(self) -> None:
        import turbojpeg

        class Strict(turbojpeg.TurboJPEG):  # type: ignore[misc]
            # The package hands libjpeg's warnings to warnings.warn, whose filters are shared by all threads.
            def _TurboJPEG__report_error(self, handle: Any) -> None:  # noqa: N802
                raise LibjpegError(self._TurboJPEG__get_error_string(handle))

        class AllowingJunkBeforeEnd(turbojpeg.TurboJPEG):  # type: ignore[misc]
            def _TurboJPEG__report_error(self, handle: Any) -> None:  # noqa: N802
                message = self._TurboJPEG__get_error_string(handle)
                if not JUNK_BEFORE_END.fullmatch(message):
                    raise LibjpegError(message)

        self.package_version = version("PyTurboJPEG")
        self._strict = Strict()
        self._allowing_junk_before_end = AllowingJunkBeforeEnd()
        self._decodes_into_out = "dst" in inspect.signature(turbojpeg.TurboJPEG.decode).parameters
        self._pixel_format = {
            "rgb": turbojpeg.TJPF_RGB,
            "gray": turbojpeg.TJPF_GRAY,
            "cmyk": turbojpeg.TJPF_CMYK,
        }

    @cached_property
    def library(self) -> str | None:
        try:
            mapped = Path("/proc/self/maps").read_text().splitlines()
        except OSError:
            return None
        paths = [line.split(maxsplit=5)[-1] for line in mapped if "libturbojpeg" in line]
        return turbo_version(paths[0]) if paths else None

    def _decode(
        self,
        view: memoryview,
        shape: tuple[int, int, int],
        color: Color,
        scale: int,
        out: Pixels | None,
        junk_before_end: bool,
    ) -> Pixels:
        library = self._allowing_junk_before_end if junk_before_end else self._strict
        factor = None if scale == 1 else (1, scale)
        if out is None or self._decodes_into_out:
            extra = {} if out is None else {"dst": out}
            return cast(Pixels, library.decode(view, self._pixel_format[color], factor, **extra))
        np.copyto(out, library.decode(view, self._pixel_format[color], factor))
        return out
