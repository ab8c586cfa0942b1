"""Reads the directories of archives: every member goes into one tree, and where its bytes are into columns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources.archives.compressed import (
    NO_INDEX,
    CompressedSpans,
    check_readable,
    compression,
    open_compressed,
    read_at,
    save_index,
)
from rawpack_packer.sources.archives.files import ArchiveFiles
from rawpack_packer.sources.archives.spans import Fault, Spans
from rawpack_packer.sources.archives.tar import BLOCK, LONGEST, BadArchiveError, Member, Read, is_tar, tar_members
from rawpack_packer.sources.archives.tree import Tree
from rawpack_packer.sources.archives.zip import ZipSpans, zip_members
from rawpack_packer.sources.files import opened
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.text import count, plain

ZIP_MARKS = (b"PK\3\4", b"PK\5\6")
"""First bytes of a zip archive; the second is of an empty one."""
Found = tuple[Member, tuple[int, int] | None, Fault | None]
"""A member; what `ZipSpans.packed` has; why it cannot be read, if so."""


@dataclass(frozen=True)
class _Inner:
    """A tar archive in another one."""

    archive: int
    read: Read
    member: Member


class Index:
    """All members of archives, unpacked into one tree.

    If there is no image but there are tar archives in them, these are unpacked too, each into a folder with its name
    without the extension: ImageNet is a tar of tars.
    """

    def __init__(self, archives: ArchiveFiles, progress: Callable[[int], None] | None) -> None:
        """Raises UsageError for what is no archive, MissingExtraError for a compressed one that nothing can read."""
        self.tree = Tree()
        self.problems: dict[bytes, str] = {}
        """Archives that cannot be read to their end: a name for each -> why, for a person."""
        self._progress, self._seen = progress, 0
        self._images = False
        """Whether there is any, by its extension."""
        self._inner: list[_Inner] = []
        self._kinds = [_kind(path) for path in archives.paths]
        if "zip" in self._kinds and len({*self._kinds}) > 1:
            one, other = (plain(archives.paths[self._kinds.index(kind)]) for kind in sorted({*self._kinds})[:2])
            raise UsageError(f"{one} and {other} are of different kinds: pack zip and tar archives separately")
        with ExitStack() as files:
            indexes = [
                self._add_archive(k, path, kind, files)
                for k, (path, kind) in enumerate(zip(archives.paths, self._kinds, strict=True))
            ]
            for inner in () if self._images else self._inner:
                self._add_inner(inner, archives.paths[inner.archive])
        if progress is not None:
            progress(self._seen)
        self._archives = replace(archives, indexes=tuple(indexes) if any(indexes) else ())

    def spans(self) -> Spans:
        """Where everything is that has a number in the tree."""
        tree = self.tree
        columns = (
            self._archives,
            np.array(tree.archive, np.int32),
            np.array(tree.offset, np.int64),
            np.array([tree.size, tree.time], np.int64).T,
            tree.faults,
        )
        if "zip" in self._kinds:
            return ZipSpans(*columns, packed=np.array(tree.packed, np.int64).reshape(-1, 2))
        return CompressedSpans(*columns) if self._archives.indexes else Spans(*columns)

    def _add_archive(self, k: int, path: str, kind: str, files: ExitStack) -> str:
        """Add archive k, which stays open in `files`. Returns the file with the index of a compressed one, or ""."""
        fd = files.enter_context(opened(path))
        name = os.fsencode(f"{k}/{Path(path).name}")
        if kind == "zip":
            self._add(zip_members(fd), k, name, path)
            return ""
        if kind == "tar":
            self._add_tar(partial(_pread, fd), os.fstat(fd).st_size, k, name, path)
            return ""
        reader = open_compressed(path, fd, threads=0)
        files.callback(reader.close)
        self._add_tar(partial(read_at, reader), LONGEST, k, name, path)
        try:
            return save_index(reader)
        except DecodeError as error:
            self.problems.setdefault(name + b"/", f"{plain(path)}: {error.detail}")
            return NO_INDEX

    def _add_tar(self, read: Read, stop: int, k: int, name: bytes, path: str) -> None:
        tars = self._add(_in_tar(read, 0, stop), k, name, path)
        self._inner += [_Inner(k, read, member) for member in tars]

    def _add_inner(self, inner: _Inner, path: str) -> None:
        member = inner.member
        if is_tar(inner.read(member.offset, BLOCK)) and self.tree.remove(member.name):
            folder = member.name[: -len(b".tar")] + b"/"
            self.tree.add(member._replace(name=folder, kind="folder"), inner.archive)
            found = _in_tar(inner.read, member.offset, member.offset + member.size)
            name = b"%d/%s" % (inner.archive, member.name)
            self._add(found, inner.archive, name, f"{path}/{os.fsdecode(member.name)}", folder)

    def _add(self, found: Iterable[Found], k: int, name: bytes, path: str, folder: bytes = b"") -> list[Member]:
        """Add members of archive k, below `folder`, and return those that are tar archives. name, path: of what is
        read, where it cannot be read to its end."""
        before, tars = self._seen, list[Member]()
        try:
            for member, packed, fault in found:
                self._seen += 1
                if self._progress is not None and self._seen % PROGRESS_EVERY == 0:
                    self._progress(self._seen)
                self.tree.add(member._replace(name=folder + member.name), k, packed, fault)
                extension = os.path.splitext(member.name)[1].lower()  # noqa: PTH122
                self._images = self._images or os.fsdecode(extension) in IMAGE_EXTENSIONS
                if extension == b".tar" and member.kind == "file":
                    tars.append(member)
        except (BadArchiveError, DecodeError) as error:
            detail = error.detail if isinstance(error, DecodeError) else error
            intact = count(self._seen - before, "member")
            self.problems[name + b"/"] = f"{plain(path)} cannot be read to its end: {detail}; {intact} before that"
        return tars


def _in_tar(read: Read, start: int, stop: int) -> Iterator[Found]:
    return ((member, None, None) for member in tar_members(read, start, stop))


def _pread(fd: int, offset: int, size: int) -> bytes:
    return os.pread(fd, size, offset)


def _kind(path: str) -> str:
    """ "zip", "tar", ".gz" or ".bz2". Raises UsageError for anything else."""
    with opened(path) as fd:
        first = os.read(fd, BLOCK)
    if first.startswith(ZIP_MARKS) or (path.lower().endswith(".zip") and not is_tar(first)):
        return "zip"
    if (kind := compression(first)) != "":
        check_readable(path, kind)
        return kind
    if not is_tar(first) and not path.lower().endswith(".tar"):
        raise UsageError(f"{plain(os.fsencode(path))} is no archive: tar and zip archives can be packed")
    return "tar"
