"""The members of archives as the tree of folders that unpacking them would leave, links included."""

from __future__ import annotations

import errno
import os
import stat
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rawpack.errors import RawpackError, UsageError
from rawpack_packer.sources.archives.tar import Member
from rawpack_packer.sources.beside import TABLES
from rawpack_packer.sources.files import MAX_PROBLEMS, NOT_SCANNED, text_of
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.folder_scan import OF_MACOS, ClassFolders, FolderScan, Identity, Wanted
from rawpack_packer.sources.look.listing import HEAD, ListedEntry
from rawpack_packer.sources.table.columns import Fault, Spans

_MOST_HOPS = 40
"""Links on the way to a file, as Linux allows."""
_MOST_SEEN = 1_000_000
"""Entries that a scan may find by links, besides the members: folders that are linked twice, again and again, would
have it run for years."""
_LONGEST_PATH = 4096
"""Bytes of a path that can be unpacked."""
_UNSUPPORTED: Fault = ("unreadable", "a sparse file, or the rest of one from another volume")
_OUTSIDE: Fault = ("bad_name", "the path leads out of the archive, or no file can have it")
_BROKEN: Fault = ("unreadable", f"[Errno {errno.ENOENT}] {os.strerror(errno.ENOENT)}")
"""Of a link that leads to no file in the archive."""


class Folder(dict[bytes, "Folder | int"]):
    """A folder in memory: name -> a folder, or the number of a file or link."""

    __slots__ = ("parent",)

    def __init__(self, parent: Folder | None = None) -> None:
        super().__init__()
        self.parent = parent

    def above(self) -> Iterator[Folder]:
        """The folders that it is in."""
        folder = self.parent
        while folder is not None:
            yield folder
            folder = folder.parent


Node = Folder | int


class Tree:
    """A folder in memory that members are unpacked into, one after another: of two with one name, the last stays.

    What is no folder has a number: its place in the columns.
    """

    def __init__(self) -> None:
        self.root = Folder()
        self.rooted = False
        """Whether the archive names its root, "./": what was archived is the root itself."""
        self.doubled: dict[bytes, None] = {}
        """Paths that came more than once, in order."""
        self.outside: dict[bytes, int] = {}
        """Files whose paths lead out of the archive."""
        self.archive, self.offset, self.size, self.time = array("i"), array("q"), array("q"), array("q")
        self.packed = array("q")
        """Of members of a zip archive, two numbers each: see `Spans`."""
        self.faults: dict[int, Fault] = {}
        self._targets: dict[int, bytes] = {}
        """Where links lead; nowhere for a hard link whose target is missing."""
        self.special: set[int] = set()
        """Pipes and devices."""

    def __len__(self) -> int:
        return len(self.archive)

    def add(self, member: Member, archive: int) -> None:
        """Unpack a member. archive: its number."""
        name, kind, number = member.name, member.kind, len(self.archive)
        parts = _parts(name)
        outside = name.startswith(b"/") or b".." in parts or b"\0" in name or len(name) > _LONGEST_PATH
        if kind == "folder" or not (outside or parts):
            if not outside:
                self.rooted |= not parts
                self._enter(parts)
            return
        if outside:
            self.outside[name] = number
            self.faults[number] = _OUTSIDE
        else:
            folder = self._enter(parts[:-1])
            before = folder.get(parts[-1])
            if before is not None:
                self.doubled[b"/".join(parts)] = None
            target: Node | None = self.root if kind == "hardlink" else None  # the file that it shares, before it
            for part in _parts(member.target) if kind == "hardlink" else ():
                target = target.get(part) if isinstance(target, Folder) else None
            if not isinstance(before, Folder):
                folder[parts[-1]] = target if isinstance(target, int) else number
            if kind == "special":
                self.special.add(number)
            elif kind in ("symlink", "hardlink"):
                soft = kind == "symlink" and len(member.target) <= _LONGEST_PATH
                self._targets[number] = member.target if soft else b""
            elif kind == "unsupported":
                self.faults[number] = _UNSUPPORTED
        if member.fault is not None:
            self.faults[number] = member.fault
        self.archive.append(archive)
        self.offset.append(member.offset)
        self.size.append(member.size)
        self.time.append(member.mtime_ns)
        self.packed.extend(member.packed or ())

    def remove(self, path: bytes) -> None:
        """Remove a file, unless a folder has taken its place."""
        *parts, name = _parts(path)
        folder = self._enter(parts)
        if not isinstance(folder[name], Folder):
            del folder[name]

    def files(self, folder: bytes) -> Iterator[tuple[bytes, int]]:
        """The path and the number of each file below a folder that is not hidden. Links to files are followed, those to
        folders are not."""
        waiting = [(folder + b"/" if folder else b"", self.folder_at(folder))]
        while waiting:
            path, at = waiting.pop()
            for name, node in at.items():
                if name.startswith(b"."):
                    continue
                if isinstance(node, Folder):
                    waiting.append((path + name + b"/", node))
                    continue
                found = self.followed(at, name)
                if isinstance(found, int) and found not in self.special:
                    yield path + name, found

    def find(self, folder: bytes) -> bytes | None:
        """The path of a folder as a user names it, below the root or below `top`; of `top` where none is named. None
        where there is no such folder."""
        top = self.top()
        for path in (folder, top + b"/" + folder) if folder else ():
            with suppress(OSError):
                if isinstance(self.resolve(self.root, path.strip(b"/")), Folder):
                    return path
        return None if folder else top

    def beside(self, folder: bytes) -> dict[str, list[str]]:
        """The folders next to one that `find` names, itself too, each with the folders in it."""
        above = self.folder_at(folder.rpartition(b"/")[0])
        return {
            text_of(name): [text_of(inner) for inner, below in node.items() if isinstance(below, Folder)]
            for name, node in above.items()
            if folder and isinstance(node, Folder)
        }

    def folder_at(self, path: bytes, below: Folder | None = None) -> Folder:
        """The folder at a path, which is one, below another folder or the root."""
        folder = self.resolve(self.root if below is None else below, path)
        assert isinstance(folder, Folder)
        return folder

    def followed(self, folder: Folder, name: bytes) -> Node | OSError:
        """What has a name in a folder, or what it links to; the error of a link that leads nowhere."""
        node = folder[name]
        if not self.is_link(node):
            return node
        try:
            return self.resolve(folder, name)
        except OSError as error:
            return error

    def is_link(self, node: Node) -> bool:
        return isinstance(node, int) and node in self._targets

    def resolve(self, folder: Folder, path: bytes) -> Node:
        """What is at `path` below a folder. Raises OSError, as the system would, for what is not in the archive."""
        found: Node = folder
        todo, hops = deque(path.split(b"/")), 0
        while todo:
            part = todo.popleft()
            if part in (b"", b"."):
                continue
            if not isinstance(found, Folder):
                raise _error(errno.ENOTDIR)
            node = found.parent if part == b".." else found.get(part)
            if node is None:
                raise _error(errno.ENOENT)
            if isinstance(node, Folder) or node not in self._targets:
                found = node
                continue
            hops, target = hops + 1, self._targets[node]
            if hops > _MOST_HOPS:
                raise _error(errno.ELOOP)
            if target.startswith(b"/") or not target:
                raise _error(errno.ENOENT)
            todo.extendleft(reversed(target.split(b"/")))
        return found

    def top(self) -> bytes:
        """The folder that was archived: the only one at the top, if nothing is next to it; b"" for the root.

        Hidden names do not count.
        """
        names = [name for name in self.root if not name.startswith(b".") and name != OF_MACOS.encode()]
        if self.rooted or len(names) != 1 or not isinstance(self.root[names[0]], Folder):
            return b""
        return names[0]

    def _enter(self, parts: Iterable[bytes]) -> Folder:
        """The folder at a path; made where it is missing, in place of a file too."""
        folder = self.root
        for part in parts:
            below = folder.get(part)
            if not isinstance(below, Folder):
                if below is not None:
                    self.doubled[part] = None
                below = folder[part] = Folder(folder)
            folder = below
        return folder


def _parts(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


@dataclass(slots=True)
class _MemberEntry(ListedEntry):
    node: Node | OSError
    """What it is, or what it links to."""


class TreeScan(FolderScan):
    """A scan of a folder in a tree: by the same rules as one on disk. In place of mtimes it finds numbers of files."""

    def __init__(
        self,
        tree: Tree,
        inside: bytes,
        wanted: Wanted,
        first_bytes: Callable[[int, int], bytes],
        classes: ClassFolders,
    ) -> None:
        """inside: the folder. first_bytes: reads that many of a file's first bytes, by its number."""
        self._tree, self._read, self._top = tree, first_bytes, tree.folder_at(inside)
        super().__init__("", wanted, classes=classes)
        for folder in self._top.above():
            files = [name for name, node in folder.items() if not isinstance(node, Folder)]
            self.beside.above += [name for name in files if _suffix(name) in TABLES]

    def head(self, path: bytes) -> bytes:
        """The first bytes of a file in the folder; b"" where it cannot be read."""
        with suppress(OSError, RawpackError):
            node = self._tree.resolve(self._top, path)
            return b"" if isinstance(node, Folder) else self._read(node, HEAD)
        return b""

    def add_outside(self) -> None:
        """Add the files whose paths lead out of the archive, as samples that are rejected; others are counted."""
        for name, number in self._tree.outside.items():
            if _suffix(name) in self.wanted.extensions:
                self._add(0, [(name, self._tree.size[number], number)])
                self.counts["bad_names"] += 1
            else:
                self.counts["other_files"] += 1

    def add_problem(self, name: bytes, problem: str) -> None:
        """Add an archive that cannot be read to its end, as a sample that could not be looked into."""
        self.counts["problems"] += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(problem)
        self._add(0, [(name, NOT_SCANNED, errno.EIO)])

    def files_in(self, spans: Spans) -> FolderFiles:
        """All that was found. spans: where each number is."""
        found = self.files()
        there = found.states[:, 0] >= 0
        members = spans.pick(np.where(there, found.states[:, 1], 0))
        faults = dict(members.faults) | dict.fromkeys(np.flatnonzero(~there).tolist(), _BROKEN)
        states = np.where(there[:, None], members.states, found.states)
        return replace(found, root=None, states=states, members=replace(members, states=states, faults=faults))

    def _above(self) -> set[Identity]:
        return {(0, id(folder)) for folder in self._top.above()}

    def _identity(self, folder: bytes) -> Identity:
        return 0, id(self._tree.folder_at(folder, self._top))

    def _entries(self, folder: bytes) -> AbstractContextManager[Iterable[_MemberEntry]]:
        tree = self._tree
        found = tree.folder_at(folder, self._top)
        if self._seen > _MOST_SEEN + len(tree):
            raise UsageError(f"links between folders of the archive lead to more than {self._seen:,} files: unpack it")
        return nullcontext(
            _MemberEntry(
                os.fsdecode(name), "", isinstance(node, Folder), tree.is_link(node), tree.followed(found, name)
            )
            for name, node in found.items()
        )

    def _stat(self, entry: Any) -> tuple[int, int, int]:
        node: Node | OSError = entry.node
        if isinstance(node, OSError):
            raise node
        if isinstance(node, Folder):
            return stat.S_IFDIR, 0, 0
        return stat.S_IFIFO if node in self._tree.special else stat.S_IFREG, self._tree.size[node], node

    def _first_bytes(self, entry: Any) -> bytes:
        return self._read(entry.node, self.wanted.sniff_bytes)

    def _check_there(self, where: bytes) -> None:
        """Nothing in an archive is removed during a scan; see `table.columns` for the archive itself."""


def _suffix(name: bytes) -> str:
    return os.path.splitext(os.fsdecode(name))[1].lower()  # noqa: PTH122


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
