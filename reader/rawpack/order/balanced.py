"""Batches in which all classes are equally frequent."""

from __future__ import annotations

import math

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from rawpack.errors import UsageError
from rawpack.order.base import Samples
from rawpack.order.from_column import Column, FromColumn
from rawpack.order.keys import derive_key
from rawpack.order.mixed import MixLength, length_of
from rawpack.order.permutation import splitmix, swapped
from rawpack.order.shuffled import WINDOW

_MOST_MEMBERS = 1 << 32


class Balanced(FromColumn):
    """For `sampler=`: all classes equally often, in every batch and at every position of an epoch within one.

        reader.batches(256, sampler=Balanced("label"))

    by: a field of whole numbers or texts, or an array of them, one for each sample of the reader: its class.
    length: of an epoch, in samples. None: as many as the reader has. "longest": until each sample has come at least
        once. "shortest": until the smallest class is used up. A number. Rounded up so that all classes come equally
        often.
    replacement: False: a class is used up before one of its samples comes again, in another order. What an epoch does
        not use of a class comes in the next ones. True: each time, any of its samples.

    Positions go round through the classes, so that any consecutive positions have each class equally often, within one.
    The order of the classes changes where the end of a round is the end of a batch, so that every batch has such
    positions. Instead of a class for each sample, this keeps the samples sorted by class: 4 bytes for each (8 from
    2**32 samples on).
    """

    def __init__(
        self, by: str | ArrayLike = "label", *, length: MixLength | None = None, replacement: bool = False
    ) -> None:
        super().__init__(by)
        self._asked = None if length is None else length_of(length)
        self._replacement = replacement

    def _set(self, column: Column, seed: int, batch_size: int) -> None:
        if column.dtype.kind not in "iubUST":
            raise UsageError(f"{self.what} must have whole numbers or texts, not {column.dtype}")
        if isinstance(self._by, str) and self._by == "label" and column.min() < 0:
            raise UsageError(
                f"{np.count_nonzero(column < 0)} samples have no label: leave them out first, with "
                'reader.select(mask=reader.column("label") >= 0)'
            )
        _, of_class, counts = np.unique(column, return_inverse=True, return_counts=True)
        if isinstance(self._asked, str):
            per_class = int(counts.max() if self._asked == "longest" else counts.min())
        else:
            per_class = -(-(self._asked or len(column)) // len(counts))
        if len(of_class) >= _MOST_MEMBERS:
            members = np.argsort(of_class, kind="stable")
        else:
            members = np.argsort(of_class, kind="stable").astype(np.uint32)
        self._members: NDArray[np.unsignedinteger] | NDArray[np.intp] = members
        self._counts, self._starts = counts.astype(np.int64), np.cumsum(counts) - counts
        self._per_class, self._seed, self.batch_size = per_class, seed, batch_size
        self._group = math.lcm(len(counts), batch_size)
        """Positions in which the order of the classes stays."""
        used_up = -(-per_class // self._counts) * self._counts
        self._strides = np.where(self._counts > per_class, per_class, used_up)
        """Of each class: how many of its samples, counted through all its rounds, lie between two epochs' first."""

    @property
    def name(self) -> str:
        digest = xxhash.xxh3_64(np.ascontiguousarray(self._members, "<i8").data)
        digest.update(np.ascontiguousarray(self._counts, "<i8").data)
        kind = "with replacement" if self._replacement else "without replacement"
        return f"balanced {len(self._counts)} classes x {self._per_class}, {kind}, {digest.hexdigest()}"

    def length(self, epoch: int) -> int:
        return len(self._counts) * self._per_class

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        start = position - position % WINDOW
        positions = np.arange(start, min(start + WINDOW, self.length(epoch)), dtype=np.int64)
        classes = len(self._counts)
        group, at = np.divmod(positions, self._group)
        groups = splitmix(group.astype(np.uint64), derive_key("classes", classes, self._seed, epoch))
        of = swapped(at % classes, np.full(len(at), classes), groups)
        drawn = group * (self._group // classes) + at // classes + epoch * self._strides[of]
        sizes = self._counts[of]
        turn, at = np.divmod(drawn, sizes)
        key = derive_key("class", self._seed)
        own = splitmix(of.astype(np.uint64), key)
        if self._replacement:
            words = splitmix(own + drawn.astype(np.uint64), derive_key("class, any", self._seed, epoch))
            member = ((words >> np.uint64(32)) * sizes.astype(np.uint64) >> np.uint64(32)).astype(np.int64)
        else:
            member = swapped(at, sizes, splitmix(own + turn.astype(np.uint64), key))
        return start, self._members[self._starts[of] + member].astype(np.int64)
