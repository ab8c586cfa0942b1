"""Resizing, also with the center crop of `image_size=`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

from rawpack.checks import size_of
from rawpack.errors import UsageError
from rawpack.pixels.geometry import RESIZABLE, covering
from rawpack.transforms.arguments import Interpolation, interpolation_of
from rawpack.transforms.randomness import Random, Randoms
from rawpack.transforms.step import Array, Drawn, Move, Spec, Step, apart

BILINEAR = ("linear", "bilinear")


def resizable(step: object, spec: Spec) -> Spec:
    """`spec`, or UsageError if OpenCV does not resize such images."""
    if spec.pixels(step).dtype not in RESIZABLE:
        raise UsageError(f"{step!r} resizes {', '.join(RESIZABLE)}, not {spec.dtype}")
    return spec


def resized(
    image: Array, size: tuple[int, int], interpolation: Interpolation, antialias: bool, out: Array | None = None
) -> Array:
    """The image (H, W, C) resized to (height, width); into `out`, if given. Itself where it has that size."""
    out = apart(out, image)
    if interpolation in BILINEAR:
        from rawpack.pixels.resample import resample

        return resample(image, size, antialias=antialias, out=out)
    from rawpack.pixels.resize import to_size

    return to_size(image, size, interpolation, antialias, out)


class _Resizing(Step):
    """What Resize and Fit share: for images that are several times as large as others of their sample, the size is that
    of the small ones, computed in whole pixels, times that number."""

    in_pixels: tuple[str, ...] = ("size",)
    _times = 1

    def __init__(self, fields: Sequence[str] | None) -> None:
        self.only(fields)

    def makes(self, spec: Spec) -> Spec:
        return self.makes_mask(resizable(self, spec))

    def scaled(self, factor: Fraction) -> Self:
        made = super().scaled(factor)
        # By a whole number: the small image, and what is done to it, stay what they are.
        made._times = factor.numerator if factor.denominator == 1 else 1
        return made


class Resize(_Resizing):
    """Resize to (height, width), or the shorter side to a given length."""

    in_pixels = ("size", "max_size")

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: Interpolation | Any = "bilinear",
        max_size: int | None = None,
        antialias: bool = True,
        *,
        fields: Sequence[str] | None = None,
    ) -> None:
        """size: (height, width), or the length of the shorter side; the longer one then keeps the aspect ratio.
        max_size: with one length, the most that the longer side may become; the shorter one then becomes less.

        interpolation: "bilinear" is torchvision's, to the bit for uint8. antialias: average pixels along axes that
        shrink: "bilinear" by torchvision's triangle, others by areas before they interpolate; not for "nearest". False
        interpolates there too, which is faster and causes aliasing. "area" is OpenCV's INTER_AREA, which averages only
        where both axes shrink. fields: the images and masks; None for all.
        """
        super().__init__(fields)
        both = size_of(size)
        self.size: int | tuple[int, int] = both if isinstance(size, tuple | list) else both[0]
        if max_size is not None and (not isinstance(self.size, int) or max_size <= self.size):
            raise UsageError(f"max_size={max_size!r} must be more than size=, which must be one side")
        self.interpolation, self.antialias, self.max_size = interpolation_of(interpolation), antialias, max_size

    def magnified(self, drawn: tuple[int, int], times: int) -> tuple[int, int]:
        return drawn[0] * times, drawn[1] * times

    def makes_mask(self, spec: Spec) -> Spec:
        height, width = spec.pixels(self).shape[:2]
        if not isinstance(self.size, int):
            return spec.sized(*self.size)
        return spec.sized(None, None) if height is None or width is None else spec.sized(*self._size(height, width))

    def draw(self, random: Random, height: int, width: int) -> tuple[int, int]:
        return self._size(height, width)

    def draw_many(self, random: Randoms, height: int, width: int) -> Drawn:
        return [self._size(height, width)] * len(random)  # the same for all

    def apply(self, image: Array, drawn: tuple[int, int], out: Array | None = None) -> Array:
        return resized(image, drawn, self.interpolation, self.antialias, out)

    def apply_mask(self, mask: Array, drawn: tuple[int, int], out: Array | None = None) -> Array:
        from rawpack.pixels.resize import fit_nearest

        return fit_nearest(mask, drawn, fit="stretch")

    def move(self, drawn: tuple[int, int], height: int, width: int) -> Move:
        return Move(scale_y=drawn[0] / height, scale_x=drawn[1] / width)

    def _size(self, height: int, width: int) -> tuple[int, int]:
        if not isinstance(self.size, int):
            return self.size
        times, short, long = self._times, min(height, width), max(height, width)
        size, most = self.size // times, None if self.max_size is None else self.max_size // times
        new_short, new_long = size, max(1, int(size * long / short))
        if most is not None and new_long > most:
            new_short, new_long = max(1, int(most * new_short / new_long)), most
        made = (new_short, new_long) if height <= width else (new_long, new_short)
        return made if times == 1 else self.magnified(made, times)


class Fit(_Resizing):
    """Resize to cover (height, width) and crop the center: what `image_size=` does.

    For a square, the same as `Resize(side)` and `CenterCrop(side)`.
    """

    def __init__(self, size: int | Sequence[int], *, fields: Sequence[str] | None = None) -> None:
        """size: a side, or (height, width). fields: the images and masks; None for all."""
        super().__init__(fields)
        self.size = size_of(size)

    def makes_mask(self, spec: Spec) -> Spec:
        return spec.pixels(self).sized(*self.size)

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        from rawpack.pixels.resample import resample

        scaled, window = covering(image.shape[:2], self.size, self._times)
        return resample(image, scaled, window=window, out=apart(out, image))

    def apply_mask(self, mask: Array, drawn: Any, out: Array | None = None) -> Array:
        from rawpack.pixels.resize import fit_nearest

        return fit_nearest(mask, self.size, times=self._times)

    def move(self, drawn: Any, height: int, width: int) -> Move:
        scaled, (top, left, _, _) = covering((height, width), self.size, self._times)
        return Move(scaled[0] / height, -top, scaled[1] / width, -left)
