"""The HDF5 format: plain HDF5 files, whose image chunks are read at their offsets, without any HDF5 call.

Reading therefore never waits for the HDF5 library's lock, and follows nothing in a damaged or hostile file: no links,
no external storage, no virtual datasets. `rawpack inspect --verify` checks, in a process of its own, that offsets and
datasets agree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import FieldReader, ShardField, open_rows

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_VERSION_AT, _END_AT = 8, {0: 40, 1: 44, 2: 28, 3: 28}
"""Offsets in the superblock: of its version, and for each version, of the address at which the file's contents end."""


def used_bytes(data: NDArray[np.uint8]) -> int:
    """The bytes that a file uses by its own header. Raises DamagedStoreError where it has none."""
    end = _END_AT.get(int(data[_VERSION_AT])) if data[:8].tobytes() == _SIGNATURE and len(data) > 64 else None
    if end is None:
        raise DamagedStoreError("it has no HDF5 header that rawpack knows")
    return int.from_bytes(data[end : end + 8].tobytes(), "little")


def open_field(part: ShardField) -> FieldReader:
    if part.data[:8].tobytes() != _SIGNATURE:
        raise DamagedStoreError(f"{part.where} is not an HDF5 file")
    return open_rows(part)
