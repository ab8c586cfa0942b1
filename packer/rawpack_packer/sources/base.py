"""What a sample is, what is known of a source before any is read, and the members of a source that another package has.

Sources of this package are tables, see `table/table.py`; those of other packages become tables when they are opened.
A source is opened once, in the process that packs. Workers get `part(start, stop)`, which holds only its own samples.
Both can be pickled: files are open only inside `__getitem__`, which reads them with `files.read_file`. The exception is
a video, which stays open from one frame to the next; an open video is not pickled.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError
from rawpack_packer.progress import Scanning as Scanning
from rawpack_packer.progress import unseen as unseen
from rawpack_packer.sources.fields import FieldKind, ImageKind, Value
from rawpack_packer.sources.files import LocalPath

NOT_LISTED, NO_FILE = "not_listed", "no_file"
"""What `SourceInfo.counts` call images that a folder's table does not list, and lines of it without an image."""
LEFT_OUT = (NOT_LISTED, NO_FILE)
"""Counts of what `--strict` does not leave out."""
Rows = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """What a source knows about itself before a sample is read."""

    kind: str
    """Its name in `--source`, such as "folder"."""
    root: str
    """Its name in messages and provenance, printable: the absolute path of a folder or file."""
    paths: tuple[LocalPath, ...] = ()
    """Folders and files that it is read from, absolute: no store is packed into, around or inside one."""
    fields: Mapping[str, FieldKind] = field(default_factory=dict)
    """The fields of every sample besides its image and key, in the order in which they are stored."""
    image: ImageKind | None = None
    """What all images are, if they keep their shape unless the recipe asks for another; None for pictures, which the
    recipe always resizes."""
    classes: tuple[str, ...] | None = None
    """Names of the numbers in field `label`, unique; None where there are no classes."""
    empty_classes: tuple[str, ...] = ()
    """Those of `classes` that have no sample."""
    label_depth: int = 0
    """How deep below the source the folders are that are classes; 0 where none are."""
    flat: bool = False
    """Whether it is a folder without subfolders, which would be classes."""
    noun: str = "image"
    """What one sample is called, in the singular."""
    video: bool = False
    """Whether frames of videos are decoded."""
    numbered: bool = False
    """Whether samples have no names: keys are their numbers, and an append continues those of the store."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The options that chose its samples, as a user writes them: "--fps" -> "5"."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was left out or may matter. Each kind of source always has the same names."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Suffixes of what was left out because it is no image, such as ".json" -> 24; "" of files without one."""
    read_again: int = 0
    """Files that were read twice, because the first process that read them died. No store or job records it."""
    problems: tuple[str, ...] = ()
    """What could not be read, or may be wrong, one printable line each; the last may be "... and n more"."""
    doubts: tuple[str, ...] = ()
    """What may be a mistake though all can be packed, a printable line each, with the option that settles it."""
    left_out: tuple[str, ...] = ()
    """The same of files that may be labels, and are not packed. They are among `problems`."""

    def __post_init__(self) -> None:
        if self.noun == "image" and self.has_several_images:
            object.__setattr__(self, "noun", "sample")

    @property
    def has_several_images(self) -> bool:
        """Whether samples have further images."""
        return any(kind.image for kind in self.fields.values())


@dataclass(frozen=True, eq=False)
class Item:
    """One sample before the recipe."""

    key: str
    """Unique in the source. The key of a file is its path below the root, parts joined by "/", Unicode unchanged."""
    image: bytes | NDArray[Any]
    """Owned by the caller: a whole encoded image file; or uint8 pixels (H, W) or (H, W, C); or, where `SourceInfo`
    says what images are, just such an array, or a file of just such pixels."""
    fields: Mapping[str, Value]
    """One value for each of `SourceInfo.fields`."""
    planes: Mapping[str, NDArray[np.uint8]] | None = None
    """Image field -> (n,): the image as planes of YCgCo 4:2:0 too, if it comes from a store that has it so. A recipe
    that changes nothing stores them as they are: planes that are made from the pixels again would differ."""
    file_bytes: int | None = None
    """Bytes of the source's files that this sample accounts for, if not those of the image: a frame has a share of its
    video."""


class Samples(Protocol):
    """Consecutive samples that can be read: a source, or the part of one that a worker gets.

    Numbers are 0 <= i < len; others raise IndexError.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> Item:
        """Read sample i.

        Raises DecodeError, with one of `journal.REASONS`, where this sample cannot be read: the caller rejects it and
        continues. The detail names no absolute path, so that rejects are equal wherever the source is.
        Raises PackError where packing cannot continue: the source changed, its disk is gone, this process has no
        descriptors left.
        """

    def key(self, i: int, /) -> str:
        """The key of sample i, from memory. Bytes that are not UTF-8 are written as \\xff."""


@runtime_checkable
class Source(Samples, Protocol):
    """All samples of a source, in an order that is the same on every machine and in every run."""

    @property
    def info(self) -> SourceInfo:
        """The same each time."""

    def part(self, start: int, stop: int, /) -> Samples:
        """Samples start <= i < stop, numbered from 0: small, picklable, without the rest of the source.

        Raises IndexError outside 0 <= start <= stop <= len.
        """

    def states(self) -> NDArray[np.int64]:
        """What the source's files were when it was opened, so that a later change is noticed.

        (n, 2): size in bytes and mtime in ns of each file, in a fixed order, -1 where they are not known; read-only
        for the caller. Where n is at least the number of samples, the first are those of their images. A checksum may
        stand in place of a time.
        """


def check_sample(samples: Sized, i: int) -> None:
    """Raise IndexError for a number outside 0 <= i < len."""
    if not 0 <= i < len(samples):
        raise IndexError(f"sample {i} of a source of {len(samples)}")


def check_part(samples: Sized, start: int, stop: int) -> None:
    """Raise IndexError for a part outside 0 <= start <= stop <= len."""
    if not 0 <= start <= stop <= len(samples):
        raise IndexError(f"samples {start} to {stop} of a source of {len(samples)}")


def numbered(i: int) -> str:
    """The key of sample i of a source whose samples have no names, see `SourceInfo.numbered`."""
    return f"{i:08d}"


def given_options(**options: object) -> dict[str, str]:
    """The options of a source that were given, as a command line has them: "--max-frames" -> "3". What no file can hold
    of them, such as of a path, is escaped."""
    said = {
        name: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in options.items()
        if value is not None and value != ()
    }
    return {
        f"--{name.replace('_', '-')}": value.encode("utf-8", "backslashreplace").decode()
        for name, value in said.items()
    }


@dataclass(frozen=True, eq=False)
class Containers:
    """The files of a source that each hold many samples, such as videos."""

    noun: str
    """What one is called, in the singular."""
    starts: Rows
    """(n,): the number of the first sample of each, ascending."""
    bytes: Rows
    """(n,): their sizes, of those that were cut the ones before; negative where they are not known."""
    stands: Rows
    """(n,): the number of the sample that stands for what cannot be read of it, where that cannot be counted: its
    first sample, which is its only one, or its last one. -1 where each of its samples is one."""
    missing: NDArray[np.float64]
    """(n,): how much of it that sample stands for, from 0 to 1: all where it cannot be read."""

    @property
    def lost(self) -> NDArray[np.bool_]:
        """(n,): whether it cannot be read, or not to its end."""
        return self.stands >= 0

    def shares(self) -> NDArray[np.float64]:
        """(n, 2): the share of what is missing of each in the number of files, and in their bytes: 0 where the size of
        any is unknown."""
        sizes = self.bytes if (self.bytes >= 0).all() else np.zeros_like(self.bytes)
        files = np.full(len(sizes), 1 / max(1, len(sizes)))
        return np.stack([files, sizes / max(1, int(sizes.sum()))], axis=1) * self.missing[:, None]

    def holding(self, rows: Rows) -> Containers:
        """Those that hold the samples at `rows`, ascending, which are numbered from 0."""
        held, starts = np.unique(np.searchsorted(self.starts, rows, "right") - 1, return_index=True)
        stands = np.searchsorted(rows, self.stands[held])
        kept = np.isin(self.stands[held], rows)
        starts, stands = starts.astype(np.int64), np.where(kept, stands, -1)
        return Containers(self.noun, starts, self.bytes[held], stands, self.missing[held])


class Column(Protocol):
    """The values of one field. Plain data."""

    def value(self, i: int, /) -> Value:
        """The value of sample i. Raises as `Samples.__getitem__` does."""

    def pick(self, rows: Rows, /) -> Column:
        """The values of the samples at `rows`, in their order, and nothing else."""


def named_value(name: str, column: Column, i: int) -> Value:
    """The value of sample i of a field, whose name errors have."""
    try:
        return column.value(i)
    except DecodeError as error:
        raise DecodeError(error.reason, f"{name}: {error.detail}") from error


def image_file_of(samples: object, i: int) -> tuple[str, int, int] | None:
    # Called for each sample, and comparing an object with a protocol takes longer than asking for a file.
    find: Callable[[int], tuple[str, int, int] | None] | None = getattr(samples, "image_file", None)
    return None if find is None else find(i)


def differing_field(
    one: Mapping[str, Field],
    other: Mapping[str, Field],
    agree: Callable[[Field | None, Field | None], bool] = operator.eq,
) -> tuple[str, Field | None, Field | None] | None:
    """The first field in which two sets of fields differ: its name, and what it is in each, None where it is missing.
    None where all fields agree."""
    for name in dict.fromkeys([*one, *other]):
        if not agree(one.get(name), other.get(name)):
            return name, one.get(name), other.get(name)
    return None


def shown_field(field: Field | None) -> str:
    """What a field is, in a message."""
    if field is None:
        return "none"
    declared = "array" if field.is_array else field.displacement or ""
    return f"{field.kind} {field.dtype} {field.shape} {field.encoding}{declared and f' declared as {declared}'}"
