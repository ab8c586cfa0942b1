"""Several stores in one order, each with its share of every batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Rational, Real
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.order.base import Order, Samples
from rawpack.order.quota import Quota, rounded
from rawpack.order.shuffled import WINDOW
from rawpack.system.user import count

MixLength = Literal["longest", "shortest"] | int
"""How long an epoch is: see `Reader.mix`."""


def shares_of(values: Sequence[object]) -> tuple[Fraction, ...]:
    """Shares that sum up to 1, in the proportions of `values`. Floats count as the simple fraction nearest to them,
    such as 1/3, or else as the decimal number that they print as.

    Raises UsageError for anything but numbers above 0.
    """
    exact = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < float("inf"):
            raise UsageError(f"a share must be a number above 0, not {value!r}")
        exact.append(Fraction(value) if isinstance(value, Rational) else _fraction(float(value)))
    total = sum(exact)
    return tuple(share / total for share in exact)


def _fraction(value: float) -> Fraction:
    simple = Fraction(value).limit_denominator(1000)
    return simple if float(simple) == value else Fraction(repr(value))


def length_of(value: object) -> MixLength:
    if isinstance(value, str):
        if value not in ("longest", "shortest"):
            raise UsageError(f"length={value!r} must be 'longest', 'shortest' or a number of samples")
        return "longest" if value == "longest" else "shortest"
    return whole_number("length", value, 1)


@dataclass(frozen=True)
class Mixed(Order):
    """Positions are dealt to several stores, so that each store's count is within one of its share in every batch and
    at every prefix of batches of an epoch. An epoch consists of whole batches.

    A store that is used up within an epoch begins again, each round in an order of its own, and each epoch begins with
    a new round. A store that is not used up continues in the next epoch where it stopped. In a batch, the samples of
    each store are spread evenly.

    Samples are numbered through all stores. Memory is O(1) for each store, besides the table of `Quota`.
    """

    repeats = True

    orders: tuple[Order, ...]
    """Of each store: its epochs are the rounds."""
    shares: tuple[Fraction, ...]
    batch_size: int
    length_by: MixLength = "longest"
    """"longest": until each store has been read completely at least once. "shortest": until the first would begin
    again. A number: samples, rounded up to whole batches."""

    def __post_init__(self) -> None:
        if not self._batches:
            sizes = [len(order) for order in self.orders]
            few = min(range(len(sizes)), key=lambda store: sizes[store] / self.shares[store])
            raise UsageError(
                f"length='shortest' leaves no batch: store {few} of the mix has {count(sizes[few], 'sample')}, and a "
                f"batch takes {float(self.shares[few] * self.batch_size):g} of it: pass length='longest', or a number"
            )

    @property
    def name(self) -> str:
        parts = (f"{share} of {len(order)} {order.name}" for share, order in zip(self.shares, self.orders, strict=True))
        return f"mixed {' + '.join(parts)}, {self.length_by}"

    @property
    def follows_epoch(self) -> bool:
        """Not where each epoch begins with a new round of each store, and all rounds are the same."""
        rounds = zip(self._strides, self.orders, strict=True)
        return any(order.follows_epoch or stride % len(order) for stride, order in rounds)

    def length(self, epoch: int) -> int:
        return self._batches * self.batch_size

    @cached_property
    def _rounded(self) -> list[Fraction]:
        return rounded(self.shares, self.batch_size, self._count(self.shares))

    @cached_property
    def _batches(self) -> int:
        return self._count(self._rounded)

    @cached_property
    def _quota(self) -> Quota:
        return Quota(self._rounded, self.batch_size, self._batches)

    @cached_property
    def _strides(self) -> list[int]:
        """Of each store: how many of its samples, counted through all its rounds, lie between two epochs' first."""
        drawn = self._quota.before(np.array([self._batches]))[0].tolist()
        return [
            count if count < len(order) else -(-count // len(order)) * len(order)
            for count, order in zip(drawn, self.orders, strict=True)
        ]

    def _count(self, shares: Sequence[Fraction]) -> int:
        if not isinstance(self.length_by, str):
            return -(-self.length_by // self.batch_size)
        rounds = [len(order) / (share * self.batch_size) for order, share in zip(self.orders, shares, strict=True)]
        return math.ceil(max(rounds)) if self.length_by == "longest" else math.floor(min(rounds))

    def _window(self, epoch: int, position: int) -> tuple[int, Samples]:
        several = max(1, WINDOW // self.batch_size)
        first = position // self.batch_size // several * several
        before = self._quota.before(np.arange(first, min(first + several, self._batches) + 1))
        counts = np.diff(before, axis=0)
        samples, batches, places, offset = [], [], [], 0
        for store, order in enumerate(self.orders):
            low, high = int(before[0, store]), int(before[-1, store])
            samples += [piece + offset for piece in self._drawn(store, epoch, low, high)]
            batch = np.repeat(np.arange(len(counts)), counts[:, store])
            nth = np.arange(low, high) - before[batch, store]
            batches.append(batch)
            places.append((nth + 0.5) / counts[batch, store])
            offset += len(order)
        mixed = np.lexsort((np.concatenate(places), np.concatenate(batches)))
        return first * self.batch_size, np.concatenate(samples)[mixed]

    def _drawn(self, store: int, epoch: int, low: int, high: int) -> Iterator[NDArray[np.int64]]:
        """The samples low .. high-1 that an epoch takes of a store."""
        order, start = self.orders[store], epoch * self._strides[store]
        low, high = start + low, start + high
        while low < high:
            turn, at = divmod(low, len(order))
            stop = min(at + high - low, len(order))
            yield order.samples(turn, at, stop)
            low += stop - at
