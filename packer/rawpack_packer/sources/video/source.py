"""Videos as a source of frames: a file, a folder whose first-level subfolders are the classes, or a listing.

A listing names a video, or a part of one, in each row, and its frames have the fields of the row.
"""

# ruff: noqa: PTH113, PTH116, PTH118 - names may be no text
from __future__ import annotations

import os
import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.counts import DTYPES, FRAME, OF_VIDEOS, VIDEO
from rawpack_packer.errors import need
from rawpack_packer.options import opt
from rawpack_packer.sources.base import (
    Containers,
    Item,
    Rows,
    Scanning,
    SourceInfo,
    unseen,
)
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import NOT_SCANNED, bad_name, not_scanned, text_of
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder import class_folders, refuse_splits, scan_folder
from rawpack_packer.sources.folder_scan import FolderScan, Wanted
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.choose import Classes
from rawpack_packer.sources.table.columns import Column, Numbers, Repeated, texts_of
from rawpack_packer.sources.table.named_files import NamedFiles, named_files, source_name
from rawpack_packer.sources.table.table import NO_STATES, Table, TablePart
from rawpack_packer.sources.video import (
    EXTENSIONS,
    SNIFF_BYTES,
    Selection,
    Videos,
    frame_key,
    is_called_video,
    is_video,
    make_selection,
    sniff_video,
)
from rawpack_packer.sources.video.container import VideoFile, length_of
from rawpack_packer.sources.video.decoding import Counting, Decoding, Seeking
from rawpack_packer.sources.video.index import LOST, READ_AGAIN, VideoIndex
from rawpack_packer.text import plain

_OPTIONS = ("fps", "frame_step", "start", "end", "max_frames")
_COUNTS = ("frames_left_out", "videos_without_frames", *OF_VIDEOS)
_WANTED = Wanted(EXTENSIONS, sniff_video, SNIFF_BYTES, IMAGE_EXTENSIONS, "images")
_FIELDS = {name: FieldKind(dtype) for name, dtype in DTYPES.items()}
_reading = threading.local()
"""The column that this thread reads, of each camera: no other of its columns has a video open, however many there
are."""


@dataclass(frozen=True, eq=False)
class TakenFrames:
    """Some frames of one video; or the one sample that stands for a video that cannot be read."""

    file: VideoFile
    video: int
    """Its number in the source."""
    found: VideoIndex | DecodeError
    """These frames, or why there are none."""
    numbers: range | NDArray[np.int64]
    """The number of each of these frames among all frames of its video."""
    frame_bytes: int = 0
    """The share of one frame in the video's file."""
    length: int = 0
    """Bytes of the video's file, before it was cut."""

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def unread(self) -> bool:
        """Whether this stands for a file or folder that was not looked into."""
        return self.file.state[0] == NOT_SCANNED

    @property
    def missing(self) -> float:
        """The share of the file for which the last of these samples stands, an unknown number of frames; 0 where each
        sample is a frame."""
        if isinstance(self.found, DecodeError):
            return not self.unread
        return self.found.cut if (self.found.packet[-1:] == LOST).any() else 0

    def key(self, k: int) -> str:
        """The video's path below the folder, and the number of frame k, "cat/clip.mp4#000123"; the path alone where the
        file was not looked into."""
        return self.file.key if self.unread else frame_key(self.file.key, int(self.numbers[k]))

    def pick(self, rows: Rows) -> TakenFrames:
        found = self.found if isinstance(self.found, DecodeError) else self.found.only(rows)
        return replace(self, found=found, numbers=np.asarray(self.numbers)[rows])


class Frames:
    """Frames of some videos, in order, which name their samples: a column of images; or those of a camera, pixels
    alone. Plain data, except for the video that is open while frames are read."""

    _open: tuple[int, Decoding] | None = None
    """The number here of the video that is open."""

    def __init__(self, videos: Sequence[TakenFrames], camera: str = "") -> None:
        """camera: distinguishes it from columns that are read at the same time."""
        self.videos, self.camera = tuple(videos), camera
        self.ends = np.cumsum([0, *map(len, videos)])

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_open": None}

    def __len__(self) -> int:
        return int(self.ends[-1])

    def value(self, i: int, /) -> Any:
        """Frame i, as an item or the pixels of a camera. The video stays open until a frame of another one is read:
        ascending numbers are decoded in one pass."""
        if self.camera:
            return self.image(i)
        number, k = self._find(i)
        taken, image = self.videos[number], self.image(i)
        assert isinstance(taken.found, VideoIndex)
        fields = {VIDEO: taken.video, FRAME: int(taken.numbers[k]), "pts_seconds": taken.found.seconds(k)}
        return Item(taken.key(k), image, fields, file_bytes=taken.frame_bytes)

    def image(self, i: int) -> NDArray[np.uint8]:
        number, k = self._find(i)
        taken = self.videos[number]
        if isinstance(taken.found, DecodeError):
            raise taken.found
        if self._open is None or self._open[0] != number:
            columns: dict[str, Any] = _reading.__dict__.setdefault("columns", {})
            for column in (columns.get(self.camera, lambda: None)(), self):
                if column is not None:
                    column._close()
            self._open = number, (Counting if taken.found.packets is None else Seeking)(taken.file, taken.found)
            columns[self.camera] = weakref.ref(self)
        return self._open[1].image(k)

    def __del__(self) -> None:
        self._close()

    def key(self, i: int) -> str:
        number, k = self._find(i)
        return self.videos[number].key(k)

    def listed(self, i: int) -> str:
        return text_of(self.videos[self._find(i)[0]].file.listed)

    def pick(self, rows: Rows, /) -> Self:
        """The frames at `rows`, which ascend, with the packets of their videos that it takes to decode them."""
        of, videos = np.searchsorted(self.ends, rows, "right") - 1, list[TakenFrames]()
        for number in np.unique(of).tolist():
            videos.append(self.videos[number].pick(rows[of == number] - int(self.ends[number])))
        return type(self)(videos, self.camera)

    def _find(self, i: int) -> tuple[int, int]:
        """The number here of the video that frame i is of, and the number of the frame there."""
        number = int(np.searchsorted(self.ends, i, "right")) - 1
        return number, i - int(self.ends[number])

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened[1].close()


def frame_table(
    videos: Sequence[tuple[VideoFile, Selection]],
    info: SourceInfo,
    columns: Mapping[str, Column],
    progress: Scanning,
    *,
    lines: NDArray[np.int64] | None = None,
    list_states: NDArray[np.int64] = NO_STATES,
) -> Table:
    """The frames of some videos. videos: each with what is taken of it. info: what is known before they are opened.
    columns: the other fields of the frames, a value for each of the videos. lines: of a listing, that of each video.
    list_states: of the listing, see `Source.states`."""
    taken, counts = _taken(videos, progress)
    frames = Frames(taken)
    info = replace(
        info, noun="frame", video=True, counts={**info.counts, **{name: counts[name] for name in _COUNTS}},
        read_again=counts[READ_AGAIN],
    )  # fmt: skip
    if not len(frames):
        raise UsageError(f"no frame of {info.root} is within {opt.start}, {opt.end} and the other options: widen them")
    video_of = np.repeat(np.arange(len(taken)), np.diff(frames.ends))
    missing = np.array([one.missing for one in taken], np.float64)
    sizes = np.array([0 if one.unread else one.length for one in taken], np.int64)
    stands = np.where(missing > 0, frames.ends[1:] - 1, -1)
    label, names = columns.get("label"), texts_of([text_of(one.file.listed) for one in taken])
    has_labels = info.classes is not None and isinstance(label, Numbers)
    repeated = {name: Repeated(column, video_of) for name, column in columns.items()}
    return Table(
        info,
        TablePart(frames, columns=repeated),
        file_states=np.concatenate([np.array([one.file.state for one in taken], np.int64), list_states]),
        labels=label.values[video_of] if isinstance(label, Numbers) and has_labels else None,
        lines=None if lines is None else lines[video_of],
        groups=Repeated(names, video_of),  # the frames of a video go into one split
        unread=np.asarray(frames.ends[:-1][np.array([one.unread for one in taken], bool)], np.int64),
        containers=Containers("video", frames.ends[:-1], sizes, stands, missing),
        find_videos=lambda: Videos(video_of, [one.file.key for one in taken for _ in range(len(one))]),
    )


def open_videos(
    path: str | os.PathLike[str],
    /,
    *,
    label_depth: int | None = None,
    classes: Classes | None = None,
    skip_unreadable: bool = False,
    progress: Scanning = unseen,
    detected: bool = False,
    **selected: Any,
) -> Table:
    """The frames of all videos below a folder, or of one file: all packets are read, and the first frames are decoded.

    Videos are in path order, and the frames of each one in the order in which they are shown. Every sample has `video`,
    the number of its video in that order; `frame`, the number of the frame among all frames of its video; and
    `pts_seconds`, when it is shown according to the file. Folders become classes as they do for images.

    `info.counts`: those of a folder, with images instead of videos; frames_left_out by the options;
    videos_without_frames, of which the options take none; and those of `counts.OF_VIDEOS`.

    selected: fps, frame_step, start, end, max_frames, see `make_selection`. label_depth, classes, skip_unreadable: see
    `open_folder`. progress: called with the number of videos that are done.

    Raises UsageError where there is no video, or no frame is taken; MissingExtraError without PyAV; UnreadableError
    and PackError as `open_folder`.
    """
    if not os.fspath(path):
        raise UsageError("the source is an empty path: give a video, or a folder of videos")
    where = str(Path(path).absolute())
    root = plain(os.fsencode(where))
    need("av", "video", root)
    selection = make_selection(**selected)
    columns: dict[str, Column] = {}
    said = class_folders(label_depth, classes)
    if (pattern := Listing.of(path)).is_pattern:
        matched = _matched(pattern)
        folder, states = os.path.split(matched.paths[0])[0], matched.states
        paths = [os.fsencode(os.path.split(name)[1]) for name in matched.paths]
        info = replace(FolderScan(folder, _WANTED).info("video", root), paths=matched.paths, flat=False)
    elif os.path.isfile(where):
        folder, name = os.path.split(where)
        found = os.stat(where)
        paths, states = [os.fsencode(name)], np.array([[found.st_size, found.st_mtime_ns]])
        info = replace(FolderScan(folder, _WANTED).info("video", root), paths=(where,), flat=False)
    else:
        scan = scan_folder(path, _WANTED, skip_unreadable=skip_unreadable, classes=said)
        if not scan.samples:
            raise UsageError(f"no video in {root}: {scan.instead()}; give the folder that contains the videos")
        if detected:
            refuse_splits(path, scan)
        folder, files = where, scan.files()
        paths, states = [files.path(i) for i in range(len(files))], files.states
        info = scan.info("video", root)
        if (labels := scan.labels()) is not None:
            columns["label"] = Numbers(labels)
    videos = [(file, selection) for file in _files(folder, paths, map(text_of, paths), states)]
    info = replace(info, fields={**info.fields, **_FIELDS}, options={**selection.options, **said.options})
    return frame_table(videos, info, columns, progress)


def open_listing(
    path: str | os.PathLike[str], /, *, videos: bool | None = None, progress: Scanning = unseen, **options: Any
) -> Table:
    """The images that a listing names, or the frames of its videos. path: of the listing, or of a folder with one, see
    `open_metadata` and `open_downloads`. videos: see `open_list`.

    options: those of `open_list`, and of videos those of `open_videos`. Raises as these do.
    """
    # Here: who packs a folder of videos needs none of this.
    from rawpack_packer.sources.listing.metadata import has_metadata, open_downloads, open_metadata
    from rawpack_packer.sources.listing.reading import open_list
    from rawpack_packer.sources.parquet import listing_files, tables_of_files

    selected = {name: options.pop(name) for name in _OPTIONS if name in options}
    at, open_rows = Listing.of(path), open_list
    if not at.is_file and tables_of_files(at):
        open_rows = open_downloads
    elif at.is_dir and (has_metadata(at) or not listing_files(at)):  # which says what is wrong
        open_rows = open_metadata
    listing = open_rows(path, videos=videos, progress=progress, **options)
    table, where = listing.table, listing.table.info.root
    if not listing.of_videos:
        for name in selected:
            option = getattr(opt, name.replace("_", "-"))
            raise UsageError(f"{option} applies to videos, and {where} lists images; {opt.kind('video')} if not")
        return table
    need("av", "video", where)
    for name, kind_of in table.info.fields.items():
        if kind_of.image:
            raise UsageError(
                f"{opt.fields(f'{name}:image')}: {where} lists videos, and all frames of a video would have the same "
                "image: leave it out, or list the frames as image files"
            )
        if name in DTYPES:
            raise UsageError(
                f"{where}: every frame has a field {name!r} already: rename the column {name!r}, or add "
                f"{opt.path_column(name)} if it has the paths, {opt.key_column(name)} if it names the videos"
            )
    whole = make_selection(**selected)
    if listing.times and (whole.start is not None or whole.end is not None):
        raise UsageError(f"{where} says where its videos start and end: leave out {opt.start} and {opt.end}")
    selections = [replace(whole, start=start, end=end) for start, end in listing.times] or [whole] * len(table)
    images, rows = table.rows.images, range(len(table))
    files = _files(images.root, [os.fsencode(images.listed(i)) for i in rows], map(table.key, rows), images.states)
    fields, chosen_by = {**_FIELDS, **table.info.fields}, {**table.info.options, **whole.options}
    info = replace(table.info, kind="video", fields=fields, options=chosen_by)
    chosen, columns = list(zip(files, selections, strict=True)), table.rows.columns
    return frame_table(chosen, info, columns, progress, lines=table.lines, list_states=table.file_states)


def _matched(pattern: Listing) -> NamedFiles:
    """The videos that a pattern names. Raises UsageError."""
    files = named_files(pattern)
    if len(folders := {os.path.split(name)[0] for name in files.paths}) > 1:
        raise UsageError(
            f"{source_name(pattern)} names videos in several folders, which may be classes: name the folder that they "
            f"are in, {plain(os.path.commonpath(folders))}"
        )
    for name in files.paths:
        if not (is_called_video(one := Listing(name)) or is_video(one)):
            raise UsageError(f"{source_name(pattern)} names {plain(name)} too, which is no video: name the videos only")
    return files


def _files(root: str, paths: Sequence[bytes], names: Iterable[str], states: NDArray[np.int64]) -> Iterator[VideoFile]:
    """paths: below the root. names: of the videos, unique. states: (n, 2), of their files."""
    for path, name, (size, mtime) in zip(paths, names, states.tolist(), strict=True):
        yield VideoFile(os.path.join(root, os.fsdecode(path)), name, (size, mtime), path)


def _taken(videos: Sequence[tuple[VideoFile, Selection]], progress: Scanning) -> tuple[list[TakenFrames], Counter[str]]:
    """The frames that are taken of each video, and the counts of a summary."""
    from rawpack_packer.sources.video.scan import make_indexes

    faults = [not_scanned(file.state) or bad_name(file.listed) for file, _ in videos]
    # A listing may name several parts of one file, which is read through once.
    read = {file.path: file for (file, _), fault in zip(videos, faults, strict=True) if not fault}
    indexes = dict(zip(read, make_indexes(list(read.values()), progress), strict=True))
    taken, counts = [], Counter[str]()
    for number, ((file, selection), fault) in enumerate(zip(videos, faults, strict=True)):
        found = fault or indexes[file.path]
        if isinstance(found, DecodeError):
            length = file.state[0] if fault else length_of(file)
            taken.append(TakenFrames(file, number, found, range(1), length=length))
            continue
        frames: range | NDArray[np.int64] = _picked(found, selection)
        counts.update(found.notes)
        counts["frames_left_out"] += len(found) - len(frames)
        counts["videos_without_frames"] += not len(frames)
        # The whole file is shared among the frames that are taken: packets of others may have to be read too.
        share = file.state[0] // max(1, len(frames))
        if len(frames) == len(found):
            frames = range(len(found))
        else:
            found = found.only(np.asarray(frames))
        taken.append(TakenFrames(file, number, found, frames, share, found.length))
    return taken, counts


def _picked(found: VideoIndex, selection: Selection) -> NDArray[np.int64]:
    """The frames that are taken. Where a video ends early, the one that stands for all that is missing is among them
    whatever the step is, unless the selection ends before."""
    frames = selection.pick(found.times, found.time_base, found.end)
    last = len(found) - 1
    if not found.cut or last in frames:
        return frames
    since = (int(found.times[last]) - int(found.times[0])) * found.time_base
    ended = selection.end is not None and since >= selection.end
    full = selection.max_frames is not None and len(frames) >= selection.max_frames
    return frames if ended or full else np.append(frames, last)
