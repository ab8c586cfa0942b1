"""Flips."""

from __future__ import annotations

from contextlib import suppress

from rawpack.transforms.arguments import probability
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, Move, Spec, Step


class _RandomFlip(Step):
    _axis: int
    """Of the image: 1 for left and right, 0 for up and down."""

    def __init__(self, p: float = 0.5) -> None:
        """p: how likely it is."""
        self.p = probability("p", p)

    def makes(self, spec: Spec) -> Spec:
        return spec.pixels(self)

    def draw(self, random: Random, height: int, width: int) -> bool:
        return random.random() < self.p

    def apply(self, image: Array, drawn: bool, out: Array | None = None) -> Array:
        if not drawn:
            return image
        import cv2

        if image.dtype.kind not in "iu" or image.dtype.itemsize < 8:  # of those, OpenCV makes int32 without a word
            with suppress(cv2.error):  # a dtype or a number of channels that it does not know
                return cv2.flip(image, self._axis, dst=out).reshape(image.shape)
        return image[:, ::-1].copy() if self._axis else image[::-1].copy()

    def apply_mask(self, mask: Array, drawn: bool, out: Array | None = None) -> Array:
        return self.apply(mask, drawn, out)


class RandomHorizontalFlip(_RandomFlip):
    """Left becomes right, with probability `p`."""

    _axis = 1

    def move(self, drawn: bool, height: int, width: int) -> Move:
        return Move(scale_x=-1.0, shift_x=float(width)) if drawn else Move()


class RandomVerticalFlip(_RandomFlip):
    """Up becomes down, with probability `p`."""

    _axis = 0

    def move(self, drawn: bool, height: int, width: int) -> Move:
        return Move(scale_y=-1.0, shift_y=float(height)) if drawn else Move()
