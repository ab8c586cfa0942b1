"""The codecs "zstd" and "ycgco420_zstd": each sample is one frame of zstd, of differences of rows in bands."""

from __future__ import annotations

import math
import sys
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DamagedStoreError, MissingExtraError
from rawpack.formats.codecs.file_rows import FileRows
from rawpack.formats.codecs.yuv420 import PlanarRows
from rawpack.formats.field_reader import Array, Box, FieldReader, Rows, ShardField, check_box, check_rows, cut, places
from rawpack.pixels import bands
from rawpack.pixels.geometry import chroma_size, planar_bytes

Bytes = NDArray[np.uint8]
LEVEL = 1
"""Higher ones take longer, and save 2% at most."""


def library() -> ModuleType:
    """The package of zstd: the standard library's, from Python 3.14 on. Raises MissingExtraError."""
    try:
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
    except ImportError:
        raise MissingExtraError("zstd needs the package backports.zstd: pip install 'rawpack[zstd]'") from None
    found: ModuleType = zstd
    return found


def is_installed() -> bool:
    try:
        library()
    except MissingExtraError:
        return False
    return True


def compress(differences: Bytes) -> Bytes:
    """The frame (n,) of these bytes."""
    return np.frombuffer(library().compress(differences.data, level=LEVEL), np.uint8)


def decompress(frame: Bytes, size: int, row: int) -> Bytes:
    """The `size` bytes of a frame. Raises DamagedStoreError where it is not one frame, without a dictionary, of exactly
    as many; no more are ever allocated."""
    zstd = library()
    try:
        info, inflate = zstd.get_frame_info(frame.data), zstd.ZstdDecompressor()
        if info.decompressed_size != size or info.dictionary_id:
            raise DamagedStoreError(f"row {row} of the shard is a frame of {info.decompressed_size} bytes, not {size}")
        made = inflate.decompress(frame.data, max_length=size)
    except zstd.ZstdError as error:
        raise DamagedStoreError(f"row {row} of the shard does not decompress: {error}") from error
    if len(made) != size or not inflate.eof or inflate.unused_data:
        raise DamagedStoreError(f"row {row} of the shard is no single frame of {size} bytes")
    return np.frombuffer(made, np.uint8)


def open_rows(part: ShardField) -> FieldReader:
    library()
    rows = ZstdRows(part)
    if not part.field.codec.planar:
        return rows
    return ZstdPlanes(rows, part.rows, part.shape if part.field.uniform else None)


class ZstdRows(FileRows):
    """One frame per sample. Of a part, only the bands that it needs are undone."""

    def image(self, row: int) -> Array:
        return self._undone(row)

    def read(self, row: int, /, box: Box | None = None, scale: int = 1) -> Array:
        return cut(self._undone(row, box), None, scale)

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        check_rows(rows, self._rows)
        for i, row in places(rows, at):
            self._undone(row, out=out[i, ...])

    def _undone(self, row: int, box: Box | None = None, out: Any = None) -> Array:
        frame, shape = self.stored(row), self.shape(row)
        if box is not None:
            check_box(box, (shape[0], shape[1]))
        if min(shape, default=1) < 1:
            raise DamagedStoreError(f"row {row} of the shard has the shape {shape}")
        stored = decompress(frame, self._dtype.itemsize * math.prod(shape), row)
        return bands.undo(stored, shape, self._dtype, box, out)


class ZstdPlanes(PlanarRows):
    """The same of planes of YCgCo 4:2:0: the rows of each plane are differences."""

    def planes(self, row: int, /) -> Bytes:
        height, width = self.shape(row)[:2]
        if min(height, width) < 1:
            raise DamagedStoreError(f"row {row} of the shard has an image of {height}x{width}")
        size = height, width
        return undone_planes(decompress(self._planes.stored(row), planar_bytes(size), row), size)


def undone_planes(stored: Bytes, size: tuple[int, int]) -> Bytes:
    """The planes (n,) of an image of this size, of their differences."""
    made, at = np.empty_like(stored), 0
    for height, width in planes_of(size):
        part = slice(at, at + height * width)
        bands.undo(stored[part], (height, width), stored.dtype, None, made[part].reshape(height, width))
        at = part.stop
    return made


def planes_of(size: tuple[int, int]) -> list[bands.Plane]:
    """The planes of an image of this size: Y, Cg and Co."""
    return [size, chroma_size(size), chroma_size(size)]
