"""Videos as a source of their frames: a file, or a folder of files, its first-level sub-folders being the classes."""

# ruff: noqa: PTH113, PTH116, PTH118, PTH119, PTH120 - names may be no text
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources.base import Item, SourceInfo, given_options
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import NOT_SCANNED, bad_name, not_scanned, text_of
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder_scan import FolderScan, Wanted, check_folder
from rawpack_packer.sources.video import need_av
from rawpack_packer.sources.video.index import FramePosition, VideoIndex
from rawpack_packer.sources.video.names import EXTENSIONS, SNIFF_BYTES, sniff_video
from rawpack_packer.sources.video.part import Shot, VideoPart, sample_key
from rawpack_packer.sources.video.pixels import NOTES
from rawpack_packer.sources.video.select import Selection, make_selection
from rawpack_packer.sources.video_numbers import Videos
from rawpack_packer.text import plain

OPTIONS = ("fps", "every", "start", "end", "max_frames")


@dataclass(frozen=True, eq=False)
class _Video:
    """A video of the source, and what is taken of it."""

    place: FramePosition
    label: int | None
    found: VideoIndex | DecodeError
    """What is in it, or why nothing of it can be had."""
    numbers: NDArray[np.int64] | None
    """Of the frames that are taken; None for all. Of a video of which nothing can be had there is one sample."""

    def __len__(self) -> int:
        if isinstance(self.found, DecodeError):
            return 1
        return len(self.found) if self.numbers is None else len(self.numbers)

    def number(self, k: int) -> int:
        """Number in the video of the k-th that is taken."""
        return k if self.numbers is None else int(self.numbers[k])

    def shot(self, video: int, start: int, stop: int) -> Shot:
        """Those from the start-th to the stop-th that are taken."""
        if isinstance(self.found, DecodeError):
            return Shot(self.place, video, self.label, None, fault=self.found)
        numbers = np.arange(start, stop, dtype=np.int64) if self.numbers is None else self.numbers[start:stop]
        # Of all frames that are taken: the others, whose packets may have to be read too, are paid for by these.
        return Shot(self.place, video, self.label, self.found.run(numbers), self.place.state[0] // len(self))


class VideoSource:
    """The frames of all videos below a folder, or of one file, as a `Source`.

    Videos are in path order, and the frames of each one after another as they are shown. Every sample has `video`, the
    number of its video in that order; `frame`, the number of the frame among all frames of its video; and
    `pts_seconds`, when it is shown, as the file says. Folders are classes as those of images are.

    `info.counts`: those of a folder, with images instead of videos; frames_left_out by the options;
    videos_without_frames, where they leave none; and those of `pixels.NOTES`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        fps: str | float | None = None,
        every: int | None = None,
        start: str | float | None = None,
        end: str | float | None = None,
        max_frames: int | None = None,
        skip_unreadable: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Look through every video below `path`: all of its packets are read, and its first frames decoded.

        fps, every, start, end, max_frames: see `video.select`. skip_unreadable: see `FolderSource`. progress: told how
        many videos were looked through.
        Raises UsageError where there is no video, or no frame is taken; MissingExtraError without PyAV; UnreadableError
        and PackError as `FolderSource`.
        """
        from rawpack_packer.sources.video.scan import make_indexes

        if not os.fspath(path):
            raise UsageError("the source is an empty path: give a video, or a folder of videos")
        where = str(Path(path).absolute())
        root = plain(os.fsencode(where))
        need_av(root)
        selection = make_selection(fps, every, start, end, max_frames)
        options = given_options(
            fps=selection.fps,
            every=every,
            start=None if start is None else f"{float(selection.start):g}",
            end=None if selection.end is None else f"{float(selection.end):g}",
            max_frames=max_frames,
        )
        one = os.path.isfile(where)
        files = _one_file(where, root) if one else _folder(where, root, skip_unreadable=skip_unreadable)
        good = [number for number in range(len(files.places)) if number not in files.faults]
        found: dict[int, VideoIndex | DecodeError] = dict(files.faults)
        found.update(zip(good, make_indexes([files.places[number] for number in good], progress), strict=True))
        self._videos = [
            _Video(place, files.labels[number], found[number], _picked(found[number], selection))
            for number, place in enumerate(files.places)
        ]
        self._ends = np.cumsum([0, *map(len, self._videos)])
        times = {"video": FieldKind("int64"), "frame": FieldKind("int64"), "pts_seconds": FieldKind("float64")}
        self.info = replace(
            files.info,
            fields={**files.info.fields, **times},
            noun="frame",
            options=options,
            counts={**files.info.counts, **self._counted()},
        )
        if not len(self):
            raise UsageError(f"no frame of {root} lies in what --start, --end and the like leave: widen them")

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, i: int, /) -> Item:
        self._find(i)
        return self.part(i, i + 1)[0]

    def key(self, i: int, /) -> str:
        """The video's path below the folder, and the number of the frame: "cat/clip.mp4#000123"."""
        number, k = self._find(i)
        return sample_key(self._videos[number].place, self._videos[number].number(k))

    def part(self, start: int, stop: int, /) -> VideoPart:
        """Frames start <= i < stop, with what of their videos' packets it takes to decode them."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        first, last = (int(np.searchsorted(self._ends, at, "right")) - 1 for at in (start, max(start, stop - 1)))
        shots = []
        for number in range(first, last + 1 if stop > start else first):
            begin, end = int(self._ends[number]), int(self._ends[number + 1])
            if end > begin:
                shots.append(self._videos[number].shot(number, max(start, begin) - begin, min(stop, end) - begin))
        return VideoPart(shots)

    def labels(self) -> NDArray[np.int64] | None:
        """(n,): the label of each frame."""
        if self.info.classes is None:
            return None
        return np.repeat([-1 if video.label is None else video.label for video in self._videos], np.diff(self._ends))

    def unread(self) -> NDArray[np.int64]:
        """See `HasUnread`."""
        unread = [video.place.state[0] == NOT_SCANNED for video in self._videos]
        return np.asarray(self._ends[:-1][np.array(unread, bool)], np.int64)

    def videos(self) -> Videos:
        """The video of each frame."""
        frames = np.diff(self._ends)
        names = [video.place.key for video, count in zip(self._videos, frames, strict=True) for _ in range(count)]
        return Videos(np.repeat(np.arange(len(self._videos)), frames), names)

    def group(self, i: int, /) -> str:
        """The video of a frame: its frames go into one split."""
        return self._videos[self._find(i)[0]].place.key

    def states(self) -> NDArray[np.int64]:
        """(videos, 2), read-only: size in bytes and mtime in ns of each video when it was found."""
        states = np.array([video.place.state for video in self._videos], np.int64)
        states.flags.writeable = False
        return states

    def _find(self, i: int) -> tuple[int, int]:
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        number = int(np.searchsorted(self._ends, i, "right")) - 1
        return number, i - int(self._ends[number])

    def _counted(self) -> dict[str, int]:
        notes: Counter[str] = Counter()
        left_out = without = 0
        for video in self._videos:
            if isinstance(video.found, VideoIndex):
                notes.update(video.found.notes)
                left_out += len(video.found) - len(video)
                without += not len(video)
        return {"frames_left_out": left_out, "videos_without_frames": without} | {name: notes[name] for name in NOTES}


def _picked(found: VideoIndex | DecodeError, selection: Selection) -> NDArray[np.int64] | None:
    if isinstance(found, DecodeError) or selection == Selection():
        return None
    return found.pick(selection)


@dataclass
class _Scanned:
    """The video files of a source, before any was looked into."""

    places: list[FramePosition]
    labels: list[int | None]
    faults: dict[int, DecodeError]
    """Of those that cannot be had for their names, and what could not be looked into."""
    info: SourceInfo
    """Of the files, before the frames are known."""


def _one_file(where: str, shown: str) -> _Scanned:
    found = os.stat(where)
    name = os.fsencode(os.path.basename(where))
    scan = FolderScan(os.path.dirname(where), _WANTED, None)
    place = FramePosition(where, text_of(name), (found.st_size, found.st_mtime_ns))
    return _Scanned([place], [None], _bad_names([name]), replace(scan.info("video", shown), paths=(where,), flat=False))


def _folder(where: str, shown: str, *, skip_unreadable: bool) -> _Scanned:
    check_folder(where, shown)
    scan = FolderScan(where, _WANTED, None)
    scan.run()
    scan.check(shown, skip_unreadable=skip_unreadable)
    files = scan.files()
    if not scan.samples:
        raise UsageError(
            f"no video in {shown} ({scan.counts['images']} images, {scan.counts['other_files']} other files, "
            f"{scan.counts['problems']} problems): give the folder that holds the videos"
        )
    paths = [files.path(i) for i in range(len(files))]
    states = files.states.tolist()
    places = [
        FramePosition(os.path.join(where, os.fsdecode(path)), text_of(path), (size, mtime))
        for path, (size, mtime) in zip(paths, states, strict=True)
    ]
    labels: list[int | None] = [None] * len(paths)
    if files.labels is not None:
        labels = [int(files.labels[folder]) for folder in files.folder_of]
    return _Scanned(places, labels, _bad_names(paths) | _not_scanned(places), scan.info("video", shown))


def _bad_names(paths: Sequence[bytes]) -> dict[int, DecodeError]:
    return {number: error for number, path in enumerate(paths) if (error := bad_name(path)) is not None}


def _not_scanned(places: Sequence[FramePosition]) -> dict[int, DecodeError]:
    return {number: error for number, place in enumerate(places) if (error := not_scanned(place.state)) is not None}


_WANTED = Wanted(EXTENSIONS, sniff_video, SNIFF_BYTES, IMAGE_EXTENSIONS, "images")
