"""Computes the rows of each clip: a function of the clip's number and, for random clips, of seed and epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import xxhash
from msgspec.structs import replace
from numpy.typing import NDArray

from rawpack.checks import whole_number
from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.order.keys import derive_key
from rawpack.order.permutation import splitmix
from rawpack.samples.runs import LABEL, VIDEO, FrameRuns, find_runs
from rawpack.samples.where import Where
from rawpack.store.stores import Stores
from rawpack.system.user import count, warn
from rawpack.words import CLIP, INDEX, STORE

Short = Literal["drop", "repeat_last", "wrap"]
SHORT: tuple[Short, ...] = ("drop", "repeat_last", "wrap")
_MOST_LENGTHS = 256
Whole = TypeVar("Whole", int, NDArray[np.int64])
_WORD_HALF = np.uint64(32)


@dataclass(frozen=True)
class ClipShape:
    frames: int | Sequence[int]
    """Several: a video has clips of the greatest that it can fill."""
    stride: int = 1
    step: int | None = None
    """None: a clip begins where the one before it ends."""
    per_video: int | None = None
    short: Short = "drop"

    def __post_init__(self) -> None:
        if isinstance(self.frames, list | tuple):
            lengths = [whole_number("frames", one, 1) for one in self.frames]
            if not 0 < len(set(lengths)) == len(lengths) <= _MOST_LENGTHS:
                raise UsageError(f"frames={self.frames!r} must be one number, or up to {_MOST_LENGTHS} different ones")
            object.__setattr__(self, "frames", lengths[0] if len(lengths) == 1 else tuple(sorted(lengths)))
        for name in ("frames", "stride", "step", "per_video"):
            value = getattr(self, name)
            if (value is not None or name in ("frames", "stride")) and not isinstance(value, tuple):
                object.__setattr__(self, name, whole_number(name, value, 1))
        if self.step is not None and self.per_video is not None:
            raise UsageError(f"step={self.step} and per_video={self.per_video} exclude each other: leave one out")
        if self.short not in SHORT:
            raise UsageError(f"short={self.short!r} must be one of {', '.join(map(repr, SHORT))}")

    @property
    def lengths(self) -> tuple[int, ...]:
        return self.frames if isinstance(self.frames, tuple) else (self.frames,)

    def span(self, frames: Whole) -> Whole:
        """Rows from the first frame of a clip to its last, both included."""
        return (frames - 1) * self.stride + 1

    def spacing(self, frames: Whole) -> Whole | int:
        """Rows from one possible start of a clip to the next."""
        return 1 if self.per_video is not None else self.step or frames * self.stride


class ClipTable:
    """All clips of a reader, numbered in the order of videos and frames; random clips are numbered `per_video` for each
    video. Any number of threads may use one. It can be pickled."""

    def __init__(self, runs: FrameRuns, shape: ClipShape, mixed: bool = False) -> None:
        self.shape, self._runs, self._mixed = shape, runs, mixed
        begins = np.flatnonzero(np.diff(runs.video, prepend=-1))
        longest = np.maximum.reduceat(runs.length, begins)[runs.video]
        fits = np.searchsorted(shape.span(np.array(shape.lengths)), longest, side="right") - 1
        self._length_of = np.maximum(fits, 0).astype(np.uint8)
        """The number of each run's length among `shape.lengths`: the greatest that the longest run of its video has the
        frames for, or the least."""
        frames = np.array(shape.lengths)[self._length_of]
        self._spacing = np.broadcast_to(shape.spacing(frames), frames.shape)
        starts = np.maximum((runs.length - shape.span(frames)) // self._spacing + 1, 0)
        if shape.short != "drop":
            # A video without a clip gets one in its longest run, or in the first of several.
            without = np.maximum.reduceat(starts, begins)[runs.video] == 0
            runs_without = np.flatnonzero(without & (runs.length == longest))
            starts[runs_without[np.unique(runs.video[runs_without], return_index=True)[1]]] = 1
        # A video's first start is in its first run that has one.
        self._runs_with = np.flatnonzero(starts)
        self._ends = np.cumsum(starts[self._runs_with])
        """Possible starts of clips: how many there are up to the end of each run that has some."""
        self._videos = np.flatnonzero(np.diff(runs.video[self._runs_with], prepend=-1))
        """The first of these runs for each video that has clips."""
        self.left_out = int(runs.video[-1]) + 1 - len(self._videos) if len(runs.video) else 0
        """Videos without a clip, because too few of their frames follow one another."""

    def __len__(self) -> int:
        if self.shape.per_video is not None:
            return len(self._videos) * self.shape.per_video
        return int(self._ends[-1]) if len(self._ends) else 0

    def rows(self, numbers: NDArray[np.int64], seed: int, epoch: int, position: int = -1) -> NDArray[np.int64]:
        """The rows of clips of one length: int64 (n, frames). seed, epoch, position: for random clips, as of `Seeds`;
        others are always the same."""
        run, start = self._places(numbers, seed, epoch, position)
        first, length = self._runs.first[run, None], self._runs.length[run, None]
        count = self.shape.lengths[self._length_of[run[0]] if len(run) else 0]
        frames = start[:, None] + np.arange(0, self.shape.span(count), self.shape.stride)
        if self.shape.short == "repeat_last":
            frames = np.minimum(frames, length - 1)
        elif self.shape.short == "wrap":
            frames %= length
        return first + frames

    def first_rows(self, numbers: NDArray[np.int64] | None = None, seed: int = 0, epoch: int = 0) -> NDArray[np.int64]:
        """The row of each clip's first frame, int64 (n,). numbers: None for all. seed, epoch: as in `rows`."""
        run, start = self._places(numbers, seed, epoch)
        return self._runs.first[run] + start

    def buckets(self, numbers: NDArray[np.int64] | None) -> NDArray[np.uint8]:
        """The number of each clip's length among `shape.lengths`, (n,). numbers: None for all."""
        return self._length_of[self._places(numbers, 0, 0)[0]]

    def check_known(self, classes: Sequence[str] | None, condition: Where | None, where: str | None) -> None:
        """Raise UsageError where random clips cannot be selected by these classes, or by this condition, written
        `where`."""
        if self.shape.per_video is None:
            return
        # Where a random clip begins is not known yet, so its class is known only if the whole video has one.
        if classes is not None and "label" not in self.once:
            raise UsageError("random clips of videos with several labels have no class: select by indices or mask=")
        unknown = [] if condition is None else [name for name in condition.names if name not in (*self.once, INDEX)]
        if unknown:
            raise UsageError(f"where={where!r}: the {unknown[0]!r} of random clips differs from epoch to epoch")

    def fields(self, stored: Mapping[str, Field]) -> dict[str, Field]:
        frames = self.shape.lengths[0] if len(self.shape.lengths) == 1 else None
        return {
            name: field if name in self.once else replace(field, shape=(frames, *field.shape))
            for name, field in stored.items()
        }

    def joined(self, number: int, frames: Sequence[Mapping[str, Any]], stored: Mapping[str, Field]) -> dict[str, Any]:
        """One clip from its frames: arrays, and lists where frames differ in length or size."""
        clip: dict[str, Any] = {CLIP: np.int64(number)}
        for name, field in stored.items():
            values = [frame[name] for frame in frames]
            if name in self.once:
                clip[name] = values[0]
            elif field.in_slot and len({value.shape for value in values}) == 1:
                clip[name] = np.stack(values)
            else:
                clip[name] = values
        return clip

    @property
    def once(self) -> tuple[str, ...]:
        """Fields that have one value for a clip, instead of one for each frame."""
        label = (LABEL,) if self._runs.one_label else ()
        return (VIDEO, *label, STORE) if self._mixed else (VIDEO, *label)

    @cached_property
    def identity(self) -> str:
        """Identifies these clips: part of a state."""
        digest = xxhash.xxh3_64()
        for array in (self._runs.first, self._runs.length, self._runs.video):
            digest.update(np.ascontiguousarray(array, "<i8").data)
        return f"{self.description} {digest.hexdigest()}"

    @property
    def title(self) -> str:
        return f"clips of {self.description}"

    @property
    def description(self) -> str:
        shape = self.shape
        steps = dict.fromkeys(str(shape.spacing(frames)) for frames in shape.lengths)
        how = f"step {' or '.join(steps)}" if shape.per_video is None else f"{shape.per_video} per video"
        return f"{' or '.join(map(str, shape.lengths))} frames, stride {shape.stride}, {how}, {shape.short}"

    def _places(
        self, numbers: NDArray[np.int64] | None, seed: int, epoch: int, position: int = -1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The run of each clip, and where in the run it begins. numbers: None for all."""
        numbers = np.arange(len(self)) if numbers is None else numbers
        places = numbers if self.shape.per_video is None else self._drawn(numbers, seed, epoch, position)
        at = np.searchsorted(self._ends, places, side="right")
        before = np.where(at > 0, self._ends[at - 1], 0)
        run = self._runs_with[at]
        return run, (places - before) * self._spacing[run]

    def _drawn(self, numbers: NDArray[np.int64], seed: int, epoch: int, position: int) -> NDArray[np.int64]:
        """Where each random clip begins: each possible start in its video is equally likely."""
        assert self.shape.per_video is not None
        video, draw = np.divmod(numbers, self.shape.per_video)
        run = self._videos[video]
        before = np.where(run > 0, self._ends[run - 1], 0)
        last = np.append(self._videos[1:], len(self._ends))[video] - 1
        count = (self._ends[last] - before).astype(np.uint64)
        # Each video has its own stream, from the row where its first clip may begin, so that a selection of videos
        # draws the same.
        key = derive_key("clips", seed, epoch)
        own = splitmix(self._runs.first[self._runs_with[run]].astype(np.uint64), key)
        if position >= 0:
            positions = np.arange(position, position + len(numbers), dtype=np.uint64)
            own ^= splitmix(positions, derive_key("repeats", seed, epoch))
        words = splitmix(own + draw.astype(np.uint64), key)
        # The upper half of a word, scaled: for fewer than 2**32 places.
        drawn: NDArray[np.uint64] = (words >> _WORD_HALF) * count >> _WORD_HALF
        return before + drawn.astype(np.int64)


def find_clips(library: Stores, rows: NDArray[np.int64] | None, shape: ClipShape) -> ClipTable:
    """The clips of a library's rows, int64 (n,), or of all its rows. Warns about videos without a clip.

    Raises UsageError where the store does not say which video its samples are from, and where no clip is left.
    """
    if CLIP in library.fields:
        raise UsageError(
            f"the store has a field {CLIP!r}, which is the name of a clip's number: pack it under another name"
        )
    runs = find_runs(library, rows)
    table = ClipTable(runs, shape, library.groups is not None)
    videos = count(int(runs.video[-1]) + 1, "video") if len(runs.video) else ""
    if runs.unordered:
        warn(
            f"the frames of {runs.unordered} of {videos} are not stored in the order of their numbers, "
            " and a clip ends where the next number is lower: pack the frames in their order"
        )
    if table.left_out:
        least = shape.lengths[0]
        problem = (
            f"no {count(shape.span(least), 'consecutive frame')} (frames={least}, stride={shape.stride}) in "
            f"{table.left_out} of {videos}"
        )
        cure = "short='repeat_last' or short='wrap' pads them"
        if not len(table):
            longest = int(runs.length.max())
            raise UsageError(f"{problem}; the longest run has {longest}: use fewer frames or a smaller stride; {cure}")
        warn(f"{problem}, which are left out; {cure}")
    return table
