"""The encoding "runs", written."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.tables import Encoder

ENCODER = Encoder("runs", "rawpack_toy.runs_encoder:encode")


def encode(image: NDArray[Any], recipe: Recipe) -> NDArray[np.uint8]:
    """The bytes of an image or mask as runs, (n,)."""
    pairs = bytearray()
    for value, same in groupby(np.ascontiguousarray(image).tobytes()):
        count = sum(1 for _ in same)
        while count:
            pairs += bytes((min(count, 255), value))
            count -= min(count, 255)
    return np.frombuffer(bytes(pairs), np.uint8)
