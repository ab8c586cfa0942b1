"""A folder of image files, its first-level sub-folders being the classes.

Order is path order, part by part, as bytes of UTF-8: the same on every machine and locale. It is found by
walking the tree with each folder's entries sorted, so nothing is ever sorted as a whole, and a sample costs
28 bytes and its file name.
"""

# ruff: noqa: PTH116, PTH118, PTH122 - a Path for each entry would slow the scan
from __future__ import annotations

import errno
import math
import os
import stat
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import PackError, UsageError
from rawpack_packer.sources.base import BaseSource, Item, SourceInfo
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import (
    NOT_SCANNED,
    UNKNOWN,
    SourceChangedError,
    UnreadableError,
    bad_name,
    not_scanned,
    opened,
    read_file,
    reason_of,
    stop_if_of_any_file,
    text_of,
)
from rawpack_packer.sources.video.filetype import EXTENSIONS as VIDEO_EXTENSIONS
from rawpack_packer.text import plain

EXTENSIONS = frozenset(
    {".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".webp", ".bmp", ".dib", ".tif", ".tiff", ".gif", ".tga"}
    | {".avif", ".heic", ".heif", ".jp2", ".j2k", ".ppm", ".pgm", ".pbm", ".pnm"}
)
"""Files with these are samples without being opened; what they are not is found out when they are packed."""
MAX_PROBLEMS = 100
PROGRESS_EVERY = 1000


@dataclass(frozen=True)
class Wanted:
    """Which files of a folder are samples."""

    extensions: frozenset[str]
    """Of files that are taken without being opened."""
    sniff: Callable[[bytes], object]
    """Whether others are taken, by their first bytes."""
    sniff_bytes: int
    others: frozenset[str]
    """Extensions of files of another kind, which are left out and counted."""
    others_name: str
    """Of that count."""


_FOLDER = -3
"""Stands for the size of a folder among files."""
_BROKEN = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""What is wrong with a link that leads nowhere."""
_Entry = tuple[bytes, int, int]
"""Name, size in bytes, mtime in ns. A plain tuple: a folder may have a million."""


@dataclass(frozen=True, slots=True, eq=False)
class FolderPart:
    """Some files of a folder, in order. Plain data: any process may read, also several at once."""

    root: str
    """The folder's absolute path, as the operating system takes it."""
    folders: tuple[bytes, ...]
    """Folders that the files lie in, below root, each ending in "/"; root itself is b""."""
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

    def __len__(self) -> int:
        return len(self.folder_of)

    def __getitem__(self, i: int, /) -> Item:
        path = self.path(i)
        key = text_of(path)
        size, mtime = self.states[i].tolist()
        if (error := not_scanned((size, mtime)) or bad_name(path)) is not None:
            raise error
        image = read_file(os.path.join(self.root, os.fsdecode(path)), key, (size, mtime))
        return Item(key, image, {} if self.labels is None else {"label": int(self.labels[self.folder_of[i]])})

    def key(self, i: int, /) -> str:
        """The file's path below root, parts joined by "/"."""
        return text_of(self.path(i))

    def image_file(self, i: int, /) -> tuple[str, int]:
        """The path by which file i is read, and its bytes."""
        return os.path.join(self.root, os.fsdecode(self.path(i))), int(self.states[i, 0])

    def pick(self, rows: NDArray[np.int64], /) -> FolderPart:
        """Files at `rows`, in their order."""
        used, folder_of = np.unique(self.folder_of[rows], return_inverse=True)
        names = [self.names[self.ends[i] : self.ends[i + 1]] for i in rows.tolist()]
        return FolderPart(
            root=self.root,
            folders=tuple(self.folders[k] for k in used.tolist()),
            labels=None if self.labels is None else self.labels[used],
            folder_of=folder_of.astype(np.int32),
            names=b"".join(names),
            ends=np.cumsum([0, *map(len, names)], dtype=np.int64),
            states=self.states[rows],
        )

    def part(self, start: int, stop: int, /) -> FolderPart:
        """Files start <= i < stop."""
        if not 0 <= start <= stop <= len(self):
            raise IndexError(f"samples {start} to {stop} of a source of {len(self)}")
        used, folder_of = np.unique(self.folder_of[start:stop], return_inverse=True)
        first, last = int(self.ends[start]), int(self.ends[stop])
        return FolderPart(
            root=self.root,
            folders=tuple(self.folders[k] for k in used.tolist()),
            labels=None if self.labels is None else self.labels[used],
            folder_of=folder_of.astype(np.int32),
            names=self.names[first:last],
            ends=self.ends[start : stop + 1] - first,
            states=self.states[start:stop],
        )

    def path(self, i: int) -> bytes:
        """The file's path below root, as the operating system has it."""
        if not 0 <= i < len(self):
            raise IndexError(f"sample {i} of a source of {len(self)}")
        return self.folders[int(self.folder_of[i])] + self.names[int(self.ends[i]) : int(self.ends[i + 1])]


class NoImageError(UsageError):
    """A folder holds no image. It may hold `videos`."""

    def __init__(self, root: str, what: str, videos: int) -> None:
        super().__init__(f"no image in {root} ({what}): give the folder that holds the images")
        self.videos = videos


class FolderSource(BaseSource):
    """All image files below a folder, as a `Source`.

    Sub-folders at the first level are classes, numbered in order from 0, also those without images; what
    lies deeper belongs to them; images beside them get label -1. Without sub-folders there is no `label`.
    Symbolic links are followed, but not into a folder that would then contain itself. Names that begin with a
    dot are left out.

    What could not be looked into ends the scan. With `skip_unreadable` it is a sample instead, which is rejected: its
    key is the path, of a folder with "/" at its end. A folder at the first level stays a class, so that labels do not
    shift.

    `info.counts`: hidden (files and folders), videos (`--source video` packs them), other_files (neither),
    special_files (pipes, sockets, devices: never opened), links (to files and folders), loops (links not followed),
    bad_names (not UTF-8), unlabelled (with label -1), empty_classes, problems.
    """

    _all: FolderPart

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        skip_unreadable: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """Scan `path`. Only files without an image's extension are opened, for their first bytes.

        skip_unreadable: leave out folders and files that cannot be looked into. progress: called with how many entries
        were looked at so far, every 1,000 and at the end.
        Raises UsageError where `path` is no folder or holds no image, UnreadableError, a PackError, where some of it
        cannot be looked into, PackError where its disk fails or it changes during the scan.
        """
        if not os.fspath(path):
            raise UsageError("the source is an empty path: give a folder of images")
        where = str(Path(path).absolute())
        root = plain(os.fsencode(where))
        check_folder(where, root)
        scan = FolderScan(where, _images(), progress)
        scan.run()
        scan.check(root, skip_unreadable=skip_unreadable)
        self.info = scan.info("folder", root)
        self._all = scan.files()
        if not scan.samples:
            raise NoImageError(root, self._what_else(), scan.counts["videos"])

    def labels(self) -> NDArray[np.int64] | None:
        """(n,): the label of each file, -1 beside the class folders; None where there are no classes."""
        files = self._all
        return None if files.labels is None else files.labels[files.folder_of].astype(np.int64)

    def pick(self, rows: NDArray[np.int64], /) -> FolderPart:
        """Samples at `rows`, in their order."""
        return self._all.pick(rows)

    def unread(self) -> NDArray[np.int64]:
        """See `HasUnread`."""
        return np.flatnonzero(self._all.states[:, 0] == NOT_SCANNED)

    def states(self) -> NDArray[np.int64]:
        """(n, 2): size in bytes and mtime in ns of each sample's file when it was scanned."""
        view = self._all.states.view()
        view.flags.writeable = False
        return view

    def _what_else(self) -> str:
        names = [*(["videos"] if self.info.counts["videos"] else []), "other_files", "hidden", "problems"]
        seen = [f"{self.info.counts[name]} {name.replace('_', ' ')}" for name in names]
        return ", ".join(seen) + "".join(f"; {line}" for line in self.info.problems[:1])


def holds_image(path: Path) -> bool:
    """Whether there is any image below a folder; as far as it can be looked into."""
    return bool(first_image(path).samples)


def first_image(path: Path) -> FolderScan:
    """A scan of a folder that ends at the first image. Raises UsageError where the folder cannot be read."""
    where = str(path.absolute())
    check_folder(where, plain(os.fsencode(where)))
    scan = FolderScan(where, _images(), None)
    scan.run(most=1)
    return scan


class FolderScan:
    """One walk through a folder, depth first, each folder's entries in order."""

    def __init__(self, root: str, wanted: Wanted, progress: Callable[[int], None] | None) -> None:
        self.classes: list[str] = []
        self.class_samples: list[int] = []
        self.root_samples = 0
        self.samples = 0
        """Without what could not be looked into."""
        self.problems: list[str] = []
        self.counts = dict.fromkeys(
            ("hidden", wanted.others_name, "other_files", "special_files", "links", "loops", "bad_names", "problems"), 0
        )
        self._root = root
        self._wanted = wanted
        self._progress = progress
        self._seen = 0
        self._folders: list[bytes] = []
        self._labels: list[int] = []
        self._folder_of = array("i")
        self._names = bytearray()
        self._ends = array("q", [0])
        self._states = array("q")
        self._open: list[_OpenFolder] = []
        self._inside = _ancestors(root)
        self._class_names: set[str] = set()

    def run(self, most: float = math.inf) -> None:
        """Walk; no further than to so many samples."""
        self._enter(b"")
        while self._open and self.samples < most:
            folder = self._open[-1]
            for name, size, mtime in folder.rest:
                if size == _FOLDER:
                    self._enter(self._folders[folder.number] + name + b"/")
                    break
                self._add(folder.number, name, size, mtime)
                if self.samples >= most:
                    break
            else:
                self._open.pop()
                self._inside.discard(folder.identity)
        if self._progress is not None:
            self._progress(self._seen)

    def files(self) -> FolderPart:
        return FolderPart(
            root=self._root,
            folders=tuple(self._folders),
            labels=np.array(self._labels, np.int32) if self.classes else None,
            folder_of=np.array(self._folder_of, np.int32),
            names=bytes(self._names),
            ends=np.array(self._ends, np.int64),
            states=np.array(self._states, np.int64).reshape(-1, 2),
        )

    def info(self, kind: str, root: str) -> SourceInfo:
        """What is known of a source of these files, and no more of its samples than their classes."""
        empty = tuple(name for name, samples in zip(self.classes, self.class_samples, strict=True) if not samples)
        return SourceInfo(
            kind=kind,
            root=root,
            paths=(self._root,),
            fields={"label": FieldKind("int64")} if self.classes else {},
            classes=tuple(self.classes) or None,
            empty_classes=empty,
            flat=not self.classes,
            counts={
                **self.counts,
                "unlabelled": self.root_samples if self.classes else 0,
                "empty_classes": len(empty),
            },
            problems=self.told_problems(),
        )

    def check(self, root: str, *, skip_unreadable: bool) -> None:
        """Raise UnreadableError where something could not be looked into. root: as messages name it."""
        if self.counts["problems"] and not skip_unreadable:
            raise UnreadableError(root, self.counts["problems"], self.told_problems())

    def told_problems(self) -> tuple[str, ...]:
        """What could not be looked into, and how much more of it there is."""
        more = self.counts["problems"] - MAX_PROBLEMS
        return (*sorted(self.problems), *([f"... and {more} more"] if more > 0 else []))

    def _enter(self, folder: bytes) -> None:
        """Go into a folder, unless it cannot be read or is one that the scan is inside of."""
        path = os.path.join(self._root, os.fsdecode(folder))
        identity, failed = None, UNKNOWN
        try:
            identity = _identity(path)
        except OSError as error:
            failed = self._problem(folder, error)
        if identity is not None and identity in self._inside:
            self.counts["loops"] += 1
            return
        if len(self._open) == 1:
            self._add_class(folder[:-1])
        self._folders.append(folder)
        self._labels.append(len(self.classes) - 1)  # the root comes before any class: -1
        if identity is None:
            self._add(len(self._folders) - 1, b"", *failed)
            return
        self._inside.add(identity)
        self._open.append(_OpenFolder(len(self._folders) - 1, identity, iter(self._list(path, folder))))

    def _add_class(self, folder: bytes) -> None:
        name = text_of(folder)
        while name in self._class_names:  # two names can look alike once their odd bytes are written out
            name += "'"
        self._class_names.add(name)
        self.classes.append(name)
        self.class_samples.append(0)

    def _list(self, path: str, folder: bytes) -> list[_Entry]:
        """The samples and folders in a folder, sorted."""
        entries: list[_Entry] = []
        try:
            with os.scandir(path) as found:
                for entry in found:
                    self._seen += 1
                    if self._progress is not None and self._seen % PROGRESS_EVERY == 0:
                        self._progress(self._seen)
                    name = os.fsencode(entry.name)
                    state = self._look(entry, folder + name)
                    if state is not None:
                        entries.append((name, *state))
        except OSError as error:
            entries.append((b"", *self._problem(folder, error)))
        entries.sort()
        return entries

    def _look(self, entry: os.DirEntry[str], where: bytes) -> tuple[int, int] | None:
        """Size and mtime of a sample or folder; None for what is left out."""
        if entry.name.startswith("."):
            self.counts["hidden"] += 1
            return None
        extension = os.path.splitext(entry.name)[1].lower()
        taken = extension in self._wanted.extensions
        try:
            if entry.is_dir(follow_symlinks=False):
                return _FOLDER, 0
            found = os.stat(entry.path)  # not entry.stat(), which is out of date on Windows
            self.counts["links"] += entry.is_symlink()
            if stat.S_ISDIR(found.st_mode):
                return _FOLDER, 0
            if not stat.S_ISREG(found.st_mode):
                self.counts["special_files"] += 1
                return None
            if not taken and extension in self._wanted.others:
                self.counts[self._wanted.others_name] += 1
                return None
            if not taken and (found.st_size == 0 or not self._sniff(entry.path)):
                self.counts["other_files"] += 1
                return None
        except OSError as error:
            if taken and error.errno in _BROKEN:
                self._check_there(where)
                return UNKNOWN
            return self._problem(where, error)
        return found.st_size, found.st_mtime_ns

    def _sniff(self, path: str) -> bool:
        with opened(path) as fd:
            return bool(self._wanted.sniff(os.read(fd, self._wanted.sniff_bytes)))

    def _add(self, folder: int, name: bytes, size: int, mtime: int) -> None:
        if size != NOT_SCANNED:
            self.samples += 1
            self.counts["bad_names"] += bad_name(self._folders[folder] + name) is not None
            label = self._labels[folder]
            if label < 0:
                self.root_samples += 1
            else:
                self.class_samples[label] += 1
        self._folder_of.append(folder)
        self._names += name
        self._ends.append(len(self._names))
        self._states.extend((size, mtime))

    def _problem(self, where: bytes, error: OSError) -> tuple[int, int]:
        """Note what cannot be looked into; what stands for its size and mtime."""
        if not where:
            raise PackError(f"{plain(self._root)} cannot be read: {reason_of(error)}; run the same command again")
        if error.errno != getattr(errno, "ESTALE", None):  # which a single folder of a network disk can have for good
            stop_if_of_any_file(error, where)
        if error.errno in _BROKEN:
            self._check_there(where)
        self.counts["problems"] += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(f"{plain(where)} cannot be read: {reason_of(error)}")
        return NOT_SCANNED, error.errno or errno.EIO

    def _check_there(self, where: bytes) -> None:
        """Raise SourceChangedError where what was found a moment ago is gone. A link that leads nowhere is there."""
        if not os.path.lexists(os.path.join(self._root, os.fsdecode(where).rstrip("/"))):
            raise SourceChangedError(
                f"{plain(where)} went away while the source was scanned: leave the source alone and run the same "
                "command again"
            )


@dataclass(slots=True, eq=False)
class _OpenFolder:
    """A folder that the scan is inside of."""

    number: int
    identity: tuple[int, int]
    rest: Iterator[_Entry]


def _images() -> Wanted:
    from rawpack_packer.images import sniff

    return Wanted(EXTENSIONS, sniff, 32, VIDEO_EXTENSIONS, "videos")


def _identity(path: str) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _ancestors(root: str) -> set[tuple[int, int] | None]:
    """The folders that root lies in: a link to one of them leads back to root."""
    known: set[tuple[int, int] | None] = set()
    for parent in Path(os.path.realpath(root)).parents:
        with suppress(OSError):
            known.add(_identity(str(parent)))
    return known


def check_folder(path: str, shown: str) -> None:
    try:
        os.scandir(path).close()
    except FileNotFoundError:
        raise UsageError(f"there is no folder {shown}: check the path of the source") from None
    except NotADirectoryError:
        raise UsageError(f"{shown} is a file, not a folder: give the folder that holds it") from None
    except (OSError, ValueError) as error:
        reason = reason_of(error) if isinstance(error, OSError) else str(error)
        raise UsageError(f"{shown} cannot be read: {reason}; check path and permissions") from None
