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
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.mapped import map_file
from rawpack.errors import DamagedStoreError, UsageError
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
    unordered: int
    """Videos whose frames are not stored in the order of their numbers."""


class _Line(msgspec.Struct):
    sample: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]


def find_runs(library: Stores, rows: NDArray[np.int64] | None) -> FrameRuns:
    """The runs in a library's rows, int64 (n,), or in all. Raises UsageError where the store does not say which frame
    belongs to which video."""
    _check_fields(library)
    count = len(library) if rows is None else len(rows)
    lost = np.concatenate([np.empty(0, np.int64), *_lost(library)])
    labeled = LABEL in library.fields and library.fields[LABEL].kind == "number"
    starts, videos, seen, one_label = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0, labeled
    unordered = 0
    for start, block, begins in _whole_videos(library, rows, count):
        frames = library.values(FRAME, block).astype(np.int64)
        back = np.setdiff1d(np.flatnonzero(np.diff(frames) < 0) + 1, begins)
        unordered += len(np.unique(np.searchsorted(begins, back, side="right")))
        at = np.flatnonzero(_run_starts(library, block, begins, lost, frames))
        starts.append(at + start)
        videos.append(np.searchsorted(begins, at, side="right") - 1 + seen)
        seen += len(begins)
        if one_label:
            one_label = bool(np.isin(np.flatnonzero(_changes(library.values(LABEL, block))), begins).all())
    begins = np.concatenate(starts)
    first = begins if rows is None else rows[begins]
    return FrameRuns(first, np.diff(np.append(begins, count)), np.concatenate(videos), one_label, unordered)


def _check_fields(library: Stores) -> None:
    for name in (VIDEO, FRAME):
        field = library.fields.get(name)
        if field is None or (field.kind, field.shape) != ("number", ()) or np.dtype(field.dtype).kind not in "iu":
            found = "no field" if field is None else f"{field.kind} {field.dtype} {field.shape} as"
            raise UsageError(
                f"clips are made of the frames of videos, and {library.stores[0].path} has {found} {name!r}: pack "
                "videos, or frames with two integer fields, `video` and `frame`, the number of each frame's video and "
                "its number there; --key-pattern 'v{video:d}/{frame:d}.jpg' finds them in paths such as v1/23.jpg"
            )


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
    except ValueError as error:  # a DecodeError is one
        raise DamagedStoreError(f"{store.path / record.name} is not a list of rejects: {error}") from error


def _whole_videos(
    library: Stores, rows: NDArray[np.int64] | None, count: int
) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """All videos, about a block of rows of them at a time, or one longer video: where in the reader they begin, their
    rows, and where each begins among these."""
    start, size = 0, _BLOCK
    while start < count:
        stop = min(start + size, count)
        block = np.arange(start, stop) if rows is None else rows[start:stop]
        store = np.searchsorted(library.ends, block, side="right")
        begins = np.flatnonzero(_changes(store) | _changes(library.values(VIDEO, block)))
        if stop < count and len(begins) == 1:
            size *= 2
            continue
        if stop < count:  # the last one may not be whole
            block, begins = block[: begins[-1]], begins[:-1]
        yield start, block, begins
        start, size = start + len(block), _BLOCK


def _run_starts(
    library: Stores,
    block: NDArray[np.int64],
    begins: NDArray[np.int64],
    lost: NDArray[np.int64],
    frames: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """Whether a run starts at each row of some whole videos. begins: where each of these begins. frames: the number of
    each frame."""
    starts: NDArray[np.bool_] = np.diff(block, prepend=block[0]) != 1
    starts[begins] = True
    starts |= np.isin(block, lost)
    steps = frames - np.append(0, frames[:-1])
    starts |= steps <= 0
    steps[starts] = _NONE
    usual = np.minimum.reduceat(steps, begins)
    ends = np.append(begins[1:], len(block))
    odd = (steps != np.repeat(usual, ends - begins)) & ~starts
    timed = SECONDS in library.fields and library.fields[SECONDS].kind == "number" and not library.fields[SECONDS].shape
    for number in np.unique(np.searchsorted(begins, np.flatnonzero(odd), side="right") - 1).tolist():
        low, high = int(begins[number]), int(ends[number])
        seconds = np.diff(library.values(SECONDS, block[low:high])) if timed else None
        starts[low + 1 : high] |= _skips(steps[low + 1 : high], int(usual[number]), seconds)
    return starts


def _skips(steps: NDArray[np.int64], usual: int, seconds: NDArray[Any] | None) -> NDArray[np.bool_]:
    """Which of a video's steps skip a frame: see the top of this file. usual: the smallest; seconds: of each step."""
    skips: NDArray[np.bool_] = (steps > usual + 1) & (steps != _NONE)
    if usual == 1:
        twos = np.flatnonzero(steps == 2)
        between = np.diff(twos)
        if len(twos) < _MANY or between.max() > 2 * between.min() + 1:
            skips[twos] = True
    if seconds is not None and (median := np.median(seconds)) > 0:
        skips &= seconds > _LATE * median
    return skips


def _changes(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each of (n, ...) values differs from the one before, as the first always does."""
    changed = np.ones(len(values), np.bool_)
    changed[1:] = (values[1:] != values[:-1]).any(axis=tuple(range(1, values.ndim)))
    return changed
