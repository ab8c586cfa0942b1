"""Reads zip archives: their central directory by `zipfile`, and then each member at its own offset."""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

from rawpack.errors import DecodeError
from rawpack_packer.sources.archives.spans import Fault, Rows, Spans, read_range
from rawpack_packer.sources.archives.tar import BadArchiveError, Kind, Member
from rawpack_packer.sources.files import MAX_FILE_BYTES

_LOCAL = struct.Struct("<4s22xHH")
"""The header before a member: its mark, and the lengths of its name and extra fields, which follow."""
_LONGEST_LINK = 4096
_UTF8, _ENCRYPTED, _DOS = 0x800, 0x1, 0


@dataclass(frozen=True, eq=False, kw_only=True)
class ZipSpans(Spans):
    """Members of zip archives, as `Spans`: `offset` is that of a member's own header, its checksum is its time."""

    packed: Rows
    """(n, 2): the bytes that each member has in the archive, and by which method it is compressed."""

    def _reader(self, i: int, most: int | None = None) -> partial[bytes]:
        size, checksum = self.states[i].tolist()
        length, method = self.packed[i].tolist()
        if most is not None:
            return partial(zip_head, offset=int(self.offset[i]), length=length, method=method, most=most)
        return partial(read_zip, offset=int(self.offset[i]), length=length, method=method, size=size, checksum=checksum)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`; with the header."""
        path, offset, _ = super().image_file(i) or ("", 0, 0)
        return path, offset, int(self.packed[i, 0]) + _LOCAL.size

    def pick(self, rows: Rows, /) -> Self:
        """See `Spans.pick`."""
        return replace(super().pick(rows), packed=self.packed[rows])


def zip_members(fd: int) -> Iterator[tuple[Member, tuple[int, int], Fault | None]]:
    """The members of the archive at a descriptor, in the order of its directory: each with what `ZipSpans.packed` has,
    and why it cannot be read, if so. Raises BadArchiveError."""
    try:
        with os.fdopen(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
            found = archive.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, EOFError, IndexError, OSError) as error:
        raise BadArchiveError(f"its directory cannot be read ({error})") from None
    except struct.error as error:
        raise BadArchiveError(f"its directory is damaged ({error})") from None
    for info in found:
        kind, fault, target = _kind(info), None, b""
        if info.flag_bits & _ENCRYPTED:
            fault = "unreadable", "it is encrypted"
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            fault = "unreadable", f"it is compressed by method {info.compress_type}; 0 and 8 can be read"
        packed = info.compress_size, info.compress_type
        if kind == "symlink" and fault is None:
            target = _target(fd, info)
        yield Member(_name(info), kind, info.header_offset, info.file_size, info.CRC, target), packed, fault


def read_zip(fd: int, *, offset: int, length: int, method: int, size: int, checksum: int) -> bytes:
    """All bytes of the member whose header is at `offset`. Raises DecodeError where they are not as the directory says.

    length: of the data in the archive. size: of what they hold, which is never exceeded.
    """
    if length > MAX_FILE_BYTES:
        raise DecodeError("too_large", f"the file has {length} bytes in the archive")
    packed = _packed(fd, offset, length)
    try:
        data = packed if method == zipfile.ZIP_STORED else zlib.decompressobj(-15).decompress(packed, size + 1)
    except zlib.error as error:
        raise DecodeError("corrupt", f"the zip archive is damaged: {error}") from None
    if len(data) != size or zlib.crc32(data) != checksum:
        raise DecodeError("corrupt", "the zip archive is damaged: size or checksum differ from its directory")
    return data


def zip_head(fd: int, *, offset: int, length: int, method: int, most: int) -> bytes:
    """The first bytes of a member, `most` or fewer. Raises DecodeError where it is damaged."""
    packed = _packed(fd, offset, min(length, 4096))
    try:
        return packed[:most] if method == zipfile.ZIP_STORED else zlib.decompressobj(-15).decompress(packed, most)
    except zlib.error as error:
        raise DecodeError("corrupt", f"the zip archive is damaged: {error}") from None


def _packed(fd: int, offset: int, length: int) -> bytes:
    """The first `length` bytes of a member's data."""
    header = os.pread(fd, _LOCAL.size, offset)
    mark, name, extra = _LOCAL.unpack(header) if len(header) == _LOCAL.size else (b"", 0, 0)
    if mark != b"PK\3\4":
        raise DecodeError("corrupt", "the zip archive is damaged: no member begins where its directory says")
    # Read separately: to cut the data out of one read would copy them.
    return read_range(fd, offset + _LOCAL.size + name + extra, length)


def _kind(info: zipfile.ZipInfo) -> Kind:
    """What a member is; by the mode that Unix has, if there is one."""
    mode = info.external_attr >> 16
    if info.is_dir():
        return "folder"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "special" if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR) else "file"


def _target(fd: int, info: zipfile.ZipInfo) -> bytes:
    """Where a link leads; nowhere if that cannot be read."""
    if info.file_size > _LONGEST_LINK or info.compress_size > _LONGEST_LINK:
        return b""
    try:
        return read_zip(
            fd, offset=info.header_offset, length=info.compress_size, method=info.compress_type,
            size=info.file_size, checksum=info.CRC,
        )  # fmt: skip
    except (DecodeError, OSError):
        return b""


def _name(info: zipfile.ZipInfo) -> bytes:
    """The name in UTF-8. Without the mark of UTF-8 it should be in cp437, but on Unix it is usually UTF-8 too."""
    text = info.orig_filename
    name = text.encode("utf-8", "surrogateescape")
    if not info.flag_bits & _UTF8:
        try:
            raw = text.encode("cp437")
            raw.decode("utf-8")
            name = raw
        except (UnicodeEncodeError, UnicodeDecodeError):
            pass
    if info.create_system == _DOS and b"/" not in name:
        name = name.replace(b"\\", b"/")
    return name
