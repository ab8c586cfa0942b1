"""The frames of videos: what a video is by its name, which of its frames are taken, and what they are called.

The other modules of this room read video files: PyAV, which comes with `rawpack[video]`, is imported inside functions
only.

The key of a frame begins with the name of its video, whichever source it is from. When frames of several sources go
into one store, each video, known by its name, gets one number. One video after another keeps its number, unless an
earlier video has it; then it gets the lowest free number. So the numbers depend on what the store holds, and not on how
many runs packed it.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.counts import FRAME, VIDEO
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows, given_options
from rawpack_packer.sources.look.listing import Listing

if TYPE_CHECKING:
    from rawpack.store.store import Store

EXTENSIONS = frozenset(
    (
        ".mp4", ".m4v", ".mov", ".qt", ".3gp", ".3g2", ".mkv", ".webm", ".avi", ".divx", ".mpg", ".mpeg", ".vob",
        ".m2ts", ".mts", ".wmv", ".asf", ".flv", ".f4v", ".ogv", ".mxf", ".nut", ".y4m", ".ivf", ".obu", ".dv", ".rm",
        ".rmvb", ".h264", ".264", ".h265", ".265", ".hevc", ".m2v",
    )
)  # fmt: skip
"""A file with one of these is a video without a look inside. Not .ts, which is more often TypeScript."""
SNIFF_BYTES = 400
"""Enough for three packets of a transport stream."""
_TS_PACKET = 188
_BOXES = (b"moov", b"mdat", b"wide")
_IMAGE_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1", b"avif", b"avis", b"crx ", b"jpeg")
_AUDIO_BRANDS = (b"M4A ", b"M4B ", b"M4P ", b"F4A ", b"F4B ")
EBML = b"\x1a\x45\xdf\xa3"
_KEY = "key"
_BLOCK = 1 << 16
_MAX_FPS = 1000


def sniff_video(first: bytes) -> bool:
    """Whether a file that begins with these bytes, `SNIFF_BYTES` of them, is probably a video."""
    if first[4:8] == b"ftyp":
        return first[8:12] not in _IMAGE_BRANDS + _AUDIO_BRANDS
    if first[4:8] in _BOXES or (first[:4] == b"RIFF" and first[8:12] == b"AVI "):
        return True
    if first.startswith((EBML, b"\0\0\1\xba", b"\0\0\1\xb3", b"DKIF", b"FLV\1", b"YUV4MPEG2 ")):
        return True
    return len(first) > 2 * _TS_PACKET and all(first[at] == 0x47 for at in (0, _TS_PACKET, 2 * _TS_PACKET))


def names_video(path: object) -> bool:
    """Whether a path is that of a video by its name alone."""
    return os.path.splitext(str(path))[1].lower() in EXTENSIONS  # noqa: PTH122 - for each of a million


def is_called_video(listing: Listing) -> bool:
    """Whether a file is a video by its name."""
    return names_video(listing.path)


def is_video(listing: Listing) -> bool:
    """Whether a file is a video by its first bytes."""
    return sniff_video(listing.head[:SNIFF_BYTES])


def library() -> str:
    """The decoder of videos with versions: "pyav 18.1.0, libavcodec 62.28.100, libswscale 9.5.100"; "none" without."""
    if importlib.util.find_spec("av") is None:
        return "none"
    import av

    parts = (f"{name} {'.'.join(map(str, av.library_versions[name]))}" for name in ("libavcodec", "libswscale"))
    return f"pyav {av.__version__}, {', '.join(parts)}"


@dataclass(frozen=True)
class Selection:
    """What is taken of every video. Times are seconds since its first frame. Make one with `make_selection`."""

    fps: Fraction | None = None
    frame_step: int | None = None
    start: Fraction | None = None
    end: Fraction | None = None
    max_frames: int | None = None

    @property
    def options(self) -> dict[str, str]:
        """What of it was given, see `SourceInfo.options`."""
        start, end = (None if at is None else f"{float(at):g}" for at in (self.start, self.end))
        return given_options(fps=self.fps, frame_step=self.frame_step, start=start, end=end, max_frames=self.max_frames)

    def pick(self, times: NDArray[np.int64], unit: Fraction, end: int) -> NDArray[np.int64]:
        """Numbers of the frames that are taken, ascending.

        times: (n,), ascending, in units of `unit` seconds, as in the file. end: when the last frame ends.
        """
        if not len(times):
            return np.empty(0, np.int64)
        since, start = times - times[0], self.start or Fraction(0)
        if self.fps is not None:
            last = (end - int(times[0])) * unit
            last = last if self.end is None else min(self.end, last)
            # The frame that is shown at each tick, once. Its time is rounded to a unit, and may be that much after the
            # tick that it was made for. In whole numbers: tick k is at (a + k b) / c units.
            first, step = start / unit, 1 / (self.fps * unit)
            c = first.denominator * step.denominator
            a, b = int(first * c), int(step * c)
            count = max(0, -((start - last) * self.fps // 1))
            limits = np.fromiter((-(-(a + k * b) // c) for k in range(count)), np.int64, count)
            numbers = np.searchsorted(since, limits, "right") - 1
            picked = np.unique(numbers[numbers >= 0]).astype(np.int64)
        else:
            # The first frames that are shown at or after these times.
            low = int(np.searchsorted(since, -(-start // unit)))
            high = len(times) if self.end is None else int(np.searchsorted(since, -(-self.end // unit)))
            picked = np.arange(low, max(low, high), self.frame_step or 1, dtype=np.int64)
        return picked[: self.max_frames]


def make_selection(
    fps: str | float | None = None,
    frame_step: int | None = None,
    start: str | float | None = None,
    end: str | float | None = None,
    max_frames: int | None = None,
) -> Selection:
    """A selection from what a user wrote. Raises UsageError for invalid values."""
    if fps is not None and frame_step is not None:
        raise UsageError(f"{opt.fps} and {opt.frame_step} both set how many frames are taken: leave one out")
    try:
        rate = None if fps is None else Fraction(str(fps).strip())
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if rate is not None and not 0 < rate <= _MAX_FPS:
        raise UsageError(
            f"{opt.fps(repr(str(fps)))}: must be frames per second above 0 and up to {_MAX_FPS}, such as 2, 29.97 or "
            "30000/1001"
        )
    for option, value in ((opt.frame_step, frame_step), (opt.max_frames, max_frames)):
        if value is not None and value < 1:
            raise UsageError(f"{option(value)}: must be 1 or more")
    begin, stop = (None if at is None else seconds(one, str(at)) for one, at in ((opt.start, start), (opt.end, end)))
    if stop is not None and stop <= (begin or 0):
        raise UsageError(f"{opt.end(end)} is not after {opt.start(start or 0)}: there is no frame between them")
    return Selection(rate, frame_step, begin, stop, max_frames)


def seconds(option: Callable[[str], str], text: str) -> Fraction:
    """A time as seconds ("90", "1.5"), or as "HH:MM:SS" or "MM:SS", whose seconds may have decimals."""
    match = re.fullmatch(r"(?:(?:(\d{1,4}):)?(\d{1,2}):)?(\d{1,9}(?:\.\d{1,9})?)", text.strip())
    if not match or (match[2] and (float(match[3]) >= 60 or (match[1] and int(match[2]) >= 60))):
        raise UsageError(f"{option(repr(text))}: must be seconds such as 90 or 1.5, or a time such as 0:01:30")
    return Fraction(match[3]) + 60 * int(match[2] or 0) + 3600 * int(match[1] or 0)


def frame_key(video: str, number: int) -> str:
    """The key of a frame: unique, and in the order of the frames up to a million of them."""
    return f"{video}#{number:06d}"


@dataclass(frozen=True, eq=False)
class Videos:
    """The video that each of some samples is from."""

    numbers: Rows
    """(n,): `video` of each sample."""
    names: Sequence[str] | None
    """(n,): of each sample's video; None where `video` was not assigned by rawpack, and so stays as it is."""

    def at(self, rows: Rows) -> Videos:
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
                if number in self._used:
                    number = next(one for one in free if one not in self._used)
                self._by_name[name] = number
                self._used.add(number)
        return np.array([self._by_name[name] for name in videos.names], np.int64)


def videos_in(store: Store, prefix: str = "") -> Videos:
    """The videos of a store whose samples `are_frames`. prefix: what is put before keys."""
    rows = np.arange(len(store))
    numbers, frames = np.empty(len(store), np.int64), np.empty(len(store), np.int64)
    store.columns.take(VIDEO, rows, numbers)
    store.columns.take(FRAME, rows, frames)
    if _KEY not in store.fields:
        return Videos(numbers, None)
    blocks = (rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK))
    keys = (prefix + key for block in blocks for key in store.columns.text(_KEY, block))
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
