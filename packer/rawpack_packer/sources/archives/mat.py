"""Reads struct arrays of numbers and texts from MATLAB 5 files, as ImageNet's `meta.mat` is one."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

_HEADER = 128
_COMPRESSED, _MATRIX = 15, 14
_STRUCT, _CHAR = 2, 4
_NUMERIC = range(6, 16)
"""Classes of arrays."""
_FORMATS = {1: "b", 2: "B", 3: "h", 4: "H", 5: "i", 6: "I", 7: "f", 9: "d", 12: "q", 13: "Q"}
_UTF8 = 16
_MOST_BYTES = 1 << 28
Value = float | str | None
"""The first number of an array, a text, or None for anything else."""


class BadMatError(ValueError):
    """A file that is not a MATLAB 5 file, or a damaged one."""


def read_structs(data: bytes, name: str) -> list[dict[str, Value]]:
    """The structs in the array of this name, each as field -> value. Raises BadMatError."""
    if len(data) < _HEADER or data[126:128] not in (b"IM", b"MI"):
        raise BadMatError("it is not a MATLAB 5 file")
    order = "<" if data[126:128] == b"IM" else ">"
    try:
        for kind, body in _elements(data[_HEADER:], order):
            if kind == _COMPRESSED:
                body = next(_elements(zlib.decompressobj().decompress(body, _MOST_BYTES), order))[1]
            parts = list(_elements(body, order))
            if _class(parts[0][1], order) == _STRUCT and parts[2][1] == name.encode():
                return _structs(parts, order)
    except (struct.error, zlib.error, IndexError, StopIteration, UnicodeDecodeError) as error:
        raise BadMatError(f"the MATLAB file is damaged ({error})") from None
    raise BadMatError(f"the MATLAB file has no structs called {name}")


def _structs(parts: list[tuple[int, bytes]], order: str) -> list[dict[str, Value]]:
    (length,) = struct.unpack(order + "i", parts[3][1])
    if length <= 0:
        raise BadMatError("the MATLAB file has fields without names")
    fields = parts[4][1]
    names = [fields[at : at + length].split(b"\0")[0].decode() for at in range(0, len(fields), length)]
    values = [_value(body, order) for _, body in parts[5:]]
    return [dict(zip(names, values[at:], strict=False)) for at in range(0, len(values), max(len(names), 1))]


def _value(body: bytes, order: str) -> Value:
    parts = list(_elements(body, order))
    if len(parts) < 4:
        return None
    (kind, data), array = parts[3], _class(parts[0][1], order)
    if array == _CHAR:
        if kind == _UTF8:
            return data.decode()
        return "".join(map(chr, _numbers(kind, data, order)))
    numbers = _numbers(kind, data, order) if array in _NUMERIC else ()
    return float(numbers[0]) if numbers else None


def _numbers(kind: int, data: bytes, order: str) -> tuple[int, ...]:
    form = _FORMATS.get(kind)
    if form is None:
        return ()
    return struct.unpack(f"{order}{len(data) // struct.calcsize(form)}{form}", data)


def _class(flags: bytes, order: str) -> int:
    return int(struct.unpack_from(order + "I", flags)[0]) & 0xFF


def _elements(data: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Type and contents of each element: a tag of 8 bytes before them, or of 4 before 4 bytes or fewer."""
    at = 0
    while at + 8 <= len(data):
        kind, length = struct.unpack_from(order + "II", data, at)
        if kind >> 16:
            kind, length = kind & 0xFFFF, kind >> 16
            yield kind, data[at + 4 : at + 4 + min(length, 4)]
            at += 8
            continue
        if at + 8 + length > len(data):
            raise BadMatError("the MATLAB file is damaged (it ends early)")
        yield kind, data[at + 8 : at + 8 + length]
        at += 8 + (length if kind == _COMPRESSED else (length + 7) // 8 * 8)
