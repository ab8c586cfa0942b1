"""What an export says of its fields and classes, which its files alone do not tell: for whoever packs them again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack_packer.sources.fields import DeclaredKind, FieldKind
from rawpack_packer.text import plain

NOTE = "export.json"
"""Next to a listing or shards."""
CLASSES = "classes.txt"
BESIDE = (NOTE, CLASSES)
"""What is in the folder of an export besides samples and the listing."""
OF_TABLES = b"rawpack"
"""The same in the metadata of a Parquet file."""
MARK = "rawpack_export"
FILE_NAME = "file_name"
"""The column of images in an exported listing."""
IMAGE = "image"
_MOST = 1 << 28
_BOXES, _LABEL_KIND = "boxes", FieldKind("int64")


@dataclass(frozen=True)
class ExportNote:
    """What files are that were exported."""

    kinds: Mapping[str, FieldKind] = field(default_factory=dict)
    """By the names of their fields."""
    classes: tuple[str, ...] | None = None
    key: str | None = None
    """The column of keys."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Column -> the field, or the image, that has another name."""

    @property
    def image(self) -> str | None:
        """The column of images; None where it has the usual name."""
        return next((column for column, name in self.columns.items() if name == IMAGE), None)

    def names_of(self, columns: Sequence[str]) -> list[str]:
        """What the fields in these columns are called, except where a column has that name."""
        names = [self.columns.get(name, name) for name in columns]
        return [
            column if name == IMAGE or (name != column and name in columns) else name
            for column, name in zip(columns, names, strict=True)
        ]

    @property
    def apart(self) -> frozenset[str]:
        """Fields that do not follow boxes, however many values they have."""
        return frozenset(name for name, kind in self.kinds.items() if kind.ragged and not kind.follows)

    def declared(
        self, names: Iterable[str], declared: Mapping[str, DeclaredKind], roles: Sequence[str | None] = ()
    ) -> dict[str, DeclaredKind]:
        """What the columns with these names are: as the user declared them, or else as they were exported. Whoever
        declares numbers says nothing of boxes that they follow. roles: columns that are something else than fields."""
        kinds = {name: self.kinds[name] for name in names if name in self.kinds and name not in roles}
        merged: dict[str, DeclaredKind] = {**kinds, **declared}
        boxes = merged.get(_BOXES)
        follow = isinstance(boxes, FieldKind) and bool(boxes.boxes)
        for name, was in kinds.items():
            now = merged[name]
            if was.follows and isinstance(now, FieldKind) and now.shape == was.shape and not now.boxes:
                merged[name] = replace(now, follows=was.follows if follow else None, mirror=was.mirror * follow)
        return merged


def said_of(fields: Mapping[str, Field], classes: Sequence[str] | None) -> dict[str, Any]:
    """What an export says. fields: those of its columns."""
    said = {name: msgspec.to_builtins(one) for name, one in fields.items()}
    for one in said.values():
        del one["encoding"]  # that of the store
    return {MARK: 1, "fields": said, **({"classes": list(classes)} if classes else {})}


def exported_beside(file: str | os.PathLike[str]) -> ExportNote:
    """What the export says that a listing or a shard belongs to. Raises UsageError."""
    note = Path(file).with_name(NOTE)
    try:
        data = note.read_bytes() if note.stat().st_size <= _MOST else None
    except OSError:
        return ExportNote()
    return exported(data, plain(os.fsencode(note)))


def exported(data: bytes | None, where: str) -> ExportNote:
    """What an export says in these bytes; nothing where they are of something else. where: they are, printable. Raises
    UsageError."""
    try:
        found = msgspec.json.decode(data or b"{}")
        if not isinstance(found, dict) or MARK not in found:
            return ExportNote()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ExportNote()
    try:
        fields = msgspec.convert(found.get("fields", {}), dict[str, Field])
        classes = msgspec.convert(found.get("classes"), tuple[str, ...] | None)
        kinds = {name: FieldKind.of(one) for name, one in fields.items()}
        columns = msgspec.convert(found.get("columns", {}), dict[str, str])
    except (ValueError, UsageError) as error:
        raise UsageError(
            f"{where}: what it says of an export cannot be read: {error}; update rawpack, or take it away and declare "
            "the fields"
        ) from error
    for name, kind in kinds.items():
        if kind.is_pixels:  # files, which say how large they are
            kinds[name] = replace(kind, shape=(None, None, *kind.shape[2:]))
    others = {name: kind for name, kind in kinds.items() if (name, kind) != ("label", _LABEL_KIND)}
    return ExportNote(others, classes, "key", columns)
