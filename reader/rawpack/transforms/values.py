"""Steps on the values of pixels: dtype, scale, mean and standard deviation; and the order of the axes."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.transforms.step import Array, Spec, Step

_FLOATS = ("float16", "float32", "float64")
_MOST_TABLED = 128
"""Channels: with more, OpenCV 5 does no lookup."""
_TILE_PIXELS = 1 << 17
"""Looked up at once, so that their planes are still in the processor's cache."""
_GREATEST = (255, 65535, 2**32 - 1)
"""Of the dtypes of whole numbers that images have."""
_PAGE, _APART = 4096, 320
"""Planes that are a multiple of a page apart would push each other out of that cache while they are written."""


class ConvertImageDtype(Step):
    """Convert to floats; whole numbers are scaled so that the greatest of their dtype becomes 1, as in torchvision, or
    all values so that `scale` does."""

    pointwise = vectorized = True
    scale: float | None = None

    def __init__(
        self, dtype: Any = "float32", *, scale: float | None = None, fields: Sequence[str] | None = None
    ) -> None:
        """dtype: "float16", "float32" or "float64", or numpy's types. scale: what values are divided by; needed where
        they do not fill the range of their dtype, and for floats above 2. fields: the images; None for all but
        masks."""
        self.dtype = float_dtype(dtype)
        if scale is not None:
            self.scale = _scale(scale)
        self.only(fields)

    def makes(self, spec: Spec) -> Spec:
        return replace(_filled(self, spec), dtype=self.dtype, within=_within(spec, self.scale), seen=None)

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        return _floats(image, self.scale).astype(self.dtype)


class Normalize(Step):
    """(x - mean) / std for each channel. Whole numbers are scaled first, as by ConvertImageDtype. In a batch of several
    images, for those that are stored as uint8 of three channels, unless `fields` names others."""

    pointwise = vectorized = True
    scale: float | None = None

    def __init__(
        self,
        mean: Sequence[float],
        std: Sequence[float],
        dtype: Any = "float32",
        *,
        scale: float | None = None,
        fields: Sequence[str] | None = None,
    ) -> None:
        """mean, std: one for each channel, or one for all. For whole numbers, and what other steps have scaled to 0..1,
        those of values from 0 to 1: UsageError where such values cannot have them. dtype: of the result. scale: as
        of ConvertImageDtype; with 1, mean and std are those of the values as they are stored. fields: see above."""
        self.only(fields)
        self.mean, self.std = _channels("mean", mean), _channels("std", std)
        if not all(self.std):
            raise UsageError(f"std={std!r} must not be 0")
        self.dtype = float_dtype(dtype)
        if scale is not None:
            self.scale = _scale(scale)
        self._axes: tuple[int, ...] = (-1,)

    def makes(self, spec: Spec) -> Spec:
        channels = _filled(self, spec).shape[0 if spec.layout == "CHW" else -1]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                raise UsageError(f"{self!r}: {len(values)} values of {name} for images of {channels} channels")
        within = _within(spec, self.scale)
        if within is not None:
            self._check_units(*within)
            ends = (np.array(within)[:, None] - self.mean) / self.std
            within = float(ends.min()), float(ends.max())
        return replace(spec, dtype=self.dtype, within=within, seen=None)

    def plain(self) -> None:
        return None

    def _check_units(self, least: float, greatest: float) -> None:
        """Raise UsageError where mean and std are not those of values in this range: often, they are of bytes, from 0
        to 255."""
        given = dict[str, tuple[float, ...]]()
        if max(map(abs, self.mean)) > max(abs(least), abs(greatest)):
            given["mean"] = self.mean
        if max(map(abs, self.std)) > greatest - least:
            given["std"] = self.std
        if not given:
            return
        most, cure = max(abs(n) for values in given.values() for n in values), ""
        unit = next((n for n in sorted({*_GREATEST, self.scale or 255}) if most <= n), None)
        if greatest == 1 and unit is not None:
            right = {name: tuple(float(f"{n / unit:.4g}") for n in values) for name, values in given.items()}
            cure = f": divide by {unit}, {', '.join(f'{name}={values}' for name, values in right.items())}"
        first = "whole numbers are scaled to 0..1" if self.scale is None else f"values are divided by {self.scale}"
        raise UsageError(
            f"{self!r}: {first} first, so values are from {least:.3g} to {greatest:.3g} here "
            f"and cannot have this {' and '.join(given)}{cure}"
        )

    def fitted(self, spec: Spec) -> Normalize:
        fitted = copy(self)
        fitted._axes = (-1, 1, 1) if spec.layout == "CHW" else (-1,)
        return fitted

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        mean, std = (np.array(values, np.float64).reshape(self._axes) for values in (self.mean, self.std))
        return ((_floats(image, self.scale) - mean) / std).astype(self.dtype)


class ToCHW(Step):
    """(H, W, C) becomes (C, H, W)."""

    vectorized = any_size = True

    def __init__(self, *, fields: Sequence[str] | None = None) -> None:
        """fields: the images and masks; None for all."""
        self.only(fields)

    def makes(self, spec: Spec) -> Spec:
        height, width, channels = spec.pixels(self).shape
        return replace(spec, shape=(channels, height, width), layout="CHW")

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        return image.swapaxes(-1, -2).swapaxes(-2, -3)

    def apply_mask(self, mask: Array, drawn: Any, out: Array | None = None) -> Array:
        return mask.transpose(2, 0, 1)


class ByTable(Step):
    """Pointwise steps on bytes as a table of 256 entries, and a ToCHW before, between or after them."""

    vectorized = True

    def __init__(self, steps: Sequence[Step], spec: Spec, made: Spec) -> None:
        """spec: before `steps`, (H, W, C) of uint8; made: after them."""
        self.steps = tuple(steps)
        channels = spec.shape[2] or 1
        ramp: Array = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], channels, axis=2)
        for step in steps:
            ramp = step.apply(ramp, None)
        if made.layout == "CHW":
            ramp = ramp.transpose(1, 2, 0)
        self._dtype, self.planar = np.dtype(made.dtype), made.layout == "CHW"
        if not np.can_cast(ramp.dtype, self._dtype, "equiv"):
            raise UsageError(
                f"{self!r} made {ramp.dtype} of bytes, where {self._dtype} was expected: declare the result of a step "
                "of your own with makes()"
            )
        ramp = ramp.astype(self._dtype, copy=False)  # another byte order
        # OpenCV has no tables of some dtypes, such as float16: it moves another one of the same size.
        self._carrier = np.dtype({2: np.uint16, 8: np.float64}.get(self._dtype.itemsize, self._dtype))
        self.tables: Array = np.ascontiguousarray(ramp[0].T)
        """(channels, 256): what each byte becomes."""
        self._table = np.ascontiguousarray(ramp).view(self._carrier)
        self._tables = [np.ascontiguousarray(self._table[0, :, c]) for c in range(channels)]
        self._one_table = all(np.array_equal(table, self._tables[0]) for table in self._tables)
        self.line = self._exact_line()
        """(channels, 2): a scale and a shift, where bytes * scale + shift, computed in float64 and rounded to float32,
        is what the tables say to the last bit; else None."""

    def __repr__(self) -> str:
        return ", ".join(map(repr, self.steps))

    def makes(self, spec: Spec) -> Spec:
        for step in self.steps:
            spec = step.makes(spec)
        return spec

    def apply(self, image: Array, drawn: Any, out: Array | None = None) -> Array:
        import cv2

        *several, height, width, channels = image.shape
        if out is None or not out.flags.c_contiguous:
            shape = (*several, channels, height, width) if self.planar else image.shape
            out = np.empty(shape, self._dtype)
        rows: Array = image.reshape(-1, width, channels)
        if self.planar and channels > 1:
            self._into_planes(rows, out.view(self._carrier).reshape(-1, channels, height * width))
            return out
        table = self._table
        if self._one_table:
            rows, table = rows.reshape(len(rows), -1), self._tables[0]
        cv2.LUT(rows, table, dst=out.view(self._carrier).reshape(rows.shape))
        return out

    def _into_planes(self, rows: Array, outs: Array) -> None:
        """rows: (n * H, W, C), of all images; if there are several, they are small. outs: (n, C, H * W)."""
        import cv2

        width, channels = rows.shape[1:]
        tall = len(rows) if len(outs) > 1 else min(len(rows), max(1, _TILE_PIXELS // width))
        planes: Array = np.empty((channels, -(-tall * width // _PAGE) * _PAGE + _APART), np.uint8)
        for y in range(0, len(rows), tall):
            tile = rows[y : y + tall]
            # Into memory that is used again: new pages would take longer than the lookup.
            split = cv2.split(tile, [plane[: len(tile) * width].reshape(-1, width) for plane in planes])
            for c, (plane, table) in enumerate(zip(split, self._tables, strict=True)):
                cv2.LUT(plane.reshape(len(outs), -1), table, dst=outs[:, c, y * width : (y + tall) * width])

    def tail(self) -> Tail | None:
        """As arithmetic; None where the table is no such function, up to its own rounding."""
        if (line := self._line()) is None:
            return None
        scale, shift = line.T
        error = np.abs(np.arange(256) * scale[:, None] + shift[:, None] - self.tables).max()
        if error > 4 * np.finfo(self._dtype).eps * max(1, np.abs(self.tables).max()):
            return None
        return Tail(tuple(scale.tolist()), tuple(shift.tolist()), self._dtype.name, self.planar)

    def _exact_line(self) -> NDArray[np.float64] | None:
        if self._dtype != np.float32 or (line := self._line()) is None:
            return None
        values = (np.arange(256) * line[:, :1] + line[:, 1:]).astype(np.float32)
        return line if values.tobytes() == self.tables.tobytes() else None

    def _line(self) -> NDArray[np.float64] | None:
        """(channels, 2): the scale and the shift that the steps are; None where they are something else."""
        shift: Array = np.zeros(len(self.tables))
        scale, greatest = shift + 1, 255.0
        for step in self.steps:
            if type(step) is ConvertImageDtype or type(step) is Normalize:
                by, greatest = step.scale or greatest, 1.0  # only bytes are scaled without being asked
                scale, shift = scale / by, shift / by
                if type(step) is Normalize:
                    scale, shift = scale / step.std, (shift - step.mean) / step.std
            elif type(step) is not ToCHW:
                return None
        return np.ascontiguousarray(np.stack([scale, shift], axis=1))


@dataclass(frozen=True)
class Tail:
    """The last steps of an image as arithmetic on whole batches: values * scale + shift, in `dtype`; then ToCHW."""

    scale: tuple[float, ...] | None
    """Of each channel; None where values stay as they are."""
    shift: tuple[float, ...]
    dtype: str
    planes: bool
    """Whether the channels come first in the end."""


def tail_of(step: Step, made: Spec) -> Tail | None:
    """The last step of a plan as arithmetic; None where it is anything else. made: after it."""
    if type(step) is ToCHW:
        return Tail(None, (), made.dtype, planes=True)
    return step.tail() if isinstance(step, ByTable) else None


def by_tables(steps: Sequence[Step], specs: Sequence[Spec]) -> list[Step]:
    """The same steps, with each run of pointwise ones on bytes, and a ToCHW among or after them, as one table.

    specs: before each step, and after the last one.
    """
    done, k = list[Step](), 0
    while k < len(steps):
        start = k
        if specs[k].dtype == "uint8" and specs[k].layout == "HWC" and (specs[k].shape[2] or 1) <= _MOST_TABLED:
            while k < len(steps) and (steps[k].pointwise or type(steps[k]) is ToCHW):
                k += 1
        tabled = any(step.pointwise for step in steps[start:k])
        if not tabled:
            k = start + 1
        done.append(ByTable(steps[start:k], specs[start], specs[k]) if tabled else steps[start])
    return done


def float_dtype(dtype: Any) -> str:
    """The name of a float dtype. torch's dtypes are accepted."""
    try:
        name = np.dtype(str(dtype).removeprefix("torch.") if not isinstance(dtype, type) else dtype).name
    except TypeError:
        name = ""
    if name not in _FLOATS:
        raise UsageError(f"dtype={dtype!r} must be one of {', '.join(_FLOATS)}")
    return name


def _scale(scale: float) -> float:
    """What `scale=` is. Raises UsageError where it is not a number above 0."""
    if not (isinstance(scale, Real) and 0 < scale < np.inf):
        raise UsageError(f"scale={scale!r} must be a number above 0: the value that becomes 1")
    return scale


def _filled(step: ConvertImageDtype | Normalize, spec: Spec) -> Spec:
    """`spec`, or UsageError if its values are not real numbers, or if it is not clear which of them becomes 1."""
    dtype = np.dtype(spec.dtype)
    if dtype.kind not in "uif":
        raise UsageError(f"{step!r} needs numbers, not {spec.dtype}")
    floats = dtype.kind == "f"
    most = 0 if floats else int(np.iinfo(dtype).max)
    if step.scale is not None:
        if not floats and step.scale > 2 * most:
            raise UsageError(
                f"{step!r}: {dtype} has no such values: name the images that this scale= is for by fields="
            )
        return spec
    if spec.seen is None or (spec.seen[1] <= 2 if floats else 2 * spec.seen[1] >= most):
        return spec
    # Not the greatest value itself: in the store of another split, that is another one.
    bits = max(1, int(max(0, spec.seen[1])).bit_length())
    why = "above 2" if floats else f"of at most {bits} bits, less than half of what becomes 1, {most}"
    keep = " (scale=1 keeps values as they are)" if floats else ""
    raise UsageError(
        f"{step!r}: these {dtype} images have values {why}: say what becomes 1, such as scale={(1 << bits) - 1}{keep}; "
        "use the same number for train and val"
    )


def _within(spec: Spec, scale: float | None) -> tuple[float, float] | None:
    """Least and greatest value of `_floats` of such samples; None where that is not known."""
    if scale is not None:
        return None if scale == 1 else (0.0 if np.dtype(spec.dtype).kind == "u" else -1.0, 1.0)
    if np.dtype(spec.dtype).kind == "f":
        return spec.within
    info = np.iinfo(spec.dtype)
    return info.min / info.max, 1.0


def _floats(image: Array, scale: float | None) -> NDArray[np.floating[Any]]:
    """Whole numbers as float64, scaled so that the greatest of their dtype becomes 1. Floats stay as they are. With a
    scale, both are divided by it."""
    if scale is None:
        if image.dtype.kind == "f":
            return image
        scale = np.iinfo(image.dtype).max
    return image / np.float64(scale)


def _channels(name: str, values: Sequence[float]) -> tuple[float, ...]:
    several = tuple(map(float, (values,) if isinstance(values, int | float) else values))
    if not several or not np.isfinite(several).all():
        raise UsageError(f"{name}={values!r} must be a number for each channel")
    return several
