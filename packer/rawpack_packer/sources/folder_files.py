"""The files of a folder, on disk or in an archive, as a column."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import Item
from rawpack_packer.sources.files import NOT_SCANNED, LocalPath, bad_name, not_scanned, read_file, text_of
from rawpack_packer.sources.table.columns import Spans, bytes_at


@dataclass(frozen=True, slots=True, eq=False)
class FolderFiles:
    """Files of a folder, which name their samples: a column of images."""

    root: LocalPath | None
    """The folder's absolute path, as the operating system takes it; None in an archive."""
    folders: tuple[bytes, ...]
    """Folders that hold the files, below root, each ending in "/"; root itself is b""."""
    folder_of: NDArray[np.int32]
    """(n,): the folder of each file."""
    names: bytes
    """The names of all files, one after another."""
    ends: NDArray[np.int64]
    """(n + 1,): name i is names[ends[i]:ends[i + 1]]."""
    states: NDArray[np.int64]
    """(n, 2): size in bytes and mtime in ns, or `NOT_SCANNED` and the number of an error."""
    members: Spans | None = None
    """Where the files are if the folder is one of an archive; None if they are on disk."""

    def __len__(self) -> int:
        return len(self.folder_of)

    def value(self, i: int, /) -> Item:
        path = self.path(i)
        key = text_of(path)
        size, mtime = self.states[i].tolist()
        if size != NOT_SCANNED and (error := bad_name(path)) is not None:
            raise error
        if self.members is None:
            image = read_file(self.file(i), key, (size, mtime))
        elif (unread := not_scanned((size, mtime))) is not None:
            raise unread
        else:
            image = self.members.value(i)
        return Item(key, image, {})

    def key(self, i: int) -> str:
        """The file's path below root, parts joined by "/"."""
        return text_of(self.path(i))

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        if self.members is not None:
            return self.members.image_file(i)
        return self.file(i), 0, int(self.states[i, 0])

    def at_hand(self) -> NDArray[np.int64] | None:
        return None if self.members is None else self.members.at_hand()

    def pick(self, rows: NDArray[np.int64], /) -> FolderFiles:
        used, numbers = np.unique(self.folder_of[rows], return_inverse=True)
        names, ends = bytes_at(self.names, self.ends, rows)
        return FolderFiles(
            self.root,
            tuple(self.folders[k] for k in used.tolist()),
            numbers.astype(np.int32),
            names,
            ends,
            self.states[rows],
            None if self.members is None else self.members.pick(rows),
        )

    @property
    def folder(self) -> str:
        """The root of files on disk."""
        assert self.root is not None
        return self.root

    def file(self, i: int) -> str:
        """The path by which a file on disk is read."""
        return os.path.join(self.folder, os.fsdecode(self.path(i)))  # noqa: PTH118 - a Path for each would be slow

    def path(self, i: int) -> bytes:
        """The file's path below root, as the operating system has it."""
        return self.folders[int(self.folder_of[i])] + self.names[int(self.ends[i]) : int(self.ends[i + 1])]
