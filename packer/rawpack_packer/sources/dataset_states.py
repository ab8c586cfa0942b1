"""What a dataset in memory says about changes: the checksums of its arrays; of anything else, samples must be read."""

from __future__ import annotations

from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack_packer.sources.columns import ColumnDataset

_HASHED_ROWS = 1 << 12
"""Longer arrays are told from others by this many of their rows."""
_PROBED = 3


def states_of(dataset: Any) -> NDArray[np.int64]:
    """(m, 2): of each array in memory, its bytes and a checksum of some of its rows."""
    return np.array([_state_of(array) for array in _columns(dataset) if _is_plain(array)], np.int64).reshape(-1, 2)


def to_probe(dataset: Any, rows: NDArray[np.int64], *, in_order: bool) -> NDArray[np.int64]:
    """A few of these samples, from all over the dataset; none where `states_of` tells of all of it. in_order: whether
    samples can only be iterated, so that the first are the cheapest."""
    if all(map(_is_plain, _columns(dataset))):
        return rows[:0]
    if in_order:
        return rows[:_PROBED]
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _PROBED), dtype=np.int64))]


def _columns(dataset: Any) -> list[Any]:
    return list(dataset.columns.values()) if isinstance(dataset, ColumnDataset) else [dataset]


def _is_plain(column: Any) -> bool:
    return isinstance(column, np.ndarray) and not column.dtype.hasobject


def _state_of(array: NDArray[Any]) -> tuple[int, int]:
    """Bytes, and a checksum of rows over the whole of it: an array may be larger than memory."""
    rows = np.unique(np.linspace(0, len(array) - 1, min(len(array), _HASHED_ROWS), dtype=np.int64))
    digest = xxhash.xxh3_64()
    for row in rows.tolist() if len(array) > _HASHED_ROWS else [slice(None)]:
        digest.update(np.ascontiguousarray(array[row]).tobytes())
    return array.nbytes, digest.intdigest() - (1 << 63)
