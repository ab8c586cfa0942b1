"""Finds the rows of a selection."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.errors import UsageError
from rawpack.samples.where import Where
from rawpack.store.stores import Stores
from rawpack.system.user import did_you_mean
from rawpack.words import INDEX, STORE_ROW

_BLOCK = 1 << 16
_SHOWN = 5


def positions_of(
    library: Stores,
    rows: NDArray[np.int64] | None,
    indices: ArrayLike | None,
    mask: ArrayLike | None,
    classes: Sequence[str] | None,
    where: Where | None,
) -> NDArray[np.int64]:
    """The positions in `rows` (None: all of the library) that `Reader.select` was asked for, int64 (n,)."""
    if sum(given is not None for given in (indices, mask, classes, where)) != 1:
        raise UsageError("select() takes one of: indices, mask=, classes=, where=")
    length = len(library) if rows is None else len(rows)
    if indices is not None:
        return positions_at(indices, length)
    if mask is not None:
        return _flagged(_array("mask", mask), length)
    if where is not None:
        return positions_where(library, rows, where)
    assert classes is not None
    wanted = _labels_of(library, classes)
    return _found(library, rows, lambda _, block: np.isin(library.values("label", block), wanted))


def positions_where(library: Stores, rows: NDArray[np.int64] | None, where: Where) -> NDArray[np.int64]:
    """The positions in `rows` (None: all of the library) of the samples for which a condition holds, int64 (n,)."""

    def holds(positions: NDArray[np.int64], block: NDArray[np.int64]) -> NDArray[np.bool_]:
        values = {INDEX: positions, STORE_ROW: block}
        values |= {name: library.values(name, block) for name in where.names if name in library.fields}
        return where.holds(values, len(block))

    return _found(library, rows, holds)


def positions_at(indices: ArrayLike, length: int, outside: type[Exception] = UsageError) -> NDArray[np.int64]:
    """Positions, int64 (n,) of samples chosen among `length`: by indices, negative ones from the end, or by one boolean
    for each sample. outside: raised for an index out of range; UsageError for anything but indices."""
    chosen = _array("indices", indices)
    return _flagged(chosen, length) if chosen.dtype == np.bool_ else _checked(chosen, length, outside)


def _flagged(flags: NDArray[Any], length: int) -> NDArray[np.int64]:
    if flags.dtype != np.bool_ or flags.shape != (length,):
        raise UsageError(
            f"mask={reprlib.repr(flags.tolist())} must contain {length} booleans, not {flags.dtype} {flags.shape}"
        )
    return np.flatnonzero(flags)


def _array(name: str, value: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:  # such as rows of different lengths
        raise UsageError(f"{name}={reprlib.repr(value)} cannot be read as an array: {error}") from None


def _checked(chosen: NDArray[Any], length: int, outside: type[Exception]) -> NDArray[np.int64]:
    if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
        raise UsageError(
            f"indices={reprlib.repr(chosen.tolist())} must be whole numbers in one dimension, not {chosen.dtype} "
            f"{chosen.shape}"
        )
    wrong = chosen[(chosen < -length) | (chosen >= length)]
    if wrong.size:
        raise outside(f"there is no sample {wrong[0]}: the reader has {length}")
    positive = chosen.astype(np.int64)
    positive[positive < 0] += length
    return positive


def _labels_of(library: Stores, classes: Sequence[str]) -> list[int]:
    if library.classes is None:
        raise UsageError("these samples have no classes: select by indices or mask=")
    if "label" not in library.fields:
        raise UsageError("these samples have no label, only boxes of classes: select by indices or mask=")
    known = {name: label for label, name in enumerate(library.classes)}
    unknown = [name for name in classes if name not in known]
    if unknown:
        rest = f", and {len(known) - _SHOWN:,} more in reader.classes" if len(known) > _SHOWN else ""
        there = ", ".join(map(repr, library.classes[:_SHOWN]))
        raise UsageError(
            f"there is no class {unknown[0]!r} to select; there are {there}{rest}{did_you_mean(unknown[0], known)}"
        )
    return [known[name] for name in classes]


def _found(
    library: Stores,
    rows: NDArray[np.int64] | None,
    holds: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]],
) -> NDArray[np.int64]:
    """The positions in `rows` (None: all of the library) for which a condition on positions and rows holds, block after
    block."""
    found, length = [np.empty(0, np.int64)], len(library) if rows is None else len(rows)
    for start in range(0, length, _BLOCK):
        stop = min(start + _BLOCK, length)
        positions = np.arange(start, stop)
        found.append(np.flatnonzero(holds(positions, positions if rows is None else rows[start:stop])) + start)
    return np.concatenate(found)
