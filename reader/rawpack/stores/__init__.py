"""The three formats, read: one module each, and the contract they keep."""

from __future__ import annotations

from collections.abc import Callable

from rawpack.stores import hdf5, lmdb, memmap
from rawpack.stores.contract import FieldReader
from rawpack.stores.parts import Part

FORMATS: dict[str, Callable[[Part], FieldReader]] = {
    "hdf5": hdf5.open_field,
    "lmdb": lmdb.open_field,
    "memmap": memmap.open_field,
}

__all__ = ["FORMATS", "FieldReader", "Part"]
