"""Converts values of small fields to the field's dtype and shape; a value that does not fit is rejected."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import DecodeError

REASON = "bad_field"


def as_stored(name: str, value: object, field: Field) -> str | NDArray[Any]:
    """`value` as a text, or as an array with the field's dtype and the shape of one sample.

    Integers may become floats, and floats shorter floats; otherwise neither kinds nor values of numbers change. Raises
    DecodeError for a value that does not fit.
    """
    if field.kind == "text":
        return _text(name, value)
    try:
        array = np.asarray(value)
    except (ValueError, OverflowError) as error:
        raise DecodeError(REASON, f"{name} is not an array: {error}") from None
    dtype, shape = np.dtype(field.dtype), tuple(field.shape)
    if field.kind == "ragged" and not array.size and array.ndim <= len(shape):
        return np.zeros((0, *(n or 0 for n in shape[1:])), dtype)  # [] has neither a dtype nor a second axis
    if len(array.shape) != len(shape) or any(want not in (None, n) for want, n in zip(shape, array.shape, strict=True)):
        raise DecodeError(REASON, f"{name} has shape {array.shape}; its field has {_shown(shape)}")
    if array.dtype == dtype:
        return np.array(array)
    if array.dtype.kind not in {"b": "b", "i": "iu", "u": "iu", "f": "iuf"}[dtype.kind]:
        raise DecodeError(REASON, f"{name} is {_named(array)}; its field is {dtype}")
    with np.errstate(all="ignore"):
        stored = array.astype(dtype)
    short = dtype.kind == "f" and array.dtype.kind == "f"
    same = (np.isfinite(stored) | ~np.isfinite(array)) if short else _equal(stored, array)
    if not np.all(same):
        raise DecodeError(REASON, f"{name} has the value {array[~same].flat[0]}, which {dtype} cannot hold")
    return stored


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise DecodeError(REASON, f"{name} is a {type(value).__name__}; its field is text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise DecodeError(REASON, f"{name} is not valid Unicode text") from None
    return str(value)


def _equal(stored: NDArray[Any], given: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether each number kept its value, compared exactly, as Python's numbers are."""
    pairs = zip(stored.reshape(-1).tolist(), given.reshape(-1).tolist(), strict=True)
    return np.array([a == b for a, b in pairs], np.bool_).reshape(given.shape)


def _named(array: NDArray[Any]) -> str:
    if array.dtype.kind in "US":
        return "text"
    return "None" if array.dtype == object and array.size == 1 else str(array.dtype)


def _shown(shape: tuple[int | None, ...]) -> str:
    return "(" + ", ".join("?" if n is None else str(n) for n in shape) + ("," if len(shape) == 1 else "") + ")"
