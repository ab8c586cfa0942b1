"""The encoding "runs", read: pairs of bytes, how often a value comes and the value."""

from __future__ import annotations

import numpy as np

from rawpack.disk.tables import Codec
from rawpack.errors import DamagedStoreError
from rawpack.formats.codecs.file_rows import FileRows, as_image
from rawpack.formats.field_reader import Array, FieldReader, ShardField

CODEC = Codec("runs", "rawpack_toy.runs:open_rows", index=("offset", "bytes"), max_inflation=128)


def open_rows(part: ShardField) -> FieldReader:
    """See `Codec.open`."""
    return RunRows(part)


class RunRows(FileRows):
    """See `FieldReader`."""

    def image(self, row: int) -> Array:
        stored = self.stored(row)
        if len(stored) % 2:
            raise DamagedStoreError(f"row {row} of the shard ends in the middle of a run")
        values = np.repeat(stored[1::2], stored[::2])
        return as_image(values, self._dtype, self.shape(row), row)
