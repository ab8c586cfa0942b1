"""The codec "jpeg": each image is a JPEG file."""

from __future__ import annotations

from rawpack import jpeg
from rawpack.errors import DamagedStoreError, DecodeError
from rawpack.formats.codecs.file_rows import FileRows
from rawpack.formats.field_reader import Array, Box, Rows, ShardField, check_rows, places


class JpegRows(FileRows):
    """One JPEG per sample, decoded directly into the caller's memory."""

    def __init__(self, part: ShardField) -> None:
        super().__init__(part)
        self._color: jpeg.Color = "gray" if part.field.shape[2] == 1 else "rgb"

    def read(self, row: int, /, box: Box | None = None, scale: int = 1) -> Array:
        data = self.stored(row)
        try:
            # The decoder allocates by the JPEG's own header, which it has checked.
            image = jpeg.decode(data, box=box, scale=scale, color=self._color)
        except (DecodeError, ValueError) as error:
            raise self._damaged(row, error) from error
        if box is None and scale == 1 and image.shape != (shape := self.shape(row)):
            raise DamagedStoreError(f"row {row} of the shard is an image of {image.shape}; {shape} was packed")
        return image

    def read_into(self, rows: Rows, out: Array, at: Rows | None = None, /) -> None:
        color = self._color
        for (i, row), data in zip(places(rows, at), self._files(rows), strict=True):
            try:
                jpeg.decode_whole(data, out=out[i], color=color)
            except (DecodeError, ValueError) as error:
                raise self._damaged(row, error) from error

    def _files(self, rows: Rows) -> list[memoryview]:
        """`stored` of several samples, without an array of each."""
        check_rows(rows, self._rows)
        starts, sizes = self._index["offset"][rows], self._index["bytes"][rows]
        for row in rows[(starts < 0) | (sizes < 0) | (sizes > len(self._data) - starts)].tolist():
            self.stored(row)  # raises
        data = self._data.data
        return [data[start:end] for start, end in zip(starts.tolist(), (starts + sizes).tolist(), strict=True)]

    def _damaged(self, row: int, error: Exception) -> DamagedStoreError:
        if isinstance(error, DecodeError):
            return DamagedStoreError(f"row {row} of the shard does not decode: {error}")
        return DamagedStoreError(f"row {row} of the shard is not an image of {self.shape(row)}: {error}")
