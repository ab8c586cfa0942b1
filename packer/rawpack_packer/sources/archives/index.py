"""Reads the directories of archives: every member goes into one tree, and where its bytes are into columns."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
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
from rawpack_packer.sources.archives.headers_ahead import read_headers_ahead
from rawpack_packer.sources.archives.tar import (
    BLOCK,
    LONGEST,
    BadArchiveError,
    Member,
    Read,
    is_tar,
    read_of,
    tar_members,
)
from rawpack_packer.sources.archives.tree import Tree
from rawpack_packer.sources.archives.zip import ZipSpans, zip_members
from rawpack_packer.sources.base import Scanning
from rawpack_packer.sources.folder import EXTENSIONS as IMAGE_EXTENSIONS
from rawpack_packer.sources.folder_scan import PROGRESS_EVERY
from rawpack_packer.sources.table.kept import KeptBytes
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.sources.table.spans import Fault, Spans
from rawpack_packer.text import count, plain

EXTENSIONS = (
    ".tar", ".zip", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tbz", ".tar.xz", ".txz", ".tar.zst", ".tzst",
)  # fmt: skip
_NESTED = tuple(extension.encode() for extension in (*EXTENSIONS, ".7z", ".rar"))
"""Endings of archives in archives."""
ZIP_MARKS = (b"PK\3\4", b"PK\5\6")
"""First bytes of a zip archive; the second is of an empty one."""
_COMPRESSED = "compressed tar"
"""The kind of an archive of which an earlier run has kept the index."""
Found = tuple[Member, tuple[int, int] | None, Fault | None]
"""A member; what `ZipSpans.packed` has; why it cannot be read, if so."""


class Index:
    """All members of archives, unpacked into one tree.

    If there is no image but there are tar archives in them, these are unpacked too, each into a folder with its name
    without the extension: ImageNet is a tar of tars. What is left of archives in archives cannot be read.
    """

    def __init__(self, archives: NamedFiles, inside: bytes, progress: Scanning) -> None:
        """inside: the folder that is packed, as the user named it, or b"".

        Raises UsageError for what is no archive, MissingExtraError for a compressed one that nothing can read.
        """
        self.tree = Tree()
        self.problems: dict[bytes, str] = {}
        """Archives that cannot be read to their end: a name for each -> why, for a person."""
        self._progress, self._seen = progress, 0
        self._nested = False
        """Whether any member is an archive by its name."""
        self._kinds: list[str] = []
        self._archives = archives
        with archives.looked_through():
            indexes = [self._add_archive(k) for k in range(len(archives))]
        if self._nested:
            self._add_nested(inside)
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

    def _add_archive(self, k: int) -> KeptBytes | None:
        """Add archive k. Returns the index of a compressed one."""
        archives, shown = self._archives, self._archives.name(k)
        name = f"{k}/{shown.rpartition('/')[2]}".encode()
        index = archives.kept_index(k)
        for kind in (_COMPRESSED,) if index else ("tar", "zip"):
            if (kept := archives.kept(k, kind, Found)) is not None:
                self._set_kind(kind)
                self._add(kept, k, name, shown)
                return index
        with self._opened(k) as (fd, reader):
            if self._kinds[k] == "zip":
                self._add(archives.keeping(k, "zip", zip_members(fd)), k, name, shown)
                return None
            read = read_of(fd) if reader is None else partial(read_at, reader)
            if reader is None:
                read_headers_ahead(fd, 0, os.fstat(fd).st_size)
            found = _in_tar(read, 0, os.fstat(fd).st_size if reader is None else LONGEST)
            self._add(archives.keeping(k, _COMPRESSED if reader else "tar", found), k, name, shown)
            if reader is None:
                return None
            try:
                return archives.keep_index(k, save_index(reader, fd))
            except DecodeError as error:
                self.problems.setdefault(name + b"/", f"{shown}: {error.detail}")
                return NO_INDEX

    def _add_nested(self, inside: bytes) -> None:
        """Unpack the tar archives in archives, unless there are images: then all of them are problems, as others are.

        That is decided by what is in the folder that is packed. Where it is only in such an archive, all are unpacked.
        """
        folder = self.tree.find(inside)
        images, nested = self._below(folder or b"")
        if images and folder is not None:
            for path, number in nested.items():
                self._problem(path, number, beside=images)
            return
        for k, paths in itertools.groupby(nested, key=lambda path: self.tree.archive[nested[path]]):
            with self._opened(k) as (fd, reader):
                read = read_of(fd) if reader is None else partial(read_at, reader)
                for path in paths:
                    number = nested[path]
                    if path.lower().endswith(b".tar") and self._kinds[k] != "zip" and number not in self.tree.faults:
                        if reader is None:
                            at, size = self.tree.offset[number], self.tree.size[number]
                            read_headers_ahead(fd, at, at + size)
                        self._add_inner(read, path, number)
                    else:
                        self._problem(path, number)
                        self._add_folder(path)
        # These are in an archive in an archive.
        for path, number in self._below(self.tree.find(inside) or b"")[1].items():
            self._problem(path, number)

    def _below(self, folder: bytes) -> tuple[int, dict[bytes, int]]:
        """The images below a folder, by their names, and the archives, in the order in which they are stored."""
        images, nested = 0, dict[bytes, int]()
        for path, number in self.tree.files(folder):
            name = path.lower()
            if name.endswith(_NESTED):
                nested[path] = number
            images += os.fsdecode(os.path.splitext(name)[1]) in IMAGE_EXTENSIONS  # noqa: PTH122
        tree = self.tree
        return images, dict(sorted(nested.items(), key=lambda found: (tree.archive[found[1]], tree.offset[found[1]])))

    def _add_folder(self, path: bytes) -> bytes:
        """Have a folder in place of an archive, with its name, even if nothing of it can be read: it may be a class,
        and without it the numbers of others would change."""
        ending = next(ending for ending in _NESTED if path.lower().endswith(ending))
        folder = path[: -len(ending)] + b"/"
        self.tree.add(Member(folder, "folder", 0, 0, 0, b""), 0)
        return folder

    def _add_inner(self, read: Read, path: bytes, number: int) -> None:
        k, offset, size = self.tree.archive[number], self.tree.offset[number], self.tree.size[number]
        what = f"tar at {offset}"
        self.tree.remove(path)
        folder = self._add_folder(path)
        found = self._archives.kept(k, what, Found)
        if found is None:
            found = self._archives.keeping(k, what, _in_tar(read, offset, offset + size))
        self._add(found, k, b"%d/%s" % (k, path), f"{self._archives.name(k)}/{plain(path)}", folder)

    def _problem(self, path: bytes, number: int, beside: int = 0) -> None:
        """Record an archive in an archive that is not read. beside: the number of images next to it."""
        k = self.tree.archive[number]
        outer = self._archives.name(k)
        self.tree.remove(path)
        if beside and path.lower().endswith(b".tar") and self._kinds[k] != "zip":
            why = (
                f"is an archive next to {count(beside, 'image')}: take out the one or the other, or name the folder to "
                f"pack, such as {outer}/{plain(path[: -len('.tar')])}"
            )
        else:
            why = (
                "is an archive in an archive, of which only a .tar in a tar archive is read: unpack both, this one "
                "into a folder with its name, and pack the folder; or take it out"
            )
            why += f", or name the folder to pack: {outer}/FOLDER" if beside else ""
        self.problems[b"%d/%s" % (k, path)] = f"{outer}/{plain(path)} {why}"

    def _add(self, found: Iterable[Found], k: int, name: bytes, shown: str, folder: bytes = b"") -> None:
        """Add members of archive k, below `folder`. name, shown: of what is read, if it cannot be read to its end."""
        before = self._seen
        try:
            for member, packed, fault in found:
                self._seen += 1
                if self._seen % PROGRESS_EVERY == 0:
                    self._progress(self._seen)
                self.tree.add(member._replace(name=folder + member.name), k, packed, fault)
                if member.kind == "file":
                    self._nested = self._nested or member.name[-8:].lower().endswith(_NESTED)
                    if not member.name.strip(b"./"):
                        self.problems[name + b"/%d" % member.offset] = (
                            f"{shown}: the member at byte {member.offset} has no name"
                        )
        except (BadArchiveError, DecodeError) as error:
            detail = error.detail if isinstance(error, DecodeError) else error
            intact = count(self._seen - before, "member")
            self.problems[name + b"/"] = f"{shown} cannot be read to its end: {detail}; {intact} before that"


def _in_tar(read: Read, start: int, stop: int) -> Iterator[Found]:
    return ((member, None, None) for member in tar_members(read, start, stop))


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
