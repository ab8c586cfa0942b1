"""Orders by a column of the reader, for `Reader.batches(sampler=)`: classes in balance, and samples by weight."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
import xxhash
from numpy.typing import ArrayLike, NDArray

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.order.base import Order, Samples
from rawpack.order.keys import GAMMA, WORD, derive_key
from rawpack.order.mixed import MixLength, length_of
from rawpack.order.permutation import splitmix, swapped
from rawpack.order.shuffled import WINDOW, Shuffled
from rawpack.system.user import count, suggesting

Column = NDArray[Any]
_MOST_MEMBERS = 1 << 32
_TOTAL = 1 << 52
"""Weights are whole numbers below this, also in sum, so that sums are exact and the same on every machine."""
_MOST_WITHOUT = 1 << 31


class FromColumn(Order):
    """An order that depends on a column, such as the label of each sample. Users make one without samples.

    by: the name of a field, or an array with one value for each sample of the reader.
    """

    repeats = True

    def __init__(self, by: str | ArrayLike) -> None:
        self._by = by
        self._length: int | None = None
        """Of an epoch; None until it is the order of some samples."""

    def length(self, epoch: int) -> int:
        if self._length is None:
            raise UsageError(
                f"{self.what} has no samples, and so no length, before it is passed to batches(sampler=...); len() of "
                "these batches is their number"
            )
        return self._length

    @abstractmethod
    def _set(self, column: Column, seed: int, batch_size: int) -> None:
        """Become the order of the samples that have these values."""

    def order(self, column_of: Callable[[str], ArrayLike], n: int, seed: int, batch_size: int) -> Self:
        """The same for `n` samples. column_of: gives a column by its name. Raises UsageError where it does not fit."""
        given = column_of(self._by) if isinstance(self._by, str) else self._by
        try:
            column = np.asarray(given)
        except (TypeError, ValueError) as error:  # such as lists of different lengths
            raise UsageError(f"{self.what} cannot be read as an array: {error}") from error
        if column.shape != (n,):
            raise UsageError(
                f"{self.what} must have one value for each of the {n} samples, not values of shape {column.shape}; "
                'for values by class: values[reader.column("label")], of an array with one for each class'
            )
        order = copy(self)
        order._set(column, whole_number("seed", seed), batch_size)
        return order

    @property
    def what(self) -> str:
        """The column, as an error names it."""
        return f"{type(self).__name__}({repr(self._by) if isinstance(self._by, str) else 'array'})"


@suggesting
class Balanced(FromColumn):
    """For `sampler=`: all classes equally often, in every batch and at every position of an epoch within one.

        reader.batches(256, sampler=Balanced("label"))

    by: a field of whole numbers or texts, or an array of them, one for each sample of the reader: its class.
    length: of an epoch, in samples. None: as many as the reader has. "longest": until each sample has come at least
        once. "shortest": until the smallest class is used up. A number. Rounded up so that all classes come equally
        often.
    replacement: False: a class is used up before one of its samples comes again, in another order. What an epoch does
        not use of a class comes in the next ones. True: each time, any of its samples.

    Classes take turns, so that any consecutive positions have each class equally often, within one.
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
        if isinstance(self._by, str) and self._by == "label" and column.dtype.kind == "i" and column.min() < 0:
            raise UsageError(
                f"{count(int((column < 0).sum()), 'sample has', 'samples have')} no label: leave them out first, with "
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
        self._length = len(counts) * per_class
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


@suggesting
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
        length = self._asked or len(weights)
        if not self._replacement and length >= _MOST_WITHOUT:
            raise UsageError(f"length={length}: without replacement, an epoch has fewer than {_MOST_WITHOUT} samples")
        scaled = np.rint(weights / weights.max() * (_TOTAL // len(weights)))
        self._sums = np.cumsum(np.maximum(scaled, weights > 0).astype(np.int64))
        """(n,): the weights of each sample and of all before it."""
        self._length, self._seed, self._places = length, seed, Shuffled(length, derive_key("places", seed))

    @property
    def name(self) -> str:
        kind = "with replacement" if self._replacement else "without replacement"
        return f"weighted, {len(self)} {kind}, {xxhash.xxh3_64_hexdigest(np.ascontiguousarray(self._sums, '<i8').data)}"

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        start = position - position % WINDOW
        length, total = self.length(epoch), int(self._sums[-1])
        stop = min(start + WINDOW, length)
        if self._replacement:
            words = splitmix(np.arange(start, stop, dtype=np.uint64), derive_key("weighted", self._seed, epoch))
            units = (words >> np.uint64(11)) * 2.0**-53
            marks = np.minimum((units * total).astype(np.int64), total - 1)
        else:
            # Steps of the golden ratio: after any number of epochs, their first marks are spread evenly.
            first = ((derive_key("first mark", self._seed) + epoch * GAMMA) & WORD) * total >> 64
            distance, rest = divmod(total, length)
            places = self._places.samples(epoch, start, stop)
            marks = places * distance + (places * rest + first) // length
        return start, np.searchsorted(self._sums, marks, side="right").astype(np.int64)
