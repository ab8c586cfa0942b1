"""The archive files of a source: one path, `a.tar::b.tar`, a range such as `a-{000..123}.tar`, or a glob in quotes."""

from __future__ import annotations

import glob
import itertools
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.sources.files import opened, reason_of
from rawpack_packer.text import near_path, plain

_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_GLOB = re.compile(r"[*?\[]")
_MOST = 1_000_000
"""Files that a range may stand for."""


@dataclass(frozen=True, slots=True, eq=False)
class ArchiveFiles:
    """Archive files in order. Plain data."""

    paths: tuple[str, ...]
    """Absolute, as the operating system takes them."""
    states: NDArray[np.int64]
    """(k, 2): size in bytes and mtime in ns when the source was opened."""
    indexes: tuple[str, ...] = ()
    """Of compressed archives: the file that holds the index of each, see `compressed.py`; "" for one that is not."""

    def __len__(self) -> int:
        return len(self.paths)

    def state(self, k: int) -> tuple[int, int]:
        """Size in bytes and mtime in ns of archive k."""
        size, mtime = self.states[k].tolist()
        return size, mtime

    def pick(self, numbers: Sequence[int]) -> ArchiveFiles:
        """The archives with these numbers, in this order."""
        indexes = tuple(self.indexes[k] for k in numbers) if self.indexes else ()
        return ArchiveFiles(tuple(self.paths[k] for k in numbers), self.states[list(numbers)], indexes)


def is_pattern(path: str) -> bool:
    """Whether a path that does not exist names several files: by a range, a glob or `::`."""
    return ("::" in path or bool(_RANGE.search(path) or _GLOB.search(path))) and not os.path.lexists(path)


def archive_files(path: str | os.PathLike[str]) -> ArchiveFiles:
    """The archive files that a user named. Raises UsageError where one is missing, no file, or named twice."""
    paths = [os.path.abspath(name) for name in expanded(os.fspath(path))]  # noqa: PTH100 - keeps what pathlib would not
    for name, again in itertools.pairwise(sorted(paths)):
        if name == again:
            raise UsageError(f"{plain(os.fspath(path))} names {plain(name)} twice")
    return ArchiveFiles(tuple(paths), np.array([_state(name) for name in paths], np.int64).reshape(-1, 2))


def expanded(path: str) -> list[str]:
    """The files that a path stands for, in order. Raises UsageError for an empty path and a glob without files."""
    if not path:
        raise UsageError("the source is an empty path: name an archive")
    if not is_pattern(path):
        return [path]
    found: list[str] = []
    for one in path.split("::"):
        for name in _ranges(one):
            if not _GLOB.search(name) or os.path.lexists(name):
                found.append(name)
                continue
            names = sorted(glob.glob(name), key=os.fsencode)  # noqa: PTH207 - the name may be absolute
            if not names:
                raise UsageError(f"no file matches {plain(name)}: check the path of the source")
            found += names
    return found


def _ranges(name: str) -> Iterator[str]:
    """`a{08..10}` as a08, a09, a10; several ranges count like digits, the last one fastest."""
    pieces = _RANGE.split(name)
    ranges = [(int(first), int(last), len(first)) for first, last in zip(pieces[1::3], pieces[2::3], strict=True)]
    total = 1
    for first, last, _ in ranges:
        if last < first:
            raise UsageError(f"{plain(name)}: the range {first}..{last} is empty")
        total *= last - first + 1
        if total > _MOST:
            raise UsageError(f"{plain(name)} stands for more than {_MOST:,} files")
    for numbers in itertools.product(*(range(first, last + 1) for first, last, _ in ranges)):
        texts = [f"{number:0{width}d}" for number, (_, _, width) in zip(numbers, ranges, strict=True)]
        yield "".join(itertools.chain.from_iterable(itertools.zip_longest(pieces[::3], texts, fillvalue="")))


def _state(path: str) -> tuple[int, int]:
    shown = plain(os.fsencode(path))
    try:
        with opened(path) as fd:
            found = os.fstat(fd)
    except FileNotFoundError:
        raise UsageError(f"there is no file {shown}{near_path(path) or ': check the path of the source'}") from None
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"{shown} cannot be read: {reason}; check path and permissions") from None
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{shown} is not a file: name an archive")
    return found.st_size, found.st_mtime_ns
