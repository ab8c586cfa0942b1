"""The recipe by what a user wrote, and by what the source is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rawpack_packer.recipe.recipe import DEFAULT_FORMAT, Recipe, make_recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources import Source, StoreSource


def recipe_for(source: Source, options: Mapping[str, Any]) -> Recipe:
    """The recipe by what a user wrote; what was left out, or is None, depends on the source."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    if isinstance(source, StoreSource):
        given = as_stored(source, given)
    elif _is_gray(source):
        given.setdefault("color", "gray")
    given.setdefault("size", "keep" if source.info.image is not None else "256")
    recipe = make_recipe(**_as_text(given))
    return msgspec.structs.replace(recipe, origin=source.origin) if isinstance(source, StoreSource) else recipe


def check_options(options: Mapping[str, Any]) -> None:
    """Raise UsageError for options of which no recipe can be made, whatever the source is."""
    given = {name: value for name, value in options.items() if value is not None}
    # Without a size, it depends on the source whether files can be kept.
    if "size" in given or given.get("quality") != "keep":
        make_recipe(**_as_text(given))


def _as_text(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options as the command gets them."""
    whole = dict(options)
    for name, separator in (("size", "x"), ("crop", ",")):
        if isinstance(whole.get(name), tuple | list):
            whole[name] = separator.join(map(str, whole[name]))
    return whole | {name: str(whole[name]) for name in ("size", "quality", "shard_size") if name in whole}


def as_stored(source: StoreSource, given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, and for size, color and quality what leaves a store's images as they are."""
    written = output_format(given.get("format", DEFAULT_FORMAT))
    planes = source.holds_planes and "yuv420" in written.colors
    color = "gray" if _is_gray(source) else "yuv420" if planes else "rgb"
    whole: dict[str, Any] = {"size": "keep", "color": color, **given}
    as_they_are = whole["size"] == "keep" and "crop" not in given and _is_gray(source) == (whole["color"] == "gray")
    if "quality" in written.options and source.holds_jpeg and as_they_are and "subsampling" not in given:
        whole.setdefault("quality", "keep")
    return whole


def _is_gray(source: Source) -> bool:
    return source.info.image is not None and source.info.image.pictures and source.info.image.shape[2] == 1
