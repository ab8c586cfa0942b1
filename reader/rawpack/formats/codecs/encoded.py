"""Samples that lie as JPEG or PNG files inside a mapped file."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.disk.mapped import readahead
from rawpack.errors import DamagedStoreError, DecodeError
from rawpack.formats.codecs.raw import span
from rawpack.formats.field_reader import (
    Array,
    Box,
    Rows,
    check_row,
    check_rows,
    cut,
    deliver,
    places,
)
from rawpack.pixels import png
from rawpack.system.memory import is_cached


class _EncodedRows(ABC):
    """One file per sample, each at its offset."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: Rows,
        sizes: Rows,
        shape: tuple[int, ...] | None,
        shapes: NDArray[np.int32] | None,
    ) -> None:
        """data: the mapped file. shape: (H, W, C) of every sample, or None where `shapes` gives that of each."""
        self._data, self._offsets, self._sizes = data, offsets, sizes
        self._shape, self._shapes = shape, shapes

    def readahead(self, rows: Rows, /) -> None:
        readahead(self._data, self._offsets[rows], self._sizes[rows])

    def is_cached(self, row: int, /) -> bool:
        return is_cached(self.stored(row).ctypes.data)

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, len(self._offsets))
        if self._shapes is None:
            return self._shape or ()
        return tuple(self._shapes[row].tolist())

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        check_row(row, len(self._offsets))
        return span(self._data, int(self._offsets[row]), int(self._sizes[row]), row)

    @abstractmethod
    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array: ...

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, len(self._offsets))
        for i, row in places(rows, at):
            self.read(row, out=out[i])


class JpegRows(_EncodedRows):
    """One JPEG per sample: decoded straight into the caller's memory."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: Rows,
        sizes: Rows,
        channels: int,
        shape: tuple[int, ...] | None,
        shapes: NDArray[np.int32] | None,
    ) -> None:
        super().__init__(data, offsets, sizes, shape, shapes)
        self._color: jpeg.Color = "gray" if channels == 1 else "rgb"

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        data, shape = self.stored(row), self.shape(row)
        try:
            # Without `out`, the decoder takes memory by the JPEG's own header, which it has checked.
            image = jpeg.decode(data, box=box, scale=scale, out=out, color=self._color)
        except DecodeError as error:
            raise DamagedStoreError(f"row {row} of the shard does not decode: {error}") from error
        except ValueError as error:
            raise DamagedStoreError(f"row {row} of the shard is no image of {shape}: {error}") from error
        if out is None and box is None and scale == 1 and image.shape != shape:
            raise DamagedStoreError(f"row {row} of the shard is an image of {image.shape}; {shape} was packed")
        return image


class PngRows(_EncodedRows):
    """One PNG per sample, of a mask: decoded whole, whatever part of it is asked for."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: Rows,
        sizes: Rows,
        dtype: np.dtype[np.generic],
        shape: tuple[int, ...] | None,
        shapes: NDArray[np.int32] | None,
    ) -> None:
        super().__init__(data, offsets, sizes, shape, shapes)
        self._dtype = dtype

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        try:
            image = png.decode(self.stored(row), self.shape(row), self._dtype)
        except DecodeError as error:
            raise DamagedStoreError(f"row {row} of the shard does not decode: {error}") from error
        return deliver(cut(image, box, scale), out)
