"""Parses the columns of a listing, block after block, by a declared type or one inferred from the first value.

A later value of another kind is a fault. Whole numbers and floats together are floats. Arrays that differ in their
first length are ragged. An empty value is NaN among floats, an array of length 0 among arrays, the empty text among
texts, and a fault elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.sources.fields import FieldKind, as_text
from rawpack_packer.sources.listing.faults import CellPosition, Lines, shown
from rawpack_packer.sources.listing.lines import of_cell
from rawpack_packer.sources.listing.numbers import NumberParser, is_small, spread
from rawpack_packer.sources.table.columns import Column, Numbers, Texts, joined, texts_of
from rawpack_packer.sources.video import seconds


class ColumnParser(Protocol):
    """Parses the values of one column."""

    def add(self, values: Sequence[Any], lines: Lines, /) -> None:
        """Take more values; raises BadListingError for one that does not belong in the column."""

    def finish(self) -> tuple[FieldKind, Column]:
        """What all of them are. Some faults are found only here."""


def parser_for(place: CellPosition, declared: FieldKind | None, classes: Sequence[str] | None) -> ColumnParser:
    """A parser for a column that does not hold paths. classes: the names that labels may have, if they are given."""
    if declared is None:
        return InferringParser(place, classes)
    if declared.dtype == "str":
        return TextParser(place, declared=True)
    whole = not declared.shape and declared.dtype[0] in "iu"
    return ClassNumberParser(place, declared) if whole and place.name == "label" else NumberParser(place, declared)


class InferringParser:
    """Leaves a column to the parser that suits its first value."""

    def __init__(self, place: CellPosition, classes: Sequence[str] | None) -> None:
        self._place, self._classes = place, classes
        self.chosen: ColumnParser | None = None
        self._blocks: list[tuple[Sequence[Any], Lines]] = []
        """Those before the first value."""

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        self._blocks.append((values, lines))
        if self.chosen is None:
            first = next((value for value in values if not self._place.empty(value)), None)
            if first is None:
                return
            self.chosen = self._parser_of(of_cell(first) if self._place.cells else first)
        for block in self._blocks:
            self.chosen.add(*block)
        self._blocks = []

    def finish(self) -> tuple[FieldKind, Column]:
        if self.chosen is None:
            self.chosen = TextParser(self._place)
            for block in self._blocks:
                self.chosen.add(*block)
        return self.chosen.finish()

    def _parser_of(self, first: Any) -> ColumnParser:
        label = self._place.name == "label"
        if isinstance(first, str):
            return ClassParser(self._place, self._classes) if label else TextParser(self._place)
        number = isinstance(first, int | float) and not isinstance(first, bool)
        return ClassNumberParser(self._place, None) if label and number else NumberParser(self._place, None)


class TextParser:
    """Keeps texts as they are; where texts were declared, all other values of JSON as JSON text."""

    def __init__(self, place: CellPosition, *, declared: bool = False) -> None:
        self._place, self._declared = place, declared
        self._blocks: list[Texts] = []

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        if self._declared:
            self._blocks.append(texts_of([as_text(value) for value in values]))
        else:
            self._blocks.append(texts_of(_texts_in(values, lines, self._place, f", or {self._place.keep_texts}")))

    def finish(self) -> tuple[FieldKind, Texts]:
        return FieldKind("str"), joined(self._blocks)


class KeyParser(TextParser):
    """Takes the keys of samples: texts, or whole numbers as they are written."""

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        texts = [str(value) if type(value) is int else value for value in values]
        for text, line in zip(texts, lines, strict=True):
            if text is None or text == "":
                raise self._place.fault(line, "is empty: each sample needs a key")
        super().add(texts, lines)


class TimeParser:
    """Takes times of videos: seconds, or 0:01:30."""

    def __init__(self, place: CellPosition) -> None:
        self._place = place
        self.values: list[Fraction | None] = []
        """None where there is none."""

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        for value, line in zip(values, lines, strict=True):
            time = None
            try:
                if not self._place.empty(value):
                    time = seconds(lambda text: text, str(value))
            except UsageError as error:
                raise self._place.fault(line, str(error).rpartition(": ")[2] + f", not {shown(value)}") from None
            self.values.append(time)

    def finish(self) -> tuple[FieldKind, Numbers]:
        times = [np.nan if time is None else float(time) for time in self.values]
        return FieldKind("float64"), Numbers(np.array(times, np.float64))


class ClassParser:
    """Turns labels that are class names into numbers: by the given names, or by those that occur, sorted."""

    def __init__(self, place: CellPosition, names: Sequence[str] | None) -> None:
        self._place, self._given = place, names
        self._codes: dict[str, int] = {name: code for code, name in enumerate(names or ())}
        self._blocks: list[NDArray[np.int64]] = []
        self.unlabelled = 0

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        texts = _texts_in(values, lines, self._place)
        for text in set(texts) - self._codes.keys():
            if self._place.empty(text):
                self._codes[text] = -1
            elif self._given is None:
                self._codes[text] = len(self._codes)
            else:
                what = f"{shown(text)} is none of the {len(self._given)} classes"
                raise self._place.fault(lines[texts.index(text)], what)
        codes = np.array([self._codes.get(text, -1) for text in texts], np.int64)
        self.unlabelled += int((codes < 0).sum())
        self._blocks.append(codes)

    def finish(self) -> tuple[FieldKind, Column]:
        codes = np.concatenate(self._blocks)
        if self._given is None:
            # Until now, names were numbered as they came. No class is -1 and so takes the last place, which stays -1.
            number_of = np.full(len(self._codes) + 1, -1)
            number_of[[self._codes[name] for name in self.classes]] = np.arange(len(self.classes))
            codes = number_of[codes]
        return FieldKind("int64"), Numbers(codes)

    @property
    def classes(self) -> tuple[str, ...]:
        """In the order of their numbers."""
        if self._given is not None:
            return tuple(self._given)
        return tuple(sorted(name for name, code in self._codes.items() if code >= 0))


class ClassNumberParser(NumberParser):
    """Takes labels that are class numbers: int64, -1 where there is none.

    Floats are class numbers too if all of them are whole: some tools write 2 as 2.0 in a column with empty values.
    Other floats are measurements, and NaN where empty.
    """

    unlabelled = 0

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        super().add(values if self._place.cells else [None if value == "" else value for value in values], lines)

    def _finish_single(self, values: NDArray[Any], given: NDArray[np.bool_], lines: Lines) -> tuple[FieldKind, Column]:
        if self._declared is None and is_small(values).all() and np.array_equal(values, np.rint(values)):
            values = values.astype(np.int64)
        if values.dtype.kind != "i":
            return super()._finish_single(values, given, lines)
        self.unlabelled = int((~given).sum())
        return self._declared or FieldKind("int64"), Numbers(spread(values, given, -1))


def _texts_in(values: Sequence[Any], lines: Lines, place: CellPosition, cure: str = "") -> list[str]:
    """The values, which must be texts; None is the empty one. cure: another one than to quote what is none."""
    for value, line in zip(values, lines, strict=True):
        if value is not None and not isinstance(value, str):
            raise place.fault(line, f"{shown(value)} is not text: quote it{cure}")
    return [value if isinstance(value, str) else "" for value in values]
