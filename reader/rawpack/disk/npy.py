"""The `.npy` files of a store: the header that rawpack writes, and a reader that trusts none.

numpy's own writer is not used: the bytes must not change with numpy's version, and shards want their pixels at a page
boundary. numpy reads the result.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rawpack.errors import DamagedStoreError

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(?P<descr>[<|][biufc]\d{1,2})', 'fortran_order': False, 'shape': \((?P<shape>[\d, ]*)\), \} *\n"
)


def header(dtype: DTypeLike, shape: tuple[int, ...], *, align: int = 64) -> bytes:
    """The header of a C-ordered array, padded with spaces so that the data begins at a multiple of `align` bytes."""
    descr = np.dtype(dtype).newbyteorder("<").str
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    size = -(-(len(_MAGIC) + 2 + len(text) + 1) // align) * align - len(_MAGIC) - 2
    return _MAGIC + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"


def parse(data: NDArray[np.uint8], where: str) -> tuple[np.dtype[np.generic], tuple[int, ...], int]:
    """dtype, shape and the offset of the data of the `.npy` file in `data`; its size must be exactly what they say."""
    head = data[:10].tobytes()
    if len(head) < 10 or not head.startswith(_MAGIC):
        raise DamagedStoreError(f"{where} is not an .npy file of version 1.0")
    offset = 10 + int.from_bytes(head[8:10], "little")
    match = _HEADER.fullmatch(data[10:offset].tobytes())
    if not match or len(data) < offset:
        raise DamagedStoreError(f"{where} has a damaged .npy header")
    try:
        dtype = np.dtype(match["descr"].decode())
        shape = tuple(int(n) for n in match["shape"].replace(b" ", b"").split(b",") if n)
    except (TypeError, ValueError):
        raise DamagedStoreError(f"{where} has a damaged .npy header") from None
    count = 1
    for n in shape:
        count *= n
    if count * dtype.itemsize != len(data) - offset:
        raise DamagedStoreError(
            f"{where} should hold {count * dtype.itemsize} bytes of data by its header, and holds {len(data) - offset}"
        )
    return dtype, shape, offset


def array(data: NDArray[np.uint8], where: str) -> NDArray[np.generic]:
    """The array in the bytes of an `.npy` file, without a copy."""
    dtype, shape, offset = parse(data, where)
    try:
        return data[offset:].view(dtype).reshape(shape)
    except ValueError:
        # No bytes, but axes that numpy cannot have: too many, or too long beside one of length 0.
        raise DamagedStoreError(f"{where} has a damaged .npy header") from None
