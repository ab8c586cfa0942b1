"""Which columns of a table become image, label, key and fields, by its schema and what `datasets` notes in it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.fields import FieldKind, check_names
from rawpack_packer.sources.parquet.tables import Leaf
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    import pyarrow as pa

LABEL, KEY = "label", "key"
_FEW = 3
"""How many tables of a folder show what all of them hold."""
Features = Mapping[str, Any]


@dataclass(frozen=True)
class ColumnChoice:
    """What the user says of the columns."""

    image: str | None = None
    label: str | None = None
    key: str | None = None
    fields: tuple[str, ...] | None = None
    """Those that become fields, besides the label; None for all that can."""
    declared: Mapping[str, FieldKind | None] | None = None
    """By the name of the field; None for a mask."""


@dataclass(frozen=True)
class TableColumns:
    """The columns of a table that are read."""

    image: str
    image_has: tuple[str, ...]
    """Which of "bytes" and "path" an image is a struct of; empty where it is the bytes themselves."""
    key: str | None
    label: str | None
    classes: tuple[str, ...] | None
    """As `ClassLabel` names them."""
    texts: bool
    """Whether labels are texts, the names of classes."""
    fields: Mapping[str, FieldKind | None]
    """Name of a column -> its kind, without the label; None for a mask, whose first value shows it."""
    left_out: tuple[str, ...]
    """A printable line for each column that no field can hold."""

    def image_leaves(self) -> tuple[Leaf, ...]:
        return tuple((self.image, child) for child in self.image_has) or ((self.image, None),)


def holds_images(folder: Path) -> bool | None:
    """Whether the Parquet files at the top of a folder have images, by their types; None where there is none, or
    pyarrow is missing."""
    try:
        import pyarrow.parquet as pq

        files = sorted(file for file in folder.iterdir() if file.suffix.lower() == ".parquet")[:_FEW]
        return any(_holds_image(_storage(type_)) for file in files for type_ in pq.read_schema(file).types) or (
            False if files else None
        )
    except (OSError, ValueError, NotImplementedError, ImportError):
        return None


def features_in(schema: pa.Schema, where: str) -> Features:
    """What `datasets` says of the columns in a file's metadata; empty where it did not write the file."""
    text = (schema.metadata or {}).get(b"huggingface")
    if text is None:
        return {}
    try:
        found = json.loads(text)["info"]["features"]
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UsageError(f"{where}: its metadata `huggingface` is not what datasets writes: write it again without")
    return found


def choose(schema: pa.Schema, features: Features, wanted: ColumnChoice, where: str) -> TableColumns:
    """The columns of a table. Raises UsageError where the user has to name one, or named one that is not there."""
    names = list(schema.names)
    for one, name in ((opt.image_column, wanted.image), (opt.label_column, wanted.label), (opt.key, wanted.key)):
        if name is not None and name not in names:
            raise UsageError(f"{one(name)}: {where} has no such column: it has {_listed(names)}")
    for name in wanted.fields or ():
        if name not in names:
            raise UsageError(f"{opt.columns(name)}: {where} has no such column: it has {_listed(names)}")
    for name in {name for name in names if names.count(name) > 1}:
        raise UsageError(f"{where} has two columns {plain(name)!r}: rename one")
    types = {name: _storage(schema.field(name).type) for name in names}
    declared = dict(wanted.declared or {})
    masks = [name for name in names if name in declared and declared[name] is None]
    image = _image_column(types, features, wanted, masks, where)
    key = wanted.key or (KEY if KEY in types and _is_text(types[KEY]) else None)
    label, classes = _label_column(types, features, wanted, (image, key), where)
    fields, left_out = dict[str, FieldKind | None](), list[str]()
    for name in names:
        if name in (image, key, label) or (wanted.fields is not None and name not in wanted.fields):
            continue
        kind = _kind(name, types[name], features.get(name), declared)
        named = name in (wanted.fields or ()) or name in declared
        try:
            check_names([name])
        except UsageError as error:
            kind = str(error)
        if not isinstance(kind, str):
            fields[name] = kind
        elif named:
            raise UsageError(f"{where}: column {plain(name)!r} cannot be a field: {kind}")
        else:
            left_out.append(plain(f"column {name!r} is left out: {kind}"))
    for name in declared:
        if name not in fields and not (name == LABEL and label is not None):
            raise UsageError(
                f"{opt.fields(name)}: {where} has no such column besides image and key: it has {_listed(names)}"
            )
    check_names([*([LABEL] if label else []), *fields])
    return TableColumns(
        image=image,
        image_has=_entries(types[image]),
        key=key,
        label=label,
        classes=classes,
        texts=label is not None and _is_text(types[label]),
        fields=fields,
        left_out=tuple(left_out),
    )


def _image_column(
    types: Mapping[str, pa.DataType], features: Features, wanted: ColumnChoice, masks: Sequence[str], where: str
) -> str:
    declared = [name for name, one in features.items() if _of(one) == "Image" and name in types]
    other = {name for name, one in features.items() if _of(one) not in ("Image", "Value", None)}  # such as Audio
    fitting = [name for name, type_ in types.items() if _holds_image(type_) and name not in other]
    if wanted.image is not None:
        if wanted.image in fitting:
            return wanted.image
        raise UsageError(
            f"{opt.image_column(wanted.image)}: it holds {_shown(types[wanted.image])}; an image is binary, or a "
            "struct of bytes and path; split a list of images into rows first"
        )
    found = [name for name in (declared or fitting) if name in fitting and name not in masks]
    if len(found) > 1:
        raise UsageError(
            f"{where} has several columns of images, {_listed(found)}: name one, {opt.image_column(found[0])}"
        )
    if not found:
        raise UsageError(
            f"{where} has no column of images, which is binary, or a struct of bytes and path: it has "
            f"{_listed([f'{name} ({_shown(type_)})' for name, type_ in types.items()])}; a table of paths is packed as "
            f"a listing (.csv or .jsonl), and files next to a table by {opt.kind('folder')} or {opt.kind('video')}"
        )
    return found[0]


def _label_column(
    types: Mapping[str, pa.DataType],
    features: Features,
    wanted: ColumnChoice,
    taken: tuple[str | None, ...],
    where: str,
) -> tuple[str | None, tuple[str, ...] | None]:
    """The column of labels, whole numbers or names of classes, and the names; None where there is none."""
    named = [name for name, one in features.items() if _of(one) == "ClassLabel" and name in types]
    # The only column of classes is the label, whatever its name is.
    label = wanted.label or (LABEL if LABEL in types else named[0] if len(named) == 1 else None)
    if label is None or label in taken:
        return None, None
    if not _is_whole(types[label]) and not _is_text(types[label]):
        if wanted.label is not None:
            raise UsageError(f"{opt.label_column(label)}: it holds {_shown(types[label])}; labels are numbers or names")
        return None, None
    if label != LABEL and LABEL in types and LABEL not in taken and (wanted.fields is None or LABEL in wanted.fields):
        raise UsageError(f"{opt.label_column(label)}: {where} has a column 'label' too: leave it out by {opt.columns}")
    classes = features[label].get("names") if label in named else None
    if classes is None or _is_text(types[label]):
        return label, None
    if not isinstance(classes, list) or not all(isinstance(name, str) for name in classes) or not classes:
        raise UsageError(f"{where}: the classes of column {label!r} are no list of names")
    if len(set(classes)) != len(classes):
        raise UsageError(f"{where}: two classes of column {label!r} have the same name")
    return label, tuple(classes)


def _kind(
    name: str, type_: pa.DataType, feature: Any, declared: Mapping[str, FieldKind | None]
) -> FieldKind | str | None:
    """What a field holds: as declared, or by its type; or why it can be none."""
    if name in declared:
        kind = declared[name]
        if kind is None and not _holds_image(type_):
            return f"it holds {_shown(type_)}; a mask is an image"
        if kind is not None and kind.dtype == "str" and not _is_binary(type_) and _has_bytes(type_):
            return f"it holds {_shown(type_)}, and bytes cannot be stored as text"
        return kind
    shape = feature.get("shape") if isinstance(feature, dict) and str(_of(feature)).startswith("Array") else None
    if _holds_image(type_):
        return f"the images are in another column; {opt.fields(f'{name}:mask')} stores it as a mask"
    try:
        if shape is not None:
            return FieldKind(str(feature.get("dtype")), tuple(shape))
        return _kind_of(type_) or f"no field can hold {_shown(type_)}{_hint(name, type_)}"
    except (UsageError, TypeError, ValueError):
        return f"no field can hold {_shown(type_)}"


def _kind_of(type_: pa.DataType) -> FieldKind | None:
    import pyarrow as pa

    type_ = _storage(type_)
    if (number := number_dtype(type_)) is not None:
        return FieldKind(number)
    if _is_text(type_):
        return FieldKind("str")
    fixed = pa.types.is_fixed_size_list(type_)
    if fixed or pa.types.is_list(type_) or pa.types.is_large_list(type_):
        inner = _kind_of(type_.value_type)
        if inner is None or inner.dtype == "str" or inner.ragged:
            return None
        return FieldKind(inner.dtype, (type_.list_size if fixed else None, *inner.shape))
    return None


def number_dtype(type_: pa.DataType) -> str | None:
    """numpy's name for a type of numbers; None for any other type. pyarrow's own function for it wants pandas in some
    versions."""
    import pyarrow as pa

    if pa.types.is_floating(type_):
        return f"float{type_.bit_width}"
    return str(type_) if pa.types.is_boolean(type_) or pa.types.is_integer(type_) else None


def _hint(name: str, type_: pa.DataType) -> str:
    """What the user can do about a column of arrays whose shape its type does not tell."""
    import pyarrow as pa

    nested = 0
    while pa.types.is_list(type_) or pa.types.is_large_list(type_):
        type_, nested = type_.value_type, nested + 1
    if pa.types.is_struct(type_) or pa.types.is_map(type_) or (nested and _is_text(type_)):
        return "" if _has_bytes(type_) else f"; {opt.fields(f'{name}:str')} stores it as JSON text"
    if nested < 2 or _kind_of(type_) is None:
        return ""
    shape, boxes = opt.fields(f"{name}:float32[?,4]"), opt.fields(f"{name}:xyxy")
    return f" unless its shape is declared: {shape}, or for boxes {boxes}"


def _has_bytes(type_: pa.DataType) -> bool:
    """Whether there are bytes anywhere in a type, which JSON cannot hold."""
    type_ = _storage(type_)
    return _is_binary(type_) or any(_has_bytes(type_.field(i).type) for i in range(type_.num_fields))


def _storage(type_: pa.DataType) -> pa.DataType:
    """The type of the values, without what an extension or a dictionary makes of them."""
    import pyarrow as pa

    if isinstance(type_, pa.BaseExtensionType):
        return _storage(type_.storage_type)
    return _storage(type_.value_type) if pa.types.is_dictionary(type_) else type_


def _of(feature: Any) -> Any:
    return feature.get("_type") if isinstance(feature, dict) else None


def _entries(type_: pa.DataType) -> tuple[str, ...]:
    """Which of "bytes" and "path" a struct has."""
    import pyarrow as pa

    if not pa.types.is_struct(type_):
        return ()
    there = {type_.field(i).name: type_.field(i).type for i in range(type_.num_fields)}
    found = [name for name, fits in (("bytes", _is_binary), ("path", _is_text)) if name in there and fits(there[name])]
    return tuple(found) if "bytes" in found else ()


def _holds_image(type_: pa.DataType) -> bool:
    return _is_binary(type_) or bool(_entries(type_))


def _is_binary(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_binary(type_) or pa.types.is_large_binary(type_) or pa.types.is_binary_view(type_))


def _is_text(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_whole(type_: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(type_))


def _shown(type_: pa.DataType) -> str:
    text = plain(str(type_))
    return text if len(text) <= 60 else f"{text[:60]}..."


def _listed(names: Sequence[str]) -> str:
    return listed([plain(name) for name in names], 12) or "none"
