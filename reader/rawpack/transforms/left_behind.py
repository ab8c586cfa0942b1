"""Array fields that look like images: a step that moves the pixels of images would leave them behind.

A field of numbers that has the height and width of its image may be a second image, a map of depths, or a matrix that
happens to have this size. A store does not say which, unless the field was packed as a mask, which moves with the
image, or as `array`, which is no image.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.store.stores import Stores
from rawpack.transforms.crops import CenterCrop
from rawpack.transforms.images import PIXELS
from rawpack.transforms.resizing import Fit, Resize
from rawpack.transforms.step import BatchStep, Spec, Step

Size = tuple[int, int]
_LOOKED_AT = 16
"""Samples whose images are looked at, where images differ in size."""
_AS_THEY_ARE = (CenterCrop, Fit, Resize)
"""Steps that leave images as they are if they have the size that is asked for."""


def looks_like(field: Field, size: Size) -> bool:
    """Whether a field may be an image of this (height, width): two of its axes, one after the other, have that size,
    and nobody said what it is."""
    return _unsaid(field) and any(field.shape[i : i + 2] == size for i in range(len(field.shape) - 1))


def _unsaid(field: Field) -> bool:
    return field.kind == "number" and len(field.shape) > 1 and not field.is_array


def look_alikes(library: Stores, chosen: Sequence[str]) -> dict[str, Field]:
    """Those of the chosen fields that look like images."""
    suspects = {
        name: field
        for store in library.stores
        for name, field in store.fields.items()
        if name in chosen and _unsaid(field)
    }
    pixels = [name for name in chosen if library.fields[name].kind in PIXELS and len(library.fields[name].shape) == 3]
    sizes = {size for name in pixels for size in _one_size(library, name)} if suspects and len(library) else set()
    return {name: field for name, field in suspects.items() if any(looks_like(field, size) for size in sizes)}


def _one_size(library: Stores, name: str) -> set[Size]:
    """The (height, width) of an image or mask; where a manifest says that they differ, that of some samples, if they
    agree; else none."""
    count = 1 if library.fields[name].uniform else _LOOKED_AT
    found = {_size_of(library, name, int(row)) for row in np.linspace(0, len(library) - 1, count, dtype=np.int64)}
    return found if len(found) == 1 else set()


def _size_of(library: Stores, name: str, row: int) -> Size:
    store, at = library.locate(row)
    field = store.fields[name]
    shape = field.shape if field.uniform else store.columns.piece(f"{name}.shape", at, 1)[0].tolist()
    return int(shape[0] or 0), int(shape[1] or 0)


def check_step(step: Step, spec: Spec, made: Spec, image: str, alike: Mapping[str, Field]) -> None:
    """Raise UsageError where a step leaves a field behind that looks like `image`. spec, made: images before and after
    it. alike: see `look_alikes`."""
    if alike and _moves(step, spec, made):
        raise _refusal(step, image, alike)


def check_batch_step(step: BatchStep, alike: Mapping[str, Field]) -> None:
    """The same for a step that mixes the pixels of samples."""
    if alike and step.refuses:
        raise _refusal(step, "image", alike)


def _moves(step: Step, spec: Spec, made: Spec) -> bool:
    """Whether a step moves pixels: it changes the size of images, or takes masks or boxes along, or cannot."""
    if spec.layout != "HWC" or made.layout == "CHW" or len(made.shape) != 3:
        return False
    if made.shape[:2] != spec.shape[:2]:
        return True
    if isinstance(step, _AS_THEY_ARE) and made.fixed:
        return False
    of_masks = type(step).apply_mask is not Step.apply_mask
    return of_masks or type(step).move is not Step.move or bool(step.refuses)


def _refusal(step: Step | BatchStep, image: str, alike: Mapping[str, Field]) -> UsageError:
    name, field = next(iter(alike.items()))
    return UsageError(
        f"{step!r} moves the pixels of {image!r}, and {name!r}, {field.dtype} {field.shape}, has the same height and "
        "width but would stay as it is: leave it out with fields=, or pack it again, as "
        f"fields={{{name!r}: 'mask'}} if it must move with its image (masks are (height, width) or (height, width, "
        f"channels), and resized to the nearest pixel), or as fields={{{name!r}: 'array'}} if it is no image"
    )
