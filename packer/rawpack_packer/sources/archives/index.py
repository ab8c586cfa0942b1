"""Reads the directories of archives: every member goes into one tree, and where its bytes are into columns."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

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
from rawpack_packer.sources.archives.headers_ahead import read_headers_ahead
from rawpack_packer.sources.archives.spans import Fault, Spans
from rawpack_packer.sources.archives.tar import BLOCK, LONGEST, BadArchiveError, Member, Read, is_tar, tar_members
from rawpack_packer.sources.archives.tree import Tree
from rawpack_packer.sources.archives.zip import ZipSpans, zip_members
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.text import count, plain

ZIP_MARKS = (b"PK\3\4", b"PK\5\6")
"""First bytes of a zip archive; the second is of an empty one."""
_COMPRESSED = "compressed tar"
"""The kind of an archive of which an earlier run has kept the index."""
Found = tuple[Member, tuple[int, int] | None, Fault | None]
"""A member; what `ZipSpans.packed` has; why it cannot be read, if so."""


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
        self._inner: list[tuple[int, Member]] = []
        """Tar archives in others: the number of the outer one, and the member."""
        self._kinds: list[str] = []
        self._archives = archives
        with archives.looked_through():
            indexes = [self._add_archive(k) for k in range(len(archives))]
        if not self._images:
            for k, inner in itertools.groupby(self._inner, key=lambda found: found[0]):
                with self._opened(k) as (fd, reader):
                    for _, member in inner:
                        if reader is None:
                            read_headers_ahead(fd, member.offset, member.offset + member.size)
                        self._add_inner(k, partial(_pread, fd) if reader is None else partial(read_at, reader), member)
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

    @contextmanager
    def _opened(self, k: int) -> Iterator[tuple[int, Any]]:
        """A descriptor of archive k; and, if it is compressed, what reads it."""
        with self._archives.opened(k, keep=False) as fd:
            if k == len(self._kinds):
                self._set_kind(_kind(fd, self._archives.paths[k].lower(), self._archives.name(k)))
            if self._kinds[k] in ("zip", "tar"):
                yield fd, None
                return
            with closing(open_compressed(self._archives.paths[k], fd, threads=0)) as reader:
                yield fd, reader

    def _set_kind(self, kind: str) -> None:
        self._kinds.append(kind)
        if "zip" in self._kinds and len({*self._kinds}) > 1:
            one, other = (self._archives.name(self._kinds.index(kind)) for kind in sorted({*self._kinds})[:2])
            raise UsageError(f"{one} and {other} are of different kinds: pack zip and tar archives separately")

    def _add_archive(self, k: int) -> str:
        """Add archive k. Returns the file with the index of a compressed one, or ""."""
        archives, shown = self._archives, self._archives.name(k)
        name = f"{k}/{shown.rpartition('/')[2]}".encode()
        index = archives.kept_index(k)
        for kind in (_COMPRESSED,) if index else ("tar", "zip"):
            if (kept := archives.kept(k, kind, Found)) is not None:
                self._set_kind(kind)
                tars = self._add(kept, k, name, shown)
                self._inner += [(k, member) for member in tars if kind != "zip"]
                return index
        with self._opened(k) as (fd, reader):
            if self._kinds[k] == "zip":
                self._add(archives.keeping(k, "zip", zip_members(fd)), k, name, shown)
                return ""
            read: Read = partial(_pread, fd) if reader is None else partial(read_at, reader)
            if reader is None:
                read_headers_ahead(fd, 0, os.fstat(fd).st_size)
            found = _in_tar(read, 0, os.fstat(fd).st_size if reader is None else LONGEST)
            tars = self._add(archives.keeping(k, _COMPRESSED if reader else "tar", found), k, name, shown)
            self._inner += [(k, member) for member in tars]
            if reader is None:
                return ""
            try:
                return archives.keep_index(k, save_index(reader))
            except DecodeError as error:
                self.problems.setdefault(name + b"/", f"{shown}: {error.detail}")
                return NO_INDEX

    def _add_inner(self, k: int, read: Read, member: Member) -> None:
        what = f"tar at {member.offset}"
        found = self._archives.kept(k, what, Found)
        if (found is not None or is_tar(read(member.offset, BLOCK))) and self.tree.remove(member.name):
            folder = member.name[: -len(b".tar")] + b"/"
            self.tree.add(member._replace(name=folder, kind="folder"), k)
            if found is None:
                found = _in_tar(read, member.offset, member.offset + member.size)
                found = self._archives.keeping(k, what, found)
            name = b"%d/%s" % (k, member.name)
            self._add(found, k, name, f"{self._archives.name(k)}/{plain(member.name)}", folder)

    def _add(self, found: Iterable[Found], k: int, name: bytes, shown: str, folder: bytes = b"") -> list[Member]:
        """Add members of archive k, below `folder`, and return those that are tar archives. name, shown: of what is
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
            self.problems[name + b"/"] = f"{shown} cannot be read to its end: {detail}; {intact} before that"
        return tars


def _in_tar(read: Read, start: int, stop: int) -> Iterator[Found]:
    return ((member, None, None) for member in tar_members(read, start, stop))


def _pread(fd: int, offset: int, size: int) -> bytes:
    return os.pread(fd, size, offset)


def _kind(fd: int, path: str, shown: str) -> str:
    """ "zip", "tar", ".gz" or ".bz2". path: in lower case. Raises UsageError for anything else."""
    first = os.pread(fd, BLOCK, 0)
    if first.startswith(ZIP_MARKS) or (path.endswith(".zip") and not is_tar(first)):
        return "zip"
    if (kind := compression(first)) != "":
        check_readable(shown, kind)
        return kind
    if not is_tar(first) and not path.endswith(".tar"):
        raise UsageError(f"{shown} is no archive: tar and zip archives can be packed")
    return "tar"
