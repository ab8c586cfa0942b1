"""Packs sets of splits: a folder with a complete store for each split, all with the same classes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import msgspec

from rawpack.checks import whole_number
from rawpack.disk import manifest as manifests
from rawpack.disk.manifest import Manifest
from rawpack.disk.splits import NAME as SPLITS
from rawpack.disk.splits import SplitSet, is_split_name, read_splits
from rawpack.errors import StoreError, UsageError
from rawpack.remote.url import is_url, join
from rawpack.remote.url import shown as shown_url
from rawpack.system import writing
from rawpack_packer.destination import files, journal
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination.files import WORK
from rawpack_packer.destination.lock import Lock
from rawpack_packer.job import differences, opening
from rawpack_packer.job import holdout as draws
from rawpack_packer.job.estimate import check_space
from rawpack_packer.job.holdout import SplitBy
from rawpack_packer.job.job import Job
from rawpack_packer.job.keywords import PackKeywords, by_group
from rawpack_packer.job.opening import recipe_for
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.saved_tables import SavedTables, saved_tables
from rawpack_packer.job.summary import DryRun, Summary
from rawpack_packer.options import opt
from rawpack_packer.recipe import Recipe, parse_options
from rawpack_packer.sources import KINDS, AnnotatedError, Table, is_there, kinds_at, stop_above_splits
from rawpack_packer.sources.base import Scanning, differing_field, shown_field, unseen
from rawpack_packer.sources.beside.annotated import coco_splits
from rawpack_packer.sources.files import missing as no_source
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.pairs import in_split
from rawpack_packer.text import listed, plain

_SHOWN = 20
_TEMPORARY = f"{SPLITS}.tmp"
_SEEDS = -(1 << 63), (1 << 63) - 1
"""The least and the greatest that `splits.json` holds."""


def set_of(
    names: Sequence[str] | None,
    amounts: Mapping[str, float | int | str] | None,
    seed: int | None,
    group_by: str | None = None,
) -> SplitSet:
    """The set of splits that `--splits`, or `--holdout`, `--seed` and `--group-by`, ask for. Raises UsageError."""
    if names is not None and amounts is not None:
        raise UsageError(
            f"{opt.splits} packs folders that are splits already, {opt.holdout} draws splits: give one of them"
        )
    for option, value in ((opt.seed, seed), (opt.group_by, group_by)):
        if value is not None and amounts is None:
            raise UsageError(f"{option} applies to {opt.holdout} only")
    if amounts is None:
        return SplitSet(splits=_checked(names or (), str(opt.splits)))
    shares = draws.parse_holdout(f"{name}={draws.as_text(amount)}" for name, amount in amounts.items())
    splits = _checked([draws.TRAIN, *shares], str(opt.holdout))
    groups, seed = msgspec.UNSET if group_by is None else group_by, whole_number("seed", seed or 0, *_SEEDS)
    return SplitSet(splits=splits, holdout=shares, seed=seed, draw=draws.VERSION, group_by=groups)


def open_divided(root: str, names: Sequence[str], open_one: Callable[[str], Table]) -> dict[str, Table]:
    """The sources of the splits in the folder or archive `root`, with the classes of all splits.

    Raises UsageError where one is missing, or only some have classes, or for a URL that is not an archive's.
    """
    if is_url(root):
        from rawpack_packer.sources.archives.source import split_path

        if not all(split_path(join(root, name))[1] for name in names):
            raise UsageError(
                f"{plain(shown_url(root))}: {opt.splits} of what is behind a URL needs a .tar or .zip archive; pack "
                "each split by a command of its own"
            )
        return one_numbering({name: open_one(join(root, name)) for name in names})
    whole = Listing(root)
    if not (whole.is_pattern or is_there(whole)):
        raise no_source(root)
    missing = [name for name in names if not is_there(whole / name)]
    if missing and not whole.is_dir:
        raise UsageError(f"{plain(root)} is not a folder; {opt.splits} names folders in it")
    if missing:
        folders = sorted(name for name, is_dir in whole.names.items() if is_dir)
        kinds = [KINDS[kind].splits_of(whole) for kind in kinds_at(whole)]
        known = next(filter(None, [list(coco_splits(whole)), *kinds]), [])
        what = f"it contains {listed(folders, _SHOWN) or 'no folder'}"
        if not set(known) <= set(folders):
            what = f"its splits are {listed(known, _SHOWN)}"
        raise UsageError(f"there is no {missing[0]!r} in {plain(root)} for {opt.splits}: {what}")
    return one_numbering({name: open_one(str(Path(root) / name)) for name in names})


def one_numbering(sources: Mapping[str, Table]) -> dict[str, Table]:
    """The sources of splits with the classes of all splits, so that a label is the same class in each.

    Raises UsageError where only some have classes.
    """
    without = [source.info.root for source in sources.values() if source.info.classes is None]
    if without and len(without) < len(sources):
        raise UsageError(f"{without[0]} has no classes, and another split has: give it its class folders")
    depths = {name: source.info.label_depth for name, source in sources.items() if source.info.label_depth}
    if len({*depths.values()}) > 1:
        shown = ", ".join(f"{depth} in {plain(name)}" for name, depth in depths.items())
        raise UsageError(
            f"the class folders of the splits differ in depth ({shown}): {opt.label_depth} says which it is"
        )
    if len({source.info.classes for source in sources.values()}) == 1:
        return dict(sources)
    union = sorted(
        {name for source in sources.values() for name in source.info.classes or ()},
        key=lambda name: name.encode("utf-8", "surrogateescape"),
    )
    return {name: source.with_classes(union) for name, source in sources.items()}


def divide(source: Table, by: SplitBy) -> tuple[dict[str, Table], SplitSet]:
    """The splits that the values of a field make of a source, and their set."""
    rows = draws.divide(source, by)
    chosen = SplitSet(splits=_checked(list(rows), str(opt.split_by)), split_by=by.text)
    return {name: source.take(numbers) for name, numbers in rows.items()}, chosen


def check(destination: Path, sources: Sequence[str | Path], chosen: SplitSet, *, restart: bool) -> None:
    """Raise UsageError where this set of splits may not be packed into `destination`. Nothing is written.

    A destination may be missing, an empty folder, or this very set, finished or not. A set that was not drawn may get
    further splits.
    """
    names = {path.name for path in destination.iterdir()} if destination.is_dir() else set[str]()
    names -= {_TEMPORARY}  # left by a run that was killed
    if destinations.has_only_spool(destination):
        names -= {WORK}
    if not names:
        destinations.check(destination / chosen.splits[0] if destination.is_dir() else destination, sources)
        return
    if manifests.NAME in names:
        raise UsageError(f"{destination} is a store without splits; name an empty or a new folder")
    before = read_splits(destination)
    if before is None:
        destinations.check(destination, sources)
        raise UsageError(f"{destination} contains a store that was begun without splits; name an empty or a new folder")
    others = sorted(names - {SPLITS, *before.splits})
    if others:
        raise UsageError(f"{destination} contains other files ({listed(others, 3)}); name another folder")
    not_drawn = not before.divided_here and not chosen.divided_here
    if not restart and chosen != before and not (not_drawn and set(before.splits) <= set(chosen.splits)):
        raise differences.set_at(destination).refusal(f"the splits differ: {_shown(before)} then", resume=True)
    for name in (*before.splits, *chosen.splits):
        if (destination / name).is_symlink():
            raise UsageError(f"{destination / name} is a symbolic link; splits must be in the folder of their set")
        destinations.check(destination / name, sources)


def splits_job(
    source: Any,
    destination: str | os.PathLike[str],
    *,
    splits: Sequence[str] | str | None = None,
    holdout: Mapping[str, float | int | str] | Sequence[str] | str | None = None,
    seed: int | None = None,
    group_by: str | None = None,
    split_by: str | None = None,
    scan: Scanning = unseen,
    **options: Unpack[PackKeywords],
) -> Splits:
    """The jobs of `rawpack.pack_splits`, checked and not begun."""
    run_options, source_options, recipe = by_group(options)
    recipe = parse_options(recipe)
    cure = "splits are packed into folders; pack each to a URL of its own, or copy them"
    where = destinations.local_folder(destination, cure)
    names, amounts = _asked(splits, holdout)

    spool = opening.spool_of(where, run_options) if isinstance(source, str | os.PathLike) else None
    before = read_splits(where)
    stores = [where / name for name in (() if before is None else before.splits)]
    asked = (names, amounts, seed, group_by, split_by)

    def kept(names: Sequence[str] | None) -> SavedTables | None:
        return saved_tables(source, source_options, where, run_options, spool, *asked, names=names, jobs=stores)

    def opened(part: Any, split: str | None = None, named: str = "", **more: str) -> Table:
        about = {**source_options, **more}
        if split is not None and about.get("images"):
            about = {**about, "images": in_split(about["images"], split)}
        return opening.open_given(
            part, about, run_options, recipe, where, os.fspath(destination), split=named, scan=scan, spool=spool,
            divided=True,
        )  # fmt: skip

    def made(part: Table) -> Recipe:
        return recipe_for(part, recipe)

    if split_by is not None:
        if any(option is not None for option in (names, amounts, seed, group_by)):
            others = f"{opt.splits}, {opt.holdout}, {opt.seed} and {opt.group_by}"
            raise UsageError(f"{opt.split_by} divides the source by itself: leave out {others}")
        by, run_options, saved = draws.parse_split_by(split_by), run_options.connected(), kept(None)
        if saved is not None and saved.tables:
            chosen = SplitSet(splits=tuple(saved.tables), split_by=by.text)
            return Splits(where, saved.tables, chosen, made, run_options, saved=saved)
        # Only the source says the names of the splits.
        return Splits(where, *divide(opened(source), by), made, run_options, saved=saved)
    divided = source if isinstance(source, Mapping) and ("image" not in source or amounts is None) else None
    if divided is not None:
        if names is not None or amounts is not None:
            raise UsageError("a dict has the splits already: leave out splits= and holdout=")
        names = list(divided)
    elif all(option is None for option in (names, amounts, seed, group_by)) or (
        names is not None and not isinstance(source, str | os.PathLike)
    ):
        raise UsageError("give a dict of splits; or a path and splits=; or holdout=, such as {'val': 0.1}")
    chosen = set_of(names, amounts, seed, group_by)
    check(where, opening.paths_of(source), chosen, restart=run_options.restart)
    run_options, drawn, saved = run_options.connected(), None, kept(chosen.splits)
    if saved is not None and saved.tables:
        return Splits(where, saved.tables, chosen, made, run_options, saved=saved)
    if divided is not None:
        sources = one_numbering({name: opened(part, named=name) for name, part in divided.items()})
    elif names is not None:
        root, by_kind = os.fspath(source), source_options.get("kind")
        of_coco = coco_splits(Listing(root)) if by_kind in (None, "coco") and not is_url(root) else {}
        if set(names) <= of_coco.keys():
            files = {name: of_coco[name] for name in names}
            sources = one_numbering({name: opened(str(file), images=str(at)) for name, (file, at) in files.items()})
            return Splits(where, sources, chosen, made, run_options, saved=saved)
        if source_options.get("kind") is None and source_options.get("labels_file") is None:
            try:
                stop_above_splits(root, names)
            except AnnotatedError as error:
                raise error.asked(os.fspath(destination)) from None
        sources = open_divided(root, names, lambda path: opened(path, Path(path).name))
    else:
        whole = opened(source)
        draw = draws.draw(whole, chosen.holdout or {}, chosen.seed or 0, group_by)
        sources, drawn = {name: whole.take(rows) for name, rows in draw.rows.items()}, (whole, draw)
    return Splits(where, sources, chosen, made, run_options, drawn, saved)


def _asked(
    splits: Sequence[str] | str | None, holdout: Mapping[str, float | int | str] | Sequence[str] | str | None
) -> tuple[Sequence[str] | None, Mapping[str, float | int | str] | None]:
    """The names of splits, and how much is drawn for each. Raises UsageError."""
    names = [name.strip() for name in splits.split(",")] if isinstance(splits, str) else splits
    amounts = [holdout] if isinstance(holdout, str) else holdout
    amounts = draws.parse_holdout(amounts) if isinstance(amounts, list | tuple) else amounts
    if names is not None and not isinstance(names, Sequence):
        raise UsageError(f"splits={splits!r}: must be a list of names, such as ['train', 'val']")
    if amounts is not None and not isinstance(amounts, Mapping):
        raise UsageError(f"holdout={holdout!r}: must be a dict, such as {{'val': 0.1}}")
    return names, amounts


class Splits:
    """A set of splits to be packed, each by a job of its own.

    drawn: the source that splits are drawn from, and the draw; None where they are not drawn.
    """

    def __init__(
        self,
        destination: Path,
        sources: Mapping[str, Table],
        chosen: SplitSet,
        recipe: Callable[[Table], Recipe],
        run_options: RunOptions,
        drawn: tuple[Table, draws.Draw] | None = None,
        saved: SavedTables | None = None,
    ) -> None:
        """recipe: gives that of a source. saved: keeps tables for a run that resumes. Raises UsageError as `check`, and
        where splits have different fields."""
        self.destination, self.chosen, self.drawn, self._how = destination, chosen, drawn, run_options
        self.saved = saved
        if saved is not None:
            saved.tables = sources
        for source in sources.values():
            check(destination, source.info.paths, chosen, restart=run_options.restart)
        self.jobs = {
            name: Job(source, recipe(source), destination / name, run_options, saved=saved, checked=True)
            for name, source in sources.items()
        }
        first, *others = self.jobs.values()
        for other in others:
            difference = differing_field(first.fields, other.fields)
            if difference is not None:
                name, was, now = difference
                raise UsageError(
                    f"{other.source.info.root} has other fields than {first.source.info.root} ({name}: "
                    f"{shown_field(was)} there, {shown_field(now)} here): all splits must have the same fields"
                )

    def estimate(self) -> dict[str, DryRun]:
        """What each split needs. Raises as `run` does before it begins."""
        self._check()
        return {name: job.estimate() for name, job in self.jobs.items()}

    def run(self, begins: Callable[[str, Job], object] = lambda name, job: None) -> Iterator[tuple[str, Summary]]:
        """Pack the splits one after another, or resume that; gives each when it is done. begins: called before each.

        With `restart`, all splits that are there are removed first, so that none of an older set is taken for one of
        this. Raises UsageError with nothing written where one that is there was packed from another source or by
        another recipe, or where there is too little space for all.
        """
        self._check()
        self._make()
        for name, job in self.jobs.items():
            job.run_options = replace(self._how, restart=False)
            begins(name, job)
            yield name, replace(job.run(), shuffle=name.lower().startswith(draws.TRAIN))
        # What the splits shared.
        if destinations.has_only_spool(self.destination):
            shutil.rmtree(self.destination / WORK)

    def _check(self) -> None:
        new = []
        for job in self.jobs.values():
            before = None if self._how.restart else _before(job.destination)
            if before is None:
                new.append(job)
            else:
                differences.check_same(job, before)
        freed = destinations.own_bytes(self.destination) if self._how.restart else 0
        check_space(self.destination, new, destinations.free_bytes(self.destination) + freed)

    def _make(self) -> None:
        """Make the destination this set of splits."""
        destination, before = self.destination, read_splits(self.destination)
        with files.refusals_named(destination):
            with destinations.names_synced(destination):
                writing.make_folder(destination)
            if self._how.restart and before is not None:
                for name in before.splits:
                    store = destination / name
                    if store.is_dir():
                        with Lock(store):
                            destinations.clear(store)
                            shutil.rmtree(store / WORK)
                        store.rmdir()
            if before != self.chosen:
                text = msgspec.json.format(msgspec.json.encode(self.chosen), indent=1)
                files.write_whole(destination / SPLITS, manifests.seal(text), destination / _TEMPORARY)
            if self.saved is not None and self.saved.when is None:
                self.saved.save()


def _before(store: Path) -> journal.JobNote | Manifest | None:
    """The manifest of a split that is finished, or the note of one that was begun."""
    if destinations.is_finished(store):
        try:
            return manifests.load(store)[0]
        except StoreError as error:
            sets = differences.set_at(store.parent)
            raise UsageError(f"{error}; `rawpack inspect --verify` shows more. {sets.restart}") from None
    return journal.read_note(store, journal.JobNote)


def stores_of(destination: Path) -> dict[str, Path]:
    """Name and folder of each split of a set, in their order, packed or not; empty where it is not a set."""
    split_set = read_splits(destination)
    return {} if split_set is None else {name: destination / name for name in split_set.splits}


def _shown(chosen: SplitSet) -> str:
    if isinstance(chosen.split_by, str):
        return opt.split_by(chosen.split_by)
    if chosen.holdout is None:
        return opt.splits(",".join(chosen.splits))
    amounts = ",".join(f"{name}={amount}" for name, amount in chosen.holdout.items())
    groups = f" {opt.group_by(chosen.group_by)}" if isinstance(chosen.group_by, str) else ""
    return f"{opt.holdout(amounts)} {opt.seed(chosen.seed)}{groups}"


def _checked(names: Sequence[str], where: str) -> tuple[str, ...]:
    for name in names:
        if not is_split_name(name):
            raise UsageError(f"{where}: {plain(name)!r} cannot be the name of a split, which is that of a folder")
    folded = [name.casefold() for name in names]
    if not names or len(set(folded)) != len(folded):
        raise UsageError(f"{where} {','.join(map(plain, names))}: give names that differ by more than case")
    return tuple(names)
