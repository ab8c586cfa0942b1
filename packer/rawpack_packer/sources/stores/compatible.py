"""What several stores have in common: whether they can be packed as one, and what its fields and classes are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.store.store import Store
from rawpack_packer.sources.fields import FieldKind, ImageKind

IMAGE, KEY, LABEL = "image", "key", "label"


def united(stores: Sequence[Store]) -> tuple[str, ...] | None:
    """The classes of all stores: those of the first, then the new ones of each next."""
    if stores[0].manifest.classes is None:
        return None
    return tuple(dict.fromkeys(name for store in stores for name in store.manifest.classes or ()))


def numbers_of(names: Sequence[str], among: Sequence[str]) -> NDArray[np.int64]:
    """The position of each name; -1 of those that are not there."""
    known = {name: number for number, name in enumerate(among)}
    return np.array([known.get(name, -1) for name in names], np.int64)


def image_kind(stores: Sequence[Store]) -> ImageKind:
    field = stores[0].fields[IMAGE]
    shape = _shape(IMAGE, stores)
    return ImageKind(field.dtype, shape, pictures=field.dtype == "uint8" and len(shape) == 3 and shape[2] in (1, 3))


def field_kind(name: str, stores: Sequence[Store]) -> FieldKind:
    field = stores[0].fields[name]
    return FieldKind(
        field.dtype, _shape(name, stores), mask=field.kind == "mask", boxes="xyxy" if field.is_boxes else None
    )


def _shape(name: str, stores: Sequence[Store]) -> tuple[int | None, ...]:
    """What the samples of a field have in common."""
    shapes = {store.fields[name].shape for store in stores}
    first = stores[0].fields[name].shape
    return first if len(shapes) == 1 else (None, None, *first[2:])


def check_fields(stores: Sequence[Store]) -> None:
    """Raise UsageError, naming what differs, where stores do not have the same fields."""
    first = stores[0]
    cure = "all stores need the same fields: `rawpack export` one, fix its listing, and pack that"
    for other in stores[1:]:
        for name in [*first.fields, *other.fields]:
            was, now = first.fields.get(name), other.fields.get(name)
            if was is None or now is None:
                has, lacks = (first, other) if now is None else (other, first)
                raise UsageError(f"{has.path} has a field {name!r}, and {lacks.path} has none; {cure}")
            if _sort(was) != _sort(now):
                fix = "`rawpack convert --color` gives all the same channels" if name == IMAGE else cure
                raise UsageError(
                    f"{name!r} is {was.kind} {was.dtype} {_text(was)} in {first.path}, and {now.kind} {now.dtype} "
                    f"{_text(now)} in {other.path}; {fix}"
                )
        if (first.manifest.classes is None) != (other.manifest.classes is None):
            has, lacks = (first, other) if other.manifest.classes is None else (other, first)
            raise UsageError(f"{has.path} has classes, and {lacks.path} has none, so labels do not mean the same")


def _sort(field: Field) -> tuple[object, ...]:
    """What must be the same: all of a field but how it lies in shards, and height and width of pictures."""
    sized = field.in_shards and len(field.shape) == 3
    return field.kind, field.dtype, field.boxes, len(field.shape), field.shape[2:] if sized else field.shape


def _text(field: Field) -> str:
    return "x".join("?" if n is None else str(n) for n in field.shape) or "scalar"
