"""Values of samples, read here and now: for `Reader[...]` and `Reader.column`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.store.common import STORE
from rawpack.store.stores import Stores

_BLOCK = 1 << 20
"""Values that are read in one call."""
_LOOKS = 4
"""Samples of several that are checked for being in the page cache: asking the disk for each takes longer than copying
it."""


def value_of(library: Stores, name: str, row: int, verify: bool) -> Any:
    """Field `name` of one sample, as `values_of` gives it of several, in a fraction of the time."""
    field = library.fields[name]
    if name == STORE and library.groups is not None:
        return np.int64(library.group_of(row))
    if not field.in_shards:
        return library.columns.value(name, row, field.kind)
    reader, at = library.reader_of(name, row)
    if name in library.random_access and not (library.tells_cached and reader.is_cached(at)):
        library.readahead(name, np.array([row], np.int64))
    if verify:
        library.check(name, row)
    return np.array(reader.read(at))


def values_of(library: Stores, name: str, rows: NDArray[np.int64], verify: bool = False) -> Any:
    """Field `name` of samples `rows`, (n,): a new array (n, ...), or a list where samples differ in length or size, and
    of texts. verify: check images against their checksums."""
    field = library.fields[name]
    if field.kind == "text":
        return library.columns.text(name, rows)
    if field.kind == "ragged":
        return [np.array(sample) for sample in library.columns.ragged(name, rows)]
    if field.in_shards and len(rows):
        _ask_if_cold(library, name, rows)
        if verify:
            for row in rows.tolist():
                library.check(name, row)
    if not field.uniform:
        return [np.array(reader.read(at)) for reader, at in library.located(name, rows)]
    values = np.empty((len(rows), *(n or 0 for n in field.shape)), field.dtype)
    for start in range(0, len(rows), _BLOCK):
        library.read_into(name, rows[start : start + _BLOCK], values[start : start + _BLOCK])
    return values


def _ask_if_cold(library: Stores, name: str, rows: NDArray[np.int64]) -> None:
    """Ask the disk for images where nothing is read around them, unless some of them are in the page cache."""
    if name in library.random_access:
        looked_at = rows[:: -(-len(rows) // _LOOKS)].tolist()
        if not (library.tells_cached and all(library.is_cached(name, row) for row in looked_at)):
            library.readahead(name, rows)
