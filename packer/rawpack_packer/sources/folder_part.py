"""The files of a folder, on disk or in an archive, as columns: what a worker gets of them."""

# ruff: noqa: PTH118 - a Path for each file would be slow
from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import Item, check_part, check_sample
from rawpack_packer.sources.files import NOT_SCANNED, bad_name, not_scanned, read_file, text_of
from rawpack_packer.sources.optional import Images


@dataclass(frozen=True, slots=True, eq=False)
class FolderPart:
    """Some files of a folder, in order."""

    root: str
    """The folder's absolute path, as the operating system takes it."""
    folders: tuple[bytes, ...]
    """Folders that hold the files, below root, each ending in "/"; root itself is b""."""
    labels: NDArray[np.int32] | None
    """Label of each folder; None where there are no classes."""
    folder_of: NDArray[np.int32]
    """(n,): the folder of each file."""
    names: bytes
    """The names of all files, one after another."""
    ends: NDArray[np.int64]
    """(n + 1,): name i is names[ends[i]:ends[i + 1]]."""
    states: NDArray[np.int64]
    """(n, 2): size in bytes and mtime in ns, or `NOT_SCANNED` and the number of an error."""
    members: Images | None = None
    """Where the files are if the folder is one of an archive; None if they are on disk."""

    def __len__(self) -> int:
        return len(self.folder_of)

    def __getitem__(self, i: int, /) -> Item:
        path = self.path(i)
        key = text_of(path)
        size, mtime = self.states[i].tolist()
        if size != NOT_SCANNED and (error := bad_name(path)) is not None:
            raise error
        if self.members is None:
            image = read_file(os.path.join(self.root, os.fsdecode(path)), key, (size, mtime))
        elif (unread := not_scanned((size, mtime))) is not None:
            raise unread
        else:
            image = self.members.value(i)
        return Item(key, image, {} if self.labels is None else {"label": int(self.labels[self.folder_of[i]])})

    def key(self, i: int, /) -> str:
        """The file's path below root, parts joined by "/"."""
        return text_of(self.path(i))

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`."""
        if self.members is not None:
            return self.members.image_file(i)
        return os.path.join(self.root, os.fsdecode(self.path(i))), 0, int(self.states[i, 0])

    def part(self, start: int, stop: int, /) -> FolderPart:
        """Files start <= i < stop."""
        check_part(self, start, stop)
        return self.pick(np.arange(start, stop))

    def pick(self, rows: NDArray[np.int64], /) -> FolderPart:
        """Files at `rows`, in their order."""
        used, folder_of = np.unique(self.folder_of[rows], return_inverse=True)
        spans = zip(self.ends[rows].tolist(), self.ends[rows + 1].tolist(), strict=True)
        names = [self.names[start:stop] for start, stop in spans]
        return FolderPart(
            root=self.root,
            folders=tuple(self.folders[k] for k in used.tolist()),
            labels=None if self.labels is None else self.labels[used],
            folder_of=folder_of.astype(np.int32),
            names=b"".join(names),
            ends=np.cumsum([0, *map(len, names)], dtype=np.int64),
            states=self.states[rows],
            members=None if self.members is None else self.members.pick(rows),
        )

    def path(self, i: int) -> bytes:
        """The file's path below root, as the operating system has it."""
        check_sample(self, i)
        return self.folders[int(self.folder_of[i])] + self.names[int(self.ends[i]) : int(self.ends[i + 1])]

    def file_labels(self) -> NDArray[np.int64] | None:
        """(n,): the label of each file, -1 outside the class folders; None where there are no classes."""
        return None if self.labels is None else self.labels[self.folder_of].astype(np.int64)
