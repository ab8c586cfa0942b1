"""What `image_size=` asks of a store: one size, or several, of which each image has the best."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.choose.buckets import FoundBuckets
from rawpack.choose.options import Buckets, Options, by_field, size_of
from rawpack.errors import UsageError
from rawpack.pixels.aspects import choose_sizes
from rawpack.store.stores import Stores

if TYPE_CHECKING:
    from rawpack.clips.table import ClipTable

_MOST_PIXELS = 1 << 28
"""More are no size to train with, and have too many sizes to choose from."""


def size_or_buckets(
    library: Stores, rows: NDArray[np.int64] | None, clips: ClipTable | None, options: Options
) -> tuple[tuple[int, int] | None, FoundBuckets | None]:
    """What `image_size=` asks: one size, or buckets."""
    if options.image_size is None:
        return None, None
    images = [name for name, field in library.fields.items() if field.kind == "image"]
    if not images and isinstance(options.image_size, dict):
        raise UsageError("image_size= is by field, and the store has no images")
    # Masks and boxes follow their image.
    asked = by_field("image_size", options.image_size, images, None).get(images[0]) if images else options.image_size
    if asked is None:
        return None, None
    if not isinstance(asked, Buckets):
        return size_of(asked), None
    if not images:
        raise UsageError("Buckets are for images, and the store has none: leave out image_size=")
    if clips is not None:
        if len(clips.shape.lengths) > 1:
            raise UsageError("Buckets are for clips of one length: leave them out, or call clips() with one number")
        rows = clips.first_rows(rows)
    return None, find_buckets(library, images[0], rows, asked)


def find_buckets(library: Stores, name: str, rows: NDArray[np.int64] | None, asked: Buckets) -> FoundBuckets:
    """The buckets of samples with these rows of the library, None for all; of clips, of those of their first frames.

    name: the field of the images.
    """
    field = library.fields[name]
    if len(field.shape) != 3:
        raise UsageError(f"Buckets are for images (height, width, channels), and {name!r} is {field.shape}")
    if field.uniform:
        raise UsageError(
            f"all images of the store are {field.shape[0]}x{field.shape[1]}, so one size is best: pass a size as "
            "image_size=, or leave it out; stores that were packed with --size keep have images of many sizes"
        )
    images = library.shapes(name)[:, :2]
    images = images if rows is None else images[rows]
    if not isinstance(asked.sizes, str):
        return FoundBuckets(images, [size_of(one, "sizes") for one in asked.sizes])
    if asked.area is None:
        area = float(np.median(images.astype(np.int64).prod(axis=1)))
    else:
        area = math.prod(size_of(asked.area, "area"))
    if area > _MOST_PIXELS:
        raise UsageError(f"{asked}: {area:.0f} pixels are too many for one image: pass a smaller area=")
    return FoundBuckets(images, choose_sizes(images, float(area)))
