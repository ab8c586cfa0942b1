"""Divides a source into splits: draws a share of each class, or goes by the values of a field.

A draw is a pure function of names and a seed. The groups of each class are ranked by a hash of their names. The first
ones go to the named splits, in the given order; the rest stay in `train`. So counts are exact, and adding a group to a
class moves at most one other group per split.

Of a field, `split` alone says that each value is the name of a split. With `subject=train:1-20,val:21-40`, each split
has the values that are listed for it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.splits import is_split_name
from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources import Table
from rawpack_packer.sources.doubts import split_rule
from rawpack_packer.sources.folder import split_order
from rawpack_packer.sources.table.columns import Numbers, Texts
from rawpack_packer.text import listed, plain

VERSION = 1
"""The version of the rules of the draw."""
TRAIN = "train"
_AMOUNT = re.compile(r"\d{1,15}(\.\d{1,30})?%?|\.\d{1,30}%?")
"""Python writes 17 digits of 1 / 7, and more of smaller shares."""


class Draw(msgspec.Struct, frozen=True):
    """The result of a draw."""

    rows: Mapping[str, NDArray[np.int64]]
    """Split -> numbers of its samples, ascending; `train` first."""
    kept_whole: tuple[int, ...]
    """Labels of classes with a single group, which stays in train; -1 stands for samples without a class."""
    short: Mapping[str, tuple[int, ...]]
    """Split -> labels of other classes that have too few groups for what was asked."""
    by_class: bool
    """Whether labels were known before samples were read; otherwise all samples count as one class."""


def parse_holdout(texts: Iterable[str]) -> dict[str, str]:
    """Parse `val=0.1`, `val=0.1,test=0.1` or several of these: split -> share, or number from each class."""
    shares: dict[str, str] = {}
    for text in ",".join(texts).split(","):
        name, _, amount = (part.strip() for part in text.partition("="))
        if not name or not _AMOUNT.fullmatch(amount):
            raise UsageError(f"{opt.holdout(repr(text))}: must be NAME=SHARE or NAME=NUMBER, such as val=0.1 or val=50")
        if name == TRAIN or name in shares:
            what = f"{TRAIN} is what remains; name the others" if name == TRAIN else f"names {name!r} twice"
            raise UsageError(f"{opt.holdout(repr(text))}: {what}")
        shares[name] = amount
    if sum(share(amount) for amount in shares.values() if share(amount) < 1) >= 1:
        amounts = ",".join(f"{name}={amount}" for name, amount in shares.items())
        raise UsageError(f"{opt.holdout(amounts)}: nothing remains")
    return shares


def as_text(amount: float | str) -> str:
    """An amount as `parse_holdout` takes it: 0.00005, which Python writes as 5e-05."""
    return f"{Decimal(str(amount)):f}" if isinstance(amount, float) else str(amount)


def share(amount: str) -> Fraction:
    """A share below 1, or a number from 1 on. Raises UsageError."""
    value = Fraction(amount.rstrip("%")) / (100 if amount.endswith("%") else 1)
    if value <= 0 or (value >= 1 and (amount.endswith("%") or value.denominator != 1)):
        raise UsageError(
            f"{opt.holdout(amount)}: must be a share below 1, such as 0.1 or 10%, or a number of each class"
        )
    return value


def draw(source: Table, holdout: Mapping[str, str], seed: int, group_by: str | None = None) -> Draw:
    """Divide a source into splits. group_by: the field whose values are the groups; None asks the source. Raises
    UsageError where a split would get nothing, or there is no such field."""
    labels = source.labels
    names, of_sample = _groups(source) if group_by is None else _groups_by(source, group_by)
    firsts = np.full(len(names), len(source), np.int64)
    np.minimum.at(firsts, of_sample, np.arange(len(source)))
    # A group has the class of its first sample.
    classes = np.zeros(len(names), np.int64) if labels is None else labels[firsts]
    key = xxhash.xxh3_64_intdigest(f"rawpack holdout {VERSION} {seed}".encode())
    hashes = [xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogateescape"), key) for name in names]
    splits = [TRAIN, *holdout]
    taken, alone = np.zeros(len(names), np.int64), []
    short: dict[str, list[int]] = {}
    # What could not be read has no class, and is rejected in train.
    readable = ~np.isin(firsts, source.unread)
    for label in np.unique(classes[readable]).tolist():
        members = np.flatnonzero((classes == label) & readable)
        if len(members) == 1:
            alone.append(label)
        ranked = sorted(members.tolist(), key=lambda k: (hashes[k], names[k]))
        start = 0
        for k, (name, amount) in enumerate(holdout.items(), 1):
            wanted = _wanted(len(members), amount)
            # One group stays in train, at the expense of the last splits.
            count = min(wanted, len(members) - 1 - start)
            taken[ranked[start : start + count]] = k
            start += count
            if count < wanted and len(members) > 1:
                short.setdefault(name, []).append(label)
    of_split = taken[of_sample]
    rows = {name: np.flatnonzero(of_split == k) for k, name in enumerate(splits)}
    empty = [name for name, numbers in rows.items() if not len(numbers)]
    if empty:
        none = f"{empty[0]}={holdout[empty[0]]}"
        raise UsageError(
            f"{opt.holdout(none)} takes nothing: the largest class of {source.info.root} has "
            f"{np.bincount(np.unique(classes, return_inverse=True)[1]).max()} to choose from, and one stays in {TRAIN}"
        )
    too_few = {name: tuple(labels) for name, labels in short.items()}
    return Draw(rows, tuple(alone), too_few, labels is not None)


def _wanted(size: int, amount: str) -> int:
    """How many of `size` groups a split gets: rounded, half up."""
    value = share(amount)
    return int(value) if value >= 1 else int(value * size + Fraction(1, 2))


def _groups(source: Table) -> tuple[list[str], NDArray[np.int64]]:
    """The names of all groups, and the group of each sample."""
    numbers: dict[str, int] = {}
    of_sample = [numbers.setdefault(source.group(i), len(numbers)) for i in range(len(source))]
    return list(numbers), np.array(of_sample, np.int64)


def _groups_by(source: Table, column: str) -> tuple[list[str], NDArray[np.int64]]:
    """The groups of samples that have the same value of a field; a sample without one is a group of its own."""
    values, of_sample = _values(source, column, str(opt.group_by(repr(column))))
    names, numbers = [str(value) for value in values], of_sample.copy()
    for i in np.flatnonzero(np.array([value == "" for value in values])[of_sample]).tolist():
        numbers[i] = len(names)
        names.append(f"\0{source.key(i)}")
    used, numbers = np.unique(numbers, return_inverse=True)
    return [names[k] for k in used.tolist()], numbers.astype(np.int64)


_RANGE = re.compile(r"(-?\d{1,18})-(-?\d{1,18})")
_NUMBER = re.compile(r"-?\d{1,18}")
_TEXT_RANGE = re.compile(r"\D*\d+-\D*\d+")
"""What looks like a range of texts, as g03-g39."""
_SHOWN = 8
Value = int | str


class SplitBy(msgspec.Struct, frozen=True):
    """What `--split-by` asks for."""

    text: str
    """As it was written."""
    column: str
    values: dict[str, tuple[str, ...]] | None
    """Split -> its values, or ranges of them, "" for the empty one; None where each value is the name of a split."""


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
    for rule in rest.split(","):
        name, colon, words = (part.strip() for part in rule.partition(":"))
        parts = tuple(word.strip() for word in words.split("+"))
        if not name or not colon or not (all(parts) or parts == ("",)):
            raise UsageError(
                f"{opt.split_by(repr(text))}: {rule!r} must be SPLIT:VALUES, such as train:1-20 or val:21+23"
            )
        for word in parts:
            ends = _RANGE.fullmatch(word)
            if ends and int(ends[1]) > int(ends[2]):
                raise UsageError(f"{opt.split_by(repr(text))}: {word} is empty: write the lower number first")
        values[name] = (*values.get(name, ()), *parts)
    return SplitBy(text, column.strip(), values)


def divide(source: Table, by: SplitBy) -> dict[str, NDArray[np.int64]]:
    """The numbers of the samples of each split, ascending.

    Raises UsageError where there is no such column, or a split gets nothing; BadListingError with the first
    sample that is in no split or in several.
    """
    values, of_sample = _values(source, by.column, str(opt.split_by(repr(by.column))))
    splits = [_splits_of(value, by) for value in values]
    wrong = np.array([len(named) != 1 for named in splits])
    # What could not be read is rejected, in the first split.
    unread = np.zeros(len(source), bool)
    unread[source.unread] = True
    for i in np.flatnonzero(wrong[of_sample] & ~unread).tolist():
        value, named = values[of_sample[i]], splits[of_sample[i]]
        line = source.line(i)
        what = f"{by.column} is {value!r}, which is in {' and in '.join(map(plain, named)) or 'no split'}"
        ranges = [word for words in (by.values or {}).values() for word in words if _TEXT_RANGE.fullmatch(word)]
        if isinstance(value, str) and ranges:
            what += f"; {by.column} has texts, and ranges such as {ranges[0]} are of whole numbers only: name each text"
        if by.values is None:
            what = f"{by.column} is {value!r}, which cannot be the name of a split, which is that of a folder"
        if value == "":
            names = sorted(map(str, values), key=split_order)
            rule = split_rule(by.column, names) if by.values is None else f"{by.text},other:"
            cure = f"{opt.split_by(plain(shlex.quote(rule)))} makes a split of the samples without a value"
            what = f"{by.column} is empty: {cure if rule != by.column else 'give each sample a value'}"
        from rawpack_packer.sources.listing.lines import fault

        raise fault(source.info.root, line, 0, "", f"{what} ({opt.split_by})", file="" if line else source.key(i))
    names = list(by.values) if by.values is not None else sorted({named[0] for named in splits}, key=split_order)
    number = {name: k for k, name in enumerate(names)}
    split_of = np.array([number[named[0]] if named else 0 for named in splits])[of_sample]
    split_of[unread] = 0
    rows = {name: np.flatnonzero(split_of == k) for name, k in number.items()}
    empty = [name for name, samples in rows.items() if not len(samples)]
    if empty:
        raise UsageError(
            f"{opt.split_by(repr(by.text))}: {plain(empty[0])} gets no sample: {by.column} has the values "
            f"{listed([str(value) for value in sorted(values, key=str)], _SHOWN)}"
        )
    return rows


def _values(source: Table, name: str, typed: str) -> tuple[list[Value], NDArray[np.int64]]:
    """The values of a field that occur, and which of them each sample has. said: what the user typed."""
    column, kind = source.column(name), source.info.fields.get(name)
    measured = kind is not None and kind.dtype.startswith("float") and not kind.shape
    if column is None and not measured:
        every = [*source.info.fields, *source.apart]
        names = [name for name in every if source.column(name) is not None]
        cure = f"it has {listed(names, _SHOWN)}" if names else f"use a listing, or {opt.key_pattern}"
        raise UsageError(f"{typed}: {source.info.root} has no such column that is known now: {cure}")
    if isinstance(column, Texts):
        numbers: dict[str, int] = {}
        of_sample = [numbers.setdefault(column.value(i), len(numbers)) for i in range(len(column))]
        return list(numbers), np.array(of_sample, np.int64)
    if not isinstance(column, Numbers) or column.values.ndim != 1 or column.values.dtype.kind not in "iub":
        cure = f": declare {opt.fields(f'{name}:str')}" if measured else ""
        raise UsageError(f"{typed}: it contains neither texts nor whole numbers{cure}")
    unique, inverse = np.unique(column.values, return_inverse=True)
    return [_named(value, name, source) for value in unique.tolist()], inverse


def _named(value: Any, column: str, source: Table) -> Value:
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
