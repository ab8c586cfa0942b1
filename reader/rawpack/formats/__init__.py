"""The three formats, read: one module each, and the contract they keep."""

from __future__ import annotations

from collections.abc import Callable

from rawpack.formats import hdf5, lmdb, memmap
from rawpack.formats.field_reader import FieldReader
from rawpack.formats.shard_field import ShardField

FORMATS: dict[str, Callable[[ShardField], FieldReader]] = {
    "hdf5": hdf5.open_field,
    "lmdb": lmdb.open_field,
    "memmap": memmap.open_field,
}

__all__ = ["FORMATS", "FieldReader", "ShardField"]
