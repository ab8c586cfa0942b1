"""Selects the samples of a source to append to a store, and gives them the store's classes and keys."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Manifest
from rawpack.disk.splits import read_splits
from rawpack.errors import StoreError, UsageError
from rawpack.store.store import Store
from rawpack_packer.destination import journal
from rawpack_packer.job.differences import mixes_videos
from rawpack_packer.options.naming import opt
from rawpack_packer.sources import Source
from rawpack_packer.sources.files import UNKNOWN
from rawpack_packer.sources.optional import videos_of
from rawpack_packer.sources.video.frames import Numbering, videos_in
from rawpack_packer.sources.view import View
from rawpack_packer.text import listed

_SHOWN = 10
_DIGITS = 15
"""A key with more is not a number that was counted."""


@dataclass(frozen=True)
class Chosen:
    """The samples of a source that are appended."""

    source: View
    """With the keys and classes of the store."""
    named: View
    """With the source's own."""
    existing: int
    changed: int
    later: int
    """See `AppendSummary`."""


def choose(
    store: Store, source: Source, begun: journal.AppendNote | None, digest: Callable[[], str], *, skip_existing: bool
) -> Chosen:
    """Choose what to append. begun: the append to resume. digest: gives that of the source. Raises UsageError where the
    store has some of the samples and they are not to be skipped."""
    others, drawn = _other_splits(store)
    # If splits were drawn from one source, no sample of one split may come into another.
    having, first = [store, *(others if drawn else ())], None
    if source.info.numbered and not skip_existing:
        first = int(begun.keys[0]) if begun is not None else _free_number(having)
    classes = _classes(store, others, source, begun)
    had = changed = np.zeros(len(source), bool)
    if begun is not None and not skip_existing:
        new = ~had
    elif first is None and not skip_existing and digest() in journal.digests(store.path, store.manifest):
        # All samples were packed or appended together before, and nothing has changed since.
        had, new = ~had, had
    else:
        had, changed = _known(having, View(source, first=first))
        wanted = set(begun.keys) if begun is not None else set()
        new = ~had if begun is None else np.array([source.key(i) in wanted for i in range(len(source))], bool)
        if had.any() and not skip_existing:
            where = f"{store.path}, or a split next to it," if len(having) > 1 else f"{store.path}"
            mixed = mixes_videos(source, had)
            raise UsageError(_conflict(where, View(source, first=first), np.flatnonzero(had), mixed=mixed))
    rows, later = np.flatnonzero(new), int((~new & ~had).sum())
    return Chosen(
        View(source, rows, classes=classes, first=first, videos=_videos(store, source, rows)),
        View(source, rows),
        existing=len(new) - len(rows) - later,
        changed=int((had & changed & ~new).sum()),
        later=later,
    )


def _free_number(stores: Sequence[Store]) -> int:
    """The first free number for samples whose keys are numbers: the count of all samples packed or rejected, or, as in
    a subset, the largest key + 1."""
    known = sum(one.manifest.samples + one.manifest.rejects.count for one in stores)
    keys = (key for key, _, _ in itertools.chain.from_iterable(map(journal.entries, stores)))
    numbers = (int(key) for key in keys if len(key) <= _DIGITS and key.isascii() and key.isdigit())
    return max(known, max(numbers, default=-1) + 1)


def _known(stores: Sequence[Store], source: View) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(n,) each: whether a store has a sample's key or has rejected the same file; whether the file changed since."""
    numbers = {source.key(i): i for i in range(len(source))}
    had, changed = np.zeros(len(source), bool), np.zeros(len(source), bool)
    states = source.states()
    aligned = len(states) == len(source)
    for key, state, rejected in itertools.chain.from_iterable(map(journal.entries, stores)):
        i = numbers.get(key)
        if i is not None:
            # If a sample was tried again, the last time counts.
            changed[i] = aligned and state != UNKNOWN and state != tuple(states[i].tolist())
            had[i] = not (rejected and changed[i])
    return had, changed


def _conflict(where: str, source: View, rows: NDArray[np.int64], *, mixed: bool) -> str:
    shown = listed([source.key(i) for i in rows[:_SHOWN].tolist()], _SHOWN, total=len(rows))
    return (
        f"{where} already has or has rejected {len(rows):,} of {len(source):,} samples, by their keys ({shown}); "
        + (
            f"the others are frames of the same videos: give {opt.fps}, {opt.every} and the like as when the store was "
            "packed"
            if mixed
            else f"{opt.skip_existing} appends only the others"
        )
    )


def _classes(
    store: Store, others: Sequence[Store], source: Source, begun: journal.AppendNote | None
) -> tuple[str, ...] | None:
    """The store's classes, then the new ones in the order of the source.

    A store that is one of several splits gets the classes of the others too: a label is the same class in all.
    """
    known = store.manifest.classes if begun is None else begun.classes
    if known is None:
        return None
    for other in others:
        classes = other.manifest.classes or ()
        if known != classes[: len(known)] and classes != known[: len(classes)]:
            raise UsageError(
                f"the classes of {store.path} are numbered differently from those of the splits next to it: `rawpack "
                "inspect` shows more"
            )
        known = max(known, classes, key=len)
    had = set(known)
    return (*known, *(name for name in source.info.classes or () if name not in had))


def _videos(store: Store, source: Source, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """(n,): the number in the store of each row's video; None where samples are not frames of videos.

    It depends only on the store and the rows: an append that resumes gives the same numbers.
    """
    videos = videos_of(source)
    if videos is None:
        return None
    numbering = Numbering()
    numbering.keep(videos_in(store))
    return numbering.add(videos.at(rows))


def _other_splits(store: Store) -> tuple[list[Store], bool]:
    """The other splits of the set that a store belongs to, and whether they were drawn from one source."""
    own = store.path.absolute()
    found = read_splits(own.parent)
    if found is None or own.name not in found.splits:
        return [], False
    try:
        return [Store(own.parent / name) for name in found.splits if name != own.name], found.divided_here
    except StoreError as error:
        raise UsageError(f"{store.path} is one of several splits, and not all of them are intact: {error}") from None


def is_of(begun: journal.AppendNote, source: Source, digest: Callable[[], str]) -> bool:
    """Whether a finished append was from this very source. digest: gives that of the source."""
    if source.info.numbered and len(begun.keys) == len(source):
        return begun.digest == journal.source_digest(View(source, first=int(begun.keys[0])))
    return begun.digest == digest()


def counts_of(manifest: Manifest, chosen: Chosen) -> dict[str, int]:
    """What all sources of the store left out.

    A source that the store has in part is counted again as a whole: then the larger number is right.
    """
    was = manifest.counts
    return {
        name: max(was.get(name, 0), count) if chosen.existing and name != "unlabelled" else was.get(name, 0) + count
        for name, count in chosen.source.info.counts.items()
    }
