"""What `Reader.mix` needs to know of the stores that it mixes."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.order.base import Order
from rawpack.order.keys import derive_key
from rawpack.order.mixed import Mixed, MixLength, length_of, shares_of
from rawpack.remote.url import shown
from rawpack.store.opening import Opening
from rawpack.store.stores import Stores


@dataclass(frozen=True)
class Mix:
    """How the groups of stores in a library are mixed."""

    names: tuple[str, ...]
    groups: tuple[int, ...]
    """How many of the stores count as one, for each of those that are mixed."""
    shares: tuple[Fraction, ...]
    """1 in sum."""
    length: MixLength

    def __str__(self) -> str:
        shares = zip(self.shares, self.names, strict=True)
        return f"mix of {', '.join(f'{float(share):.3g} {name}' for share, name in shares)}"

    def sizes(self, library: Stores, rows: NDArray[np.int64] | None) -> list[int]:
        """How many samples each group has. rows: of all samples, or of their first frames; None: all rows.

        Raises UsageError where one has none.
        """
        if rows is None:
            counts = np.diff(library.group_ends, prepend=0)
        else:
            counts = np.bincount(library.group_of(rows), minlength=len(self.names))
        sizes: list[int] = counts.tolist()
        if 0 in sizes:
            raise UsageError(f"{self.names[sizes.index(0)]} has no samples to mix: leave it out")
        return sizes

    def order(self, sizes: Sequence[int], order: Callable[[int, int], Order], seed: int, batch_size: int) -> Mixed:
        """The order of the mix. order: makes that of one store, by its size and a seed."""
        orders = (order(size, derive_key("mix", seed, number)) for number, size in enumerate(sizes))
        return Mixed(tuple(orders), self.shares, batch_size, self.length)


def pairs_of(stores: object) -> list[tuple[Any, object]]:
    """(store, share) of each entry of a mix, from a mapping or pairs. UsageError for anything else."""
    pairs = list(stores.items() if isinstance(stores, Mapping) else stores if isinstance(stores, Iterable) else ())
    if not pairs or not all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        raise UsageError(f"{reprlib.repr(stores)} must map paths to shares, or be a list of pairs of path and share")
    return [(store, share) for store, share in pairs]


def opening_of(entries: Sequence[Opening], shares: Sequence[object], length: object) -> Opening:
    """How to open the mix of these. shares, length: see `Reader.mix`.

    Raises UsageError for shares and a length that make no sense, and where entries disagree.
    """
    names = tuple(" + ".join(shown(str(path)) for path in entry.paths) for entry in entries)
    groups = tuple(len(entry.paths) for entry in entries)
    return Opening(
        [path for entry in entries for path in entry.paths],
        any(entry.preload for entry in entries),
        any(entry.verify for entry in entries),
        _only("cache", [entry.cache for entry in entries]),
        _only("storage_options", [entry.storage_options for entry in entries]),
        Mix(names, groups, shares_of(shares), length_of(length)),
    )


def selection_of(selections: Sequence[NDArray[np.int64] | None], library: Stores) -> NDArray[np.int64] | None:
    """The rows of all entries in the library that has their stores. selections: those of each; None for all."""
    if all(selection is None for selection in selections):
        return None
    stops = library.group_ends.tolist()
    return np.concatenate(
        [
            np.arange(start, stop) if selection is None else selection + start
            for selection, start, stop in zip(selections, [0, *stops[:-1]], stops, strict=True)
        ]
    )


def _only(name: str, values: Iterable[Any]) -> Any:
    """The one value of an option that is not None; UsageError where several differ."""
    given = [value for value in values if value is not None]
    if any(value != given[0] for value in given):
        raise UsageError(f"the readers of a mix have different values of {name}: open all of them with the same one")
    return given[0] if given else None
