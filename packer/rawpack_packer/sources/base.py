"""The protocol of a source: its length, its samples, and what is known of them before any is read.

A source is opened once, in the process that packs. Workers get `part(start, stop)`, which holds only its own samples.
Both can be pickled: files are open only inside `__getitem__`, which reads them with `files.read_file`. The exception is
a video, which stays open from one frame to the next; an open video is not pickled.

`Source` is all that a source must have. `optional.py` has what it may have in addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field
from typing import Any, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.fields import FieldKind, ImageKind, Value

NOT_LISTED, NO_FILE = "not_listed", "no_file"
"""What `SourceInfo.counts` call images that a folder's table does not list, and lines of it without an image."""
LEFT_OUT = (NOT_LISTED, NO_FILE)
"""Counts of what `--strict` does not leave out."""


Scanning = Callable[[int], None]
"""Called now and then with how much of a source was looked through so far."""


def unseen(count: int, /) -> None:
    """Scanning that nobody follows."""


@dataclass(frozen=True, kw_only=True)
class SourceInfo:
    """What a source knows about itself before a sample is read."""

    kind: str
    """Its name in `--source`, such as "folder"."""
    root: str
    """Its name in messages and provenance, printable: the absolute path of a folder or file."""
    paths: tuple[str, ...] = ()
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
    flat: bool = False
    """Whether it is a folder without subfolders, which would be classes."""
    noun: str = "image"
    """What one sample is called, in the singular."""
    numbered: bool = False
    """Whether samples have no names: keys are their numbers, and an append continues those of the store."""
    options: Mapping[str, str] = field(default_factory=dict)
    """The options that chose its samples, as a user writes them: "--fps" -> "5"."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """What was left out or may matter. Each kind of source always has the same names."""
    skipped: Mapping[str, int] = field(default_factory=dict)
    """Suffixes of what was left out because it is no image, such as ".json" -> 24; "" of files without one."""
    problems: tuple[str, ...] = ()
    """What could not be read, or may be wrong, one printable line each; the last may be "... and n more"."""


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
    planes: NDArray[np.uint8] | None = None
    """(n,): the image as planes of YCgCo 4:2:0 too, if it comes from a store that has it so. A recipe that changes
    nothing stores them as they are: planes that are made from the pixels again would differ."""
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

        Raises DecodeError, with one of `rejects.REASONS`, where this sample cannot be read: the caller rejects it and
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


class Divisible(Samples, Protocol):
    """Samples of which parts can be taken."""

    def part(self, start: int, stop: int, /) -> Self:
        """See `Source.part`."""


class BaseSource:
    """A source that has all of its samples in one part, `_all`. A kind of source sets `info` and `_all`, and adds
    `states`."""

    info: SourceInfo
    _all: Divisible

    def __len__(self) -> int:
        return len(self._all)

    def __getitem__(self, i: int, /) -> Item:
        return self._all[i]

    def key(self, i: int, /) -> str:
        """See `Samples.key`."""
        return self._all.key(i)

    def part(self, start: int, stop: int, /) -> Samples:
        """See `Source.part`."""
        return self._all.part(start, stop)


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
    """The options of a source that were given, as a command line has them: "--max-frames" -> "3"."""
    return {
        f"--{name.replace('_', '-')}": ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for name, value in options.items()
        if value is not None and value != ()
    }
