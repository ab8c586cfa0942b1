"""The memmap format: each shard file is one `.npy` array that `np.load(..., mmap_mode="r")` opens.

Samples of one shape are the rows of that array. Samples of different shapes are one after another in a flat array, at
the offsets in the index; so are samples that are compressed, as bytes.
"""

from __future__ import annotations

import numpy as np

from rawpack.disk import npy
from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import FieldReader, ShardField, open_rows


def open_field(part: ShardField) -> FieldReader:
    """The reader of one image or mask field of one shard. Raises DamagedStoreError where header and manifest differ."""
    dtype, shape, offset = npy.parse(part.data, part.where)
    declared = part.dtype if part.field.codec.in_place else np.dtype(np.uint8)
    values = part.placement.bytes // declared.itemsize
    whole = part.field.uniform and part.field.codec.in_place
    expected = (part.rows, *part.field.stored_shape) if whole else (values,)
    if dtype != declared or shape != expected or offset != part.placement.offset:
        raise DamagedStoreError(f"{part.where} contains {dtype} {shape}; the manifest says {declared} {expected}")
    return open_rows(part)
