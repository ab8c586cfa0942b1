"""Caffe's `Datum`, the protocol buffer in its databases: an image as planes or as a file, and a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CHANNELS, _HEIGHT, _WIDTH, _DATA, _LABEL, _FLOATS, _ENCODED = range(1, 8)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


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
