"""How much space and time packing will take, from a few samples spread over the source."""

from __future__ import annotations

import math
import time
import zlib
from dataclasses import dataclass

from rawpack.errors import DecodeError
from rawpack_packer.prepare import prepare
from rawpack_packer.recipe import Recipe
from rawpack_packer.sources import Source, SourceChangedError

_SAMPLES = 24
_INDEX_BYTES = 100
"""Per sample: label, key, checksum and where it lies."""


@dataclass(frozen=True)
class Estimate:
    """What a few samples say of all."""

    tried: int
    rejected: int
    """Of those tried: not representative, but a warning."""
    store_bytes: int
    """Of the finished store; 0 where no sample tells."""
    spare_bytes: int
    """Needed beside it while packing."""
    seconds: float
    """With all workers busy; from one worker's pace on an otherwise idle core."""


def estimate(source: Source, recipe: Recipe, workers: int, samples: int = _SAMPLES) -> Estimate:
    """Pack a few samples into nothing. The bytes of raw images of one size are exact, all else is about."""
    sizes: list[int] = []
    tried = min(samples, len(source))
    began = time.perf_counter()
    for k in range(tried):
        try:
            image = prepare(source[k * len(source) // tried].image, recipe).image
        except DecodeError:
            continue
        except SourceChangedError:
            break  # packing will say so, with what changed
        sizes.append(len(zlib.compress(image.data, 4)) if recipe.encoding == "deflate" else image.nbytes)
    seconds = (time.perf_counter() - began) / max(1, tried) * len(source) / max(1, workers)
    each = exact_bytes(recipe) or (sum(sizes) / len(sizes) if sizes else 0.0)
    spare = 0.0
    if recipe.format == "hdf5":
        # Pixels lie in a spool file before they lie in the shard.
        parts = min(max(1, workers), math.ceil(len(source) / recipe.part_rows))
        spare = parts * min(len(source), recipe.part_rows) * each
    store = len(source) * (each + _INDEX_BYTES) if each else 0
    return Estimate(tried, tried - len(sizes), int(store), int(spare), seconds)


def exact_bytes(recipe: Recipe) -> int:
    """Bytes of every stored image where the recipe alone says it, else 0."""
    if recipe.encoding == "raw" and recipe.target is not None:
        return math.prod(recipe.target) * recipe.channels
    return 0
