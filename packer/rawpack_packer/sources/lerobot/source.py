"""The rows of a LeRobot dataset as a source: a frame of each camera, and what else a row has."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack_packer.counts import DTYPES, OF_VIDEOS
from rawpack_packer.errors import need
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Column, Item, Rows, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import RESERVED, FieldKind, ImageKind
from rawpack_packer.sources.files import parsing
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.lerobot import INFO, meta
from rawpack_packer.sources.lerobot.meta import IMAGE, Episode, RobotFolder, RobotInfo
from rawpack_packer.sources.parquet.source import ArrowColumn, ArrowRows
from rawpack_packer.sources.parquet.tables import image_entries, leaf_dtype, open_table
from rawpack_packer.sources.table.assemble import table_of
from rawpack_packer.sources.table.choose import named_columns
from rawpack_packer.sources.table.columns import Numbers, Repeated, texts_of
from rawpack_packer.sources.table.named_files import NamedFiles, source_name
from rawpack_packer.sources.table.table import ImageColumn, Table
from rawpack_packer.sources.video import Videos, frame_key, scan
from rawpack_packer.sources.video.container import VideoFile
from rawpack_packer.sources.video.index import LOST, READ_AGAIN, VideoIndex
from rawpack_packer.sources.video.source import Frames, TakenFrames
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_EPISODE, _FRAME = "episode_index", "frame_index"
_HOLDS: dict[str, meta.Holds] = {
    _EPISODE: "whole numbers", _FRAME: "whole numbers", "timestamp": "numbers", "task_index": "whole numbers"
}  # fmt: skip
"""What each row has."""
_TEXT = "task"
"""What LeRobot adds to each row: the text of its task."""
_LONGEST_NAME = 60
_ROW = "index"
"""The number of a row, which every sample of a store has anyway."""
_TOLERANCE_S = 1e-4
"""By which LeRobot lets times differ, unless it is told otherwise."""
_LONGEST_S = 1e6
"""Of times in messages."""


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


def open_lerobot(
    path: str | os.PathLike[str],
    /,
    *,
    image_column: str | None = None,
    columns: str | Sequence[str] | None = None,
    episodes: str | Sequence[int] | None = None,
    spool: Spool | None = None,
    progress: Scanning = unseen,
) -> Table:
    """The frames of all episodes, in the order of their files: all rows are looked at, and all packets of the videos.

    A sample is a row: a picture of each camera, the first one as `image`, and the other features by their names, with
    `_` for what the name of a field cannot have. Three fields are those of videos, so that clips are made of episodes:
    `video`, the number of the episode, `frame`, and `pts_seconds`. `task` is the text of `task_index`. Keys are
    `episode_000003#000012`, and the frames of an episode go into one split.

    `info.counts`: columns_left_out, and those of `counts.OF_VIDEOS`.

    image_column: the camera that is `image`; None for the first one of `columns`. columns: the features that become
    fields, cameras included; None for all. episodes: numbers and ranges, "0:50"; None for all. spool: for files behind
    URLs. progress: called with the number of videos that are done.

    Raises UsageError where a file of `meta/` cannot be read, names a file that is not there, or does not fit the rows;
    MissingExtraError without PyAV.
    """
    place, root = meta.place_of(path, spool), source_name(path)
    info = meta.read_info(place)
    image, others = _choose(info, named_columns(columns), image_column, root)
    read = _ReadEpisodes(place, info, (image, *others), episodes, root, progress)
    rows, names = read.rows, _field_names(others)
    stored = {name: field for name in others if (field := read.field(name)) is not None}
    becomes = {image: "image"} | {name: names[name] for name in stored}
    problems = [
        f"feature {plain(name)} is left out: no field can store {info.feature(name)}"
        for name in others
        if name not in stored
    ]
    left_out = len(problems)
    if read.off:
        problems.append(
            f"{read.off:,} frames are shown more than {_TOLERANCE_S:g} s before or after the timestamps of their rows: "
            "the closest were taken, where LeRobot refuses them without tolerance_s="
        )
    about = SourceInfo(
        kind="lerobot",
        root=root,
        paths=() if is_url(place.path) else (place.path,),
        fields={name: FieldKind(dtype) for name, dtype in DTYPES.items()}
        | {names[name]: kind for name, (kind, _) in stored.items()},
        image=ImageKind("uint8", info.features[image].pixels, pictures=True),
        noun="frame",
        video=bool(read.frames),
        options=given_options(image_column=image, columns=",".join(others), episodes=episodes),
        counts={"columns_left_out": left_out, **{name: read.counts[name] for name in OF_VIDEOS}},
        problems=tuple(problems),
        read_again=read.counts[READ_AGAIN],
    )
    called = [f"episode_{number:06d}" for number in rows.episode.tolist()]
    videos = Videos(rows.episode, called)
    times = zip(DTYPES, map(Numbers, (rows.episode, rows.frame, rows.seconds)), strict=True)
    return table_of(
        about,
        texts_of([frame_key(name, k) for name, k in zip(called, rows.frame.tolist(), strict=True)]),
        read.images(image),
        {**dict(times), **{names[name]: column for name, (_, column) in stored.items()}},
        read.states(),
        groups=texts_of(called),
        find_videos=lambda: videos,
        details={
            "features": {
                name: f"{info.feature(name)}, {becomes.get(name, 'left out')}"
                for name in dict.fromkeys([*info.features, *others])
            }
        },
    )


class _ReadEpisodes:
    """What was read of a dataset: its rows, and where their frames are."""

    def __init__(
        self,
        place: RobotFolder,
        info: RobotInfo,
        names: Sequence[str],
        episodes: str | Sequence[int] | None,
        root: str,
        progress: Scanning,
    ) -> None:
        """Look through the rows and videos of some features. Raises UsageError; MissingExtraError without PyAV."""
        self.place, self.info = place, info
        filmed = [name for name in names if info.is_video(name)]
        if filmed:
            need("av", "lerobot", root)
        chosen = meta.read_episodes(place, info, filmed, episodes)
        if not chosen:
            raise UsageError(f"{root} has no frame: its episodes are empty")
        cure = f"leave out its episodes by {opt.episodes}"
        self.data = place.files([episode.data for episode in chosen], cure)[1]
        inside = [name for name in names if name not in filmed and name in info.features]
        self.rows = _EpisodeRows(self.data, chosen, inside)
        paths, files = place.files(
            [episode.videos[name][0] for name in filmed for episode in chosen],
            f"{cure}, or its camera by {opt.columns}",
        )
        remotes = [(files.spool, remote) if files.spool else None for remote in files.remotes] or [None] * len(files)
        with files.looked_through():
            films = [
                VideoFile(files.paths[k], name, files.state(k), os.fsencode(name), remotes[k])
                for k, name in enumerate(paths)
            ]
            indexes = scan.make_indexes(films, progress)
        self.videos = files.states
        self.off = 0
        """Frames that are not at the times of their rows."""
        of_path = dict(zip(paths, zip(films, indexes, strict=True), strict=True))
        self.frames = {name: self._film(name, chosen, of_path) for name in filmed}
        """Those of the cameras that are in videos."""
        self.counts = Counter(note for index in indexes if isinstance(index, VideoIndex) for note in index.notes)

    def _film(
        self, camera: str, episodes: Sequence[Episode], videos: Mapping[str, tuple[VideoFile, VideoIndex | DecodeError]]
    ) -> Frames:
        """The frames of a camera in the order of the rows. videos: by their paths."""
        taken, rows = list[TakenFrames](), self.rows
        first_rows = dict(zip(*(some.tolist() for some in np.unique(rows.episode, return_index=True)), strict=True))
        for episode in sorted(episodes, key=lambda episode: first_rows[episode.number]):
            name, begins = episode.videos[camera]
            (file, index), first = videos[name], first_rows[episode.number]
            some = slice(first, first + episode.length)
            if not isinstance(index, DecodeError):
                index, strayed = _frames_at(index, begins + rows.seconds[some], 1 / self.info.fps)
                self.off += strayed
            taken.append(TakenFrames(file, episode.number, index, rows.frame[some]))
        return Frames(taken, camera)

    def images(self, name: str) -> WithBytes:
        """The first camera's pictures."""
        files = int(self.data.states[:, 0].sum() + self.videos[:, 0].sum())
        return WithBytes(self.frames.get(name) or ArrowColumn(self.rows.arrow, name), files // len(self.rows.row))

    def field(self, name: str) -> tuple[FieldKind, Any] | None:
        """A feature as a field, and its column; None for what no field can store. Raises UsageError."""
        feature, rows = self.info.feature(name), self.rows
        if name in self.frames:
            return FieldKind("uint8", feature.pixels, image="picture"), self.frames[name]
        if feature.dtype == IMAGE:
            images = ArrowColumn(self.rows.arrow, name)
            pixels = first_pixels("image", name, images.value, range(len(rows.row)))
            return replace(pixels, shape=(*feature.pixels[:2], pixels.shape[2])), images
        if name not in self.info.features:
            return FieldKind("str"), rows.texts(meta.read_tasks(self.place, self.info), self.place.named("meta"))
        dtype, is_list = leaf_dtype(rows.schema.field(name).type)  # by the type in the file, and the shape in `INFO`
        try:
            kind = FieldKind(dtype, tuple(feature.shape) if is_list else ())
        except UsageError:
            return None
        return kind, ArrowColumn(self.rows.arrow, name, kind)

    def states(self) -> Rows:
        """(n, 2): of the files with rows, of the videos, and of what says where they are: after all fields were
        made."""
        rows, data = self.rows, self.data.states
        states = np.concatenate([data, self.videos, [*self.place.read.values()]])
        # Where there are as many as samples, the first are taken for those of their images.
        of_rows = data[
            np.searchsorted(rows.arrow.starts, rows.row, "right") - 1 if len(states) >= len(rows.row) else []
        ]
        return np.concatenate([of_rows, states])


class _EpisodeRows:
    """The rows of the chosen episodes, each with its values that are needed before it is packed."""

    def __init__(self, files: NamedFiles, episodes: Sequence[Episode], columns: Sequence[str]) -> None:
        """columns: must be there. Raises UsageError where the rows are not those of the episodes."""
        wanted = np.sort(np.array([episode.number for episode in episodes], np.int64))
        parts: dict[str, list[NDArray[Any]]] = {name: [] for name in (_ROW, *_HOLDS)}
        starts, count, schema = dict[int, int](), 0, None
        with files.looked_through():
            for k in range(len(files)):
                where = files.name(k)
                with files.opened(k, keep=False), parsing(where, files.paths[k], "Parquet"):
                    table = open_table(files.paths[k])
                    schema = schema or table.schema
                    for name in (*_HOLDS, *columns):
                        if name not in table.schema.names:
                            raise UsageError(f"{where} has no column {plain(name)!r}, which {INFO} says it has")
                        if table.schema.field(name).type != schema.field(name).type:
                            raise UsageError(
                                f"{where}: column {plain(name)!r} is not of the type that it has in {files.name(0)}"
                            )
                    first = count
                    for batch in meta.read_columns(table, _HOLDS, where):
                        mine = np.isin(batch[_EPISODE], wanted)
                        for name, values in {_ROW: np.arange(count, count + len(mine)), **batch}.items():
                            parts[name].append(values[mine])
                        count += len(mine)
                    if count > first:
                        starts[k] = first
        self.row, self.episode, self.frame, seconds, self.task = map(np.concatenate, parts.values())
        """(n,): the number of each row among those of all files, ascending; its episode, frame and task."""
        self.seconds: NDArray[np.float64] = seconds.astype(np.float64)
        """(n,): since its episode began."""
        assert schema is not None
        self.schema: pa.Schema = schema
        leaves = [(name, part) for name in columns for part in image_entries(schema.field(name).type)[:1] or (None,)]
        self.arrow = ArrowRows(files.pick([*starts]), tuple(starts.values()), self.row, tuple(leaves))
        """What workers read, of the files with such rows."""
        _check(self.episode, self.frame, episodes, files)

    def texts(self, tasks: Mapping[int, str], where: str) -> Column:
        """The text of each row's task. Raises UsageError where one has none."""
        used, of_row = np.unique(self.task, return_inverse=True)
        for number in used.tolist():
            if number not in tasks:
                raise UsageError(f"{where} has no text for task_index {number}: copy it again, or leave out {_TEXT} by "
                                 f"{opt.columns}")  # fmt: skip
        return Repeated(texts_of([tasks[number] for number in used.tolist()], where), of_row)


def _choose(info: RobotInfo, wanted: Mapping[str, str] | None, image: str | None, root: str) -> tuple[str, list[str]]:
    """The camera that is `image`, and the features that become fields. Raises UsageError."""
    there = [*dict.fromkeys([*info.features, _TEXT])]
    said = [*((opt.columns, name) for name in wanted or ()), *([(opt.image_column, image)] if image else [])]
    for option, name in said:
        if name not in there:
            raise UsageError(
                f"{option(plain(name))}: {root} has no such feature: it has {listed([*map(plain, there)], 30)}"
            )
    if image is not None and image not in info.cameras:
        raise UsageError(f"{opt.image_column(plain(image))}: it is no camera of {root}: {listed(info.cameras, 8)}")
    some = there if wanted is None else [*wanted]
    image = image or next((name for name in some if name in info.cameras), info.cameras[0])
    return image, [name for name in some if name not in (image, _ROW)]


def _field_names(names: Sequence[str]) -> dict[str, str]:
    """Name of a feature -> that of its field, with `_` for what that cannot have, and `_2` after one that is taken."""
    found, taken = dict[str, str](), {*RESERVED, *DTYPES}
    for name in names:
        field = wanted = re.sub(r"[^A-Za-z0-9_]|^(?=[0-9]|$)", "_", name)[:_LONGEST_NAME]
        number = 2
        while field.lower() in taken:
            field, number = f"{wanted}_{number}", number + 1
        taken.add(field.lower())
        found[name] = field
    return found


def _check(episode: Rows, frame: Rows, episodes: Sequence[Episode], files: NamedFiles) -> None:
    """Raise UsageError where rows are not those of the episodes, each in one piece and in order."""
    begins = np.flatnonzero(np.diff(episode, prepend=-1))
    lengths = dict(zip(episode[begins].tolist(), np.diff(np.append(begins, len(episode))).tolist(), strict=True))
    for one in episodes:
        if lengths.get(one.number, 0) != one.length:
            raise UsageError(
                f"meta/ says that episode {one.number} has {one.length:,} frames, and {plain(one.data)} has "
                f"{lengths.get(one.number, 0):,} of them in a piece: copy both again, or leave it out by {opt.episodes}"
            )
    steps = np.diff(frame, prepend=-1)
    steps[begins] = 1
    if (wrong := np.flatnonzero(steps < 1)).size or len(begins) > len(episodes):
        number = int(episode[wrong[0] if wrong.size else begins[-1]])
        raise UsageError(
            f"the rows of episode {number} in {files.name(0)} and the files after it are not in the order of "
            f"{_FRAME}: leave it out by {opt.episodes}"
        )


def _frames_at(index: VideoIndex, seconds: NDArray[np.float64], period: float) -> tuple[VideoIndex, int]:
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
    return found, int(((off > _TOLERANCE_S) & ~missing).sum())
