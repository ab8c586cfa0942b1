"""How a field of a shard is read: the contract that every format and codec keeps, and what it is told."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Placement
from rawpack.disk.tables import resolve
from rawpack.errors import UsageError

Array = NDArray[Any]
Rows = NDArray[np.int64]
Box = tuple[int, int, int, int]
"""(y, x, h, w) in stored pixels."""


class FieldReader(Protocol):
    """One image or mask field of one shard. It keeps no state between calls: any number of threads may use it."""

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        """Fill out[i], or out[at[i]] where `at` is given, with the sample at rows[i]. Uniform fields only.

        rows, at: int64 (n,). out: the caller's, C order, (n, *shape) or longer, of the field's dtype. Raises IndexError
        for rows that the shard does not have.
        """

    def read(self, row: int, /, box: Box | None = None, scale: int = 1) -> Array:
        """One sample, or its part `box`, reduced by `scale` (1, 2, 4 or 8): a new array, or a read-only view of the
        mapped file."""

    def readahead(self, rows: Rows, /) -> None:
        """Ask the system to read these samples from the disk in the background. Returns at once."""

    def is_cached(self, row: int, /) -> bool:
        """Whether the sample's first byte is in the page cache; True where the system does not say. Reads nothing."""

    def shape(self, row: int, /) -> tuple[int, ...]:
        """Shape of one sample, from the index. Decodes nothing."""

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        """The sample's stored bytes, decompressed but not decoded: those that its checksum covers."""


class ShardField(msgspec.Struct, frozen=True):
    """One image or mask field of one shard: its mapped file, where it is in that file, and its rows of the index."""

    where: str
    data: NDArray[np.uint8]
    rows: int
    field: Field
    placement: Placement
    index: dict[str, NDArray[Any]]
    """The shard's rows of "offset", "bytes", "shape" and "chunk": those that the encoding has, see `Field.index`."""

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(self.field.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of every sample as it is read. Uniform fields only."""
        return tuple(n for n in self.field.shape if n is not None)

    @property
    def sample_bytes(self) -> int:
        """Of every sample as it is stored. Uniform fields only."""
        return self.dtype.itemsize * math.prod(self.field.stored_shape)


def open_rows(part: ShardField) -> FieldReader:
    """The reader of a field by its codec. For formats, once they have checked the file's header."""
    reader: FieldReader = resolve(part.field.codec.open)(part)
    return reader


def planes_of(reader: FieldReader, row: int) -> NDArray[np.uint8]:
    """The planes of an image that is stored so, decompressed. By default, the stored bytes are that."""
    planes: Callable[[int], NDArray[np.uint8]] = getattr(reader, "planes", reader.stored)
    return planes(row)


def check_rows(rows: Rows, count: int) -> None:
    """Raise IndexError for rows outside 0 .. count - 1."""
    if not len(rows):
        return
    # One pass: as unsigned numbers, negative rows are very large. argmax takes half as long as max.
    unsigned = rows.view(np.uint64)
    if unsigned.item(unsigned.argmax()) >= count:
        raise no_row(rows[(rows < 0) | (rows >= count)][0], count)


def check_row(row: int, count: int) -> None:
    """Raise IndexError for a row outside 0 .. count - 1."""
    if not 0 <= row < count:
        raise no_row(row, count)


def no_row(row: int, count: int) -> IndexError:
    return IndexError(f"there is no row {row}: there are {count}")


def places(rows: Rows, at: Rows | None) -> Iterable[tuple[int, int]]:
    """(index in `out`, row) of each sample, as `FieldReader.read_into` describes them."""
    return enumerate(rows.tolist()) if at is None else zip(at.tolist(), rows.tolist(), strict=True)


def cut(image: Array, box: Box | None, scale: int) -> Array:
    """The part `box` of an image, reduced by `scale` by averaging. A view where scale is 1."""
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
    """Raise UsageError for a box that is not inside an image of size (height, width)."""
    y, x, h, w = box
    if y < 0 or x < 0 or h < 1 or w < 1 or y + h > size[0] or x + w > size[1]:
        raise UsageError(f"box {box} is not inside an image of {size[0]}x{size[1]} (height x width)")
