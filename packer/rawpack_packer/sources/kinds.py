"""The kind of a field: inferred from a value, or declared by a word: "float32", "float32[?,5]", "mask", "xyxy".

"array" says of a field that it is no image, so that it stays as it is where the image moves. What it holds is inferred,
or follows: "array:float32[4,4]".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from rawpack.disk.manifest import DTYPES
from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.fields import PLAIN, BoxForm, FieldKind, ImageKind

_WORD = re.compile(r"([a-z]+\d*)(?:\[([\d?,\s]*)\])?")
_BOX_LENGTH = 5
"""Numbers of a box by default: four sides and a class."""
Declared = str | tuple[str, tuple[int | None, ...]] | FieldKind
"""How a caller declares a field: a word; dtype and shape; or all of it."""
Fields = Mapping[str, Declared] | Sequence[str]
"""How a caller declares several: by name, or as the command has them, "NAME:DTYPE"."""
ARRAY = "array"
_BOX_NAMES = ("box", "boxes", "bbox", "bboxes")


def declared_kind(name: str, declared: Declared) -> FieldKind | None:
    """A field as it was declared; None for "mask", which is inferred from the first one. UsageError for nonsense."""
    if isinstance(declared, FieldKind):
        return declared
    if declared == "mask":
        return None
    if array_of(declared)[0]:
        raise UsageError(f"field {name}: {ARRAY!r} is for fields of arrays that are packed with their images")
    if isinstance(declared, tuple):
        dtype, shape = declared
        return FieldKind(plain_dtype(dtype), tuple(shape))
    match = _WORD.fullmatch(declared.strip()) if isinstance(declared, str) else None
    if not match:
        raise UsageError(
            f"field {name}: {declared!r} is no dtype; write float32, float32[4], float32[?,5], str, mask, array, or of "
            f"boxes {', '.join(get_args(BoxForm))}; the dtypes are {PLAIN}"
        )
    lengths = [length.strip() for length in (match[2] or "").split(",") if length.strip()]
    shape = tuple(None if length == "?" else int(length) for length in lengths)
    for form in get_args(BoxForm):
        if match[1] == form:
            return FieldKind("float32", (None, *(shape[-1:] or (_BOX_LENGTH,))), boxes=form)
    dtype = {"int": "int64", "float": "float64", "text": "str"}.get(match[1], match[1])
    if plain_dtype(dtype) not in DTYPES and dtype != "str":
        raise UsageError(f'field {name}: {match[1]!r} is no dtype of a field: use "str", or {PLAIN}')
    return FieldKind(plain_dtype(dtype), shape)


def declared_fields(fields: Mapping[str, Declared] | Sequence[str]) -> dict[str, FieldKind | None]:
    """The declared kinds of fields; None for masks, whose kind the first one shows. Raises UsageError."""
    if isinstance(fields, Mapping):
        return {name: declared_kind(name, declared) for name, declared in fields.items()}
    declared: dict[str, FieldKind | None] = {}
    for text in fields:
        name, colon, word = text.partition(":")
        if not colon or not name:
            raise UsageError(f"{opt.fields(repr(text))}: write NAME:DTYPE, such as score:float32 or boxes:xyxy")
        if name in declared:
            raise UsageError(f"{opt.fields(name)} is given twice")
        declared[name] = declared_kind(name, word)
    return declared


def plain_dtype(declared: Any) -> str:
    """A dtype by its name in stores: "float64" for "double", "d", "<f8". Nonsense stays as it is."""
    try:
        return str(np.dtype(declared).name)
    except TypeError:
        return str(declared)


def inferred_kind(name: str, value: Any) -> FieldKind:
    """A field by its first value. Raises UsageError where no store can hold that."""
    if isinstance(value, str):
        return FieldKind("str")
    array = as_array(value)
    if array is None or array.dtype.kind == "c" or array.dtype.name not in DTYPES or 0 in array.shape:
        what = type(value).__name__ if array is None else f"{array.dtype} {array.shape}"
        if isinstance(value, int):
            what += " beyond 64 bits"
        raise UsageError(
            f"field {name}: its first value is {what}; a field is a bool, int, float, text, or an array of numbers"
            f"{_cure(name, value)}"
        )
    return FieldKind(array.dtype.name, array.shape)


def _cure(name: str, value: Any) -> str:
    if isinstance(value, Mapping):
        return f": make fields of its entries, or store it as JSON text by fields={{{name!r}: 'str'}}"
    if isinstance(value, bytes):
        return f": decode it to text; for a mask that is a PNG file, pass fields={{{name!r}: 'mask'}}"
    if value is None or isinstance(value, int):
        return ": give each sample a value, such as -1 for none, or a text"
    if isinstance(value, list | tuple) and as_array(value) is None:
        return f". Store it as JSON text by fields={{{name!r}: 'str'}}"
    return f". Declare it, as by fields={{{name!r}: 'float32[?,5]'}}"


def inferred_mask(name: str, value: Any, image: ImageKind | None) -> FieldKind:
    """A mask field by its first value, a PNG file or an array. image: what all images are, if that is known."""
    if isinstance(value, bytes):
        from rawpack_packer.images import read_header

        try:
            header = read_header(value)
        except DecodeError as error:
            raise UsageError(f"field {name}: its first mask cannot be read: {error}") from None
        channels = 3 if header.color == "rgb" else 1
        return mask_kind("uint16" if header.bits == 16 else "uint8", (0, 0, channels), image)
    array = as_array(value)
    if array is None or array.ndim not in (2, 3):
        raise UsageError(f"field {name}: a mask is a PNG file or an array (height, width), not {type(value).__name__}")
    return mask_kind(array.dtype.name, array.shape, image)


def mask_kind(dtype: str, shape: Sequence[int], image: ImageKind | None) -> FieldKind:
    """A mask field by the first mask, (height, width) or (height, width, channels). image: what all images are, if that
    is known: a mask has the size of its image."""
    sizes: tuple[int | None, int | None] = (None, None)
    if image is not None and len(image.shape) >= 2 and None not in image.shape:
        sizes = (image.shape[0], image.shape[1])
    return FieldKind(dtype, (*sizes, 1 if len(shape) == 2 else shape[2]), mask=True)


def box_hint(name: str, kind: FieldKind) -> str | None:
    """What to tell the user of a field that looks like boxes but was not declared."""
    rows_of_box = len(kind.shape) == 2 and kind.ragged and kind.shape[1] in (4, 5)
    if kind.array or (not rows_of_box and (name.lower() not in _BOX_NAMES or kind.dtype == "str")):
        return None
    shape = ",".join("?" if n is None else str(n) for n in kind.shape)
    return (
        f"{name!r} is stored as plain numbers, which do not move when images are cropped and resized. If it holds "
        f"boxes, declare their form: {opt.fields(f'{name}:xyxy')}, {name}:xywh or {name}:yolo; if not, "
        f"{opt.fields(f'{name}:{kind.dtype}[{shape}]')}"
    )


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
            raise UsageError(f"{opt.fields(f'{name}:{ARRAY}')}: {error}") from None
    return marked


def with_roles(
    kinds: Mapping[str, FieldKind], fields: Fields, image: ImageKind | None, where: str
) -> dict[str, FieldKind]:
    """Fields whose dtype and shape a file of arrays knows: those that are declared as masks, or as no images. image:
    what all images are, if that is known. Raises UsageError."""
    rest, arrays = split_arrays(fields)
    pairs = list(rest.items()) if isinstance(rest, dict) else [one.partition(":")[::2] for one in rest]
    found = with_arrays(kinds, arrays, where)
    for name, declared in pairs:
        if declared != "mask":
            raise UsageError(
                f"{opt.fields(name)}: the arrays of {where} say what they hold; of a field, write {name}:mask where it "
                f"is a mask of the image, or {name}:{ARRAY} where it is no image"
            )
        if name not in kinds:
            raise UsageError(
                f"{opt.fields(f'{name}:mask')}: {where} has no such field: it has {', '.join(kinds) or 'none'}"
            )
        one = kinds[name]
        lengths = [n for n in one.shape if n is not None]
        if len(lengths) not in (2, 3) or one.ragged or one.dtype == "str":
            raise UsageError(f"{opt.fields(f'{name}:mask')}: a mask is (height, width), not {one.dtype} {one.shape}")
        found[name] = mask_kind(one.dtype, lengths, image)
    return found


def as_array(value: Any) -> np.ndarray[Any, Any] | None:
    """A number, list, array or tensor as an array in this machine's byte order; None for anything else.

    A masked array with masked values is refused too: what is under the mask is no value.
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        return None
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError):
        return None
    if array.dtype.kind not in "biufc":
        return None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
