"""The LMDB format: JPEG files as values of an LMDB database, read at the offsets that packing recorded.

liblmdb is not called: a damaged page would kill the process, and it refuses to open one file twice. That offsets and
database agree is what `rawpack inspect --verify` checks, in a process of its own.
"""

from __future__ import annotations

from rawpack.errors import DamagedStoreError
from rawpack.stores.contract import FieldReader
from rawpack.stores.encoded import JpegRows
from rawpack.stores.parts import Part

_MAGIC = (0xBEEFC0DE).to_bytes(4, "little")
_MAGIC_AT = 16  # after the page header


def open_field(part: Part) -> FieldReader:
    """The reader of one image field of one shard."""
    if part.data[_MAGIC_AT : _MAGIC_AT + 4].tobytes() != _MAGIC:
        raise DamagedStoreError(f"{part.where} is not an LMDB file")
    channels = part.field.shape[2] or 0
    if part.uniform:
        return JpegRows(part.data, part.offsets, part.sizes, channels, part.shape, None)
    return JpegRows(part.data, part.offsets, part.sizes, channels, None, part.shapes)
