"""What of a source is appended to a store: the samples that it has not, under its classes and keys."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Manifest
from rawpack.disk.splits import read_splits
from rawpack.errors import StoreError, UsageError
from rawpack.store.store import Store
from rawpack_packer.destination import journal
from rawpack_packer.job.differences import mixes_videos
from rawpack_packer.sources import Source
from rawpack_packer.sources.files import UNKNOWN
from rawpack_packer.sources.optional import videos_of
from rawpack_packer.sources.video_numbers import Numbering, videos_in
from rawpack_packer.sources.view import View
from rawpack_packer.text import listed

_SHOWN = 10
_DIGITS = 15
"""A key of more is no number that was counted."""
_NONE: NDArray[np.int64] = np.empty(0, np.int64)


@dataclass(frozen=True)
class Chosen:
    """What of a source is appended."""

    source: View
    """With the store's classes and keys."""
    named: View
    """With the source's own."""
    existing: int
    changed: int
    later: int
    """Samples: see `AppendSummary`."""


def choose(store: Store, source: Source, begun: journal.AppendNote | None, *, skip_existing: bool) -> Chosen:
    """What is to be appended. Raises UsageError where the store has some of it, and that was not to be skipped."""
    beside, drawn = _beside(store)
    # Where one source was divided, what one split has is not to come into another.
    having, first = [store, *(beside if drawn else ())], None
    if source.info.numbered and not skip_existing:
        first = int(begun.keys[0]) if begun is not None else _free_number(having)
    classes = _classes(store, beside, source, begun)
    whole = View(source, classes=classes, first=first)
    later = 0
    if begun is not None:
        if not skip_existing:
            videos = _videos(store, source, np.arange(len(source)))
            return Chosen(View(source, classes=classes, first=first, videos=videos), View(source), 0, 0, 0)
        wanted = set(begun.keys)
        new = np.array([source.key(i) in wanted for i in range(len(source))], bool)
        later = len(new) - int(new.sum())
        had, changed = _known(having, whole)
        later -= int((had & ~new).sum())
    else:
        if (
            first is None
            and not skip_existing
            and journal.source_digest(source) in journal.digests(store.path, store.manifest)
        ):
            # All of it was packed or appended before, and nothing has changed since.
            return Chosen(View(source, _NONE), View(source, _NONE), len(source), 0, 0)
        had, changed = _known(having, whole)
        new = ~had
        if had.any() and not skip_existing:
            where = f"{store.path}, or a split beside it," if len(having) > 1 else f"{store.path}"
            raise UsageError(_conflict(where, whole, np.flatnonzero(had), mixed=mixes_videos(source, had)))
    rows = np.flatnonzero(new)
    return Chosen(
        View(source, rows, classes=classes, first=first, videos=_videos(store, source, rows)),
        View(source, rows),
        len(new) - len(rows) - later,
        int((had & changed & ~new).sum()),
        later,
    )


def _free_number(stores: Sequence[Store]) -> int:
    """The first number that is free for a sample whose key is a number: as many as the stores have packed or rejected,
    but behind the last that is a key, as where a store has some samples of another."""
    known = sum(one.manifest.samples + one.manifest.rejects.count for one in stores)
    keys = (key for key, _, _ in itertools.chain.from_iterable(map(journal.entries, stores)))
    numbers = (int(key) for key in keys if len(key) <= _DIGITS and key.isascii() and key.isdigit())
    return max(known, max(numbers, default=-1) + 1)


def _known(stores: Sequence[Store], source: View) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(n,) each: whether one of the stores has a sample's key, or has rejected it and its file is the same; and whether
    the file is another than it was then."""
    numbers = {source.key(i): i for i in range(len(source))}
    had, changed = np.zeros(len(source), bool), np.zeros(len(source), bool)
    states = source.states()
    aligned = len(states) == len(source)
    for key, state, rejected in itertools.chain.from_iterable(map(journal.entries, stores)):
        i = numbers.get(key)
        if i is not None:
            # Of a sample that was tried again, the last time counts.
            changed[i] = aligned and state != UNKNOWN and state != tuple(states[i].tolist())
            had[i] = not (rejected and changed[i])
    return had, changed


def _conflict(where: str, source: View, rows: NDArray[np.int64], *, mixed: bool) -> str:
    shown = listed([source.key(i) for i in rows[:_SHOWN].tolist()], _SHOWN, total=len(rows))
    return (
        f"{where} has or has rejected {len(rows):,} of {len(source):,} samples already, by their keys ({shown}); "
        + (
            "the others are frames of the same videos: give --fps, --every and the like as when the store was packed"
            if mixed
            else "--skip-existing appends the others alone"
        )
    )


def _classes(
    store: Store, beside: Sequence[Store], source: Source, begun: journal.AppendNote | None
) -> tuple[str, ...] | None:
    """The store's classes, and at the end those that are new, in the order of the source.

    A store that is one of several splits has the classes of the others too: a number is the same class in all.
    """
    known = store.manifest.classes if begun is None else begun.classes
    if known is None:
        return None
    for other in beside:
        classes = other.manifest.classes or ()
        if known != classes[: len(known)] and classes != known[: len(classes)]:
            raise UsageError(
                f"the classes of {store.path} are not numbered as those of the splits beside it: `rawpack inspect` "
                "tells more"
            )
        known = max(known, classes, key=len)
    had = set(known)
    return (*known, *(name for name in source.info.classes or () if name not in had))


def _videos(store: Store, source: Source, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """The number in the store of the video of each of these rows, (n,); None where samples are no frames of videos.

    It depends only on the store as it is and on the rows: an append that resumes gives the same numbers.
    """
    videos = videos_of(source)
    if videos is None:
        return None
    numbering = Numbering()
    numbering.keep(videos_in(store))
    return numbering.add(videos.at(rows))


def _beside(store: Store) -> tuple[list[Store], bool]:
    """The other splits of the set that a store belongs to, and whether they were drawn from one source."""
    own = store.path.absolute()
    found = read_splits(own.parent)
    if found is None or own.name not in found.splits:
        return [], False
    try:
        return [Store(own.parent / name) for name in found.splits if name != own.name], found.holdout is not None
    except StoreError as error:
        raise UsageError(f"{store.path} is one of several splits, and not all of them are whole: {error}") from None


def is_of(begun: journal.AppendNote, source: Source) -> bool:
    """Whether an append that has ended was of this very source."""
    if source.info.numbered and len(begun.keys) == len(source):
        return begun.digest == journal.source_digest(View(source, first=int(begun.keys[0])))
    return begun.digest == journal.source_digest(source)


def counts_of(manifest: Manifest, chosen: Chosen) -> dict[str, int]:
    """What the store's sources left out, all together.

    Of a source that the store knows in part, everything is counted again: then the larger number holds.
    """
    was = manifest.counts
    return {
        name: max(was.get(name, 0), count) if chosen.existing and name != "unlabelled" else was.get(name, 0) + count
        for name, count in chosen.source.info.counts.items()
    }
