"""Builds a recipe from the user's options and the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from rawpack_packer.recipe.recipe import DEFAULT_FORMAT, Recipe, make_recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources import Source

if TYPE_CHECKING:
    from rawpack_packer.sources import StoreSource


def recipe_for(source: Source, options: Mapping[str, Any]) -> Recipe:
    """The recipe from what a user wrote. The source decides what was left out or is None."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if is_of_stores(source):
        given = as_stored(source, given)
    elif _is_gray(source):
        given.setdefault("color", "gray")
    image = source.info.image
    given.setdefault("size", "256" if image is None or image.resized else "keep")
    recipe = make_recipe(**given)
    return msgspec.structs.replace(recipe, origin=source.origin) if is_of_stores(source) else recipe


def is_of_stores(source: Source) -> TypeGuard[StoreSource]:
    """Whether samples come from stores; the code for that is loaded then only."""
    if source.info.kind != "store":
        return False
    from rawpack_packer.sources import StoreSource

    return isinstance(source, StoreSource)


def as_stored(source: StoreSource, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, with the size, color and quality that leave a store's images as they are."""
    written = output_format(given.get("format", DEFAULT_FORMAT))
    gray, planes = _is_gray(source), source.holds_planes and "yuv420" in written.colors
    whole = {"size": "keep", "color": "gray" if gray else "yuv420" if planes else "rgb", **given}
    as_they_are = whole["size"] == "keep" and "crop" not in given and gray == (whole["color"] == "gray")
    encoded = not given.keys().isdisjoint(("subsampling", "jpeg_tables"))
    if "quality" in written.options and source.holds_jpeg and as_they_are and not encoded:
        whole.setdefault("quality", "keep")
    return whole


def _is_gray(source: Source) -> bool:
    image = source.info.image
    return image is not None and image.pictures and image.shape[2] == 1
