"""Appends to a store: writes new shards and columns, and then a manifest that names both the old and the new ones.

Files that the old manifest names are not touched, so open readers keep working, and until the new manifest is written,
the store is the old one. An append that was interrupted resumes like any packing job.
"""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Manifest
from rawpack.disk.splits import read_splits
from rawpack.errors import DecodeError, PackError, StoreError, UsageError
from rawpack.store.store import Store
from rawpack_packer.counts import VIDEO, label_counts
from rawpack_packer.destination import folder as destinations
from rawpack_packer.destination import journal
from rawpack_packer.destination.journal import CRASHED, Reject
from rawpack_packer.destination.lock import Lock
from rawpack_packer.job import commit, splits
from rawpack_packer.job.job import Before, Job, check_sizes, nothing_to_do
from rawpack_packer.job.options import RunOptions
from rawpack_packer.job.saved_tables import SavedTables
from rawpack_packer.job.summary import AppendSummary
from rawpack_packer.options import opt
from rawpack_packer.part.pieces import prepare_item
from rawpack_packer.provenance import packing_runs
from rawpack_packer.recipe import PILLOW, THEN, Recipe, libraries
from rawpack_packer.recipe.fields import store_fields
from rawpack_packer.sources import Table
from rawpack_packer.sources.base import differing_field, shown_field
from rawpack_packer.sources.files import UNKNOWN, UNREADABLE
from rawpack_packer.sources.table.columns import Numbers
from rawpack_packer.sources.video import Numbering, videos_in
from rawpack_packer.text import count, listed, storable

_SHARD = re.compile(r"shard-(\d{1,15})\.")


class Append:
    """Samples to be added to a store, by the store's own recipe."""

    def __init__(
        self,
        source: Table,
        store: Store,
        run_options: RunOptions | None = None,
        *,
        saved: SavedTables | None = None,
        skip_existing: bool = False,
        other_libraries: bool = False,
    ) -> None:
        """store: of `open_store`. saved: keeps the source for a run that resumes. skip_existing: leave out samples that
        the store has, by their keys, or has rejected and would reject again. Otherwise a key that the store has is an
        error. other_libraries: append even if the libraries that make pixels and files have other versions now.
        run_options.restart: remove what an unfinished append left."""
        self.source, self.store, self.run_options = source, store, run_options or RunOptions()
        self._skip_existing, self._saved = skip_existing, saved
        for path in source.info.paths:
            destinations.check_apart(store.path, path)
        self.recipe = recipe_of(store.path, store.manifest, other_libraries=other_libraries)
        _check_fields(store.path, store.manifest, self.recipe, source)

    @cached_property
    def digest(self) -> str:
        """The digest of the source."""
        return journal.source_digest(self.source)

    def run(self) -> AppendSummary:
        """Add the samples, or resume that. Raises UsageError with nothing written, PackError where it started and
        failed."""
        began = time.monotonic()
        source, store, path = self.source, self.store, self.store.path
        begun = None if self.run_options.restart else journal.read_note(path, journal.AppendNote)
        if begun is not None and begun.store != store.digest:
            # That run was killed after it had replaced the manifest.
            with Lock(path):
                commit.tidy(path)
            if is_of(begun, source, lambda: self.digest):
                return _nothing(source, store, len(source), 0, began)
            begun = None
        chosen = choose(store, source, self.recipe, begun, lambda: self.digest, skip_existing=self._skip_existing)
        if not len(chosen.source) and not self.run_options.restart:
            commit.tidy_finished(path)
            return _nothing(source, store, chosen.existing, chosen.changed, began, chosen.rejected)
        summary = self._job(chosen).do()
        if summary.already:
            return _nothing(source, store, chosen.existing, chosen.changed, began, chosen.rejected)
        summary = replace(summary, info=replace(source.info, empty_classes=()), unread=len(source.unread))
        was, now = store.manifest, summary.manifest
        added, rejected = now.samples - was.samples, now.rejects.count - was.rejects.count
        unreadable = now.rejects.reasons.get(UNREADABLE, 0) - was.rejects.reasons.get(UNREADABLE, 0)
        return AppendSummary(
            summary, added, rejected, chosen.existing, chosen.changed, chosen.later, unreadable, chosen.rejected
        )

    def _job(self, chosen: Chosen) -> Job:
        """The job that adds new shards to the store."""
        store, manifest = self.store, self.store.manifest
        names = [file.name for shard in manifest.shards for file in shard.files]
        numbers = [int(match[1]) for match in map(_SHARD.match, names) if match]
        before = Before(
            run=len(packing_runs(manifest)) + 1,
            parts=max(numbers, default=-1) + 1,
            seen=manifest.samples + manifest.rejects.count,
            manifest=manifest,
            digest=store.digest,
            labels=label_counts(store),
            counts=counts_of(manifest, chosen),
        )
        if len(chosen.named) == len(self.source):
            journal.note_digest(chosen.named, self.digest)
        return Job(
            chosen.source, self.recipe, store.path, self.run_options,
            as_given=chosen.named, before=before, saved=self._saved,
        )  # fmt: skip


def open_store(path: Path, sources: Sequence[str | Path], doing: str = "append to") -> Store:
    """The finished store to append to. Raises UsageError where there is none. doing: what it is opened for."""
    names = splits.stores_of(path) if path.is_dir() else {}
    if names:
        raise UsageError(f"{path} is a set of splits: {doing} one of them, {', '.join(map(str, names.values()))}")
    if not destinations.is_finished(path):
        unfinished = path.is_dir() and destinations.is_begun(path)
        cure = "packing did not finish: the same `rawpack pack` resumes" if unfinished else "`rawpack pack` makes one"
        raise UsageError(f"there is no store at {path} to {doing}: {cure}")
    destinations.check(path, sources)
    try:
        store = Store(path)
        check_sizes(path, store.manifest)
    except (StoreError, PackError) as error:
        raise UsageError(f"{error}; to {doing} a store, it must be intact") from None
    return store


def recipe_of(path: Path, manifest: Manifest, *, other_libraries: bool) -> Recipe:
    """The recipe that a store was packed by.

    Raises UsageError, naming what differs, where other versions of libraries are installed here. `other_libraries`
    allows that, and the recipe then has both versions.
    """
    try:
        made = Recipe.of_manifest(manifest.recipe)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path} was packed by a recipe that this rawpack does not know: {error}") from None
    here = libraries(made, video="video" in made.libraries)
    latest = {name: version.rpartition(THEN)[2] for name, version in made.libraries.items()}
    differing = [name for name in sorted({*here, *latest}) if here.get(name) != latest.get(name)]
    if not differing:
        return made
    refused = [name for name in differing if name != PILLOW or manifest.counts.get("by_pillow")]
    if refused and not other_libraries:
        what = "; ".join(f"{name}: {latest.get(name)} then, {here.get(name)} now" for name in refused)
        raise UsageError(
            f"{path} was packed with other libraries ({what}), which may make other pixels: install those, or allow it "
            f"with {opt.other_libraries}"
        )
    both = dict(made.libraries)
    for name in differing:
        if name in here:
            both[name] = f"{both[name]}{THEN}{here[name]}" if name in both else here[name]
    return msgspec.structs.replace(made, libraries=dict(sorted(both.items())))


def _check_fields(path: Path, manifest: Manifest, recipe: Recipe, source: Table) -> None:
    """Raise UsageError, naming the first field that differs, where samples do not fit into the store."""
    if (manifest.classes is None) != (source.info.classes is None):
        has, lacks = (path, source.info.root) if source.info.classes is None else (source.info.root, path)
        raise UsageError(f"{has} has classes and {lacks} has none: only samples with the same fields can be appended")
    fields = store_fields(recipe, source)
    difference = differing_field(manifest.fields, fields, _takes)
    if difference is not None:
        name, was, now = difference
        raise UsageError(
            f"samples of {source.info.root} do not fit into {path} ({name}: {shown_field(was)} there, "
            f"{shown_field(now)} here): only samples with the same fields can be appended"
        )


def _takes(was: Field | None, now: Field | None) -> bool:
    """Whether fields are equal, or one for images or masks of any size takes those of a source that have one size."""
    if was == now:
        return True
    if (
        was is None
        or now is None
        or was.kind not in ("image", "mask")
        or was.uniform
        or len(was.shape) != len(now.shape)
    ):
        return False
    return msgspec.structs.replace(now, shape=(None, None, *now.shape[2:])) == was


def _nothing(
    source: Table, store: Store, existing: int, changed: int, began: float, rejected: int = 0
) -> AppendSummary:
    """The result of an append that had nothing to do."""
    summary = nothing_to_do(store.path, store.manifest, store.digest, source, time.monotonic() - began)
    return AppendSummary(summary, 0, 0, existing, changed, 0, rejected_before=rejected)


_OF_FILE = {"corrupt", "damaged", "empty", "no_video", "not_an_image", "truncated"}
"""Reasons that hold as long as the file and the libraries are the same. (What is `unsupported` may be decoded where
something else is installed, and a mask may be `too_large` by what its annotation says.)"""
_SHOWN = 10
_DIGITS = 15
"""A key with more is not a number that was counted."""


@dataclass(frozen=True)
class Chosen:
    """The samples of a source that are appended."""

    source: Table
    """With the keys and classes of the store."""
    named: Table
    """With the source's own."""
    existing: int
    changed: int
    later: int
    """See `AppendSummary`."""
    rejected: int
    """See `AppendSummary.rejected_before`."""


def choose(
    store: Store,
    source: Table,
    recipe: Recipe,
    begun: journal.AppendNote | None,
    digest: Callable[[], str],
    *,
    skip_existing: bool,
) -> Chosen:
    """Choose what to append. recipe: of `recipe_of`. begun: the append to resume. digest: gives that of the source.
    Raises UsageError where the store has some of the samples and they are not to be skipped."""
    others, drawn = other_splits(store)
    # If splits were drawn from one source, no sample of one split may come into another.
    having, first = [store, *(others if drawn else ())], None
    if source.info.numbered and not skip_existing:
        first = int(begun.keys[0]) if begun is not None else _free_number(having)
    numbered = source if first is None else source.numbered_from(first)
    classes = _classes(store, others, source, begun)
    had = changed = rejected = np.zeros(len(source), bool)
    if begun is not None and not skip_existing:
        new = ~had
    elif first is None and not skip_existing and digest() in journal.digests(store.path, store.manifest):
        # All samples were packed or appended together before, and nothing has changed since.
        had, new = ~had, had
    else:
        had, changed, rejected = _known(having, numbered, recipe, tries=skip_existing)
        wanted = set(begun.keys) if begun is not None else set()
        new = ~had if begun is None else np.array([source.key(i) in wanted for i in range(len(source))], bool)
        if had.any() and not skip_existing:
            where = f"{store.path}, or a split next to it," if len(having) > 1 else f"{store.path}"
            mixed = _mixes_videos(source, had)
            raise UsageError(_conflict(where, numbered, np.flatnonzero(had), mixed=mixed))
    rows, later = np.flatnonzero(new), int((~new & ~had).sum())
    named, videos = source.take(rows), _videos(store, source, rows)
    added = named.with_classes(classes) if first is None else named.with_classes(classes).numbered_from(first)
    return Chosen(
        added if videos is None else added.joined({VIDEO: Numbers(videos)}),
        named,
        existing=len(new) - len(rows) - later,
        changed=int((had & changed & ~new).sum()),
        later=later,
        rejected=int((had & rejected & ~new).sum()),
    )


def _free_number(stores: Sequence[Store]) -> int:
    """The first free number for samples whose keys are numbers: the count of all samples packed or rejected, or, as in
    a subset, the largest key + 1."""
    samples = sum(store.manifest.samples + store.manifest.rejects.count for store in stores)
    keys = (key for key, _, _ in itertools.chain.from_iterable(map(journal.entries, stores)))
    numbers = (int(key) for key in keys if len(key) <= _DIGITS and key.isascii() and key.isdigit())
    return max(samples, max(numbers, default=-1) + 1)


def _known(
    stores: Sequence[Store], source: Table, recipe: Recipe, *, tries: bool
) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.bool_]]:
    """(n,) each: whether a store has a sample's key, or has rejected the sample for what is still so; whether the file
    changed since; whether it was rejected.

    tries: whether to try again what may be fixed, though its file is the same. Else broken lines without keys are
    new.
    """
    numbers, nameless, states = {source.key(i): i for i in range(len(source))}, _nameless(source), source.row_states
    had, changed, rejected = (np.zeros(len(source), bool) for _ in range(3))
    last = dict[int, tuple[Reject, bool]]()
    for store in stores:
        for key, state, reject in journal.entries(store):
            i = numbers.get(key, -1)
            if i < 0:
                continue
            if i in nameless or (reject is not None and reject.nameless):
                if tries and reject is not None and nameless.get(i) == (reject.reason, reject.detail):
                    # The same line of another listing is another one.
                    had[i] |= journal.root_of(store, reject.sample) == source.info.root
                    rejected[i] = had[i]
                continue
            # If a sample was tried again, the last time counts.
            own = UNKNOWN if states is None else tuple(states[i].tolist())
            had[i] = True
            if states is not None:
                changed[i] = state != own and UNKNOWN not in (state, own)
            last.pop(i, None)
            if reject is not None and store is not stores[0]:
                changed[i] = False  # another split's, whatever has become of it
            elif reject is not None:
                is_same = state == own and (own != UNKNOWN or len(source.file_states) > 0)
                last[i] = reject, is_same
    for i in last:
        had[i], rejected[i] = not changed[i], True
    if tries:
        besides_same = {*map(tuple, source.file_states.tolist())} <= journal.states_besides(stores[0])
        left = {i: (reject, is_same and besides_same) for i, (reject, is_same) in last.items() if had[i]}
        had[_fixed(stores[0], source, recipe, left)] = False
    return had, changed, rejected


def _nameless(source: Table) -> dict[int, tuple[str, str]]:
    """The samples that are broken lines or records without a key of their own -> reason and detail."""
    nameless, columns = dict[int, tuple[str, str]](), (source.rows.images, *source.rows.columns.values())
    if source.info.numbered:
        return nameless
    for i in {*itertools.chain.from_iterable(getattr(column, "faults", ()) for column in columns)}:
        try:
            source[i]
        except DecodeError as error:
            if journal.rejected(i, source.key(i), error).nameless:
                nameless[i] = error.reason, storable(error.detail)
    return nameless


def _fixed(store: Store, source: Table, recipe: Recipe, rejects: Mapping[int, tuple[Reject, bool]]) -> list[int]:
    """The samples that are no longer rejected for the reason that they were: a line of a listing, a label, a file
    beside the image, an option or a permission may be another one. rejects: sample -> its reject, and whether its file
    is known to be the same."""
    further = any(hasattr(column, "image_file") for column in source.rows.columns.values())
    newer = recipe.libraries != Recipe.of_manifest(store.manifest.recipe).libraries
    # What crashed could end this process: in another one, it is tried if the libraries are newer.
    rows = [
        i
        for i, (reject, is_same) in sorted(rejects.items())
        if reject.reason != CRASHED and (newer or further or not is_same or reject.reason not in _OF_FILE)
    ]
    part = source.rows.pick(np.array(rows, np.int64))
    prepared = [prepare_item(part, k, recipe, store.fields).sample for k in range(len(part))]
    fixed = [i for i, (reject, _) in rejects.items() if reject.reason == CRASHED and newer]
    for i, sample in zip(rows, prepared, strict=True):
        if not isinstance(sample, DecodeError) or sample.reason != rejects[i][0].reason:
            fixed.append(i)
    return fixed


def _mixes_videos(source: Table, had: NDArray[np.bool_]) -> bool:
    """Whether an append would add frames of videos that the store has other frames of, as with another --fps.

    had: (n,): which samples of the source the store has.
    """
    if source.info.kind != "video":
        return False
    # Not the groups of a draw: a listing may have several parts of one file, each a video of its own.
    videos = [source.key(i).rsplit("#", 1)[0] for i in range(len(source))]
    videos_there = {video for video, has_sample in zip(videos, had, strict=True) if has_sample}
    return any(not has_sample and video in videos_there for video, has_sample in zip(videos, had, strict=True))


def _conflict(where: str, source: Table, rows: NDArray[np.int64], *, mixed: bool) -> str:
    shown = listed([source.key(i) for i in rows[:_SHOWN].tolist()], _SHOWN, total=len(rows))
    return (
        f"{where} already has or has rejected {len(rows):,} of {count(len(source), 'sample')}, by their keys "
        f"({shown}); "
        + (
            f"the others are frames of the same videos: give {opt.fps}, {opt.frame_step} and the like as when the "
            "store was packed"
            if mixed
            else f"{opt.skip_existing} appends only the others"
        )
    )


def _classes(
    store: Store, others: Sequence[Store], source: Table, begun: journal.AppendNote | None
) -> tuple[str, ...] | None:
    """The store's classes, then the new ones in the order of the source."""
    classes = store.manifest.classes if begun is None else begun.classes
    return None if classes is None else classes_with(source.info.classes or (), classes, store, others)


def classes_with(new: Iterable[str], own: tuple[str, ...], store: Store, others: Sequence[Store]) -> tuple[str, ...]:
    """The classes that a store has, and those of `new` that it has not.

    A store that is one of several splits gets the classes of the others too: a label is the same class in all. others:
    see `other_splits`. Raises UsageError where they number them differently.
    """
    for other in others:
        classes = other.manifest.classes or ()
        if own != classes[: len(own)] and classes != own[: len(classes)]:
            raise UsageError(
                f"the classes of {store.path} are numbered differently from those of the splits next to it: `rawpack "
                "inspect` shows more"
            )
        own = max(own, classes, key=len)
    had = set(own)
    return (*own, *(name for name in new if name not in had))


def _videos(store: Store, source: Table, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """(n,): the number in the store of each row's video; None where samples are not frames of videos.

    It depends only on the store and the rows: an append that resumes gives the same numbers.
    """
    videos = source.videos()
    if videos is None:
        return None
    numbering = Numbering()
    numbering.keep(videos_in(store))
    return numbering.add(videos.at(rows))


def other_splits(store: Store) -> tuple[list[Store], bool]:
    """The other splits of the set that a store belongs to, and whether they were drawn from one source."""
    folder = store.path.absolute()
    splits = read_splits(folder.parent)
    if splits is None or folder.name not in splits.splits:
        return [], False
    try:
        return [Store(folder.parent / name) for name in splits.splits if name != folder.name], splits.divided_here
    except StoreError as error:
        raise UsageError(f"{store.path} is one of several splits, and not all of them are intact: {error}") from None


def is_of(begun: journal.AppendNote, source: Table, digest: Callable[[], str]) -> bool:
    """Whether a finished append was from this very source. digest: gives that of the source."""
    if source.info.numbered and len(begun.keys) == len(source):
        return begun.digest == journal.source_digest(source.numbered_from(int(begun.keys[0])))
    return begun.digest == digest()


def counts_of(manifest: Manifest, chosen: Chosen) -> dict[str, int]:
    """What all sources of the store left out.

    A source that the store has in part is counted again as a whole: then the larger number is right.
    """
    was = manifest.counts
    return {
        name: max(was.get(name, 0), count) if chosen.existing else was.get(name, 0) + count
        for name, count in chosen.source.info.counts.items()
    }
