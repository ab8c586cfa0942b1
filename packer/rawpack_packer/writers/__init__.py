"""Writers of shards, with one module for each format, and the protocol that all implement. `recipe.tables` lists
them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Placement
from rawpack.disk.tables import format_of, resolve
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.samples.sample import PreparedSample

Keys = Mapping[str, NDArray[Any] | Sequence[str] | Sequence[NDArray[Any]]]
"""Small fields of a shard's rows, by name: numbers as arrays (rows, ...), texts as lists of str, ragged ones as lists
of arrays (n, ...)."""


@dataclass
class Finished:
    """Where one image or mask field of a shard is."""

    placement: Placement
    index: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """"offset" and "bytes" (rows,), and "chunk" (chunks, 2), if the encoding needs them."""


class ShardWriter(Protocol):
    """Writes the files of one shard. Their paths are temporary: the caller syncs and renames them.

    The bytes must depend on the recipe, the images and the small fields only, not on time or the process.
    """

    def add(self, sample: PreparedSample, /) -> None:
        """Append one sample. Raises OSError if the disk is full or gone."""

    def finish(self, columns: Keys, /) -> dict[str, Finished]:
        """Complete and close the files. Returns where each image and mask field is, by name; `file` in a placement is
        a number in the writer's paths.

        columns: the small fields of all rows, for formats that hold a copy of them.
        """

    def abort(self) -> None:
        """Close the files without completing them. May be called at any time, also after `finish`."""


def large(fields: Mapping[str, Field]) -> dict[str, Field]:
    """The image and mask fields, which are in shards."""
    return {name: field for name, field in fields.items() if field.in_shards}


def open_writer(paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> ShardWriter:
    """Begin a shard of the recipe's format. The module, with its library, is loaded only now."""
    writer: ShardWriter = resolve(output_format(recipe.format).writer)(paths, recipe, fields)
    return writer


def shard_names(number: int, format: str, fields: Mapping[str, Field]) -> list[str]:
    """The names of a shard's files: one, or one for each image and mask field."""
    names = large(fields) if output_format(format).file_per_field else [IMAGE]
    suffix = format_of(format).suffix
    return [f"shard-{number:05d}{'' if name == IMAGE else '.' + name}{suffix}" for name in names]
