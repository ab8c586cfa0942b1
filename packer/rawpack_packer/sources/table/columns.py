"""Columns of a table: one array for all rows, without an object for each; files; arrays that stay in their file.

A kind of source may have columns of its own: see `base.Column`. What travels to a worker is plain data; a file is
open only there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources.axes import channels_last
from rawpack_packer.sources.base import Column as Column
from rawpack_packer.sources.base import Rows as Rows
from rawpack_packer.sources.base import image_file_of, numbered
from rawpack_packer.sources.fields import Boxes, BoxForm, are_texts, as_array
from rawpack_packer.sources.files import MAX_FILE_BYTES, LocalPath, ScannedFile, check_path, read_file
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.text import plain

S = TypeVar("S")
T = TypeVar("T")
NO_FILE = -3
_BLOCK = 1 << 16
"""Rows whose bytes are gathered at a time: the positions of all bytes of all rows would take eight times the bytes."""
_UNCHECKED = 1 << 20
"""Bytes that are read without a look at how many there are."""
_ZIP_HEADER = 30
"""Bytes before the name of a member of a zip archive."""
CLASS = 4
"""The position of the class number in a box that is not yolo's."""


def class_position(form: BoxForm | None) -> int:
    """The position of the class number in a box."""
    return 0 if form == "yolo" else CLASS


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts, one after another."""

    data: bytes
    """UTF-8."""
    ends: Rows
    """(n + 1,): text i is data[ends[i]:ends[i + 1]]."""

    def __len__(self) -> int:
        return len(self.ends) - 1

    def value(self, i: int, /) -> str:
        return self.raw(i).decode()

    def raw(self, i: int, /) -> bytes:
        """Text i in UTF-8."""
        return self.data[int(self.ends[i]) : int(self.ends[i + 1])]

    def pick(self, rows: Rows, /) -> Texts:
        return Texts(*bytes_at(self.data, self.ends, rows))


@dataclass(frozen=True, slots=True, eq=False)
class TextLists:
    """Lists of texts."""

    texts: Texts
    """Each list as JSON."""

    @classmethod
    def of(cls, lists: Iterable[Sequence[str]]) -> TextLists:
        """Raises UnicodeEncodeError for half of a surrogate pair, which UTF-8 has not."""
        parts = [msgspec.json.encode(one) for one in lists]
        return cls(Texts(b"".join(parts), ends_of([len(part) for part in parts])))

    def value(self, i: int, /) -> list[str]:
        return msgspec.json.decode(self.texts.raw(i), type=list[str])

    def pick(self, rows: Rows, /) -> TextLists:
        return TextLists(self.texts.pick(rows))


@dataclass(frozen=True, slots=True, eq=False)
class Numbers:
    """Numbers, or arrays of one shape: (n, *shape)."""

    values: NDArray[Any]
    faults: Mapping[int, str] = field(default_factory=dict)
    """See `RaggedColumn`."""

    def value(self, i: int, /) -> NDArray[Any]:
        _check(self.faults, i)
        return np.array(self.values[i])

    def pick(self, rows: Rows, /) -> Numbers:
        return Numbers(self.values[rows], _picked(self.faults, rows))


@dataclass(frozen=True, slots=True, eq=False)
class RowNumbers:
    """Keys of samples without names: the numbers of their rows."""

    rows: range | Rows

    def __len__(self) -> int:
        return len(self.rows)

    def value(self, i: int, /) -> str:
        return numbered(int(self.rows[i]))

    def pick(self, rows: Rows, /) -> RowNumbers:
        return RowNumbers(rows_at(self.rows, rows))


@dataclass(frozen=True, eq=False)
class Mapped:
    """Rows of an array in a file. Only its location travels to a worker, which maps the file at the first read."""

    file: ScannedFile
    dtype: str
    shape: tuple[int, ...]
    """Of the whole array."""
    offset: int
    order: Literal["C", "F"]
    rows: range | Rows

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "values"}

    @cached_property
    def values(self) -> NDArray[Any]:
        """The whole array."""
        return np.memmap(self.file.path, self.dtype, "r", self.offset, self.shape, self.order)

    def value(self, i: int, /) -> NDArray[Any]:
        file = self.file
        check_path(file.path, file.state, file.path)
        return np.array(self.values[self.rows[i]])

    def pick(self, rows: Rows, /) -> Mapped:
        return replace(self, rows=rows_at(self.rows, rows))


@dataclass(frozen=True, slots=True, eq=False)
class ImageArrays:
    """Images that are rows of another column, in this machine's byte order, with their channels last."""

    column: Column
    chw: bool = False
    """Whether channels come first in the column."""

    def value(self, i: int, /) -> NDArray[Any]:
        image = np.asarray(self.column.value(i))
        if not image.dtype.isnative:
            image = image.astype(image.dtype.newbyteorder("="))
        return channels_last(image) if self.chw else image

    def pick(self, rows: Rows, /) -> ImageArrays:
        return ImageArrays(self.column.pick(rows), self.chw)


@dataclass(frozen=True, slots=True, eq=False)
class RaggedColumn:
    """Arrays that differ in their first length, one after another."""

    values: NDArray[Any]
    ends: Rows
    """(n + 1,): array i is values[ends[i]:ends[i + 1]]."""
    boxes: BoxForm | None = None
    sizes: Rows | None = None
    """(n, 2): height and width of the image that boxes were drawn in; 0 where unknown."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Samples that are rejected: number -> what is wrong, and where."""

    def value(self, i: int, /) -> NDArray[Any] | Boxes:
        _check(self.faults, i)
        rows = np.array(self.values[int(self.ends[i]) : int(self.ends[i + 1])])
        if self.boxes is None:
            return rows
        height, width = (0, 0) if self.sizes is None else self.sizes[i].tolist()
        return Boxes(rows, self.boxes, (height, width) if height and width else None)

    @property
    def have_classes(self) -> bool:
        """Whether they are boxes with class numbers."""
        return self.boxes is not None and self.values.shape[1] > CLASS

    def classes(self) -> NDArray[Any]:
        """(m,): the class number of each box, where boxes have them."""
        return np.asarray(self.values[:, class_position(self.boxes)])

    def pick(self, rows: Rows, /) -> RaggedColumn:
        at, ends = _gathered(self.ends, rows)
        sizes = None if self.sizes is None else self.sizes[rows]
        return replace(self, values=self.values[at], ends=ends, sizes=sizes, faults=_picked(self.faults, rows))


@dataclass(frozen=True, slots=True, eq=False)
class Files:
    """Files: images, or masks."""

    root: LocalPath
    """The folder that relative paths start from."""
    paths: Texts
    states: Rows
    """(n, 2): size in bytes and mtime in ns; `NO_FILE` in place of a size where there is none, of any extension."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """See `RaggedColumn`."""

    def value(self, i: int, /) -> bytes:
        _check(self.faults, i)
        size, mtime = self.states[i].tolist()
        if size == NO_FILE:
            where = f"{self.paths.value(i)}.* in {os.path.basename(self.root)}"  # noqa: PTH119
            raise DecodeError("bad_field", f"there is no image {plain(where)}")
        return read_file(self.path(i), self.paths.value(i), (size, mtime))

    def path(self, i: int, /) -> str:
        """The path by which file i is read."""
        return os.path.join(self.root, self.paths.value(i))  # noqa: PTH118 - faster, and called for each image

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return None if i in self.faults else (self.path(i), 0, int(self.states[i, 0]))

    def listed(self, i: int) -> str:
        """The path of file i, below the root."""
        return self.paths.value(i)

    def states_apart(self) -> tuple[Rows, Rows]:
        """The states of the files of single rows, (n, 2), and of all others, (m, 2): see `Source.states`."""
        return self.states, self.states[:0]

    def pick(self, rows: Rows, /) -> Files:
        return Files(self.root, self.paths.pick(rows), self.states[rows], _picked(self.faults, rows))


@dataclass(frozen=True, slots=True, eq=False)
class Repeated:
    """Values of another column, in any order and as often as `at` says: those of files, for each of their rows."""

    column: Any
    """A `Column`, or an `ImageColumn`."""
    at: Rows
    """(n,): where the value of each row is in `column`."""

    def __len__(self) -> int:
        return len(self.at)

    def value(self, i: int, /) -> Any:
        return self.column.value(int(self.at[i]))

    def key(self, i: int) -> str:
        key: str = self.column.key(int(self.at[i]))
        return key

    @property
    def faults(self) -> dict[int, Any]:
        """As of the column, if that has some."""
        return _picked(getattr(self.column, "faults", {}), self.at)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return image_file_of(self.column, int(self.at[i]))

    def at_hand(self) -> Rows | None:
        found = None if (find := getattr(self.column, "at_hand", None)) is None else find()
        return None if found is None else np.flatnonzero(np.isin(self.at, found))

    def spread(self) -> Any:
        """The column with each value as often as it is repeated."""
        return self.column.pick(self.at)

    def pick(self, rows: Rows, /) -> Repeated:
        used, at = np.unique(self.at[rows], return_inverse=True)  # what is picked ascends
        return Repeated(self.column.pick(used), at)


def rows_at(rows: range | Rows, at: Rows) -> range | Rows:
    """Those of `rows` at the positions `at`, which ascend. Consecutive ones stay a range, which takes no space."""
    if not isinstance(rows, range):
        return rows[at]
    if len(at) and at[-1] - at[0] == len(at) - 1:
        return rows[int(at[0]) : int(at[-1]) + 1]
    return at + rows.start


def ends_of(lengths: ArrayLike) -> Rows:
    """(n + 1,): where each of n values begins, and the last one ends, if they are stored one after another."""
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


def texts_of(values: Sequence[str], where: str = "") -> Texts:
    """where: what holds the values, printable. Raises UsageError for half of a surrogate pair, which UTF-8 has not."""
    try:
        parts = [value.encode() for value in values]
    except UnicodeEncodeError as error:
        text = error.object
        what = "half of a surrogate pair cannot be stored as UTF-8"
        raise UsageError(f"{where}: row {values.index(text)} has {text!r}: {what}") from error
    return Texts(b"".join(parts), ends_of([len(part) for part in parts]))


def column_of_values(values: Any) -> Column | None:
    """A column of texts or whole numbers, as a source gives it; None for anything else."""
    if isinstance(values, list) and values and are_texts(values):
        return texts_of(values)
    array = as_array(values) if isinstance(values, list | np.ndarray) and len(values) else None
    return Numbers(array) if array is not None and array.ndim == 1 and array.dtype.kind in "iub" else None


def joined(blocks: Sequence[Texts]) -> Texts:
    """Blocks of texts, one after another."""
    return Texts(b"".join(block.data for block in blocks), ends_of(np.concatenate([np.diff(b.ends) for b in blocks])))


def _check(faults: Mapping[int, str], i: int) -> None:
    """Raise DecodeError where sample i has a fault."""
    if i in faults:
        raise DecodeError("bad_field", faults[i])


def _picked(faults: Mapping[int, T], rows: Rows) -> dict[int, T]:
    """The faults of some rows, by their new numbers."""
    return {k: faults[row] for k, row in enumerate(rows.tolist()) if row in faults} if faults else {}


def bytes_at(data: bytes, ends: Rows, rows: Rows) -> tuple[bytes, Rows]:
    """The values at `rows` alone, and their `ends`. ends: of values that are one after another in `data`."""
    if len(rows) and (np.diff(rows) == 1).all():
        first, last = int(rows[0]), int(rows[-1]) + 1
        return data[int(ends[first]) : int(ends[last])], ends[first : last + 1] - ends[first]
    values, blocks = np.frombuffer(data, np.uint8), np.split(rows, range(_BLOCK, len(rows), _BLOCK))
    found = b"".join(values[_gathered(ends, block)[0]].tobytes() for block in blocks)
    return found, ends_of(ends[rows + 1] - ends[rows])


def _gathered(ends: Rows, rows: Rows) -> tuple[Rows, Rows]:
    """Where all entries of some values of different lengths are, and the `ends` of these values alone."""
    starts = ends[rows]
    lengths = ends[rows + 1] - starts
    new = ends_of(lengths)
    return np.arange(new[-1]) + np.repeat(starts - new[:-1], lengths), new


Fault = tuple[str, str]
"""Why a member cannot be a sample: the reason and the detail of a DecodeError."""


@dataclass(frozen=True, eq=False)
class Spans:
    """Members of archives, one for each sample: a `Column` of bytes. Plain data; no file stays open."""

    archives: NamedFiles
    archive: NDArray[np.int32]
    """(n,): the number of each member's archive in `archives`."""
    offset: Rows
    """(n,): where its bytes begin in that archive."""
    states: Rows
    """(n, 2): its size in bytes, and its time in ns or its checksum as the archive has it; see `Source.states`."""
    faults: Mapping[int, Fault] = field(default_factory=dict)
    """Members that are rejected without being read: number -> why."""
    packed: Rows | None = field(default=None, kw_only=True)
    """(n, 2): the bytes that each member of a zip archive has there, and by which method it is compressed; `offset` is
    that of its own header then, and its checksum is its time. None in other archives."""

    def __len__(self) -> int:
        return len(self.archive)

    def value(self, i: int, /) -> bytes:
        """All bytes of member i.

        The size and mtime of its archive are compared before and after reading. Raises as `Samples.__getitem__` does.
        """
        if (fault := self.faults.get(i)) is not None:
            raise DecodeError(*fault)
        size, k = int(self.states[i, 0]), int(self.archive[i])
        if size > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"the file has {size} bytes: no decoder takes 2 GiB or more")
        return self.archives.read(k, self._reader(i))

    def head(self, i: int, most: int) -> bytes:
        """The first bytes of member i, `most` or fewer; none of one that cannot be read. Raises OSError."""
        if i in self.faults:
            return b""
        with self.archives.opened(int(self.archive[i])) as fd, suppress(DecodeError):
            return self._reader(i, most)(fd)
        return b""

    def _reader(self, i: int, most: int | None = None) -> partial[bytes]:
        """What reads member i, or its first bytes, from a descriptor of its archive. Of a compressed tar archive,
        `offset` is that in the tar."""
        k, offset, size = int(self.archive[i]), int(self.offset[i]), int(self.states[i, 0])
        if self.packed is not None:
            from rawpack_packer.sources.archives.zip import read_zip

            length, method = self.packed[i].tolist()
            size, checksum = (size, int(self.states[i, 1])) if most is None else (most, None)
            return partial(read_zip, offset=offset, length=length, method=method, size=size, checksum=checksum)
        size, indexes = size if most is None else min(size, most), self.archives.indexes
        if not (indexes and indexes[k]):
            return partial(read_range, offset=offset, size=size)
        from rawpack_packer.sources.archives.opened import read_compressed

        return partial(read_compressed, files=self.archives, k=k, offset=offset, size=size)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """None for a member of a compressed tar archive; with its own header for one of a zip archive."""
        k, offset, size = int(self.archive[i]), int(self.offset[i]), int(self.states[i, 0])
        size = size if self.packed is None else int(self.packed[i, 0]) + _ZIP_HEADER
        indexes = self.archives.indexes
        return None if indexes and indexes[k] else (self.archives.paths[k], offset, size)

    def pick(self, rows: Rows, /) -> Self:
        """The members at `rows`, and the archives that hold them."""
        used, archive = np.unique(self.archive[rows], return_inverse=True)
        return replace(
            self,
            archives=self.archives.pick(used.tolist()),
            archive=archive.astype(np.int32),
            offset=self.offset[rows],
            states=self.states[rows],
            faults=_picked(self.faults, rows),
            packed=None if self.packed is None else self.packed[rows],
        )

    def states_apart(self) -> tuple[Rows, Rows]:
        """The states of the members, and of the archives: see `Files.states_apart`."""
        return self.states, self.archives.states

    def at_hand(self) -> Rows | None:
        """The members, ascending, whose archives are fetched; None where all are on this disk."""
        if (spool := self.archives.spool) is None:
            return None
        here = np.array([spool.path(archive).exists() for archive in self.archives.remotes], bool)
        return None if here.all() else np.flatnonzero(here[self.archive])


def spans_of(kind: Callable[..., S], files: NamedFiles, file: Any, offset: Any, size: Any, **more: Any) -> S:
    """Spans of some kind without times. file, offset, size: (n,) of each. more: what else `kind` has."""
    sizes = np.array(size, np.int64)
    states = np.stack([sizes, np.full_like(sizes, -1)], axis=1)
    return kind(files, np.array(file, np.int32), np.array(offset, np.int64), states, **more)


def read_range(fd: int, offset: int, size: int) -> bytes:
    """`size` bytes from `offset` on. Raises DecodeError where the file ends before that."""
    if size > _UNCHECKED and offset + size > (end := os.fstat(fd).st_size):  # memory is taken before anything is read
        raise DecodeError("truncated", f"the archive ends after {max(0, end - offset)} of the {size} bytes")
    data = os.pread(fd, size, offset)
    while len(data) < size:
        more = os.pread(fd, size - len(data), offset + len(data))
        if not more:
            raise DecodeError("truncated", f"the archive ends after {len(data)} of the {size} bytes")
        data += more
    return data
