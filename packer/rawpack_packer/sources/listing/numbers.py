"""Columns of numbers, one each or arrays of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.listing.cells import Beyond, of_cell
from rawpack_packer.sources.listing.place import CellPosition, Lines, shown
from rawpack_packer.sources.listing.table import Column, Numbers, RaggedColumn


class NumberParser:
    """Numbers, one each or arrays of them."""

    def __init__(self, place: CellPosition, declared: FieldKind | None) -> None:
        self._place, self._declared = place, declared
        self._single: bool | None = None if declared is None else not declared.shape
        """Whether values are numbers, and not arrays."""
        self._truth: bool | None = None if declared is None else False
        """Whether they are true and false; None before the first one."""
        self._axes: tuple[int, ...] | None = None
        """Of arrays, all but the first."""
        if declared is not None and declared.shape:
            self._axes = tuple(n or 0 for n in declared.shape[1:])
        self._float = np.dtype(
            declared.dtype if declared is not None and np.dtype(declared.dtype).kind == "f" else np.float64
        )
        """What whole numbers become where floats come too."""
        self._exact = 2 ** (int(np.finfo(self._float).nmant) + 1)
        """Up to here it holds any of them."""
        self._blocks: list[NDArray[Any]] = []
        self._lines: list[Lines] = []
        self._lengths: list[NDArray[np.int64]] = []
        self._empty: list[NDArray[np.bool_]] = []

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        given = [of_cell(value) for value in values] if self._place.cells else list(values)
        if self._single is None:
            first = next(value for value in given if value is not None)
            self._single = not isinstance(first, list)
            self._truth = isinstance(first, bool) if self._single else None
        self._lines.append(lines)
        if self._single:
            self._add_singles(given, values, lines)
        else:
            self._add_arrays(given, values, lines)

    def finish(self) -> tuple[FieldKind, Column]:
        lines = np.concatenate(self._lines) if self._lines else np.empty(0, np.int64)
        empty = np.concatenate(self._empty) if self._empty else np.empty(0, np.bool_)
        each = self._lines if self._single else self._lines_of_numbers()
        self._blocks = self._unsigned(self._blocks, each)
        values = np.concatenate(self._blocks) if self._blocks else np.empty(0)
        self._check_wide(values, each)
        if self._single:
            return self._finish_singles(values, lines, empty)
        return self._finish_arrays(values, lines, empty, np.concatenate(self._lengths))

    def _add_singles(self, given: list[Any], raw: Sequence[Any], lines: Lines) -> None:
        kinds = set(map(type, given))
        empty = np.zeros(len(given), np.bool_)
        if not (kinds == {bool} and (self._truth or self._takes_bool)) and not kinds <= {int, float}:
            for i, value in enumerate(given):
                if value is None:
                    empty[i], given[i] = True, 0
                elif isinstance(value, bool):
                    if not (self._truth or self._takes_bool):
                        self._wrong(raw[i], lines[i])
                elif not isinstance(value, int | float):
                    if isinstance(value, Beyond):
                        self._beyond(raw[i], lines[i])
                    else:
                        self._wrong(raw[i], lines[i])
                    given[i] = 0
        if self._truth and kinds & {int, float}:
            for i, value in enumerate(given):
                if not isinstance(value, bool) and not empty[i]:
                    self._place.fault(lines[i], f"{shown(raw[i])} is neither true nor false, as those before are")
        self._blocks.append(self._plain(given, lines))
        self._empty.append(empty)

    def _lines_of_numbers(self) -> list[Lines]:
        """Of each block of arrays, the line of each first axis' entry; a block is of some rows that have any."""
        pairs = zip(self._lines, self._lengths, strict=True)
        return [np.repeat(lines, lengths) for lines, lengths in pairs if lengths.any()]

    @property
    def _unsigned_said(self) -> bool:
        return self._declared is not None and np.dtype(self._declared.dtype).kind == "u"

    def _below(self, value: int, line: int) -> None:
        assert self._declared is not None
        self._place.fault(line, f"{value} is nothing that {self._declared.dtype} can hold")

    @property
    def _to_floats(self) -> bool:
        return self._declared is not None and np.dtype(self._declared.dtype).kind == "f"

    def _unsigned(self, arrays: list[NDArray[Any]], each: Sequence[Lines]) -> list[NDArray[Any]]:
        """The same, where some are uint64 as they hold numbers from 2^63 on: the signed ones so as well, which may hold
        nothing below 0 then. Together with int64, numpy would make floats of them. each: the lines of each array."""
        kinds = {array.dtype.kind for array in arrays}
        if "u" not in kinds or not kinds <= {"i", "u"} or self._to_floats:
            return arrays
        if not any((array < 0).any() for array in arrays if array.dtype.kind == "i"):
            return [array.astype(np.uint64) for array in arrays]
        if self._unsigned_said:
            for array, lines in zip(arrays, each, strict=True):
                for line, wrong in _changed(array, array >= 0, lines):
                    self._below(int(wrong), line)
            return [array.clip(0).astype(np.uint64) for array in arrays]
        for array, lines in zip(arrays, each, strict=True):
            if array.dtype.kind == "u":
                for line, wrong in _changed(array, cast(array, np.dtype(np.int64))[1], lines):
                    self._beyond(int(wrong), line)
        return [array.astype(np.int64) for array in arrays]

    def _check_wide(self, values: NDArray[Any], each: Sequence[Lines]) -> None:
        """Whole numbers that become floats, because floats came too, must not change. each: the lines of each block."""
        if values.dtype.kind != "f":
            return
        for block, lines in zip(self._blocks, each, strict=True):
            if block.dtype.kind in "iu":
                for line, wrong in _changed(block, cast(block, self._float)[1], lines):
                    self._rounded(wrong, line)

    @property
    def _takes_bool(self) -> bool:
        return self._declared is not None and self._declared.dtype == "bool"

    def _plain(self, given: list[Any], lines: Lines) -> NDArray[Any]:
        if set(map(type, given)) <= {bool, int}:
            try:
                return np.array(given, np.bool_ if set(map(type, given)) == {bool} else np.int64)
            except OverflowError:
                if not self._to_floats:
                    return self._wide(given, lines)
        for i, value in enumerate(given):
            if self._rounds(value):
                self._rounded(value, lines[i])
                given[i] = 0
        return np.array(given, np.float64)

    def _wide(self, given: list[Any], lines: Lines) -> NDArray[Any]:
        """Whole numbers of which some are beyond int64: uint64, where none is below 0."""
        low = min(given) < 0 and not self._unsigned_said
        for i, value in enumerate(given):
            if value < 0 and self._unsigned_said:
                self._below(value, lines[i])
                given[i] = 0
            elif not (-(1 << 63) <= value < 1 << 63 if low else value < 1 << 64):
                self._beyond(value, lines[i])
                given[i] = 0
        return np.array(given, np.int64 if low else np.uint64)

    def _rounds(self, value: Any) -> bool:
        """Whether it is a whole number that floats would change."""
        if type(value) is not int or abs(value) <= self._exact:
            return False
        try:
            with np.errstate(all="ignore"):
                return int(self._float.type(value)) != value
        except OverflowError:
            return True

    def _rounded(self, value: Any, line: int) -> None:
        declared = self._declared is not None and np.dtype(self._declared.dtype) == self._float
        what = f"{shown(value)} is nothing that {self._float}{'' if declared else ', as others need,'} can hold"
        self._place.fault(line, what if self._declared is not None else f"{what}: {self._place.keep_texts}")

    def _beyond(self, value: Any, line: int) -> None:
        within = isinstance(value, int) and 0 <= value < 1 << 64
        what = "beyond int64, and others are below 0" if within else "beyond 64 bits"
        self._place.fault(line, f"{shown(value)} is {what}: {self._place.keep_texts}")

    def _wrong(self, value: Any, line: int) -> None:
        what = "no number" if self._single else "no array"
        if self._declared is not None:
            self._place.fault(line, f"{shown(value)} is {what}; {_named(self._declared)} was said")
        else:
            cure = f"fix it, or {self._place.keep_texts}"
            self._place.fault(line, f"{shown(value)} is {what}, as those before are: {cure}")

    def _finish_singles(self, values: NDArray[Any], lines: Lines, empty: NDArray[np.bool_]) -> tuple[FieldKind, Column]:
        kind = self._declared or FieldKind(values.dtype.name)
        made = self._cast(values, kind, lines)
        if empty.any():
            if made.dtype.kind == "f":
                made[empty] = np.nan
            else:
                cure = (
                    "give a value"
                    if self._declared
                    else f"give a value, or say --field {self._place.name}:float64 (NaN)"
                )
                for line in lines[empty]:
                    self._place.fault(line, f"is empty, in a column of {kind.dtype}: {cure}")
        return kind, Numbers(made)

    def _add_arrays(self, given: list[Any], raw: Sequence[Any], lines: Lines) -> None:
        arrays, lengths, rows = list[NDArray[Any]](), np.zeros(len(given), np.int64), list[int]()
        empty = np.zeros(len(given), np.bool_)
        for i, value in enumerate(given):
            empty[i] = value is None
            array = None if value is None else self._array(value, raw[i], lines[i])
            if array is not None and array.size:
                arrays.append(array)
                lengths[i] = len(array)
                rows.append(i)
        if arrays:
            if self._truth is None:
                self._truth = arrays[0].dtype.kind == "b"
            of_each = [np.repeat(lines[i], len(array)) for i, array in zip(rows, arrays, strict=True)]
            self._blocks.append(np.concatenate(self._unsigned(arrays, of_each)))
            self._check_lists(given, raw, lines, rows)
        self._lengths.append(lengths)
        self._empty.append(empty)

    def _check_lists(self, given: list[Any], raw: Sequence[Any], lines: Lines, rows: list[int]) -> None:
        """Those of the last block, at `rows`, must be in it as they were given: true is not 1, and no whole number is
        rounded."""
        block = self._blocks[-1]
        if not self._takes_bool and (block.dtype.kind != "b" if self._truth else self._any_truth(given, raw)):
            for i in rows:
                self._check_truth(_types([given[i]]), raw[i], lines[i])
        if block.dtype.kind == "f" and (np.abs(block) >= self._exact).any():
            for i in rows:
                wrong = next(filter(self._rounds, _numbers(given[i])), None)
                if wrong is not None:
                    self._rounded(wrong, lines[i])

    def _any_truth(self, given: list[Any], raw: Sequence[Any]) -> bool:
        """Whether any list may hold true or false: by the texts of cells, as a look at each number costs more."""
        if self._place.cells:
            return any("true" in cell or "false" in cell for cell in raw)
        return bool in _types([value for value in given if isinstance(value, list)])

    def _check_truth(self, types: set[type], raw: Any, line: int) -> None:
        if self._truth:
            if types != {bool}:
                cure = "fix it, or write 1 and 0 in those"
                self._place.fault(line, f"{shown(raw)} is not of true and false alone, as those before are: {cure}")
        elif bool in types and (self._declared is None or types != {bool}):
            self._place.fault(line, f"{shown(raw)} has true or false in a column of numbers: write 1 and 0")

    def _array(self, value: Any, raw: Any, line: int) -> NDArray[Any] | None:
        """One value as an array whose axes but the first are the column's; None for a fault."""
        try:
            array = np.array(value)
        except (ValueError, OverflowError):
            self._place.fault(line, f"{shown(raw)} is not an array: its rows differ in length")
            return None
        if array.dtype.kind == "f" and not self._to_floats and isinstance(value, list) and _types([value]) == {int}:
            # numpy makes floats of int64 and uint64 side by side.
            try:
                array = np.array(value, np.uint64)
            except OverflowError:
                what = "has numbers beyond int64 beside some below 0"
                self._place.fault(line, f"{shown(raw)} {what}: {self._place.keep_texts}")
                return None
        if array.dtype.kind == "U" and isinstance(value, list):
            what = "is a list of texts: give each a column of its own, or write numbers"
            self._place.fault(line, f"{shown(raw)} {what}")
            return None
        if array.dtype.kind == "O" and isinstance(value, list) and _types([value]) <= {int, float, Beyond}:
            self._beyond(raw, line)
            return None
        if not isinstance(value, list) or (array.size and array.dtype.kind not in "biuf"):
            self._wrong(raw, line)
            return None
        if not array.size:
            return array
        if self._declared is not None and self._declared.boxes and array.ndim == 1:
            array = array[None]
        if self._axes is None:
            self._axes = array.shape[1:]
        if array.shape[1:] != self._axes:
            wanted = self._declared.shape if self._declared is not None else ("?", *self._axes)
            self._place.fault(line, f"has shape {_by(array.shape)}; the column's is {_by(wanted)}")
            return None
        return array

    def _finish_arrays(
        self, values: NDArray[Any], lines: Lines, empty: NDArray[np.bool_], lengths: NDArray[np.int64]
    ) -> tuple[FieldKind, Column]:
        axes = self._axes or ()
        values = values.reshape(-1, *axes) if values.size else np.empty((0, *axes), values.dtype)
        alike = len(lengths) > 0 and bool((lengths == lengths[0]).all()) and lengths[0] > 0
        kind = self._declared or FieldKind(values.dtype.name, (int(lengths[0]) if alike else None, *axes))
        if kind.shape[0] is not None and (lengths != kind.shape[0]).any():
            for line, length in zip(lines, lengths.tolist(), strict=True):
                if length != kind.shape[0]:
                    self._place.fault(line, f"has {length} values; {_named(kind)} was said")
            return kind, Numbers(values)
        values = self._cast(values, kind, np.repeat(lines, lengths))
        if kind.shape[0] is not None:
            return kind, Numbers(values.reshape(len(lengths), *lengths[:1].tolist(), *axes))
        ends = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        return kind, RaggedColumn(values, ends, kind.boxes)

    def _cast(self, values: NDArray[Any], kind: FieldKind, lines: Lines) -> NDArray[Any]:
        made, same = cast(values, np.dtype(kind.dtype))
        for line, wrong in _changed(values, same, lines):
            self._place.fault(line, f"{wrong} is nothing that {kind.dtype} can hold")
        return made


def cast(values: NDArray[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Numbers in another dtype, and whether each kept its value; floats may be rounded to shorter ones."""
    if values.dtype == dtype:
        return values, np.ones(values.shape, np.bool_)
    with np.errstate(all="ignore"):
        made = values.astype(dtype)
        if dtype.kind == "f" and values.dtype.kind == "f":
            return made, np.isfinite(made) | ~np.isfinite(values)
        same = made.astype(values.dtype) == values
        if dtype.kind == "u" and values.dtype.kind in "if":
            same &= values >= 0
        if dtype.kind == "i" and values.dtype.kind == "u":
            same &= made >= 0
        floats, whole = (made, values.dtype) if dtype.kind == "f" else (values, dtype)
        if floats.dtype.kind == "f" and whole.kind in "iu":
            # What a float beyond all of them is cast to is not defined, and may come back as the same float.
            limits = np.iinfo(whole)
            wide = floats.astype(np.float64, copy=False)
            same &= (wide >= float(limits.min)) & (wide < float(int(limits.max) + 1))
    return made, same


def _changed(values: NDArray[Any], same: NDArray[np.bool_], lines: Lines) -> Iterator[tuple[int, Any]]:
    """The line of each row of values that are not all the same, and the first that is not."""
    if not same.all():
        values, same = values.reshape(len(lines), -1), same.reshape(len(lines), -1)
        for i in np.flatnonzero(~same.all(axis=1)):
            yield int(lines[i]), values[i][~same[i]][0]


def _types(lists: Sequence[Any]) -> set[type]:
    """Of all that lists of lists hold, but for lists."""
    found = set[type]()
    while lists:
        types = set(map(type, chain.from_iterable(lists)))
        found |= types
        lists = [one for one in chain.from_iterable(lists) if type(one) is list] if list in types else []
    return found - {list}


def _numbers(value: Any) -> Iterator[Any]:
    """All that a list of lists holds."""
    if isinstance(value, list):
        for one in value:
            yield from _numbers(one)
    else:
        yield value


def _named(kind: FieldKind) -> str:
    word = kind.boxes or kind.dtype
    lengths = ",".join("?" if n is None else str(n) for n in kind.shape)
    return f"{word}[{lengths}]" if lengths else word


def _by(shape: Sequence[Any]) -> str:
    return " x ".join("?" if n is None else str(n) for n in shape)
