"""Computes the rows of each clip: a function of the clip's number and, for random clips, of seed and epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import xxhash
from msgspec.structs import replace
from numpy.typing import NDArray

from rawpack.clips.runs import LABEL, VIDEO, FrameRuns, find_runs
from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.order.keys import derive_key, whole_number
from rawpack.order.permutation import splitmix
from rawpack.store.common import STORE
from rawpack.store.concatenated import CLIP, INDEX, ConcatenatedStore
from rawpack.system.warning import warn

Short = Literal["drop", "repeat_last", "wrap"]
SHORT: tuple[Short, ...] = ("drop", "repeat_last", "wrap")
_WORD_HALF = np.uint64(32)


@dataclass(frozen=True)
class ClipShape:
    """The options of `Reader.clips`."""

    frames: int
    stride: int = 1
    step: int | None = None
    """None: a clip begins where the one before it ends."""
    per_video: int | None = None
    short: Short = "drop"

    def __post_init__(self) -> None:
        """Raises UsageError where an option is invalid."""
        for name in ("frames", "stride", "step", "per_video"):
            value = getattr(self, name)
            if value is not None or name in ("frames", "stride"):
                object.__setattr__(self, name, whole_number(name, value, 1))
        if self.step is not None and self.per_video is not None:
            raise UsageError(f"step={self.step} and per_video={self.per_video} exclude each other: leave one out")
        if self.short not in SHORT:
            raise UsageError(f"short={self.short!r} must be one of {', '.join(map(repr, SHORT))}")

    @property
    def span(self) -> int:
        """Rows from a clip's first frame to its last, both included."""
        return (self.frames - 1) * self.stride + 1

    @property
    def spacing(self) -> int:
        """Rows from one possible start of a clip to the next."""
        return 1 if self.per_video is not None else self.step or self.frames * self.stride


class ClipTable:
    """All clips of a reader, numbered in the order of videos and frames; random clips are numbered `per_video` for each
    video. Any number of threads may use one. It can be pickled."""

    def __init__(self, runs: FrameRuns, shape: ClipShape, mixed: bool = False) -> None:
        """mixed: whether they are clips of a mix."""
        self.shape, self._runs, self._mixed = shape, runs, mixed
        starts = np.maximum((runs.length - shape.span) // shape.spacing + 1, 0)
        self._fill_up(starts)
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
        """The rows of clips: int64 (n, frames). seed, epoch, position: for random clips, as of `Seeds`; others are
        always the same."""
        run, start = self._places(numbers, seed, epoch, position)
        first, length = self._runs.first[run, None], self._runs.length[run, None]
        frames = start[:, None] + np.arange(0, self.shape.span, self.shape.stride)
        if self.shape.short == "repeat_last":
            frames = np.minimum(frames, length - 1)
        elif self.shape.short == "wrap":
            frames %= length
        return first + frames

    def first_rows(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each clip's first frame, int64 (n,); for random clips those of epoch 0 of seed 0."""
        run, start = self._places(numbers, 0, 0)
        return self._runs.first[run] + start

    def fields(self, stored: Mapping[str, Field]) -> dict[str, Field]:
        """The fields of a clip, from those of a frame."""
        return {
            name: field if name in self.once else replace(field, shape=(self.shape.frames, *field.shape))
            for name, field in stored.items()
        }

    def joined(self, number: int, frames: Sequence[Mapping[str, Any]], stored: Mapping[str, Field]) -> dict[str, Any]:
        """One clip from its frames: arrays, and lists where frames differ in length or size."""
        clip: dict[str, Any] = {CLIP: np.int64(number)}
        for name in (*stored, INDEX):
            values = [frame[name] for frame in frames]
            in_slot = name == INDEX or stored[name].in_slot
            if name in self.once:
                clip[name] = values[0]
            elif in_slot and len({value.shape for value in values}) == 1:
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
    def description(self) -> str:
        """The options, in words."""
        shape = self.shape
        how = f"step {shape.spacing}" if shape.per_video is None else f"{shape.per_video} per video"
        return f"{shape.frames} frames, stride {shape.stride}, {how}, {shape.short}"

    def _places(
        self, numbers: NDArray[np.int64], seed: int, epoch: int, position: int = -1
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The run of each clip, and where in the run it begins."""
        places = numbers if self.shape.per_video is None else self._drawn(numbers, seed, epoch, position)
        at = np.searchsorted(self._ends, places, side="right")
        before = np.where(at > 0, self._ends[at - 1], 0)
        return self._runs_with[at], (places - before) * self.shape.spacing

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

    def _fill_up(self, starts: NDArray[np.int64]) -> None:
        """Unless short videos are dropped, give each video without a clip one in its longest run, in place."""
        runs = self._runs
        if self.shape.short == "drop" or not len(starts):
            return
        begins = np.flatnonzero(np.diff(runs.video, prepend=-1))
        without = np.add.reduceat(starts, begins) == 0
        # The longest run of each video, or the first of several: sorted by video, then length, then backwards.
        order = np.lexsort((-np.arange(len(starts)), runs.length, runs.video))
        longest = order[np.append(begins[1:], len(starts)) - 1]
        starts[longest[without]] = 1


def find_clips(library: ConcatenatedStore, rows: NDArray[np.int64] | None, shape: ClipShape) -> ClipTable:
    """The clips of a library's rows, int64 (n,), or of all its rows. Warns about videos without a clip.

    Raises UsageError where the store does not say which video its samples are from, and where no clip is left.
    """
    if CLIP in library.fields:
        raise UsageError(
            f"the store has a field {CLIP!r}, which is the name of a clip's number: pack it under another name"
        )
    runs = find_runs(library, rows)
    table = ClipTable(runs, shape, library.groups is not None)
    if table.left_out:
        problem = (
            f"no {shape.span} consecutive frames (frames={shape.frames}, stride={shape.stride}) in {table.left_out} of "
            f"{int(runs.video[-1]) + 1} videos"
        )
        cure = "short='repeat_last' or short='wrap' pads them"
        if not len(table):
            longest = int(runs.length.max())
            raise UsageError(f"{problem}; the longest run has {longest}: use fewer frames or a smaller stride; {cure}")
        warn(f"{problem}, which are left out; {cure}")
    return table
