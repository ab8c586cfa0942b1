"""The random numbers of a sample: a pure function of (seed, epoch, sample), or, in orders that repeat samples within an
epoch, of (seed, epoch, position).

Counters through splitmix64's mixer, like the keys of the order: the same on every machine, with every numpy version.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat

import numpy as np
from numpy.typing import NDArray

from rawpack.order.keys import GAMMA, MULTIPLIERS, SHIFTS, WORD, derive_key, mix

_AHEAD = 16
"""Numbers that are drawn for all samples of a slice at once: more than most transforms need."""
_UNIT = 2.0**-53
Seeds = tuple[int, int, int]
"""Seed; epoch; and -1, or the position of the first of the samples, where random numbers depend on positions."""


class Random:
    """Random numbers for one sample. Each sample gets its own object, which one thread uses."""

    __slots__ = ("_key", "random")

    def __init__(self, key: int, first: list[float] | None = None) -> None:
        """key: 64 bits. first: the first numbers of this key, if they have been drawn already."""
        self._key = key
        first = first or []
        self.random = chain(first, _units(key, len(first))).__next__
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
        self._keys, self._drawn = keys, 0
        self._each: list[Random] | None = None

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, part: slice) -> Randoms:
        """Those of some samples, from the first number on."""
        return Randoms(self._keys[part])

    def random(self) -> NDArray[np.float64]:
        """(n,): the next number of each."""
        if self._each is not None:
            return np.array([one.random() for one in self._each])
        self._drawn += 1
        return _floats(_mixed(self._keys + np.uint64(GAMMA * self._drawn & WORD)))

    def __iter__(self) -> Iterator[Random]:
        """Those of each, which continue where `random` is."""
        if self._each is None:
            counters = np.arange(1, _AHEAD + 1, dtype=np.uint64) * np.uint64(GAMMA)
            first = _floats(_mixed(self._keys[:, None] + counters)).tolist()
            self._each = list(map(Random, self._keys.tolist(), first))
            for _ in range(self._drawn):
                for one in self._each:
                    one.random()
        return iter(self._each)

    def of_rows(self, rows: int) -> Iterator[tuple[int, Random]]:
        """For each row, the position of its sample and that sample's random numbers: one object for all frames of a
        clip."""
        frames = rows // max(1, len(self))
        return enumerate(self) if frames == 1 else chain.from_iterable(repeat(one, frames) for one in enumerate(self))


def randoms(seed: int, epoch: int, rows: NDArray[np.int64]) -> Randoms:
    """The random numbers of each sample. rows: int64 (n,), which samples."""
    return Randoms(_mixed(rows.astype(np.uint64) * np.uint64(GAMMA) + np.uint64(derive_key("transform", seed, epoch))))


def randoms_of(seeds: Seeds, samples: NDArray[np.int64]) -> Randoms:
    """The random numbers of each sample, (n,), by its number or its position."""
    seed, epoch, first = seeds
    # The numbers that stand for positions are negative, so that they are never those of samples.
    return randoms(seed, epoch, samples if first < 0 else ~np.arange(first, first + len(samples)))


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


def _floats(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """In [0, 1)."""
    return (words >> np.uint64(11)) * np.float64(_UNIT)


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """`mix` of each; uint64 arrays wrap around silently."""
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(multiplier)
    return words ^ (words >> np.uint64(SHIFTS[2]))
