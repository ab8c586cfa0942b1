"""Crops: the center, a random place, a random size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from rawpack.checks import size_of
from rawpack.errors import UsageError
from rawpack.pixels.geometry import crop_box
from rawpack.transforms.arguments import Interpolation, check_values, interpolation_of, range_of
from rawpack.transforms.randomness import Random, Randoms
from rawpack.transforms.resizing import resizable, resized
from rawpack.transforms.step import Array, Box, CropStep, Drawn, Move, Spec, apart

_ATTEMPTS = 10


class CropBox(NamedTuple):
    box: Box
    """The part of it that is within the image."""
    at: tuple[int, int]
    """(y, x) of that part within the crop; other than (0, 0) if the crop begins outside the image."""


class _FixedCrop(CropStep):
    in_pixels: tuple[str, ...] = ("size",)

    def __init__(self, size: int | Sequence[int], fill: float = 0, fields: Sequence[str] | None = None) -> None:
        self.size, self.fill = size_of(size), fill
        self.only(fields)

    def makes(self, spec: Spec) -> Spec:
        check_values(self, "fill", self.fill, spec.pixels(self).dtype)
        return self.makes_mask(spec)

    def makes_mask(self, spec: Spec) -> Spec:
        return spec.pixels(self).sized(*self.size)

    def magnified(self, drawn: CropBox, times: int) -> CropBox:
        y, x, height, width = drawn.box
        # A pixel that is put beyond the end stays one pixel.
        box = drawn.box if drawn.at == self.size else (y * times, x * times, height * times, width * times)
        return CropBox(box, (drawn.at[0] * times, drawn.at[1] * times))

    def box(self, drawn: CropBox) -> Box:
        return drawn.box

    def finish(self, part: Array, drawn: CropBox, out: Array | None = None) -> Array:
        return self._padded(part, drawn.at, out, self.fill)

    def finish_mask(self, part: Array, drawn: CropBox, out: Array | None = None) -> Array:
        return self._padded(part, drawn.at, out, 0)

    def move(self, drawn: CropBox, height: int, width: int) -> Move:
        return Move(shift_y=drawn.at[0] - drawn.box[0], shift_x=drawn.at[1] - drawn.box[1])

    def _padded(self, part: Array, at: tuple[int, int], out: Array | None, fill: float) -> Array:
        if part.shape[:2] == self.size and at == (0, 0):
            return part
        out = apart(out, part)
        if out is None:
            out = np.empty((*self.size, part.shape[2]), part.dtype)
        out[...] = fill
        out[at[0] : at[0] + part.shape[0], at[1] : at[1] + part.shape[1]] = part
        return out

    def _place(self, top: int, left: int, height: int, width: int) -> CropBox:
        """The crop from (top, left) on, which may be outside an image of that size."""
        bottom, right = min(top + self.size[0], height), min(left + self.size[1], width)
        y, x = max(top, 0), max(left, 0)
        if bottom <= y or right <= x:
            # Nothing of the image. A pixel is read all the same, so that no image is empty, and put beyond the end.
            return CropBox((0, 0, 1, 1), self.size)
        return CropBox((y, x, bottom - y, right - x), (y - top, x - left))


class CenterCrop(_FixedCrop):
    """The center of the image. It never resizes: an image that is smaller than `size` gets a black border, as by
    torchvision, and without a warning. Put `Resize` first, or use `Fit`, where images may be smaller."""

    def __init__(self, size: int | Sequence[int], *, fields: Sequence[str] | None = None) -> None:
        """size: a side, or (height, width). fields: the images and masks; None for all."""
        super().__init__(size, fields=fields)

    def draw(self, random: Random, height: int, width: int) -> CropBox:
        if height >= self.size[0] and width >= self.size[1]:
            return CropBox(crop_box((height, width), self.size), (0, 0))
        # torchvision first pads, with half of what is missing (rounded down) at the top and left, and then crops.
        above, before = max(self.size[0] - height, 0) // 2, max(self.size[1] - width, 0) // 2
        padded = max(height, self.size[0]), max(width, self.size[1])
        top, left, _, _ = crop_box(padded, self.size)
        return self._place(top - above, left - before, height, width)

    def draw_many(self, random: Randoms, height: int, width: int) -> Drawn:
        return [self.draw(Random(0), height, width)] * len(random)  # the same for all


class RandomCrop(_FixedCrop):
    """A crop at a random place, all places equally likely."""

    in_pixels = ("size", "padding")

    def __init__(
        self,
        size: int | Sequence[int],
        padding: int | Sequence[int] | None = None,
        pad_if_needed: bool = False,
        fill: float = 0,
        *,
        fields: Sequence[str] | None = None,
    ) -> None:
        """size: a side, or (height, width). padding: how many pixels of `fill` to put around the image first: one
        number for all sides, (left and right, top and bottom), or (left, top, right, bottom). pad_if_needed: pad an
        image that is smaller than the crop on both sides by what is missing; otherwise it is an error. fields: the
        images and masks; None for all."""
        super().__init__(size, fill, fields)
        pad = tuple(padding) or (0,) if isinstance(padding, tuple | list) else (padding or 0,)
        if len(pad) not in (1, 2, 4) or not all(isinstance(n, int) and n >= 0 for n in pad):
            raise UsageError(f"padding={padding!r} must be pixels, (left and right, top and bottom), or all four sides")
        self.padding = pad * 4 if len(pad) == 1 else pad * 2 if len(pad) == 2 else pad
        self.pad_if_needed = pad_if_needed

    def makes_mask(self, spec: Spec) -> Spec:
        height, width = spec.pixels(self).shape[:2]
        if height is not None and width is not None:
            self._places(height, width)
        return super().makes_mask(spec)

    def draw(self, random: Random, height: int, width: int) -> CropBox:
        top, left, rows, columns = self._places(height, width)
        return self._place(random.integer(rows) - top, random.integer(columns) - left, height, width)

    def draw_many(self, random: Randoms, height: int, width: int) -> Drawn:
        top, left, rows, columns = self._places(height, width)
        places = zip((random.random() * rows).tolist(), (random.random() * columns).tolist(), strict=True)
        return [self._place(int(y) - top, int(x) - left, height, width) for y, x in places]

    def _places(self, height: int, width: int) -> tuple[int, int, int, int]:
        """How far outside an image of that size a crop may begin, above and to the left, and in how many rows and
        columns from there on. Raises UsageError where it is too small."""
        left, top, right, bottom = self.padding
        wide, high = width + left + right, height + top + bottom
        if self.pad_if_needed:
            more_x, more_y = max(self.size[1] - wide, 0), max(self.size[0] - high, 0)
            left, wide, top, high = left + more_x, wide + 2 * more_x, top + more_y, high + 2 * more_y
        if wide < self.size[1] or high < self.size[0]:
            raise UsageError(
                f"{self!r}: the image is only {height}x{width} (height x width): pass pad_if_needed=True, or resize "
                "first"
            )
        return top, left, high - self.size[0] + 1, wide - self.size[1] + 1


class RandomResizedCrop(CropStep):
    """A crop of random area and shape at a random place, resized: the usual augmentation for ImageNet."""

    in_pixels = ("size",)

    def __init__(
        self,
        size: int | Sequence[int],
        scale: Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: Interpolation | Any = "bilinear",
        antialias: bool = True,
        scaled_decode: float | None = None,
        *,
        fields: Sequence[str] | None = None,
    ) -> None:
        """size: a side, or (height, width). scale: least and greatest share of the image's area. ratio: least and
        greatest width / height. interpolation, antialias: see `Resize`.

        scaled_decode: allow decoding a JPEG at 1/2, 1/4 or 1/8 if the crop is then still `scaled_decode` times as
        large as the result. That is faster and gives slightly different pixels. None: never.

        fields: the images and masks; None for all.
        """
        self.size = size_of(size)
        self.scale, self.ratio = range_of("scale", scale), range_of("ratio", ratio)
        self.interpolation, self.antialias = interpolation_of(interpolation), antialias
        if scaled_decode is not None and not scaled_decode > 0:
            raise UsageError(f"scaled_decode={scaled_decode!r} must be a ratio above 0, such as 1.0, or None")
        self.scaled_decode = scaled_decode
        self._log_ratio = math.log(self.ratio[0]), math.log(self.ratio[1])
        self.only(fields)

    def makes(self, spec: Spec) -> Spec:
        return self.makes_mask(resizable(self, spec))

    def makes_mask(self, spec: Spec) -> Spec:
        return spec.pixels(self).sized(*self.size)

    def magnified(self, drawn: Box, times: int) -> Box:
        y, x, height, width = drawn
        return y * times, x * times, height * times, width * times

    def draw(self, random: Random, height: int, width: int) -> Box:
        uniform, area = random.uniform, height * width
        for _ in range(_ATTEMPTS):
            target = area * uniform(*self.scale)
            aspect = math.exp(uniform(*self._log_ratio))
            w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
            if 0 < w <= width and 0 < h <= height:
                return self._aligned((random.integer(height - h + 1), random.integer(width - w + 1), h, w))
        return self._aligned(self._largest(height, width))

    def draw_many(self, random: Randoms, height: int, width: int) -> Drawn:
        boxes: Array = np.full((len(random), 4), self._largest(height, width), np.int64)
        left: Array = np.arange(len(random))
        for _ in range(_ATTEMPTS):
            target = height * width * _within(random.random(left), *self.scale)
            # By `math`: numpy's last bit depends on the processor.
            aspect = np.array(list(map(math.exp, _within(random.random(left), *self._log_ratio).tolist())))
            w, h = np.rint(np.sqrt(target * aspect)), np.rint(np.sqrt(target / aspect))
            fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
            done, w, h = left[fits], w[fits], h[fits]
            boxes[done, 0] = random.random(done) * (height - h + 1)  # rounded down
            boxes[done, 1] = random.random(done) * (width - w + 1)
            boxes[done, 2], boxes[done, 3] = h, w
            left = left[~fits]
            if not len(left):
                break
        drawn = list(map(tuple, boxes.tolist()))
        return drawn if self.scaled_decode is None else list(map(self._aligned, drawn))

    def _largest(self, height: int, width: int) -> Box:
        """The box where no attempt fits: as much of the center as the ratios allow."""
        w, h = width, height
        if width / height < self.ratio[0]:
            h = min(height, round(w / self.ratio[0]))
        elif width / height > self.ratio[1]:
            w = min(width, round(h * self.ratio[1]))
        return (height - h) // 2, (width - w) // 2, max(h, 1), max(w, 1)

    def _aligned(self, box: Box) -> Box:
        """The box on whole pixels of the scale at which it is decoded; otherwise it would be shifted by a fraction of
        one."""
        step = self.reduction(box)
        y, x, h, w = box
        return box if step == 1 else (y - y % step, x - x % step, h - h % step, w - w % step)

    def box(self, drawn: Box) -> Box:
        return drawn

    def reduction(self, drawn: Box) -> int:
        if self.scaled_decode is None:
            return 1
        most = min(drawn[2] / self.size[0], drawn[3] / self.size[1]) / self.scaled_decode
        return 8 if most >= 8 else 4 if most >= 4 else 2 if most >= 2 else 1

    def finish(self, part: Array, drawn: Box, out: Array | None = None) -> Array:
        return resized(part, self.size, self.interpolation, self.antialias, out)

    def finish_mask(self, part: Array, drawn: Box, out: Array | None = None) -> Array:
        from rawpack.pixels.resize import fit_nearest

        return fit_nearest(part, self.size, fit="stretch")

    def move(self, drawn: Box, height: int, width: int) -> Move:
        y, x, h, w = drawn
        scale_y, scale_x = self.size[0] / h, self.size[1] / w
        return Move(scale_y, -y * scale_y, scale_x, -x * scale_x)


def _within(unit: Array, low: float, high: float) -> Array:
    """Random numbers in [0, 1) as `Random.uniform` makes them numbers in [low, high)."""
    return low + (high - low) * unit
