"""What every order is: a pure function from (epoch, position) to a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.order.keys import whole_number

MAX_SAMPLES = 1 << 62

REGION = 4096
"""Samples that the disk is asked for together by one rank, unless the order itself goes from region to region."""

Samples = NDArray[np.int64]
"""Samples, int64 (n,)."""


class Order(ABC):
    """Which sample comes at which position of which epoch.

    The same arguments give the same samples in every process, on every machine and in every release with the
    same `version`. An order is computed window by window of positions, and the last two windows are kept: threads
    may share it (the worst of a race is a window computed twice), and by pickle it travels without them.
    """

    version: ClassVar[int] = 1
    """Goes up when the same arguments would give other samples. A resume compares it."""

    foreseeable: bool = True
    """Whether it may be asked for an epoch before that epoch begins: not where it calls what a user wrote."""

    _kept: tuple[tuple[int, int, int, Samples], ...] = ()
    """(epoch, start, stop, samples) of the last windows."""

    @abstractmethod
    def length(self, epoch: int) -> int:
        """The number of positions in `epoch`."""

    @abstractmethod
    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        """The window that holds `position`: its first position and its samples, in a new array."""

    def __len__(self) -> int:
        """The number of positions in epoch 0: in every epoch, but for a sampler that varies it."""
        return self.length(0)

    def samples(self, epoch: int, start: int, stop: int) -> Samples:
        """The samples at positions start..stop-1 of `epoch`, int64 (stop - start,).

        May be a read-only view of what the order keeps: copy it before writing.
        UsageError unless epoch >= 0 and 0 <= start <= stop <= length(epoch).
        """
        for of, low, high, samples in self._kept:
            if of == epoch and low <= start <= stop <= high:
                return samples[start - low : stop - low]
        epoch, start, stop = (
            whole_number(name, value) for name, value in (("epoch", epoch), ("start", start), ("stop", stop))
        )
        length = self.length(epoch)
        if epoch < 0 or not 0 <= start <= stop <= length:
            raise UsageError(
                f"epoch {epoch} has no positions [{start}, {stop}): epochs count from 0, its length is {length}"
            )
        gathered = np.empty(stop - start, np.int64)
        at = start
        while at < stop:
            low, samples = self._keep(epoch, at)
            high = min(low + samples.size, stop)
            gathered[at - start : high - start] = samples[at - low : high - low]
            at = high
        return gathered

    def region_end(self, epoch: int, position: int, ranks: int = 1) -> int:
        """Up to which position the samples from `position` on are best asked of a disk together, by so many ranks each
        for its own: see `Readahead`."""
        return min(position + REGION * ranks, self.length(epoch))

    def _keep(self, epoch: int, position: int) -> tuple[int, Samples]:
        """`_window`, kept."""
        for of, low, high, samples in self._kept:
            if of == epoch and low <= position < high:
                return low, samples
        low, samples = self._window(epoch, position)
        samples.flags.writeable = False
        kept = ((epoch, low, low + samples.size, samples), *self._kept[:1])
        object.__setattr__(self, "_kept", kept)
        return low, samples

    def _check(self, name: str, low: int | None = None, high: int | None = None) -> None:
        """Hold the field `name` of a frozen order as a plain int within [low, high], or raise UsageError."""
        object.__setattr__(self, name, whole_number(name, getattr(self, name), low, high))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_kept"}
