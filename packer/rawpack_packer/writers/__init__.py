"""Writers of shards, with one module for each format. `recipe.tables` lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rawpack.disk.manifest import Field
from rawpack.disk.tables import format_of, resolve
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.writers.contract import Finished, Keys, ShardWriter, large


def open_writer(paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> ShardWriter:
    """Begin a shard of the recipe's format. The module, with its library, is loaded only now."""
    writer: ShardWriter = resolve(output_format(recipe.format).writer)(paths, recipe, fields)
    return writer


def shard_names(number: int, format: str, fields: Mapping[str, Field]) -> list[str]:
    """The names of a shard's files: one, or one for each image and mask field."""
    names = large(fields) if output_format(format).file_per_field else [IMAGE]
    suffix = format_of(format).suffix
    return [f"shard-{number:05d}{'' if name == IMAGE else '.' + name}{suffix}" for name in names]


__all__ = ["Finished", "Keys", "ShardWriter", "open_writer", "shard_names"]
