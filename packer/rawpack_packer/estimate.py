"""How much space a store will take, from a few of its samples."""

from __future__ import annotations

import math
import zlib

from rawpack.errors import DecodeError, PackError
from rawpack_packer.prepare import prepare
from rawpack_packer.recipe import Recipe
from rawpack_packer.sources import Source

_SAMPLES = 24
_INDEX_BYTES = 100
"""Per sample: label, key, checksum and where it lies."""


def store_bytes(source: Source, recipe: Recipe, workers: int) -> int:
    """The bytes of the store, about: exact for raw images of one size, else by a few samples spread over the source.

    What packing needs beside it is in it: the space for the shards in the making. 0 where no sample tells.
    """
    total = len(source)
    if recipe.encoding == "raw" and recipe.target is not None:
        each: float = math.prod(recipe.target) * recipe.channels
    else:
        each = _mean(source, recipe)
    store = int(total * (each + _INDEX_BYTES)) if each else 0
    if recipe.format == "hdf5":
        # Pixels lie in a spool file before they lie in the shard.
        store += int(min(workers, math.ceil(total / recipe.part_rows)) * min(total, recipe.part_rows) * each)
    return store


def _mean(source: Source, recipe: Recipe) -> float:
    sizes = []
    count = min(_SAMPLES, len(source))
    for k in range(count):
        try:
            sample = prepare(source[k * len(source) // count].image, recipe)
        except (DecodeError, PackError):
            continue
        image = sample.image
        sizes.append(len(zlib.compress(image.data, 4)) if recipe.encoding == "deflate" else image.nbytes)
    return sum(sizes) / len(sizes) if sizes else 0.0
