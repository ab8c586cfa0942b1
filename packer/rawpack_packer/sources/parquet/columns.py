"""What the columns of a table are, by its schema and what `datasets` notes in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.table.choose import ColumnInfo, Habits
from rawpack_packer.text import plain

if TYPE_CHECKING:
    import pyarrow as pa

_FEW = 3
"""How many tables of a folder show what all of them hold."""
Features = Mapping[str, Any]


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


def habits() -> Habits:
    """What is said where no column holds images."""
    return Habits(
        no_image=(
            ", which are binary, or structs of bytes and path; a table of paths is packed as a listing (.csv or "
            f".jsonl), and files next to a table by {opt.kind('folder')} or {opt.kind('video')}"
        )
    )


def column_infos(
    schema: pa.Schema, features: Features, declared: Mapping[str, FieldKind | None], where: str
) -> list[ColumnInfo]:
    """The columns of a table. declared: see `ColumnChoice`. Raises UsageError where names of classes are none."""
    says_images = any(_of(one) == "Image" for one in features.values())
    found = []
    for name in schema.names:
        type_, feature = _storage(schema.field(name).type), features.get(name)
        other = _of(feature) not in ("Image", "Value", None)  # such as Audio
        is_classes = _of(feature) == "ClassLabel" and not _is_text(type_)
        found.append(
            ColumnInfo(
                name=name,
                type=_shown(type_),
                field=_kind(name, type_, feature, declared),
                is_image=_holds_image(type_) and not other,
                is_label=_is_whole(type_) or _is_text(type_),
                is_whole=_is_whole(type_),
                is_key=_is_text(type_),
                says_image=says_images and _of(feature) == "Image",
                classes=_class_names(feature, name, where) if is_classes else None,
            )
        )
    return found


def image_entries(schema: pa.Schema, name: str) -> tuple[str, ...]:
    """Which of "bytes" and "path" the images of a column are structs of; empty where they are the bytes themselves."""
    return _entries(_storage(schema.field(name).type))


def _class_names(feature: Any, name: str, where: str) -> tuple[str, ...]:
    classes = feature.get("names")
    if not isinstance(classes, list) or not all(isinstance(one, str) for one in classes) or not classes:
        raise UsageError(f"{where}: the classes of column {name!r} are no list of names")
    if len(set(classes)) != len(classes):
        raise UsageError(f"{where}: two classes of column {name!r} have the same name")
    return tuple(classes)


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
