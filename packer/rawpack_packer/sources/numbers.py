"""The ranges of numbers in what others wrote, as types for msgspec: whatever is outside is refused while it is decoded,
with its place. JSON's own numbers have no width. Ids have no range: they are compared as they are."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

_MOST_SIDE = (1 << 31) - 1
"""Of an image, an array, or a file in a list of files."""
_FAR = float(1 << 31)
_DIGITS = 10
_INT64 = (1 << 63) - 1

Int64 = Annotated[int, Meta(ge=-_INT64 - 1, le=_INT64)]
"""What a field of whole numbers stores."""
Length = Annotated[int, Meta(ge=0, le=_MOST_SIDE)]
"""A side in pixels, the length of an axis, or how many there are of something."""
Axis = Annotated[int, Meta(ge=-1, le=_MOST_SIDE)]
"""The length of an axis; -1 where it is not known."""
Size = Annotated[int, Meta(ge=0, le=_INT64)]
"""Bytes."""
Pixels = Annotated[float, Meta(ge=-_FAR, le=_FAR)]
"""A coordinate, which may be outside the image."""
Id = int | str
"""What names something."""


def side(text: str) -> int:
    """A side of an image that text says; 0 where it says none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


def is_far(value: float) -> bool:
    """Whether a number is no coordinate: too large, infinite, or NaN."""
    return not -_FAR <= value <= _FAR
