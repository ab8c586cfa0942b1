"""Which of several sizes an image fits best, and which sizes fit many images: sizes are (height, width)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Size = tuple[int, int]
Sizes = NDArray[np.int32]
MOST = 8
"""How many sizes `choose_sizes` chooses at most."""
ENOUGH = 0.02
"""The share of all pixels that may be lost if fewer sizes are enough for that."""
_WORTH = 0.002
"""The least share of all pixels that one more size must save."""
_LONGEST = 4.0
"""The greatest ratio of the sides of a chosen size."""
_BLOCK = 1 << 12


def best_sizes(
    images: Sizes, sizes: Sequence[Size]
) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.bool_]]:
    """For each image, (n,): the number of the size in which it loses least, the share of its pixels that it loses
    there, and whether it is enlarged.

    An image is resized to cover the size, and what is beyond it is cut away: that is what it loses. If it loses the
    same in several sizes, it gets the largest that does not enlarge it, or else the one that enlarges it least; of
    equal ones the first.
    """
    best, lost = np.empty(len(images), np.uint8), np.empty(len(images))
    enlarged = np.empty(len(images), np.bool_)
    high, wide = np.array(sizes, np.float64).T
    for start in range(0, len(images), _BLOCK):
        block = slice(start, start + _BLOCK)
        height, width = images[block].T[:, :, None].astype(np.float64)
        # One division of exact numbers: the same of sizes of one shape.
        ours, theirs = width * high, height * wide
        kept = np.minimum(ours, theirs) / np.maximum(ours, theirs)
        most = kept.max(axis=1)
        scale = np.maximum(high / height, wide / width)
        # Negative for images that shrink, less so for those that shrink more; above 1 for those that grow.
        badness = np.where(kept < most[:, None], np.inf, np.where(scale <= 1, -scale, scale))
        best[block], lost[block], enlarged[block] = badness.argmin(axis=1), 1 - most, badness.min(axis=1) > 1
    return best, lost, enlarged


def choose_sizes(images: Sizes, area: float) -> list[Size]:
    """Sizes of about `area` pixels in which the images lose few of theirs: the fewest that lose at most `ENOUGH` of all
    pixels, but no more than `MOST`, and none that saves less than `_WORTH`. Tall ones come first.

    Sides are multiples of 32, of 16 if the area is less than 512 x 512, of 8 if it is less than 256 x 256, and no side
    is more than about four times the other.
    """
    candidates = _candidates(area)
    aspects = np.array([width / height for height, width in candidates])
    distinct, counts = np.unique(images.astype(np.int64) @ np.array([1 << 32, 1]), return_counts=True)
    height, width = (distinct >> 32).astype(np.float64), (distinct & 0xFFFFFFFF).astype(np.float64)
    by_aspect = np.argsort(width / height, kind="stable")
    aspect, pixels = (width / height)[by_aspect], (counts * height * width)[by_aspect]
    # With these sums over the images up to each one, what those between two candidates lose is known without a look at
    # each: of aspect r in one of aspect R, they keep r / R or R / r of their pixels.
    whole, times, over = (
        np.concatenate([[0.0], np.cumsum(values)]) for values in (pixels, pixels * aspect, pixels / aspect)
    )

    def narrower(low: NDArray[np.intp], high: NDArray[np.intp] | int) -> NDArray[np.float64]:
        """What images low..high-1, which are narrower than each candidate, lose in it."""
        lost: NDArray[np.float64] = whole[high] - whole[low] - (times[high] - times[low]) / aspects
        return lost

    def wider(low: NDArray[np.intp], high: NDArray[np.intp] | int) -> NDArray[np.float64]:
        lost: NDArray[np.float64] = whole[high] - whole[low] - (over[high] - over[low]) * aspects
        return lost

    at = np.searchsorted(aspect, aspects)
    # Of the images between two candidates, each goes to the nearer one. In column j of row i, j is the wider one.
    middle = np.searchsorted(aspect, np.sqrt(np.multiply.outer(aspects, aspects)))
    between = wider(np.broadcast_to(at, middle.shape), middle.T).T + narrower(middle, np.broadcast_to(at, middle.shape))
    between[np.tril_indices(len(candidates))] = np.inf
    beyond = wider(at, len(aspect))
    # The least that the images up to each candidate lose if it is the last one that is chosen, first without any before
    # it, then with one more each time; and which one that is.
    lost, before = narrower(np.zeros_like(at), at), list[NDArray[np.intp]]()
    while (least := (lost + beyond).min()) > ENOUGH * whole[-1] and len(before) + 1 < MOST:
        totals = lost[:, None] + between
        more = totals.min(axis=0)
        if not (more + beyond).min() <= least - _WORTH * whole[-1]:
            break
        before.append(totals.argmin(axis=0))
        lost = more
    chosen = [int((lost + beyond).argmin())]
    for best in reversed(before):
        chosen.append(int(best[chosen[-1]]))
    return [candidates[number] for number in reversed(chosen)]


def _candidates(area: float) -> list[Size]:
    side = math.sqrt(area)
    step = 32 if side >= 512 else 16 if side >= 256 else 8
    shorts = range(max(1, math.ceil(side / math.sqrt(_LONGEST) / step)), max(1, int(side / step)) + 1)
    pairs = {(short * step, max(short, round(area / (short * step) / step)) * step) for short in shorts}
    return sorted({*pairs, *((width, height) for height, width in pairs)}, key=lambda size: size[1] / size[0])
