"""The three formats, written: one module each, and the contract they keep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rawpack.manifest import Field
from rawpack_packer.fields import IMAGE
from rawpack_packer.recipe import Recipe
from rawpack_packer.writers import hdf5, lmdb, memmap
from rawpack_packer.writers.contract import Finished, Keys, ShardWriter, large

WRITERS: dict[str, Callable[[Sequence[Path], Recipe, Mapping[str, Field]], ShardWriter]] = {
    "hdf5": hdf5.Hdf5Writer,
    "lmdb": lmdb.LmdbWriter,
    "memmap": memmap.MemmapWriter,
}

SUFFIXES = {"hdf5": ".h5", "lmdb": ".lmdb", "memmap": ".npy"}


def shard_names(number: int, format: str, fields: Mapping[str, Field]) -> list[str]:
    """The files of a shard: one, or in memmap stores one for each image and mask field."""
    names = large(fields) if format == "memmap" else [IMAGE]
    return [f"shard-{number:05d}{'' if name == IMAGE else '.' + name}{SUFFIXES[format]}" for name in names]


__all__ = ["SUFFIXES", "WRITERS", "Finished", "Keys", "ShardWriter", "shard_names"]
