"""What a format needs to know to read one image or mask field of one shard."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Placement
from rawpack.disk.tables import resolve
from rawpack.formats.field_reader import FieldReader, Rows


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
    """"offset", "bytes", "shape" and "chunk", as far as the encoding has them: this shard's rows only."""

    @property
    def uniform(self) -> bool:
        return self.field.uniform

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(self.field.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of every sample as it is read; only where the field is uniform."""
        return tuple(n for n in self.field.shape if n is not None)

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Of every sample as it is stored; only where the field is uniform."""
        return self.field.stored_shape

    @property
    def sample_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.stored_shape)

    @property
    def offsets(self) -> Rows:
        return self.index["offset"]

    @property
    def sizes(self) -> Rows:
        return self.index["bytes"]

    @property
    def shapes(self) -> NDArray[np.int32]:
        return self.index["shape"]

    @property
    def chunks(self) -> NDArray[np.int64]:
        return self.index["chunk"]


def open_rows(part: ShardField) -> FieldReader:
    """The reader of a field by its codec, for formats whose header has been checked."""
    reader: FieldReader = resolve(part.field.codec.open)(part)
    return reader
