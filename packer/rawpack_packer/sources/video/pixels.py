"""Converts a decoded frame to upright RGB by the colors that the video declares, identically on every machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from av.video.frame import VideoFrame

_HDR = (16, 18)
"""Transfer functions, by their ITU-T H.273 numbers: PQ and HLG."""
_UNSPECIFIED = 2
BY_PLANES = frozenset(
    {"yuv420p", "yuvj420p", "yuv422p", "yuvj422p", "yuv444p", "yuvj444p", "nv12", "yuv420p10le", "yuv422p10le"}
    | {"yuv444p10le", "p010le"}
)
"""Formats that FFmpeg converts to planes of RGB three times as fast as to RGB, with the same values."""
_ROWS = 32
"""The least height for that. FFmpeg rounds RGB in another way where there are only four rows of chroma."""
Turn = tuple[int, int, int, int] | None
"""a, b, c, d of a display matrix, which moves (x, y) to (a x + c y, b x + d y)."""


class ToRgb:
    """Converts the frames of one video into pixels. It keeps what the conversion needs."""

    def __init__(self, turn: Turn) -> None:
        from av.video.reformatter import Interpolation, VideoReformatter

        self._turn, self._reformatter = turn, VideoReformatter()
        self._how = int(
            Interpolation.BICUBIC
            | Interpolation.ACCURATE_RND
            | Interpolation.BITEXACT
            | Interpolation.FULL_CHR_H_INT
        )  # fmt: skip

    def __call__(self, frame: VideoFrame) -> NDArray[np.uint8]:
        """Upright pixels, (H, W, 3)."""
        from av.video.reformatter import ColorRange

        by_planes = frame.format.name in BY_PLANES and frame.height >= _ROWS
        # By default, RGB would have the range of the video: 16 to 235.
        rgb = self._reformatter.reformat(
            frame,
            format="gbrp" if by_planes else "rgb24",
            interpolation=self._how,
            dst_color_range=ColorRange.JPEG,
            threads=1,
        )
        return _turned(_merged(rgb) if by_planes else np.asarray(rgb.to_ndarray(), np.uint8), self._turn)


def notes_of(frame: VideoFrame) -> tuple[str, ...]:
    """The names in `counts.OF_VIDEOS` that apply to a video, by its first frame."""
    matrix, format = turn_of(frame), frame.format
    declared = {
        "rotated": matrix is not None and _straight(matrix) and not (matrix[0] > 0 and matrix[3] > 0),
        "odd_rotation": matrix is not None and not _straight(matrix),
        "interlaced": frame.interlaced_frame,
        "more_than_8_bits": any(component.bits > 8 for component in format.components),
        "hdr": frame.color_trc in _HDR,
        "transparent": any(component.is_alpha for component in format.components),
        "colors_unsaid": not format.is_rgb and frame.colorspace == _UNSPECIFIED and len(format.components) > 1,
    }
    return tuple(name for name, holds in declared.items() if holds)


def _merged(frame: VideoFrame) -> NDArray[np.uint8]:
    """The pixels (H, W, 3) of a frame whose planes are green, blue and red."""
    import cv2

    planes: Any = frame.planes
    green, blue, red = (
        np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)[: frame.height, : frame.width] for plane in planes
    )
    return np.asarray(cv2.merge([red, green, blue]), np.uint8)


def _turned(image: NDArray[np.uint8], turn: Turn) -> NDArray[np.uint8]:
    """The image as its display matrix says: turned by quarters, and mirrored."""
    if turn is None or not _straight(turn):
        return image
    a, b, c, d = turn
    if a or d:
        image = image[:: -1 if d < 0 else 1, :: -1 if a < 0 else 1]
    else:
        image = image.swapaxes(0, 1)[:: -1 if b < 0 else 1, :: -1 if c < 0 else 1]
    return np.ascontiguousarray(image)


def turn_of(frame: VideoFrame) -> Turn:
    """How a video must be turned, by its first frame. Do not call it for every frame: PyAV's side data keep their frame
    in memory until Python collects cycles."""
    sides: Any = frame.side_data
    side = sides.get("DISPLAYMATRIX")
    if side is None:
        return None
    a, b, _, c, d = np.frombuffer(bytes(side), np.int32)[:5].tolist()
    return a, b, c, d


def _straight(matrix: tuple[int, int, int, int]) -> bool:
    a, b, c, d = matrix
    return (a != 0) == (d != 0) and (b != 0) == (c != 0) and (a != 0) != (b != 0)
