"""Which positions of an epoch each rank takes in each step.

All ranks together take the next batch_size * world_size positions, each its contiguous slice of them, so that
what has been consumed is always a prefix of the epoch: one number, the position counted over all ranks, is all
that a resume needs, and the world size may be another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from rawpack.errors import UsageError
from rawpack.order.base import MAX_SAMPLES, Order, Samples
from rawpack.order.keys import rank_in, whole_number

Uneven = Literal["pad", "keep"]


@dataclass(slots=True)
class Span:
    """The positions start..stop-1 of an epoch; those from its length on are its first ones again."""

    start: int
    stop: int
    length: int
    """Positions in the epoch, 1 or more."""

    def __len__(self) -> int:
        return self.stop - self.start

    def pieces(self) -> list[tuple[int, int]]:
        """The span as (start, stop) within the epoch, one after another; more than one where it wraps."""
        pieces, at = [], self.start
        while at < self.stop:
            low = at % self.length
            high = min(low + self.stop - at, self.length)
            pieces.append((low, high))
            at += high - low
        return pieces

    def samples(self, order: Order, epoch: int) -> Samples:
        """The samples at these positions, int64 (len(self),); read-only where the order says so."""
        if self.stop <= self.length:
            return order.samples(epoch, self.start, self.stop)
        return np.concatenate([order.samples(epoch, start, stop) for start, stop in self.pieces()])


@dataclass(frozen=True)
class RankSplit:
    """How one rank's batches are cut from an epoch.

    The last step has fewer than batch_size * world_size positions left, r of them, divided contiguously:

    - uneven="pad": each rank takes ceil(r / world_size), the last ones filled up from the epoch's start. All
      ranks have equally many batches of equal sizes; with one rank nothing is filled, its last batch is shorter.
    - uneven="keep": r is divided as evenly as it goes, nothing is filled. The first ranks may have one sample
      more; where r < world_size, the last ranks have no batch in this step.
    - drop_last=True, with either: no rank takes them.
    """

    length: int
    """Positions in the epoch, 0 or more."""

    batch_size: int
    """Samples per batch and rank, 1 or more."""

    rank: int = 0
    world_size: int = 1
    uneven: Uneven = "pad"
    drop_last: bool = False

    def __post_init__(self) -> None:
        whole_number("length", self.length, 0, MAX_SAMPLES)
        whole_number("batch_size", self.batch_size, 1)
        whole_number("world_size", self.world_size, 1)
        rank_in(self.rank, self.world_size)
        if self.uneven not in ("pad", "keep"):
            raise UsageError(f'uneven must be "pad" or "keep", not {self.uneven!r}')

    def __len__(self) -> int:
        return self.count()

    def count(self, position: int = 0) -> int:
        """The number of this rank's batches from `position`, 0 or what a resume says, to the epoch's end."""
        whole_number("position", position, 0, self.length)
        full, left = divmod(self.length - position, self.batch_size * self.world_size)
        low, high = self._last(left)
        return full + (low < high)

    def batch(self, step: int, position: int = 0) -> Span:
        """This rank's batch in the given step, counted from 0 at `position`; IndexError where it has none."""
        step_size = self.batch_size * self.world_size
        start = position + step * step_size
        if start + step_size <= self.length:
            low, high = self.rank * self.batch_size, (self.rank + 1) * self.batch_size
        else:
            low, high = self._last(self.length - start)
        if low >= high or step < 0 or position < 0:
            raise IndexError(f"no step {step} from position {position}: rank {self.rank} has {self.count(position)}")
        return Span(start + low, start + high, self.length)

    def reached(self, steps: int, position: int = 0) -> int:
        """The position after so many steps of all ranks: what to resume from. Never beyond the epoch's end."""
        return min(position + steps * self.batch_size * self.world_size, self.length)

    def _last(self, left: int) -> tuple[int, int]:
        """This rank's part [low, high) of an uneven last step; `high` beyond `left` where it is filled up."""
        if left <= 0 or self.drop_last:
            return 0, 0
        if self.uneven == "pad":
            size = -(-left // self.world_size)
            return self.rank * size, (self.rank + 1) * size
        size, more = divmod(left, self.world_size)
        low = self.rank * size + min(self.rank, more)
        return low, low + size + (self.rank < more)
