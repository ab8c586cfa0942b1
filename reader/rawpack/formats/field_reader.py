"""How a field of a shard is read: the one contract that every format keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError

Array = NDArray[Any]
Rows = NDArray[np.int64]
Box = tuple[int, int, int, int]
"""(y, x, h, w) in stored pixels."""


class FieldReader(Protocol):
    """One image or mask field of one shard. Holds no state between calls: any number of threads may call at once."""

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        """Fill out[i], or out[at[i]], with the sample at rows[i], in one call.

        rows: int64 (n,), rows of the shard; others raise IndexError. out: C order, (n, *shape), the field's dtype; the
        caller's. at: int64 (n,), where `out` holds samples of other shards too. Only for fields whose samples have one
        shape.
        """

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        """One sample, or its part `box`, then reduced by `scale` (1, 2, 4, 8).

        A read-only view of the mapped file where the bytes allow it, else a new array; `out` where one is given.
        """

    def readahead(self, rows: Rows, /) -> None:
        """Ask the disk for these samples, so that it reads them while other work is done. Returns at once."""

    def is_cached(self, row: int, /) -> bool:
        """Whether the sample's first byte is in the page cache, as far as the system says; nothing is read."""

    def shape(self, row: int, /) -> tuple[int, ...]:
        """Shape of one sample, from the index: nothing is decoded."""

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        """The sample's bytes as they are stored (decompressed, not decoded): what its checksum is taken over."""


def check_rows(rows: Rows, count: int) -> None:
    """Raise IndexError for rows outside 0 .. count - 1: a gather that clips would return a wrong sample."""
    if not len(rows):
        return
    # One pass: a negative row is a very large one without its sign. By argmax, which takes half as long as max.
    unsigned = rows.view(np.uint64)
    if unsigned.item(unsigned.argmax()) >= count:
        bad = rows[(rows < 0) | (rows >= count)][0]
        raise IndexError(f"row {bad} in a shard of {count} rows")


def check_row(row: int, count: int) -> None:
    """As `check_rows`, for one."""
    if not 0 <= row < count:
        raise IndexError(f"row {row} in a shard of {count} rows")


def places(rows: Rows, at: Rows | None) -> Iterable[tuple[int, int]]:
    """(index in out, row) of each sample to be read."""
    return enumerate(rows.tolist()) if at is None else zip(at.tolist(), rows.tolist(), strict=True)


def cut(image: Array, box: Box | None, scale: int) -> Array:
    """The part `box` of an image, reduced by `scale` by averaging (area); a view where scale is 1."""
    if box is not None:
        check_box(box, (image.shape[0], image.shape[1]))
        y, x, h, w = box
        image = image[y : y + h, x : x + w]
    if scale == 1:
        return image
    if scale not in (2, 4, 8):
        raise UsageError(f"scale {scale}: must be 1, 2, 4 or 8")
    import cv2

    size = (-(-image.shape[1] // scale), -(-image.shape[0] // scale))
    small: Array = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return small.reshape(size[1], size[0], *image.shape[2:])


def check_box(box: Box, size: tuple[int, int]) -> None:
    """Raise UsageError for a box that is not inside an image of this size."""
    y, x, h, w = box
    if y < 0 or x < 0 or h < 1 or w < 1 or y + h > size[0] or x + w > size[1]:
        raise UsageError(f"box {box} is not inside an image of {size[0]}x{size[1]} (height x width)")


def check_out(out: Array | None, shape: tuple[int, ...]) -> None:
    """Raise UsageError where a sample of this shape does not go into `out`."""
    if out is not None and out.shape != shape:
        raise UsageError(f"out has shape {out.shape}; the sample has {shape}")


def deliver(image: Array, out: Array | None) -> Array:
    """`image`, or `out` filled with it."""
    check_out(out, image.shape)
    if out is None:
        return image
    np.copyto(out, image, casting="no")
    return out
