"""Reading the formats: one module each, and the contract that they keep. `rawpack.disk.tables` lists them."""

from __future__ import annotations

from rawpack.formats.field_reader import FieldReader, ShardField

__all__ = ["FieldReader", "ShardField"]
