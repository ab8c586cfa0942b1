"""What an index says: the shards, and the columns; and how to pack what rawpack does not read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import msgspec

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.chunks.arrow_rows import Leaf
from rawpack_packer.text import plain

T = TypeVar("T")
Head = Callable[[bytes], tuple[str, tuple[int, ...], int]]
"""Of the bytes of an array: dtype, shape, and how many are before its values. Raises ValueError."""


@dataclass(frozen=True)
class Encoding:
    """How the values of a column are encoded."""

    holds: Literal["file", "picture", "array", "number", "text", "json", "bytes", "files", "pictures", "unread"]
    """An image file, or pixels; "files" and "pictures" are several of them."""
    read: Callable[[bytes], Any] = bytes
    """The value. Raises ValueError and the like for bytes of no value."""
    dtype: str = ""
    """Of a number."""
    head: Head | None = None
    """Of an array."""
    before: int = 0
    """Bytes before the count of several images."""
    why: str = ""
    """Why it is not read."""


@dataclass(frozen=True)
class Coded:
    """A column of an index."""

    name: str
    type: str
    """Its encoding, as the index names it."""
    encoding: Encoding
    at: int
    """Its position among the values of a sample."""


@dataclass(frozen=True)
class ShardFile:
    """A file of samples."""

    name: str
    """Its path below the folder of the index."""
    samples: int
    bytes: int | None
    """Of the file; None where the index does not say it."""
    most: int
    """Bytes that it has at most when it is decompressed."""
    codec: str = ""
    """What it is compressed by; "" for nothing. "zstd/sample": each sample by itself; "zstd/batch": some at once;
    `ARROW`: rows of Arrow."""
    hashes: Mapping[str, str] = field(default_factory=dict)
    """Algorithm -> hexadecimal digest of the file."""
    leaves: tuple[Leaf, ...] = ()
    """Of litdata, where the values of a sample are, if its samples may be rows of Arrow: only the file says whether."""


@dataclass(frozen=True)
class ShardIndex:
    """All of an index."""

    columns: tuple[Coded, ...]
    sizes: tuple[int | None, ...]
    """Of each value of a sample, in bytes; None where the sample says it."""
    shards: tuple[tuple[ShardFile, ...], ...]
    """Each as one or more files, one of which is needed: the compressed one, and a copy that was decompressed."""


def decoded(data: bytes, kind: type[T], where: str, writer: str) -> T:
    """The index in JSON. Raises UsageError."""
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where} is not what {writer} writes: {error}") from error


def unread(column: Coded, index: ShardIndex, folder: str) -> UsageError:
    """Why a column is not read, and what to do about it. folder: of the index."""
    rest = ",".join(plain(one.name) for one in index.columns if one.encoding.holds != "unread")
    return UsageError(
        f"{plain(folder)}: column {plain(column.name)!r} is {plain(column.type)!r}, {column.encoding.why}: "
        f"{opt.columns(rest)} packs the other columns, and docs/how-to/what-is-not-read.md#mds-and-litdata has lines "
        "of Python that pack all"
    )


PICKLED = "a pickle, which can run code when it is read, so rawpack does not read it"
