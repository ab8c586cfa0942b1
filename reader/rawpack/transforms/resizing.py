"""Resizing, also with the center crop of `image_size=`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rawpack.errors import UsageError
from rawpack.pixels.geometry import RESIZABLE, cover_size, crop_box
from rawpack.transforms.arguments import Interpolation, interpolation_of, size_of
from rawpack.transforms.randomness import Random
from rawpack.transforms.step import Array, Move, Spec, Step


def resizable(step: object, spec: Spec) -> Spec:
    """`spec`, or UsageError if OpenCV does not resize such images."""
    if spec.pixels(step).dtype not in RESIZABLE:
        raise UsageError(f"{step!r} resizes {', '.join(RESIZABLE)}, not {spec.dtype}")
    return spec


class Resize(Step):
    """Resize to (height, width), or the shorter side to a given length."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Interpolation | Any = "bilinear",
        max_size: int | None = None,
        antialias: bool = True,
    ) -> None:
        """size: (height, width), or the length of the shorter side; the longer one then keeps the aspect ratio.
        max_size: with one length, the most that the longer side may become; the shorter one then becomes less.

        interpolation: for enlarging. antialias: average pixels along axes that shrink, whatever the interpolation (but
        not for "nearest"); False interpolates there too, which is faster and causes aliasing. "area" is OpenCV's
        INTER_AREA, which averages only where both axes shrink.
        """
        self.size: int | tuple[int, int] = size_of(size)[0] if isinstance(size, int) else size_of(size)
        if max_size is not None and (not isinstance(self.size, int) or max_size <= self.size):
            raise UsageError(f"max_size={max_size!r} must be more than size=, which must be one side")
        self.interpolation, self.antialias, self.max_size = interpolation_of(interpolation), antialias, max_size

    def makes(self, spec: Spec) -> Spec:
        return self.makes_mask(resizable(self, spec))

    def makes_mask(self, spec: Spec) -> Spec:
        height, width = spec.pixels(self).shape[:2]
        if not isinstance(self.size, int):
            return spec.sized(*self.size)
        return spec.sized(None, None) if height is None or width is None else spec.sized(*self._size(height, width))

    def draw(self, random: Random, height: int, width: int) -> tuple[int, int]:
        return self._size(height, width)

    def apply(self, image: Array, drawn: tuple[int, int], out: Array | None = None) -> Array:
        from rawpack.pixels.resize import to_size

        return to_size(image, drawn, self.interpolation, self.antialias, out)

    def apply_mask(self, mask: Array, drawn: tuple[int, int], out: Array | None = None) -> Array:
        from rawpack.pixels.resize import fit_nearest

        return fit_nearest(mask, drawn, fit="stretch")

    def move(self, drawn: tuple[int, int], height: int, width: int) -> Move:
        return Move(scale_y=drawn[0] / height, scale_x=drawn[1] / width)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        if not isinstance(self.size, int):
            return self.size
        short, long = min(height, width), max(height, width)
        new_short, new_long = self.size, max(1, int(self.size * long / short))
        if self.max_size is not None and new_long > self.max_size:
            new_short, new_long = max(1, int(self.max_size * new_short / new_long)), self.max_size
        return (new_short, new_long) if height <= width else (new_long, new_short)


class Fit(Step):
    """Resize to cover (height, width) and crop the center: what `image_size=` does.

    For a square, the same as `Resize(side)` and `CenterCrop(side)`.
    """

    def __init__(self, size: int | Sequence[int]) -> None:
        """size: a side, or (height, width)."""
        self.size = size_of(size)

    def makes(self, spec: Spec) -> Spec:
        return self.makes_mask(resizable(self, spec))

    def makes_mask(self, spec: Spec) -> Spec:
        return spec.pixels(self).sized(*self.size)

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        from rawpack.pixels.resize import fit

        return fit(image, self.size)[0]

    def apply_mask(self, mask: Array, drawn: Any, out: Array | None = None) -> Array:
        from rawpack.pixels.resize import fit_nearest

        return fit_nearest(mask, self.size)

    def move(self, drawn: Any, height: int, width: int) -> Move:
        scaled = cover_size((height, width), self.size)
        top, left, _, _ = crop_box(scaled, self.size)
        return Move(scaled[0] / height, -top, scaled[1] / width, -left)
