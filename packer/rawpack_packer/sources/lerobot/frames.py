"""The frames of a camera as a column, found by their times as LeRobot finds them: that of the video which is closest to
the time at which the episode begins there and the row's own time together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import Item, Rows
from rawpack_packer.sources.table.table import ImageColumn
from rawpack_packer.sources.video.index import LOST, VideoIndex
from rawpack_packer.sources.video.source import Frames

TOLERANCE_S = 1e-4
"""By which LeRobot lets times differ, unless it is told otherwise."""

_LONGEST_S = 1e6
"""Of times in messages."""


class CameraFrames(Frames):
    """The frames of a camera, episode after episode: pixels alone."""

    def value(self, i: int, /) -> NDArray[np.uint8]:  # type: ignore[override]  # rows name the samples
        return self.image(i)


@dataclass(frozen=True)
class WithBytes:
    """The first camera's pictures, and the bytes of all files that a frame accounts for."""

    images: ImageColumn
    share: int

    def value(self, i: int, /) -> Item:
        image: Any = self.images.value(i)
        return Item("", image, {}, file_bytes=self.share)

    def pick(self, rows: Rows, /) -> WithBytes:
        return WithBytes(self.images.pick(rows), self.share)


def frames_at(index: VideoIndex, seconds: NDArray[np.float64], period: float) -> tuple[VideoIndex, int]:
    """The frames of a video that are shown at these times, LOST where none is close or times go back; and
    how many are further from their times than LeRobot allows."""
    times = index.times * float(index.time_base)
    after = np.searchsorted(times, seconds).clip(max=len(times) - 1)
    before = (after - 1).clip(min=0)
    nearest = np.where(seconds - times[before] <= times[after] - seconds, before, after)
    off = np.abs(times[nearest] - seconds)
    missing = ~(off <= period / 2)  # not a number is missing too
    ascending = np.maximum.accumulate(np.where(missing, 0, nearest))
    missing |= ascending != nearest
    found = index.only(ascending)
    if missing.any():
        asked = np.nan_to_num(seconds).clip(-_LONGEST_S, _LONGEST_S)
        why = f"the last one of {len(times):,} is at {times[-1]:.3f} s"
        if not (asked[missing] > times[-1]).all():
            why = f"none of {len(times):,} is within {period / 2:.3f} s of it, or the row is out of order"
        found = replace(
            found,
            packet=np.where(missing, LOST, found.packet).astype(np.int32),
            times=np.where(missing, np.rint(asked / float(index.time_base)), found.times).astype(np.int64),
            lost=("truncated", f"the video has no frame for its row: {why}"),
        )
    return found, int(((off > TOLERANCE_S) & ~missing).sum())
