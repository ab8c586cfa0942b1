"""What users declare of fields, by words: "float32", "float32[?,5]", "image", "mask", "xyxy".

"array" says of a field that it is no image, so that it stays as it is where the image moves. What it holds is inferred,
or follows: "array:float32[4,4]". "per-box:int64[?]" is a value for each box.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from rawpack.disk.manifest import DTYPES
from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.fields import (
    ARRAY,
    PIXEL_WORDS,
    PLAIN,
    BoxForm,
    Declared,
    DeclaredKind,
    FieldKind,
    Fields,
    ImageKind,
)
from rawpack_packer.sources.inferred import pixels_kind

_WORD = re.compile(r"([a-z]+\d*)(?:\[([\d?,\s]*)\])?")
_BOX_LENGTH = 5
"""Numbers of a box by default: four sides and a class."""
_PER_BOX = "per-box:"


def declared_kind(name: str, declared: Declared) -> DeclaredKind:
    """A field as it was declared; of images and masks, which the first one shows, the word. UsageError for nonsense."""
    if isinstance(declared, FieldKind):
        return declared
    for word in PIXEL_WORDS:
        if declared == word:
            return word
    if array_of(declared)[0]:
        raise UsageError(f"field {name}: {ARRAY!r} is for fields of arrays that are packed with their images")
    if isinstance(declared, tuple):
        dtype, shape = declared
        return FieldKind(plain_dtype(dtype), tuple(shape))
    if isinstance(declared, str) and declared.startswith(_PER_BOX):
        kind = declared_kind(name, declared.removeprefix(_PER_BOX))
        if isinstance(kind, FieldKind) and kind.ragged and not kind.boxes and kind.dtype != "str":
            return replace(kind, follows="rows")
        raise UsageError(f"field {name}: {declared!r}: write {_PER_BOX}int64[?], a value for each row of `boxes`")
    match = _WORD.fullmatch(declared.strip()) if isinstance(declared, str) else None
    if not match:
        raise UsageError(
            f"field {name}: {declared!r} is not a field dtype; write float32, float32[4], float32[?,5], str, "
            f"str[?], image, image[1], flow, disparity, mask, array, or for boxes {', '.join(get_args(BoxForm))}; the "
            f"dtypes are {PLAIN}"
        )
    lengths = [length.strip() for length in (match[2] or "").split(",") if length.strip()]
    shape = tuple(None if length == "?" else int(length) for length in lengths)
    if match[1] == "image":  # of files, which do not say whether the gray ones are only some
        return FieldKind("uint8", (None, None, *shape), image="picture")
    for form in get_args(BoxForm):
        if match[1] == form:
            return FieldKind("float32", (None, *(shape[-1:] or (_BOX_LENGTH,))), boxes=form)
    dtype = {"int": "int64", "float": "float64", "text": "str"}.get(match[1], match[1])
    if plain_dtype(dtype) not in DTYPES and dtype != "str":
        raise UsageError(
            f'field {name}: {match[1]!r} is not a field dtype: use "image", "flow", "disparity", "mask", "str", a form '
            f"of boxes ({', '.join(get_args(BoxForm))}), or {PLAIN}"
        )
    return FieldKind(plain_dtype(dtype), shape)


def by_name(fields: Fields) -> Mapping[str, Declared]:
    """Declarations of fields by their names, however they are written. Raises UsageError."""
    if isinstance(fields, Mapping):
        return fields
    declared: dict[str, Declared] = {}
    for text in fields:
        name, colon, word = text.partition(":")
        if not colon or not name:
            raise UsageError(f"{opt.fields(repr(text))}: write NAME:DTYPE, such as score:float32 or boxes:xyxy")
        if name in declared:
            raise UsageError(f"{opt.fields(name)} is given twice")
        declared[name] = word
    return declared


def declared_fields(fields: Fields) -> dict[str, DeclaredKind]:
    """The declared kinds of fields, see `declared_kind`. Raises UsageError."""
    return {name: declared_kind(name, declared) for name, declared in by_name(fields).items()}


def plain_dtype(declared: Any) -> str:
    """A dtype by its name in stores: "float64" for "double", "d", "<f8". Nonsense stays as it is."""
    try:
        return str(np.dtype(declared).name)
    except TypeError:
        return str(declared)


def words_of(fields: Fields) -> tuple[str, ...]:
    """Declarations as the command has them."""
    return tuple(":".join(map(str, pair)) for pair in fields.items()) if isinstance(fields, Mapping) else tuple(fields)


def array_of(declared: Any) -> tuple[bool, str | None]:
    """Whether a declaration says that a field is no image: "array"; and what else it says: "array:float32[4,4]"."""
    word, _, rest = declared.partition(":") if isinstance(declared, str) else ("", "", "")
    return word == ARRAY, rest or None


def split_arrays(fields: Fields) -> tuple[dict[str, Declared] | list[str], tuple[str, ...]]:
    """The declarations of fields without the word "array", and the names of those that had it."""
    pairs: list[tuple[str, Any]]
    named = isinstance(fields, Mapping)
    pairs = list(fields.items()) if isinstance(fields, Mapping) else [one.partition(":")[::2] for one in fields]
    arrays = tuple(name for name, declared in pairs if array_of(declared)[0])
    rest = [(name, array_of(declared)[1] if name in arrays else declared) for name, declared in pairs]
    left = [(name, declared) for name, declared in rest if declared is not None]
    if named:
        return dict(left), arrays
    return [f"{name}:{declared}" if declared else name for name, declared in left], arrays


def with_arrays(kinds: Mapping[str, FieldKind], names: Iterable[str], where: str) -> dict[str, FieldKind]:
    """Fields, of which those named are no images. Raises UsageError where there is no such field, or it holds none."""
    marked = dict(kinds)
    for name in names:
        if name not in kinds:
            raise UsageError(
                f"{opt.fields(f'{name}:{ARRAY}')}: {where} has no such field: it has {', '.join(kinds) or 'none'}"
            )
        try:
            marked[name] = replace(kinds[name], array=True)
        except UsageError as error:
            raise UsageError(f"{opt.fields(f'{name}:{ARRAY}')}: {error}") from error
    return marked


def with_roles(
    kinds: Mapping[str, FieldKind], fields: Fields, image: ImageKind | None, where: str
) -> dict[str, FieldKind]:
    """Fields whose dtype and shape a file of arrays knows: those that are declared as images, masks, or no images.
    image: what the first images are, if that is known. Raises UsageError."""
    found = dict(kinds)
    for name, _, role in (word.partition(":") for word in words_of(fields)):
        if role == ARRAY:
            found = with_arrays(found, [name], where)
            continue
        if role == "str" and kinds.get(name) == FieldKind("str"):
            continue
        if role not in PIXEL_WORDS:
            raise UsageError(
                f"{opt.fields(name)}: the arrays of {where} say what they contain; for a field, write {name}:image "
                f"where it is a further image ({name}:flow or {name}:disparity where its values are distances in "
                f"pixels), {name}:mask where it is a mask of the image, or {name}:{ARRAY} where it is no image"
            )
        said = opt.fields(f"{name}:{role}")
        if name not in kinds:
            raise UsageError(f"{said}: {where} has no such field: it has {', '.join(kinds) or 'none'}")
        one = kinds[name]
        if one.is_pixels:  # by its first value
            continue
        lengths = [n for n in one.shape if n is not None]
        if len(lengths) not in (2, 3) or one.ragged or one.dtype == "str":
            raise UsageError(f"{said}: it is (height, width, channels) or (height, width), not {one.dtype} {one.shape}")
        found[name] = pixels_kind(role, name, one.dtype, lengths, image)
    return found
