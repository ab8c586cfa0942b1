"""Labels as the numbers of classes. Every source that finds texts or numbers as labels asks here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.text import plain

Rows = NDArray[np.int64]
LABEL = "label"
UNLABELLED, EMPTY = "unlabelled", "empty_classes"
"""Entries of `SourceInfo.counts`: samples with label -1, and classes without samples."""
LABEL_KIND = FieldKind("int64")
NO_COUNTS = {UNLABELLED: 0, EMPTY: 0}
Classes = str | os.PathLike[str] | Sequence[str]
"""Names of classes in the order of their numbers, or a file with one per line."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The label of each sample."""

    numbers: Rows
    """(n,): -1 without a class."""
    names: tuple[str, ...] | None
    """Of the classes; None where labels are numbers without names."""

    @property
    def empty(self) -> tuple[str, ...]:
        """The classes without samples."""
        return empty_classes(self.names, self.numbers)

    @property
    def counts(self) -> dict[str, int]:
        """Entries of `SourceInfo.counts`."""
        return {UNLABELLED: int((self.numbers == -1).sum()), EMPTY: len(self.empty)}


def number_labels(
    values: Sequence[str | int | None] | NDArray[Any],
    classes: Classes | None = None,
    *,
    where: str,
    known: Sequence[str] | None = None,
    row_name: Callable[[int], str] = lambda row: f"row {row}",
) -> Labels:
    """values: (n,) texts, which are names of classes, or whole numbers; None and "" are no class. classes: the names of
    all classes, as a user gives them. known: names that the source has for numbers. row_name: what row i is called in
    messages. where: the source, printable.

    Texts without `classes` get the numbers of their sorted names. Raises UsageError for a text or number that is none
    of the classes, for numbers beyond 64 bits, and where some labels are texts and others numbers.
    """
    names = None if classes is None else classes_of(classes)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return _checked(values, names or known, where, row_name)
    texts = [i for i, value in enumerate(values) if isinstance(value, str) and value]
    if not texts:
        numbers = [-1 if value is None or isinstance(value, str) else value for value in values]
        return _checked(np.array(numbers, object), names or known, where, row_name)
    other = next((i for i, value in enumerate(values) if value is not None and not isinstance(value, str)), None)
    if other is not None:
        raise UsageError(
            f"{where}: the label of {row_name(texts[0])} is {values[texts[0]]!r}, and that of {row_name(other)} is "
            f"{values[other]}: labels are either whole numbers or names"
        )
    names = names or tuple(sorted({str(value) for value in values if isinstance(value, str) and value}))
    number_of = {name: number for number, name in enumerate(names)}
    strange = next((i for i in texts if values[i] not in number_of), None)
    if strange is not None:
        raise _none_of(repr(values[strange]), names, where, row_name(strange))
    numbers = [number_of[value] if isinstance(value, str) and value else -1 for value in values]
    return Labels(np.array(numbers, np.int64), names)


def classes_of(classes: Classes) -> tuple[str, ...]:
    """The names of classes in the order of their numbers. Raises UsageError."""
    if isinstance(classes, str | os.PathLike):
        where = f"{plain(os.fspath(classes))}, the file of class names,"
        with reading(where):
            data = Path(classes).read_bytes()
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"{where} is not UTF-8 at byte {error.start}") from None
        names = tuple(line.strip() for line in text.rstrip().splitlines())
    else:
        names, where = tuple(str(name) for name in classes), "classes="
    known = set[str]()
    for number, name in enumerate(names):
        if not name or name in known:
            what = f"{name!r} again" if name else "no name"
            raise UsageError(f"{where} line {number + 1} has {what}: write one name per line, each only once")
        known.add(name)
    if not names:
        raise UsageError(f"{where} has no class: write one name per line")
    return names


def named_file(classes: Classes | None) -> str | os.PathLike[str] | None:
    """The file that classes are in, as `SourceInfo.options` has it; None where they are names."""
    return classes if isinstance(classes, str | os.PathLike) else None


def no_classes(numbers: NDArray[Any], count: int) -> NDArray[np.bool_]:
    """Which numbers belong to none of `count` classes. -1, for no class, is fine."""
    some: NDArray[np.bool_] = (numbers >= -1) & (numbers < count) & (numbers == np.floor(numbers))
    return ~some


def empty_classes(classes: Iterable[str] | None, numbers: NDArray[Any]) -> tuple[str, ...]:
    """The classes whose number does not occur."""
    used = set(np.unique(numbers).tolist())
    return tuple(name for number, name in enumerate(classes or ()) if number not in used)


def _checked(numbers: NDArray[Any], names: Sequence[str] | None, where: str, row_name: Callable[[int], str]) -> Labels:
    # Python's numbers have no bounds, and numpy's uint64 ends beyond int64.
    wrong: list[int] = []
    if numbers.dtype in (object, np.uint64):
        wrong = [i for i, number in enumerate(numbers.tolist()) if not -(1 << 63) <= number < 1 << 63]
    if not wrong and names is not None:
        wrong = np.flatnonzero(no_classes(numbers.astype(np.int64), len(names))).tolist()
    if wrong:
        raise _none_of(str(numbers[wrong[0]]), names, where, row_name(wrong[0]))
    return Labels(numbers.astype(np.int64), None if names is None else tuple(names))


def _none_of(value: str, names: Sequence[str] | None, where: str, row: str) -> UsageError:
    what = "labels are int64" if names is None else f"there are {len(names)} classes, counted from 0"
    if names is not None and value.startswith(("'", '"')):
        what = f"it is none of the {len(names)} classes"
    return UsageError(f"{where}: the label of {row} is {plain(value)}; {what}")
