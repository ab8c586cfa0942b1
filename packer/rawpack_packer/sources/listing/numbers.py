"""Columns of numbers, and of arrays of numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.options.naming import opt
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.listing.faults import CellPosition, Lines, shown
from rawpack_packer.sources.listing.lines import Beyond, of_cells
from rawpack_packer.sources.table.columns import Column, Numbers, RaggedColumn, ends_of

_EXACT = 1 << 53
"""float64 holds every whole number below this one."""


class _MisfitError(Exception):
    """A value does not belong in its column; the text says why."""


class NumberParser:
    """Parses a column whose values are numbers, or arrays of numbers that differ at most in their first length.

    Each block of values is converted at once. Only where that fails are its values converted one by one, to find the
    faulty ones.
    """

    def __init__(self, place: CellPosition, declared: FieldKind | None) -> None:
        self._place, self._declared = place, declared
        self._single: bool | None = None if declared is None else not declared.shape
        """Whether values are numbers, not arrays; None before the first one."""
        self._boolean: bool | None = None if declared is None else False
        """Whether the first value was true or false."""
        self._axes = None if declared is None else tuple(n or 0 for n in declared.shape[1:])
        """The shape of an array without its first length."""
        floats = np.dtype(declared.dtype if declared is not None and declared.dtype.startswith("float") else np.float64)
        self._exact = 2 ** (np.finfo(floats).nmant + 1)
        """As `_EXACT`, of the floats that whole numbers become next to floats."""
        self._blocks: list[NDArray[Any]] = []
        self._lengths: list[NDArray[np.int32]] = []
        """The first length of each array; of numbers 1, or 0 where the value is empty."""
        self._lines: list[Lines] = []

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        given = of_cells(values) if self._place.cells else values
        first = next((value for value in given if value is not None), None)
        if self._single is None and first is not None:
            self._single = not isinstance(first, list)
        try:
            numbers, lengths = self._converted(given, values)
        except _MisfitError:
            numbers, lengths = [], []
            for value, raw, line in zip(given, values, lines, strict=True):
                some, length = list[Any](), [0]
                if isinstance(value, list) and not np.array(value, object).size:
                    value = []
                try:
                    some, length = self._converted([value], [raw])
                except _MisfitError as error:
                    raise self._place.fault(line, str(error)) from None
                numbers += some
                lengths += length
        if numbers:
            self._blocks.append(_array_of(numbers, self._exact))
        self._lengths.append(np.array(lengths, np.int32))
        self._lines.append(lines)

    def finish(self) -> tuple[FieldKind, Column]:
        lengths, lines, axes = np.concatenate(self._lengths), np.concatenate(self._lines), self._axes or ()
        values = _joined(self._blocks, self._exact)
        self._blocks.clear()
        dtype = _inferred_dtype(values) if self._declared is None else np.dtype(self._declared.dtype)
        wrong = _changed(values, dtype)
        if len(wrong):
            row = int(np.searchsorted(ends_of(lengths), wrong[0] // math.prod(axes), "right")) - 1
            raise self._place.fault(lines[row], self._cannot_hold(dtype, values[wrong[:1]].tolist()[0]))
        with np.errstate(all="ignore"):
            values = values.astype(dtype, copy=False)
        if self._single:
            return self._finish_single(values, lengths > 0, lines)
        values = values.reshape(-1, *axes)
        alike = lengths[0] > 0 and (lengths == lengths[0]).all()
        kind = self._declared or FieldKind(dtype.name, (int(lengths[0]) if alike else None, *axes))
        if kind.shape[0] is None:
            return kind, RaggedColumn(values, ends_of(lengths), kind.boxes)
        for i in np.flatnonzero(lengths != kind.shape[0])[:1]:
            raise self._place.fault(lines[i], f"has {lengths[i]} values; {_named(kind)} was declared")
        return kind, Numbers(values.reshape(len(lengths), *kind.shape))

    def _finish_single(self, values: NDArray[Any], given: NDArray[np.bool_], lines: Lines) -> tuple[FieldKind, Column]:
        """given: (n,), whether each row has a value; the others become NaN, or are faults where there is none."""
        dtype = values.dtype
        if not given.all():
            values = spread(values, given, np.nan if dtype.kind == "f" else 0)
        for line in [] if dtype.kind == "f" else lines[~given][:1]:
            cure = "" if self._declared else f", or declare {opt.fields(f'{self._place.name}:float64')} (NaN)"
            raise self._place.fault(line, f"is empty, in a column of {dtype}: give a value{cure}")
        return self._declared or FieldKind(dtype.name), Numbers(values)

    def _converted(self, given: Sequence[Any], raw: Sequence[Any]) -> tuple[list[Any], list[int]]:
        """The numbers of some values, one after another, and the first length of each value.

        Raises _MisfitError where a value does not belong in the column. Its text describes the first value, so it is of
        use where that is the only one.
        """
        axes = self._axes
        if self._single:
            numbers = [value for value in given if value is not None]
            lengths = [int(value is not None) for value in given]
        else:
            lists = [[] if value is None else value for value in given]
            if not all(isinstance(one, list) for one in lists):
                raise _MisfitError(self._why_not({object}, raw[0]))
            if self._declared is not None and self._declared.boxes:
                lists = [[one] if one and not isinstance(one[0], list) else one for one in lists]
            first = next(filter(None, lists), None)
            if axes is None and first is not None:
                axes = np.array(first, object).shape[1:]
            numbers, lengths = list(chain.from_iterable(lists)), list(map(len, lists))
            for length in axes or ():
                if not length or not all(isinstance(one, list) and len(one) == length for one in numbers):
                    raise _MisfitError(self._shape_fault(lists[0], raw[0], axes or ()))
                numbers = list(chain.from_iterable(numbers))
        types = set(map(type, numbers))
        boolean = types == {bool} if self._boolean is None and types else self._boolean
        if list in types and self._single:
            raise _MisfitError(self._why_not(types, raw[0]))
        if list in types:
            raise _MisfitError(self._shape_fault(given[0], raw[0], axes or ()))
        if not self._allows(types, boolean):
            raise _MisfitError(self._why_not(types, raw[0]))
        self._axes, self._boolean = axes, boolean
        return numbers, lengths

    def _allows(self, types: set[type], boolean: bool | None) -> bool:
        """Whether the numbers of a value may have these types."""
        if boolean:
            return types <= {bool}
        if types <= {int, float} or self._declared is None:
            return types <= {int, float}
        return types <= {bool, int, float} if self._declared.dtype == "bool" else types == {bool} and not self._single

    def _why_not(self, types: set[type], raw: Any) -> str:
        """What is wrong with a value whose numbers have these types."""
        if Beyond in types and types <= {int, float, Beyond}:
            return f"{shown(raw)} is beyond 64 bits: {self._place.keep_texts}"
        if str in types and not self._single:
            return f"{shown(raw)} is a list of texts: give each its own column, or {self._place.keep_texts}"
        if dict in types and self._declared is None:
            what = "an object" if self._single else "a list of objects"
            return f"{shown(raw)} is {what}: {self._place.keep_texts}"
        if self._boolean:
            return (
                f"{shown(raw)} is neither true nor false, as the values before are: fix it, or write 1 and 0 in those"
            )
        if types <= {bool, int, float} and not self._single:
            return f"{shown(raw)} has true or false in a column of numbers: write 1 and 0"
        what = "a number" if self._single else "an array of numbers"
        if self._declared is not None:
            return f"{shown(raw)} is not {what}; {_named(self._declared)} was declared"
        return f"{shown(raw)} is not {what}, as the values before are: fix it, or {self._place.keep_texts}"

    def _shape_fault(self, value: list[Any], raw: Any, axes: tuple[int, ...]) -> str:
        array = np.array(value, object)
        if any(isinstance(one, list) for one in array.flat):
            cure = f"; {self._place.keep_texts}" if self._declared is None else ""
            return f"{shown(raw)} is not an array: its rows differ in length{cure}"
        wanted = ("?", *axes) if self._declared is None else self._declared.shape
        return f"has shape {_by(array.shape)}; the column's is {_by(wanted)}"

    def _cannot_hold(self, dtype: np.dtype[Any], value: Any) -> str:
        if self._declared is not None:
            return f"{dtype} cannot hold {shown(value)}"
        if dtype.kind == "f":
            return f"float64, which other values need, cannot hold {shown(value)}: {self._place.keep_texts}"
        what = "beyond int64, and other values are negative" if 0 <= value < 1 << 64 else "beyond 64 bits"
        return f"{shown(value)} is {what}: {self._place.keep_texts}"


def _array_of(numbers: list[Any], exact: int) -> NDArray[Any]:
    """bool, int64 or float64; of dtype object, with the numbers themselves, if some might change.

    exact: whole numbers below it may become floats.
    """
    types = set(map(type, numbers))
    dtype = np.float64 if float in types else np.int64 if int in types else np.bool_
    try:
        array: NDArray[Any] = np.array(numbers, dtype)
    except OverflowError:
        return np.array(numbers, object)
    if float in types and int in types and not is_small(array, exact).all():
        return np.array(numbers, object)
    return array


def _joined(blocks: list[NDArray[Any]], exact: int) -> NDArray[Any]:
    """One block after another, without a change to any number. exact: as for `_array_of`."""
    if len({block.dtype for block in blocks}) > 1:
        # numpy makes floats of int64 next to float64.
        blocks = [
            block.astype(object) if block.dtype == np.int64 and not is_small(block, exact).all() else block
            for block in blocks
        ]
    return np.concatenate(blocks) if blocks else np.empty(0)


def _inferred_dtype(numbers: NDArray[Any]) -> np.dtype[Any]:
    if numbers.dtype != object:
        return numbers.dtype
    if any(isinstance(number, float) for number in numbers):
        return np.dtype(np.float64)
    return np.dtype(np.uint64 if numbers.min() >= 0 and numbers.max() >= 1 << 63 else np.int64)


def _changed(numbers: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[np.intp]:
    """The positions of numbers that another dtype cannot hold. Floats may be rounded to shorter floats."""
    if numbers.dtype == dtype:
        return np.empty(0, np.intp)
    doubtful = np.arange(len(numbers))
    with np.errstate(all="ignore"):
        if numbers.dtype != object:
            made = numbers.astype(dtype)
            held = np.isfinite(made) if "f" == dtype.kind == numbers.dtype.kind else made == numbers
            doubtful = np.flatnonzero(~(held & is_small(numbers)))
        return doubtful[[not _holds(dtype, number) for number in numbers[doubtful].tolist()]]


def _holds(dtype: np.dtype[Any], number: float) -> bool:
    try:
        made = dtype.type(number).item()
    except (OverflowError, ValueError):
        return False
    rounded = isinstance(number, float) and isinstance(made, float) and math.isfinite(made) == math.isfinite(number)
    return rounded or bool(made == number)


def is_small(numbers: NDArray[Any], exact: int = _EXACT) -> NDArray[np.bool_]:
    """Which numbers are nearer to 0 than `exact`."""
    return np.asarray((numbers > -exact) & (numbers < exact))


def spread(numbers: NDArray[Any], given: NDArray[np.bool_], empty: float) -> NDArray[Any]:
    """(n,): the numbers where one is given, `empty` elsewhere."""
    spread = np.full(len(given), empty, numbers.dtype)
    spread[given] = numbers
    return spread


def _named(kind: FieldKind) -> str:
    lengths = ",".join("?" if n is None else str(n) for n in kind.shape)
    return f"{kind.boxes or kind.dtype}[{lengths}]" if lengths else kind.dtype


def _by(shape: Sequence[Any]) -> str:
    return " x ".join("?" if n is None else str(n) for n in shape)
