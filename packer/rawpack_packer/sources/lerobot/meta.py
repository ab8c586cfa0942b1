"""What `meta/` of a dataset says: its features, its episodes and which files they are in, and its tasks.

v2 has a file for each episode, and lists in JSON Lines. v3 has many episodes in a file, and lists in Parquet: that of
episodes is in files that are looked for one after another, by their numbers, since a URL cannot be listed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack.remote.url import is_url
from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.files import is_below, parsing
from rawpack_packer.sources.lerobot import INFO
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.numbers import Int64, Length, is_far
from rawpack_packer.sources.parquet.tables import TableFile, is_text, leaf_dtype, open_table, shown_type
from rawpack_packer.sources.table.named_files import NamedFiles, contents, decoded, files_at, source_name
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

T = TypeVar("T")
Holds = Literal["whole numbers", "numbers", "texts"]
"""What a column has in each row."""
_DTYPES: dict[Holds, tuple[str, ...]] = {
    "whole numbers": ("int", "uint"), "numbers": ("int", "uint", "float"), "texts": ("str",)
}  # fmt: skip
VIDEO, IMAGE = "video", "image"
_EPISODES = "meta/episodes/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet"
_PLACE = re.compile(r"\{(\w+)(?::0(\d)d)?\}")
_RGB = 3
_CHANNELS = (1, _RGB)
_RANGE = re.compile(r"\s*(\d{1,9})?\s*(:)?\s*(\d{1,9})?\s*")


class Feature(msgspec.Struct):
    """What each frame has of one name."""

    dtype: str
    shape: list[Length] = []

    def __str__(self) -> str:
        return f"{self.dtype} {'x'.join(map(str, self.shape))}".rstrip()

    @property
    def pixels(self) -> tuple[int | None, int | None, int]:
        """Of a camera: height, width and channels, whichever LeRobot has first; None where it has no such shape."""
        shape = self.shape
        if len(shape) != 3 or min(shape) < 1:
            return None, None, _RGB
        height, width, channels = (
            shape if shape[2] in _CHANNELS or shape[0] not in _CHANNELS else (*shape[1:], shape[0])
        )
        return height, width, channels if channels in _CHANNELS else _RGB


class RobotInfo(msgspec.Struct):
    """`meta/info.json`."""

    codebase_version: str
    fps: float
    features: dict[str, Feature]
    data_path: str
    video_path: str | None = None
    total_episodes: Length = 0
    chunks_size: Length = 1000
    splits: dict[str, str] = {}

    @property
    def major(self) -> int:
        """2 or 3."""
        return int(self.codebase_version.removeprefix("v").partition(".")[0])

    @property
    def cameras(self) -> list[str]:
        return [name for name, one in self.features.items() if one.dtype in (VIDEO, IMAGE)]

    def feature(self, name: str) -> Feature:
        """A feature; the text of tasks is none of the file."""
        return self.features.get(name, Feature("string"))

    def is_video(self, name: str) -> bool:
        return self.feature(name).dtype == VIDEO


class _EpisodeLine(msgspec.Struct):
    episode_index: Length
    length: Length


class _TaskLine(msgspec.Struct):
    task_index: Int64
    task: str


@dataclass(frozen=True)
class Episode:
    """Where an episode is."""

    number: int
    length: int
    """Rows, which are frames."""
    data: str
    """The Parquet file with its rows, below the dataset."""
    videos: Mapping[str, tuple[str, float]]
    """Camera -> its video, and when in it the episode begins, in seconds."""


@dataclass(frozen=True)
class RobotFolder:
    """Where a dataset is: a folder, or the URL of one."""

    listing: Listing
    """That of the folder."""
    path: str
    query: str
    """Of a URL, with its question mark."""
    split: str
    spool: Spool | None
    read: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The states of the files of `meta/` that were read."""

    def at(self, name: str) -> str:
        return f"{self.path}/{name}{self.query}"

    def files(self, names: Sequence[str], leave_out: str) -> tuple[list[str], NamedFiles]:
        """Files that `INFO` and the episodes name, each once. leave_out: what leaves out those that are missing. Raises
        UsageError where there is one."""
        once = [*dict.fromkeys(names)]
        for name in once:
            if not is_below(name):
                raise UsageError(f"{self.named(INFO)} names a file outside its dataset, {plain(name)!r}: take it out")
        cure = f"{self.named(INFO)} names it: copy it too, or {leave_out}"
        return once, files_at([self.at(name) for name in once], self.spool, cure)

    def _file(self, name: str) -> NamedFiles:
        """A file of `meta/`."""
        files = files_at([self.at(name)], self.spool)
        self.read[name] = files.state(0)
        return files

    def named(self, name: str) -> str:
        return source_name(self.at(name))

    def decoded(self, name: str, kind: type[T]) -> T:
        """A file in JSON; or a list of what the lines of one hold. Raises UsageError."""
        where, files = self.named(name), self._file(name)
        with reading(where):
            data = contents(self.listing / name, files)
        return decoded(data, kind, where, "LeRobot", lines=name.endswith(".jsonl"))

    def rows(self, name: str, wanted: Mapping[str, Holds]) -> list[tuple[Any, ...]]:
        """The rows of some columns of a Parquet file; "" stands for the first one of texts. wanted: what each must
        hold. Raises UsageError."""
        where, files = self.named(name), self._file(name)
        with files.opened(0), parsing(where, files.paths[0], "Parquet"):
            table = open_table(files.paths[0])
            names = table.schema.names
            texts = next((column for column in names if is_text(table.schema.field(column).type)), "of texts")
            columns = {column or texts: holds for column, holds in wanted.items()}
            batches = ([*map(np.ndarray.tolist, batch.values())] for batch in read_columns(table, columns, where))
            rows = [row for values in batches for row in zip(*values, strict=True)]
        for k, (column, holds) in enumerate(columns.items()):
            if holds == "numbers" and (wrong := next((row[k] for row in rows if is_far(row[k])), None)) is not None:
                raise UsageError(f"{where}: column {plain(column)!r} has {wrong}, which is not what LeRobot writes")
        return rows


def read_columns(table: TableFile, wanted: Mapping[str, Holds], where: str) -> Iterator[dict[str, NDArray[Any]]]:
    """The values of some columns, a batch of rows at a time. wanted: what each must hold. where: the file, printable.
    Raises UsageError, also for whole numbers that are negative."""
    for name, holds in wanted.items():
        if name not in table.schema.names:
            raise UsageError(f"{where} has no column {plain(name)!r}: it is not what LeRobot writes")
        type_ = table.schema.field(name).type
        dtype, is_list = leaf_dtype(type_)
        if is_list or not dtype.startswith(_DTYPES[holds]):
            what = f"has {shown_type(type_)}, where {holds} belong"
            raise UsageError(f"{where}: column {plain(name)!r} {what}: write it again")
    for batch in table.read([(name, None) for name in wanted]):
        columns: dict[str, NDArray[Any]] = {}
        for name, holds in wanted.items():
            if batch.column(name).null_count:
                raise UsageError(f"{where}: column {plain(name)!r} has no value in some row: it was not finished")
            columns[name] = values = batch.column(name).to_numpy(zero_copy_only=False)
            if holds == "whole numbers":
                for value in (int(values.min()), int(values.max())) if len(values) else ():
                    if not 0 <= value < 1 << 63:
                        what = f"has {value}, which is not what LeRobot writes"
                        raise UsageError(f"{where}: column {plain(name)!r} {what}")
                columns[name] = values.astype(np.int64)
        yield columns


def place_of(path: str | os.PathLike[str], spool: Spool | None) -> RobotFolder:
    """Where the dataset at a path or URL is."""
    listing = Listing.of(path)
    head, mark, query = os.fspath(path).partition("?") if is_url(path) else (os.path.abspath(path), "", "")  # noqa: PTH100
    folder, split = head.removesuffix(INFO).rstrip("/"), ""
    if not is_url(path):
        listing = listing if folder == head else Listing(folder)
        if not listing.exists:
            listing, (folder, split) = listing.above, os.path.split(folder)
    return RobotFolder(listing, folder, mark + query, split, spool)


def read_info(place: RobotFolder) -> RobotInfo:
    """Raises UsageError for what is no dataset that is read here."""
    info, where = place.decoded(INFO, RobotInfo), place.named(INFO)
    version = re.fullmatch(r"v?(\d{1,3})\..*", info.codebase_version)
    if version is None or version[1] not in ("2", "3"):
        raise UsageError(
            f"{where} is of version {plain(info.codebase_version)!r}; v2 and v3 are read: convert it by LeRobot first"
        )
    if not 0 < info.fps < 1e6 or info.chunks_size < 1:
        raise UsageError(f"{where}: fps {info.fps:g} and chunks_size {info.chunks_size} are not what LeRobot writes")
    if not info.cameras:
        raise UsageError(
            f"{where} has no feature of dtype video or image, only {listed([*map(plain, info.features)], 8)}: a store "
            "needs pictures"
        )
    return info


def read_episodes(
    place: RobotFolder, info: RobotInfo, cameras: Sequence[str], wanted: str | Sequence[int] | None
) -> list[Episode]:
    """The episodes in the order of the dataset, without empty ones. cameras: those in videos. wanted: see `_numbers`.
    Raises UsageError."""
    found = [*(_of_v2 if info.major == 2 else _of_v3)(place, info, cameras)]
    numbers = [one.number for one in found]
    where = place.named(INFO)
    if len({*numbers}) < len(numbers) or (len(numbers) != info.total_episodes):
        raise UsageError(
            f"{where} says that there are {info.total_episodes:,} episodes, and the lists next to it have "
            f"{len({*numbers}):,} in {len(numbers):,} rows: copy all of meta/ again"
        )
    chosen = {*numbers}
    if place.split:
        if place.split not in info.splits:
            raise UsageError(
                f"{where} has no split {plain(place.split)!r}: it has {listed([*info.splits], 8) or 'none'}"
            )
        chosen = _numbers(info.splits[place.split], chosen, f"{where}: split {plain(place.split)}")
    if wanted is not None:
        chosen = _numbers(
            wanted, chosen, opt.episodes(wanted if isinstance(wanted, str) else listed([*map(str, wanted)], 8))
        )
    return [one for one in found if one.number in chosen and one.length > 0]


def read_tasks(place: RobotFolder, info: RobotInfo) -> dict[int, str]:
    """The text of each number of a task. Raises UsageError."""
    if info.major == 2:
        return {one.task_index: one.task for one in place.decoded("meta/tasks.jsonl", _TaskLine)}  # type: ignore[attr-defined]
    return dict(place.rows("meta/tasks.parquet", {"task_index": "whole numbers", "": "texts"}))


def _of_v2(place: RobotFolder, info: RobotInfo, cameras: Sequence[str]) -> Iterator[Episode]:
    for one in place.decoded("meta/episodes.jsonl", _EpisodeLine):  # type: ignore[attr-defined]
        at = {"episode_chunk": one.episode_index // info.chunks_size, "episode_index": one.episode_index}
        videos = {name: (_filled(place, info.video_path, {**at, "video_key": name}), 0.0) for name in cameras}
        yield Episode(one.episode_index, one.length, _filled(place, info.data_path, at), videos)


def _of_v3(place: RobotFolder, info: RobotInfo, cameras: Sequence[str]) -> Iterator[Episode]:
    wanted: dict[str, Holds] = {}
    for begin in ("data", *(f"videos/{name}" for name in cameras)):
        wanted |= {f"{begin}/chunk_index": "whole numbers", f"{begin}/file_index": "whole numbers"}
        wanted |= {f"{begin}/from_timestamp": "numbers"} if begin != "data" else {}
    wanted = {"episode_index": "whole numbers", "length": "whole numbers", **wanted}
    seen, file = 0, 0
    while seen < info.total_episodes or not file:
        at = {"chunk_index": file // info.chunks_size, "file_index": file % info.chunks_size}
        rows = place.rows(name := _filled(place, _EPISODES, at), wanted)
        if not rows and seen < info.total_episodes:  # a server may have any number of such files
            raise UsageError(f"{place.named(name)} has no episodes, and {INFO} says that there are more: copy it again")
        for number, length, chunk, of_chunk, *places in rows:
            videos = dict[str, tuple[str, float]]()
            for k, name in enumerate(cameras):
                at = {"chunk_index": places[3 * k], "file_index": places[3 * k + 1]}
                path = _filled(place, info.video_path, {**at, "video_key": name})
                videos[name] = path, float(places[3 * k + 2])
            data = _filled(place, info.data_path, {"chunk_index": chunk, "file_index": of_chunk})
            yield Episode(number, length, data, videos)
        seen, file = seen + len(rows), file + 1


def _filled(place: RobotFolder, pattern: str | None, values: Mapping[str, Any]) -> str:
    """A path by its pattern, such as "{file_index:03d}.mp4". Not by `str.format`, which could read more than values."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in values:
            raise UsageError(f"{place.named(INFO)}: there is no {match[1]} for {plain(str(pattern))!r}")
        found = values[match[1]]
        return f"{int(found):0{match[2] or 1}d}" if not isinstance(found, str) else found

    if pattern is None:
        raise UsageError(f"{place.named(INFO)} has cameras of dtype video, and no video_path")
    return _PLACE.sub(value, pattern)


def _numbers(said: str | Sequence[int], there: set[int], where: str) -> set[int]:
    """Those of the episodes that are there that ranges name: "0:50", "0,3,10:20", where a last one is left out. Raises
    UsageError where there is none."""
    found = set[int]()
    for word in said.split(",") if isinstance(said, str) else map(str, said):
        match = _RANGE.fullmatch(word)
        if match is None or not any(match.groups()):
            raise UsageError(
                f"{where}: {plain(word)!r} is no episode: write numbers and ranges, such as 0:50 or 0,3,10:20"
            )
        first = int(match[1] or 0)
        stop = int(match[3]) if match[3] else max(there, default=0) + 1 if match[2] else first + 1
        some = {one for one in there if first <= one < stop}
        if not some:
            raise UsageError(f"{where}: there is no episode {word.strip()}: they are {min(there)} to {max(there)}")
        found |= some
    return found
