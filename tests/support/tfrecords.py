"""Writes TFRecord files byte by byte, as TensorFlow's format has them. Shares no code with rawpack."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

Features = Mapping[str, Any]
"""Name -> a value or a list of them: whole numbers, floats, texts or bytes; or a list of bytes as it is written."""


def crc32c(data: bytes) -> int:
    """CRC-32C (Castagnoli), a bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    length = struct.pack("<Q", len(data))
    return length + masked(length) + data + masked(data)


def varint(number: int) -> bytes:
    number &= (1 << 64) - 1
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*made, number])


def message(tag: int, data: bytes) -> bytes:
    return bytes([tag]) + varint(len(data)) + data


def feature(value: Any) -> bytes:
    """A tf.train.Feature."""
    values = list(value) if isinstance(value, list | tuple | np.ndarray) else [value]
    values = [one.item() if isinstance(one, np.generic) else one for one in values]
    if not values:
        return b""
    if isinstance(values[0], str | bytes):
        items = [one.encode() if isinstance(one, str) else one for one in values]
        return message(0x0A, b"".join(message(0x0A, one) for one in items))
    if isinstance(values[0], float):
        return message(0x12, message(0x0A, struct.pack(f"<{len(values)}f", *values)))
    return message(0x1A, message(0x0A, b"".join(varint(one) for one in values)))


def example(features: Features) -> bytes:
    """A tf.train.Example."""
    entries = [message(0x0A, message(0x0A, k.encode()) + message(0x12, feature(v))) for k, v in features.items()]
    return message(0x0A, b"".join(entries))


def tfrecord(examples: Iterable[Features]) -> bytes:
    """A whole file."""
    return b"".join(record(example(one)) for one in examples)


def rows(columns: Mapping[str, Sequence[Any]], images: Sequence[bytes]) -> list[Features]:
    """An Example for each image, with its value of each column."""
    return [{"image": image, **{name: [v] for name, v in ((n, c[i]) for n, c in columns.items()) if v is not None}}
            for i, image in enumerate(images)]  # fmt: skip
