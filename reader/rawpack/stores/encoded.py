"""Samples that lie as JPEG files inside a mapped file."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.errors import DamagedStoreError, DecodeError
from rawpack.stores.contract import Array, Box, Rows, check_row, check_rows
from rawpack.stores.raw import span

_MAX_PIXELS_PER_BYTE = 2048
"""No JPEG holds more: a block of 64 pixels takes at least one bit in one component. A header that promises more is
refused before memory is taken for it."""


class JpegRows:
    """One JPEG per sample, each at its offset: decoded straight into the caller's memory."""

    def __init__(
        self,
        data: NDArray[np.uint8],
        offsets: Rows,
        sizes: Rows,
        channels: int,
        shape: tuple[int, ...] | None,
        shapes: NDArray[np.int32] | None,
    ) -> None:
        """data: the mapped file. shape: (H, W, C) of every sample, or None where `shapes` gives that of each."""
        self._data, self._offsets, self._sizes = data, offsets, sizes
        self._color: jpeg.Color = "gray" if channels == 1 else "rgb"
        self._shape, self._shapes = shape, shapes

    def shape(self, row: int, /) -> tuple[int, ...]:
        check_row(row, len(self._offsets))
        if self._shapes is None:
            return self._shape or ()
        return tuple(self._shapes[row].tolist())

    def stored(self, row: int, /) -> NDArray[np.uint8]:
        check_row(row, len(self._offsets))
        return span(self._data, int(self._offsets[row]), int(self._sizes[row]), row)

    def read(self, row: int, /, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        data, (height, width, channels) = self.stored(row), self.shape(row)
        if height < 1 or width < 1 or height * width > _MAX_PIXELS_PER_BYTE * len(data):
            raise DamagedStoreError(
                f"row {row} of the shard has {len(data)} bytes, too few for {height}x{width} pixels"
            )
        plain = box is None and scale == 1
        if plain and out is None:
            out = np.empty((height, width, channels), np.uint8)
        try:
            return jpeg.decode(data, box=box, scale=scale, out=out, color=self._color)
        except DecodeError as error:
            raise DamagedStoreError(f"row {row} of the shard does not decode: {error}") from error
        except ValueError as error:
            raise DamagedStoreError(f"row {row} of the shard is no image of {height}x{width}: {error}") from error

    def read_into(self, rows: Rows, out: Array, /) -> None:
        check_rows(rows, len(self._offsets))
        for i, row in enumerate(rows.tolist()):
            self.read(row, out=out[i])
