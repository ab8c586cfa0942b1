"""nvImageCodec: decodes only the part of a JPEG that a box needs, on the CPU. The extra "regions".

Its libjpeg-turbo decodes the bits above the box too, but computes pixels for the box only, and stops below it. The
pixels are those that the other libraries compute.
"""

from __future__ import annotations

import re
from importlib import import_module

import numpy as np

from rawpack.jpeg.captured_stderr import captured_stderr, capturing
from rawpack.jpeg.decoder import WARNING, Box, Pixels
from rawpack.jpeg.header import EOI, HUFFMAN_SEQUENTIAL, JpegHeader

_SAMPLINGS = (b"\x11\x11\x11", b"\x21\x11\x11", b"\x22\x11\x11", b"\x12\x11\x11")
_MOST_SHARE = 0.5
"""Of the image's area in a box. Beyond it, decoding everything is as fast."""
_LEAST_SAVED = 100_000
"""Pixels outside the box. With fewer, decoding everything is as fast, because each call takes 0.1 ms more."""
_LEAST_WIDTH = 16
"""Of a box. libjpeg upsamples color in another way where a region is only a few pixels wide."""
_own_log = re.compile(r"(\x1b\[[\d;]*m)*\[(ERROR|WARNING|INFO)\].*|Failed to load nv.*|Note: If using nvImageCodec's.*")


def pays(header: JpegHeader, box: Box) -> bool:
    """Whether the image is of a kind that regions are exact for, and the box leaves out enough of it."""
    area, pixels = box[2] * box[3], header.height * header.width
    return (
        area <= _MOST_SHARE * pixels
        and pixels - area >= _LEAST_SAVED
        and box[3] >= _LEAST_WIDTH
        and header.process in HUFFMAN_SEQUENTIAL
        and header.sampling in _SAMPLINGS
    )


class RegionDecoder:
    """Decodes a box of a color JPEG. Starts no threads. Raises ImportError where nvImageCodec is not installed."""

    name = "nvimgcodec"

    def __init__(self) -> None:
        # At import it reports every library for GPUs that is not there.
        with captured_stderr(_own_log.fullmatch):
            # Its parent may be there without it, for other packages of NVIDIA.
            nvimgcodec = import_module("nvidia.nvimgcodec")
            self._decoder = nvimgcodec.Decoder(
                device_id=nvimgcodec.NVIMGCODEC_DEVICE_CPU_ONLY,
                max_num_cpu_threads=1,
                backends=[nvimgcodec.Backend(nvimgcodec.CPU_ONLY)],
            )
        self._library, self.package_version = nvimgcodec, nvimgcodec.__version__
        self._as_stored = nvimgcodec.DecodeParams(apply_exif_orientation=False)

    def decode(self, data: memoryview, box: Box) -> Pixels | None:
        """uint8 (h, w, 3) RGB, read-only; None for any file that is not intact as far as the box needs it, and while
        another thread captures stderr.

        libjpeg's warnings are only printed there, so stderr is captured during the call, and anything on it counts as
        damage.
        """
        if capturing() or data[-2:] != EOI:
            return None
        y, x, h, w = box
        printed: list[str] = []

        def is_ours(line: str) -> bool:
            printed.append(line)
            return bool(WARNING.fullmatch(line) or _own_log.fullmatch(line))

        with captured_stderr(is_ours):
            try:
                stream = self._library.CodeStream(np.frombuffer(data, np.uint8))
                part = stream.get_sub_code_stream(region=self._library.Region(y, x, y + h, x + w))
                image = self._decoder.decode(part, params=self._as_stored)
            except Exception:  # it names no exceptions of its own
                return None
        if image is None or printed:
            return None
        pixels = np.asarray(image)
        return pixels if pixels.shape == (h, w, 3) and pixels.dtype == np.uint8 else None
