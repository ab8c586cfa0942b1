"""Objects in a dataset of Hugging Face or a table in memory: a column `objects`, whose values are as in Parquet files,
becomes boxes and a field for each other number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rawpack_packer.sources.dataset_forms import ColumnDataset
from rawpack_packer.sources.declared import declared_kind
from rawpack_packer.sources.fields import Declared, FieldKind
from rawpack_packer.sources.table.choose import LABEL
from rawpack_packer.sources.table.columns import Column
from rawpack_packer.sources.table.objects import BOX_NAMES, CLASS_NAMES, ObjectLists, named_in

_TRIED = 256
"""Rows of which one shows what a column holds."""


@dataclass
class ObjectFields:
    """What a column of objects became."""

    dataset: Any
    """With its fields in place of the column."""
    declared: dict[str, Declared]
    """With what these are."""
    found: bool = False
    classes: list[str] | None = None
    problems: list[str] = field(default_factory=list)


class _WithoutColumn:
    """Rows of a Hugging Face dataset, with fields in place of a column."""

    def __init__(self, dataset: Any, without: str, columns: Mapping[str, Column]) -> None:
        self._dataset, self._without, self._columns = dataset, without, columns
        self.features = {name: one for name, one in dataset.features.items() if name != without}

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, str):  # a column
            return self._dataset[i]
        sample = {name: value for name, value in self._dataset[i].items() if name != self._without}
        return sample | {name: column.value(i) for name, column in self._columns.items()}


def with_objects(
    dataset: Any, declared: Mapping[str, Declared], classes: Sequence[str] | None, root: str
) -> ObjectFields:
    """A dataset whose columns can be read by themselves, with the fields of its objects, if it has any. declared,
    classes: by the user. Raises UsageError."""
    features = getattr(dataset, "features", None)
    if not isinstance(dataset, ColumnDataset) and not isinstance(features, Mapping):
        return ObjectFields(dataset, dict(declared))
    names = dataset.columns if isinstance(dataset, ColumnDataset) else features
    assert names is not None
    found = next((name for name in names if _is_objects(dataset, features, name)), None)
    said = None if found is None or found not in declared else declared_kind(found, declared[found])
    if found is None or (said is not None and not (isinstance(said, FieldKind) and said.boxes)):
        return ObjectFields(dataset, dict(declared))
    lists = ObjectLists(found, root, lambda row: f"row {row}")
    lists.add(_plain(value) for value in _column(dataset, found))
    known = None if classes else _class_names(features, found)
    of_boxes = None if LABEL in names else classes
    objects, left_out = lists.finish(
        said.boxes if isinstance(said, FieldKind) else None, of_boxes, known, [name for name in names if name != found]
    )
    kinds, columns = objects.fields()
    boxes = objects.labels.names if objects.labels else None
    others = {name: kind for name, kind in declared.items() if name != found}
    if isinstance(dataset, ColumnDataset):
        rest = {name: column for name, column in dataset.columns.items() if name != found}
        values = {name: [column.value(i) for i in range(len(dataset))] for name, column in columns.items()}
        made: Any = ColumnDataset({**rest, **values})
    else:
        made = _WithoutColumn(dataset, found, columns)
    return ObjectFields(made, {**kinds, **others}, True, list(boxes) if boxes else None, left_out)


def _column(dataset: Any, name: str) -> Iterable[Any]:
    values: Iterable[Any] = dataset.column(name) if isinstance(dataset, ColumnDataset) else dataset[name]
    return values


def _is_objects(dataset: Any, features: Any, name: str) -> bool:
    """Whether a column holds objects, by its type, or by the first value that has any."""
    if isinstance(features, Mapping):
        inner = _inner(features[name])
        return isinstance(inner, Mapping) and named_in(map(str, inner), BOX_NAMES) is not None
    column = dataset.column(name)
    if isinstance(column, np.ndarray) and column.dtype != object:
        return False
    value = next((one for one in column[:_TRIED] if isinstance(one, Mapping | list) and len(one)), None)
    some = value[0] if isinstance(value, list) else value
    return isinstance(some, Mapping) and named_in(map(str, some), BOX_NAMES) is not None


def _inner(feature: Any) -> Any:
    """What lists of a feature hold."""
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif not isinstance(feature, Mapping) and hasattr(feature, "feature"):
            feature = feature.feature
        else:
            return feature


def _class_names(features: Any, name: str) -> tuple[str, ...] | None:
    """The names of the classes of objects; None where the dataset has none."""
    inner = _inner(features[name]) if isinstance(features, Mapping) else {}
    called = named_in(inner, CLASS_NAMES) if isinstance(inner, Mapping) else None
    names = None if called is None else getattr(_inner(inner[called]), "names", None)
    return tuple(names) if isinstance(names, list | tuple) else None


def _plain(value: Any) -> Any:
    """A value with lists in place of arrays."""
    if isinstance(value, Mapping):
        return {str(name): _plain(one) for name, one in value.items()}
    if hasattr(value, "tolist") or isinstance(value, tuple):
        value = value.tolist() if hasattr(value, "tolist") else list(value)
    return [_plain(one) for one in value] if isinstance(value, list) else value
