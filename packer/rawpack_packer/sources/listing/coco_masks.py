"""The segmentations of COCO: polygons and run lengths, and the masks that are painted of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack.pixels.polygons import fill
from rawpack_packer.sources.table.columns import RaggedColumn, Rows, Texts

_MOST_PIXELS = 1 << 28
_MOST_BITS = 40
"""Of a run length."""


class Runs(msgspec.Struct):
    """A mask as run lengths, column by column, beginning with those of 0."""

    counts: str | list[int]
    size: tuple[int, int]


Segmentation = list[list[float]] | Runs


def decode_runs(runs: Runs) -> NDArray[np.bool_]:
    """The mask (height, width). Raises ValueError where the runs are not those of its size."""
    height, width = runs.size
    if not (height > 0 and width > 0 and height * width <= _MOST_PIXELS):
        raise ValueError(f"a mask of {height}x{width}")
    counts = _compressed(runs.counts) if isinstance(runs.counts, str) else np.array(runs.counts, np.int64)
    if counts.ndim != 1 or (counts < 0).any() or (counts > height * width).any() or counts.sum() != height * width:
        raise ValueError(f"its run lengths are not those of {height}x{width} pixels")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(width, height).T


def _compressed(text: str) -> NDArray[np.int64]:
    """The run lengths in pycocotools' string: 5 bits a character from "0" on, low ones first, each from the third on as
    the difference from the one before the last."""
    code = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.int64) - 48
    more = (code & 0x20) != 0
    if not len(code) or code.min() < 0 or code.max() > 0x3F or more[-1]:
        raise ValueError("its run lengths are not a string of COCO")
    ends = np.flatnonzero(~more)
    starts = np.concatenate([[0], ends[:-1] + 1])
    bits = 5 * (ends - starts + 1)
    if bits.max() > _MOST_BITS:
        raise ValueError("a run length has too many bits")
    shifts = 5 * (np.arange(len(code)) - np.repeat(starts, ends - starts + 1))
    counts = np.add.reduceat((code & 0x1F) << shifts, starts)
    counts -= np.where(code[ends] & 0x10, np.int64(1) << bits, 0)
    for first in (1, 2):
        counts[first::2] = np.cumsum(counts[first::2])
    return counts


def covered(segmentation: Segmentation, height: int, width: int) -> NDArray[np.bool_]:
    """The pixels of an image that belong to an object. Raises ValueError."""
    if isinstance(segmentation, Runs):
        if tuple(segmentation.size) != (height, width):
            raise ValueError(f"a mask of {segmentation.size} in an image of {(height, width)} (height, width)")
        return decode_runs(segmentation)
    return fill([np.reshape(one, (-1, 2)) for one in segmentation if one], height, width)


@dataclass(frozen=True, slots=True, eq=False)
class PaintedColumn:
    """Masks that are painted when they are read: the largest object first, and crowds before all others."""

    segmentations: Texts
    """JSON, one for each object, image after image."""
    paints: RaggedColumn
    """(m, 2): for each object its value, and 1 for a crowd."""
    sizes: Rows
    """(n, 2): height and width of each image."""
    dtype: str

    def value(self, i: int, /) -> NDArray[Any]:
        height, width = self.sizes[i].tolist()
        if height * width > _MOST_PIXELS:
            raise DecodeError("too_large", f"{width}x{height} pixels")
        masks = list[tuple[bool, int, int, NDArray[np.bool_]]]()
        first = int(self.paints.ends[i])
        for at, (paint, crowd) in enumerate(self.paints.value(i).tolist(), first):  # type: ignore[union-attr]
            try:
                mask = covered(msgspec.json.decode(self.segmentations.raw(at), type=Segmentation), height, width)
            except (ValueError, OverflowError) as error:
                raise DecodeError("bad_field", f"segmentation {at - first} of the image: {error}") from None
            masks.append((not crowd, -int(mask.sum()), paint, mask))
        painted = np.zeros((height, width), self.dtype)
        for _, _, paint, mask in sorted(masks, key=lambda one: one[:3]):
            painted[mask] = paint
        return painted

    def pick(self, rows: Rows, /) -> PaintedColumn:
        numbers = RaggedColumn(np.arange(len(self.segmentations)), self.paints.ends).pick(rows).values
        return PaintedColumn(self.segmentations.pick(numbers), self.paints.pick(rows), self.sizes[rows], self.dtype)
