"""What the features of a Hugging Face dataset in memory say of its columns: the same as in its files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from rawpack.errors import UsageError
from rawpack_packer.sources.dataset_forms import Names
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.inferred import inferred_kind
from rawpack_packer.sources.table.choose import IMAGE, LABEL
from rawpack_packer.text import plain

_TRIED = 16
"""Samples that show what a column holds, where its feature does not."""


@dataclass(frozen=True)
class TypedColumns:
    """The columns of a dataset whose features say what they hold."""

    dataset: Any
    """Without columns that no field can store."""
    kinds: Mapping[str, FieldKind]
    """By the names of fields."""
    left_out: tuple[str, ...] = ()
    """Why columns are left out, a line each."""


def typed_columns(dataset: Any, names: Names | None, declared: Collection[str]) -> TypedColumns:
    """The columns that features say something of: none where there are no features, or where a transform makes other
    values of them. names: what fields are called in the dataset. declared: the fields that the user declared."""
    features: Any = getattr(dataset, "features", None)
    form: Any = getattr(dataset, "format", None)
    if not hasattr(features, "arrow_schema") or not isinstance(form, Mapping) or form.get("type") == "custom":
        return TypedColumns(dataset, {})
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
        elif not _shows_kind(dataset, info.name):
            left_out[info.name] = f"column {plain(info.name)!r} is left out: {plain(str(info.field))}"
    if left_out:
        dataset = dataset.remove_columns([*left_out])
    return TypedColumns(dataset, kinds, tuple(left_out.values()))


def _shows_kind(dataset: Any, column: str) -> bool:
    """Whether the values of a column show what it holds, as lists of lists of one length do."""
    alone = dataset.select_columns([column])
    try:
        kinds = {inferred_kind(column, alone[i][column]) for i in range(min(_TRIED, len(alone)))}
    except UsageError:
        return False
    return len(kinds) == 1
