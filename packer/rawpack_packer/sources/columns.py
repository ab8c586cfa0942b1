"""A dict of columns as a dataset: name -> an array or list with one value for each sample."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.text import listed

_MOST_COLUMNS = 8
_IMAGES = 3
"""Axes of the least column of images: (samples, height, width)."""


class ColumnDataset:
    """Columns of the same length as a dataset: sample i has value i of each."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = dict(columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, i: int | slice) -> Any:
        """Sample i as a dict; for a slice, these samples as columns."""
        values = {name: column[i] for name, column in self.columns.items()}
        return ColumnDataset(values) if isinstance(i, slice) else values

    def column(self, name: str) -> Any:
        """The values of all samples."""
        return self.columns[name]

    @property
    def targets(self) -> Any:
        """The labels, if there are any."""
        return self.columns.get("label")


def as_columns(source: Mapping[Any, Any]) -> Any:
    """A mapping as a dataset: a dict of columns as `ColumnDataset`; a mapping from 0, 1, ... to samples as it is.

    Labels that are whole numbers become int64, as in an .npz. Raises UsageError for any other mapping.
    """
    what = f"the {type(source).__name__}"
    if not source:
        raise UsageError(f"{what} has no samples")
    keys = [*source.keys()]  # a TensorDict iterates over its rows
    if all(isinstance(name, int) for name in keys) and set(keys) == set(range(len(keys))):
        return source
    columns = {str(name): source[name] for name in keys}
    if "image" not in columns:
        raise UsageError(
            f"{what} has {listed([repr(name) for name in columns], 5)} and no 'image'. A dict needs a column for each "
            "field: {'image': images, 'label': labels}. Pack samples by their keys as list(d.values()), with "
            "keys=list(d); a dict of splits with pack_splits()"
        )
    lengths = {name: _length(name, column, what) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name!r} has {length}" for name, length in lengths.items())
        raise UsageError(f"{what} has columns that differ in length: {found}; each has one value for each sample")
    if not any(lengths.values()):
        raise UsageError(f"{what} has no samples")
    label = columns.get("label")
    if isinstance(label, np.ndarray) and label.ndim == 1 and label.dtype.kind in "iu" and label.dtype != np.uint64:
        columns["label"] = label.astype(np.int64)
    return ColumnDataset(columns)


def check_not_columns(source: Any) -> None:
    """Raise UsageError where a tuple or list, which would be a dataset of so many samples, holds columns without names,
    such as (images, labels): values of one length, of which one has images and another one value for each."""
    if not isinstance(source, tuple | list) or not 2 <= len(source) <= _MOST_COLUMNS:
        return
    shapes = [_shape(value) for value in source]
    whole = [shape for shape in shapes if shape]
    if len(whole) < len(shapes) or len({shape[0] for shape in whole}) > 1:
        return
    if max(map(len, whole)) < _IMAGES or min(map(len, whole)) > 1:
        return
    image = max(range(len(whole)), key=lambda k: len(whole[k]))
    left = iter(["'label'", *(f"'name{k}'" for k in range(2, len(whole)))])
    names = ["'image'" if k == image else next(left) for k in range(len(whole))]
    words = ", ".join(f"{name}: source[{k}]" for k, name in enumerate(names))
    raise UsageError(
        f"the {type(source).__name__} holds columns of {whole[0][0]:,} values, {', '.join(map(str, whole))}, and not "
        f"{len(whole)} samples: give columns by their names, as {{{words}}}"
    )


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array, or of a list by its first value; () for what has none."""
    if isinstance(value, list | tuple):
        return (len(value), *(_shape(value[0]) if value else ()))
    shape = getattr(value, "shape", ())
    return tuple(shape) if isinstance(shape, tuple) else ()


def _length(name: str, column: Any, what: str) -> int:
    if not isinstance(column, str | bytes | bytearray | Mapping) and hasattr(column, "__getitem__"):
        try:
            return len(column)
        except TypeError:  # an array without axes
            pass
    raise UsageError(
        f"{name!r} of {what} is a {type(column).__name__}: a column is an array or a list, with one value per sample"
    )
