"""Which fields a batch has, and in which form: what was asked for is checked against what the store has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rawpack.choose.options import Options, by_field, is_word
from rawpack.errors import UsageError
from rawpack.order.launcher import Ranks
from rawpack.pixels.geometry import RESIZABLE
from rawpack.store.stores import Stores
from rawpack.system.user import did_you_mean
from rawpack.words import BOXES, INDEX, STORE, STORE_ROW, VALID
from rawpack.workers.besides import Ragged

if TYPE_CHECKING:
    from rawpack.transforms.plan import Transform
    from rawpack.transforms.step import CropStep


def extras_of(library: Stores, fields: Sequence[str], ranks: Ranks | None, drop_last: bool) -> tuple[str, ...]:
    """What batches have that no store has: `store_row` where it is named, and `valid` also where ranks pad."""
    pads = (VALID,) if ranks is not None and ranks.last != "keep" and not drop_last else ()
    return tuple(name for name in (VALID, STORE_ROW) if name in (*fields, *pads) and name not in library.fields)


def choose_fields(
    library: Stores,
    fields: Sequence[str] | None,
    sized: Sequence[str],
    transformed: bool,
    encoded: Sequence[str],
) -> tuple[str, ...]:
    """The fields of a batch: by default numbers, images and masks. sized: those that `image_size=` resizes.
    transformed: by `transform=` or `image_size=`. encoded: those that come as files."""
    if fields is None:
        fields = [name for name, field in library.fields.items() if field.in_slot]
        for name, problem in library.problems.items():
            if all(name in store.fields and store.fields[name].in_slot for store in library.stores):
                raise UsageError(f"{problem}; else name the fields that you want with fields=, without {name!r}")
    given = () if library.groups is None else (STORE,)
    chosen = tuple(dict.fromkeys(name for name in (*fields, *given) if name != INDEX))
    for name in chosen:
        if name not in library.fields:
            why = library.problems.get(name, f"there is no field {name!r}")
            raise UsageError(f"{why}; the store has {', '.join(library.fields)}{did_you_mean(name, library.fields)}")
        field = library.fields[name]
        resizable = len(field.shape) == 3 and (field.dtype in RESIZABLE or field.exact)
        if field.kind == "image" and name in sized and not resizable:
            raise UsageError(
                f"image_size= resizes (height, width, channels) of {', '.join(RESIZABLE)}; {name!r} is {field.dtype} "
                f"{field.shape}: leave it out with fields="
            )
        if field.in_shards and not (field.uniform or transformed or name in encoded):
            alone = sum(one.kind == "image" for one in library.fields.values()) == 1
            raise UsageError(
                f"the samples of {name!r} may have different sizes, so they cannot form a batch: pass "
                f"image_size={224 if alone else {name: 224}} (resize and center-crop in the workers) or (height, "
                "width), or a transform= that makes one size; or leave the field out with fields=, or pack with --size"
            )
    return chosen


def choose_form(library: Stores, options: Options, transformed: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The fields that come as planes, and those that come as files, both as they are stored. transformed: by
    `transform=` or `image_size=`."""
    chosen = library.fields if options.fields is None else options.fields
    pixels = [name for name, field in library.fields.items() if field.in_shards and name in chosen]
    forms = by_field("decode", options.decode, pixels, True)
    for form in (options.decode, *forms.values()):
        if not isinstance(form, Mapping | bool | np.bool_) and not is_word(form, "planes"):
            raise UsageError(
                f"decode={options.decode!r} must be True, False or 'planes', or a dict: field -> one of these"
            )
    planes = tuple(name for name, form in forms.items() if is_word(form, "planes"))
    files = tuple(name for name, form in forms.items() if not isinstance(form, str) and not form)
    if not isinstance(options.decode, Mapping):
        planes = tuple(name for name in planes if all(store.fields[name].planar for store in library.stores))
        if is_word(options.decode, "planes") and not planes:
            raise UsageError("decode='planes': no field of the batch is stored that way; pack with --color ycgco420")
        if options.decode is False and not files:
            raise UsageError("decode=False: the batch has no images or masks; name some with fields=")
    for name in planes:
        _check_planes(library, name, transformed)
    for name in files:
        _check_files(library, name)
    return planes, files


def _check_planes(library: Stores, name: str, transformed: bool) -> None:
    if not all(store.fields[name].planar for store in library.stores):
        raise UsageError(f"decode= asks for the planes of {name!r}, which are not stored: pack with --color ycgco420")
    if transformed:
        raise UsageError(
            "decode='planes' gives planes as they are stored; transform= and image_size= work on pixels: leave out one "
            "of them"
        )
    if not library.fields[name].uniform:
        raise UsageError(
            f"the planes of {name!r} have different sizes, so they cannot form a batch: leave decode= out and pass "
            "image_size=, or pack with --size"
        )


def _check_files(library: Stores, name: str) -> None:
    for store in library.stores:
        field = store.fields[name]
        if not field.codec.suffix:
            raise UsageError(
                f"decode=False: {name!r} is stored as {field.encoding}, not as image files, in {store.where}: pack or "
                "convert with --format lmdb, name other fields as decode={...: False}, or leave decode= out"
            )


def check_ragged(library: Stores, fields: Sequence[str], ragged: Ragged) -> None:
    """Raise UsageError where a length is too short for a sample."""
    if isinstance(ragged, str):
        return
    for name in fields:
        longest = library.columns.longest(name) if library.fields[name].kind == "ragged" else 0
        if longest > ragged:
            raise UsageError(
                f"ragged={ragged} is too short: a sample has {longest} of {name!r}; pass that length, or 'pad'"
            )


def first_crop(
    transform: Transform | None, library: Stores, chosen: Sequence[str], encoded: Sequence[str]
) -> tuple[CropStep | None, tuple[str, ...]]:
    """The crop that a transform begins with, and the fields that it is applied to.

    Raises UsageError for steps that need the pixels of files.
    """
    from rawpack.transforms.crops import RandomCrop
    from rawpack.transforms.plan import as_steps
    from rawpack.transforms.step import BatchStep, CropStep
    from rawpack.transforms.together import concerns

    found: tuple[CropStep | None, tuple[str, ...]] = None, ()
    begun = False
    """Whether a step was applied to images or masks."""
    for step in as_steps(transform or []):
        fields = library.fields
        changed = (
            () if isinstance(step, BatchStep) else tuple(name for name in chosen if concerns(step, name, fields[name]))
        )
        files = [name for name in changed if name in encoded]
        if files or isinstance(step, BatchStep):
            if not isinstance(step, CropStep) or begun:
                raise UsageError(
                    f"{step!r} needs pixels, and decode= gives {' and '.join(files or encoded)} as files: transform= "
                    "may begin with a crop, whose box comes with the batch; do everything else after decoding"
                )
            if isinstance(step, RandomCrop) and (any(step.padding) or step.pad_if_needed):
                raise UsageError(f"{step!r} pads, and decode= gives files: pad and crop after decoding")
            if BOXES in chosen:
                raise UsageError(
                    f"the boxes of {step!r} would have the name of the field {BOXES!r}: leave that out with fields=, "
                    "or crop after decoding"
                )
            found = step, changed
        begun = begun or any(fields[name].in_shards for name in changed)
    return found
