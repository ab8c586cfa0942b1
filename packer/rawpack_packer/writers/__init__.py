"""The three formats, written: one module each, and the contract they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rawpack.disk.manifest import Field
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.writers.contract import Finished, Keys, ShardWriter, large

SUFFIXES = {"hdf5": ".h5", "lmdb": ".lmdb", "memmap": ".npy"}


def open_writer(paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> ShardWriter:
    """Begin a shard of the recipe's format. Its writer is loaded now: a worker has no use for others' libraries."""
    if recipe.format == "hdf5":
        from rawpack_packer.writers.hdf5 import Hdf5Writer

        return Hdf5Writer(paths, recipe, fields)
    if recipe.format == "lmdb":
        from rawpack_packer.writers.lmdb import LmdbWriter

        return LmdbWriter(paths, recipe, fields)
    from rawpack_packer.writers.memmap import MemmapWriter

    return MemmapWriter(paths, recipe, fields)


def shard_names(number: int, format: str, fields: Mapping[str, Field]) -> list[str]:
    """The files of a shard: one, or in memmap stores one for each image and mask field."""
    names = large(fields) if format == "memmap" else [IMAGE]
    return [f"shard-{number:05d}{'' if name == IMAGE else '.' + name}{SUFFIXES[format]}" for name in names]


__all__ = ["SUFFIXES", "Finished", "Keys", "ShardWriter", "open_writer", "shard_names"]
