"""Flips."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rawpack.transforms.arguments import probability
from rawpack.transforms.randomness import Random, Randoms
from rawpack.transforms.step import Array, Drawn, Move, Spec, Step


class _RandomFlip(Step):
    vectorized = any_size = True
    _axis: int
    """1 swaps left and right, 0 top and bottom."""

    def __init__(self, p: float = 0.5, *, fields: Sequence[str] | None = None) -> None:
        """p: the probability of a flip. fields: the images and masks; None for all."""
        self.p = probability("p", p)
        self.only(fields)

    def makes(self, spec: Spec) -> Spec:
        return spec.pixels(self)

    def draw(self, random: Random, height: int, width: int) -> bool:
        return random.random() < self.p

    def draw_many(self, random: Randoms, height: int, width: int) -> Drawn:
        return random.random() < self.p

    def apply(self, image: Array, drawn: bool, out: Array | None = None) -> Array:
        if not drawn:
            return image
        import cv2

        if image.dtype.kind not in "iu" or image.dtype.itemsize < 8:  # OpenCV silently casts those to int32
            try:
                flipped: Array = cv2.flip(image, self._axis, dst=out)
                return flipped if flipped is out else flipped.reshape(image.shape)
            except cv2.error:  # it does not support all dtypes and numbers of channels
                pass
        return image[:, ::-1].copy() if self._axis else image[::-1].copy()

    def apply_many(self, images: Array, drawn: Drawn, out: Array | None = None) -> Array:
        (which,) = np.asarray(drawn).nonzero()
        if not len(which):
            return images
        if len(images) == 1:
            memory = None if out is None else out[0]
            flipped = self.apply(images[0], True, memory)
            return out if out is not None and flipped is memory else flipped[None]
        chosen = images[which]
        if self._axis:
            # The rows of all images at once: left and right do not leave their row.
            flipped = self.apply(chosen.reshape(-1, *chosen.shape[2:]), True).reshape(chosen.shape)
        else:
            flipped = chosen[:, ::-1]
        if images is not out:
            # A copy: the images may be the store's own memory.
            out = np.empty_like(images) if out is None else out
            np.copyto(out, images)
        out[which] = flipped
        return out

    def apply_mask(self, mask: Array, drawn: bool, out: Array | None = None) -> Array:
        return self.apply(mask, drawn, out)

    def move(self, drawn: bool, height: int, width: int) -> Move:
        if not drawn:
            return Move()
        return Move(scale_x=-1.0, shift_x=float(width)) if self._axis else Move(scale_y=-1.0, shift_y=float(height))


class RandomHorizontalFlip(_RandomFlip):
    """Swap left and right, with probability `p`."""

    _axis = 1


class RandomVerticalFlip(_RandomFlip):
    """Swap top and bottom, with probability `p`."""

    _axis = 0
