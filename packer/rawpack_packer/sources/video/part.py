"""What a worker gets of a source of videos: some frames of some of them, and how to read them."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from rawpack.errors import DecodeError
from rawpack_packer.sources.base import Item
from rawpack_packer.sources.fields import Value
from rawpack_packer.sources.files import NOT_SCANNED
from rawpack_packer.sources.video.index import FramePosition, PacketRun

if TYPE_CHECKING:
    from rawpack_packer.sources.video.frames import Frames


_reading = threading.local()
"""The part that this thread reads: no other of its parts has a video open, however many there are."""


@dataclass(frozen=True, eq=False)
class Shot:
    """Some frames of one video; or the one sample that stands for a video of which nothing can be had."""

    place: FramePosition
    video: int
    """Its number in the source."""
    label: int | None
    run: PacketRun | None
    frame_bytes: int = 0
    """The share of one frame in the video's file."""
    fault: DecodeError | None = None

    def __len__(self) -> int:
        return 1 if self.run is None else len(self.run)


class VideoPart:
    """Frames of some videos, in order. Plain data, but for the video that is open while frames are read."""

    def __init__(self, shots: Sequence[Shot]) -> None:
        self._shots = tuple(shots)
        self._ends = np.cumsum([0, *map(len, shots)])
        self._open: tuple[int, Frames] | None = None
        """Number of a shot, and its frames."""

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int, /) -> Item:
        """Frame i. The last video that was asked for stays open: rising numbers are decoded in one go."""
        key, (number, k) = self.key(i), self._find(i)
        shot = self._shots[number]
        if shot.fault is not None:
            raise shot.fault
        assert shot.run is not None
        image = self._frames(number, shot)[k]
        fields: dict[str, Value] = {
            "video": shot.video, "frame": int(shot.run.numbers[k]), "pts_seconds": shot.run.seconds(k)
        }  # fmt: skip
        if shot.label is not None:
            fields = {"label": shot.label, **fields}
        return Item(key, image, fields, file_bytes=shot.frame_bytes)

    def __del__(self) -> None:
        self._close()

    def key(self, i: int, /) -> str:
        """The video's path below the folder, and the number of the frame: "cat/clip.mp4#000123"."""
        number, k = self._find(i)
        shot = self._shots[number]
        return sample_key(shot.place, 0 if shot.run is None else int(shot.run.numbers[k]))

    def _find(self, i: int) -> tuple[int, int]:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        number = int(np.searchsorted(self._ends, i, "right")) - 1
        return number, i - int(self._ends[number])

    def _frames(self, number: int, shot: Shot) -> Frames:
        from rawpack_packer.sources.video.frames import Frames

        if self._open is None or self._open[0] != number:
            before = getattr(_reading, "part", lambda: None)()
            for part in (before, self):
                if part is not None:
                    part._close()
            assert shot.run is not None
            self._open = number, Frames(shot.place, shot.run)
            _reading.part = weakref.ref(self)
        return self._open[1]

    def _close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None


def sample_key(place: FramePosition, number: int) -> str:
    """The key of a frame of a file; what could not be looked into has its path alone."""
    return place.key if place.state[0] == NOT_SCANNED else frame_key(place.key, number)


def frame_key(video: str, number: int) -> str:
    """The key of a frame: unique, and in the order of the frames up to a million of them."""
    return f"{video}#{number:06d}"
