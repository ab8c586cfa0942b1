"""One pass through archives, which finds their members; and compressed ones read at any offset, by an index that is
made in that pass and shared by all workers."""

from __future__ import annotations

import atexit
import errno
import io
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, tee
from typing import Any

import numpy as np

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import need
from rawpack_packer.sources.archives.tar import (
    BLOCK,
    LONGEST,
    BadArchiveError,
    Member,
    is_tar,
    read_headers_ahead,
    tar_members,
)
from rawpack_packer.sources.archives.zip import MARKS, zip_members
from rawpack_packer.sources.inflation import read_in_steps
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.sources.table.process_file import NO_BYTES, StoredBytes, stored

MOST_LABEL = 1 << 24
"""Bytes of a member with a label: they are read before anything is packed."""
FoundMember = tuple[Member, bytes]
"""A member, and its bytes if it may hold a label."""
_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
"""First bytes -> what a file is compressed by."""
_ZLIB = b"x\x01", b"x^", b"x\x9c", b"x\xda"
"""First bytes of the same by zlib, as TensorFlow compresses by ZLIB."""
_PROGRAMS = {".xz": "xz", ".zst": "zstd"}
_OF_SYSTEM = ("failed to read from file", "opening file", "could not get the file position")
"""What rapidgzip says where the system refused it, by no error of its own: lower case."""
_PIECE = 1 << 20
_OPEN = 4
"""Archives that a worker keeps open."""
_opened: OrderedDict[tuple[int, str, tuple[int, int]], Any] = OrderedDict()
"""Archives that are kept open, the last used one last: process, path, and size and mtime -> reader."""


@dataclass(frozen=True)
class OpenArchive:
    """An archive while it is looked through."""

    fd: int
    reader: Any
    """Of the decompressed bytes of a compressed one; otherwise None."""

    @property
    def size(self) -> int:
        """In bytes; `LONGEST` where that is not known."""
        return LONGEST if self.reader is not None else os.fstat(self.fd).st_size

    def read(self, offset: int, size: int) -> bytes:
        """`size` bytes from `offset` on; fewer at the end. Raises DecodeError where compressed data is damaged."""
        return os.pread(self.fd, size, offset) if self.reader is None else _read_at(self.reader, offset, size)

    def members(self, label: str = "", start: int = 0, stop: int | None = None) -> Iterator[FoundMember]:
        """The members of the tar archive in bytes start <= i < stop. label: how the names of those with labels end.
        Raises BadArchiveError and DecodeError."""
        stop = self.size if stop is None else stop
        if self.reader is None:
            read_headers_ahead(self.fd, start, stop)
        ending = label.encode()
        for member in tar_members(self.read, start, stop):
            named = ending and member.name[-len(ending) :].lower() == ending
            read = named and member.kind == "file" and member.size <= MOST_LABEL
            yield member, self.read(member.offset, member.size) if read else b""


@contextmanager
def opened_archive(files: NamedFiles, k: int) -> Iterator[OpenArchive]:
    """Archive k of these. Raises UsageError where it is compressed in a way that is not read, MissingExtraError where
    what reads it is not installed, SourceChangedError where it changes meanwhile, DecodeError, OSError."""
    with files.opened(k, keep=False) as fd:
        kind = _compression(os.pread(fd, BLOCK, 0))
        if not kind:
            yield OpenArchive(fd, None)
            return
        shown = files.name(k)
        if program := _PROGRAMS.get(kind):
            raise UsageError(
                f"{shown}: a member of a {kind} archive can be read only after all that is before it: run "
                f"`{program} -dk {shown}` first, and pack the .tar"
            )
        need("rapidgzip", "archives", f"{shown} is compressed, which", "decompress it first")
        with closing(_open_compressed(files.paths[k], fd, threads=0)) as reader:
            yield OpenArchive(fd, reader)


class Pass:
    """One pass through archives: iterating it gives the number of each, and its members."""

    def __init__(self, files: NamedFiles, label: str = "") -> None:
        """label: the suffix of members that are read at once, since they hold labels; "" for none."""
        self._files, self._ending = files, f".{label}" if label else ""
        self._indexes = dict[int, StoredBytes]()
        self._looks = self._every()

    def __iter__(self) -> Iterator[tuple[int, Iterator[Any]]]:
        return self._looks

    def shows(self, look: Callable[[Iterable[Member]], bool]) -> bool:
        """What `look` finds in the first members of the first archive that has some and is not damaged there; they are
        part of the pass nevertheless. False where there is none."""
        begun = list[tuple[int, Iterator[Any]]]()
        try:
            for k, found in self._looks:
                ahead, found = tee(found)
                begun.append((k, found))
                try:
                    for first in ahead:
                        return look(member for member, _ in chain([first], ahead))
                except (BadArchiveError, DecodeError, OSError, UsageError):
                    begun[-1] = k, self._found(k)  # the other one has ended: this one raises it again
                    if self._files.remotes:
                        return False  # nobody waits for the others to be fetched
            return False
        finally:
            self._looks = chain(begun, self._looks)

    @property
    def files(self) -> NamedFiles:
        """The archives, with the index of each compressed one that the pass has seen to its end."""
        indexes = tuple(self._indexes.get(k) for k in range(len(self._files)))
        return replace(self._files, indexes=indexes) if self._indexes else self._files

    def _every(self) -> Iterator[tuple[int, Iterator[Any]]]:
        # The first one shows what is wrong with the options: the others are fetched after it.
        with self._files.looked_through(first_alone=True) as fetch_others:
            for k in range(len(self._files)):
                yield k, self._found(k)
                if k == 0:
                    fetch_others()

    def _found(self, k: int) -> Iterator[Any]:
        """The members of archive k. Raises BadArchiveError and as `opened_archive` does; UsageError for what is no
        archive."""
        bad = None
        with opened_archive(self._files, k) as archive:
            if archive.reader is not None:
                self._indexes[k] = NO_BYTES
            try:
                yield from self._members(archive, k)
            except BadArchiveError as error:
                bad = error  # the members before that can be packed, unless it was changed meanwhile
            if archive.reader is not None:
                try:
                    self._indexes[k] = _save_index(archive.reader, archive.fd)
                except DecodeError:
                    if bad is None:
                        raise
        if bad is not None:
            raise bad

    def _members(self, archive: OpenArchive, k: int) -> Iterator[Any]:
        if archive.reader is None:
            path, first = self._files.paths[k].lower(), archive.read(0, BLOCK)
            if first.startswith(MARKS) or (path.endswith(".zip") and not is_tar(first)):
                return ((member, b"") for member in zip_members(archive.fd))
            if not is_tar(first) and not path.endswith(".tar"):
                raise UsageError(f"{self._files.name(k)} is no archive: tar and zip archives can be packed")
        return archive.members(self._ending)


def read_compressed(fd: int, *, files: NamedFiles, k: int, offset: int, size: int) -> bytes:
    """`size` bytes of compressed archive k, which is open as `fd`, from `offset` on in what it decompresses to. Raises
    DecodeError where these are fewer, or damaged."""
    path, state = files.paths[k], files.state(k)
    identity = os.getpid(), path, state
    reader = _opened.pop(identity, None)
    if reader is None:
        reader = _open_compressed(path, fd, 1, files.indexes[k])
    data = _read_at(reader, offset, size)
    _opened[identity] = reader
    while len(_opened) > _OPEN:
        _opened.popitem(last=False)[1].close()
    if len(data) < size:
        raise DecodeError("truncated", f"the archive ends after {len(data)} of the {size} bytes")
    return data


def _compression(first: bytes) -> str:
    """What a file that begins with these bytes is compressed by: ".gz", ".bz2", ".xz", ".zst", ".zlib", or "" for
    nothing."""
    # The length of a TFRecord's first record may begin as zlib does, and so may the first name in a tar archive.
    if first.startswith(_ZLIB) and any(first[4:8]) and not is_tar(first):
        return ".zlib"
    return next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), "")


def _open_compressed(path: str, fd: int, threads: int, index: StoredBytes | None = None) -> Any:
    """A reader of the decompressed bytes of the archive at a path, which is open as `fd`.

    index: what `_save_index` wrote. Where it is missing, as on another machine, the reader makes its own.
    """
    import rapidgzip

    known = b"" if index is None else index.read()
    try:
        if _compression(os.pread(fd, BLOCK, 0)) == ".bz2":
            reader = rapidgzip.IndexedBzip2File(path, parallelization=threads)
            if known:
                reader.set_block_offsets({int(a): int(b) for a, b in np.frombuffer(known, "<i8").reshape(-1, 2)})
            return reader
        reader = rapidgzip.RapidgzipFile(path, parallelization=threads)
        if known:
            reader.import_index(io.BytesIO(known))
    except (RuntimeError, ValueError) as error:
        raise _damaged(error) from error
    return reader


def _read_at(reader: Any, offset: int, size: int) -> bytes:
    """`size` decompressed bytes from `offset` on; fewer at the end. Raises DecodeError for a damaged archive, OSError;
    then the reader is of no use any more."""
    try:
        reader.seek(offset)
        return read_in_steps(reader.read, size)  # it takes as much memory as it is asked for bytes
    except (RuntimeError, ValueError, EOFError) as error:
        raise _damaged(error) from error


def _save_index(reader: Any, fd: int) -> StoredBytes:
    """Read the archive that is open as `fd` to its end, which checks it, and store its index. Raises DecodeError for a
    damaged archive, OSError."""
    try:
        reader.seek(0, os.SEEK_END)
        end = reader.tell_compressed() // 8
    except (RuntimeError, ValueError) as error:
        raise _damaged(error) from error
    _check_rest(fd, end)
    try:
        with tempfile.TemporaryFile() as file:
            if hasattr(reader, "export_index"):
                reader.export_index(file)
            else:
                file.write(np.array(list(reader.block_offsets().items()), "<i8").tobytes())
            file.seek(0)
            return stored(iter(partial(file.read, _PIECE), b""))
    except (RuntimeError, ValueError) as error:
        raise _damaged(error) from error
    except OSError:
        return NO_BYTES  # there is no space for it: each process makes its own


def _check_rest(fd: int, at: int) -> None:
    """Raise DecodeError where anything but zeros follows what could be decompressed."""
    while piece := os.pread(fd, _PIECE, at):
        if piece.count(0) < len(piece):
            raise DecodeError("corrupt", f"what follows its compressed data, from byte {at} on, is not compressed")
        at += len(piece)


def _damaged(error: Exception) -> DecodeError | OSError:
    """What the library's message, which names its threads and bits, comes to for a user."""
    said = str(error).lower()
    if said.startswith(_OF_SYSTEM):
        return OSError(errno.EIO, os.strerror(errno.EIO))
    checksum = "crc32" in said or "checksum" in said
    return DecodeError("corrupt", f"its compressed data {'does not match its checksum' if checksum else 'is damaged'}")


@atexit.register
def _close() -> None:
    """Close what is open: the threads of a reader must not outlive Python."""
    while _opened:
        (process, *_), reader = _opened.popitem()
        if process == os.getpid():
            reader.close()
