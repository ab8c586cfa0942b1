"""The codecs "ycgco420" and "ycgco420_deflate": planes of YCgCo 4:2:0, read as RGB (see `rawpack.pixels.yuv420`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DamagedStoreError
from rawpack.formats.codecs import deflate, raw
from rawpack.formats.field_reader import (
    Array,
    Box,
    FieldReader,
    Rows,
    ShardField,
    check_box,
    check_row,
    check_rows,
    cut,
    places,
)
from rawpack.pixels import yuv420
from rawpack.pixels.geometry import planar_bytes


def open_rows(part: ShardField) -> FieldReader:
    planes = raw.open_rows(part) if part.field.codec.in_place else deflate.DeflatedRows(part)
    return PlanarRows(planes, part.rows, part.shape if part.field.uniform else None)


class PlanarRows:
    """See `FieldReader`. Converts only the part of the planes that is requested."""

    def __init__(self, planes: FieldReader, rows: int, shape: tuple[int, ...] | None) -> None:
        """planes: reads `rows` samples as they are stored. shape: (H, W, 3) of every image; None where they differ, and
        `planes` has the shape of each."""
        self._planes, self._rows, self._shape = planes, rows, shape

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, self._rows)
        for i, row in places(rows, at):
            self._converted(row, out=out[i])

    def read(self, row: int, /, box: Box | None = None, scale: int = 1) -> Array:
        return cut(self._converted(row, box), None, scale)

    def _converted(self, row: int, box: Box | None = None, out: Array | None = None) -> Array:
        shape = self.shape(row)
        size = shape[0], shape[1]
        stored = self.planes(row)
        if box is not None:
            check_box(box, size)
        return yuv420.to_rgb(stored, size, box, out)

    def planes(self, row: int, /) -> NDArray[np.uint8]:
        """The planes of a sample, one after another. Raises DamagedStoreError where its shape does not fit."""
        stored, shape = self._planes.stored(row), self.shape(row)
        if len(stored) != planar_bytes((shape[0], shape[1])) or min(shape) < 1:
            raise DamagedStoreError(f"row {row} of the shard has {len(stored)} bytes; its shape {shape} does not fit")
        return stored

    def readahead(self, rows: Rows, /) -> None:
        self._planes.readahead(rows)

    def is_cached(self, row: int, /) -> bool:
        return self._planes.is_cached(row)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, self._rows)
        return self._shape or self._planes.shape(row)

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        return self._planes.stored(row)
