"""Jobs that have been checked but not started: `estimate` says what a job needs, and `run` runs it.

Options are checked before the source is scanned, and nothing is written before `run`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from rawpack.disk.splits import SplitSet
from rawpack.errors import UsageError
from rawpack.remote.url import is_url, local_path, shown
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.layout import SPOOL, WORK
from rawpack_packer.destination.named import store_folder
from rawpack_packer.job import append, derive, holdout, pack, splits, upload
from rawpack_packer.job.append import AppendSummary
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.pack import DryRun
from rawpack_packer.job.run import Summary
from rawpack_packer.job.split_by import SplitBy, parse_split_by
from rawpack_packer.job.subset import Choice, chosen
from rawpack_packer.recipe.by_user import check_options, recipe_for
from rawpack_packer.recipe.recipe import Recipe
from rawpack_packer.sources import (
    LEFT_OUT,
    AnnotatedError,
    DatasetSource,
    DividedError,
    Source,
    StoreSource,
    open_source,
    stop_above_splits,
)

if TYPE_CHECKING:
    from rawpack_packer.sources.archives.spool import Spool

Named = str | os.PathLike[str]
_OF_DATASETS = ("fields", "image", "classes", "keys", "names")
"""Keywords that describe a dataset in memory."""
Scan = Callable[[int], None]
"""Called repeatedly while a source is opened, with the number of entries scanned so far."""


@dataclass(frozen=True)
class PreparedPack:
    """A store to be packed."""

    source: Source
    recipe: Recipe
    destination: Named
    """A folder, or a URL."""
    how: RunOptions
    scratch: Named | None = None
    storage_options: Mapping[str, Any] | None = None

    def estimate(self) -> DryRun:
        if isinstance(self.destination, str) and is_url(self.destination):
            return upload.dry_run_to_url(self.source, self.destination, self.recipe, self.how, self.scratch)
        return pack.dry_run(self.source, local_path(self.destination), self.recipe, self.how)

    def run(self) -> Summary:
        if isinstance(self.destination, str) and is_url(self.destination):
            return upload.pack_to_url(
                self.source, self.destination, self.recipe, self.how,
                scratch=self.scratch, storage_options=self.storage_options,
            )  # fmt: skip
        return pack.pack(self.source, local_path(self.destination), self.recipe, self.how)


@dataclass(frozen=True)
class PreparedSplits:
    """A set of splits to be packed."""

    jobs: Mapping[str, PreparedPack]
    destination: Path
    chosen: SplitSet
    how: RunOptions
    source: Source | None = None
    drawn: holdout.Draw | None = None
    """The source that splits are drawn from, and the draw; None where they are not drawn."""

    def estimate(self) -> dict[str, DryRun]:
        splits.check_sources(self.destination, self._made(), self.chosen, self.how)
        return {name: job.estimate() for name, job in self.jobs.items()}

    def begin(self) -> dict[str, PreparedPack]:
        """Make the destination a set of splits, and return the jobs to run."""
        how = splits.begin(self.destination, self._made(), self.chosen, self.how)
        return {name: replace(job, how=how) for name, job in self.jobs.items()}

    def end(self) -> None:
        """Remove what the jobs needed, after all of them have run."""
        splits.end(self.destination)

    def _made(self) -> dict[str, splits.Made]:
        return {name: (job.source, job.recipe) for name, job in self.jobs.items()}


@dataclass(frozen=True)
class PreparedAppend:
    """Samples to be added to a store."""

    source: Source
    destination: Path
    how: RunOptions
    skip_existing: bool
    other_libraries: bool

    def run(self) -> AppendSummary:
        return append.append(
            self.source, self.destination, self.how,
            skip_existing=self.skip_existing, other_libraries=self.other_libraries,
        )  # fmt: skip


def prepare_pack(
    source: Any,
    destination: Named,
    how: RunOptions,
    *,
    about: Mapping[str, Any],
    recipe: Mapping[str, Any],
    scratch: Named | None = None,
    storage_options: Mapping[str, Any] | None = None,
    scan: Scan | None = None,
) -> PreparedPack:
    """See `api.pack`. about, recipe: keywords that describe the source, and the recipe; None is as if left out."""
    url = destination if isinstance(destination, str) and is_url(destination) else None
    if url is not None and how.engine is not None:
        raise UsageError(
            f"{shown(url)}: --engine needs a folder that all machines share; a store at a URL is packed on this machine"
        )
    if url is None and scratch is not None:
        raise UsageError(f"--scratch applies to URLs; {os.fspath(destination)} is a folder")
    _check_recipe(source, recipe)
    if url is None:
        destinations.check(local_path(destination), _paths(source))
    how = how.connected()
    folder = local_path(destination) if url is None else upload.store_of(url, scratch)
    opened = _open(
        source, about, how, recipe, "DST" if url is not None else os.fspath(destination),
        spool=_spool(source, folder, how, storage_options), scan=scan,
    )  # fmt: skip
    return PreparedPack(opened, recipe_for(opened, recipe), destination, how, scratch, storage_options)


def prepare_splits(
    source: Any,
    destination: Named,
    how: RunOptions,
    *,
    names: Sequence[str] | None = None,
    amounts: Mapping[str, float | int | str] | None = None,
    seed: int | None = None,
    by: str | None = None,
    about: Mapping[str, Any],
    recipe: Mapping[str, Any],
    scan: Scan | None = None,
) -> PreparedSplits:
    """See `api.pack_splits`. names: its `splits`. amounts: its `holdout`. by: its `split_by`."""
    if isinstance(destination, str) and is_url(destination):
        raise UsageError(
            f"{shown(destination)}: splits are packed into folders; pack each to a URL of its own, or copy them"
        )
    _check_recipe(source, recipe)
    is_path, divided = isinstance(source, str | os.PathLike), None
    if by is not None:
        if names is not None or amounts is not None or seed is not None:
            raise UsageError("--split-by divides the source by itself: leave out --splits, --holdout and --seed")
        return _divided_by(source, destination, how, parse_split_by(by), about=about, recipe=recipe, scan=scan)
    if isinstance(source, Mapping) and ("image" not in source or amounts is None):
        if names is not None or amounts is not None:
            raise UsageError("a dict has the splits already: leave out splits= and holdout=")
        divided = source
    elif (names is None and amounts is None and seed is None) or (names is not None and not is_path):
        raise UsageError("give a dict of splits; or a path and splits=; or holdout=, such as {'val': 0.1}")
    chosen_set = splits.set_of(list(source) if divided is not None else names, amounts, seed)
    where = Path(destination)
    splits.check(where, _paths(source), chosen_set, restart=how.restart)
    how = how.connected()
    drawn = None

    def opened(one: Any) -> Source:
        return _open(one, about, how, recipe, os.fspath(destination), spool=_spool(one, where, how), scan=scan)

    if divided is not None:
        sources = splits.one_numbering({name: opened(one) for name, one in divided.items()})
    elif names is not None:
        if about.get("kind") is None:
            _check_above(os.fspath(source), names, os.fspath(destination))
        sources = splits.open_divided(os.fspath(source), names, opened)
    else:
        source = opened(source)
        sources, drawn = splits.draw(source, chosen_set)
    prepared = _prepared(sources, where, chosen_set, how, recipe)
    return prepared if drawn is None else replace(prepared, source=source, drawn=drawn)


def _check_above(root: str, names: Sequence[str], destination: str) -> None:
    """Raise AnnotatedError where the folder of splits holds what describes their images, and they would lose it."""
    try:
        stop_above_splits(root, names)
    except AnnotatedError as error:
        raise error.asked(destination) from None


def _divided_by(
    source: Any,
    destination: Named,
    how: RunOptions,
    by: SplitBy,
    *,
    about: Mapping[str, Any],
    recipe: Mapping[str, Any],
    scan: Scan | None,
) -> PreparedSplits:
    """Splits by the values of a field, whose names only the source says."""
    where, how = Path(destination), how.connected()
    spool = _spool(source, where, how)
    opened = _open(source, about, how, recipe, os.fspath(destination), spool=spool, scan=scan)
    sources, chosen_set = splits.divide(opened, by)
    splits.check(where, _paths(source), chosen_set, restart=how.restart)
    return _prepared(sources, where, chosen_set, how, recipe)


def _prepared(
    sources: Mapping[str, Source], where: Path, chosen_set: SplitSet, how: RunOptions, recipe: Mapping[str, Any]
) -> PreparedSplits:
    jobs = {
        name: PreparedPack(one, recipe_for(one, recipe), os.fspath(where / name), how) for name, one in sources.items()
    }
    return PreparedSplits(jobs, where, chosen_set, how)


def prepare_append(
    source: Any,
    destination: Named,
    how: RunOptions,
    *,
    skip_existing: bool = False,
    other_libraries: bool = False,
    about: Mapping[str, Any],
    scan: Scan | None = None,
) -> PreparedAppend:
    """See `api.append`."""
    where = os.fspath(destination)
    if is_url(where):
        raise UsageError(f"{shown(where)} is a URL: append to a store in a folder, then copy it there, store.json last")
    append.open_store(Path(where), _paths(source))
    how = how.connected()
    other = ("rawpack", "append", "SRC", where)
    spool = _spool(source, Path(where), how)
    opened = _open(source, about, how, None, destination="NEW", other=other, spool=spool, scan=scan)
    return PreparedAppend(opened, Path(where), how, skip_existing, other_libraries)


def prepare_derived(
    stores: Sequence[Named],
    destination: Named,
    how: RunOptions,
    *,
    recipe: Mapping[str, Any],
    merge: bool = False,
    prefix: derive.Prefix | None = None,
    choice: Choice | None = None,
    scan: Scan | None = None,
) -> PreparedPack:
    """See `api.convert`, `api.merge` and `api.subset`: all samples of a store, those of several, or a choice."""
    if merge and (isinstance(stores, str | os.PathLike) or len(stores) < 2):
        raise UsageError("merge needs two or more stores; `rawpack convert` copies one")
    for store in stores:
        destinations.check_apart(Path(destination), store_folder(os.fspath(store)))
    destinations.check(Path(destination))
    how = how.connected()
    if merge:
        return PreparedPack(*derive.merging(stores, recipe, prefix, scan), destination, how)
    source = StoreSource(stores[0], progress=scan)
    samples = source if choice is None else chosen(source, choice)
    return PreparedPack(samples, derive.recipe_as_before(source, recipe), destination, how)


def _check_recipe(source: Any, recipe: Mapping[str, Any]) -> None:
    """Check the recipe before a path is scanned; what a dataset holds may matter to it."""
    if isinstance(source, str | os.PathLike):
        check_options(recipe)


def _paths(source: Any) -> list[str | Path]:
    """The paths that the destination must not overlap; a dataset has none."""
    if isinstance(source, str | os.PathLike):
        return [] if is_url(source) else [os.fspath(source)]
    return list(source.info.paths) if isinstance(source, Source) else []


def _open(
    source: Any,
    about: Mapping[str, Any],
    how: RunOptions,
    recipe: Mapping[str, Any] | None,
    destination: str,
    *,
    other: Sequence[str] = (),
    spool: Spool | None = None,
    scan: Scan | None = None,
) -> Source:
    """The source that a user gave, ready for workers. recipe: what the user said; None where a store says it all.
    destination, other: of the command that an error names, see `DividedError`."""
    if isinstance(source, str | os.PathLike):
        opened = open_path(source, about, destination=destination, other=other, spool=spool, scan=scan)
        if how.strict and any(opened.info.counts.get(name) for name in LEFT_OUT):
            differ = "; ".join(opened.info.problems)
            raise UsageError(
                f"{opened.info.root} differs from its folder: {differ}; leave out --strict to pack the rest"
            )
        return opened
    if isinstance(source, bytes | bytearray):
        raise UsageError("the source is bytes: a path is a str or a Path, image files in memory are a list of bytes")
    given = {name: value for name, value in about.items() if value is not None and value is not False}
    for name in given:
        if name not in _OF_DATASETS:
            raise UsageError(
                f"{name}= applies to a path only, and the source is a {type(source).__name__}: leave it out"
            )
    if isinstance(source, Source):
        if given:
            raise UsageError(f"{', '.join(f'{name}=' for name in given)}: this source knows its own")
        return source
    colors = recipe is None or recipe.get("color") is not None
    sized = None if recipe is None else recipe.get("size") not in (None, "keep") or recipe.get("crop") is not None
    dataset = DatasetSource(source, **given, colors=colors, sized=sized)
    if dataset.in_order and (how.workers != 0 or how.engine is not None):
        raise UsageError(
            f"{dataset.info.root} can only be iterated, which one process does: pass workers=0; with source[i], all "
            "cores would pack"
        )
    if how.workers != 0:
        _check_travels(dataset)
    return dataset


def open_path(
    path: Named,
    about: Mapping[str, Any],
    *,
    destination: str = "DST",
    other: Sequence[str] = (),
    spool: Spool | None = None,
    scan: Scan | None = None,
) -> Source:
    """The source at a path. destination, other: of the command that an error names, see `DividedError`. spool: what
    fetches archives behind URLs; None refuses URLs."""
    try:
        return open_source(path, spool=spool, progress=scan, **about)
    except (DividedError, AnnotatedError) as error:
        raise error.asked(destination, other) from None


def _spool(source: Any, destination: Path, how: RunOptions, options: Mapping[str, Any] | None = None) -> Spool | None:
    """What fetches a source behind URLs into the work folder of a destination, where an earlier run may have kept what
    it found in archives; None for what is no path."""
    if not isinstance(source, str | os.PathLike):
        return None
    from rawpack_packer.progress import Fetching
    from rawpack_packer.sources.archives.spool import Spool

    folder = destination / WORK / SPOOL
    free = destinations.free_bytes(destination) + destinations.own_bytes(folder)
    spool = Spool(folder, free // 2, options)
    spool.progress = Fetching(how.progress)
    return spool


def _check_travels(source: DatasetSource) -> None:
    try:
        cloudpickle.dumps(source.part(0, 1))
    except Exception as error:
        raise UsageError(
            f"{source.info.root} cannot be sent to worker processes ({type(error).__name__}: {error}); open files "
            "where they are read, or pass workers=0"
        ) from error
