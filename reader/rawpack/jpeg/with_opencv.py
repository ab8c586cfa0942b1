"""OpenCV: decodes what libjpeg-turbo's own interface refuses, such as unusual combinations of sampling factors."""

from __future__ import annotations

import re
from functools import cached_property

import numpy as np

from rawpack.errors import DecodeError
from rawpack.jpeg.captured_stderr import captured_stderr
from rawpack.jpeg.decoder import PREMATURE_END, WARNING, Color, JpegDecoder, LibjpegError, Pixels, Shape
from rawpack.jpeg.header import has_end

_own_log = re.compile(r"\[ *(WARN|ERROR|INFO):.*(imdecode|loadsave|grfmt).*")


class OpencvDecoder(JpegDecoder):
    """Decodes one image at a time. Threads wait for each other, so worker processes are faster here.

    OpenCV raises no error for damage that libjpeg only warns about: it returns the image, gray parts included, and
    libjpeg prints the warning to file descriptor 2. So that descriptor is captured during a call, and a warning there
    becomes the error. Lines of other threads are passed on after the call.
    """

    name = "opencv"

    def __init__(self) -> None:
        import cv2

        self._cv2 = cv2
        self.package_version = cv2.__version__

    @cached_property
    def library(self) -> str | None:
        found = re.search(r"JPEG: .*?(libjpeg[\w-]*).*?\(ver ([\d.]+)", self._cv2.getBuildInformation())
        return f"{found[1]} {found[2]}" if found else None

    def _decode(self, view: memoryview, shape: Shape, color: Color, scale: int, out: Pixels | None) -> Pixels:
        cv2 = self._cv2
        if color == "cmyk":
            raise DecodeError("unsupported", "OpenCV does not return the planes of a CMYK JPEG; simplejpeg does")
        kind = "COLOR" if color == "rgb" else "GRAYSCALE"
        name = f"IMREAD_{kind}" if scale == 1 else f"IMREAD_REDUCED_{kind}_{scale}"
        flags = getattr(cv2, name) | cv2.IMREAD_IGNORE_ORIENTATION
        with captured_stderr(_of_opencv) as printed:
            try:
                image = cv2.imdecode(np.frombuffer(view, np.uint8), flags)
            except cv2.error as error:
                raise LibjpegError(str(error)) from None
        for message in filter(WARNING.fullmatch, printed):
            raise LibjpegError(message)
        if image is None:
            raise LibjpegError("OpenCV cannot decode it and does not say why")
        if not has_end(view):  # OpenCV accepts an image whose last line is complete
            raise LibjpegError(PREMATURE_END)
        if color == "rgb":
            return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2RGB, dst=out), np.uint8)
        gray = np.asarray(image, np.uint8).reshape(shape)
        if out is None:
            return gray
        np.copyto(out, gray)
        return out


def _of_opencv(line: str) -> bool:
    return bool(WARNING.fullmatch(line) or _own_log.fullmatch(line))
