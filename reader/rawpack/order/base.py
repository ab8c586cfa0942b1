"""The base of every order: a pure function from (epoch, position) to a sample."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.system.equality import same

if TYPE_CHECKING:
    from rawpack.order.ranks import RankSplit

REGION = 4096
"""Samples that one rank requests from the disk together, unless the order has regions of its own."""

Samples = NDArray[np.int64]
"""Samples, int64 (n,)."""


class Order(ABC):
    """Which sample comes at which position of which epoch.

    The same arguments give the same samples in every process, on every machine and in every release with the same
    `version`. An order is computed in windows of positions, and the last two windows are kept. Threads may share it: at
    worst, a window is computed twice. Pickles do not include the windows.
    """

    version: ClassVar[int] = 1
    """Increases when the same arguments would give other samples. Compared on resume."""

    foreseeable: bool = True
    """Whether an epoch may be computed before it begins: not if that calls the user's code."""

    repeats: bool = False
    """Whether random numbers must depend on positions, because the same sample may come several times in an epoch."""

    batch_size: int | None = None
    """Where the order depends on the size of batches: that size."""

    same_each_epoch: bool = False
    """Whether all epochs have the same samples in the same order."""

    @property
    def follows_epoch(self) -> bool:
        """Whether epochs differ by their numbers, so that epoch 0 again and again would be the same samples in the same
        order."""
        return not self.same_each_epoch

    _kept: tuple[tuple[int, int, int, Samples], ...] = ()
    """(epoch, start, stop, samples) of the last two windows."""

    @property
    def name(self) -> str:
        """The kind of order and its parameters except the seed: part of a state."""
        return type(self).__name__.lower()

    @property
    def identity(self) -> dict[str, Any]:
        """What else must be equal for a state to mean the same samples, by name."""
        return {} if self.batch_size is None else {"batch_size": self.batch_size}

    @abstractmethod
    def length(self, epoch: int) -> int:
        """The number of positions in `epoch`."""

    @abstractmethod
    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        """The window with `position` in it: its first position, and its samples in a new array."""

    def __len__(self) -> int:
        """The number of positions in epoch 0, and in every epoch unless a sampler varies it."""
        return self.length(0)

    def __bool__(self) -> bool:
        """True, whatever its length, which may have to be drawn: `if sampler:` asks whether there is one."""
        return True

    def samples(self, epoch: int, start: int, stop: int) -> Samples:
        """The samples at positions start..stop-1 of `epoch`, int64 (stop - start,), possibly a read-only view.

        Raises UsageError unless epoch >= 0 and 0 <= start <= stop <= length(epoch).
        """
        for of, low, high, samples in self._kept:
            if of == epoch and low <= start <= stop <= high:
                return samples[start - low : stop - low]
        length = self.length(epoch)
        if epoch < 0 or not 0 <= start <= stop <= length:
            raise UsageError(
                f"epoch {epoch} has no positions [{start}, {stop}): epochs count from 0, its length is {length}"
            )
        pieces = [np.empty(0, np.int64)]
        while start < stop:
            low, samples = self._keep(epoch, start)
            pieces.append(samples[start - low : stop - low])
            start = low + samples.size
        return np.concatenate(pieces)

    def region_end(self, epoch: int, position: int, ranks: int = 1) -> int:
        """The end of the region from `position` on that `ranks` ranks should request from the disk together. See
        `Readahead`."""
        return min(position + REGION * ranks, self.length(epoch))

    def split(self, ranks: RankSplit, epoch: int, consumed: tuple[int, ...] = ()) -> RankSplit:
        """How `ranks` share this epoch. consumed: as of `consumed_of`."""
        return replace(ranks, length=self.length(epoch))

    def consumed_of(self, state: Mapping[str, Any], epoch: int, position: int) -> tuple[int, ...]:
        """What a state says of what was read, besides the position. UsageError where that makes no sense."""
        return ()

    def _keep(self, epoch: int, position: int) -> tuple[int, Samples]:
        """`_window`, from the last two or computed and kept."""
        for of, low, high, samples in self._kept:
            if of == epoch and low <= position < high:
                return low, samples
        low, samples = self._window(epoch, position)
        samples.flags.writeable = False
        kept = ((epoch, low, low + samples.size, samples), *self._kept[:1])
        object.__setattr__(self, "_kept", kept)
        return low, samples

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return same(self.__getstate__(), other.__getstate__())

    def __hash__(self) -> int:
        return hash(type(self))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_kept", "_deals")}
