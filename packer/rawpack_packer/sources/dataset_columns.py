"""Columns of a Hugging Face dataset or a table in memory: what features say of them is the same as in files, and a
column `objects` becomes boxes and a field for each other number."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.dataset_forms import ColumnDataset, Names
from rawpack_packer.sources.declared import declared_kind
from rawpack_packer.sources.fields import Declared, FieldKind
from rawpack_packer.sources.inferred import inferred_kind
from rawpack_packer.sources.table.choose import IMAGE, LABEL
from rawpack_packer.sources.table.columns import Column
from rawpack_packer.sources.table.objects import BOX_NAMES, CLASS_NAMES, ObjectLists, named_in
from rawpack_packer.text import plain

_TRIED, _TRIED_OBJECTS = 16, 256
"""Samples that show what a column holds, where its feature does not."""


@dataclass(frozen=True)
class ColumnFields:
    """What columns became."""

    dataset: Any
    """With fields in place of columns of objects, and without columns that no field can store."""
    kinds: Mapping[str, Declared]
    """What the fields are that this shows, or the user declared."""
    problems: Sequence[str] = ()
    """Why columns are left out, a line each."""
    has_objects: bool = False
    classes: Sequence[str] | None = None
    """The names of the classes of objects."""


# ------------------------------------------------------------------------------------------ what features say


def typed_columns(dataset: Any, names: Names | None, declared: Collection[str]) -> ColumnFields:
    """The columns that features say something of: none where there are no features, or where a transform makes other
    values of them. names: what fields are called in the dataset. declared: the fields that the user declared."""
    features: Any = getattr(dataset, "features", None)
    form: Any = getattr(dataset, "format", None)
    if not hasattr(features, "arrow_schema") or not isinstance(form, Mapping) or form.get("type") == "custom":
        return ColumnFields(dataset, {})
    from rawpack_packer.sources.parquet.tables import column_infos, holds_image, objects_column, storage

    schema, kinds, left_out = features.arrow_schema, dict[str, Declared](), dict[str, str]()
    field_of = {str(column): name for name, column in (names.items() if isinstance(names, Mapping) else ())}
    for info in column_infos(schema, features.to_dict(), {}, "the dataset"):
        name = field_of.get(info.name, info.name)
        is_label = name == LABEL and not (isinstance(info.field, FieldKind) and info.field.dtype[0] == "f")
        of_value = holds_image(storage(schema.field(info.name).type)) or info.name == objects_column(schema)
        if name == IMAGE or name in declared or is_label or of_value or info.name not in form["columns"]:
            continue
        if isinstance(info.field, FieldKind):
            kinds[name] = info.field
            continue
        alone, shown = dataset.select_columns([info.name]), set[Any]()
        with suppress(UsageError):  # its values may show what it holds, as lists of lists of one length do
            shown = {inferred_kind(info.name, alone[i][info.name]) for i in range(min(_TRIED, len(alone)))}
        if len(shown) != 1:
            left_out[info.name] = f"column {plain(info.name)!r} is left out: {plain(str(info.field))}"
    if left_out:
        dataset = dataset.remove_columns([*left_out])
    return ColumnFields(dataset, kinds, [*left_out.values()])


# ------------------------------------------------------------------------------------------ objects


class _WithoutColumn:
    """Rows of a Hugging Face dataset, with fields in place of a column."""

    def __init__(self, dataset: Any, without: str, columns: Mapping[str, Column]) -> None:
        self._dataset, self._without, self._columns = dataset, without, columns
        self.features = {name: feature for name, feature in dataset.features.items() if name != without}

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, str):  # a column
            return self._dataset[i]
        sample = {name: value for name, value in self._dataset[i].items() if name != self._without}
        return sample | {name: column.value(i) for name, column in self._columns.items()}


class _ColumnValues:
    """The values of a column, by their positions. One that cannot be read raises DecodeError where it is asked for."""

    def __init__(self, column: Column, count: int) -> None:
        self._column, self._count = column, count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, i: int | slice) -> Any:
        rows = np.arange(self._count)[i]
        return (
            _ColumnValues(self._column.pick(rows), len(rows)) if isinstance(i, slice) else self._column.value(int(rows))
        )


def with_objects(
    dataset: Any, declared: Mapping[str, Declared], classes: Sequence[str] | None, root: str
) -> ColumnFields:
    """A dataset whose columns can be read by themselves, with the fields of its objects, if it has any. declared,
    classes: by the user. Raises UsageError."""
    features, table = getattr(dataset, "features", None), dataset if isinstance(dataset, ColumnDataset) else None
    names = table.columns if table is not None else features if isinstance(features, Mapping) else ()
    column = next((name for name in names if _is_objects(dataset, features, name)), None)
    kind = None if column is None or column not in declared else declared_kind(column, declared[column])
    if column is None or (kind is not None and not (isinstance(kind, FieldKind) and kind.boxes)):
        return ColumnFields(dataset, declared)
    others = [name for name in names if name != column]
    lists = ObjectLists(column, root, lambda row: f"row {row}")
    lists.add(_plain(value) for value in (dataset[column] if table is None else table.columns[column]))
    inner = None if classes or not isinstance(features, Mapping) else _inner(features[column])
    called = named_in(inner, CLASS_NAMES) if isinstance(inner, Mapping) else None
    class_names = None if called is None or inner is None else getattr(_inner(inner[called]), "names", None)
    of_features = tuple(class_names) if isinstance(class_names, list | tuple) else None
    form = kind.boxes if isinstance(kind, FieldKind) else None
    objects = lists.finish(form, None if LABEL in names else classes, of_features, others)
    fields, columns = objects.fields()
    if table is None:
        dataset = _WithoutColumn(dataset, column, columns)
    else:
        values = {name: _ColumnValues(column, len(table)) for name, column in columns.items()}
        dataset = ColumnDataset({**{name: table.columns[name] for name in others}, **values})
    kinds: dict[str, Declared] = {**fields, **{name: kind for name, kind in declared.items() if name != column}}
    return ColumnFields(
        dataset, kinds, objects.left_out, True, (objects.labels.names if objects.labels else None) or None
    )


def _is_objects(dataset: Any, features: Any, name: str) -> bool:
    """Whether a column holds objects, by its type, or by the first value that has any."""
    if isinstance(features, Mapping):
        inner: Any = _inner(features[name])
    else:
        column = dataset.columns[name]
        if isinstance(column, np.ndarray) and column.dtype != object:
            return False
        values = column[:_TRIED_OBJECTS]
        inner = next((value for value in values if isinstance(value, Mapping | list) and len(value)), None)
        inner = inner[0] if isinstance(inner, list) else inner
    return isinstance(inner, Mapping) and named_in(map(str, inner), BOX_NAMES) is not None


def _inner(feature: Any) -> Any:
    """What lists of a feature hold."""
    while True:
        if isinstance(feature, list) and len(feature) == 1:
            feature = feature[0]
        elif not isinstance(feature, Mapping) and hasattr(feature, "feature"):
            feature = feature.feature
        else:
            return feature


def _plain(value: Any) -> Any:
    """A value with lists in place of arrays."""
    if isinstance(value, Mapping):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if hasattr(value, "tolist") or isinstance(value, tuple):
        value = value.tolist() if hasattr(value, "tolist") else list(value)
    return [_plain(inner) for inner in value] if isinstance(value, list) else value
