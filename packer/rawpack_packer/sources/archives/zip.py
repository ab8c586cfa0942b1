"""Reads zip archives: their central directory by `zipfile`, and then each member at its own offset.

`zipfile` takes what it finds in the directory, however few members that are, so the record at the end is read here too.
"""

from __future__ import annotations

import os
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO

from rawpack.errors import DecodeError
from rawpack_packer.errors import is_of_system
from rawpack_packer.sources.archives.tar import BadArchiveError, Kind, Member
from rawpack_packer.sources.files import MAX_FILE_BYTES, noting_reads
from rawpack_packer.sources.table.columns import Fault, read_range
from rawpack_packer.text import plain

_LOCAL = struct.Struct("<4s22xHH")
"""The header before a member: its mark, and the lengths of its name and extra fields, which follow."""
_END = struct.Struct("<4s4H2LH")
"""The record at the end: its mark; the numbers of this part and of the one with the directory, of an archive in parts;
how many members the directory has in this part, and in all; its bytes and its offset; the length of the comment."""
_END_64, _LOCATOR = struct.Struct("<4s28xQQQ"), 20
"""Of larger archives, the record before it: its mark; the number of members, and the bytes and the offset of the
directory. Another one follows, of so many bytes, that says where this one is."""
_EXTRA, _UNICODE_PATH = struct.Struct("<HH"), 0x7075
"""Before each extra field: its kind and its length; and the kind that has the name in UTF-8."""
_LISTED = 46
"""Bytes that a member has in the directory besides its name, extra fields and comment."""
_MEMBER, _END_64_MARK = b"PK\3\4", b"PK\6\6"
MARKS = (_MEMBER, b"PK\5\6")
"""First bytes of an archive; the second is of an empty one."""
_LONGEST_LINK = _HEAD = 4096
"""Bytes of the target of a link; and of the data in the archive that show how a member begins."""
_METHODS = {9: "deflate64", 12: "bzip2", 14: "LZMA", 93: "zstd", 95: "xz", 98: "PPMd"}
_UTF8, _ENCRYPTED, _DOS = 0x800, 0x1, 0
_HIDDEN = 0x2000
"""Set where the directory is encrypted too: members then have other names."""
_MOST_SHOWN = 200
ENCRYPTED = "it is encrypted"
OTHER_METHOD = "it is compressed by method"
"""What is wrong with members that no damage has made unreadable."""


def zip_members(fd: int) -> Iterator[Member]:
    """The members of the archive at a descriptor, in the order of its directory. Raises BadArchiveError."""
    with os.fdopen(os.dup(fd), "rb") as file:
        infos, problem = directory(file)
    wrong = list[str]()
    for info in infos:
        if (differs := disagreement(fd, info)) is not None:
            wrong.append(differs)  # nobody knows which of the two is right, and the class may depend on the name
            continue
        kind, target = _kind(info), b""
        fault: Fault | None = None
        if info.flag_bits & _ENCRYPTED:
            fault = "unreadable", ENCRYPTED
        elif info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            name = _METHODS.get(info.compress_type, "another one")
            fault = "unreadable", f"{OTHER_METHOD} {info.compress_type} ({name}), and only 0 and 8 (deflate) are read"
        packed = info.compress_size, info.compress_type
        if kind == "symlink" and fault is None:
            target = _target(fd, info)
        yield Member(_name(info), kind, info.header_offset, info.file_size, info.CRC, target, packed, fault)
    if problem is not None:
        raise problem
    if wrong:
        more = f"; {len(wrong) - 1:,} more of {len(infos):,} members are wrong too" if wrong[1:] else ""
        raise BadArchiveError(f"{wrong[0]}{more}")


def directory(file: BinaryIO) -> tuple[list[zipfile.ZipInfo], BadArchiveError | None]:
    """What the directory of an open archive lists; and what is wrong where that is not all of the archive. Raises
    BadArchiveError where it is damaged, OSError."""
    with noting_reads(file) as noted:
        try:
            ends = zipfile.is_zipfile(noted)
            if ends:
                with zipfile.ZipFile(noted) as archive:
                    infos, start = archive.infolist(), archive.start_dir
        except Exception as error:  # a parser of what others wrote raises what its own parts raise
            raise BadArchiveError(f"its directory cannot be read ({error})") from error
    if not ends:
        raise BadArchiveError(
            "it has no directory at its end", "it is truncated, or one part of a split archive: join its parts first"
        )
    return infos, _problem(file, infos, start)


def _problem(file: BinaryIO, infos: Sequence[zipfile.ZipInfo], start: int) -> BadArchiveError | None:
    """What is wrong where the directory, which begins at `start`, lists another number of members than the record after
    it says, or there is more than it lists. Raises BadArchiveError for one part of a split archive."""
    file.seek(start + sum(_LISTED + len(_raw_name(info)) + len(info.extra) + len(info.comment) for info in infos))
    end, at, most = file.read(), 0, 1 << 16
    try:
        if wide := end.startswith(_END_64_MARK):
            _, total, _, begins = _END_64.unpack_from(end)
            at, most = _END_64.size + _LOCATOR, 1 << 64
        _, part, _, here, entries, _, offset, comment = _END.unpack_from(end, at)
    except struct.error:
        return BadArchiveError("what follows its directory is not the record of its end")
    after = len(end[at + _END.size + comment :].rstrip(b"\0"))
    if wide:
        entries, offset = total, begins
    elif part not in (0, 0xFFFF) or here != entries:
        raise BadArchiveError(
            "it is one part of a split archive", "join the parts first, such as by `zip -s 0 PART.zip --out WHOLE.zip`"
        )
    # Numbers of entries are counted up to `most`, then from 0 again; or stay at the last one before it.
    saturated = entries == most - 1 and len(infos) >= entries
    if len(infos) % most != entries and not saturated:
        return BadArchiveError(
            f"its directory lists {len(infos):,} members, and the record at its end says {entries:,}"
        )
    file.seek(0)
    # What is before an archive that is a program, too, begins otherwise.
    if offset < start and file.read(4) == _MEMBER:
        return BadArchiveError(
            f"the record at its end says nothing of its first {start - offset:,} bytes",
            "were archives joined by cat? Pack them as ONE.zip::TWO.zip",
        )
    return BadArchiveError(f"{after:,} bytes follow its end") if after else None


def disagreement(fd: int, info: zipfile.ZipInfo) -> str | None:
    """What is wrong where a member is not the one that the directory lists; None where it is. Its data are compared
    with the directory where they are read."""
    if info.flag_bits & _HIDDEN:
        return None
    name, header = _raw_name(info), b""
    try:
        header = os.pread(fd, _LOCAL.size + len(name), info.header_offset)
    except (OSError, OverflowError) as error:
        if is_of_system(error):  # and not of an offset that no file has
            raise
    mark, size, _ = _LOCAL.unpack_from(header) if len(header) >= _LOCAL.size else (b"", 0, 0)
    if mark != _MEMBER:
        return f"no member begins at byte {info.header_offset:,}, where its directory has {_shown(name)}"
    if size != len(name) or header[_LOCAL.size :] != name:
        own = os.pread(fd, min(size, _MOST_SHOWN), info.header_offset + _LOCAL.size)
        return f"the member at byte {info.header_offset:,} is {_shown(own)}, and its directory calls it {_shown(name)}"
    if _kind(info) == "special" and info.compress_size:
        return f"its directory calls {_shown(name)} a pipe or a device, but it has {info.compress_size:,} bytes"
    return None


def _raw_name(info: zipfile.ZipInfo) -> bytes:
    """The name as the directory has it."""
    return info.orig_filename.encode("utf-8" if info.flag_bits & _UTF8 else "cp437")


def _shown(name: bytes) -> str:
    return repr(plain(name[:_MOST_SHOWN]))


def read_zip(fd: int, *, offset: int, length: int, method: int, size: int, checksum: int | None) -> bytes:
    """All bytes of the member whose header is at `offset`. Raises DecodeError where they are not as the directory says.

    length: of the data in the archive. size: of what they hold, which is never exceeded. checksum: None for the first
    `size` bytes, or fewer, which are not checked.
    """
    if checksum is None:
        length = min(length, _HEAD)
    elif length > MAX_FILE_BYTES:
        raise DecodeError("too_large", f"the file has {length} bytes in the archive")
    header = os.pread(fd, _LOCAL.size, offset)
    mark, name, extra = _LOCAL.unpack(header) if len(header) == _LOCAL.size else (b"", 0, 0)
    if mark != _MEMBER:
        raise DecodeError("corrupt", "the zip archive is damaged: no member begins where its directory says")
    # Read separately: to cut the data out of one read would copy them.
    data, most = read_range(fd, offset + _LOCAL.size + name + extra, length), size + (checksum is not None)
    try:
        data = data[:most] if method == zipfile.ZIP_STORED else zlib.decompressobj(-15).decompress(data, most)
    except zlib.error as error:
        raise DecodeError("corrupt", f"the zip archive is damaged: {error}") from error
    if checksum is not None and (len(data) != size or zlib.crc32(data) != checksum):
        raise DecodeError("corrupt", "the zip archive is damaged: size or checksum differ from its directory")
    return data


def _kind(info: zipfile.ZipInfo) -> Kind:
    """What a member is; by the mode that Unix has, if there is one."""
    mode = info.external_attr >> 16
    if info.filename.endswith("/"):  # is_dir() raises for an empty name
        return "folder"
    if stat.S_ISLNK(mode):
        return "symlink"
    return "special" if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR) else "file"


def _target(fd: int, info: zipfile.ZipInfo) -> bytes:
    """Where a link leads; nowhere if it is damaged. Raises OSError."""
    if info.file_size > _LONGEST_LINK or info.compress_size > _LONGEST_LINK:
        return b""
    try:
        return read_zip(
            fd, offset=info.header_offset, length=info.compress_size, method=info.compress_type,
            size=info.file_size, checksum=info.CRC,
        )  # fmt: skip
    except (DecodeError, OSError) as error:
        if is_of_system(error):
            raise
        return b""


def _unicode_name(extra: bytes, name: bytes) -> bytes:
    """The name in the extra field that Info-ZIP defined for it, if it is that of `name`; nothing without one."""
    while len(extra) >= _EXTRA.size:
        kind, size = _EXTRA.unpack_from(extra)
        data, extra = extra[_EXTRA.size : _EXTRA.size + size], extra[_EXTRA.size + size :]
        if kind == _UNICODE_PATH and data[:5] == b"\1" + zlib.crc32(name).to_bytes(4, "little"):
            return data[5:]
    return b""


def _name(info: zipfile.ZipInfo) -> bytes:
    """The name in UTF-8. Without the mark of UTF-8 it should be in cp437, but on Unix it is usually UTF-8 too, and on
    Windows it may be of any code page, with the name in UTF-8 in an extra field."""
    text = info.orig_filename
    name = text.encode("utf-8", "surrogateescape")
    if not info.flag_bits & _UTF8:
        with suppress(UnicodeEncodeError, UnicodeDecodeError):
            raw = text.encode("cp437")
            found = _unicode_name(info.extra, raw) or raw
            found.decode("utf-8")
            name = found
    if info.create_system == _DOS and b"/" not in name:
        name = name.replace(b"\\", b"/")
    return name
