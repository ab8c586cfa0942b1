"""The random numbers of a sample: a pure function of (seed, epoch, sample), or, in orders that repeat samples within an
epoch, of (seed, epoch, position).

Counters through splitmix64's mixer, like the keys of the order: the same on every machine, with every numpy version.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from rawpack.order.keys import GAMMA, WORD, derive_key, mix
from rawpack.order.permutation import mix_all

_AHEAD = 16
"""Numbers that are drawn for all samples of a slice at once: more than most transforms need."""
_UNIT = 2.0**-53
Seeds = tuple[int, int, int]
"""Seed; epoch; and -1, or the position of the first of the samples, where random numbers depend on positions."""


class Random:
    """Random numbers for one sample. Each sample gets its own object, which one thread uses."""

    __slots__ = ("_key", "random")

    def __init__(self, key: int, used: int = 0, ahead: Sequence[float] = ()) -> None:
        """key: 64 bits. used: how many numbers of this key were used already. ahead: those that come next, if they have
        been drawn."""
        self._key = key
        self.random = chain(ahead, _units(key, used + len(ahead))).__next__
        """random() is a float in [0, 1)."""

    def uniform(self, low: float, high: float) -> float:
        """A float in [low, high)."""
        return low + (high - low) * self.random()

    def integer(self, end: int) -> int:
        """A whole number from 0 to end - 1."""
        return int(self.random() * end)

    def generator(self) -> np.random.Generator:
        """numpy's generator, for other distributions. It takes about 20 µs to make."""
        return np.random.Generator(np.random.Philox(key=mix(self._key ^ int(self.random() * WORD))))


class Randoms:
    """The random numbers of several samples, each of which has its own. One thread uses them."""

    def __init__(self, keys: NDArray[np.uint64]) -> None:
        """keys: (n,), as `Random` has one."""
        self._keys = keys
        self._used: NDArray[np.uint64] = np.zeros(len(keys), np.uint64)
        self._each: list[Random] | None = None
        """Once there are these, `_used` counts no more."""

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, part: slice) -> Randoms:
        """Those of some samples, which continue where these are. Use either these or those from then on."""
        some = Randoms(self._keys[part])
        some._used, some._each = self._used[part].copy(), None if self._each is None else self._each[part]
        return some

    def random(self, of: NDArray[np.int64] | None = None) -> NDArray[np.float64]:
        """(n,): the next number of each; or of some of them, whose positions are given, each once."""
        if self._each is not None:
            each = self._each if of is None else [self._each[i] for i in of.tolist()]
            return np.array([one.random() for one in each])
        which = slice(None) if of is None else of
        self._used[which] += np.uint64(1)
        return _numbers(self._keys[which], self._used[which])

    @property
    def each(self) -> list[Random]:
        """Those of each sample, which continue where `random` is."""
        if self._each is None:
            further: NDArray[np.uint64] = np.arange(1, _AHEAD + 1, dtype=np.uint64)
            ahead = _numbers(self._keys[:, None], self._used[:, None] + further)
            self._each = list(map(Random, self._keys.tolist(), self._used.tolist(), ahead.tolist()))
        return self._each

    def __iter__(self) -> Iterator[Random]:
        return iter(self.each)


def randoms_of(seeds: Seeds, samples: NDArray[np.int64], field: str = "") -> Randoms:
    """The random numbers of each sample, (n,), by its number or its position. field: for what is drawn for this field
    alone, in samples of several images."""
    seed, epoch, first = seeds
    # The numbers that stand for positions are negative, so that they are never those of samples.
    rows = samples if first < 0 else ~np.arange(first, first + len(samples))
    key = derive_key(f"transform {field}" if field else "transform", seed, epoch)
    return Randoms(mix_all(rows.astype(np.uint64) * np.uint64(GAMMA) + np.uint64(key)))


def batch_random(seed: int, epoch: int, rows: NDArray[np.int64]) -> Random:
    """The random numbers of a batch, which depend on its samples and their order."""
    import xxhash

    digest = xxhash.xxh3_64_intdigest(np.ascontiguousarray(rows, "<i8").data)
    return Random(mix(derive_key("batch transform", seed, epoch) ^ digest))


def _units(key: int, drawn: int) -> Iterator[float]:
    """The numbers of a key from number `drawn` on."""
    word = (key + GAMMA * drawn) & WORD
    while True:
        word = (word + GAMMA) & WORD
        yield (mix(word) >> 11) * _UNIT


def _numbers(keys: NDArray[np.uint64], which: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Those numbers of keys, counted from 1: as `_units` gives them."""
    return (mix_all(keys + which * np.uint64(GAMMA)) >> np.uint64(11)) * np.float64(_UNIT)
