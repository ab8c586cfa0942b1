"""The ranges of numbers in what others wrote, as types for msgspec: whatever is outside is refused while it is decoded,
with its place. JSON's own numbers have no width. Ids have no range: they are compared as they are."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

_MOST_SIDE = (1 << 31) - 1
"""The longest side of an image or axis of an array, and the largest count."""
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
Id = int | float | bool | str
"""What names something: 1.0 is 1, and so is true."""


def side(text: str) -> int:
    """A side of an image that is written as text; 0 where the text is not a number of pixels."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < _DIGITS else 0


def is_far(value: float) -> bool:
    """Whether a number cannot be a coordinate: too large, infinite, or NaN."""
    return not -_FAR <= value <= _FAR
