"""What most sources have in common: all their samples are one part, of which workers get smaller ones."""

from __future__ import annotations

from typing import Protocol, Self

from rawpack_packer.sources.base import Item, Samples


class Divisible(Samples, Protocol):
    """Samples of which parts can be taken."""

    def part(self, start: int, stop: int, /) -> Self:
        """See `Source.part`."""


class BaseSource:
    """The methods of a `Source` that its samples answer; a kind of source sets `_all` and adds what it says of them."""

    _all: Divisible

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, i: int, /) -> Item:
        return self._all[i]

    def key(self, i: int, /) -> str:
        return self._all.key(i)

    def part(self, start: int, stop: int, /) -> Samples:
        return self._all.part(start, stop)
