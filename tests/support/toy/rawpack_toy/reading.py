"""The format "toy", read: eight bytes that name it, then the samples one after another."""

from __future__ import annotations

from rawpack.disk.tables import Format
from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import FieldReader, ShardField, open_rows

MAGIC = b"TOYSHARD"

FORMAT = Format("toy", ".toy", frozenset({"runs"}), "rawpack_toy.reading:open_field")


def open_field(part: ShardField) -> FieldReader:
    """The reader of one image or mask field of one shard."""
    if part.data[:8].tobytes() != MAGIC:
        raise DamagedStoreError(f"{part.where} is not a toy shard")
    return open_rows(part)
