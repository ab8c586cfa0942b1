"""Arrays in files of numpy's own, `.npy`, for values that no image file holds."""

from __future__ import annotations

import io
import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError

_MAGIC = b"\x93NUMPY"


def is_npy(data: bytes) -> bool:
    """Whether it is such a file, by its first bytes."""
    return data.startswith(_MAGIC)


def header_of(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], Literal["C", "F"], int]:
    """dtype, shape and order of the array of an .npy file, and where it begins; by its first bytes. Raises
    DecodeError."""
    file = io.BytesIO(data)
    try:
        read = {
            (1, 0): np.lib.format.read_array_header_1_0,
            (2, 0): np.lib.format.read_array_header_2_0,
        }[np.lib.format.read_magic(file)]
        shape, fortran, dtype = read(file)
    except Exception as error:  # numpy evaluates the header: Python's own parser raises what it likes
        raise DecodeError("bad_field", "it is not a .npy file, or damaged") from error
    if dtype.hasobject:
        raise DecodeError("bad_field", "an .npy of Python objects could run code, so it is not read")
    return dtype, shape, "F" if fortran else "C", file.tell()


def array_of(data: bytes) -> NDArray[Any]:
    """The array of an .npy file. Its header may lie: nothing is allocated by it. Raises DecodeError."""
    dtype, shape, order, offset = header_of(data)
    try:
        if math.prod(shape) * dtype.itemsize != len(data) - offset:
            raise ValueError
        return np.frombuffer(data, dtype, offset=offset).reshape(shape, order=order)
    except Exception as error:  # as of a shape or type that no array has
        raise DecodeError("bad_field", "it is not a .npy file, or damaged") from error
