"""What a source may have beyond `Source`: one protocol and one function each, and the answer where a source lacks it.

Whoever needs one of these calls the function. Nothing else asks what a source has.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import Samples, Source
from rawpack_packer.sources.video_numbers import Videos

Rows = NDArray[np.int64]


@runtime_checkable
class HasLabels(Protocol):
    """A source that knows labels before it reads samples."""

    def labels(self) -> Rows | None:
        """(n,): the label of each sample, -1 of one without a class; None where they are not known after all."""


@runtime_checkable
class HasGroups(Protocol):
    """A source some of whose samples belong together, as the frames of a video do."""

    def group(self, i: int, /) -> str:
        """The name of the group of sample i."""


@runtime_checkable
class HasUnread(Protocol):
    """A source that can skip what could not be read."""

    def unread(self) -> Rows:
        """The numbers, ascending, of samples that stand for a folder or file that could not be read."""


@runtime_checkable
class HasVideos(Protocol):
    """A source of frames whose field `video` numbers the videos that they are from."""

    def videos(self) -> Videos | None:
        """The video of each sample; None where samples turn out to be no frames."""


@runtime_checkable
class CanPick(Protocol):
    """A source that makes one small part of samples that are not neighbors."""

    def pick(self, rows: Rows, /) -> Samples:
        """Samples at `rows`, (m,), ascending: as `Source.part` in all else."""


@runtime_checkable
class HasImageFiles(Protocol):
    """Samples whose images are files of their own."""

    def image_file(self, i: int, /) -> tuple[str, int] | None:
        """The path by which the image of sample i is read, and its size in bytes; None where it is no file."""


def labels_of(source: Source) -> Rows | None:
    """The label of each sample, (n,); None where they are not known before the samples are read."""
    found = source.labels() if isinstance(source, HasLabels) else None
    return None if found is None else np.asarray(found, np.int64)


def group_of(source: Source, i: int) -> str:
    """The group of sample i, whose samples go into one split: its key, where the source has no groups."""
    return source.group(i) if isinstance(source, HasGroups) else source.key(i)


def unread_of(source: Source) -> Rows:
    """The numbers, ascending, of samples that stand for a folder or file that could not be read."""
    return np.asarray(source.unread() if isinstance(source, HasUnread) else (), np.int64)


def videos_of(source: Source) -> Videos | None:
    """The video of each sample; None where samples are no frames that rawpack took of videos."""
    return source.videos() if isinstance(source, HasVideos) else None


def image_file_of(samples: Samples, i: int) -> tuple[str, int] | None:
    """The path by which the image of sample i is read, and its size in bytes; None where it is no file of its own. A
    packer asks the disk for what it reads soon."""
    return samples.image_file(i) if isinstance(samples, HasImageFiles) else None
