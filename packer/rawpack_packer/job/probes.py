"""Digests of a few samples of a dataset: they show a later run whether the dataset's code or data changed.

A dataset does not say what it reads, unlike files, whose sizes and times are noted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import xxhash

from rawpack.errors import DecodeError, PackError
from rawpack_packer.sources import Source
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.sources.optional import probes_of

_READ_AGAIN = 8
"""How often a sample that differs is read to see whether it differs each time: a flip is made half of the time."""


@dataclass(frozen=True)
class Compared:
    """What reading some samples again showed."""

    changed: str = ""
    """The key of a sample that the dataset returned otherwise to an earlier run; "" for none."""
    random: bool = False
    """Whether a sample differs each time that it is read, so that nothing can be said."""


def probed(source: Source) -> dict[str, str]:
    """Key -> digest of a few samples; empty for a source that knows the states of what it reads."""
    return {source.key(i): _digest(source, i) for i in probes_of(source).tolist()}


def compare(before: Mapping[str, str], source: Source) -> Compared:
    """Read the samples that an earlier run took digests of, as far as they are still those to take."""
    for i in probes_of(source).tolist() if before else []:
        key, digest = source.key(i), _digest(source, i)
        if before.get(key, digest) == digest:
            continue
        if any(_digest(source, i) != digest for _ in range(_READ_AGAIN)):
            return Compared(random=True)
        return Compared(changed=key)
    return Compared()


def _digest(source: Source, i: int) -> str:
    """xxh3_64 over the image and the fields of a sample, as the source returns them; over why it cannot be read."""
    digest = xxhash.xxh3_64()
    try:
        item = source[i]
    except DecodeError as error:
        return f"DecodeError {error.reason}"
    except PackError:
        return "PackError"
    for name, value in [("image", item.image), *sorted(item.fields.items())]:
        digest.update(name.encode("utf-8", "surrogatepass"))
        _add(digest, value)
    return digest.hexdigest()


def _add(digest: xxhash.xxh3_64, value: Value) -> None:
    """Add a value's kind, shape and bytes."""
    form, plain = (value.form, value.rows) if isinstance(value, Boxes) else (type(value).__name__, value)
    data = plain.encode("utf-8", "surrogatepass") if isinstance(plain, str) else plain
    array = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else np.asarray(data)
    digest.update(f"{form} {array.dtype.str} {array.shape} ".encode())
    digest.update(np.ascontiguousarray(array).tobytes())
