"""Runs of frames: frames of one video that follow one another in a reader without a gap.

A video's rows, as they are stored, are the time axis of its clips, whichever of its frames were packed. A run ends

- where the video ends, or the store;
- where the reader leaves a row out, or takes another than the next;
- where a frame was rejected when the store was packed;
- where `frame` does not increase, or skips a frame.

The last case takes care. Where frames were chosen by time (25 of 30 a second), their numbers are apart by one and by
two. The numbers of evenly chosen frames differ by two neighboring integers, and those of two frames with a missing one
between them by the sum of two such integers. That is more than either, except for 1 + 1. So in a video whose frames are
1 apart, a distance of 2 means a missing frame, unless there are several such places, evenly spread. Where there are
times, they must show the gap too, because a video with variable frame rate may have any distances.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import map_file
from rawpack.errors import DamagedStoreError, UsageError
from rawpack.store.samples import values_of
from rawpack.store.store import Store
from rawpack.store.stores import Stores

VIDEO, FRAME, SECONDS, LABEL = "video", "frame", "pts_seconds", "label"
"""Fields of a store of video."""
_BLOCK = 1 << 20
_LATE = 1.4
"""A gap in time is more than this many times the median distance. Two frames with a missing one between them are at
least 1.5 times as far apart; times may be rounded."""
_NONE = np.iinfo(np.int64).max
"""Stands for the step between two frames that do not follow one another anyway."""
_MANY = 3
"""Fewer places do not show whether they are evenly spread."""


@dataclass(frozen=True)
class FrameRuns:
    """All runs of a reader, in its order."""

    first: NDArray[np.int64]
    """(runs,): the row of each run's first frame. The others are in the rows after it."""
    length: NDArray[np.int64]
    """(runs,): in frames."""
    video: NDArray[np.int64]
    """(runs,): the number of each run's video, counted through the reader: 0, 0, 1, ..."""
    one_label: bool
    """Whether there is a `label`, and each video has only one."""


class _Line(msgspec.Struct):
    """What is needed of a line of `rejects.jsonl`."""

    sample: int


def find_runs(library: Stores, rows: NDArray[np.int64] | None) -> FrameRuns:
    """The runs in a library's rows, int64 (n,), or in all. Raises UsageError where the store does not say which frame
    belongs to which video."""
    _check_fields(library)
    count = len(library) if rows is None else len(rows)
    starts, videos, one_label = _pieces(library, rows, count)
    firsts = starts[np.flatnonzero(np.diff(videos, prepend=-1))]
    gaps = (_gaps(library, rows, firsts[low:high], starts, stop) for low, high, stop in _groups(firsts, count))
    skips = np.concatenate([np.empty(0, np.int64), *gaps])
    # A run that begins within a piece belongs to the piece's video.
    piece = np.searchsorted(starts, skips, side="right") - 1
    begins = np.concatenate([starts, skips])
    order = np.argsort(begins, kind="stable")
    begins = begins[order]
    first = begins if rows is None else rows[begins]
    length = np.diff(np.append(begins, count))
    return FrameRuns(first, length, np.concatenate([videos, videos[piece]])[order], one_label)


def _check_fields(library: Stores) -> None:
    for name in (VIDEO, FRAME):
        field = library.fields.get(name)
        if field is None or (field.kind, field.shape) != ("number", ()) or np.dtype(field.dtype).kind not in "iu":
            found = "no field" if field is None else f"{field.kind} {field.dtype} {field.shape} as"
            raise UsageError(
                f"clips are made of the frames of videos, and {library.stores[0].path} has {found} {name!r}: pack "
                "videos, or frames with two integer fields, `video` and `frame`, the number of each frame's video and "
                "its number there; the frames of a video one after another"
            )


def _pieces(
    library: Stores, rows: NDArray[np.int64] | None, count: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], bool]:
    """Runs by everything but the numbers of frames: where in the reader each starts, and its video; and whether each
    video has one label."""
    lost = np.concatenate([np.empty(0, np.int64), *_lost(library)])
    starts, begun = [np.zeros(min(count, 1), np.int64)], [np.ones(min(count, 1), np.bool_)]
    one_label = LABEL in library.fields and library.fields[LABEL].kind == "number"
    for start in range(1, count, _BLOCK):
        # With the row before, to compare neighbors across blocks too.
        stop = min(start + _BLOCK, count)
        block = np.arange(start - 1, stop) if rows is None else rows[start - 1 : stop]
        store = np.searchsorted(library.ends, block, side="right")
        other = (np.diff(store) != 0) | _changes(values_of(library, VIDEO, block))
        broken = other | (np.diff(block) != 1) | np.isin(block[1:], lost)
        at = np.flatnonzero(broken)
        starts.append(at + start)
        begun.append(other[at])
        if one_label:
            one_label = not (_changes(values_of(library, LABEL, block)) & ~other).any()
    return np.concatenate(starts), np.cumsum(np.concatenate(begun)) - 1, one_label


def _lost(library: Stores) -> Iterator[NDArray[np.int64]]:
    """For each store the rows right before which a sample was rejected."""
    for store, end in zip(library.stores, library.ends.tolist(), strict=True):
        numbers = np.unique(_rejected(store))
        # Samples that were rejected before it have no row.
        yield numbers - np.arange(len(numbers)) + end - len(store)


def _rejected(store: Store) -> NDArray[np.int64]:
    record = store.manifest.rejects.file
    if not store.manifest.rejects.count:
        return np.empty(0, np.int64)
    lines = map_file(store.path, record).tobytes().splitlines()
    try:
        return np.array([msgspec.json.decode(line, type=_Line).sample for line in lines], np.int64)
    except (ValueError, OverflowError) as error:  # a DecodeError is a ValueError
        raise DamagedStoreError(f"{store.path / record.name} is not a list of rejects: {error}") from None


def _groups(begins: NDArray[np.int64], count: int) -> Iterator[tuple[int, int, int]]:
    """(low, high) of videos that are examined together, about a block of rows or one longer video; and where in the
    reader the last of them ends."""
    low = 0
    while low < len(begins):
        high = max(low + 1, int(np.searchsorted(begins, begins[low] + _BLOCK)))
        yield low, high, int(begins[high]) if high < len(begins) else count
        low = high


def _gaps(
    library: Stores,
    rows: NDArray[np.int64] | None,
    begins: NDArray[np.int64],
    starts: NDArray[np.int64],
    stop: int,
) -> NDArray[np.int64]:
    """Where in the reader, within some consecutive videos, `frame` does not continue as it should. begins: where these
    videos begin. starts: where a run begins in any case."""
    start = int(begins[0])
    block = np.arange(start, stop) if rows is None else rows[start:stop]
    steps = np.empty(stop - start, np.int64)
    steps[1:] = np.diff(values_of(library, FRAME, block).astype(np.int64))
    # The steps into a run do not count, and neither do those backwards.
    steps[starts[np.searchsorted(starts, start) : np.searchsorted(starts, stop)] - start] = _NONE
    back = steps <= 0
    local = begins - start
    usual = np.minimum.reduceat(np.where(back, _NONE, steps), local)
    ends = np.append(local[1:], stop - start)
    odd = (steps != np.repeat(usual, ends - local)) & (steps != _NONE) & ~back
    found = [np.flatnonzero(back)]
    timed = SECONDS in library.fields and library.fields[SECONDS].kind == "number" and not library.fields[SECONDS].shape
    for number in np.unique(np.searchsorted(local, np.flatnonzero(odd), side="right") - 1).tolist():
        low, high = int(local[number]), int(ends[number])
        seconds = np.diff(values_of(library, SECONDS, block[low:high])) if timed else None
        found.append(_skips(steps[low + 1 : high], int(usual[number]), seconds) + low + 1)
    return np.sort(np.concatenate(found)) + start


def _skips(steps: NDArray[np.int64], usual: int, seconds: NDArray[Any] | None) -> NDArray[np.intp]:
    """Which of a video's steps skip a frame: see the top of this file. usual: the smallest; seconds: of each step."""
    skips = (steps > usual + 1) & (steps != _NONE)
    if usual == 1:
        twos = np.flatnonzero(steps == 2)
        between = np.diff(twos)
        if len(twos) < _MANY or between.max() > 2 * between.min() + 1:
            skips[twos] = True
    if seconds is not None and (median := np.median(seconds)) > 0:
        skips &= seconds > _LATE * median
    return np.flatnonzero(skips)


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each of (n, ...) values but the first differs from the one before."""
    changed: NDArray[np.bool_] = (values[1:] != values[:-1]).reshape(len(values) - 1, -1).any(axis=1)
    return changed
