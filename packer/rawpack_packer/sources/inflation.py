"""How much compressed data of other people may stand for, and what inflates it: memory grows with the bytes that come
out, never with what a file states."""

from __future__ import annotations

import bz2
import io
import lzma
import re
import sys
import zlib
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

MAX_INFLATION = 1 << 12
"""Bytes that one byte of a file is taken to hold at most. gzip holds 1,032."""
_UNCHECKED = 1 << 28
"""Bytes up to which any ratio is accepted: they fit into the memory of any machine."""
_SNAPPY = 22
"""The same ratio of snappy, whose blocks say their length first: the longest copy, 64 bytes, takes 3."""
_MEMBER = re.compile(
    rb"PK\x03\x04.{4}(?P<packed>[\x00\x08])\x00.{8}(?P<size>.{4}).{4}(?P<length>..)(?P<extra>..)"
    rb"(?=(?P<name>[^\x00-\x1f]{1,250}?(\.npy|\.pkl|(?=[\x00-\x1f])|$)|))",
    re.DOTALL,
)
"""The header of a member of a ZIP file, without its name; `name` ends where those of arrays do."""
_PIECE, _BATCH_BYTES = 1 << 20, 8 << 20


def most_of(packed: int, most: int) -> int:
    """How many bytes compressed data may stand for. packed: its size in bytes. most: what is never exceeded."""
    return min(most, max(_UNCHECKED, packed * MAX_INFLATION))


def read_in_steps(read: Callable[[int], bytes], size: int) -> bytes:
    """The next bytes of a stream, `size` or, where it ends before, fewer."""
    into = io.BytesIO()
    while (left := size - into.tell()) > 0 and (piece := read(min(left, _PIECE))):
        into.write(piece)
    return into.getvalue()


def check_rows(ends: Sequence[int], size: int) -> None:
    """Raise ValueError where a table says that it has more rows than a file of `size` bytes can have. ends: of its
    blocks."""
    if ends and not 0 <= ends[-1] <= most_of(size, sys.maxsize):
        raise ValueError(f"it says that it has {ends[-1]:,} rows, which cannot be in {size:,} bytes")


def parquet_batches(file: Any, size: int, most: int, **which: Any) -> Iterator[Any]:
    """Rows of a Parquet file of `size` bytes in batches of at most `most`. file: pyarrow's. which: for `iter_batches`.

    Raises ValueError where they stand for more than such a file can hold. The sizes in the file count a value once that
    many rows share, so the number of rows of a batch follows from the size of the batch before it.
    """
    left, rows = most_of(size, sys.maxsize), 1
    for batch in file.iter_batches(rows, **which):
        left -= batch.nbytes
        if left < 0:
            raise ValueError(f"its rows stand for more bytes than {size:,} in a file can hold")
        yield batch
        rows = max(1, min(most, 4 * rows, _BATCH_BYTES * batch.num_rows // max(batch.nbytes, 1)))
        file.reader.set_batch_size(rows)


def readable(head: bytes, most: int = 1 << 18) -> bytes:
    """The beginning of a text, of at most `most` bytes, where `head` is that of a text that is compressed, in UTF-16,
    or in the members of a ZIP file, such as a sheet of Excel; `head` itself where it is none of these, or a file of
    arrays."""
    with suppress(zlib.error, OSError, lzma.LZMAError, EOFError):
        if head.startswith(b"\x1f\x8b"):
            return zlib.decompressobj(31).decompress(head, most)
        if head.startswith(b"BZh"):
            return bz2.BZ2Decompressor().decompress(head, most)
        if head.startswith(b"\xfd7zXZ\0"):
            return lzma.LZMADecompressor().decompress(head, most)
    if head.startswith((BOM_UTF16_BE, BOM_UTF16_LE)):
        return head.decode("utf-16", "replace").encode()
    text, members = b"", [*_MEMBER.finditer(head)]
    if any(member["name"].endswith((b".npy", b".pkl")) for member in members):
        return head
    for member in members:
        size, name, extra = (int.from_bytes(member[key], "little") for key in ("size", "length", "extra"))
        data = head[member.end() + name + extra :]
        with suppress(zlib.error):
            is_packed, left = member["packed"] == b"\x08", most - len(text)
            text += zlib.decompressobj(-zlib.MAX_WBITS).decompress(data, left) if is_packed and left > 0 else b""
            text += data[: min(size, max(left, 0))] if not is_packed else b""
    return text or head


class Inflated:
    """The bytes that parts of one compressed file stand for, one after another."""

    def __init__(self, codec: str, most: int, start: int = 0) -> None:
        """codec: as pyarrow calls it. most: bytes that may come out of all parts. start: zeros before them."""
        self._codec, self._most, self._into = codec, most, io.BytesIO(bytes(start))
        self._into.seek(start)
        self._left = most

    def add(self, part: bytes, most: int | None = None) -> int:
        """Inflate a part. Returns how many bytes came out. most: those of this part.

        Raises ValueError where more would come out, and as pyarrow for damaged data: OSError and ValueError.
        """
        import pyarrow as pa

        most, count = self._left if most is None else min(most, self._left), 0
        if self._codec == "snappy":  # without frames, which begins with the number of bytes
            most = min(most, _SNAPPY * len(part))
            for k, byte in enumerate(part[:5]):
                count |= (byte & 127) << 7 * k
                if byte < 128:
                    break
            if count <= most:
                self._into.write(pa.Codec("snappy").decompress(part, count, asbytes=True))
        else:
            with pa.CompressedInputStream(pa.BufferReader(part), self._codec) as stream:
                while count <= most and (piece := stream.read(_PIECE)):
                    count += len(piece)
                    self._into.write(piece)
        if count > most:
            raise ValueError(f"it stands for more than {most:,} bytes")
        self._left -= count
        return count

    def finish(self, head: bytes = b"") -> bytes:
        """All that came out. head: instead of the zeros."""
        self._into.seek(0)
        self._into.write(head)
        return self._into.getvalue()
