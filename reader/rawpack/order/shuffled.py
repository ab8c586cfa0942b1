"""The stored order, and the full shuffle."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rawpack.order.base import Order, Samples
from rawpack.order.keys import derive_key
from rawpack.order.permutation import permuted, sorted_shuffle

WINDOW = 1 << 16
"""Positions that are computed together, and the largest set that is sorted: 512 KiB of int64."""


@dataclass(frozen=True)
class Sequential(Order):
    """The samples as they are stored, the same in every epoch."""

    same_each_epoch = True

    n: int
    """Number of samples."""

    def length(self, epoch: int) -> int:
        return self.n

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        start = position - position % WINDOW
        return start, np.arange(start, min(start + WINDOW, self.n), dtype=np.int64)


@dataclass(frozen=True)
class Shuffled(Order):
    """All samples in random order, a different one in each epoch. Keeps 1 MiB, whatever n is.

    A keyed bijection of few bits is not uniform: it has far fewer keys than there are permutations. So up to 65,536
    samples are sorted by keyed hashes instead, which takes half a millisecond, as long as the bijection would.
    """

    n: int
    """Number of samples."""

    seed: int = 0
    """Any integer. Neighboring seeds give unrelated orders."""

    def length(self, epoch: int) -> int:
        return self.n

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        key = derive_key("shuffle", self.n, self.seed, epoch)
        if self.n <= WINDOW:
            return 0, sorted_shuffle(self.n, key)
        start = position - position % WINDOW
        return start, permuted(self.n, key, start, min(start + WINDOW, self.n))
