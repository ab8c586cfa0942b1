"""What a format needs to know to read one image or mask field of one shard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Placement
from rawpack.disk.tables import resolve
from rawpack.formats.field_reader import FieldReader


@dataclass(frozen=True)
class ShardField:
    """One image or mask field of one shard: its mapped file, where it is in that file, and its rows of the index."""

    where: str
    """Path of the file, for errors."""
    data: NDArray[np.uint8]
    """The whole file, mapped read-only."""
    rows: int
    field: Field
    placement: Placement
    index: dict[str, NDArray[Any]]
    """The shard's rows of "offset", "bytes", "shape" and "chunk": those that the encoding has, see `Field.index`."""

    @property
    def uniform(self) -> bool:
        return self.field.uniform

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(self.field.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of every sample as it is read. Uniform fields only."""
        return tuple(n for n in self.field.shape if n is not None)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Shape of every sample as it is stored. Uniform fields only."""
        return self.field.stored_shape

    @property
    def sample_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.stored_shape)


def open_rows(part: ShardField) -> FieldReader:
    """The reader of a field by its codec. For formats, once they have checked the file's header."""
    reader: FieldReader = resolve(part.field.codec.open)(part)
    return reader
