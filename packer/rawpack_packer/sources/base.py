"""What a source is: how many samples, give me number i, and what it says of their fields.

A source is made once, in the process that packs. Workers get `part(start, stop)`, which holds its own entries
and no more. Both are plain data: files are open only inside `__getitem__`, which reads them by `read_file`. Only a
video's stays open from one frame to the next; it does not travel.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import DTYPES, FIELD_NAME
from rawpack.errors import DecodeError, PackError, UsageError

BoxForm = Literal["xyxy", "xywh", "yolo"]
"""How a source writes boxes, one a row. "xyxy": left, top, right, bottom; "xywh": left, top, width, height; both in
pixels of the whole upright image, counted from its corner, and other numbers after them. "yolo": class, centre x,
centre y, width, height, all but the class as shares of the image."""


@dataclass(frozen=True, eq=False)
class Boxes:
    """The boxes of one sample."""

    rows: NDArray[Any]
    """(n, k): one box a row, in the source's form; or one box alone, (k,)."""
    form: BoxForm
    size: tuple[int, int] | None = None
    """(height, width) of the image that they were drawn in, where the source says it: an image of another size is not
    the one that they belong to."""


Value = int | float | str | bytes | NDArray[Any] | Boxes
"""What a field of one sample can be, beside its image."""

MAX_FILE_BYTES = 2**31 - 1
"""No decoder takes more in one buffer."""
_PIECE = 1 << 20
PLAIN = "bool, int8 to int64, uint8 to uint64, float16 to float64"
"""The dtypes of a store that fields and images can have, as errors name them."""
_MOST_AXES = 16
"""Of one sample, in any store."""
UNKNOWN = (-1, -1)
"""Size and mtime of what has none, such as a broken link."""
NOT_SCANNED = -2
"""Stands for the size of what could not be looked into; in place of its mtime is the number of the error."""

OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)
"""O_NONBLOCK: a pipe that took a file's place must not hang the open."""
_OF_ANY_FILE = frozenset(
    getattr(errno, name)
    for name in (
        "EMFILE", "ENFILE", "ENOMEM", "ENODEV", "ENOTCONN", "ESTALE",
        "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT",
    )
    if hasattr(errno, name)
)  # fmt: skip


class UnreadableError(PackError):
    """Folders or files of the source could not be looked into, and `skip_unreadable` was not given."""

    def __init__(self, root: str, count: int, problems: Iterable[str]) -> None:
        """root: of the source, printable. problems: a printable line each, of all or the first."""
        what = "1 folder or file" if count == 1 else f"{count:,} folders or files"
        lines = "\n".join(f"  {line}" for line in problems)
        super().__init__(
            f"{what} of {root} could not be looked into, and nothing was written:\n{lines}\n"
            "Make all of it readable, or take it out of the source, and run the same command again; --skip-unreadable "
            "packs the rest (in Python: skip_unreadable=True)"
        )


class SourceChangedError(PackError):
    """A file of the source is no longer the one that was found when packing began.

    Packing stops, and no sample is rejected: a store must be what an undisturbed run makes of one source.
    """


@dataclass(frozen=True)
class FieldKind:
    """What a source says of one field, before any sample was read."""

    dtype: str
    """numpy's name of a bool, integer or float type: "int64", "float32", ...; of text: "str"."""
    shape: tuple[int | None, ...] = ()
    """Of one sample. None, only in first place, where samples differ in length: (None, 5) for boxes.

    Of a mask (H, W, C), H and W being None where samples differ."""
    mask: bool = False
    """A second image of the sample's height and width: cropped and resized alike, but by the nearest pixel, and stored
    without loss. A value is a whole PNG file, or an array (H, W) or (H, W, C)."""
    boxes: BoxForm | None = None
    """Boxes in the image, written in this form: they move with it, and are stored as left, top, right, bottom, in
    pixels of the stored image, and what else a row has. A value is `Boxes`."""

    def __post_init__(self) -> None:
        if self.mask:
            channels = self.shape[2] if len(self.shape) == 3 else None
            if channels is None or (self.shape[0] is None) != (self.shape[1] is None) or self.dtype == "str":
                raise UsageError(f"a mask is (height, width, channels), not {self.dtype} {self.shape}")
        if self.dtype == "str":
            if self.shape:
                raise UsageError(f"a text field holds one text per sample, not shape {self.shape}: join the texts")
            return
        if self.dtype not in DTYPES or self.dtype[0] == "c":
            raise UsageError(f'{self.dtype!r} is no dtype of a field: use "str", or {PLAIN}')
        if self.boxes and (self.mask or self.dtype[0] != "f" or len(self.shape) != 2 or (self.shape[1] or 0) < 4):
            raise UsageError(f"boxes are floats, (n, 4) or more, not {self.dtype} {self.shape}")
        if self.boxes == "yolo" and self.shape[1] != 5:
            raise UsageError(f"a box of yolo is class, x, y, width, height: (n, 5), not {self.shape}")
        if any(n is not None and n < 1 for n in self.shape):
            raise UsageError(f"shape {self.shape}: lengths are from 1 on, or None where samples differ")
        if len(self.shape) > _MOST_AXES:
            raise UsageError(f"shape {self.shape}: a field has at most {_MOST_AXES} axes")
        if None in self.shape[1:] and not self.mask:
            raise UsageError(f"shape {self.shape}: only the first length of a field may differ between samples")

    @property
    def ragged(self) -> bool:
        """Whether samples differ in length."""
        return None in self.shape and not self.mask


@dataclass(frozen=True)
class ImageKind:
    """What a source says of images whose dtype and shape it knows: arrays, or image files of such pixels."""

    dtype: str
    """numpy's name of a bool, integer, float or complex type."""
    shape: tuple[int | None, ...]
    """Of one image; (None, None, C) where they differ in height and width. Of two axes and uint8, (H, W), it is a grey
    image, and stored as (H, W, 1)."""
    pictures: bool = False
    """Grey or RGB: the recipe says how many channels are stored."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UsageError(f"images of dtype {self.dtype}: use {PLAIN}, complex64 or complex128")
        differing = None in self.shape
        if differing and (len(self.shape) != 3 or self.shape[2] is None or self.shape[:2] != (None, None)):
            raise UsageError(f"images of shape {self.shape}: only height and width of (H, W, C) may differ")
        if any(n is not None and n < 1 for n in self.shape) or len(self.shape) > 15:
            raise UsageError(f"images of shape {self.shape}: from 1 to 15 axes of lengths from 1 on")


@dataclass(frozen=True, eq=False)
class Item:
    """One sample before the recipe."""

    key: str
    """Unique in the source; of a file its path below the root, parts joined by "/", Unicode left as it is."""
    image: bytes | NDArray[Any]
    """The caller's: an encoded image file, whole; or uint8 pixels (H, W) or (H, W, C), where there is no file; or,
    where the source says what its images are, just such an array, or a file of just such pixels."""
    fields: Mapping[str, Value]
    """One value for each of the source's `fields`."""
    planes: NDArray[np.uint8] | None = None
    """(n,): the image as planes of YCbCr 4:2:0 too, where it comes from a store that has it so. A recipe for such
    planes that changes nothing else stores them as they are: made of the pixels again, they would differ."""
    file_bytes: int | None = None
    """What of the source's files this sample is, where that is not the image's bytes: of a frame, its share of the
    video."""


class Samples(Protocol):
    """A run of samples that can be read: a source, or the part of one that a worker got.

    Numbers are 0 <= i < len; others raise IndexError.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Item:
        """Read sample i.

        Raises DecodeError, with one of `rejects.REASONS`, where this sample cannot be had: the caller rejects
        it and goes on. The detail names no absolute path: rejects are equal wherever the source lies.
        Raises PackError where the run cannot go on: the source changed, its disk is gone, this process has no
        descriptors left.
        """

    def key(self, i: int, /) -> str:
        """The key of sample i, from memory. One that is not UTF-8 has its odd bytes written as \\xff."""


class Source(Samples, Protocol):
    """All samples of a source, in an order that is the same on every machine and in every run.

    It may say more of them before they are read: `labels()`, `group(i)`, `noun` and `numbered`, and its parts
    `image_file(i)`; see `sources.view`.
    """

    @property
    def kind(self) -> str:
        """The name that `--source` knows it by: "folder"."""

    @property
    def root(self) -> str:
        """Where it lies, for messages and provenance: printable, of a folder or file the absolute path."""

    @property
    def image(self) -> ImageKind | None:
        """What all images are, where they keep their shape unless the recipe asks for another; None where they are
        pictures, which the recipe brings to its own."""

    @property
    def fields(self) -> Mapping[str, FieldKind]:
        """The fields of every sample beyond its image and key, in the order in which they are stored."""

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the numbers in field `label`, unique; None where there are no classes."""

    @property
    def empty_classes(self) -> tuple[str, ...]:
        """Those of `classes` that have no sample."""

    @property
    def counts(self) -> Mapping[str, int]:
        """What was left out or may matter. A kind of source always has the same names."""

    @property
    def problems(self) -> tuple[str, ...]:
        """What could not be looked into, or may be wrong, one printable line each; the last may be "... and n more"."""

    def part(self, start: int, stop: int, /) -> Samples:
        """Samples start <= i < stop, numbered from 0: small, picklable, free of the rest of the source.

        Outside 0 <= start <= stop <= len it raises IndexError.
        """

    def states(self) -> NDArray[np.int64]:
        """What the source's files were when it was opened, for noticing that it changed since.

        (n, 2), read-only: size in bytes and mtime in ns of each file, in a fixed order, -1 where they cannot
        be had. Where n is at least the number of samples, the first are of their images. What stands for a file's
        contents may stand in place of its time.
        """


RESERVED = {"index": "row", "image": "picture", "key": "name"}
"""Names that every sample has already -> what a field of that name could be called instead."""
_BESIDE = ("start", "shape", "length")
"""HDF5 shards have datasets of a field's name and one of these."""


def check_names(names: Iterable[str]) -> None:
    """Raise UsageError where a source's fields cannot have these names; it says which to take instead."""
    seen: dict[str, str] = {name: name for name in RESERVED}
    for name in names:
        if not FIELD_NAME.fullmatch(name):
            better = re.sub(r"[^A-Za-z0-9_]", "_", name).lstrip("0123456789")[:64] or "field"
            raise UsageError(f"{name!r} cannot be a field's name ({FIELD_NAME.pattern}): rename it, to {better!r} say")
        if name in RESERVED:
            raise UsageError(f"{name!r} is a name that every sample has already: rename it, to {RESERVED[name]!r} say")
        # Columns are files, and some file systems do not tell case apart.
        if name.lower() in seen:
            raise UsageError(
                f"{name!r} and {seen[name.lower()]!r} differ by case alone: rename one, to {name + '_2'!r} say"
            )
        seen[name.lower()] = name
    for name in seen.values():
        field, _, end = name.rpartition("_")
        if end in _BESIDE and field in seen:
            raise UsageError(
                f"{name!r} is what an hdf5 store calls a part of {field!r}: rename it, to {field + end!r} say"
            )


def given_options(**options: object) -> dict[str, str]:
    """Those options of a source that were given, as a command line has them: "--max-frames" -> "3"."""
    return {
        f"--{name.replace('_', '-')}": ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in options.items()
        if value is not None and value != ()
    }


def text_of(path: bytes) -> str:
    """`path` as text: UTF-8 whatever the locale is, odd bytes as \\xff."""
    return path.decode("utf-8", "backslashreplace")


def bad_name(path: bytes) -> DecodeError | None:
    """Why a file of this path is rejected for its name alone; None where it is not."""
    try:
        path.decode("utf-8")
    except UnicodeDecodeError as error:
        return DecodeError("bad_name", f"byte {error.start} of the path is not UTF-8: rename the file")
    return None


def printable(path: str | bytes) -> str:
    """`path` as it can stand in a message: one line, no control codes, odd bytes as \\xff."""
    text = text_of(path) if isinstance(path, bytes) else path
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def read_file(path: str, key: str, scanned: tuple[int, int]) -> bytes:
    """All bytes of the file at `path`, whose size in bytes and mtime in ns were `scanned` when it was found.

    Both are compared before and after reading, so the bytes are those of one state of the file, the one that
    was found. Raises as `Samples.__getitem__` does; `key` names the file in messages.
    """
    if (unread := not_scanned(scanned)) is not None:
        raise unread
    try:
        with opened(path) as fd:
            check_unchanged(fd, scanned, key)
            if scanned[0] > MAX_FILE_BYTES:
                raise DecodeError("too_large", f"the file has {scanned[0]} bytes: no decoder takes 2 GiB or more")
            data = os.read(fd, scanned[0] + 1)
            # A read may give less than there is, and some systems know no sizes.
            while more := os.read(fd, _PIECE):
                data += more
            check_unchanged(fd, scanned, key)
    except OSError as error:
        stop_if_of_any_file(error, key)
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and scanned != UNKNOWN:
            raise changed(key, "it is gone") from None
        raise DecodeError("unreadable", reason_of(error)) from None
    if not data:
        raise DecodeError("empty", "the file has no bytes")
    return data


def not_scanned(scanned: tuple[int, int]) -> DecodeError | None:
    """Why what was found in this state is rejected unread; None where it could be looked into."""
    if scanned[0] != NOT_SCANNED:
        return None
    return DecodeError("not_scanned", reason_of(OSError(scanned[1], os.strerror(scanned[1]))))


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A descriptor to read `path` by; never waits for a pipe's other end."""
    fd = os.open(path, OPEN_FLAGS)
    try:
        yield fd
    finally:
        os.close(fd)


def check_unchanged(fd: int, scanned: tuple[int, int], key: str) -> None:
    """Raise SourceChangedError where the open file is not the one whose size and mtime were `scanned`."""
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise changed(key, "it is no file any more")
    if scanned == UNKNOWN:
        raise changed(key, "it could not be read then, and now it can")
    if found.st_size != scanned[0]:
        raise changed(key, f"it had {scanned[0]} bytes and has {found.st_size}")
    if found.st_mtime_ns != scanned[1]:
        raise changed(key, "it was written to")


def changed(key: str, how: str) -> SourceChangedError:
    """The error to raise for a file that is another than when it was found."""
    cure = "leave the source alone and run the same command again"
    return SourceChangedError(f"{printable(key)} changed since packing began: {how}; {cure}")


def stop_if_of_any_file(error: OSError, where: str | bytes) -> None:
    """Raise PackError for an error that every other file would meet: a dead mount, no descriptors left."""
    if error.errno in _OF_ANY_FILE:
        cure = "mend that and run the same command again"
        raise PackError(f"{printable(where)} cannot be read now: {reason_of(error)}; {cure}") from error


def reason_of(error: OSError) -> str:
    """The error without its path, which differs between machines."""
    return f"[Errno {error.errno}] {error.strerror}"
