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
from typing import NamedTuple

import numpy as np

from rawpack.errors import RawpackError, UsageError
from rawpack_packer.sources.archives.tar import Member
from rawpack_packer.sources.beside import TABLES
from rawpack_packer.sources.files import NOT_SCANNED
from rawpack_packer.sources.folder_part import FolderPart
from rawpack_packer.sources.folder_scan import MAX_PROBLEMS, Entry, FolderScan, Identity, Wanted
from rawpack_packer.sources.table.spans import Fault, Spans

_MOST_HOPS = 40
"""Links on the way to a file, as Linux allows."""
_MOST_SEEN = 1_000_000
"""Entries that a scan may find by links, besides the members: folders that are linked twice, again and again, would
have it run for years."""
_LONGEST_PATH = 4096
"""Bytes of a path that can be unpacked."""
_OUTSIDE: Fault = ("bad_name", "the path leads out of the archive, or no file can have it")
_BROKEN: Fault = ("unreadable", f"[Errno {errno.ENOENT}] {os.strerror(errno.ENOENT)}")
"""Of a link that leads to no file in the archive."""

Node = dict[bytes, "Node"] | int
"""A folder, or the number of a file or link."""
Folder = dict[bytes, Node]


class Tree:
    """A folder in memory that members are unpacked into, one after another: of two with one name, the last stays.

    What is no folder has a number: its place in the columns.
    """

    def __init__(self) -> None:
        self.root: Folder = {}
        self.rooted = False
        """Whether the archive names its root, "./": what was archived is the root itself."""
        self.doubled: dict[bytes, None] = {}
        """Paths that came more than once, in order."""
        self.outside: dict[bytes, int] = {}
        """Files whose paths lead out of the archive."""
        self.archive, self.offset, self.size, self.time = array("i"), array("q"), array("q"), array("q")
        self.packed = array("q")
        """Of members of a zip archive, two numbers each: see `ZipSpans`."""
        self.faults: dict[int, Fault] = {}
        self._targets: dict[int, bytes] = {}
        """Where links lead; nowhere for a hard link whose target is missing."""
        self._special: set[int] = set()

    def __len__(self) -> int:
        return len(self.archive)

    def add(
        self, member: Member, archive: int, packed: tuple[int, int] | None = None, fault: Fault | None = None
    ) -> None:
        """Unpack a member. archive: its number. fault: why it cannot be read."""
        parts = [part for part in member.name.split(b"/") if part not in (b"", b".")]
        number = len(self.archive)
        if member.name.startswith(b"/") or b".." in parts or b"\0" in member.name or len(member.name) > _LONGEST_PATH:
            if member.kind == "folder":
                return
            self.outside[member.name] = number
            self.faults[number] = _OUTSIDE
        elif not parts:
            self.rooted = True
            return
        elif member.kind == "folder":
            self._enter(parts)
            return
        else:
            folder, name = self._enter(parts[:-1]), parts[-1]
            before = folder.get(name)
            if before is not None:
                self.doubled[b"/".join(parts)] = None
            target = self._hard(member.target) if member.kind == "hardlink" else None
            if not isinstance(before, dict):
                folder[name] = number if target is None else target
            if member.kind == "special":
                self._special.add(number)
            elif member.kind in ("symlink", "hardlink"):
                soft = member.kind == "symlink" and len(member.target) <= _LONGEST_PATH
                self._targets[number] = member.target if soft else b""
            elif member.kind == "unsupported":
                self.faults[number] = "unreadable", "a sparse file, or the rest of one from another volume"
        if fault is not None:
            self.faults[number] = fault
        self.archive.append(archive)
        self.offset.append(member.offset)
        self.size.append(member.size)
        self.time.append(member.mtime_ns)
        self.packed.extend(packed or ())

    def remove(self, path: bytes) -> bool:
        """Remove a file. Returns whether there was one."""
        *parts, name = [part for part in path.split(b"/") if part not in (b"", b".")] or [b""]
        folder = self._enter(parts)
        return not isinstance(folder.get(name), dict) and folder.pop(name, None) is not None

    def files(self, folder: bytes) -> Iterator[tuple[bytes, int]]:
        """The path and the number of each file below a folder that is not hidden. Links to files are followed, those to
        folders are not."""
        waiting = [(folder + b"/" if folder else b"", self.resolve((self.root,), folder or b"."))]
        while waiting:
            path, where = waiting.pop()
            at = where[-1]
            for name, node in at.items() if isinstance(at, dict) else ():
                if name.startswith(b"."):
                    continue
                if isinstance(node, dict):
                    waiting.append((path + name + b"/", (*where, node)))
                    continue
                with suppress(OSError):
                    found = self.resolve(where, name)[-1] if node in self._targets else node
                    if isinstance(found, int) and found not in self._special:
                        yield path + name, found

    def find(self, folder: bytes) -> bytes | None:
        """The path of a folder as a user names it, below the root or below `top`; of `top` where none is named. None
        where there is no such folder."""
        top = self.top()
        for path in (folder, top + b"/" + folder) if folder else ():
            with suppress(OSError):
                if isinstance(self.resolve((self.root,), path.strip(b"/"))[-1], dict):
                    return path
        return None if folder else top

    def is_link(self, node: Node) -> bool:
        return isinstance(node, int) and node in self._targets

    def is_special(self, node: Node) -> bool:
        return isinstance(node, int) and node in self._special

    def resolve(self, where: tuple[Node, ...], path: bytes) -> tuple[Node, ...]:
        """The nodes from the root to `path` below the last node of `where`. Raises OSError, as the system would, for a
        path that is not in the archive."""
        found, todo, hops = [*where], deque(path.split(b"/")), 0
        if path.startswith(b"/") or not path:
            raise _error(errno.ENOENT)
        while todo:
            part = todo.popleft()
            if part in (b"", b"."):
                continue
            at = found[-1]
            if not isinstance(at, dict):
                raise _error(errno.ENOTDIR)
            if part == b"..":
                if len(found) == 1:
                    raise _error(errno.ENOENT)  # out of the archive
                found.pop()
                continue
            node = at.get(part)
            if node is None:
                raise _error(errno.ENOENT)
            if isinstance(node, dict) or node not in self._targets:
                found.append(node)
                continue
            hops, target = hops + 1, self._targets[node]
            if hops > _MOST_HOPS:
                raise _error(errno.ELOOP)
            if target.startswith(b"/") or not target:
                raise _error(errno.ENOENT)
            todo.extendleft(reversed(target.split(b"/")))
        return tuple(found)

    def top(self) -> bytes:
        """The folder that was archived: the only one at the top, if nothing is next to it; b"" for the root.

        Hidden names do not count, nor does the folder in which macOS keeps what its own file system adds.
        """
        names = [name for name in self.root if not name.startswith(b".") and name != b"__MACOSX"]
        if self.rooted or len(names) != 1 or not isinstance(self.root[names[0]], dict):
            return b""
        return names[0]

    def _enter(self, parts: Iterable[bytes]) -> Folder:
        """The folder at a path; made where it is missing, in place of a file too."""
        folder = self.root
        for part in parts:
            below = folder.get(part)
            if not isinstance(below, dict):
                if below is not None:
                    self.doubled[part] = None
                below = folder[part] = {}
            folder = below
        return folder

    def _hard(self, target: bytes) -> int | None:
        """The file that a hard link shares, which comes before it; None where there is none."""
        node: Node | None = self.root
        for part in target.split(b"/"):
            if part not in (b"", b"."):
                node = node.get(part) if isinstance(node, dict) else None
        return node if isinstance(node, int) else None


class _MemberState(NamedTuple):
    st_mode: int
    st_size: int
    st_mtime_ns: int


@dataclass(slots=True)
class _MemberEntry:
    name: str
    node: Node
    where: tuple[Node, ...]
    """The nodes from the root to the folder that it is in."""
    is_link: bool
    path: str = ""

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return isinstance(self.node, dict)

    def is_symlink(self) -> bool:
        return self.is_link


class TreeScan(FolderScan):
    """A scan of a folder in a tree: by the same rules as one on disk. In place of mtimes it finds numbers of files."""

    def __init__(self, tree: Tree, inside: bytes, wanted: Wanted, first_bytes: Callable[[int, int], bytes]) -> None:
        """inside: the folder. first_bytes: reads that many of a file's first bytes, by its number."""
        self._tree, self._read = tree, first_bytes
        self._where = tree.resolve((tree.root,), inside or b".")
        super().__init__("", wanted)
        for folder in self._where[:-1]:
            for name, node in folder.items() if isinstance(folder, dict) else ():
                if os.path.splitext(os.fsdecode(name))[1].lower() in TABLES and not isinstance(node, dict):  # noqa: PTH122
                    self.beside.above.append(name)

    def head(self, path: bytes, size: int) -> bytes:
        """The first bytes of a file in the folder; b"" where it cannot be read."""
        try:
            node = self._tree.resolve(self._where, path)[-1]
            return b"" if isinstance(node, dict) or node in self._tree.faults else self._read(node, size)
        except (OSError, RawpackError):
            return b""

    def add_outside(self) -> None:
        """Add the files whose paths lead out of the archive, as samples that are rejected; others are counted."""
        for name, number in self._tree.outside.items():
            if os.path.splitext(os.fsdecode(name))[1].lower() in self._wanted.extensions:  # noqa: PTH122
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

    def files(self, spans: Spans | None = None) -> FolderPart:
        """All that was found. spans: where each number is."""
        found = super().files()
        if spans is None:
            return found
        there = found.states[:, 0] >= 0
        rows = np.where(there, found.states[:, 1], 0)
        members = spans.pick(rows)
        faults = dict(members.faults) | dict.fromkeys(np.flatnonzero(~there).tolist(), _BROKEN)
        states = np.where(there[:, None], members.states, found.states)
        return replace(found, states=states, members=replace(members, states=states, faults=faults))

    def _above(self) -> set[Identity]:
        return {(0, id(node)) for node in self._where[:-1]}

    def _nodes(self, folder: bytes) -> tuple[Node, ...]:
        return self._tree.resolve(self._where, folder or b".")

    def _identity(self, folder: bytes) -> Identity:
        return 0, id(self._nodes(folder)[-1])

    def _entries(self, folder: bytes) -> AbstractContextManager[Iterable[_MemberEntry]]:
        where, tree = self._nodes(folder), self._tree
        at = where[-1]
        assert isinstance(at, dict)  # the scan enters nothing else
        if self._seen > _MOST_SEEN + len(tree):
            raise UsageError(f"links between folders of the archive lead to more than {self._seen:,} files: unpack it")
        return nullcontext(
            _MemberEntry(os.fsdecode(name), node, where, tree.is_link(node)) for name, node in at.items()
        )

    def _stat(self, entry: Entry) -> _MemberState:
        node = self._followed(entry)
        if isinstance(node, dict):
            return _MemberState(stat.S_IFDIR, 0, 0)
        mode = stat.S_IFIFO if self._tree.is_special(node) else stat.S_IFREG
        return _MemberState(mode, self._tree.size[node], node)

    def _first_bytes(self, entry: Entry) -> bytes:
        node = self._followed(entry)
        assert isinstance(node, int)
        return b"" if node in self._tree.faults else self._read(node, self._wanted.sniff_bytes)

    def _followed(self, entry: Entry) -> Node:
        assert isinstance(entry, _MemberEntry)
        return self._tree.resolve(entry.where, os.fsencode(entry.name))[-1] if entry.is_link else entry.node

    def _check_there(self, where: bytes) -> None:
        """Nothing in an archive is removed during a scan; see `table.spans` for the archive itself."""


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))
