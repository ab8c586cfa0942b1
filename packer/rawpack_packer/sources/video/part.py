"""The frames of videos in one part, as samples, and how a worker reads them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.base import Item
from rawpack_packer.sources.fields import Value
from rawpack_packer.sources.files import NOT_SCANNED
from rawpack_packer.sources.video.decoding import Counting, Decoding
from rawpack_packer.sources.video.index import VideoFile, VideoIndex
from rawpack_packer.sources.video.seeking import Seeking

_reading = threading.local()
"""The part that this thread reads: no other of its parts has a video open, however many there are."""


@dataclass(frozen=True, eq=False)
class Shot:
    """Some frames of one video; or the one sample that stands for a video that cannot be read."""

    file: VideoFile
    video: int
    """Its number in the source."""
    label: int | None
    found: VideoIndex | DecodeError
    """These frames, or why there are none."""
    numbers: range | NDArray[np.int64]
    """The number of each of these frames among all frames of its video."""
    frame_bytes: int = 0
    """The share of one frame in the video's file."""

    def __len__(self) -> int:
        return len(self.numbers)

    def key(self, k: int) -> str:
        """The video's path below the folder, and the number of frame k; the path alone where the file was
        not looked into."""
        unread = self.file.state[0] == NOT_SCANNED
        return self.file.key if unread else frame_key(self.file.key, int(self.numbers[k]))

    def part(self, start: int, stop: int) -> Shot:
        """Frames start <= k < stop."""
        if isinstance(self.found, DecodeError):
            return self
        return replace(self, found=self.found.only(np.arange(start, stop)), numbers=self.numbers[start:stop])


class VideoPart:
    """Frames of some videos, in order. Plain data, except for the video that is open while frames are read."""

    _open: tuple[Shot, Decoding] | None = None

    def __init__(self, shots: Sequence[Shot]) -> None:
        self._shots = tuple(shots)
        self._ends = np.cumsum([0, *map(len, shots)])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int, /) -> Item:
        """Frame i. The video stays open until a frame of another one is read: ascending numbers are decoded in one
        pass."""
        shot, k = self._find(i)
        if isinstance(shot.found, DecodeError):
            raise shot.found
        image = self._decoding(shot, shot.found).image(k)
        fields: dict[str, Value] = {} if shot.label is None else {"label": shot.label}
        fields |= {"video": shot.video, "frame": int(shot.numbers[k]), "pts_seconds": shot.found.seconds(k)}
        return Item(shot.key(k), image, fields, file_bytes=shot.frame_bytes)

    def __del__(self) -> None:
        self._close()

    def key(self, i: int, /) -> str:
        """The video's path below the folder, and the number of the frame: "cat/clip.mp4#000123"."""
        shot, k = self._find(i)
        return shot.key(k)

    def _find(self, i: int) -> tuple[Shot, int]:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        number = int(np.searchsorted(self._ends, i, "right")) - 1
        return self._shots[number], i - int(self._ends[number])

    def _decoding(self, shot: Shot, index: VideoIndex) -> Decoding:
        if self._open is None or self._open[0] is not shot:
            before = getattr(_reading, "part", lambda: None)()
            for part in (before, self):
                if part is not None:
                    part._close()
            self._open = shot, (Counting if index.packets is None else Seeking)(shot.file, index)
            _reading.part = weakref.ref(self)
        return self._open[1]

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def frame_key(video: str, number: int) -> str:
    """The key of a frame: unique, and in the order of the frames up to a million of them."""
    return f"{video}#{number:06d}"
