"""The fields that several stores have in common, which a mix of them has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from msgspec import UNSET
from msgspec.structs import replace

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.store.store import Store
from rawpack.words import STORE

LABEL = "label"


def check_alike(stores: Sequence[Store]) -> None:
    """Raise UsageError unless all stores have the same fields and classes."""
    first = stores[0]
    for other in stores[1:]:
        for name in dict.fromkeys([*first.fields, *other.fields]):
            one, two = (store.fields.get(name) for store in (first, other))
            if one is None or two is None or (_kind(one), one.shape) != (_kind(two), two.shape):
                shown = [f"{'none' if field is None else _shown(field)}" for field in (one, two)]
                _refuse(first, other, f"{name!r} is {shown[0]} in the first and {shown[1]} in the second")
        if other.manifest.classes != first.manifest.classes:
            _refuse(first, other, "their classes differ")


def _refuse(one: Store, other: Store, why: str) -> NoReturn:
    raise UsageError(
        f"{one.path} and {other.path} cannot be read as one: {why}; Reader.mix takes stores that differ, and reads the "
        "fields that all have"
    )


def common_fields(stores: Sequence[Store]) -> tuple[dict[str, Field], dict[str, str]]:
    """The fields that a mix has: those of all stores, with sides of None where images differ in size, and `store`; and
    why other fields, and labels of different classes, should not be mixed, by name. UsageError where a store has a
    field `store`."""
    fields, problems = dict[str, Field](), dict[str, str]()
    for name in dict.fromkeys(name for store in stores for name in store.fields):
        having = [store for store in stores if name in store.fields]
        if name == STORE:
            raise UsageError(
                f"{having[0].where} has a field {STORE!r}, which is the name of each sample's store in a mix: pack it "
                "under another name"
            )
        if len(having) < len(stores):
            without = next(store for store in stores if name not in store.fields)
            problems[name] = f"{without.where} has no field {name!r}, so a mix with it has none"
            continue
        joined = having[0].fields[name]
        for store in having[1:]:
            one = _joined(joined, store.fields[name])
            if one is None:
                problems[name] = (
                    f"the field {name!r} is {_shown(having[0].fields[name])} in {having[0].where} and "
                    f"{_shown(store.fields[name])} in {store.where}, which cannot be mixed"
                )
                break
            joined = one
        else:
            fields[name] = joined
    other = next((store for store in stores if store.manifest.classes != stores[0].manifest.classes), None)
    if other is not None and LABEL in fields:
        problems[LABEL] = (
            f"{stores[0].where} and {other.where} have different classes, so the same {LABEL!r} means another one in "
            f"each; if that is right, because {STORE!r} says which store it is, name {LABEL!r} in fields="
        )
    return {**fields, STORE: Field(kind="number", dtype="int64")}, problems


def _joined(field: Field, other: Field) -> Field | None:
    """A field that both are samples of; None where there is none."""
    if _kind(field) != _kind(other) or len(field.shape) != len(other.shape):
        return None
    shape = tuple(one if one == two else None for one, two in zip(field.shape, other.shape, strict=True))
    sizes_differ = field.in_shards and len(shape) == 3 and shape[2] == field.shape[2]
    return replace(field, shape=shape) if shape == field.shape == other.shape or sizes_differ else None


def _kind(field: Field) -> tuple[object, ...]:
    kind = "boxes" if field.is_boxes else "nearest image" if field.nearest is True else field.kind
    return kind if field.displacement is UNSET else field.displacement, field.dtype, field.follows, field.mirror


def _shown(field: Field) -> str:
    return f"{_kind(field)[0]} {field.dtype} {field.shape}"
