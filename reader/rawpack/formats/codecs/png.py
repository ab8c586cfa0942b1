"""The codec "png": each mask is a PNG file, which is lossless."""

from __future__ import annotations

from rawpack.errors import DamagedStoreError, DecodeError
from rawpack.formats.codecs.file_rows import FileRows
from rawpack.formats.field_reader import Array
from rawpack.pixels import png


class PngRows(FileRows):
    """One PNG per sample. All of it is decoded, whichever part is requested."""

    def image(self, row: int) -> Array:
        try:
            return png.decode(self.stored(row), self.shape(row), self._dtype)
        except DecodeError as error:
            raise DamagedStoreError(f"row {row} of the shard does not decode: {error}") from error
