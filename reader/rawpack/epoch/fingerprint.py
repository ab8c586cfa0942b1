"""Whether two calls asked for the same: a digest of options, steps and functions, and a reference to none of them."""

from __future__ import annotations

import dataclasses
import functools
import re
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xxhash

from rawpack.transforms.step import BatchStep, Step

_ADDRESS = re.compile(r" at 0x[0-9a-f]+", re.IGNORECASE)
_MOST_BYTES = 1 << 20
"""Of a larger array, this many count."""
_DEEPEST = 12
"""What is nested deeper does not count."""


def fingerprint(value: object) -> str:
    """The same for values that are written the same way.

    Steps count by their settings, functions by their name and code: a lambda in a loop is made anew in each round, and
    is still the same one. Other objects count by what `repr` says.
    """
    digest = xxhash.xxh3_128()
    for part in _parts(value, 0):
        digest.update(part)
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(value: Any, depth: int) -> Iterator[bytes]:
    kind = type(value)
    yield f"{kind.__module__}.{kind.__qualname__}".encode()
    if depth > _DEEPEST:
        return
    inside: list[Any] = []
    if isinstance(value, np.ndarray):
        inside = [value.shape, value.dtype.str]
        if not value.dtype.hasobject:
            yield xxhash.xxh3_128_digest(np.ascontiguousarray(value.reshape(-1)[: _MOST_BYTES // value.itemsize]).data)
    elif isinstance(value, Mapping):
        inside = [part for item in value.items() for part in item]
    elif isinstance(value, tuple | list):
        inside = list(value)
    elif isinstance(value, functools.partial):
        inside = [value.func, value.args, value.keywords]
    elif isinstance(value, Step | BatchStep):
        inside = [vars(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        inside = [getattr(value, one.name) for one in dataclasses.fields(value)]
    elif hasattr(value, "__qualname__"):
        # Functions, methods and classes.
        yield f"{value.__module__}.{value.__qualname__}".encode()
        inside = [getattr(value, "__code__", None)]
    elif isinstance(value, types.CodeType):
        inside = [value.co_code, value.co_names, value.co_consts]
    else:
        yield _shown(value)
    for one in inside:
        yield from _parts(one, depth + 1)


def _shown(value: object) -> bytes:
    try:
        return _ADDRESS.sub("", repr(value)).encode(errors="replace")
    except Exception:
        return b""
