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
from rawpack_packer.counts import OF_VIDEOS
from rawpack_packer.errors import need
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Column, Rows, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import RESERVED, FieldKind, ImageKind
from rawpack_packer.sources.files import parsing
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.lerobot import INFO
from rawpack_packer.sources.lerobot.frames import TOLERANCE_S, CameraFrames, WithBytes, frames_at
from rawpack_packer.sources.lerobot.meta import (
    IMAGE,
    Episode,
    Feature,
    RobotFolder,
    RobotInfo,
    place_of,
    read_episodes,
    read_info,
    read_tasks,
)
from rawpack_packer.sources.parquet.source import ArrowColumn, ArrowImages, ArrowRows
from rawpack_packer.sources.parquet.tables import check_column, image_entries, leaf_dtype, open_table
from rawpack_packer.sources.table.assemble import TableSource
from rawpack_packer.sources.table.choose import named_columns
from rawpack_packer.sources.table.columns import Numbers, Texts, texts_of
from rawpack_packer.sources.table.named_files import NamedFiles, source_name
from rawpack_packer.sources.video import DTYPES, Videos, frame_key
from rawpack_packer.sources.video.container import VideoFile
from rawpack_packer.sources.video.index import READ_AGAIN, VideoIndex
from rawpack_packer.sources.video.scan import make_indexes
from rawpack_packer.sources.video.source import TakenFrames
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_EPISODE, _FRAME, _TIME, _TASK = "episode_index", "frame_index", "timestamp", "task_index"
_TEXT = "task"
"""What LeRobot adds to each row: the text of its task."""
_LONGEST_NAME = 60
_ROW = "index"
"""The number of a row, which every sample of a store has anyway."""


class LeRobotSource(TableSource):
    """The frames of all episodes, in the order of their files, as a `Source`.

    A sample is a row: a picture of each camera, the first one as `image`, and the other features by their names, with
    `_` for what the name of a field cannot have. Three fields are those of videos, so that clips are made of episodes:
    `video`, the number of the episode, `frame`, and `pts_seconds`. `task` is the text of `task_index`. Keys are
    `episode_000003#000012`, and the frames of an episode go into one split.

    `info.counts`: columns_left_out, and those of `counts.OF_VIDEOS`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        image_column: str | None = None,
        columns: str | Sequence[str] | None = None,
        episodes: str | Sequence[int] | None = None,
        spool: Spool | None = None,
        progress: Scanning = unseen,
    ) -> None:
        """image_column: the camera that is `image`; None for the first one of `columns`. columns: the features that
        become fields, cameras included; None for all. episodes: numbers and ranges, "0:50"; None for all. spool: for
        files behind URLs. progress: called with the number of videos that are done.

        All rows are looked at, and all packets of the videos. Raises UsageError where a file of `meta/` cannot be read,
        names a file that is not there, or does not fit the rows; MissingExtraError without PyAV.
        """
        place, root = place_of(path, spool), source_name(path)
        info = read_info(place)
        image, others = _choose(info, named_columns(columns), image_column, root)
        read = _ReadEpisodes(place, info, (image, *others), episodes, root, progress)
        rows, names = read.rows, _field_names(others)
        found = {name: read.field(name) for name in others}
        stored = {names[name]: one for name, one in found.items() if one is not None}
        becomes = {image: "image"} | {name: names[name] for name, one in found.items() if one is not None}
        features = {
            name: f"{info.feature(name)}, {becomes.get(name, 'left out')}"
            for name in dict.fromkeys([*info.features, *others])
        }
        """Each feature of the dataset -> what it is, and the field that it becomes."""
        left_out = [
            f"feature {plain(name)} is left out: no field can store {info.feature(name)}"
            for name, one in found.items()
            if one is None
        ]
        strayed = [] if not read.off else [
            f"{read.off:,} frames are shown more than {TOLERANCE_S:g} s before or after the timestamps of their rows: "
            "the closest were taken, where LeRobot refuses them without tolerance_s="
        ]  # fmt: skip
        about = SourceInfo(
            kind="lerobot",
            root=root,
            paths=() if is_url(place.path) else (place.path,),
            fields={name: FieldKind(dtype) for name, dtype in DTYPES.items()}
            | {name: kind for name, (kind, _) in stored.items()},
            image=ImageKind("uint8", info.features[image].pixels, pictures=True),
            noun="frame",
            video=bool(read.frames),
            options=given_options(image_column=image, columns=",".join(others), episodes=episodes),
            counts={"columns_left_out": len(left_out), **{name: read.counts[name] for name in OF_VIDEOS}},
            problems=(*left_out, *strayed),
            read_again=read.counts[READ_AGAIN],
        )
        keys = [frame_key(_name(n), k) for n, k in zip(rows.episode.tolist(), rows.frame.tolist(), strict=True)]
        times = zip(DTYPES, map(Numbers, (rows.episode, rows.frame, rows.seconds)), strict=True)
        columns_of = {**dict(times), **{name: column for name, (_, column) in stored.items()}}
        episodes_of = [*map(_name, rows.episode.tolist())]
        groups, videos = texts_of(episodes_of), Videos(rows.episode, episodes_of)
        more: dict[str, Any] = {"details": {"features": features}, "groups": groups, "find_videos": lambda: videos}
        super().__init__(about, texts_of(keys), read.images(image), columns_of, **more)
        self.row_states, self.file_states = None, read.states()


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
        chosen = read_episodes(place, info, filmed, episodes)
        if not chosen:
            raise UsageError(f"{root} has no frame: its episodes are empty")
        cure = f"leave out its episodes by {opt.episodes}"
        self.data = place.files([episode.data for episode in chosen], cure)[1]
        inside = [name for name in names if name not in filmed and name in info.features]
        self.rows = rows = _EpisodeRows(self.data, chosen, inside, progress)
        self.arrow = rows.arrow(inside)
        """What workers read of the rows."""
        paths, self.videos = place.files(
            [episode.videos[name][0] for name in filmed for episode in chosen],
            f"{cure}, or its camera by {opt.columns}",
        )
        with self.videos.looked_through():
            films = [*map(self._video, paths, range(len(paths)))]
            indexes = make_indexes(films, progress)
        self.off = 0
        """Frames that are not at the times of their rows."""
        of_path = dict(zip(paths, zip(films, indexes, strict=True), strict=True))
        self.frames = {name: self._film(name, chosen, of_path) for name in filmed}
        """Of the cameras that are in videos."""
        self.counts = Counter(note for one in indexes if isinstance(one, VideoIndex) for note in one.notes)

    def _video(self, name: str, k: int) -> VideoFile:
        files = self.videos
        remote = None if files.spool is None else (files.spool, files.remotes[k])
        return VideoFile(files.paths[k], name, files.state(k), os.fsencode(name), remote)

    def _film(
        self, camera: str, episodes: Sequence[Episode], videos: Mapping[str, tuple[VideoFile, VideoIndex | DecodeError]]
    ) -> CameraFrames:
        """The frames of a camera in the order of the rows. videos: by their paths."""
        taken, rows = list[TakenFrames](), self.rows
        first_rows = dict(zip(*(some.tolist() for some in np.unique(rows.episode, return_index=True)), strict=True))
        for one in sorted(episodes, key=lambda one: first_rows[one.number]):
            name, begins = one.videos[camera]
            (file, index), first = videos[name], first_rows[one.number]
            some = slice(first, first + one.length)
            if not isinstance(index, DecodeError):
                index, strayed = frames_at(index, begins + rows.seconds[some], 1 / self.info.fps)
                self.off += strayed
            taken.append(TakenFrames(file, one.number, index, rows.frame[some]))
        return CameraFrames(taken, camera)

    def camera(self, name: str) -> CameraFrames | ArrowImages:
        return self.frames[name] if name in self.frames else ArrowImages(self.arrow, name, {})

    def images(self, name: str) -> WithBytes:
        """The first camera's pictures."""
        files = int(self.data.states[:, 0].sum() + self.videos.states[:, 0].sum())
        return WithBytes(self.camera(name), files // len(self.rows.row))

    def field(self, name: str) -> tuple[FieldKind, Column] | None:
        """A feature as a field; None for what no field can store. Raises UsageError."""
        feature = self.info.feature(name)
        if name in self.frames:
            return FieldKind("uint8", feature.pixels, image="picture"), self.frames[name]
        if feature.dtype == IMAGE:
            images = self.camera(name)
            pixels = first_pixels("image", name, images.value, range(len(self.rows.row)))
            return replace(pixels, shape=(*feature.pixels[:2], pixels.shape[2])), images
        if name not in self.info.features:
            return FieldKind("str"), self.rows.texts(read_tasks(self.place, self.info), self.place.named("meta"))
        kind = self.rows.kind(name, feature)
        return None if kind is None else (kind, ArrowColumn(self.arrow, name, kind))

    def states(self) -> Rows:
        """(n, 2): of the files with rows, of the videos, and of what says where they are: after all fields were
        made."""
        rows, data = self.rows, self.data.states
        states = np.concatenate([data, self.videos.states, [*self.place.read.values()]])
        # Where there are as many as samples, the first are taken for those of their images.
        of_rows = data[np.searchsorted(rows.starts, rows.row, "right") - 1 if len(states) >= len(rows.row) else []]
        found: Rows = np.concatenate([of_rows, states])
        found.flags.writeable = False
        return found


class _EpisodeRows:
    """The rows of the chosen episodes, each with its values that are needed before it is packed."""

    def __init__(
        self, files: NamedFiles, episodes: Sequence[Episode], columns: Sequence[str], progress: Scanning
    ) -> None:
        """columns: must be there. Raises UsageError where the rows are not those of the episodes."""
        wanted = np.sort(np.array([one.number for one in episodes], np.int64))
        names = (_EPISODE, _FRAME, _TIME, _TASK)
        found: dict[str, list[NDArray[Any]]] = {name: [] for name in (_ROW, *names)}
        starts, count, schema = dict[int, int](), 0, None
        with files.looked_through():
            for k in range(len(files)):
                where = files.name(k)
                with files.opened(k, keep=False), parsing(where, files.paths[k], "Parquet"):
                    table = open_table(files.paths[k])
                    for name in (*names, *columns):
                        if name not in table.schema.names:
                            raise UsageError(f"{where} has no column {plain(name)!r}, which {INFO} says it has")
                        if name in names:
                            check_column(table.schema, name, "numbers" if name == _TIME else "whole numbers", where)
                        if schema is not None and table.schema.field(name).type != schema.field(name).type:
                            raise UsageError(
                                f"{where}: column {plain(name)!r} is not of the type that it has in {files.name(0)}"
                            )
                    schema = table.schema if schema is None else schema
                    first = count
                    for batch in table.scan([(name, None) for name in names]):
                        of_batch = {name: _whole(batch.column(name), name, where) for name in names}
                        mine = np.isin(of_batch[_EPISODE], wanted)
                        found[_ROW].append(np.flatnonzero(mine) + count)
                        for name, values in of_batch.items():
                            found[name].append(values[mine])
                        count += batch.num_rows
                    if count > first:
                        starts[k] = first
        self.row, self.episode, self.frame, seconds, self.task = (np.concatenate(some) for some in found.values())
        """(n,): the number of each row among those of all files, ascending; its episode, frame and task."""
        self.seconds: NDArray[np.float64] = seconds.astype(np.float64)
        """(n,): since its episode began."""
        assert schema is not None
        self.schema: pa.Schema = schema
        self.files, self.starts = files.pick([*starts]), tuple(starts.values())
        """Those with such rows, and the number of the first row of each."""
        _check(self.episode, self.frame, episodes, files)

    def arrow(self, names: Sequence[str]) -> ArrowRows:
        """What workers read of the rows."""
        leaves = [(name, part) for name in names for part in image_entries(self.schema, name)[:1] or (None,)]
        return ArrowRows(self.files, self.starts, self.row, tuple(leaves))

    def kind(self, name: str, feature: Feature) -> FieldKind | None:
        """What a column is as a field, by the type in the file and the shape that `INFO` says; None for no field."""
        dtype, is_list = leaf_dtype(self.schema.field(name).type)
        try:
            return FieldKind(dtype, tuple(feature.shape) if is_list else ())
        except UsageError:
            return None

    def texts(self, tasks: Mapping[int, str], where: str) -> Column:
        """The text of each row's task. Raises UsageError where one has none."""
        used, of_row = np.unique(self.task, return_inverse=True)
        for number in used.tolist():
            if number not in tasks:
                raise UsageError(f"{where} has no text for task_index {number}: copy it again, or leave out {_TEXT} by "
                                 f"{opt.columns}")  # fmt: skip
        return _TaskTexts(texts_of([tasks[number] for number in used.tolist()], where), of_row)


@dataclass(frozen=True, eq=False)
class _TaskTexts:
    """A column of texts, of which there are few."""

    texts: Texts
    numbers: Rows

    def value(self, i: int, /) -> str:
        return self.texts.value(int(self.numbers[i]))

    def pick(self, rows: Rows, /) -> _TaskTexts:
        return _TaskTexts(self.texts, self.numbers[rows])


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


def _whole(column: pa.Array, name: str, where: str) -> NDArray[Any]:
    """The values of a column of numbers. Raises UsageError."""
    if column.null_count:
        raise UsageError(f"{where}: column {name!r} has no value in some row")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    if name == _TIME:
        return values
    if len(values) and not 0 <= int(values.min()) <= int(values.max()) < 1 << 63:
        raise UsageError(f"{where}: column {name!r} has a number that is negative or beyond 64 bits")
    return values.astype(np.int64)


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


def _name(episode: int) -> str:
    """What an episode is called in keys."""
    return f"episode_{episode:06d}"
