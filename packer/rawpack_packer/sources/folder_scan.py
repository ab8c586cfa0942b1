"""Scans a folder: lists its files in order, with the first-level subfolders as classes.

Files are sorted by path, component by component, as bytes of UTF-8: the same on every machine and in every locale. The
scan sorts the entries of each folder, and never all files at once. A sample takes 28 bytes plus its name. Two
thirds of the time are those of `os.walk` and `os.stat`, which say the size and the mtime of each file.

A folder whose names were read when the kind of the source was found is not listed again, unless it has changed since.
"""

# ruff: noqa: PTH116, PTH118 - a Path for each entry would slow the scan
from __future__ import annotations

import errno
import math
import os
import stat
import sys
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from itertools import accumulate, chain, takewhile
from pathlib import Path

import msgspec
import numpy as np

from rawpack.errors import PackError, UsageError
from rawpack_packer.errors import reason_of, stop_if_of_any_file
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows, Scanning, SourceInfo, unseen
from rawpack_packer.sources.beside import Beside
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import (
    MAX_PROBLEMS,
    NOT_SCANNED,
    UNKNOWN,
    SourceChangedError,
    bad_name,
    opened,
    problems_shown,
    text_of,
)
from rawpack_packer.sources.folder_files import FolderFiles
from rawpack_packer.sources.look.listing import ListedEntry, Listing
from rawpack_packer.sources.table.choose import empty_classes
from rawpack_packer.text import again, composed, count, plain

PROGRESS_EVERY = 1000
_EXTENSIONS = 3
"""How many extensions of other files an error names."""
ARCHIVES = (".zip", ".tar", ".tgz", ".tbz2", ".gz", ".bz2")
"""Extensions of archives that can be packed."""
OF_MACOS = "__MACOSX"
"""A folder in which the archives of macOS have what its own file system adds: hidden, as the files in it are."""
_FOLDER = -3
"""Stands for the size of a folder among files."""
_ENCODING, _ERRORS = sys.getfilesystemencoding(), sys.getfilesystemencodeerrors()
"""What `os.fsencode` takes; calling it for each name would take as long as sorting them."""
_BROKEN = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Errors of a link that leads nowhere."""
_Entry = tuple[bytes, int, int]
"""Name, size in bytes, mtime in ns. A plain tuple: a folder may have a million."""
Entry = os.DirEntry[str] | ListedEntry
Identity = tuple[int, int]
"""Device and inode of a folder."""


class Wanted(msgspec.Struct, frozen=True):
    """Which files of a folder are samples."""

    extensions: frozenset[str]
    """Files with these are taken without being opened."""
    sniff: Callable[[bytes], object]
    """Whether a file without them is taken, by its first bytes."""
    sniff_bytes: int
    others: frozenset[str]
    """Extensions of another kind of file, which is left out and counted."""
    others_name: str
    """The name of that count."""
    unopened: str | None = None
    """The extension of files that are never taken, so that they need not be opened."""

    @property
    def noun(self) -> str:
        """What one such file is called, in the singular."""
        return "video" if self.others_name == "images" else "image"


class ClassFolders(msgspec.Struct, frozen=True):
    """Which folders are classes, as far as the user says."""

    depth: int | None = None
    """How deep below the source they are, from 1; None where their shape shows it."""
    names: tuple[str, ...] | None = None
    """All classes in the order of their numbers; None for the folders' names, sorted."""
    options: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The options that say so: see `SourceInfo`."""


class FolderScan:
    """One walk through a folder, depth first, each folder's entries in order."""

    def __init__(
        self,
        root: str,
        wanted: Wanted,
        progress: Scanning = unseen,
        listing: Listing | None = None,
        classes: ClassFolders | None = None,
    ) -> None:
        """root: the absolute path of the folder. listing: of it, where it was looked at before."""
        self.classes: dict[str, None] = {}
        """In order, once the scan is done. A dict, to find a name among many."""
        self.depth = 1
        """Of the class folders."""
        self.inside = b""
        """The folder that holds all classes, with "/" at its end, where they are not first-level folders."""
        self.doubts: list[str] = []
        """What may be a mistake about the classes, a line each, with the option that settles it."""
        self.samples = 0
        """Without what could not be looked into."""
        self.counts = dict.fromkeys(
            ("hidden", wanted.others_name, "other_files", "special_files", "links", "loops", "bad_names", "problems"), 0
        )
        self.beside = Beside()
        """The other files."""
        self._root = root
        self._listing = listing or Listing(root)
        self.wanted = wanted
        self._progress = progress
        self._seen = 0
        self._problems: list[str] = []
        self._folders: list[bytes] = []
        self._said = classes or ClassFolders()
        self._labels = list[int]()
        self._folder_of = array("i")
        self._names = list[bytes]()
        """Those of several files each."""
        self._ends = array("q", [0])
        self._states = array("q")
        self._respelled: list[str] = []
        self._open: list[tuple[int, Identity, Iterator[_Entry]]] = []
        """Folders that the scan is inside of: number, identity, and the entries that are left."""
        self._inside = self._above()

    def run(self, most: float = math.inf) -> None:
        """Walk until `most` samples are found, or a few more."""
        self._enter(b"")
        while self._open and self.samples < most:
            number, identity, entries = self._open[-1]
            files, inner = list[_Entry](), None
            for entry in entries:
                if entry[1] == _FOLDER:
                    inner = entry[0]
                    break
                files.append(entry)
            self._add(number, files)
            if inner is None:
                self._open.pop()
                self._inside.discard(identity)
            elif self.samples < most:
                self._enter(self._folders[number] + inner + b"/")
        self._number_classes()
        self._progress(self._seen)

    def files(self) -> FolderFiles:
        """All that was found, in the memory of the scan, which then takes no more."""
        self._names = [b"".join(self._names)]
        folder_of, ends, states = map(np.asarray, (self._folder_of, self._ends, self._states))
        folders = tuple(self._folders)
        return FolderFiles(self._root, folders, folder_of, self._names[0], ends, states.reshape(-1, 2))

    def labels(self) -> Rows | None:
        """(n,): the label of each file, -1 outside the class folders; None where there are no classes."""
        return np.array(self._labels, np.int64)[np.asarray(self._folder_of)] if self.classes else None

    def info(self, kind: str, root: str) -> SourceInfo:
        """What is known of a source of these files: of its samples, the classes only."""
        labels, unlabelled, empty = self.labels(), 0, tuple[str, ...]()
        if labels is not None:
            read = labels[self.files().states[:, 0] != NOT_SCANNED]
            unlabelled, empty = int((read == -1).sum()), empty_classes(self.classes, read)
        return SourceInfo(
            kind=kind,
            root=root,
            paths=(self._root,),
            fields={"label": FieldKind("int64")} if self.classes else {},
            classes=tuple(self.classes) or None,
            empty_classes=empty,
            label_depth=self.depth if self.classes else 0,
            flat=not self.classes,
            options=self._said.options,
            counts={**self.counts, "unlabelled": unlabelled, "empty_classes": len(empty)},
            problems=(*self.shown_problems(), *self._respelled[:MAX_PROBLEMS]),
            doubts=tuple(self.doubts),
            skipped=dict(self.beside.suffixes),
        )

    def instead(self) -> str:
        """What was found instead of samples: "it holds 2 other files (.txt, .csv)", or "the folder is empty"."""
        named = [suffix for suffix in self.beside.suffixes if suffix][:_EXTENSIONS]
        extensions = f" ({', '.join(map(plain, named))})" if named else ""
        kinds = [
            (self.wanted.others_name, self.wanted.others_name[:-1], "", ""),
            ("other_files", "other file", "", extensions),
            ("special_files", "pipe, socket or device", "pipes, sockets and devices", ""),
            ("hidden", "hidden file or folder", "hidden files and folders", ""),
            ("problems", "problem", "", f" ({self._problems[0]})" if self._problems else ""),
        ]
        parts = [count(self.counts[name], noun, many) + more for name, noun, many, more in kinds if self.counts[name]]
        return f"it contains {', '.join(parts)}" if parts else "the folder is empty"

    def head(self, path: bytes) -> bytes:
        """The first bytes of a file below the root; b"" where it cannot be read."""
        return (self._listing / os.fsdecode(path)).head

    def shown_problems(self) -> tuple[str, ...]:
        """What could not be looked into, a line each, up to `MAX_PROBLEMS`."""
        return problems_shown(sorted(self._problems), self.counts["problems"])

    def _enter(self, folder: bytes) -> None:
        """Go into a folder, unless it cannot be read or the scan is inside it."""
        identity = None
        try:
            identity = self._identity(folder)
        except OSError as error:
            failed = self._problem(folder, error)
        if identity in self._inside:
            self.counts["loops"] += 1
            return
        self._folders.append(folder)
        if identity is None:
            self._add(len(self._folders) - 1, [(b"", *failed)])
            return
        self._inside.add(identity)
        self._open.append((len(self._folders) - 1, identity, iter(self._list(folder))))

    def _number_classes(self) -> None:
        """Number the class folders: those of the depth that the user names; otherwise the first-level ones, unless all
        images are in one of these, and in two or more folders in that."""
        paths = [folder.split(b"/")[:-1] for folder in self._folders]
        filled = [paths[k] for k in np.flatnonzero(np.bincount(np.asarray(self._folder_of))).tolist()]
        shared = [names[0] for names in takewhile(lambda names: len({*names}) == 1, zip(*filled, strict=False))]
        depth = self._said.depth
        if depth is None:
            inner = {path[len(shared)] for path in filled if len(path) > len(shared)}
            depth = len(shared) + 1 if shared and len(inner) > 1 else 1
            self.inside = b"".join(name + b"/" for name in shared[: depth - 1])
            paths = [path if path[: depth - 1] == shared[: depth - 1] else [] for path in paths]
            self._doubt_depth(filled, depth)
        elif self.samples and all(len(path) < depth for path in filled):
            raise UsageError(f"{opt.label_depth(depth)}: no folder of {self.wanted.noun}s is that deep in the source")
        self.depth = depth
        of_folder, names = dict[bytes, int](), self._said.names
        numbers = dict[str, int]() if names is None else {composed(name): k for k, name in enumerate(names)}
        self.classes = dict.fromkeys(names or ())
        for folder in sorted({path[depth - 1] for path in paths if len(path) >= depth}):
            name = text_of(folder)
            if names is not None and composed(name) not in numbers:
                raise UsageError(
                    f"the class folder {plain(name)} is none of the {count(len(names), 'name')} of {opt.classes}"
                )
            while names is None and name in self.classes:  # two can look alike once their odd bytes are written out
                name += "'"
            of_folder[folder] = numbers.setdefault(composed(name), len(self.classes))
            if of_folder[folder] == len(self.classes):
                self.classes[name] = None
            elif names is None:
                self._respelled.append(
                    f"the name {plain(name)} is there in two spellings of Unicode: both are one class"
                )
        self._labels = [of_folder[path[depth - 1]] if len(path) >= depth else -1 for path in paths]

    def _doubt_depth(self, filled: Sequence[Sequence[bytes]], depth: int) -> None:
        classes = {path[depth - 1] for path in filled if len(path) >= depth}
        inside, noun = plain(text_of(self.inside)), self.wanted.noun
        if inside:
            self.doubts.append(
                f"all {noun}s are in {inside}: the classes are the {len(classes)} folders in it, as by "
                f"{opt.label_depth(depth)}; {opt.label_depth(1)} takes the first-level folders"
            )
        deeper = sorted({b"/".join(path[: depth + 1]) for path in filled if len(path) > depth})
        if len({folder.rpartition(b"/")[0] for folder in deeper}) < len(
            deeper
        ):  # n01/images and n02/images are no more
            self.doubts.append(
                f"{len(deeper):,} folders of {noun}s in class folders, such as {plain(text_of(deeper[0]))}, are no "
                f"classes of their own: {opt.label_depth(depth + 1)} takes them as classes, {opt.label_depth(depth)} "
                "keeps the classes as they are"
            )

    def _list(self, folder: bytes) -> list[_Entry]:
        """The samples and folders in a folder, sorted."""
        entries, progress = list[_Entry](), self._progress
        try:
            with self._entries(folder) as found:
                for entry in found:
                    self._seen += 1
                    if self._seen % PROGRESS_EVERY == 0:
                        progress(self._seen)
                    name = entry.name
                    if name.startswith(".") or name == OF_MACOS:
                        self.counts["hidden"] += 1
                        continue
                    extension = name[name.rfind(".") :].lower() if "." in name else ""
                    coded = name.encode(_ENCODING, _ERRORS)
                    state = self._look(entry, extension, folder, coded)
                    if state is not None:
                        entries.append((coded, *state))
        except OSError as error:
            entries.append((b"", *self._problem(folder, error)))
        entries.sort()
        self.beside.end(folder, (name for name, size, _ in entries if size != _FOLDER))
        return entries

    def _look(self, entry: Entry, extension: str, folder: bytes, name: bytes) -> tuple[int, int] | None:
        """Size and mtime of a sample or folder; None for what is left out."""
        taken = extension in self.wanted.extensions
        try:
            if entry.is_dir(follow_symlinks=False):
                return _FOLDER, 0
            mode, size, mtime = self._stat(entry)
            if entry.is_symlink():
                self.counts["links"] += 1
            if stat.S_ISDIR(mode):
                return _FOLDER, 0
            wanted = self.wanted
            if not stat.S_ISREG(mode):
                left_out = "special_files"
            elif taken:
                return size, mtime
            elif extension in wanted.others:
                left_out = wanted.others_name
            elif size and extension != wanted.unopened and wanted.sniff(self._first_bytes(entry)):
                return size, mtime
            else:
                left_out = "other_files"
                self.beside.add(name, extension, size)
        except OSError as error:
            if taken and error.errno in _BROKEN:
                self._check_there(folder + name)
                return UNKNOWN
            return self._problem(folder + name, error)
        self.counts[left_out] += 1
        return None

    def _add(self, folder: int, files: Sequence[_Entry]) -> None:
        """Add files of one folder, in order."""
        if not files:
            return
        names, sizes, mtimes = zip(*files, strict=True)
        # Joined by a byte that is no part of another character: this is UTF-8 where all of them are.
        if bad_name(b"/".join([self._folders[folder], *names])) is not None:
            bad = [bad_name(self._folders[folder] + name) is not None for name, size, _ in files if size != NOT_SCANNED]
            self.counts["bad_names"] += sum(bad)
        self.samples += len(files) - sizes.count(NOT_SCANNED)
        self._folder_of.extend(array("i", [folder]) * len(files))
        self._names.append(b"".join(names))
        self._ends.extend(accumulate(map(len, names[1:]), initial=self._ends[-1] + len(names[0])))
        self._states.extend(chain.from_iterable(zip(sizes, mtimes, strict=True)))

    def _problem(self, where: bytes, error: OSError) -> tuple[int, int]:
        """Record what cannot be looked into; returns what stands for its size and mtime."""
        if not where:
            raise PackError(f"{plain(self._root)} cannot be read: {reason_of(error)}; run {again()} again")
        if error.errno != getattr(errno, "ESTALE", None):  # a single folder of a network disk can have it for good
            stop_if_of_any_file(error, where)
        if error.errno in _BROKEN:
            self._check_there(where)
        self.counts["problems"] += 1
        if len(self._problems) < MAX_PROBLEMS:
            self._problems.append(f"{plain(where)} cannot be read: {reason_of(error)}")
        return NOT_SCANNED, error.errno or errno.EIO

    # What the scan asks the disk. An archive has its own answers.

    def _above(self) -> set[Identity]:
        """The folders that root is in: a link to one of them leads back to root."""
        known = set[Identity]()
        for parent in Path(os.path.realpath(self._root)).parents:
            with suppress(OSError):
                found = os.stat(parent)
                known.add((found.st_dev, found.st_ino))
        return known

    def _identity(self, folder: bytes) -> Identity:
        found = os.stat(self._path(folder))
        return found.st_dev, found.st_ino

    def _entries(self, folder: bytes) -> AbstractContextManager[Iterable[Entry]]:
        listing = self._listing.listed(os.fsdecode(folder[:-1]))
        if listing is None:
            return os.scandir(self._path(folder))
        self.counts["hidden"] += listing.hidden
        return nullcontext(listing.entries())

    def _stat(self, entry: Entry) -> tuple[int, int, int]:
        """Mode, size and mtime of an entry, or of the entry that it links to."""
        found = os.stat(entry.path)  # not entry.stat(), which is out of date on Windows
        return found.st_mode, found.st_size, found.st_mtime_ns

    def _first_bytes(self, entry: Entry) -> bytes:
        with opened(entry.path) as fd:
            return os.read(fd, self.wanted.sniff_bytes)

    def _path(self, folder: bytes) -> str:
        return os.path.join(self._root, os.fsdecode(folder))

    def _check_there(self, where: bytes) -> None:
        """Raise SourceChangedError where an entry was removed a moment ago. A broken link is still there."""
        if not os.path.lexists(os.path.join(self._root, os.fsdecode(where).rstrip("/"))):
            raise SourceChangedError(
                f"{plain(where)} was removed while the source was scanned: leave the source alone and run the same "
                "command again"
            )
