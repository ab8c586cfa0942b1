"""What an index says: the shards, and the columns with their encodings; and the value that bytes of each encoding are.
Numbers are little-endian if nothing else is said."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.images.with_pillow import deep_file, pixels_of
from rawpack_packer.options import opt

_COUNT = struct.Struct("<I")
_PIL = struct.Struct("<III")
_PIXELS_A_BYTE = 8
_NO_TAG = 0x20
_MOST_AXES = 32
_MOST_IMAGES = 1 << 10
Leaf = tuple[tuple[str, ...], str]
"""Where a value is in a sample, by keys of dicts and positions in lists; and its encoding, as the index names it."""
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
    encoding: Encoding = field(compare=False)
    at: int
    """Its position among the values of a sample."""
    size: int | None = None
    """Bytes of each value; None where the sample says it."""

    def image(self, k: int) -> Coded:
        """Image k of a column of several."""
        each = FILE if self.encoding.holds == "files" else PICTURE
        take = partial(_image, before=self.encoding.before, k=k, read=each.read)
        return replace(self, name=f"{self.name}_{k}", encoding=replace(each, read=take))


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
    shards: tuple[tuple[ShardFile, ...], ...]
    """Each as one or more files, one of which is needed: the compressed one, and a copy that was decompressed."""


PICKLED = "a pickle, which can run code when it is read, so rawpack does not read it"


def number(dtype: str) -> Encoding:
    """One number."""
    return Encoding("number", partial(_number, dtype=dtype), dtype=np.dtype(dtype).name)


def array(head: Head) -> Encoding:
    """An array after its head."""
    return Encoding("array", partial(_array, head=head), head=head)


def text(data: bytes) -> str:
    """UTF-8."""
    return bytes(data).decode()


FILE, BYTES = Encoding("file"), Encoding("bytes")
TEXT, JSON = Encoding("text", text), Encoding("json", json.loads)


def _number(data: bytes, dtype: str) -> Any:
    if not data:
        raise ValueError(f"it has no value: leave the column out, by {opt.columns('A,B')}")
    (value,) = np.frombuffer(data, np.dtype(dtype).newbyteorder("<"))
    return value


def _array(data: bytes, head: Head) -> NDArray[Any]:
    dtype, shape, at = head(data)
    values = np.frombuffer(bytes(data[at:]), np.dtype(dtype).newbyteorder("<")).reshape(shape)
    return values.astype(dtype)


def known_head(data: bytes, dtype: str) -> tuple[str, tuple[int, ...], int]:
    """Of an array with one axis, whose index says what it is."""
    return dtype, (len(data) // np.dtype(dtype).itemsize,), 0


def head_of_words(data: bytes, order: str, dtypes: Mapping[int, str]) -> tuple[str, tuple[int, ...], int]:
    """Of an array after 32-bit words: a number for the dtype, the number of axes, and their lengths."""
    number, axes = struct.unpack_from(f"{order}II", data)
    if axes > _MOST_AXES or number not in dtypes:
        raise ValueError(f"its dtype has the number {number}" if axes <= _MOST_AXES else f"it has {axes} axes")
    return dtypes[number], struct.unpack_from(f"{order}{axes}I", data, 8), 8 + 4 * axes


def picture(data: bytes, *, exact: bool = False) -> NDArray[Any] | bytes:
    """A PIL image, as its width, height, length of the mode, mode and pixels; a file where `deep_file` makes one.
    exact: the values of one whose pixels have more than 8 bits, such as depths. Raises DecodeError too, where it is no
    picture and not `exact`."""
    from PIL import Image

    width, height, length = _PIL.unpack_from(data)
    start = _PIL.size + length
    mode, pixels = text(data[_PIL.size : start]), bytes(data[start:])
    # Pillow makes the image before it looks at the bytes.
    if not 0 < width * height <= _PIXELS_A_BYTE * len(pixels):
        raise ValueError(f"an image of {width}x{height} in {len(pixels)} bytes")
    image = Image.frombytes(mode, (width, height), pixels)
    if exact and mode[0] in "IF":
        return np.array(image)
    file = deep_file(image)
    return pixels_of(image) if file is None else file


PICTURE = Encoding("picture", picture)


def compact_json(data: bytes) -> Any:
    """What JSON could hold, as litdata writes it; older versions wrote JSON itself."""
    if not data or data[0] > _NO_TAG:
        return json.loads(data)
    value = (reader := _CompactReader(data)).value()
    if reader.at != len(data):
        raise ValueError(f"{len(data) - reader.at} bytes follow the value")
    return value


class _CompactReader:
    """Reads values one after another, each after a byte that says what it is."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise ValueError("it ends early")
        return self.data[self.at - size : self.at]

    def count(self) -> int:
        return int.from_bytes(self.take(4), "little")

    def text(self) -> str:
        return self.take(self.count()).decode()

    def value(self) -> Any:
        match self.take(1)[0]:
            case 0:
                return json.loads(self.take(self.count()))
            case 1:
                return [self.text() for _ in range(self.count())]
            case 2 | 3 as kind:
                return np.frombuffer(self.take(8 * self.count()), "<i8" if kind == 2 else "<f8").tolist()
            case 4:
                return [byte != 0 for byte in self.take(self.count())]
            case 5:
                return {self.text(): self.value() for _ in range(self.count())}
            case 6:  # dicts of the same keys, which come first
                rows, keys = self.count(), [self.text() for _ in range(self.count())]
                if rows and not keys:  # which would take no bytes, however many they are
                    raise ValueError(f"{rows:,} dicts without keys")
                return [{key: self.value() for key in keys} for _ in range(rows)]
            case 7 | 0x11:
                return self.text()
            case 8 | 0x12:
                return int.from_bytes(self.take(8), "little", signed=True)
            case 9 | 0x13:
                return struct.unpack("<d", self.take(8))[0]
            case 10 | 0x14:
                return self.take(1) != b"\0"
            case 11 | 0x10:
                return None
            case other:
                raise ValueError(f"a value of kind {other}")


def images_in(data: bytes, before: int) -> int:
    """How many images a list has. before: bytes before the count."""
    (count,) = _COUNT.unpack_from(data, before)
    if not 0 < count <= _MOST_IMAGES:
        raise ValueError(f"a list of {count:,} images")
    return int(count)


def _image(data: bytes, before: int, k: int, read: Callable[..., Any], **options: bool) -> Any:
    """Image k of several, as `read` takes it."""
    count = images_in(data, before)
    sizes = struct.unpack_from(f"<{count}I", data, before + 4)
    start = before + 4 + 4 * count
    if k >= count or start + sum(sizes) != len(data):
        raise ValueError(f"a list of {count} images in {len(data)} bytes has no image {k}")
    start += sum(sizes[:k])
    return read(bytes(data[start : start + sizes[k]]), **options)
