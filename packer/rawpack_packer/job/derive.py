"""Stores made of stores: converted to another format or recipe, merged, or cut down to some of their samples.

Each is a packing job whose source is a store: checks, progress, rejects, kills and resumes are those of `pack`. What a
caller does not ask for stays as it is in the first of the stores.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Any, Literal

from rawpack.errors import UsageError
from rawpack_packer.destination import folder as destinations
from rawpack_packer.engines import Engine, as_engine
from rawpack_packer.job.job import Limits, Progress, Summary
from rawpack_packer.job.job import pack as run
from rawpack_packer.job.subset import Choice, chosen
from rawpack_packer.recipe.by_user import as_stored, recipe_for
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources import StoreSource

Named = str | os.PathLike[str]
Prefix = Literal["names", "numbers"]
PREFIXES: tuple[Prefix, ...] = ("names", "numbers")


def convert(
    store: Named,
    destination: Named,
    *,
    workers: int | None = None,
    max_rejects: float = 0.01,
    strict: bool = False,
    restart: bool = False,
    engine: Engine | Executor | None = None,
    progress: Progress | None = None,
    **recipe: Any,
) -> Summary:
    """Pack the samples of `store` into a new one at `destination`; the same call goes on where one was stopped.

    recipe: as of `rawpack_packer.pack`: format="lmdb", size=224, ...; what is not named stays as it is in `store`.
    The rest is as of `pack`. Pixels that the recipe does not change stay what they are, bit for bit: raw pixels in any
    raw format, and JPEG files as the bytes that they are.

    Raises UsageError with nothing written, StoreError where `store` is none or is damaged, PackError where it ran and
    stopped. A sample that is damaged is rejected.
    """
    source = StoreSource(store)
    made = recipe_as_before(source, recipe)
    return packed(
        source, made, destination, Limits(workers, max_rejects, strict, restart), as_engine(engine, workers), progress
    )


def merge(
    stores: Sequence[Named],
    destination: Named,
    *,
    prefix: Prefix | None = None,
    workers: int | None = None,
    max_rejects: float = 0.01,
    strict: bool = False,
    restart: bool = False,
    engine: Engine | Executor | None = None,
    progress: Progress | None = None,
    **recipe: Any,
) -> Summary:
    """Pack the samples of several stores, one store after the other, into one at `destination`.

    They must have the same fields. Classes are united by name: those of the first keep their numbers, then come the
    new ones of each next. prefix: where keys are in several of them, puts the name of its store's folder, or its
    number, and "/" in front of each key. The rest is as of `convert`.
    """
    source, made = merging(stores, recipe, prefix)
    return packed(
        source, made, destination, Limits(workers, max_rejects, strict, restart), as_engine(engine, workers), progress
    )


def subset(
    store: Named,
    destination: Named,
    *,
    classes: Sequence[str] | None = None,
    keys: Sequence[str] | None = None,
    rows: Sequence[int] | None = None,
    every: int = 1,
    per_class: int | None = None,
    limit: int | None = None,
    seed: int | None = None,
    keep_labels: bool = False,
    workers: int | None = None,
    max_rejects: float = 0.01,
    strict: bool = False,
    restart: bool = False,
    engine: Engine | Executor | None = None,
    progress: Progress | None = None,
    **recipe: Any,
) -> Summary:
    """Pack some samples of `store` into a new one at `destination`, in the order in which they are stored.

    classes, keys, rows: which; where several are given, those that all of them name. every, per_class, limit: how many
    of these, see `Choice`. keep_labels: labels and classes stay; else, with classes=, labels are counted anew. The
    rest is as of `convert`.
    """
    choice = Choice(classes, keys, rows, every, per_class, limit, seed, keep_labels)
    source = chosen(StoreSource(store), choice)
    made = recipe_as_before(source, recipe)
    return packed(
        source, made, destination, Limits(workers, max_rejects, strict, restart), as_engine(engine, workers), progress
    )


def packed(
    source: StoreSource,
    recipe: Recipe,
    destination: Named,
    limits: Limits,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Run the job. See `job.pack`."""
    check_apart(source, destination)
    return run(source, destination, recipe, limits, engine=engine, progress=progress)


def check_apart(source: StoreSource, destination: Named) -> None:
    """Raise UsageError where a destination is, contains, or lies inside one of the stores."""
    for store in source.stores:
        destinations.check_apart(Path(destination), store.path)


def merging(
    stores: Sequence[Named],
    options: Mapping[str, Any],
    prefix: Prefix | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[StoreSource, Recipe]:
    """What a merge packs, and by which recipe."""
    if isinstance(stores, str | os.PathLike) or len(stores) < 2:
        raise UsageError("a merge is of two stores or more; `rawpack convert` copies one")
    source = StoreSource(stores, prefixes=_prefixes(stores, prefix), progress=progress)
    first = source.stores[0]
    for other in source.stores[1:]:
        if other.manifest.format != first.manifest.format and options.get("format") is None:
            raise UsageError(
                f"{first.path} is {first.manifest.format}, and {other.path} is {other.manifest.format}: say which "
                "--format the merged store is to have, or bring them to one by `rawpack convert --format`"
            )
    if source.sizes_differ and options.get("size") is None:
        sizes = ", ".join(f"{_size(store.fields['image'].shape)} in {store.path}" for store in source.stores[:5])
        raise UsageError(
            f"the sizes of images or masks differ ({sizes}): say to which --size they are all to be brought, or "
            "bring them to one by `rawpack convert --size`"
        )
    return source, recipe_as_before(source, options)


def recipe_as_before(source: StoreSource, options: Mapping[str, Any]) -> Recipe:
    """The recipe by what was said; what was not is as in the first store."""
    first = source.stores[0].manifest
    said = {name: value for name, value in options.items() if value is not None}
    asked = as_stored(source, {"format": first.format} | said)
    names: dict[str, type] = {"shard_size": int, "max_pixels": int}
    if asked["format"] == first.format:
        uniform = asked["size"] != "keep" or (source.image is not None and None not in source.image.shape)
        applies = {"subsampling": asked["color"] != "gray", "chunk": uniform}
        kinds = {"quality": int, "subsampling": str, "compression": str, "chunk": int}
        names |= {name: kinds[name] for name in output_format(first.format).options if applies.get(name, True)}
    # Recipes come from strangers.
    before = {name: first.recipe[name] for name, kind in names.items() if type(first.recipe.get(name)) is kind}
    return recipe_for(source, before | asked)


def _prefixes(stores: Sequence[Named], prefix: Prefix | None) -> list[str]:
    if prefix is None:
        return [""] * len(stores)
    if prefix == "numbers":
        return [f"{number}/" for number in range(len(stores))]
    if prefix != "names":
        raise UsageError(f"--prefix {prefix!r}: one of {', '.join(PREFIXES)}")
    names = [f"{Path(store).resolve().name}/" for store in stores]
    if len(set(names)) != len(names):
        double = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"several of the stores are named {double!r}; --prefix numbers counts them")
    return names


def _size(shape: tuple[int | None, ...]) -> str:
    return "x".join("?" if n is None else str(n) for n in shape)
