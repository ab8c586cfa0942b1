"""The three formats, written: one module each, and the contract they keep."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from rawpack.manifest import Field
from rawpack_packer.fields import IMAGE
from rawpack_packer.recipe import Recipe
from rawpack_packer.writers.contract import Finished, Keys, ShardWriter, large

WRITERS = {"hdf5": "Hdf5Writer", "lmdb": "LmdbWriter", "memmap": "MemmapWriter"}
"""Format -> the class in the module of its name."""

SUFFIXES = {"hdf5": ".h5", "lmdb": ".lmdb", "memmap": ".npy"}


def open_writer(paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> ShardWriter:
    """Begin a shard of the recipe's format. Its module is loaded now: a worker has no use for others' libraries."""
    writer: ShardWriter = getattr(import_module(f"{__name__}.{recipe.format}"), WRITERS[recipe.format])(
        paths, recipe, fields
    )
    return writer


def shard_names(number: int, format: str, fields: Mapping[str, Field]) -> list[str]:
    """The files of a shard: one, or in memmap stores one for each image and mask field."""
    names = large(fields) if format == "memmap" else [IMAGE]
    return [f"shard-{number:05d}{'' if name == IMAGE else '.' + name}{SUFFIXES[format]}" for name in names]


__all__ = ["SUFFIXES", "WRITERS", "Finished", "Keys", "ShardWriter", "open_writer", "shard_names"]
