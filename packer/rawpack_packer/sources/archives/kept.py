"""Keeps what was found in an archive, for a run that resumes.

A file holds a list of blocks, in msgpack, after the checksum of it all. Nothing of a file with another checksum is
used: the archive is looked through again. `ArchiveFiles` names the file after the archive, its size, and its time or
version, so nothing that was found in another version is used either.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import xxhash

from rawpack.disk.plain_files import read_plain
from rawpack.errors import RawpackError

T = TypeVar("T")
_BLOCK = 16
"""Few, because the bytes of labels may be long."""
_SUM_BYTES = 16
_PIECE = 1 << 20
_MOST_BYTES = 1 << 29
"""What is longer is not kept, since it is in memory until then: about ten million members of one archive."""
_VERSION = 1
"""Goes up where members are kept or found in another way."""
_found: list[Path] = []
"""What this process has found since the last job began, in `scratch`."""


def keeping(found: Iterator[T], name: str, folder: Path | None) -> Iterator[T]:
    """What is found, which is also written to a file at the end, unless that fails or it is too long. folder: where;
    None keeps it in `scratch` until `keep_found`."""
    blocks, block, size = list[bytes](), list[T](), 0
    for one in found:
        yield one
        block.append(one)
        if len(block) == _BLOCK:
            blocks.append(msgspec.msgpack.encode(block))
            block, size = [], size + len(blocks[-1])
            if size > _MOST_BYTES:
                yield from found
                return
    data = msgspec.msgpack.encode([*blocks, msgspec.msgpack.encode(block)])
    with suppress(OSError):  # an archive of which nothing is kept is looked through again
        path = (folder or scratch()) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{name}.{os.getpid()}.tmp")
        temporary.write_bytes(_sum(data) + data)
        temporary.replace(path)
        if folder is None:
            _found.append(path)


def keep_found(folder: Path) -> None:
    """Move what was found in archives on the disk to the work folder of the job that begins."""
    while _found:
        path = _found.pop()
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            shutil.move(path, folder / path.name)


def read_kept(name: str, kind: Any, folder: Path) -> Iterator[Any] | None:
    """What was kept in a folder, or found by this process; None where there is nothing, or not what was written."""
    path = next((path for path in _found if path.name == name), folder / name)
    try:
        data = read_plain(path, _MOST_BYTES)
        if data[:_SUM_BYTES] != _sum(memoryview(data)[_SUM_BYTES:]):
            return None
        blocks = msgspec.msgpack.decode(memoryview(data)[_SUM_BYTES:], type=list[bytes])
        decoder = msgspec.msgpack.Decoder(list[kind])
        for block in blocks:  # nothing is used of a list that is not right to its end
            decoder.decode(block)
    except (OSError, RawpackError, msgspec.DecodeError):
        return None
    return (one for block in blocks for one in decoder.decode(block))


def pieces_of(path: str) -> Iterator[bytes]:
    """The bytes of a file, to be kept."""
    with open(path, "rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def restored(pieces: Iterator[bytes]) -> str:
    """A file with these bytes, which lives as long as this process; "" without any. Raises OSError."""
    first = next(pieces, None)
    if first is None:
        return ""
    handle, path = tempfile.mkstemp(dir=scratch())
    with os.fdopen(handle, "wb") as file:
        file.write(first)
        file.writelines(pieces)
    return path


@cache
def scratch() -> Path:
    """A folder for what is found before there is a work folder. It lives as long as this process."""
    folder = tempfile.mkdtemp(prefix="rawpack-index-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _sum(data: bytes | memoryview) -> bytes:
    return xxhash.xxh3_128_digest(data, seed=_VERSION)
