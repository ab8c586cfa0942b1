"""What the values of a database hold, by the first of them, and the sample that each one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.sources.lmdb.datum import read_datum
from rawpack_packer.sources.pickles import BadPickleError, read_pickle
from rawpack_packer.text import plain

LABEL = "label"
Sample = tuple[bytes | NDArray[np.uint8], dict[str, int]]
"""The image and the fields of one."""


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


READERS: dict[str, Callable[[bytes], Sample]] = {"files": _file, "datum": _datum, "pickle": _pickle}
"""What values hold -> what makes a sample of one; it raises DecodeError."""


def holds(value: bytes, where: str, *, numbered: bool) -> str:
    """Which of `READERS` reads values such as this one, the first of a database. Raises UsageError where none does.

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
