"""The LMDB format: JPEG files, and masks as PNG files, read at the offsets that packing recorded.

liblmdb is not called: a damaged page would kill the process, and liblmdb refuses to open one file twice.
`rawpack inspect --verify` checks, in a process of its own, that offsets and database agree.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DamagedStoreError
from rawpack.formats.field_reader import FieldReader, ShardField, open_rows

_MAGIC = (0xBEEFC0DE).to_bytes(4, "little")
_MAGIC_AT = 16  # after the page header
_PAGE_BYTES_AT, _LAST_PAGE_AT, _TRANSACTION_AT = 40, 136, 144
"""Offsets in each of the first two pages, which are the header: the page of the later transaction counts."""


def used_bytes(data: NDArray[np.uint8]) -> int:
    """The bytes that a file uses by its own header. Raises DamagedStoreError where it has none."""

    def number(at: int, size: int = 8) -> int:
        return int.from_bytes(data[at : at + size].tobytes(), "little")

    page = number(_PAGE_BYTES_AT, 4)
    if not 512 <= page <= 1 << 16 or len(data) < 2 * page:
        raise DamagedStoreError(f"it has no LMDB header: pages of {page} bytes")
    _, last = max((number(start + _TRANSACTION_AT), number(start + _LAST_PAGE_AT)) for start in (0, page))
    return (last + 1) * page


def open_field(part: ShardField) -> FieldReader:
    if part.data[_MAGIC_AT : _MAGIC_AT + 4].tobytes() != _MAGIC:
        raise DamagedStoreError(f"{part.where} is not an LMDB file")
    return open_rows(part)
