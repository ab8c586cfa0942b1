"""The columns of a listing: kept as they were read, and each converted at once when all of its values are known.

What a column holds is declared, or most of its first values show it. A value of another kind among numbers rejects its
sample. Whole numbers and floats together are floats. Arrays that differ in their first length are ragged. An empty
value is NaN among floats, an array of length 0 among arrays, the empty text among texts, the empty list among lists of
texts, and a reject elsewhere.
"""

from __future__ import annotations

import math
import pickle
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows
from rawpack_packer.sources.fields import EXACT, TEXTS, FieldKind, are_texts, as_text
from rawpack_packer.sources.inferred import missing_value
from rawpack_packer.sources.listing.lines import (
    DECIMAL,
    LEADING_ZERO,
    BadListingError,
    Beyond,
    CellPosition,
    ListingRows,
    of_cells,
    shown,
)
from rawpack_packer.sources.numbers import is_far
from rawpack_packer.sources.table.choose import LABEL_KIND, Classes, Labels, as_class, classes_of, number_labels
from rawpack_packer.sources.table.columns import (
    Column,
    Numbers,
    RaggedColumn,
    TextLists,
    Texts,
    ends_of,
    joined,
    texts_of,
)
from rawpack_packer.sources.table.objects import Objects, all_faulty
from rawpack_packer.sources.video import seconds
from rawpack_packer.text import listed, plain

_BLOCK = 1 << 13
"""Rows that are Python objects at one time."""
_SHAPES = 100
"""Arrays that show which shape those of a column have."""
_BOX = 4
"""Numbers of the shortest box."""


@dataclass(frozen=True, eq=False)
class RawColumn:
    """The values of a column as they were read: texts of cells, or what JSON has."""

    place: CellPosition
    lines: Rows
    """(n,): that of each value, as `Unit` counts them."""
    blocks: list[bytes]
    """Some values each, pickled, which takes a fourth of the memory of the objects."""

    def __iter__(self) -> Iterator[Sequence[Any]]:
        """The values, a block at a time."""
        return map(pickle.loads, self.blocks)

    def numbered(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Each block with the number of its first row."""
        row = 0
        for block in self:
            yield row, block
            row += len(block)

    def pick(self, rows: Rows) -> RawColumn:
        """The values of some rows, which ascend."""
        if len(rows) == len(self.lines):
            return self
        blocks = []
        for row, block in self.numbered():
            start, stop = np.searchsorted(rows, (row, row + len(block))).tolist()
            blocks.append(pickle.dumps([block[i - row] for i in rows[start:stop].tolist()], -1))
        return replace(self, lines=self.lines[rows], blocks=blocks)

    def first(self, *others: int) -> Any:
        """The first value of the kind that the column has, by the first block with values, of which `others` do not
        count. It has texts where more than half are texts, or some are numbers with a leading zero, as in names; else
        what most of the others are. None if all are empty."""
        blocks = ([value for value in block if value is not None and value not in others] for block in self.values())
        some = next(filter(None, blocks), [None])
        texts, kinds = [value for value in some if isinstance(value, str)], dict[type, list[Any]]()
        if texts and (2 * len(texts) > len(some) or any(map(LEADING_ZERO.match, texts))):
            return texts[0]
        for value in some:
            if not isinstance(value, str):
                kinds.setdefault(float if type(value) is int else type(value), []).append(value)
        return max(kinds.values(), key=len)[0]

    def fault(self, row: int, what: str) -> BadListingError:
        """The error for the value of a row."""
        return self.place.fault(int(self.lines[row]), what)

    def at(self, row: int) -> str:
        """What messages call a row."""
        return self.place.at(int(self.lines[row]))

    def place_of(self, row: int, what: str) -> str:
        """What is wrong with the value of a row, for a reject, which names no folders."""
        return str(replace(self.place, where="").fault(int(self.lines[row]), what)).removeprefix(": ")

    def numbers(self, length: int, wrong: dict[int, str]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """(n, length): a number, or a list of several, in each row; and (n,): which are empty. wrong: gets the rows
        with something else, and what is wrong; what was wrong before stays."""
        if length == 1:
            with suppress(BadListingError):
                column = self.converted(FieldKind("float64"))[1]
                assert isinstance(column, Numbers)  # there is one in each row
                if not column.faults:
                    return column.values[:, None], np.isnan(column.values)
        values = [*chain.from_iterable(self.values())]
        found, empty = np.zeros((len(values), length)), np.zeros(len(values), np.bool_)
        for row, value in enumerate(values):
            numbers = [value] if length == 1 else value
            empty[row] = value in (None, []) or value != value
            if empty[row]:
                continue
            sound = isinstance(numbers, list) and len(numbers) == length
            if sound and all(type(one) in (int, float) and not is_far(one) for one in numbers):
                found[row] = numbers
            else:
                what = "a number" if length == 1 else f"a list of {length} numbers"
                wrong.setdefault(row, self.place_of(row, f"{shown(value)} is not {what}"))
        return found, empty

    def converted(self, declared: FieldKind | None, *, labels: bool = False) -> tuple[FieldKind, Column]:
        """The column of a field. labels: see `_NumberColumn.converted`. Raises BadListingError."""
        lists = (value for block in self.values() for value in block if isinstance(value, list) and value)
        first = self.first() if declared is None else 0
        if declared == TEXTS or (isinstance(first, list) and isinstance(next(lists, [0])[0], str)):
            return TEXTS, self._text_lists()
        if declared is not None and declared.dtype == "str":
            return declared, joined([texts_of([as_text(value) for value in block]) for block in self])
        if not isinstance(first, str | None):
            return _NumberColumn(self, declared).converted(labels)
        blocks = []
        for row, block in self.numbered():
            for i, value in enumerate(block, row):
                if value is not None and not isinstance(value, str):
                    raise self.fault(i, f"{shown(value)} is not text: quote it, or {self.place.keep_texts}")
            blocks.append(texts_of([value or "" for value in block]))
        return FieldKind("str"), joined(blocks)

    def values(self) -> Iterator[Sequence[Any]]:
        """The values as JSON has them, a block at a time; None for those that are empty."""
        for block in self:
            if not self.place.cells:
                yield [None if value == "" else value for value in block]
                continue
            if self.place.commas:
                block = [cell.replace(",", ".") if DECIMAL.fullmatch(cell.strip()) else cell for cell in block]
            yield of_cells(block)

    def _text_lists(self) -> TextLists:
        """The column of lists of texts. Raises BadListingError."""
        blocks, row = [], 0
        for block in self.values():
            lists = [[] if value is None else value for value in block]
            for i, value in enumerate(lists, row):
                if not are_texts(value):
                    raise self.fault(i, f"{shown(value)} is not a list of texts: {self.place.keep_texts}")
            try:
                blocks.append(TextLists.of(lists).texts)
            except UnicodeEncodeError as error:
                odd = next(i for i, value in enumerate(lists, row) if error.object in value)
                what = f"half of a surrogate pair cannot be stored as UTF-8; {self.place.keep_texts}"
                raise self.fault(odd, what) from error
            row += len(block)
        return TextLists(joined(blocks))

    def labels(self, declared: FieldKind | None, classes: Classes | None) -> tuple[FieldKind, Column, Labels | None]:
        """The column of labels; as `Labels` where they are names of classes, or int64 numbers, -1 where there is none.

        Floats are such numbers too if all of them are whole: some tools write 2 as 2.0 in a column with empty values.
        Other floats are measurements, and NaN where empty. Raises BadListingError.
        """
        column, place, notes = self, self.place, tuple[str, ...]()
        faults: Mapping[int, str] = {}
        if declared is None and place.unit != "row":
            column, notes = self._cleaned(() if classes is None else classes_of(classes))
        # -1 is for no class, beside names too.
        if declared is None and (isinstance(column.first(-1), str) or column.first() is None):
            names = dict[Any, Any]()  # one object for each name
            texts = ("" if place.empty(value) else value for block in column for value in block)
            values: Any = [names.setdefault(value, value) if isinstance(value, str) else value for value in texts]
        else:
            kind, held = column.converted(declared, labels=True)
            if kind != LABEL_KIND or not isinstance(held, Numbers):
                return kind, held, None
            values, faults = held.values, held.faults
        try:
            labels = number_labels(values, classes, where=place.where, row_name=self.at)
        except UsageError as error:
            raise BadListingError(str(error)) from error
        return LABEL_KIND, Numbers(labels.numbers, faults), replace(labels, notes=notes, faults=faults)

    def _cleaned(self, classes: Sequence[str]) -> tuple[RawColumn, tuple[str, ...]]:
        """The labels of a text file, see `as_class`, but for names of classes; and a line for each class that has
        several spellings, which differ in blanks around them."""
        spelled, blocks, kept = dict[str, set[str]](), list[bytes](), {*classes}
        for block in self:
            names = [as_class(one) if isinstance(one, str) and one not in kept else one for one in block]
            for name, text in zip(names, block, strict=True):
                if isinstance(text, str) and name:
                    spelled.setdefault(name, set()).add(text)
            blocks.append(pickle.dumps([None if name != name else name for name in names], -1))
        column = replace(self, blocks=blocks)
        alike = {name: sorted(texts) for name, texts in sorted(spelled.items()) if len(texts) > 1}
        if alike and not isinstance(column.first(), str):
            alike = {}
        return column, tuple(f"the classes {listed([*map(repr, alike[name])], 5)} are one, {name!r}" for name in alike)

    def keys(self) -> Texts:
        """The keys of samples: texts, or whole numbers as they are written. Raises BadListingError."""
        blocks = []
        for row, block in self.numbered():
            for i, value in enumerate(block, row):
                if int(self.lines[i]) in self.place.broken:
                    continue
                if value is None or value == "":
                    raise self.fault(i, "is empty: each sample needs a key")
                if type(value) is not int and not isinstance(value, str):
                    raise self.fault(i, f"{shown(value)} is not text: quote it")
            blocks.append(texts_of(["" if value is None else str(value) for value in block]))
        return joined(blocks)

    def times(self) -> list[Fraction | None]:
        """Times of videos: seconds, or 0:01:30; None where there is none. Raises BadListingError."""
        times: list[Fraction | None] = []
        for row, value in enumerate(chain.from_iterable(self)):
            try:
                times.append(None if self.place.empty(value) else seconds(lambda text: text, str(value)))
            except UsageError as error:
                raise self.fault(row, str(error).rpartition(": ")[2] + f", not {shown(value)}") from error
        return times


@dataclass(frozen=True, eq=False)
class ListedRows:
    """The rows of a listing."""

    lines: Rows
    raw: Mapping[str, RawColumn]
    objects: Objects | None = None
    """Those of the images, where rows were boxes."""
    left_out: Sequence[str] = ()
    """What was done to rows and columns, printable."""
    files: Sequence[Path] = ()
    """Others that were read."""


def read_columns(rows: ListingRows, where: str, *, rejecting: bool = False) -> ListedRows:
    """Read a listing. where: the file, printable. rejecting: whether lines may be broken, unless most are. Raises
    UsageError where two columns have one name; BadListingError."""
    if twice := [name for name in dict.fromkeys(rows.names) if name and [*rows.names].count(name) > 1]:
        raise UsageError(f"{where} has two columns {plain(twice[0])!r}: rename one")
    lines, each = list[Rows](), iter(rows.rows)
    blocks: list[list[bytes]] = [[] for _ in rows.names]
    while some := list(islice(each, _BLOCK)):
        lines.append(np.array([line for line, _ in some], np.int64))
        for kept, values in zip(blocks, zip(*(row for _, row in some), strict=True), strict=True):
            kept.append(pickle.dumps(values, -1))
    of_rows = np.concatenate([np.empty(0, np.int64), *lines])
    if rows.broken and (not rejecting or 2 * len(rows.broken) > len(of_rows)):
        raise BadListingError(f"{where}: {next(iter(rows.broken.values()))}")
    numbered = ((i if rows.cells else 0, name) for i, name in enumerate(rows.names, 1))
    places = [CellPosition(where, name, i, rows.cells, rows.unit, rows.commas, rows.broken) for i, name in numbered]
    raw = {place.name: RawColumn(place, of_rows, kept) for place, kept in zip(places, blocks, strict=True)}
    return ListedRows(of_rows, raw)


class _MisfitError(Exception):
    """A value does not belong in its column. Its argument: the types of its numbers; list where its shape is wrong."""


class _NumberColumn:
    """A column whose values are numbers, or arrays of numbers that differ at most in their first length.

    It is gone through twice: first for its types and lengths, then to convert it by them. Values are looked at one by
    one only to find the first fault.
    """

    def __init__(self, column: RawColumn, declared: FieldKind | None) -> None:
        self._column, self._declared = column, declared
        self._faults = dict[int, str]()
        """Rows that are rejected, and why."""
        if declared is not None:
            self._single, self._boolean = not declared.shape, False
            self._axes = tuple(n or 0 for n in declared.shape[1:])
            """The shape of an array without its first length."""
            self._allowed = {bool, int, float} if declared.dtype == "bool" else {int, float}
        else:
            first = np.array(column.first(), object)
            self._single = not first.ndim
            if not self._single:
                lists = (value for block in column.values() for value in block if isinstance(value, list))
                some = [*islice((array for value in lists if (array := np.array(value, object)).size), _SHAPES)]
                (shape, _), *_ = Counter(array.shape[1:] for array in some).most_common(1) or [((), 0)]
                first = next((array for array in some if array.shape[1:] == shape), np.empty(0, object))
            self._axes = first.shape[1:]
            self._boolean = set(map(type, first.flat)) == {bool}
            self._allowed = {bool} if self._boolean else {int, float}

    def converted(self, labels: bool) -> tuple[FieldKind, Column]:
        """The column. labels: whether whole numbers are int64, and -1 where they are missing. Raises
        BadListingError."""
        types, blocks = set[type](), [np.empty(0, np.int32)]
        low = high = 0
        for numbers, some in self._flat_blocks():
            types |= set(map(type, numbers))
            blocks.append(np.array(some, np.int32))
            if types == {int}:
                low, high = min(low, min(numbers, default=0)), max(high, max(numbers, default=0))
        lengths = np.concatenate(blocks)
        if self._declared is not None:
            dtype = np.dtype(self._declared.dtype)
        elif types == {int}:
            dtype = np.dtype(np.uint64 if low == 0 and high >= 1 << 63 else np.int64)
        else:
            dtype = np.dtype(np.bool_ if types == {bool} else np.float64)
        values = self._converted_to(dtype, ends_of(lengths))
        self._check_most(lengths)
        if self._single:
            return self._finished(values, lengths > 0, labels)
        values = values.reshape(-1, *self._axes)
        sound = ~np.isin(np.arange(len(lengths)), [*self._faults])
        least, most = int(lengths[sound].min()), int(lengths[sound].max())
        kind = self._declared or FieldKind(dtype.name, (most if 0 < least == most else None, *self._axes))
        first = kind.shape[0]
        if first is None:
            return kind, RaggedColumn(values, ends_of(lengths), kind.boxes, faults=self._faults)
        for row in np.flatnonzero(sound & (lengths != first)).tolist():
            what = f"has {lengths[row]} values; {_named(kind)} was declared"
            self._faults[row] = self._column.place_of(row, what)
        self._check_most(lengths)
        whole = lengths == first
        arrays = np.zeros((len(lengths), first, *self._axes), dtype)
        arrays[whole] = values[np.repeat(whole, lengths)].reshape(-1, first, *self._axes)
        return kind, Numbers(arrays, self._faults)

    def _check_most(self, lengths: NDArray[np.int32]) -> None:
        """Raise BadListingError where most rows are rejected, or none of the others has a value. lengths: see
        `_flat`."""
        wrong = all_faulty(lengths.astype(np.int64), self._faults)
        if wrong or 2 * len(self._faults) > len(lengths):
            raise BadListingError(f"{self._column.place.where}: {wrong or next(iter(self._faults.values()))}")

    def _finished(self, values: NDArray[Any], given: NDArray[np.bool_], labels: bool) -> tuple[FieldKind, Numbers]:
        """Single numbers. given: (n,), whether each row has one."""
        if labels and self._declared is None and values.dtype == np.float64 and (abs(values) < EXACT).all():
            whole = values.astype(np.int64)
            values = whole if np.array_equal(whole, values) else values
        kind = self._declared or FieldKind(values.dtype.name)
        if given.all():
            return kind, Numbers(values)
        faults = self._faults
        empty = np.nan if values.dtype.kind == "f" else -1 if labels and kind == LABEL_KIND else None
        if empty is None:
            place = self._column.place
            declare = missing_value(place.name, whole=values.dtype.kind != "b")[1]
            cure = "" if self._declared else f", or {declare}"
            what = f"is empty, in a column of {values.dtype}: give a value{cure}"
            for row in np.flatnonzero(~given).tolist():
                faults.setdefault(row, self._column.place_of(row, what))
            self._check_most(given.astype(np.int32))
        spread = np.full(len(given), empty or 0, values.dtype)
        spread[given] = values
        return kind, Numbers(spread, faults)

    def _flat_blocks(self) -> Iterator[tuple[list[Any], list[int]]]:
        """What `_flat` gives, a block at a time. A value that does not belong is a fault, and empty."""
        row = 0
        for block, values in zip(self._column, self._column.values(), strict=True):
            try:
                flat = self._flat(values)
            except _MisfitError:
                lists = [[] if isinstance(one, list) and not np.array(one, object).size else one for one in values]
                for i, value in enumerate(lists):
                    try:
                        self._flat([value])
                    except _MisfitError as error:
                        wrong = self._why_not(error.args[0], value, block[i])
                        lists[i], self._faults[row + i] = None, self._column.place_of(row + i, wrong)
                flat = self._flat(lists)
            yield flat
            row += len(values)

    def _flat(self, values: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The numbers of some values, one after another, and the first length of each value: of numbers 1, or 0 where
        the value is empty. Raises _MisfitError."""
        if self._single:
            numbers, lengths = [one for one in values if one is not None], [int(one is not None) for one in values]
        else:
            lists = [[] if one is None else one for one in values]
            if not all(isinstance(one, list) for one in lists):
                raise _MisfitError(set(map(type, lists)) - {list})
            if self._declared is not None and self._declared.boxes:
                lists = [[one] if one and not isinstance(one[0], list) else one for one in lists]
            numbers, lengths = list(chain.from_iterable(lists)), list(map(len, lists))
            for length in self._axes:
                if not all(isinstance(one, list) and len(one) == length for one in numbers):
                    raise _MisfitError({list})
                numbers = list(chain.from_iterable(numbers))
        types = set(map(type, numbers))
        if not types <= self._allowed:
            raise _MisfitError(types)
        return numbers, lengths

    def _converted_to(self, dtype: np.dtype[Any], ends: NDArray[np.int64]) -> NDArray[Any]:
        """All numbers. ends: of the first lengths. Raises BadListingError for the first number that would change."""
        arrays, done = [np.empty(0, dtype)], 0
        for numbers, _ in self._flat_blocks():
            array, wrong = _exactly(numbers, dtype)
            if wrong is not None:
                row = int(np.searchsorted(ends, (done + wrong) // math.prod(self._axes), "right")) - 1
                raise self._column.fault(row, self._cannot_hold(dtype, numbers[wrong]))
            arrays.append(array)
            done += len(numbers)
        return np.concatenate(arrays)

    def _why_not(self, types: set[type], value: Any, raw: Any) -> str:
        """What is wrong with a value whose numbers have these types."""
        keep, of_numbers = self._column.place.keep_texts, "a number" if self._single else "an array of numbers"
        if list in types and not self._single:
            array = np.array(value, object)
            if any(isinstance(one, list) for one in array.flat):
                return f"{shown(raw)} is not an array: its rows differ in length; {keep}"
            wanted = ("?", *self._axes) if self._declared is None else self._declared.shape
            cure, form = "", self._declared.boxes if self._declared else None
            if form in ("xyxy", "xywh") and array.shape[-1] >= _BOX:
                cure = f": {opt.fields(f'{self._column.place.name}:{form}[{array.shape[-1]}]')} says so of all boxes"
            return f"has shape {_by(array.shape)}; the column's is {_by(wanted)}{cure}"
        if self._boolean:
            return f"{shown(raw)} is neither true nor false, as the values before are: write 1 and 0 in those"
        if bool in types and not self._single:
            return f"{shown(raw)} has true or false in a column of numbers: write 1 and 0"
        if self._declared is not None and Beyond not in types:
            return f"{shown(raw)} is not {of_numbers}; {_named(self._declared)} was declared"
        what = "beyond 64 bits" if Beyond in types else f"not {of_numbers}"
        if isinstance(value, list) and not self._single and types & {str, dict}:
            what = "a list of texts" if str in types else "a list of objects"
        elif isinstance(value, dict):
            what = "an object"
        return f"{shown(raw)} is {what}: {keep}"

    def _cannot_hold(self, dtype: np.dtype[Any], value: Any) -> str:
        if self._declared is not None:
            return f"{dtype} cannot represent {shown(value)}"
        keep = self._column.place.keep_texts
        if dtype.kind == "f":
            return f"float64, which other values need, cannot represent {shown(value)}: {keep}"
        what = "beyond int64, and other values are negative" if 0 <= value < 1 << 64 else "beyond 64 bits"
        return f"{shown(value)} is {what}: {keep}"


def _exactly(numbers: list[Any], dtype: np.dtype[Any]) -> tuple[NDArray[Any], int | None]:
    """Numbers of Python as this dtype, and the position of the first one that it cannot hold. Floats may be rounded to
    shorter floats."""
    types = set(map(type, numbers))
    try:
        found = np.array(numbers, np.bool_ if types == {bool} else np.float64 if float in types else np.int64)
    except OverflowError:
        found = np.array(numbers, object)
    if found.dtype == dtype and len(types) == 1:
        return found, None
    doubtful = np.arange(len(numbers))
    with np.errstate(all="ignore"):
        if found.dtype != object:
            made = found.astype(dtype)
            held = (made == found) & (abs(found) < EXACT) if found.dtype != np.bool_ else made == found
            if dtype.kind == "f" and float in types:
                rounded = np.isfinite(made) == np.isfinite(found)
                held |= rounded & np.array([type(number) is float for number in numbers])
            doubtful = np.flatnonzero(~held)
        wrong = next((i for i in doubtful.tolist() if not _holds(dtype, numbers[i])), None)
        return (found.astype(dtype) if wrong is None else found), wrong


def _holds(dtype: np.dtype[Any], number: float) -> bool:
    try:
        made = dtype.type(number).item()
    except (OverflowError, ValueError):
        return False
    rounded = isinstance(number, float) and isinstance(made, float) and math.isfinite(made) == math.isfinite(number)
    return rounded or bool(made == number)


def _named(kind: FieldKind) -> str:
    lengths = ",".join("?" if n is None else str(n) for n in kind.shape)
    return f"{kind.boxes or kind.dtype}[{lengths}]" if lengths else kind.dtype


def _by(shape: Sequence[Any]) -> str:
    return " x ".join("?" if n is None else str(n) for n in shape)
