"""The memmap format: each shard file is one `.npy` array that `np.load(..., mmap_mode="r")` opens.

Samples of one shape are its rows; others are in a flat array one after another, at the index's offsets.
"""

from __future__ import annotations

from rawpack.disk import npy
from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import FieldReader
from rawpack.formats.shard_field import ShardField, open_rows


def open_field(part: ShardField) -> FieldReader:
    """The reader of one image or mask field of one shard; the `.npy` header must say what the manifest says."""
    dtype, shape, offset = npy.parse(part.data, part.where)
    expected = (part.rows, *part.stored_shape) if part.uniform else (part.placement.bytes // part.dtype.itemsize,)
    if dtype != part.dtype or shape != expected or offset != part.placement.offset:
        raise DamagedStoreError(f"{part.where} holds {dtype} {shape}; the manifest says {part.dtype} {expected}")
    return open_rows(part)
