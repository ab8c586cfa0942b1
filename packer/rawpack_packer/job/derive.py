"""Makes stores from stores: their sources and recipes, and the samples of a subset, which are in stored order."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.errors import UsageError
from rawpack.order.shuffled import Shuffled
from rawpack.samples.selection import positions_where
from rawpack.samples.where import Where
from rawpack.store.stores import Stores
from rawpack_packer.counts import VIDEO
from rawpack_packer.job.opening import as_stored, recipe_for
from rawpack_packer.options import RECIPE, opt
from rawpack_packer.recipe import Recipe, in_these_words
from rawpack_packer.recipe.tables import output_format
from rawpack_packer.sources.base import Scanning, given_options, unseen
from rawpack_packer.sources.store import open_stores, store_rows
from rawpack_packer.sources.table.columns import Numbers as NumberColumn
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import either, listed, plain, shape

Named = str | os.PathLike[str]
Prefix = Literal["names", "numbers"]
PREFIXES: tuple[Prefix, ...] = ("names", "numbers")


def merging(
    stores: Sequence[Named],
    options: Mapping[str, Any],
    prefix: Prefix | None = None,
    progress: Scanning = unseen,
) -> tuple[Table, Recipe]:
    """The source and recipe of a merge. Raises UsageError where the stores leave a choice to the user."""
    source = open_stores(stores, prefixes=_prefixes(stores, prefix), progress=progress)
    first = store_rows(source).stores[0]
    for other in store_rows(source).stores[1:]:
        if other.manifest.format != first.manifest.format and options.get("format") is None:
            raise UsageError(
                f"{first.path} is {first.manifest.format}, and {other.path} is {other.manifest.format}: give the "
                f"{opt.format} of the merged store, or convert one of them with `rawpack convert --format`"
            )
    if store_rows(source).sizes_differ and options.get("size") is None:
        name = store_rows(source).sizes_differ[0]
        sizes = ", ".join(
            f"{shape(store.fields[name].shape)} in {store.path}" for store in store_rows(source).stores[:5]
        )
        raise UsageError(
            f"the sizes of images or masks differ ({name}: {sizes}): give the {opt.size} of the merged store, or "
            "convert one of them with `rawpack convert --size`"
        )
    videos, recipe = store_rows(source).united_videos(), recipe_as_before(source, options)
    return source if videos is None else source.joined({VIDEO: NumberColumn(videos)}), recipe


def recipe_as_before(source: Table, options: Mapping[str, Any]) -> Recipe:
    """The recipe by the given options; the others are as in the first store."""
    first = store_rows(source).stores[0].manifest
    chosen = {name: value for name, value in options.items() if value is not None}
    declared = as_stored(source, {"format": first.format} | chosen)
    names = {row.name: row.stored for row in RECIPE if row.stored is not None and not row.of_some_formats}
    if declared["format"] == first.format:
        sized = declared["size"] != "keep" and declared.get("fit") != "whole"
        uniform = sized or (source.info.image is not None and None not in source.info.image.shape)
        applies = {
            "subsampling": declared["color"] != "gray",
            "chunk": uniform,
            "jpeg_tables": declared.get("subsampling") != "440",
        }
        has = [row for row in RECIPE if row.name in output_format(first.format).options]
        names |= {row.name: row.stored for row in has if row.stored is not None and applies.get(row.name, True)}
    # The recipe of a store is untrusted.
    recipe = in_these_words(first.recipe)
    recipe |= {row.name: row.off for row in RECIPE if row.off and recipe.get(row.name) is None}
    before = {name: recipe[name] for name, kind in names.items() if type(recipe.get(name)) is kind}
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


_SHOWN = 10
Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class Choice:
    """What is named, and how many of these samples. None leaves all."""

    classes: Sequence[str] | None = None
    """By name."""
    keys: Sequence[str] | None = None
    rows: Sequence[int] | None = None
    """Numbers in the store, from 0."""
    where: str | None = None
    """A condition on small fields, as for `Reader.select`."""
    every: int = 1
    """Every Nth of what is named, starting with the first."""
    per_class: int | None = None
    """At most this many of each class, and of samples without one."""
    limit: int | None = None
    """At most this many in all. They are evenly spaced, as are those of `per_class`: stores hold one class after the
    other, so the first samples would all be of one class."""
    seed: int | None = None
    """Choose those at random instead."""
    joined: Sequence[str] = ()
    """More classes: names, or several names joined by commas."""
    keep_labels: bool = False
    """Labels and classes stay; otherwise the labels of `classes` are renumbered from 0, in the store's order."""


def chosen(source: Table, choice: Choice) -> Table:
    """The chosen samples. Raises UsageError for what the store does not have, and if nothing is left."""
    for name, least in (("every", 1), ("per_class", 1), ("limit", 1), ("seed", None)):
        if (number := getattr(choice, name)) is not None:
            whole_number(name, number, least)
    if choice.seed is not None and choice.limit is None and choice.per_class is None:
        raise UsageError(f"{opt.seed} says which samples {opt.limit} or {opt.per_class} takes; give one of them")
    left, classes, all_classes = np.ones(len(source), np.bool_), None, source.info.classes or ()
    if choice.classes is not None or choice.joined:
        # A class name may contain a comma.
        split = [name for word in choice.joined for name in ([word] if word in all_classes else word.split(","))]
        labels, classes = _labels(source), _named(source, [*(choice.classes or ()), *split])
        left &= np.isin(labels, [all_classes.index(name) for name in classes])
    if choice.keys is not None:
        left &= _with_keys(source, choice.keys)
    if choice.rows is not None:
        left &= _at(source, choice.rows)
    if choice.where is not None:
        library = Stores(store_rows(source).stores)
        condition = Where(choice.where, library.fields, library.classes, asked=either("--where ", "where="))
        named = np.zeros(len(source), np.bool_)
        named[positions_where(library, None, condition)] = True
        left &= named
    numbers = np.flatnonzero(left)[:: choice.every]
    if choice.per_class is not None:
        labels = _labels(source)[numbers]
        parts = [numbers[labels == label] for label in np.unique(labels)]
        numbers = np.sort(
            np.concatenate([_some(part, choice.per_class, choice.seed) for part in [numbers[:0], *parts]])
        )
    if choice.limit is not None:
        numbers = _some(numbers, choice.limit, choice.seed)
    if not len(numbers):
        raise UsageError(f"no sample of {source.info.root} matches all that was given")
    options = given_options(
        classes=classes,
        where=choice.where,
        every=None if choice.every == 1 else choice.every,
        per_class=choice.per_class,
        limit=choice.limit,
        seed=choice.seed,
    )
    return source.take(numbers, options=options).with_classes(None if choice.keep_labels else classes)


def _some(numbers: Numbers, count: int, seed: int | None) -> Numbers:
    """At most `count` of the numbers, in their order: evenly spaced, or at random."""
    if len(numbers) <= count:
        return numbers
    if seed is None:
        return numbers[np.arange(count) * len(numbers) // count]
    return numbers[np.sort(Shuffled(len(numbers), seed).samples(0, 0, count))]


def _labels(source: Table) -> Numbers:
    labels = source.labels
    if labels is None:
        raise UsageError(f"{source.info.root} has no classes: choose by key, by row, {opt.every} or {opt.limit}")
    return labels


def _named(source: Table, names: Sequence[str]) -> list[str]:
    """The named classes in the store's order."""
    classes = source.info.classes or ()
    unknown = [name for name in dict.fromkeys(names) if name not in classes]
    if unknown:
        shown = listed(classes, _SHOWN)
        raise UsageError(f"there is no class {plain(unknown[0])!r} in {source.info.root}, which has {shown}")
    return [name for name in classes if name in set(names)]


def _with_keys(source: Table, keys: Sequence[str]) -> NDArray[np.bool_]:
    wanted = set(keys)
    has_key = np.fromiter((key in wanted for key in store_rows(source).all_keys()), np.bool_, len(source))
    missing = sorted(wanted - {source.key(i) for i in np.flatnonzero(has_key).tolist()})
    if missing:
        raise UsageError(f"{len(missing):,} of the keys are not in {source.info.root}: {listed(missing, _SHOWN)}")
    return has_key


def _at(source: Table, rows: Sequence[int]) -> NDArray[np.bool_]:
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise UsageError(f"rows must be whole numbers in one dimension, not {numbers.dtype} {numbers.shape}")
    wrong = numbers[(numbers < 0) | (numbers >= len(source))]
    if wrong.size:
        raise UsageError(f"there is no row {wrong[0]}: {source.info.root} has {len(source):,}, counted from 0")
    chosen_rows = np.zeros(len(source), np.bool_)
    chosen_rows[numbers.astype(np.int64)] = True
    return chosen_rows
