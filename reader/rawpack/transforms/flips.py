"""Flips."""

from __future__ import annotations

from contextlib import suppress

from rawpack.transforms.arguments import probability
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, Move, Spec, Step


class _RandomFlip(Step):
    _axis: int
    """1 swaps left and right, 0 top and bottom."""

    def __init__(self, p: float = 0.5) -> None:
        """p: the probability of a flip."""
        self.p = probability("p", p)

    def makes(self, spec: Spec) -> Spec:
        return spec.pixels(self)

    def draw(self, random: Random, height: int, width: int) -> bool:
        return random.random() < self.p

    def apply(self, image: Array, drawn: bool, out: Array | None = None) -> Array:
        if not drawn:
            return image
        import cv2

        if image.dtype.kind not in "iu" or image.dtype.itemsize < 8:  # OpenCV silently casts those to int32
            with suppress(cv2.error):  # it does not support all dtypes and numbers of channels
                return cv2.flip(image, self._axis, dst=out).reshape(image.shape)
        return image[:, ::-1].copy() if self._axis else image[::-1].copy()

    def apply_mask(self, mask: Array, drawn: bool, out: Array | None = None) -> Array:
        return self.apply(mask, drawn, out)


class RandomHorizontalFlip(_RandomFlip):
    """Swap left and right, with probability `p`."""

    _axis = 1

    def move(self, drawn: bool, height: int, width: int) -> Move:
        return Move(scale_x=-1.0, shift_x=float(width)) if drawn else Move()


class RandomVerticalFlip(_RandomFlip):
    """Swap top and bottom, with probability `p`."""

    _axis = 0

    def move(self, drawn: bool, height: int, width: int) -> Move:
        return Move(scale_y=-1.0, shift_y=float(height)) if drawn else Move()
