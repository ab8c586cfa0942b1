"""The rows of a LeRobot dataset as a source: a frame of each camera, and what else a row has."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack_packer.counts import OF_VIDEOS
from rawpack_packer.errors import need
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Column, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import RESERVED, FieldKind, ImageKind, first_pixels
from rawpack_packer.sources.files import parsing
from rawpack_packer.sources.lerobot import INFO
from rawpack_packer.sources.lerobot.frames import TOLERANCE_S, CameraFrames, WithBytes, frames_at
from rawpack_packer.sources.lerobot.meta import VIDEO, Episode, Feature, place_of, read_episodes, read_info, read_tasks
from rawpack_packer.sources.parquet.source import ArrowColumn, ArrowImages, ArrowRows
from rawpack_packer.sources.parquet.tables import Leaf, image_entries, leaf_dtype, open_table
from rawpack_packer.sources.table.choose import named_columns
from rawpack_packer.sources.table.columns import Numbers, Texts, texts_of
from rawpack_packer.sources.table.named_files import NamedFiles, source_name
from rawpack_packer.sources.table.source import ImageColumn, TableSource
from rawpack_packer.sources.video import DTYPES, Videos, frame_key
from rawpack_packer.sources.video.container import VideoFile
from rawpack_packer.sources.video.scan import make_indexes
from rawpack_packer.sources.video.source import TakenFrames
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

Rows = NDArray[np.int64]
_EPISODE, _FRAME, _TIME, _TASK = "episode_index", "frame_index", "timestamp", "task_index"
_TEXT = "task"
"""What LeRobot adds to each row: the text of its task."""
_ROW = "index"
"""The number of a row, which every sample of a store has anyway."""


class LeRobotSource(TableSource):
    """The frames of all episodes, in the order of their files, as a `Source`.

    A sample is a row: a picture of each camera, the first one as `image`, and the other features by their names, in which
    `_` stands for what no name of a field has. Three fields are those of videos, so that clips are made of episodes:
    `video`, the number of the episode, `frame`, and `pts_seconds`. `task` is the text of `task_index`. Keys are
    `episode_000003#000012`, and the frames of an episode go into one split.

    `info.counts`: columns_left_out, and those of `counts.OF_VIDEOS`.
    """

    features: dict[str, str]
    """Each feature of the dataset -> what it is, and the field that it becomes."""

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
        image, others = _choose(info.features, named_columns(columns), image_column, root)
        cameras = [name for name in (image, *others) if name in info.cameras]
        filmed = [name for name in cameras if info.features[name].dtype == VIDEO]
        if filmed:
            need("av", "lerobot", root)
        found = read_episodes(place, info, filmed, episodes)
        if not found:
            raise UsageError(f"{root} has no frame: its episodes are empty")
        leave_out = f"leave out its episodes by {opt.episodes}"
        data = place.files([*dict.fromkeys(one.data for one in found)], INFO, leave_out)
        columns_of_file = [name for name in (image, *others) if name not in (*filmed, _TEXT)]
        rows = _scan(data, found, columns_of_file, progress)
        tasks = read_tasks(place, info) if _TEXT in others and _TEXT not in info.features else None
        videos = {name: [one.videos[name][0] for one in found] for name in filmed}
        names = [*dict.fromkeys(name for some in videos.values() for name in some)]
        files = place.files(names, INFO, f"{leave_out}, or its camera by {opt.columns}")
        filmed_frames, counts, off = _decoded(rows, found, videos, files, names, 1 / info.fps, progress)
        share = int(data.states[:, 0].sum() + files.states[:, 0].sum()) // len(rows.row)
        arrow = rows.arrow(columns_of_file)

        kinds = {name: FieldKind(dtype) for name, dtype in DTYPES.items()}
        values: dict[str, Column] = dict(
            zip(DTYPES, map(Numbers, (rows.episode, rows.frame, rows.seconds)), strict=True)
        )
        self.features, left_out = {}, list[str]()
        field_of = _field_names([name for name in others if name != image])
        for name in others:
            kind: FieldKind | str
            column: Column
            if name in filmed_frames:
                kind, column = FieldKind("uint8", info.features[name].pixels, image="picture"), filmed_frames[name]
            elif name in cameras:
                column = ArrowImages(arrow, name, {})
                kind = first_pixels("image", name, (partial(column.value, i) for i in range(len(rows.row))))
                kind = replace(kind, shape=(*info.features[name].pixels[:2], kind.shape[2]))
            elif tasks is not None and name == _TEXT:
                kind, column = FieldKind("str"), rows.texts(tasks, place.named("meta"))
            else:
                kind = rows.kind(name, info.features[name])
                column = ArrowColumn(arrow, name, kind) if isinstance(kind, FieldKind) else Numbers(rows.row)
            if isinstance(kind, str):
                left_out.append(f"feature {plain(name)} is left out: {kind}")
            else:
                kinds[field_of[name]], values[field_of[name]] = kind, column
        for name, one in info.features.items():
            becomes = "image" if name == image else field_of.get(name, "left out")
            shape = "x".join(map(str, one.shape))
            self.features[name] = f"{one.dtype} {shape}, {becomes}"
        first: ImageColumn = filmed_frames[image] if image in filmed_frames else ArrowImages(arrow, image, {})
        problems = [*left_out]
        if off:
            problems.append(f"{off:,} frames are shown more than {TOLERANCE_S:g} s before or after the timestamp of their "
                            "row: the closest were taken, where LeRobot refuses them without tolerance_s=")  # fmt: skip
        about = SourceInfo(
            kind="lerobot",
            root=root,
            paths=() if is_url(place.path) else (place.path,),
            fields=kinds,
            image=ImageKind("uint8", info.features[image].pixels, pictures=True),
            noun="frame",
            video=bool(filmed),
            options=given_options(image_column=image, columns=",".join(others), episodes=episodes),
            counts={"columns_left_out": len(left_out), **{name: counts[name] for name in OF_VIDEOS}},
            problems=tuple(problems),
        )
        self._episodes = rows.episode
        keys = texts_of(
            [frame_key(_name(n), k) for n, k in zip(rows.episode.tolist(), rows.frame.tolist(), strict=True)]
        )
        super().__init__(about, keys, WithBytes(first, share), values)
        meta = place.files([INFO], INFO, "")
        states = np.concatenate([data.states, files.states, meta.states])
        if len(states) >= len(
            self
        ):  # where there are as many as samples, the first are taken for those of their images
            states = np.concatenate([data.states[np.searchsorted(rows.starts, rows.row, "right") - 1], states])
        self._states = states
        self._states.flags.writeable = False

    def group(self, i: int, /) -> str:
        """The episode of a frame: its frames go into one split."""
        return _name(int(self._episodes[i]))

    def videos(self) -> Videos:
        """See `HasVideos`."""
        return Videos(self._episodes, [*map(_name, self._episodes.tolist())])

    def states(self) -> Rows:
        """(n, 2): of the files with rows, of the videos, and of what says where they are; see `Source.states`."""
        return self._states


@dataclass(frozen=True, eq=False)
class _Rows:
    """The rows of the chosen episodes, each with its values that are needed before it is packed."""

    files: NamedFiles
    starts: tuple[int, ...]
    """The number of the first row of each file."""
    schema: pa.Schema
    row: Rows
    """(n,): the number of each row among those of all files, ascending."""
    episode: Rows
    frame: Rows
    seconds: NDArray[np.float64]
    """Since its episode began."""
    task: Rows

    def arrow(self, names: Sequence[str]) -> ArrowRows:
        """What workers read of the rows."""
        leaves = [(name, part) for name in names for part in image_entries(self.schema, name)[:1] or (None,)]
        return ArrowRows(self.files, self.starts, self.row, tuple(leaves))

    def kind(self, name: str, feature: Feature) -> FieldKind | str:
        """What a column is as a field, by the types of the file and the shape that `INFO` says; or why it can be none."""
        type_ = self.schema.field(name).type
        dtype, is_list = leaf_dtype(type_)
        try:
            return FieldKind(dtype, tuple(feature.shape) if is_list else ())
        except UsageError:
            return f"no field can hold {plain(str(type_))[:60]} {feature.shape}"

    def texts(self, tasks: Mapping[int, str], where: str) -> Column:
        """The text of each row's task. Raises UsageError where one has none."""
        used, of_row = np.unique(self.task, return_inverse=True)
        for number in used.tolist():
            if number not in tasks:
                raise UsageError(f"{where} has no text for task_index {number}: copy it again, or leave out {_TEXT} by "
                                 f"{opt.columns}")  # fmt: skip
        return _Chosen(texts_of([tasks[number] for number in used.tolist()], where), of_row)


@dataclass(frozen=True, eq=False)
class _Chosen:
    """A column of texts, of which there are few."""

    texts: Texts
    numbers: Rows

    def value(self, i: int, /) -> str:
        return self.texts.value(int(self.numbers[i]))

    def pick(self, rows: Rows, /) -> _Chosen:
        return _Chosen(self.texts, self.numbers[rows])


def _choose(
    features: Mapping[str, Feature], wanted: Mapping[str, str] | None, image: str | None, root: str
) -> tuple[str, list[str]]:
    """The camera that is `image`, and the features that become fields. Raises UsageError."""
    there = [*features] + [_TEXT] * (_TEXT not in features)
    cameras = [name for name, one in features.items() if one.dtype in ("video", "image")]
    for option, name in [
        *((opt.columns, one) for one in wanted or ()),
        *((opt.image_column, one) for one in [image] if one),
    ]:
        if name not in there:
            raise UsageError(
                f"{option(plain(name))}: {root} has no such feature: it has {listed([*map(plain, there)], 30)}"
            )
    if image is not None and image not in cameras:
        raise UsageError(f"{opt.image_column(plain(image))}: it is no camera of {root}: {listed(cameras, 8)}")
    some = there if wanted is None else [*wanted]
    image = image or next((name for name in some if name in cameras), cameras[0])
    return image, [name for name in some if name not in (image, _ROW)]


def _field_names(names: Sequence[str]) -> dict[str, str]:
    """Name of a feature -> that of its field: `_` for what a field's name cannot have, and `_2` after one that is taken."""
    found, taken = dict[str, str](), {*RESERVED, *DTYPES}
    for name in names:
        plain_name = re.sub(r"[^A-Za-z0-9_]", "_", name)[:60]
        plain_name = field = plain_name if not plain_name[:1].isdigit() and plain_name else f"_{plain_name}"
        number = 2
        while field.lower() in taken:
            field, number = f"{plain_name}_{number}", number + 1
        taken.add(field.lower())
        found[name] = field
    return found


def _scan(files: NamedFiles, episodes: Sequence[Episode], columns: Sequence[str], progress: Scanning) -> _Rows:
    """Read through the rows. columns: must be there. Raises UsageError where they are not those of the episodes."""
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
    row, episode, frame, seconds, task = (np.concatenate(some) for some in found.values())
    assert schema is not None
    _check(episode, frame, episodes, files)
    return _Rows(
        files.pick([*starts]), tuple(starts.values()), schema, row, episode, frame, seconds.astype(np.float64), task
    )


def _whole(column: pa.Array, name: str, where: str) -> NDArray[Any]:
    """The values of a column of numbers. Raises UsageError."""
    if column.null_count or leaf_dtype(column.type)[0] in ("", "str"):
        raise UsageError(f"{where}: column {name!r} is not numbers, or has no value in some row")
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values if name == _TIME else values.astype(np.int64)


def _check(episode: Rows, frame: Rows, episodes: Sequence[Episode], files: NamedFiles) -> None:
    """Raise UsageError where rows are not those of the episodes, each in one piece and in order."""
    begins = np.flatnonzero(np.diff(episode, prepend=-1))
    lengths = dict(zip(episode[begins].tolist(), np.diff(np.append(begins, len(episode))).tolist(), strict=True))
    for one in episodes:
        if lengths.get(one.number, 0) != one.length:
            raise UsageError(
                f"meta/ says that episode {one.number} has {one.length:,} frames, and {one.data} has "
                f"{lengths.get(one.number, 0):,} rows of it in a piece: copy both again, or leave it out by {opt.episodes}"
            )
    steps = np.diff(frame, prepend=-1)
    steps[begins] = 1
    if (wrong := np.flatnonzero(steps < 1)).size or len(begins) > len(episodes):
        number = int(episode[wrong[0] if wrong.size else begins[-1]])
        raise UsageError(
            f"the rows of episode {number} in {files.name(0)} and the files after it are not in the order of "
            f"{_FRAME}: leave it out by {opt.episodes}"
        )


def _decoded(
    rows: _Rows,
    episodes: Sequence[Episode],
    videos: Mapping[str, Sequence[str]],
    files: NamedFiles,
    names: Sequence[str],
    period: float,
    progress: Scanning,
) -> tuple[dict[str, CameraFrames], Counter[str], int]:
    """The frames of each camera; what is counted of videos; and how many frames are off, see `frames_at`.

    videos: camera -> the file of each episode. files, names: all of these. period: from one frame to the next.
    """
    opened = [
        VideoFile(
            files.paths[k], name, files.state(k), os.fsencode(name),
            None if files.spool is None else (files.spool, files.remotes[k]),
        )
        for k, name in enumerate(names)
    ]  # fmt: skip
    with files.looked_through():
        indexes = dict(zip(names, zip(opened, make_indexes(opened, progress), strict=True), strict=True))
    begins = dict(zip(*np.unique(rows.episode, return_index=True), strict=True))
    found, off = dict[str, CameraFrames](), 0
    for camera, of_episodes in videos.items():
        taken = list[tuple[int, TakenFrames]]()
        for one, name in zip(episodes, of_episodes, strict=True):
            file, index = indexes[name]
            first = int(begins[one.number])
            some = slice(first, first + one.length)
            frames = index
            if not isinstance(index, DecodeError):
                frames, strayed = frames_at(index, one.videos[camera][1] + rows.seconds[some], period)
                off += strayed
            taken.append((first, TakenFrames(file, one.number, frames, rows.frame[some])))
        found[camera] = CameraFrames([one for _, one in sorted(taken, key=lambda pair: pair[0])], camera)
    counts = Counter(
        note for _, index in indexes.values() if not isinstance(index, DecodeError) for note in index.notes
    )
    return found, counts, off


def _name(episode: int) -> str:
    """What an episode is called in keys."""
    return f"episode_{episode:06d}"
