"""Samples as often as their weights say."""

from __future__ import annotations

import numpy as np
import xxhash
from numpy.typing import ArrayLike

from rawpack.errors import UsageError
from rawpack.order.base import Samples
from rawpack.order.from_column import Column, FromColumn
from rawpack.order.keys import GAMMA, WORD, derive_key, whole_number
from rawpack.order.permutation import splitmix
from rawpack.order.shuffled import WINDOW, Shuffled

_TOTAL = 1 << 52
"""Weights are whole numbers below this, also in sum, so that sums are exact and the same on every machine."""
_MOST_WITHOUT = 1 << 31


class Weighted(FromColumn):
    """For `sampler=`: each sample as often as its weight says.

        reader.batches(256, sampler=Weighted(weights))

    by: a field of numbers, or an array, one for each sample of the reader: its weight, 0 or more. Only proportions
        count.
    length: of an epoch, in samples; None: as many as the reader has.
    replacement: True: each draw is independent, as with torch's WeightedRandomSampler. False: in each epoch, a sample
        comes `length * weight / sum` times, rounded up or down: at most once if that is 1 or less. Over several
        epochs, the rounding evens out.

    Instead of the weights, this keeps their sums: 8 bytes for each sample. Without replacement, this is systematic
    sampling (Madow and Madow, "On the theory of systematic sampling", Annals of Mathematical Statistics 15, 1944): all
    samples, each as wide as its weight, stand side by side, and are marked at `length` places at equal distances, from
    a place that differs from epoch to epoch. The marked samples come in random order. Other methods need a random
    number for each sample, all sorted, in every epoch.
    """

    def __init__(self, by: str | ArrayLike, *, length: int | None = None, replacement: bool = True) -> None:
        super().__init__(by)
        self._asked = None if length is None else whole_number("length", length, 1)
        self._replacement = replacement

    def _set(self, column: Column, seed: int, batch_size: int) -> None:
        if column.dtype.kind not in "iufb":
            raise UsageError(f"{self.what} must have numbers, not {column.dtype}")
        weights = column.astype(np.float64)
        wrong = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0)))
        if wrong.size:
            raise UsageError(
                f"{self.what} has the weight {weights[wrong[0]]} for sample {wrong[0]}: it must be 0 or more"
            )
        if not weights.any():
            raise UsageError(f"{self.what} has only weights of 0, so no sample can come")
        length = self._length = self._asked or len(weights)
        if not self._replacement and length >= _MOST_WITHOUT:
            raise UsageError(f"length={length}: without replacement, an epoch has fewer than {_MOST_WITHOUT} samples")
        scaled = np.rint(weights / weights.max() * (_TOTAL // len(weights)))
        self._sums = np.cumsum(np.maximum(scaled, weights > 0).astype(np.int64))
        """(n,): the weights of each sample and of all before it."""
        self._seed, self._places = seed, Shuffled(length, derive_key("places", seed))

    @property
    def name(self) -> str:
        kind = "with replacement" if self._replacement else "without replacement"
        return (
            f"weighted, {self._length} {kind}, {xxhash.xxh3_64_hexdigest(np.ascontiguousarray(self._sums, '<i8').data)}"
        )

    def length(self, epoch: int) -> int:
        return self._length

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        start = position - position % WINDOW
        stop, total = min(start + WINDOW, self._length), int(self._sums[-1])
        if self._replacement:
            words = splitmix(np.arange(start, stop, dtype=np.uint64), derive_key("weighted", self._seed, epoch))
            units = (words >> np.uint64(11)) * 2.0**-53
            marks = np.minimum((units * total).astype(np.int64), total - 1)
        else:
            # Steps of the golden ratio: after any number of epochs, their first marks are spread evenly.
            first = ((derive_key("first mark", self._seed) + epoch * GAMMA) & WORD) * total >> 64
            distance, rest = divmod(total, self._length)
            places = self._places.samples(epoch, start, stop)
            marks = places * distance + (places * rest + first) // self._length
        return start, np.searchsorted(self._sums, marks, side="right").astype(np.int64)
