"""Divides a source into splits by the values of one of its fields.

`split` alone: each value is the name of a split. `subject=train:1-20,val:21-40`: each split has the values that are
listed for it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.splits import is_split_name
from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources import Source
from rawpack_packer.sources.listing.faults import fault
from rawpack_packer.sources.optional import column_of, lines_of, unread_of
from rawpack_packer.sources.splits_on_disk import split_order
from rawpack_packer.sources.table.columns import Numbers, Texts
from rawpack_packer.text import listed, plain

_RANGE = re.compile(r"(-?\d{1,18})-(-?\d{1,18})")
_NUMBER = re.compile(r"-?\d{1,18}")
_SHOWN = 8
Value = int | str


@dataclass(frozen=True)
class SplitBy:
    """What `--split-by` asks for."""

    text: str
    """As it was written."""
    column: str
    values: dict[str, tuple[str, ...]] | None
    """Split -> its values, or ranges of them; None where each value is the name of a split."""


def parse_split_by(text: str) -> SplitBy:
    """Parse `COLUMN` or `COLUMN=SPLIT:VALUES,...`. Raises UsageError."""
    column, equals, rest = text.partition("=") if isinstance(text, str) else ("", "", "")
    if not column.strip():
        raise UsageError(
            f"{opt.split_by(repr(text))}: write COLUMN or COLUMN=SPLIT:VALUES, as subject=train:1-20,val:21+23"
        )
    if not equals:
        return SplitBy(text, column.strip(), None)
    values: dict[str, tuple[str, ...]] = {}
    for one in rest.split(","):
        name, colon, words = (part.strip() for part in one.partition(":"))
        found = tuple(word.strip() for word in words.split("+"))
        if not name or not colon or not all(found):
            raise UsageError(
                f"{opt.split_by(repr(text))}: {one!r} must be SPLIT:VALUES, such as train:1-20 or val:21+23"
            )
        for word in found:
            ends = _RANGE.fullmatch(word)
            if ends and int(ends[1]) > int(ends[2]):
                raise UsageError(f"{opt.split_by(repr(text))}: {word} is empty: write the lower number first")
        values[name] = (*values.get(name, ()), *found)
    return SplitBy(text, column.strip(), values)


def divide(source: Source, by: SplitBy) -> dict[str, NDArray[np.int64]]:
    """The numbers of the samples of each split, ascending.

    Raises UsageError where there is no such column, or a split gets nothing; BadListingError with the first
    sample that is in no split or in several.
    """
    values, of_sample = _values(source, by)
    splits = [_splits_of(value, by) for value in values]
    wrong = np.array([len(found) != 1 for found in splits])
    # What could not be read is rejected, in the first split.
    unread = np.zeros(len(source), bool)
    unread[unread_of(source)] = True
    for i in np.flatnonzero(wrong[of_sample] & ~unread).tolist():
        value, found = values[of_sample[i]], splits[of_sample[i]]
        line = lines_of(source)(i)
        what = f"{by.column} is {value!r}, which is in {' and in '.join(map(plain, found)) or 'no split'}"
        if by.values is None:
            what = f"{by.column} is {value!r}, which cannot be the name of a split, which is that of a folder"
        raise fault(source.info.root, line, 0, "", f"{what} ({opt.split_by})", file="" if line else source.key(i))
    names = list(by.values) if by.values is not None else sorted({found[0] for found in splits}, key=split_order)
    number = {name: k for k, name in enumerate(names)}
    split_of = np.array([number[found[0]] if found else 0 for found in splits])[of_sample]
    split_of[unread] = 0
    rows = {name: np.flatnonzero(split_of == k) for name, k in number.items()}
    empty = [name for name, found in rows.items() if not len(found)]
    if empty:
        raise UsageError(
            f"{opt.split_by(repr(by.text))}: {plain(empty[0])} gets no sample: {by.column} has the values "
            f"{listed([str(value) for value in sorted(values, key=str)], _SHOWN)}"
        )
    return rows


def _values(source: Source, by: SplitBy) -> tuple[list[Value], NDArray[np.int64]]:
    """The values that occur, and which of them each sample has."""
    column = column_of(source, by.column)
    if column is None:
        names = [name for name in source.info.fields if column_of(source, name) is not None]
        cure = f"it has {listed(names, _SHOWN)}" if names else f"use a listing, or {opt.key_pattern}"
        raise UsageError(
            f"{opt.split_by(repr(by.column))}: {source.info.root} has no such column that is known now: {cure}"
        )
    if isinstance(column, Texts):
        numbers: dict[str, int] = {}
        of_sample = [numbers.setdefault(column.value(i), len(numbers)) for i in range(len(column))]
        return list(numbers), np.array(of_sample, np.int64)
    if not isinstance(column, Numbers) or column.values.ndim != 1 or column.values.dtype.kind not in "iub":
        raise UsageError(f"{opt.split_by(repr(by.column))}: it holds neither texts nor whole numbers")
    found, inverse = np.unique(column.values, return_inverse=True)
    return [_named(value, by.column, source) for value in found.tolist()], inverse


def _named(value: Any, column: str, source: Source) -> Value:
    """A class by its name, true and false as they are written in a listing, other numbers as they are."""
    if column == "label" and source.info.classes is not None:
        return source.info.classes[value] if 0 <= value < len(source.info.classes) else ""
    return str(value).lower() if isinstance(value, bool) else int(value)


def _splits_of(value: Value, by: SplitBy) -> list[str]:
    """The splits that have a value."""
    if by.values is None:
        return [str(value)] if is_split_name(str(value)) else []
    return [name for name, words in by.values.items() if any(_is_in(value, word) for word in words)]


def _is_in(value: Value, word: str) -> bool:
    if isinstance(value, str):
        return value == word
    if ends := _RANGE.fullmatch(word):
        return int(ends[1]) <= value <= int(ends[2])
    return bool(_NUMBER.fullmatch(word)) and int(word) == value
