"""Opens archives, to look through each once; and reads compressed ones at any offset, by an index that is made then and
shared by all workers."""

from __future__ import annotations

import atexit
import io
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.errors import need
from rawpack_packer.sources.archives.tar import LONGEST, BadArchiveError, Member, read_headers_ahead, tar_members
from rawpack_packer.sources.table.kept import NO_BYTES, KeptBytes, stored
from rawpack_packer.sources.table.named_files import NamedFiles
from rawpack_packer.sources.table.spans import Spans

T = TypeVar("T")
_MAGIC = {b"\x1f\x8b": ".gz", b"BZh": ".bz2", b"\xfd7zXZ\0": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}
"""First bytes -> what a file is compressed by."""
_PROGRAMS = {".xz": "xz", ".zst": "zstd"}
_NO_INDEX = NO_BYTES
"""Stands for the index of an archive that is damaged, and is read from its beginning each time."""
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
        """See `tar.Read`. Raises DecodeError where compressed data is damaged."""
        return os.pread(self.fd, size, offset) if self.reader is None else _read_at(self.reader, offset, size)

    def members(self, start: int = 0, stop: int | None = None) -> Iterator[Member]:
        """The members of the tar archive in bytes start <= i < stop. Raises BadArchiveError and DecodeError."""
        stop = self.size if stop is None else stop
        if self.reader is None:
            read_headers_ahead(self.fd, start, stop)
        return tar_members(self.read, start, stop)


@contextmanager
def opened_archive(files: NamedFiles, k: int) -> Iterator[OpenArchive]:
    """Archive k of these. Raises UsageError where it is compressed in a way that is not read, MissingExtraError where
    what reads it is not installed, SourceChangedError where it changes meanwhile, DecodeError, OSError."""
    with files.opened(k, keep=False) as fd:
        kind = _compression(os.pread(fd, 8, 0))
        if not kind:
            yield OpenArchive(fd, None)
            return
        _check_readable(files.name(k), kind)
        with closing(_open_compressed(files.paths[k], fd, threads=0)) as reader:
            yield OpenArchive(fd, reader)


def look_through(
    files: NamedFiles,
    k: int,
    what: str,
    kind: Any,
    look: Callable[[OpenArchive], Iterator[T]],
    indexes: dict[int, KeptBytes],
) -> Iterator[T]:
    """What an earlier run found in archive k, or else what `look` finds, which is kept. what, kind: what is looked for,
    and the type of each. indexes: takes the index of a compressed archive. Raises as `opened_archive` and `look` do."""
    index, compressed = files.kept_index(k), f"compressed {what}"
    if (kept := files.kept(k, compressed if index else what, kind)) is not None:
        if index:
            indexes[k] = index
        yield from kept
        return
    bad = None
    with opened_archive(files, k) as archive:
        if archive.reader is not None:
            what, indexes[k] = compressed, _NO_INDEX
        try:
            yield from files.keeping(k, what, look(archive))
        except BadArchiveError as error:
            bad = error  # the members before that can be packed, unless it was changed meanwhile
        if archive.reader is not None:
            try:
                indexes[k] = files.keep_index(k, _save_index(archive.reader, archive.fd))
            except DecodeError:
                if bad is None:
                    raise
    if bad is not None:
        raise bad


@dataclass(frozen=True, eq=False)
class CompressedSpans(Spans):
    """Members of tar archives of which some are compressed, as `Spans`: for these, `offset` is that in the tar."""

    def _reader(self, i: int, most: int | None = None) -> partial[bytes]:
        k, size = int(self.archive[i]), int(self.states[i, 0])
        if not self.archives.indexes[k]:
            return super()._reader(i, most)
        size = size if most is None else min(size, most)
        return partial(self._read_compressed, k=k, offset=int(self.offset[i]), size=size)

    def _read_compressed(self, fd: int, *, k: int, offset: int, size: int) -> bytes:
        path, state = self.archives.paths[k], self.archives.state(k)
        known = os.getpid(), path, state
        reader = _opened.pop(known, None)
        if reader is None:
            reader = _open_compressed(path, fd, 1, self.archives.indexes[k])
        data = _read_at(reader, offset, size)
        _opened[known] = reader
        while len(_opened) > _OPEN:
            _opened.popitem(last=False)[1].close()
        if len(data) < size:
            raise DecodeError("truncated", f"the archive ends after {len(data)} of the {size} bytes")
        return data

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`; None for a member of a compressed archive."""
        return None if self.archives.indexes[int(self.archive[i])] else super().image_file(i)


def _compression(first: bytes) -> str:
    """What a file that begins with these bytes is compressed by: ".gz", ".bz2", ".xz", ".zst", or "" for nothing."""
    return next((kind for magic, kind in _MAGIC.items() if first.startswith(magic)), "")


def _check_readable(shown: str, kind: str) -> None:
    """Raise UsageError where an archive that is compressed by `kind` cannot be read at any offset, and
    MissingExtraError where what reads it is not installed."""
    if kind in _PROGRAMS:
        program = _PROGRAMS[kind]
        raise UsageError(
            f"{shown}: a member of a {kind} archive can be read only after all that is before it: run "
            f"`{program} -dk {shown}` first, and pack the .tar"
        )
    need("rapidgzip", "archives", f"{shown} is compressed, which", "decompress it first")


def _open_compressed(path: str, fd: int, threads: int, index: KeptBytes | None = None) -> Any:
    """A reader of the decompressed bytes of the archive at a path, which is open as `fd`.

    index: what `_save_index` wrote. Where it is missing, as on another machine, the reader makes its own.
    """
    import rapidgzip

    known = b"" if index is None else index.read()
    try:
        if _compression(os.pread(fd, 8, 0)) == ".bz2":
            reader = rapidgzip.IndexedBzip2File(path, parallelization=threads)
            if known:
                reader.set_block_offsets({int(a): int(b) for a, b in np.frombuffer(known, "<i8").reshape(-1, 2)})
            return reader
        reader = rapidgzip.RapidgzipFile(path, parallelization=threads)
        if known:
            reader.import_index(io.BytesIO(known))
    except (RuntimeError, ValueError) as error:
        raise _damaged(error) from None
    return reader


def _read_at(reader: Any, offset: int, size: int) -> bytes:
    """`size` decompressed bytes from `offset` on; fewer at the end. Raises DecodeError for a damaged archive."""
    try:
        reader.seek(offset)
        data: bytes = reader.read(size)
    except (RuntimeError, ValueError, EOFError) as error:
        raise _damaged(error) from None
    return data


def _save_index(reader: Any, fd: int) -> KeptBytes:
    """Read the archive that is open as `fd` to its end, which checks it, and store its index. Raises DecodeError for a
    damaged archive."""
    try:
        reader.seek(0, os.SEEK_END)
        _check_rest(fd, reader.tell_compressed() // 8)
        with tempfile.TemporaryFile() as file:
            if hasattr(reader, "export_index"):
                reader.export_index(file)
            else:
                file.write(np.array(list(reader.block_offsets().items()), "<i8").tobytes())
            file.seek(0)
            return stored(iter(partial(file.read, _PIECE), b""))
    except (RuntimeError, ValueError) as error:
        raise _damaged(error) from None
    except OSError:
        return _NO_INDEX  # there is no space for it: each process makes its own


def _check_rest(fd: int, at: int) -> None:
    """Raise DecodeError where anything but zeros follows what could be decompressed."""
    while piece := os.pread(fd, _PIECE, at):
        if piece.count(0) < len(piece):
            raise DecodeError("corrupt", f"what follows its compressed data, from byte {at} on, is not compressed")
        at += len(piece)


def _damaged(error: Exception) -> DecodeError:
    """What the library's message, which names its threads and bits, comes to for a user."""
    said = str(error).lower()
    checksum = "crc32" in said or "checksum" in said
    return DecodeError("corrupt", f"its compressed data {'does not match its checksum' if checksum else 'is damaged'}")


@atexit.register
def _close() -> None:
    """Close what is open: the threads of a reader must not outlive Python."""
    while _opened:
        (process, *_), reader = _opened.popitem()
        if process == os.getpid():
            reader.close()
