"""Optional abilities of a source: a protocol for each, and a function with the answer for sources that lack it.

No other module checks what a source has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import Samples, Source
from rawpack_packer.sources.fields import Value

if TYPE_CHECKING:
    from rawpack_packer.sources.video import Videos

Rows = NDArray[np.int64]


@runtime_checkable
class HasLabels(Protocol):
    """A source that knows labels before samples are read."""

    def labels(self) -> Rows | None:
        """(n,): the label of each sample, -1 without a class; None where they are not known after all."""


@runtime_checkable
class HasGroups(Protocol):
    """A source with samples that must go into the same split, such as the frames of a video."""

    def group(self, i: int, /) -> str:
        """The name of the group of sample i."""


@runtime_checkable
class HasUnread(Protocol):
    """A source that can skip what could not be read."""

    def unread(self) -> Rows:
        """The numbers, ascending, of samples that stand for a folder or file that could not be read."""


@runtime_checkable
class HasVideos(Protocol):
    """A source of frames whose field `video` numbers their videos."""

    def videos(self) -> Videos | None:
        """The video of each sample; None where samples are no frames after all."""


@runtime_checkable
class HasProbes(Protocol):
    """A source that does not know the states of what it reads, so that reading some samples again shows changes."""

    def probes(self, rows: Rows, /) -> Rows:
        """A few of the samples at `rows`, both ascending; none where states tell all changes after all."""


@runtime_checkable
class HasColumns(Protocol):
    """A source that has the values of fields in memory before samples are read."""

    def column(self, name: str, /) -> Column | None:
        """The values of a field; None where they are not known."""

    def line(self, i: int, /) -> int:
        """The line of sample i in the file that lists it, from 1; 0 where there is none."""


@runtime_checkable
class HasPaths(Protocol):
    """A source of files whose keys may be something else than their paths."""

    def path(self, i: int, /) -> str:
        """The path of the file that sample i is in, below the source or as it is listed."""


@runtime_checkable
class CanPick(Protocol):
    """A source that makes one small part of samples that are not neighbors."""

    def pick(self, rows: Rows, /) -> Samples:
        """Samples at `rows`, (m,), ascending; otherwise like `Source.part`."""


@runtime_checkable
class HasImageFiles(Protocol):
    """Samples whose images are files, or ranges of files, so that the disk can be asked for them in advance."""

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """The file that image i is read from, by its path, and the first byte and the number of bytes that are read;
        None where it is in no file, or only bytes before it tell where it is."""


class Column(Protocol):
    """The values of one field. Plain data."""

    def value(self, i: int, /) -> Value:
        """The value of sample i. Raises as `Samples.__getitem__` does."""

    def pick(self, rows: Rows, /) -> Column:
        """The values of the samples at `rows`, in their order, and nothing else."""


@runtime_checkable
class Images(Protocol):
    """Encoded images of a source as one column. Plain data."""

    def value(self, i: int, /) -> bytes:
        """The bytes of image i. Raises as `Samples.__getitem__` does."""

    def pick(self, rows: Rows, /) -> Self:
        """The images at `rows`, in their order, and nothing else."""

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`."""

    def all_states(self) -> Rows:
        """(m, 2): first those of the images, see `Source.states`."""


def labels_of(source: Source) -> Rows | None:
    """See `HasLabels`."""
    found = source.labels() if isinstance(source, HasLabels) else None
    return None if found is None else np.asarray(found, np.int64)


def group_of(source: Source, i: int) -> str:
    """See `HasGroups`; without groups, each sample is one, with its key as the name."""
    return source.group(i) if isinstance(source, HasGroups) else source.key(i)


def unread_of(source: Source) -> Rows:
    """See `HasUnread`."""
    return np.asarray(source.unread() if isinstance(source, HasUnread) else (), np.int64)


def probes_of(source: Source) -> Rows:
    """See `HasProbes`: some of all samples."""
    every = np.arange(len(source), dtype=np.int64)
    return source.probes(every) if isinstance(source, HasProbes) else every[:0]


def videos_of(source: Source) -> Videos | None:
    """See `HasVideos`."""
    return source.videos() if isinstance(source, HasVideos) else None


def column_of(source: Source, name: str) -> Column | None:
    """See `HasColumns`."""
    return source.column(name) if isinstance(source, HasColumns) else None


def lines_of(source: Source) -> Callable[[int], int]:
    """See `HasColumns.line`."""
    return source.line if isinstance(source, HasColumns) else lambda i: 0


def paths_of(source: Source) -> Callable[[int], str]:
    """See `HasPaths`; without paths, the keys."""
    return source.path if isinstance(source, HasPaths) else source.key


def image_file_of(samples: object, i: int) -> tuple[str, int, int] | None:
    """See `HasImageFiles`."""
    # Called for each sample, and comparing an object with a protocol takes longer than asking for a file.
    find: Callable[[int], tuple[str, int, int] | None] | None = getattr(samples, "image_file", None)
    return None if find is None else find(i)
