"""The steps of an epoch: which samples are in each batch, computed before anything is read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.store.concatenated import CLIP, INDEX


@dataclass(slots=True)
class EpochStep:
    """The next batch of an epoch."""

    rows: NDArray[np.int64]
    """int64 (n,): the rows of its samples in the reader; for clips (n, frames)."""
    position: int
    """Samples of the epoch that all ranks together have consumed when this batch has been handed over."""
    clips: NDArray[np.int64] | None = None
    """The numbers of clips, int64 (n,), where samples are clips."""

    def write(self, views: dict[str, NDArray[Any]], start: int = 0) -> None:
        """Write into a slot's arrays, from `start` on, which samples they are to hold."""
        stop = start + len(self.rows)
        views[INDEX][start:stop] = self.rows
        if self.clips is not None:
            views[CLIP][start:stop] = self.clips


class EpochSteps(Iterator[EpochStep], Protocol):
    """The steps of an epoch, from some position on."""

    def close(self) -> None:
        """No more steps are wanted."""
