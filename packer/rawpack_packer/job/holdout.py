"""Chooses the samples that are held out of a source for other splits: a pure function of their names and a seed.

The groups of each class are ranked by a hash of their names. The first ones go to the named splits, in the given order;
the rest stay in `train`. So counts are exact, and adding a group to a class moves at most one other group per split.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources import Source
from rawpack_packer.sources.optional import group_of, labels_of, unread_of

VERSION = 1
"""Of the rules of the draw."""
TRAIN = "train"
_AMOUNT = re.compile(r"\d{1,15}(\.\d{1,15})?%?|\.\d{1,15}%?")


@dataclass(frozen=True)
class Draw:
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
    found: dict[str, str] = {}
    for text in ",".join(texts).split(","):
        name, _, amount = (part.strip() for part in text.partition("="))
        if not name or not _AMOUNT.fullmatch(amount):
            raise UsageError(f"{opt.holdout(repr(text))}: must be NAME=SHARE or NAME=NUMBER, such as val=0.1 or val=50")
        if name == TRAIN or name in found:
            what = f"{TRAIN} is what remains; name the others" if name == TRAIN else f"names {name!r} twice"
            raise UsageError(f"{opt.holdout(repr(text))}: {what}")
        found[name] = amount
    if sum(share(amount) for amount in found.values() if share(amount) < 1) >= 1:
        raise UsageError(
            f"{opt.holdout} {','.join(f'{name}={amount}' for name, amount in found.items())}: nothing remains"
        )
    return found


def share(amount: str) -> Fraction:
    """A share below 1, or a number from 1 on. Raises UsageError."""
    value = Fraction(amount.rstrip("%")) / (100 if amount.endswith("%") else 1)
    if value <= 0 or (value >= 1 and (amount.endswith("%") or value.denominator != 1)):
        raise UsageError(
            f"{opt.holdout(amount)}: must be a share below 1, such as 0.1 or 10%, or a number of each class"
        )
    return value


def draw(source: Source, holdout: Mapping[str, str], seed: int) -> Draw:
    """Divide a source into splits. Raises UsageError where a split would get nothing."""
    labels = labels_of(source)
    names, of_sample = _groups(source)
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
    found = ~np.isin(firsts, unread_of(source))
    for label in np.unique(classes[found]).tolist():
        members = np.flatnonzero((classes == label) & found)
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
    empty = [name for name, found in rows.items() if not len(found)]
    if empty:
        raise UsageError(
            f"{opt.holdout(empty[0])}={holdout[empty[0]]} takes nothing: the largest class of {source.info.root} has "
            f"{np.bincount(np.unique(classes, return_inverse=True)[1]).max()} to choose from, and one stays in {TRAIN}"
        )
    too_few = {name: tuple(labels) for name, labels in short.items()}
    return Draw(rows, tuple(alone), too_few, labels is not None)


def _wanted(size: int, amount: str) -> int:
    """How many of `size` groups a split gets: rounded, half up."""
    value = share(amount)
    return int(value) if value >= 1 else int(value * size + Fraction(1, 2))


def _groups(source: Source) -> tuple[list[str], NDArray[np.int64]]:
    """The names of all groups, and the group of each sample."""
    numbers: dict[str, int] = {}
    of_sample = [numbers.setdefault(group_of(source, i), len(numbers)) for i in range(len(source))]
    return list(numbers), np.array(of_sample, np.int64)
