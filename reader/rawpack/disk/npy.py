"""The `.npy` files of a store: the header that rawpack writes, and a reader for untrusted files.

numpy can read these files, but does not write them: their bytes must not depend on its version, and the pixels of
shards start at a page boundary.
"""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rawpack.errors import DamagedStoreError

_MAGIC = b"\x93NUMPY\x01\x00"
_HEADER = re.compile(
    rb"\{'descr': '(?P<descr>[<|][biufc]\d{1,2})', 'fortran_order': False, 'shape': \((?P<shape>[\d, ]*)\), \} *\n"
)


def header(dtype: DTypeLike, shape: tuple[int, ...], *, align: int = 64) -> bytes:
    """The header of a C-ordered array, padded with spaces so that the data starts at a multiple of `align` bytes."""
    descr = np.dtype(dtype).newbyteorder("<").str
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    size = -(-(len(_MAGIC) + 2 + len(text) + 1) // align) * align - len(_MAGIC) - 2
    return _MAGIC + size.to_bytes(2, "little") + text.ljust(size - 1) + b"\n"


def parse(data: NDArray[np.uint8], where: str) -> tuple[np.dtype[np.generic], tuple[int, ...], int]:
    """dtype, shape and data offset of the `.npy` file in `data`. Raises DamagedStoreError unless its size matches."""
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
    except (TypeError, ValueError) as error:
        raise DamagedStoreError(f"{where} has a damaged .npy header") from error
    size = math.prod(shape) * dtype.itemsize
    if size != len(data) - offset:
        raise DamagedStoreError(f"{where} has {len(data) - offset} bytes of data; its header says {size}")
    return dtype, shape, offset


def array(data: NDArray[np.uint8], where: str) -> NDArray[np.generic]:
    """The array in the bytes of an `.npy` file, without a copy."""
    dtype, shape, offset = parse(data, where)
    try:
        return data[offset:].view(dtype).reshape(shape)
    except ValueError as error:
        # No data, but a shape that numpy does not support: too many axes, or too long ones next to one of length 0.
        raise DamagedStoreError(f"{where} has a damaged .npy header") from error
