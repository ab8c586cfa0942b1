"""A sample that represents a source."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources import Item, Samples, Source
from rawpack_packer.sources.optional import unread_of


@dataclass(frozen=True)
class _Some:
    """Some samples, each a part of its own; workers get it pickled."""

    parts: tuple[Samples, ...]

    def __len__(self) -> int:
        return len(self.parts)

    def __getitem__(self, i: int, /) -> Item:
        return self.parts[i][0]

    def key(self, i: int, /) -> str:
        return self.parts[i].key(0)


class SampleSource:
    """Some samples of a source, in its order. See `Source`."""

    def __init__(self, source: Source, numbers: NDArray[np.int64]) -> None:
        self._source, self._numbers = source, numbers
        self.info = source.info

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, i: int, /) -> Item:
        return self._source[int(self._numbers[i])]

    def key(self, i: int, /) -> str:
        return self._source.key(int(self._numbers[i]))

    def part(self, start: int, stop: int, /) -> Samples:
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a sample of {len(self)}")
        return _Some(tuple(self._source.part(n, n + 1) for n in self._numbers[start:stop].tolist()))

    def states(self) -> NDArray[np.int64]:
        states = self._source.states()
        return states[self._numbers] if len(states) >= len(self._source) else states


def draw(source: Source, count: int, seed: int) -> SampleSource:
    """`count` samples of a source, or all.

    The samples are sorted by file size, if each has a file, and cut into `count` equal runs, each of which gives one at
    random. So small and large files are as frequent as in the whole.
    """
    found = np.setdiff1d(np.arange(len(source)), unread_of(source))
    total = len(found)
    count = min(count, total)
    random = np.random.default_rng(seed)
    states = source.states()
    sizes = states[found, 0] if len(states) >= len(source) else np.zeros(total, np.int64)
    # Files of the same size in random order: a run must not be a stretch of one folder.
    order = np.lexsort((random.permutation(total), sizes))
    edges = np.arange(count + 1) * total // count
    return SampleSource(source, np.sort(found[order[random.integers(edges[:-1], edges[1:])]]).astype(np.int64))
