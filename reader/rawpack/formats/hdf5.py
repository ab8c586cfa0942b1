"""The HDF5 format: a plain HDF5 file whose image chunks are read at their offsets, without any HDF5 call.

So no lock of the HDF5 library is ever waited for, and nothing in a damaged or hostile file is followed: links,
external storage and virtual datasets have no meaning here. That offsets and datasets agree is what
`rawpack inspect --verify` checks, in a process of its own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import FieldReader
from rawpack.formats.shard_field import ShardField, open_rows

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_VERSION_AT, _END_AT = 8, {0: 40, 1: 44, 2: 28, 3: 28}
"""Of the superblock: its version, and by that the end of what the file holds."""


def used_bytes(data: NDArray[np.uint8]) -> int:
    """The bytes that a file holds by its own header. Raises DamagedStoreError where there is none."""
    end = _END_AT.get(int(data[_VERSION_AT])) if data[:8].tobytes() == _SIGNATURE and len(data) > 64 else None
    if end is None:
        raise DamagedStoreError("it has no HDF5 header that rawpack knows")
    return int.from_bytes(data[end : end + 8].tobytes(), "little")


def open_field(part: ShardField) -> FieldReader:
    """The reader of one image or mask field of one shard."""
    if part.data[:8].tobytes() != _SIGNATURE:
        raise DamagedStoreError(f"{part.where} is not an HDF5 file")
    return open_rows(part)
