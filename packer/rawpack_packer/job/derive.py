"""Recipes for stores made from other stores: what the user does not specify is as in the first of them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rawpack.errors import UsageError
from rawpack_packer.options import RECIPE
from rawpack_packer.options.naming import opt
from rawpack_packer.recipe.by_user import as_stored, recipe_for
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources import Source, StoreSource
from rawpack_packer.sources.base import Scanning, unseen
from rawpack_packer.sources.view import View

Named = str | os.PathLike[str]
Prefix = Literal["names", "numbers"]
PREFIXES: tuple[Prefix, ...] = ("names", "numbers")


def merging(
    stores: Sequence[Named],
    options: Mapping[str, Any],
    prefix: Prefix | None = None,
    progress: Scanning = unseen,
) -> tuple[Source, Recipe]:
    """The source and recipe of a merge. Raises UsageError where the stores leave a choice to the user."""
    source = StoreSource(stores, prefixes=_prefixes(stores, prefix), progress=progress)
    first = source.stores[0]
    for other in source.stores[1:]:
        if other.manifest.format != first.manifest.format and options.get("format") is None:
            raise UsageError(
                f"{first.path} is {first.manifest.format}, and {other.path} is {other.manifest.format}: give the "
                f"{opt.format} of the merged store, or convert one of them with `rawpack convert --format`"
            )
    if source.sizes_differ and options.get("size") is None:
        sizes = ", ".join(f"{_size(store.fields['image'].shape)} in {store.path}" for store in source.stores[:5])
        raise UsageError(
            f"the sizes of images or masks differ ({sizes}): give the {opt.size} of the merged store, or convert one "
            "of them with `rawpack convert --size`"
        )
    videos, recipe = source.united_videos(), recipe_as_before(source, options)
    return source if videos is None else View(source, videos=videos), recipe


def recipe_as_before(source: StoreSource, options: Mapping[str, Any]) -> Recipe:
    """The recipe by the given options; the others are as in the first store."""
    first = source.stores[0].manifest
    given = {name: value for name, value in options.items() if value is not None}
    declared = as_stored(source, {"format": first.format} | given)
    names = {one.name: one.stored for one in RECIPE if one.stored is not None and not one.of_some_formats}
    if declared["format"] == first.format:
        uniform = declared["size"] != "keep" or (source.info.image is not None and None not in source.info.image.shape)
        applies = {"subsampling": declared["color"] != "gray", "chunk": uniform}
        has = [one for one in RECIPE if one.name in output_format(first.format).options]
        names |= {one.name: one.stored for one in has if one.stored is not None and applies.get(one.name, True)}
    # The recipe of a store is untrusted.
    before = {name: first.recipe[name] for name, kind in names.items() if type(first.recipe.get(name)) is kind}
    return recipe_for(source, before | declared)


def _prefixes(stores: Sequence[Named], prefix: Prefix | None) -> list[str]:
    if prefix is None:
        return [""] * len(stores)
    if prefix == "numbers":
        return [f"{number}/" for number in range(len(stores))]
    if prefix != "names":
        raise UsageError(f"{opt.prefix(repr(prefix))}: must be one of {', '.join(PREFIXES)}")
    names = [f"{Path(store).resolve().name}/" for store in stores]
    if len(set(names)) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"several of the stores are named {double!r}; {opt.prefix('numbers')} tells them apart")
    return names


def _size(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if n is None else str(n) for n in shape)
