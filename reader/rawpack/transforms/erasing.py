"""Random erasing: a random box of each image is overwritten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from fractions import Fraction
from typing import Literal

import numpy as np

from rawpack.errors import UsageError
from rawpack.transforms.arguments import check_values, probability, range_of
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, Box, Spec, Step

_ATTEMPTS = 10


Erased = tuple[Box, int]
"""What is erased of one image, and the key of the random numbers in it, where these are wanted."""


class RandomErasing(Step):
    """Overwrite a random box with a value or with noise, with probability `p`. Masks and boxes stay as they are, and so
    do images of other kinds than uint8 of three channels beside such, unless `fields` names them."""

    def __init__(
        self,
        p: float = 0.5,
        scale: Sequence[float] = (0.02, 0.33),
        ratio: Sequence[float] = (0.3, 3.3),
        value: float | Sequence[float] | Literal["random"] = 0,
        *,
        fields: Sequence[str] | None = None,
    ) -> None:
        """scale: least and greatest share of the image's area. ratio: least and greatest height / width. value: one for
        all channels, one for each, or "random" for normally distributed noise. All are in the units of the image at
        this place in the list: bytes before Normalize, normalized floats after it. fields: see above."""
        self.only(fields)
        self.p, self.ratio = probability("p", p), range_of("ratio", ratio)
        self.scale = range_of("scale", scale)
        if self.scale[1] > 1:
            raise UsageError(f"scale={scale!r} must be shares of the image's area, at most 1")
        if isinstance(value, str) and value != "random":
            raise UsageError(f'value={value!r} must be a number, one for each channel, or "random"')
        self.value = value if isinstance(value, str) else np.array(value).tolist()
        self._log_ratio = math.log(self.ratio[0]), math.log(self.ratio[1])
        self._planes = False

    def makes(self, spec: Spec) -> Spec:
        channels = spec.shape[0] if spec.layout == "CHW" else spec.pixels(self).shape[2]
        if self.value == "random":
            if np.dtype(spec.dtype).kind != "f":
                raise UsageError(f'{self!r}: value="random" needs floats, not {spec.dtype}: put it after Normalize')
        else:
            check_values(self, "value", self.value, spec.dtype, channels)
        return spec

    def fitted(self, spec: Spec) -> RandomErasing:
        fitted = copy(self)
        fitted._planes = spec.layout == "CHW"
        return fitted

    def plain(self) -> None:
        return None

    def scaled(self, factor: Fraction) -> RandomErasing:
        return self  # boxes are shares of the image

    def magnified(self, drawn: Erased | None, times: int) -> Erased | None:
        if drawn is None:
            return None
        (y, x, height, width), key = drawn
        return (y * times, x * times, height * times, width * times), key

    def draw(self, random: Random, height: int, width: int) -> Erased | None:
        if random.random() >= self.p:
            return None
        for _ in range(_ATTEMPTS):
            area = height * width * random.uniform(*self.scale)
            aspect = math.exp(random.uniform(*self._log_ratio))
            h, w = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if h < height and w < width:
                y, x = random.integer(height - h + 1), random.integer(width - w + 1)
                return (y, x, h, w), random.integer(1 << 53) if self.value == "random" else 0
        return None

    def apply(self, image: Array, drawn: Erased | None, out: Array | None = None) -> Array:
        if drawn is None:
            return image
        if image is not out:
            # A copy: the image may be the store's own memory.
            out = np.empty_like(image) if out is None else out
            np.copyto(out, image)
        (y, x, height, width), key = drawn
        box = (out.transpose(1, 2, 0) if self._planes else out)[y : y + height, x : x + width]
        if self.value == "random":
            box[...] = Random(key).generator().standard_normal(box.shape, np.float32)
        else:
            box[...] = self.value
        return out
