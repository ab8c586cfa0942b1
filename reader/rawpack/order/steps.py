"""The steps of an epoch: which samples are in each batch, computed before anything is read."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.order.base import Order
from rawpack.order.ranks import RankSplit, Span
from rawpack.words import CLIP, INDEX, ROWS


class EpochStep(msgspec.Struct):
    rows: NDArray[np.int64]
    """int64 (n,): the rows of its samples in the stores; for clips (n, frames)."""
    index: NDArray[np.int64]
    """int64 (n,): the positions of its samples in the reader."""
    position: int
    """Samples of the epoch that all ranks together have consumed when this batch has been handed over."""
    clips: NDArray[np.int64] | None = None
    """The numbers of clips, int64 (n,), where samples are clips."""
    bucket: int = 0
    """Where batches are of buckets, the one that all its samples are in."""

    first: int = -1
    """Where samples may repeat in an epoch: the position of the first one in the epoch."""

    repeated: int = 0
    """How many samples, the last ones, are repetitions that fill up this rank's batch."""

    @property
    def valid(self) -> NDArray[np.bool_]:
        """Whether each sample is no such repetition, bool (n,)."""
        return np.arange(len(self.rows)) < len(self.rows) - self.repeated


def samples(steps: Sequence[EpochStep]) -> int:
    return sum(len(step.rows) for step in steps)


def write(steps: Sequence[EpochStep], views: dict[str, NDArray[Any]]) -> None:
    """Write into a slot's arrays which samples they are to hold: those of one batch after another."""
    end = 0
    for step in steps:
        start, end = end, end + len(step.rows)
        views[INDEX][start:end], views[ROWS][start:end] = step.index, step.rows
        if step.clips is not None:
            views[CLIP][start:end] = step.clips


class EpochStart(msgspec.Struct, frozen=True):
    epoch: int
    position: int
    """Samples of the epoch that all ranks together have consumed before."""
    split: RankSplit

    def __len__(self) -> int:
        """The number of batches from here to the epoch's end."""
        return self.split.count(self.position)

    def span(self, batch: int) -> Span:
        return self.split.batch(batch, self.position)

    def reached(self, batches: int) -> int:
        """The position to resume from after this many batches."""
        return self.split.reached(batches, self.position)

    def steps(
        self,
        order: Order,
        selection: NDArray[np.int64] | None,
        rows_of: Callable[[NDArray[np.int64], int], NDArray[np.int64]] | None = None,
    ) -> Generator[EpochStep]:
        """Which samples are in each batch. selection: the rows, or the numbers of clips, of the order's samples; None
        for all. rows_of: where samples are clips, gives the rows of the clips with these numbers; and `first`."""
        for span, after in self.split.spans(self.position):
            index = span.samples(order, self.epoch)
            samples = index if selection is None else selection[index]
            # Positions are counted from 0 in each bucket, and random numbers must differ between buckets.
            first = span.start + (span.bucket << 48) if order.repeats else -1
            rows, clips = (samples, None) if rows_of is None else (rows_of(samples, first), samples)
            yield EpochStep(rows, index, after, clips, span.bucket, first, span.repeated)

    def state(self, position: int) -> dict[str, Any]:
        """What to resume from where `position` of this epoch was reached: epoch, position, and what its order adds."""
        # It is over for all ranks or none, so that each may resume from the state of any: where last="keep" gives this
        # one no batch in the last step, others have one.
        if self.split.steps_left(position):
            return {"epoch": self.epoch, "position": position, **self.split.state(position)}
        return {"epoch": self.epoch + 1, "position": 0, **self.split.next_epoch.state(0)}

    @property
    def next_epoch(self) -> EpochStart:
        """The start of the epoch after this one, where all epochs have the same length."""
        return msgspec.structs.replace(self, epoch=self.epoch + 1, position=0, split=self.split.next_epoch)


class EpochSteps(Iterator[EpochStep], Protocol):
    """The steps of an epoch, from some position on."""

    def close(self) -> None:
        """No more steps are wanted."""
