"""The values of options: how a text of the command, or a value in Python, becomes what a recipe holds."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal, get_args

from rawpack.errors import UsageError
from rawpack.system.byte_count import byte_count
from rawpack_packer.voice import either

Fit = Literal["cover", "stretch"]
Interpolation = Literal["area", "linear", "cubic", "lanczos", "nearest"]
Color = Literal["rgb", "gray", "yuv420"]
Check = Literal["structure", "decode"]
Subsampling = Literal["420", "422", "440", "444"]
JpegTables = Literal["standard", "jpegli"]
FITS, INTERPOLATIONS, COLORS, CHECKS, SUBSAMPLINGS, JPEG_TABLES = map(
    get_args, (Fit, Interpolation, Color, Check, Subsampling, JpegTables)
)
Names = Callable[[Any], str]
"""Names an option with a value, in a message: see `naming.Named`."""
_MAX_SIDE = 65_500
"""libjpeg's limit, and enough for any raw store."""


def one_of(*allowed: str) -> Callable[[Names, Any], str]:
    def parse(name: Names, value: Any) -> str:
        if value not in allowed:
            raise UsageError(f"{name(repr(value))}: must be one of {', '.join(allowed)}")
        return str(value)

    return parse


def at_least_1(name: Names, value: Any) -> Any:
    if value < 1:
        raise UsageError(f"{name(value)}: must be 1 or more")
    return value


def as_text(value: Any, separator: str = "") -> str:
    """An option as the command gets it: "224x160" for (224, 160)."""
    return separator.join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def parse_size(name: Names, text: str, *, keep: bool = True) -> tuple[int, int] | int | Literal["keep"]:
    """A size: "256", "224x160" (height by width) or "keep"."""
    if text == "keep":
        return "keep"
    match = re.fullmatch(r"(\d{1,6})(?:[xX](\d{1,6}))?", text.strip())
    if not match:
        raise UsageError(
            f"{name(repr(text))}: must be a side in pixels (256), "
            + either("HEIGHTxWIDTH (224x160)", "(height, width)")
            + (either(", or keep", ", or 'keep'") if keep else "")
        )
    sides = tuple(int(side) for side in match.groups() if side is not None)
    if any(not 1 <= side <= _MAX_SIDE for side in sides):
        raise UsageError(f"{name(text)}: sides must be between 1 and {_MAX_SIDE} pixels")
    return sides[0] if len(sides) == 1 else (sides[0], sides[1])


def parse_crop(name: Names, text: str) -> tuple[int, int, int, int]:
    """A crop: "X,Y,W,H" in pixels of the upright image."""
    match = re.fullmatch(r"\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*,\s*(\d{1,7})\s*", text)
    if not match:
        raise UsageError(f"{name(repr(text))}: must be X,Y,WIDTH,HEIGHT in pixels, such as 186,0,114,30")
    x, y, width, height = (int(group) for group in match.groups())
    if not width or not height:
        raise UsageError(f"{name(text)}: width and height must be 1 or more")
    return x, y, width, height


def parse_quality(name: Names, text: str) -> int | Literal["keep"]:
    """A quality: 1 to 100, or "keep"."""
    if text == "keep":
        return "keep"
    if not re.fullmatch(r"\d{1,3}", text) or not 1 <= int(text) <= 100:
        raise UsageError(f"{name(repr(text))}: must be 1 to 100, or keep (JPEG files are stored as they are)")
    return int(text)


def parse_bytes(name: Names, text: str) -> int:
    """A number of bytes: "256MiB", "1GB", "65536"."""
    value = byte_count(text)
    if value is None:
        raise UsageError(f"{name(repr(text))}: must be a number of bytes such as 256MiB, 1GB or 65536")
    if not 1 <= value <= 1 << 44:
        raise UsageError(f"{name(text)}: must be between 1 byte and 16 TiB")
    return value
