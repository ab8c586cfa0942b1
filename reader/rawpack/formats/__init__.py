"""The formats, read: one module each, and the contract they keep. Their rows are in `rawpack.disk.tables`."""

from __future__ import annotations

from rawpack.formats.field_reader import FieldReader
from rawpack.formats.shard_field import ShardField

__all__ = ["FieldReader", "ShardField"]
