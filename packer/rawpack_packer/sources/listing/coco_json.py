"""What COCO's JSON has, as far as it is read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from rawpack_packer.sources.listing.faults import fault

T = TypeVar("T")


class Image(msgspec.Struct, gc=False):
    id: int
    file_name: str
    height: int | None = None
    width: int | None = None


class Annotation(msgspec.Struct):
    image_id: int
    category_id: int
    bbox: list[float]
    id: Any = None
    area: Any = None
    iscrowd: int = 0
    keypoints: list[float] | None = None
    segmentation: msgspec.Raw = msgspec.Raw()


class Category(msgspec.Struct):
    id: int
    name: str
    keypoints: list[str] | None = None


class Coco(msgspec.Struct):
    images: list[Image]
    annotations: list[Annotation]
    categories: list[Category]


def numbered(values: Iterable[T], what: str, where: str) -> dict[T, int]:
    """The position of each value. what: where value {} is in the JSON. where: the file.

    Raises BadListingError for a value that is there twice."""
    positions: dict[T, int] = {}
    for number, value in enumerate(values):
        if (before := positions.setdefault(value, number)) != number:
            raise fault(where, 0, 0, "", f"{what.format(number)}: {value!r} belongs to {what.format(before)} too")
    return positions
