"""The stored order, the full shuffle, and the block shuffle, which reads only a few regions of the disk at a time."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.order.base import Order, Samples
from rawpack.order.keys import derive_key
from rawpack.order.permutation import permuted, sorted_shuffle
from rawpack.system.user import suggesting

WINDOW = 1 << 16
"""Positions that are computed together, and the largest set that is sorted: 512 KiB of int64."""
_MAX_WINDOW_SAMPLES = 1 << 22
"""A window of blocks is computed and kept completely: 32 MiB of int64."""


@dataclass(frozen=True)
class Sequential(Order):
    """The samples as they are stored, the same in every epoch."""

    same_each_epoch = True

    n: int

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


@suggesting
@dataclass(frozen=True)
class Blocks:
    """For `shuffle=` of `Reader.batches`: blocks of consecutive samples in random order, shuffled in windows of several
    blocks, which suits disks better than a full shuffle.

        reader.batches(256, shuffle=Blocks(block=64, window=512))

    block: consecutive samples in a block, 1 or more. window: blocks whose samples are shuffled together, 1 or more;
    block * window is at most 4,194,304 samples.
    """

    block: int = 32
    window: int = 256

    def __post_init__(self) -> None:
        for name in ("block", "window"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))
        if self.block * self.window > _MAX_WINDOW_SAMPLES:
            raise UsageError(
                f"a window of {self.window} blocks of {self.block} samples is too large: at most {_MAX_WINDOW_SAMPLES} "
                "samples are shuffled together; use fewer, or the full shuffle"
            )


@dataclass(frozen=True)
class BlockShuffled(Order):
    """Blocks of consecutive samples in random order, then shuffled within windows of several blocks.

    A window reads from `window` regions of the store, and from no other part until it is used up. So reads stay local
    where a window fits into the page cache. Each epoch has other blocks, in another order. Memory is O(block * window).

    How random that is depends on the number of blocks in a window: a batch rarely has more classes than that. Use many
    small blocks for a store that is sorted by class; large ones are enough for a store in mixed order.
    `docs/explanation/order.md` has figures.
    """

    n: int

    seed: int = 0

    block: int = 32
    window: int = 256

    @property
    def name(self) -> str:
        return f"block {self.block} {self.window}"

    @cached_property
    def _blocks(self) -> Shuffled:
        return Shuffled(self.n // self.block, derive_key("blocks", self.n, self.seed, self.block))

    def length(self, epoch: int) -> int:
        return self.n

    def region_end(self, epoch: int, position: int, ranks: int = 1) -> int:
        low, samples = self._keep(epoch, position)
        return low + samples.size

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        full, short = divmod(self.n, self.block)
        # One block may be short. An empty one comes after all others.
        short_place = self._draw("short block", epoch, full + 1) if short else full
        place = position // self.block
        if place >= short_place:
            beyond = position - short_place * self.block - short
            place = short_place if beyond < 0 else short_place + 1 + beyond // self.block
        window = place // self.window
        first = window * self.window
        last = min(first + self.window, full + (short > 0))
        blocks = self._blocks.samples(epoch, first - (short_place < first), last - (short_place < last))
        samples = np.add.outer(blocks * self.block, np.arange(self.block)).ravel()
        if first <= short_place < last:
            samples = np.append(samples, np.arange(full * self.block, self.n))
        # Blocks begin elsewhere in each epoch, which separates neighbors and makes each sample equally likely anywhere.
        samples += self._draw("cut", epoch, self.n)
        samples[samples >= self.n] -= self.n
        key = derive_key("window", self.n, self.seed, self.block, self.window, epoch, window)
        start = first * self.block - (self.block - short) * (short_place < first)
        return start, samples[sorted_shuffle(samples.size, key)]

    def _draw(self, purpose: str, epoch: int, below: int) -> int:
        """A number in [0, below), the same in the whole epoch."""
        return derive_key(purpose, self.n, self.seed, self.block, epoch) * below >> 64
