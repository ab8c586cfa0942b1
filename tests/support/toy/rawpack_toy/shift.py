"""A step of a transform."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.transforms import Move, Random, Spec, Step

Array = NDArray[Any]


class RandomShift(Step):
    """Moves images to the right, by 0 to `most` pixels; what comes in from the left is 0."""

    def __init__(self, most: int) -> None:
        self.most = most

    def makes(self, spec: Spec) -> Spec:
        return spec.pixels(self)

    def draw(self, random: Random, height: int, width: int) -> int:
        return random.integer(self.most + 1)

    def apply(self, image: Array, drawn: int, out: Array | None = None) -> Array:
        made = np.zeros_like(image)
        made[:, drawn:] = image[:, : image.shape[1] - drawn]
        return made

    def apply_mask(self, mask: Array, drawn: int, out: Array | None = None) -> Array:
        return self.apply(mask, drawn, out)

    def move(self, drawn: int, height: int, width: int) -> Move:
        return Move(shift_x=float(drawn))
