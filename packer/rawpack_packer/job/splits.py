"""Sets of splits: a folder that holds a complete store for each, packed from one source, with the same classes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec

from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.disk.splits import NAME as SPLITS
from rawpack.disk.splits import SplitSet, is_split_name, read_splits
from rawpack.errors import StoreError, UsageError
from rawpack_packer.destination import files, journal
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.layout import WORK
from rawpack_packer.destination.lock import Lock
from rawpack_packer.job import differences, holdout
from rawpack_packer.job.estimate import check_space
from rawpack_packer.job.options import RunOptions
from rawpack_packer.recipe.fields import made_here, store_fields
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import Source
from rawpack_packer.sources.stores.compatible import differing_field, shown_field
from rawpack_packer.sources.view import View
from rawpack_packer.text import listed, plain

_SHOWN = 20
_TEMPORARY = f"{SPLITS}.tmp"


def set_of(names: Sequence[str] | None, amounts: Mapping[str, float | int | str] | None, seed: int | None) -> SplitSet:
    """The set that `--splits`, or `--holdout` and `--seed`, ask for. Raises UsageError, also for names that no folder
    of a store can have."""
    if names is not None and amounts is not None:
        raise UsageError("--splits packs what is divided already, --holdout divides: give one of them")
    if seed is not None and amounts is None:
        raise UsageError("--seed applies to --holdout only")
    if amounts is None:
        return SplitSet(splits=_checked(names or (), "--splits"))
    shares = holdout.parse_holdout(f"{name}={amount}" for name, amount in amounts.items())
    splits = _checked([holdout.TRAIN, *shares], "--holdout")
    return SplitSet(splits=splits, holdout=shares, seed=seed or 0, draw=holdout.VERSION)


def open_divided(root: str, names: Sequence[str], open_one: Callable[[str], Source]) -> dict[str, Source]:
    """The sources below `root`, each of which is a split, with the classes of all together.

    Raises UsageError where one is missing, or they do not go together.
    """
    if not Path(root).is_dir():
        raise UsageError(f"{plain(root)} is no folder; --splits names folders in it")
    missing = [name for name in names if not _is_there(Path(root) / name)]
    if missing:
        there = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
        shown = listed(there, _SHOWN)
        raise UsageError(f"there is no {missing[0]!r} in {plain(root)} for --splits: it holds {shown or 'no folder'}")
    return one_numbering({name: open_one(str(Path(root) / name)) for name in names})


def _is_there(path: Path) -> bool:
    """Whether there is anything, were it locked: whoever opens it says so."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def one_numbering(sources: Mapping[str, Source]) -> dict[str, Source]:
    """The sources of splits with the classes of all together, so that a number is the same class in each.

    Raises UsageError where only some have classes.
    """
    first, *others = sources
    for name in others:
        if (sources[name].info.classes is None) != (sources[first].info.classes is None):
            without = name if sources[name].info.classes is None else first
            raise UsageError(
                f"{sources[without].info.root} has no classes, and another split has: give it its class folders"
            )
    if sources[first].info.classes is None:
        return dict(sources)
    if all(source.info.classes == sources[first].info.classes for source in sources.values()):
        return dict(sources)
    union = sorted({name for source in sources.values() for name in source.info.classes or ()}, key=_as_bytes)
    return {name: View(source, classes=union) for name, source in sources.items()}


def draw(source: Source, chosen: SplitSet) -> tuple[dict[str, Source], holdout.Draw]:
    """The splits of a source that are drawn from it, and what came of the draw."""
    found = holdout.draw(source, chosen.holdout or {}, chosen.seed or 0)
    return {name: View(source, rows) for name, rows in found.rows.items()}, found


def check(destination: Path, sources: Sequence[str | Path], chosen: SplitSet, *, restart: bool) -> None:
    """Raise UsageError where this set of splits may not be packed into `destination`. Nothing is written.

    A destination may be missing, an empty folder, or this very set, finished or not. A set whose source came divided
    may get further splits.
    """
    there = {path.name for path in destination.iterdir()} if destination.is_dir() else set[str]()
    there -= {_TEMPORARY}  # by a run that was killed
    if not there:
        destinations.check(destination / chosen.splits[0] if destination.is_dir() else destination, sources)
        return
    if manifests.NAME in there:
        raise UsageError(f"{destination} is a store without splits; name an empty or a new folder")
    before = read_splits(destination)
    if before is None:
        destinations.check(destination, sources)
        raise UsageError(f"{destination} holds a store that was begun without splits; name an empty or a new folder")
    others = sorted(there - {SPLITS, *before.splits})
    if others:
        raise UsageError(f"{destination} holds other files ({listed(others, 3)}); name another folder")
    came_divided = before.holdout is None and chosen.holdout is None
    if not restart and chosen != before and not (came_divided and set(before.splits) <= set(chosen.splits)):
        raise UsageError(differences.other_splits(destination, f"{_shown(before)} then, {_shown(chosen)} now"))
    for name in (*before.splits, *chosen.splits):
        if (destination / name).is_symlink():
            raise UsageError(f"{destination / name} is a symbolic link; splits must be in the folder of their set")
        destinations.check(destination / name, sources)


def check_sources(
    destination: Path, sources: Mapping[str, Source], recipes: Mapping[str, Recipe], chosen: SplitSet, how: RunOptions
) -> None:
    """Raise UsageError where samples of one split have other fields than those of another, where one that is there was
    begun with another recipe or other classes, where there is too little space for all, or as `check`."""
    for source in sources.values():
        check(destination, source.info.paths, chosen, restart=how.restart)
    fields = {name: store_fields(recipes[name], source) for name, source in sources.items()}
    first, *others = fields
    for other in others:
        difference = differing_field(fields[first], fields[other])
        if difference is not None:
            name, was, now = difference
            raise UsageError(
                f"{sources[other].info.root} has other fields than {sources[first].info.root} ({name}: "
                f"{shown_field(was)} there, {shown_field(now)} here): all splits must have the same fields"
            )
    new = list(sources)
    if not how.restart:
        for name, source in sources.items():
            known = _before(destination / name)
            if known is not None:
                new.remove(name)
                there = differences.store_at(destination / name)
                files_of = partial(_known, destination / name, known)
                recipe = made_here(recipes[name], source)
                differences.check_recipe(there, known.recipe, recipe, source, files_of)
                differences.check_fields(there, known, fields[name], source, files_of)
    free = destinations.free_bytes(destination) + (destinations.own_bytes(destination) if how.restart else 0)
    check_space(destination, [(sources[name], recipes[name]) for name in new], how.processes, free)


def _before(store: Path) -> journal.JobNote | Manifest | None:
    """What is known of a split that was begun or finished before."""
    if destinations.is_finished(store):
        try:
            return manifests.load(store)[0]
        except StoreError as error:
            there = differences.set_at(store.parent)
            raise UsageError(f"{error}; `rawpack inspect --verify` says more. {there.restart}") from None
    return journal.read_job(store)


def _known(store: Path, before: journal.JobNote | Manifest) -> journal.Known:
    """What is known of the source of such a split."""
    return before.source() if isinstance(before, journal.JobNote) else journal.finished_source(store, before)


def begin(
    destination: Path, sources: Mapping[str, Source], recipes: Mapping[str, Recipe], chosen: SplitSet, how: RunOptions
) -> RunOptions:
    """Make `destination` a set of splits, each of which `pack` can then make, run as this returns.

    With `restart`, all splits that are there are removed first: none of an older set can be taken for one of
    this. Raises UsageError, with nothing written, as `check_sources`.
    """
    check_sources(destination, sources, recipes, chosen, how)
    before = read_splits(destination)
    with files.refusals_named(destination):
        destination.mkdir(parents=True, exist_ok=True)
        if how.restart and before is not None:
            for name in before.splits:
                _remove(destination / name)
        if before != chosen:
            text = msgspec.json.format(msgspec.json.encode(chosen), indent=1)
            files.write_whole(destination / SPLITS, manifests.seal(text), destination / _TEMPORARY)
            files.sync_folder(destination.absolute().parent)
    return replace(how, restart=False)


def stores_of(destination: Path) -> dict[str, Path]:
    """Name and folder of each split of a set, in their order, whether it is packed or not; none where it is no set."""
    found = read_splits(destination)
    return {} if found is None else {name: destination / name for name in found.splits}


def class_problems(stores: Mapping[str, Manifest]) -> list[tuple[str, str]]:
    """Splits whose classes contradict those of another: the same number is another class. An append may have added
    some to one of them."""
    longest = max(stores, key=lambda name: len(stores[name].classes or ()))
    known = stores[longest].classes or ()
    return [
        (name, f"its classes are not numbered as those of {longest}")
        for name, manifest in stores.items()
        if (manifest.classes or ()) != known[: len(manifest.classes or ())]
    ]


def _remove(store: Path) -> None:
    """Remove the store of a split, whole or begun, and its folder."""
    if not store.is_dir():
        return
    with Lock(store):
        destinations.clear(store)
        shutil.rmtree(store / WORK)
    store.rmdir()


def _shown(chosen: SplitSet) -> str:
    if chosen.holdout is None:
        return f"--splits {','.join(chosen.splits)}"
    amounts = ",".join(f"{name}={amount}" for name, amount in chosen.holdout.items())
    return f"--holdout {amounts} --seed {chosen.seed}" + (
        "" if chosen.draw == holdout.VERSION else f", draw {chosen.draw}"
    )


def _checked(names: Sequence[str], where: str) -> tuple[str, ...]:
    for name in names:
        if not is_split_name(name):
            raise UsageError(f"{where}: {plain(name)!r} cannot be the name of a split: it is one of a folder")
    folded = [name.casefold() for name in names]
    if not names or len(set(folded)) != len(folded):
        raise UsageError(f"{where}: {', '.join(map(plain, names)) or 'none'}: names that differ, by more than case")
    return tuple(names)


def _as_bytes(name: str) -> bytes:
    """As a folder's classes are sorted."""
    return name.encode("utf-8", "surrogateescape")
