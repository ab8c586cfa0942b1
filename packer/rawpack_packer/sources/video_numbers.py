"""Numbers videos when frames of several sources go into one store: each video, known by its name, gets one number.

The key of a frame begins with the name of its video, whichever source it is from. One video after another keeps its
number, unless an earlier video has it; then it gets the lowest free number. So the numbers depend on what the store
holds, and not on how many runs packed it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.store.store import Store
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.stores.compatible import KEY
from rawpack_packer.sources.video.part import frame_key

VIDEO, FRAME = "video", "frame"
DTYPES = {VIDEO: "int64", FRAME: "int64", "pts_seconds": "float64"}
"""The fields of every frame that rawpack takes from a video."""
_BLOCK = 1 << 16
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Videos:
    """The video that each of some samples is from."""

    numbers: Rows
    """(n,): `video` of each sample."""
    names: Sequence[str] | None
    """(n,): of each sample's video; None where `video` was not assigned by rawpack, and so stays as it is."""

    def at(self, rows: Rows) -> Videos:
        """The videos of some of the samples."""
        names = self.names
        return Videos(self.numbers[rows], None if names is None else [names[row] for row in rows.tolist()])


@dataclass
class Numbering:
    """The numbers of the videos in one store."""

    _by_name: dict[str, int] = field(default_factory=dict)
    _used: set[int] = field(default_factory=set)

    def keep(self, videos: Videos) -> Rows:
        """The numbers, (n,), of samples that stay as they are."""
        self._used.update(np.unique(videos.numbers).tolist())
        if videos.names is not None:
            for name, number in zip(videos.names, videos.numbers.tolist(), strict=True):
                self._by_name.setdefault(name, number)
        return videos.numbers

    def add(self, videos: Videos) -> Rows:
        """The numbers, (n,), of samples that are added to those that are there."""
        if videos.names is None:
            return self.keep(videos)
        free = itertools.count()
        for name, number in zip(videos.names, videos.numbers.tolist(), strict=True):
            if name not in self._by_name:
                own = number not in self._used
                self._by_name[name] = number if own else next(one for one in free if one not in self._used)
                self._used.add(self._by_name[name])
        return np.array([self._by_name[name] for name in videos.names], np.int64)


def are_frames(fields: Mapping[str, Field | FieldKind]) -> bool:
    """Whether samples with these fields can be frames that rawpack took from videos."""
    return all(
        name in fields and (fields[name].dtype, fields[name].shape) == (dtype, ()) for name, dtype in DTYPES.items()
    )


def videos_in(store: Store, prefix: str = "") -> Videos:
    """The videos of a store whose samples `are_frames`. prefix: what is put before keys."""
    rows = np.arange(len(store))
    numbers, frames = np.empty(len(store), np.int64), np.empty(len(store), np.int64)
    store.columns.take(VIDEO, rows, numbers)
    store.columns.take(FRAME, rows, frames)
    if KEY not in store.fields:
        return Videos(numbers, None)
    blocks = (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
    keys = (prefix + key for block in blocks for key in store.columns.text(KEY, block))
    return Videos(numbers, _names(keys, numbers.tolist(), frames.tolist()))


def _names(keys: Iterable[str], numbers: Sequence[int], frames: Sequence[int]) -> list[str] | None:
    """The name of each sample's video by its key; None where a key is not a frame's, or a video has several numbers."""
    names, known = list[str](), dict[str, int]()
    for key, number, frame in zip(keys, numbers, frames, strict=True):
        name = key.rpartition("#")[0]
        if key != frame_key(name, frame) or known.setdefault(name, number) != number:
            return None
        names.append(name)
    return names
