"""Columns as they are read, block after block: what one holds is seen from its first value, or said.

A column keeps its kind: what comes later and is of another is a fault. Whole numbers and floats together are floats;
arrays that differ in their first length are ragged; an empty value is NaN among floats, an array of length 0 among
arrays, the empty text among texts, and elsewhere a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.listing.cells import of_cell
from rawpack_packer.sources.listing.numbers import NumberParser
from rawpack_packer.sources.listing.place import CellPosition, ColumnParser, Lines, shown
from rawpack_packer.sources.listing.table import Column, Numbers, Texts, texts_of


class Growing:
    """A column whose kind is found with its first value, where it was not said."""

    def __init__(
        self,
        place: CellPosition,
        declared: FieldKind | None,
        texts: Callable[[CellPosition], ColumnParser],
        single: Callable[[CellPosition, FieldKind | None], ColumnParser],
    ) -> None:
        """texts, single: make what takes the texts, and the single numbers, of a column that is seen to hold such."""
        self._place, self._texts, self._single = place, texts, single
        whole = declared is not None and not declared.shape and declared.dtype[0] in "iu"
        self._parser: ColumnParser | None = single(place, declared) if whole else _declared_parser(place, declared)
        self._empty: list[tuple[Sequence[Any], Lines]] = []

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        if self._parser is None:
            first = next((value for value in values if not self._place.empty(value)), None)
            if first is None:
                self._empty.append((values, lines))
                return
            value = of_cell(first) if self._place.cells else first
            if isinstance(value, str):
                self._parser = self._texts(self._place)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self._parser = self._single(self._place, None)
            else:
                self._parser = NumberParser(self._place, None)
            # Together: what takes numbers finds in the first ones whether they are single.
            values = [value for some, _ in [*self._empty, (values, lines)] for value in some]
            lines = np.concatenate([*(some for _, some in self._empty), lines])
            self._empty = []
        self._parser.add(values, lines)

    def finish(self) -> tuple[FieldKind, Column]:
        if self._parser is None:
            self._parser = TextParser(self._place)
            for before in self._empty:
                self._parser.add(*before)
        return self._parser.finish()


def _declared_parser(place: CellPosition, declared: FieldKind | None) -> ColumnParser | None:
    if declared is None:
        return None
    return TextParser(place) if declared.dtype == "str" else NumberParser(place, declared)


class TextParser:
    """Texts as they are."""

    def __init__(self, place: CellPosition) -> None:
        self._place = place
        self._blocks: list[Texts] = []

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        texts = [
            value if isinstance(value, str) else self._other(value, line)
            for value, line in zip(values, lines, strict=True)
        ]
        try:
            self._blocks.append(texts_of(texts))
        except UnicodeEncodeError:
            for text, line in zip(texts, lines, strict=True):
                if any("\ud800" <= c <= "\udfff" for c in text):
                    self._place.fault(line, "half of a surrogate pair is not text that UTF-8 can hold")

    def finish(self) -> tuple[FieldKind, Column]:
        return FieldKind("str"), joined(self._blocks)

    def _other(self, value: Any, line: int) -> str:
        if value is not None:
            self._place.fault(line, f"{shown(value)} is not text: quote it")
        return ""


class ClassParser:
    """Labels that are names of classes: their numbers, by sorted names or by those that are given."""

    def __init__(self, place: CellPosition, names: Sequence[str] | None) -> None:
        self._place, self._given = place, names
        self._codes: dict[str, int] = {name: code for code, name in enumerate(names or ())}
        self._blocks: list[NDArray[np.int64]] = []
        self.unlabelled = 0

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        codes = np.empty(len(values), np.int64)
        for i, value in enumerate(values):
            if not isinstance(value, str) and value is not None:
                self._place.fault(lines[i], f"{shown(value)} is not text, as those before are: quote it")
            elif self._place.empty(value):
                codes[i] = -1
                self.unlabelled += 1
                continue
            code = self._codes.get(value) if isinstance(value, str) else 0
            if code is None:
                code = self._new(str(value), lines[i])
            codes[i] = code
        self._blocks.append(codes)

    def finish(self) -> tuple[FieldKind, Column]:
        codes = np.concatenate(self._blocks)
        if self._given is None:
            # Numbers were given as names came; one more at the end, so that -1 stays.
            sorted_names = {name: number for number, name in enumerate(self.classes)}
            codes = np.array([*(sorted_names[name] for name in self._codes), -1], np.int64)[codes]
        return FieldKind("int64"), Numbers(codes)

    @property
    def classes(self) -> tuple[str, ...]:
        """In the order of their numbers."""
        return tuple(sorted(self._codes)) if self._given is None else tuple(self._given)

    def _new(self, name: str, line: int) -> int:
        if self._given is not None:
            self._place.fault(line, f"{shown(name)} is none of the {len(self._given)} classes")
            return 0
        if any("\ud800" <= c <= "\udfff" for c in name):
            self._place.fault(line, "half of a surrogate pair is not text that UTF-8 can hold")
        return self._codes.setdefault(name, len(self._codes))


class ClassNumberParser:
    """Labels that are the numbers of classes: int64, -1 where there is none; also where all are whole and written as
    floats, as some tools write them beside an empty one. Other floats are measures, and NaN where they are empty."""

    def __init__(self, place: CellPosition, declared: FieldKind | None) -> None:
        self._place, self._declared, self._numbers = place, declared, NumberParser(place, declared)
        self._none: Any = "-1" if place.cells else -1
        self._empty: list[NDArray[np.bool_]] = []

    @property
    def unlabelled(self) -> int:
        return sum(int(empty.sum()) for empty in self._empty)

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        empty = np.array([self._place.empty(value) for value in values], np.bool_)
        self._empty.append(empty)
        self._numbers.add([self._none if no else value for value, no in zip(values, empty, strict=True)], lines)

    def finish(self) -> tuple[FieldKind, Column]:
        kind, column = self._numbers.finish()
        if self._declared is not None or kind != FieldKind("float64") or not isinstance(column, Numbers):
            return kind, column
        values = column.values
        if np.array_equal(values, np.rint(values)) and (np.abs(values) < 1 << 53).all():
            return FieldKind("int64"), Numbers(values.astype(np.int64))
        empty = np.concatenate(self._empty)
        self._empty = []
        return kind, Numbers(np.where(empty, np.nan, values))


def joined(blocks: Sequence[Texts]) -> Texts:
    """Texts one after another."""
    starts = np.cumsum([0, *(len(block.data) for block in blocks)])
    ends = [block.ends[1:] + start for block, start in zip(blocks, starts[:-1], strict=True)]
    return Texts(b"".join(block.data for block in blocks), np.concatenate([np.zeros(1, np.int64), *ends]))
