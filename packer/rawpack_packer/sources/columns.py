"""A dict of columns as a dataset: name -> an array or list with one value for each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.text import listed

_SHOWN = 5
_NO_COLUMN = (str, bytes, bytearray, Mapping)


class ColumnDataset:
    """ColumnDataset of one length. Sample i has value i of each."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __getitem__(self, i: int | slice) -> Any:
        """Sample i, a dict; or of a slice these samples, as columns."""
        values = {name: column[i] for name, column in self._columns.items()}
        return ColumnDataset(values) if isinstance(i, slice) else values

    @property
    def targets(self) -> Any:
        """The labels, where there are some."""
        return self._columns.get("label")


def as_columns(source: Mapping[Any, Any]) -> Any:
    """A mapping as a dataset: a dict of columns as `ColumnDataset`; one by numbers, which is a dataset already, as it
    is.

    Labels that are whole numbers become int64, as those of an .npz do. Raises UsageError for any other.
    """
    what = f"the {type(source).__name__}"
    if not source:
        raise UsageError(f"{what} has no samples")
    if all(isinstance(name, int) for name in source) and set(source) == set(range(len(source))):
        return source
    columns = {str(name): source[name] for name in source}
    if "image" not in columns:
        raise UsageError(
            f"{what} has {_listed(columns)} and no 'image': a dict that is packed has a column for each field, "
            "{'image': images, 'label': labels}. Samples by their keys are packed as list(d.values()), with "
            "keys=list(d); a dict of splits by pack_splits()"
        )
    lengths = {name: _length(name, column, what) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise UsageError(f"{what} has columns that differ in length: {told}; each has one value for each sample")
    if not any(lengths.values()):
        raise UsageError(f"{what} has no samples")
    label = columns.get("label")
    if isinstance(label, np.ndarray) and label.ndim == 1 and label.dtype.kind in "iu" and label.dtype != np.uint64:
        columns["label"] = _whole(label)
    return ColumnDataset(columns)


def _whole(label: NDArray[Any]) -> NDArray[np.int64]:
    return label.astype(np.int64)


def _length(name: str, column: Any, what: str) -> int:
    """Of a column. Raises UsageError where it is none."""
    try:
        if not isinstance(column, _NO_COLUMN) and hasattr(column, "__getitem__"):
            return len(column)
    except TypeError:  # an array of no axis
        pass
    raise UsageError(
        f"{name!r} of {what} is a {type(column).__name__}: a column is an array or a list, with one value for each "
        "sample"
    )


def _listed(names: Mapping[str, Any]) -> str:
    return listed([repr(name) for name in names], _SHOWN)
