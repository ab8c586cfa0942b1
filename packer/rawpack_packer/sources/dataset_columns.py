"""Columns of a Hugging Face dataset or a table in memory: what features say of them is the same as in files, and a
column `objects` becomes boxes and a field for each other number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.dataset_forms import ColumnDataset, Names, attribute
from rawpack_packer.sources.dataset_targets import TARGETS
from rawpack_packer.sources.declared import declared_kind
from rawpack_packer.sources.fields import Declared, FieldKind
from rawpack_packer.sources.inferred import inferred_kind
from rawpack_packer.sources.table.choose import IMAGE, LABEL
from rawpack_packer.sources.table.columns import Column, Rows
from rawpack_packer.sources.table.objects import BOX_NAMES, CLASS_NAMES, ObjectLists, named_in
from rawpack_packer.text import plain

_TRIED, _TRIED_OBJECTS = 16, 256
"""Samples that show what a column holds, where its feature does not."""


@dataclass(frozen=True)
class ObjectColumns:
    """The fields of objects, which take the place of their column."""

    column: str
    kinds: Mapping[str, FieldKind]
    columns: Mapping[str, Column]
    """One that cannot be read raises DecodeError where it is asked for."""
    classes: Sequence[str] | None
    """Their names."""
    problems: Sequence[str]
    """What is left out of the objects, a line each."""

    def in_place(self, sample: Mapping[Any, Any], i: int) -> dict[Any, Any]:
        """Sample i with these fields."""
        others = {name: value for name, value in sample.items() if name != self.column}
        return others | {name: column.value(i) for name, column in self.columns.items()}

    def pick(self, rows: Rows) -> ObjectColumns:
        return replace(self, columns={name: column.pick(rows) for name, column in self.columns.items()})


# ------------------------------------------------------------------------------------------ what features say


def typed_columns(
    dataset: Any, names: Names | None, declared: Collection[str]
) -> tuple[Any, dict[str, FieldKind], list[str]]:
    """A dataset without the columns that no field can hold, by its features; the kinds of fields that these show; and a
    line for each column that is left out. Features show nothing where a transform makes other values of them.

    names: what fields are called in the dataset. declared: the fields that the user declared."""
    features: Any = getattr(dataset, "features", None)
    form: Any = getattr(dataset, "format", None)
    if not hasattr(features, "arrow_schema") or not isinstance(form, Mapping) or form.get("type") == "custom":
        return dataset, {}, []
    from rawpack_packer.sources.parquet.tables import column_infos, holds_image, objects_column, storage

    schema, kinds, left_out = features.arrow_schema, dict[str, FieldKind](), dict[str, str]()
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
    return dataset, kinds, [*left_out.values()]


# ------------------------------------------------------------------------------------------ objects


def object_columns(
    dataset: Any, declared: Mapping[str, Declared], classes: Sequence[str] | None, root: str
) -> ObjectColumns | None:
    """The fields of the objects of a dataset whose columns can be read by themselves, or are in dicts in memory; None
    where it has none. It is taken out of a `ColumnDataset`. declared, classes: by the user. Raises UsageError."""
    features, table = getattr(dataset, "features", None), dataset if isinstance(dataset, ColumnDataset) else None
    dicts = type(dataset) in (list, tuple) and all(isinstance(sample, Mapping) for sample in dataset)
    if table is not None:
        names: Collection[str] = table.columns
    elif dicts:
        names = [name for name in next(iter(dataset), {}) if isinstance(name, str) and name not in TARGETS]
    else:
        names = features if isinstance(features, Mapping) else ()

    def values(name: str, most: int | None = None) -> Any:
        if table is not None:
            return table.columns[name][:most]
        return [sample.get(name) for sample in dataset[:most]] if dicts else dataset[name]

    column = next((name for name in names if _is_objects(values, features, name)), None)
    kind = None if column is None or column not in declared else declared_kind(column, declared[column])
    if column is None or (kind is not None and not (isinstance(kind, FieldKind) and kind.boxes)):
        return None
    others = [name for name in names if name != column]
    lists = ObjectLists(column, root, lambda row: f"row {row}")
    lists.add(map(_plain, values(column)))
    if table is not None:
        del table.columns[column]
    inner = None if classes or not isinstance(features, Mapping) else _inner(features[column])
    called = named_in(inner, CLASS_NAMES) if isinstance(inner, Mapping) else None
    of_features = None if called is None or inner is None else attribute(_inner(inner[called]), "names", (list, tuple))
    form = kind.boxes if isinstance(kind, FieldKind) else None
    objects = lists.finish(form, None if LABEL in names else classes, of_features, others)
    fields, columns = objects.fields()
    names_of_classes = (objects.labels.names if objects.labels else None) or None
    return ObjectColumns(column, fields, columns, names_of_classes, objects.left_out)


def _is_objects(values: Callable[[str, int], Any], features: Any, name: str) -> bool:
    """Whether a column holds objects, by its type, or by the first value that has any. values: its first ones."""
    if isinstance(features, Mapping):
        inner: Any = _inner(features[name])
    else:
        column = values(name, _TRIED_OBJECTS)
        if isinstance(column, np.ndarray) and column.dtype != object:
            return False
        inner = next((value for value in column if isinstance(value, Mapping | list) and len(value)), None)
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
    value = value.tolist() if hasattr(value, "tolist") else value
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value
