"""Fields made of the members of WebDataset samples: what `--field` names, and how the bytes of a member become a value.

A member is named by its suffix: `txt`, `seg.png`. An entry of a JSON member is named by the way to it: `json.caption`,
`meta.json.camera.iso`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.images import npy
from rawpack_packer.options import opt
from rawpack_packer.sources.axes import doubtful
from rawpack_packer.sources.declared import array_of, declared_kind, with_arrays
from rawpack_packer.sources.fields import (
    Boxes,
    Declared,
    FieldKind,
    Value,
    are_pixels,
    are_texts,
    as_array,
    as_text,
    check_names,
)
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.sources.inferred import first_pixels, inferred_kind
from rawpack_packer.sources.table.columns import Rows, Spans
from rawpack_packer.text import plain

PICKLES = frozenset({"pyd", "pkl", "pickle", "pth", "pt"})
"""Types of members that could run code when they are read."""
_NOT_READ = frozenset({"npz", "ten", "tb", "mp", "msg", "msgpack", "cbor", "h5", "zip", "tar"})
JSON = ("json", "jsn")
_WHOLE_NUMBERS = frozenset({"cls", "cls2", "index", "inx", "id", "count"})
"""Types of members that webdataset reads as a whole number."""
WHOLE = re.compile(r"\s*[+-]?[0-9]{1,4000}\s*")
"""A whole number, written as webdataset takes it: 007 is 7. Python's own `int` takes 1_0 for 10, which is a name."""
_SHOWN = 40


def type_of(suffix: str) -> str:
    """What follows the last dot of a suffix: "png" for "seg.png"."""
    return suffix.rpartition(".")[2]


def is_image(suffix: str) -> bool:
    """Whether members with this suffix are images."""
    return f".{type_of(suffix)}" in EXTENSIONS


@dataclass(frozen=True)
class NamedMember:
    """A field, as the user named it."""

    name: str
    suffixes: tuple[str, ...]
    """Of the member; of the image, perhaps several: the first that a sample has."""
    entry: tuple[str, ...]
    """The way to the value in a JSON member; () for all of the member."""
    declared: Declared | None
    """None where the first value shows it."""

    @property
    def suffix(self) -> str:
        return self.suffixes[0]


def named_fields(fields: Mapping[str, Declared] | Sequence[str]) -> dict[str, NamedMember]:
    """The fields of `[NAME=]MEMBER[:DTYPE]`, by name. Raises UsageError."""
    found: dict[str, NamedMember] = {}
    pairs: Iterable[tuple[str, Declared | None]] = (
        fields.items()
        if isinstance(fields, Mapping)
        else [(f.partition(":")[0], f.partition(":")[2] or None) for f in fields]
    )
    for text, declared in pairs:
        given, equals, member = text.rpartition("=")
        one = _named(text, given if equals else None, member, declared)
        if one.name in found:
            raise UsageError(f"{opt.fields(one.name)} is given twice")
        found[one.name] = one
    check_names(name for name in found if name != "image")
    return found


def _named(text: str, given: str | None, member: str, declared: Declared | None) -> NamedMember:
    parts, option = member.lower().split(",") if given == "image" else [member], opt.fields(repr(text))
    if given == "" or not all(parts):
        raise UsageError(f"{option}: write MEMBER or NAME=MEMBER, such as txt, caption=txt or json.caption")
    if given == "image":
        return NamedMember("image", tuple(parts), (), None)
    words = member.split(".")
    at = next((i for i, word in enumerate(words[:-1]) if word.lower() in JSON), len(words) - 1)
    suffix, entry = ".".join(words[: at + 1]).lower(), tuple(words[at + 1 :])
    kind = type_of(suffix)
    if kind in PICKLES:
        raise UsageError(
            f"{option}: a .{kind} can run code when it is read, so rawpack never reads it: write its values as .json "
            "or .npy members"
        )
    if kind in _NOT_READ:
        raise UsageError(f"{option}: rawpack does not read .{kind} members: write .json or .npy members")
    kind_of = None if declared is None or array_of(declared)[0] else declared_kind(suffix, declared)
    if is_image(suffix) and not are_pixels(kind_of):
        raise UsageError(
            f"{option}: a .{kind} is an image: {opt.fields(f'image={suffix}')}; for a further image of the sample "
            f"{suffix}:image, for a mask {suffix}:mask"
        )
    name = given or (entry[-1] if entry else ".".join(words[:-1]).replace(".", "_") or suffix)
    return NamedMember(name, (suffix,), entry, declared)


@dataclass(frozen=True, slots=True, eq=False)
class MemberValues:
    """The values of one field, which are read with their samples: a `Column`."""

    spans: Spans
    type: str
    """Of the members, see `type_of`."""
    entry: tuple[str, ...]
    kind: FieldKind

    def value(self, i: int, /) -> Value:
        return value_of(member_bytes(self.spans, i), self.type, self.entry, self.kind)

    def pick(self, rows: Rows, /) -> MemberValues:
        return MemberValues(self.spans.pick(rows), self.type, self.entry, self.kind)


def values_of(field: NamedMember, spans: Spans, first: int) -> MemberValues:
    """The values of a field. first: a sample that has it. Raises UsageError where the first value fits no field."""
    kind = type_of(field.suffix)
    array, rest = array_of(field.declared)
    word = rest if array else field.declared
    declared = None if word is None else declared_kind(field.name, word)
    if isinstance(declared, str):
        has = (member_bytes(spans, i) for i in np.flatnonzero(spans.states[:, 0] >= 0).tolist())
        pixels = first_pixels(declared, field.name, lambda data: _pixels(data, kind), has)
        return MemberValues(spans, kind, (), pixels)
    if declared is None:
        try:
            declared = inferred_kind(field.name, value_of(member_bytes(spans, first), kind, field.entry, None))
        except DecodeError as error:
            what = f"its first value cannot be read: {error.detail}"
            raise UsageError(f"{opt.fields(repr(field.name))}: {what}") from error
    fields = with_arrays({field.name: declared}, [field.name] if array else [], field.name)
    return MemberValues(spans, kind, field.entry, fields[field.name])


def member_bytes(spans: Spans, i: int) -> bytes:
    """The bytes of a member, which may be empty as those of an image may not."""
    return b"" if i not in spans.faults and not spans.states[i, 0] else spans.value(i)


def value_of(data: bytes, type: str, entry: Sequence[str], kind: FieldKind | None) -> Value:
    """The value of a member. type: see `type_of`. kind: None for the first value, which may be anything. Raises
    DecodeError."""
    if kind is not None and kind.is_pixels:
        return _pixels(data, type)
    value: Any
    if type == "npy":
        value = npy.array_of(data)
    elif type in JSON:
        value = parsed(data)
        for name in entry:
            if not isinstance(value, dict) or name not in value:
                raise DecodeError("bad_field", f"the JSON member has no entry {plain('.'.join(entry))}")
            value = value[name]
        one_text = kind is not None and kind.dtype == "str" and not kind.is_texts
        if not entry and (isinstance(value, dict) or one_text):
            value = value if isinstance(value, str) else _text(data)
        elif one_text:
            value = as_text(value)
    else:
        value = _text(data)
        if (type in _WHOLE_NUMBERS) if kind is None else (kind.dtype != "str"):
            # A whole number; or any as in JSON, also a list of numbers.
            value = int(data) if WHOLE.fullmatch(data.decode("ascii", "replace")) else parsed(data)
    if isinstance(value, str | bytes) or kind is None or (kind.is_texts and are_texts(value)):
        return cast(Value, value)
    array = as_array(value)
    if array is None:
        raise DecodeError("bad_field", f"{_shown(value)} is no number, text or array")
    if kind.boxes is None:
        return array
    return Boxes(array if array.size else np.zeros((0, kind.shape[1] or 0)), kind.boxes)


def _pixels(data: bytes, type: str) -> bytes | NDArray[Any]:
    """An image or a mask: the bytes of a file, or an array of which nobody can say where its channels are. Raises
    DecodeError."""
    if type != "npy":
        return data
    array = npy.array_of(data)
    if doubtful(array.shape):
        raise DecodeError(
            "bad_field", f"its shape is {array.shape}, and images have their channels last: np.moveaxis(array, 0, -1)"
        )
    return array


def parsed(data: bytes) -> Any:
    """A JSON value. Raises DecodeError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError("bad_field", f"{_shown(data)} is not valid JSON or no number") from error


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DecodeError("bad_field", f"byte {error.start} of the member is not UTF-8") from error


def _shown(value: Any) -> str:
    text = plain(value[: 2 * _SHOWN] if isinstance(value, bytes) else repr(value))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
