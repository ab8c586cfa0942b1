"""Videos as a source of frames: a file, or a folder whose first-level subfolders are the classes."""

# ruff: noqa: PTH113, PTH116, PTH118 - names may be no text
from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.counts import OF_VIDEOS
from rawpack_packer.errors import need
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import Item, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import NOT_SCANNED, bad_name, not_scanned, text_of
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder_scan import FolderScan, Wanted, check_folder
from rawpack_packer.sources.video.filetype import EXTENSIONS, SNIFF_BYTES, sniff_video
from rawpack_packer.sources.video.index import VideoFile
from rawpack_packer.sources.video.part import Shot, VideoPart
from rawpack_packer.sources.video.select import Selection, make_selection
from rawpack_packer.sources.video_numbers import DTYPES, Videos
from rawpack_packer.text import plain

OPTIONS = ("fps", "every", "start", "end", "max_frames")
_COUNTS = ("frames_left_out", "videos_without_frames", *OF_VIDEOS)
_WANTED = Wanted(EXTENSIONS, sniff_video, SNIFF_BYTES, IMAGE_EXTENSIONS, "images")


class FrameSource(VideoPart):
    """The frames of some videos, as a `Source`."""

    def __init__(
        self,
        files: VideoFiles,
        selections: Sequence[Selection],
        options: Mapping[str, str],
        progress: Scanning,
    ) -> None:
        """selections: what is taken of each video. options: by which it was selected."""
        shots, counts = _shots(files, selections, progress)
        super().__init__(shots)
        self._paths = files.paths
        times = {name: FieldKind(dtype) for name, dtype in DTYPES.items()}
        self.info = replace(
            files.info,
            fields={**files.info.fields, **times},
            noun="frame",
            options=options,
            counts={**files.info.counts, **{name: counts[name] for name in _COUNTS}},
        )
        if not len(self):
            raise UsageError(
                f"no frame of {files.info.root} is within {opt.start}, {opt.end} and the other options: widen them"
            )

    def __getitem__(self, i: int, /) -> Item:
        """Frame i by itself. To read many, take a `part`, which keeps a video open."""
        return self.part(i, i + 1)[0]

    def part(self, start: int, stop: int, /) -> VideoPart:
        """Frames start <= i < stop, with the packets of their videos that it takes to decode them."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        first, behind = int(np.searchsorted(self._ends, start, "right")) - 1, int(np.searchsorted(self._ends, stop))
        shots = []
        for number in range(first, behind):
            begin, shot = int(self._ends[number]), self._shots[number]
            low, high = max(start - begin, 0), min(stop - begin, len(shot))
            if low < high:
                shots.append(shot.part(low, high))
        return VideoPart(shots)

    def labels(self) -> NDArray[np.int64] | None:
        """(n,): the label of each frame."""
        if self.info.classes is None:
            return None
        return np.repeat([-1 if shot.label is None else shot.label for shot in self._shots], np.diff(self._ends))

    def unread(self) -> NDArray[np.int64]:
        """See `HasUnread`."""
        unread = [shot.file.state[0] == NOT_SCANNED for shot in self._shots]
        return np.asarray(self._ends[:-1][np.array(unread, bool)], np.int64)

    def videos(self) -> Videos:
        """The video of each frame."""
        names = [shot.file.key for shot in self._shots for _ in range(len(shot))]
        return Videos(self.video_of(), names)

    def video_of(self) -> NDArray[np.int64]:
        """(n,): the number of each frame's video."""
        return np.repeat(np.arange(len(self._shots)), np.diff(self._ends))

    def path(self, i: int, /) -> str:
        """The path of a frame's video, below the folder or as it is listed."""
        return text_of(self._paths[self._find(i)[0].video])

    def group(self, i: int, /) -> str:
        """The file of a frame's video: its frames go into one split."""
        return self.path(i)

    def states(self) -> NDArray[np.int64]:
        """(videos, 2), read-only: size in bytes and mtime in ns of each video when it was found."""
        states = np.array([shot.file.state for shot in self._shots], np.int64)
        states.flags.writeable = False
        return states


class VideoSource(FrameSource):
    """The frames of all videos below a folder, or of one file, as a `Source`.

    Videos are in path order, and the frames of each one in the order in which they are shown. Every sample has `video`,
    the number of its video in that order; `frame`, the number of the frame among all frames of its video; and
    `pts_seconds`, when it is shown according to the file. Folders become classes as they do for images.

    `info.counts`: those of a folder, with images instead of videos; frames_left_out by the options;
    videos_without_frames, of which the options take none; and those of `counts.OF_VIDEOS`.
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
        progress: Scanning = unseen,
    ) -> None:
        """Read through every video below `path`: all packets are read, and the first frames are decoded.

        fps, every, start, end, max_frames: see `video.select`. skip_unreadable: see `FolderSource`. progress: called
        with the number of videos that are done.
        Raises UsageError where there is no video, or no frame is taken; MissingExtraError without PyAV; UnreadableError
        and PackError as `FolderSource`.
        """
        if not os.fspath(path):
            raise UsageError("the source is an empty path: give a video, or a folder of videos")
        where = str(Path(path).absolute())
        root = plain(os.fsencode(where))
        need("av", "video", root)
        selection = make_selection(fps, every, start, end, max_frames)
        one = os.path.isfile(where)
        files = _one_file(where, root) if one else _folder(where, root, skip_unreadable=skip_unreadable)
        options = selection_options(selection, every=every, start=start, max_frames=max_frames)
        super().__init__(files, [selection] * len(files.paths), options, progress)


def selection_options(
    selection: Selection, *, every: int | None, start: str | float | None, max_frames: int | None
) -> dict[str, str]:
    """The options that made a selection, see `SourceInfo.options`."""
    return given_options(
        fps=selection.fps,
        every=every,
        start=None if start is None else f"{float(selection.start):g}",
        end=None if selection.end is None else f"{float(selection.end):g}",
        max_frames=max_frames,
    )


@dataclass
class VideoFiles:
    """The video files of a source, before any is opened."""

    root: str
    paths: list[bytes]
    """Below the root."""
    states: list[tuple[int, int]]
    labels: list[int | None]
    info: SourceInfo
    """About the files, before the frames are known."""
    names: list[str] | None = None
    """The name of each video, unique, if that is not its path."""


def _one_file(where: str, shown: str) -> VideoFiles:
    folder, name = os.path.split(where)
    found = os.stat(where)
    info = replace(FolderScan(folder, _WANTED).info("video", shown), paths=(where,), flat=False)
    return VideoFiles(folder, [os.fsencode(name)], [(found.st_size, found.st_mtime_ns)], [None], info)


def _folder(where: str, shown: str, *, skip_unreadable: bool) -> VideoFiles:
    check_folder(where, shown)
    scanned = FolderScan(where, _WANTED)
    scanned.run()
    scanned.check(shown, skip_unreadable=skip_unreadable)
    files = scanned.files()
    if not scanned.samples:
        raise UsageError(f"no video in {shown}: {scanned.instead()}; give the folder that holds the videos")
    paths = [files.path(i) for i in range(len(files))]
    states = [(size, mtime) for size, mtime in files.states.tolist()]
    labels = [None if files.labels is None else int(files.labels[folder]) for folder in files.folder_of]
    return VideoFiles(where, paths, states, labels, scanned.info("video", shown))


def _shots(files: VideoFiles, selections: Sequence[Selection], progress: Scanning) -> tuple[list[Shot], Counter[str]]:
    """The frames that selections take of each video, and the counts of a summary."""
    from rawpack_packer.sources.video.scan import make_indexes

    names = files.names or [text_of(path) for path in files.paths]
    videos = [
        VideoFile(os.path.join(files.root, os.fsdecode(path)), name, state)
        for path, name, state in zip(files.paths, names, files.states, strict=True)
    ]
    faults = [not_scanned(state) or bad_name(path) for path, state in zip(files.paths, files.states, strict=True)]
    # A listing may name several parts of one file, which is read through once.
    read = {file.path: file for file, fault in zip(videos, faults, strict=True) if not fault}
    indexes = dict(zip(read, make_indexes(list(read.values()), progress), strict=True))
    shots, counts = [], Counter[str]()
    for video, (file, selection, fault) in enumerate(zip(videos, selections, faults, strict=True)):
        found, label = fault or indexes[file.path], files.labels[video]
        if isinstance(found, DecodeError):
            shots.append(Shot(file, video, label, found, range(1)))
            continue
        taken = selection.pick(found.times, found.time_base, found.end)
        counts.update(found.notes)
        counts["frames_left_out"] += len(found) - len(taken)
        counts["videos_without_frames"] += not len(taken)
        # The whole file is shared among the frames that are taken: packets of others may have to be read too.
        share = file.state[0] // max(1, len(taken))
        whole = len(taken) == len(found)
        frames, numbers = (found, range(len(found))) if whole else (found.only(taken), taken)
        shots.append(Shot(file, video, label, frames, numbers, share))
    return shots, counts
