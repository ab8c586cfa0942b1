"""The three formats, written: one module each, and the contract they keep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rawpack_packer.recipe import Recipe
from rawpack_packer.writers import hdf5, lmdb, memmap
from rawpack_packer.writers.contract import Finished, Keys, ShardWriter

WRITERS: dict[str, Callable[[Path, Recipe], ShardWriter]] = {
    "hdf5": hdf5.Hdf5Writer,
    "lmdb": lmdb.LmdbWriter,
    "memmap": memmap.MemmapWriter,
}

SUFFIXES = {"hdf5": ".h5", "lmdb": ".lmdb", "memmap": ".npy"}

__all__ = ["SUFFIXES", "WRITERS", "Finished", "Keys", "ShardWriter"]
