"""What the values of a database hold, by the first of them, and the sample that each one is: an image file, a pickle,
or Caffe's `Datum`, the protocol buffer in its databases, with an image as planes or as a file, and a label."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources.pickles import BadPickleError, read_pickle
from rawpack_packer.text import plain

LABEL = "label"
Sample = tuple[bytes | NDArray[np.uint8], dict[str, int]]
"""The image and the fields of one."""
_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = range(1, 8)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _file(value: bytes) -> Sample:
    return value, {}


def _datum(value: bytes) -> Sample:
    try:
        datum = read_datum(value)
        if not datum.is_complete:
            raise ValueError("it does not have all bytes of its image")
        image = datum.data if datum.encoded else datum.pixels()
    except ValueError as error:
        raise DecodeError("corrupt", f"the value is no Datum: {error}") from None
    return image, {LABEL: -1 if datum.label is None else datum.label}


def _pickle(value: bytes) -> Sample:
    try:
        found = read_pickle(value)
    except BadPickleError as error:
        raise DecodeError("unsupported", f"the value is not read as a pickle: {error}") from None
    image, label = found if isinstance(found, tuple | list) and len(found) == 2 else (None, None)
    if isinstance(image, list) and len(image) == 1:
        (image,) = image
    if isinstance(label, np.ndarray | list) and np.size(label) == 1:
        label = np.asarray(label).reshape(()).item()
    if not isinstance(image, bytes) or type(label) is not int or not -(1 << 63) <= label < 1 << 63:
        raise DecodeError("unsupported", f"the pickle holds {_shown(found)}, not the bytes of an image and its label")
    return image, {LABEL: label}


@dataclass(frozen=True)
class ValueLayout:
    """What values hold."""

    words: str
    """Who writes such databases."""
    read: Callable[[bytes], Sample]
    """Makes the sample of a value. Raises DecodeError."""
    has_label: bool


LAYOUTS = {
    "text": ValueLayout("text recognition (num-samples, image-000000001, label-000000001)", _file, has_label=False),
    "files": ValueLayout("image files by their keys", _file, has_label=False),
    "pickle": ValueLayout("pickles of image and label (folder2lmdb)", _pickle, has_label=True),
    "datum": ValueLayout("Caffe's Datum", _datum, has_label=True),
}


def holds(value: bytes, where: str, *, numbered: bool) -> str:
    """The layout of values such as this one, the first of a database: a name in `LAYOUTS`. Raises UsageError.

    numbered: whether the database has a key `__len__` or `__keys__`.
    """
    from rawpack_packer.images import sniff

    if sniff(value) is not None:
        return "files"
    if value[:1] == b"\x80" and value[1:2] in b"\2\3\4\5" and value.endswith(b"."):
        try:
            _pickle(value)
        except DecodeError as error:
            raise UsageError(f"{where}: {error.detail}; {_MAKE_AGAIN}") from None
        return "pickle"
    try:
        datum = read_datum(value)
    except ValueError:
        datum = None
    if datum is not None and datum.floats and not datum.encoded:
        raise UsageError(f"{where} holds Caffe's Datum with floats (float_data), and only bytes are read")
    if datum is not None and datum.is_complete:
        return "datum"
    if numbered:
        raise UsageError(
            f"{where} was written with pyarrow.serialize or msgpack, by its keys __len__ and __keys__; pyarrow can no "
            f"longer read that either: {_MAKE_AGAIN}"
        )
    raise UsageError(
        f"{where} is of no known scheme: its first value has {len(value):,} bytes that begin with "
        f"{value[:8].hex(' ') or 'nothing'}. Known are image files (LSUN, BasicSR), image-000000001 and num-samples "
        f"(text recognition), pickles of image and label (folder2lmdb), and Caffe's Datum; {_MAKE_AGAIN}"
    )


_MAKE_AGAIN = "make it again with image files as values, or pack the images that it was made of"


def _shown(found: Any) -> str:
    if isinstance(found, tuple | list):
        return f"a {type(found).__name__} of {plain(', '.join(type(one).__name__ for one in found[:5]))}"
    return f"a {type(found).__name__}"


@dataclass(frozen=True)
class Datum:
    """One message. The numbers are 0 where it does not say them."""

    channels: int
    height: int
    width: int
    data: bytes
    label: int | None
    encoded: bool
    floats: bool
    """Whether it has values as floats."""

    @property
    def is_complete(self) -> bool:
        """Whether it has all bytes of its image."""
        if self.encoded:
            return bool(self.data)
        return 0 < self.channels * self.height * self.width == len(self.data)

    def pixels(self) -> NDArray[np.uint8]:
        """(H, W) if there is one plane, else (H, W, 3) in RGB: Caffe's planes are blue, green, red.

        Raises ValueError where there are other planes.
        """
        if self.channels not in (1, 3):
            raise ValueError(f"it has {self.channels} planes, and an image has 1 or 3")
        planes = np.frombuffer(self.data, np.uint8).reshape(self.channels, self.height, self.width)
        return np.ascontiguousarray(planes[::-1].transpose(1, 2, 0)) if self.channels == 3 else planes[0].copy()


def read_datum(message: bytes) -> Datum:
    """The fields of a message. Raises ValueError where it is no `Datum`."""
    found: dict[int, Any] = {}
    at = 0
    value: int | bytes
    while at < len(message):
        value = 0
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        elif kind == _BYTES:
            length, at = _varint(message, at)
            value, at = message[at : at + length], at + length
        else:
            raise ValueError("not a message")
        if at > len(message) or not _CHANNELS <= number <= _ENCODED:
            raise ValueError("not a Datum")
        if number != _FLOATS and (kind == _BYTES) != (number == _DATA):
            raise ValueError("not a Datum")
        found[number] = value
    label = found.get(_LABEL)
    return Datum(
        found.get(_CHANNELS, 0),
        found.get(_HEIGHT, 0),
        found.get(_WIDTH, 0),
        found.get(_DATA, b""),
        # Negative numbers of int32 are written with 64 bits.
        None if label is None else label - (1 << 64) if label >> 63 else label,
        bool(found.get(_ENCODED)),
        _FLOATS in found,
    )


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            break
        byte = message[at]
        value, at = value | (byte & 0x7F) << shift, at + 1
        if byte < 0x80:
            return value & (1 << 64) - 1, at
    raise ValueError("not a message")
