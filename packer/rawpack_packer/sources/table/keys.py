"""Keys of rows: values of a column, where each sample has one of its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xxhash

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.table.columns import Texts, texts_of
from rawpack_packer.text import plain


def unique_keys(
    values: Sequence[str | int], where: str, named: bool, notes: list[str] | None = None, called: str = "paths"
) -> Texts | None:
    """Values of a column as keys. where: the table, printable.

    Where one is empty or there twice, raises UsageError if the user named the column (`named`), and returns None
    otherwise: samples are numbered, as `notes` is told. called: what the values are.
    """
    keys = texts_of([*map(key_text, values)], where)
    if (repeated := repeated_key(keys)) is not None:
        first, row = repeated
        what = f"{plain(keys.value(row))!r}, as row {first} has"
    elif len(empty := np.flatnonzero(np.diff(keys.ends) == 0)):
        row, what = int(empty[0]), "no text"
    else:
        return keys
    if not named:
        if notes is not None:
            notes.append(numbered_since(f"row {row} has {what}", called))
        return None
    raise UsageError(f"{where}: row {row} has {what}: each sample needs a key of its own; {opt.key_column} names them")


def key_text(value: object) -> str:
    """A value as a key. Bytes are UTF-8; where they are not, halves of surrogate pairs stand for them, which no key may
    have."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def numbered_since(why: str, called: str = "paths") -> str:
    """What the summary says where values cannot be keys."""
    return f"keys are the numbers of rows, not the {called}: {why}"


def repeated_key(keys: Texts) -> tuple[int, int] | None:
    """The rows of the first key that occurs twice: by hashes, so that a million of them need no set of texts."""
    hashes = np.array([xxhash.xxh3_64_intdigest(keys.raw(i)) for i in range(len(keys))], np.uint64)
    found, counts = np.unique(hashes, return_counts=True)
    firsts = dict[bytes, int]()
    for row in np.flatnonzero(np.isin(hashes, found[counts > 1])).tolist():
        first = firsts.setdefault(keys.raw(row), row)
        if first != row:
            return first, row
    return None
