"""Which positions of an epoch each rank reads in each step.

All ranks together read the next batch_size * world_size positions, each rank a contiguous slice of them. What has been
read is therefore always a prefix of the epoch: a resume needs one number only, the position counted over all ranks, and
may have another world size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack.order.base import Order, Samples

Last = Literal["pad", "keep"]


class Span(msgspec.Struct):
    """The positions start..stop-1 of an epoch, which wrap around at its end."""

    start: int
    stop: int
    length: int
    """Positions in the epoch, 1 or more."""
    bucket: int = 0
    """Where batches are of buckets, the one that it is in."""

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def repeated(self) -> int:
        """How many positions, the last ones, are beyond the end of the epoch, to fill up a rank's batch."""
        return min(len(self), max(0, self.stop - self.length))

    def pieces(self) -> list[tuple[int, int]]:
        """The span as one or more (start, stop) within the epoch; more than one where it wraps around."""
        pieces, at = [], self.start
        while at < self.stop:
            low = at % self.length
            high = min(low + self.stop - at, self.length)
            pieces.append((low, high))
            at += high - low
        return pieces

    def samples(self, order: Order, epoch: int) -> Samples:
        """The samples at these positions, int64 (len(self),), possibly read-only."""
        if self.stop <= self.length:
            return order.samples(epoch, self.start, self.stop)
        return np.concatenate([order.samples(epoch, start, stop) for start, stop in self.pieces()])


@dataclass(frozen=True)
class RankSplit:
    """How one rank's batches are cut from an epoch.

    Fewer than batch_size * world_size positions may remain for the last step. These r are divided contiguously:

    - last="pad": each rank reads ceil(r / world_size), and the last ranks are filled up from the start of the epoch.
      All ranks have the same number of batches, of the same sizes. A single rank has a shorter last batch.
    - last="keep": r is divided as evenly as possible, without filling. The first ranks may have one sample more; if
      r < world_size, the last ranks have no batch in this step.
    - drop_last=True, with either: no rank reads them. See `check_not_empty`.
    """

    length: int
    """Positions in the epoch, 0 or more."""

    batch_size: int
    """Samples per batch and rank, 1 or more."""

    rank: int = 0

    world_size: int = 1
    last: Last = "pad"
    drop_last: bool = False
    undivided: bool = False
    """Whether batches must not be divided, for orders whose epochs have full batches only. The remaining ones go to the
    first ranks, and with "pad", the other ranks read batches from the start of the epoch."""

    def __len__(self) -> int:
        return self.count()

    def count(self, position: int = 0) -> int:
        """The number of this rank's batches from `position`, which is not 0 after a resume, to the end of the epoch."""
        full, left = divmod(self.length - position, self.batch_size * self.world_size)
        low, high = self._last(left)
        return full + (low < high)

    def steps_left(self, position: int = 0) -> int:
        """The number of steps in which any rank has a batch: the first one has in all of them."""
        return self.count(position) if not self.rank else replace(self, rank=0).count(position)

    def batch(self, step: int, position: int = 0) -> Span:
        """This rank's batch in a step, counted from 0 at `position`. Raises IndexError where it has none."""
        step_size = self.batch_size * self.world_size
        start = position + step * step_size
        low, high = self._slice(min(step_size, self.length - start))
        if low >= high or step < 0 or position < 0:
            raise IndexError(f"no step {step} from position {position}: rank {self.rank} has {self.count(position)}")
        return Span(start + low, start + high, self.length)

    def spans(self, position: int) -> Iterator[tuple[Span, int]]:
        """`batch` of each step, and the position reached by it."""
        step_size, low, length = self.batch_size * self.world_size, self.rank * self.batch_size, self.length
        full = (length - position) // step_size
        for step in range(self.count(position)):
            start, after = position + step * step_size + low, position + (step + 1) * step_size
            # The same as `batch` and `reached`, in a quarter of the time.
            span = Span(start, start + self.batch_size, length) if step < full else self.batch(step, position)
            yield span, after if after < length else length

    def reached(self, steps: int, position: int = 0) -> int:
        """The position to resume from after `steps` steps of all ranks. At most the epoch's length."""
        return min(position + steps * self.batch_size * self.world_size, self.length)

    def state(self, position: int) -> dict[str, Any]:
        """What a state has at this position besides the position itself."""
        return {}

    @property
    def next_epoch(self) -> RankSplit:
        """The split of the next epoch from its start, where all epochs have the same length."""
        return self

    def check_not_empty(self) -> None:
        """Raises UsageError where `drop_last` leaves out the whole epoch: a loop over it would do nothing, silently."""
        if not self.drop_last or not self.length or self.count():
            return
        size, ranks, most = self.batch_size, self.world_size, self._most_together
        where = f"the largest bucket has {most:,}" if most < self.length else f"an epoch has {most:,}"
        needed = f"{size:,}" if ranks == 1 else f"{size * ranks:,}: {size:,} for each of {ranks:,} ranks"
        fits = f"a batch_size of at most {most // ranks:,}" if most >= ranks else "fewer ranks"
        raise UsageError(
            f"drop_last=True leaves out every batch: a full one needs {needed}, and {where} "
            f"{'samples' if most != 1 else 'sample'}; pass {fits}, or drop_last=False"
        )

    @property
    def _most_together(self) -> int:
        """The most samples that full batches may be cut from."""
        return self.length

    def lengths(self, position: int = 0) -> list[int]:
        """The lengths that this rank's batches have, from `position` to the end of the epoch."""
        count = self.count(position)
        return sorted({len(self.batch(step, position)) for step in (0, count - 1)}) if count else []

    def _slice(self, samples: int) -> tuple[int, int]:
        """This rank's slice [low, high) of a step of this many samples. `high` exceeds them where it is filled up."""
        if samples < self.batch_size * self.world_size:
            return self._last(samples)
        return self.rank * self.batch_size, (self.rank + 1) * self.batch_size

    def _last(self, left: int) -> tuple[int, int]:
        """This rank's slice [low, high) of an uneven last step. `high` exceeds `left` where it is filled up."""
        if left <= 0 or self.drop_last:
            return 0, 0
        if self.undivided:
            low = self.rank * self.batch_size
            return (low, low + self.batch_size) if self.last == "pad" or low < left else (0, 0)
        if self.last == "pad":
            size = -(-left // self.world_size)
            return self.rank * size, (self.rank + 1) * size
        size, more = divmod(left, self.world_size)
        low = self.rank * size + min(self.rank, more)
        return low, low + size + (self.rank < more)
