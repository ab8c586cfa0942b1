"""Tables in memory, of pandas, polars, Arrow and Hugging Face, as columns and their classes."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.sources.declared import array_of, declared_kind
from rawpack_packer.sources.fields import EXACT, DeclaredKind, FieldKind, are_texts, as_text, is_rounded
from rawpack_packer.sources.inferred import missing_value
from rawpack_packer.sources.listing.lines import ListingRows
from rawpack_packer.sources.listing.reading import is_path
from rawpack_packer.sources.table.choose import (
    IMAGE,
    LABEL,
    PATH_NAMES,
    ColumnInfo,
    Habits,
    label_columns,
    number_labels,
    path_column,
)
from rawpack_packer.sources.table.keys import key_text, numbered_since, unique_keys
from rawpack_packer.sources.times import plain_text
from rawpack_packer.text import listed, plain


def frame_columns(frame: Any) -> dict[str, Any] | None:
    """The columns of a DataFrame of pandas or polars, or a table of Arrow, by their names: arrays of numbers, masked
    where whole ones are missing, and lists of anything else; None for what is no such table. Raises UsageError for two
    columns of one name."""
    kind = type(frame).__module__.partition(".")[0], type(frame).__name__
    if kind not in (("pandas", "DataFrame"), ("polars", "DataFrame"), ("pyarrow", "Table")):
        return None
    of_frame = [*(frame.columns if kind[1] == "DataFrame" else frame.column_names)]
    names = [*map(str, of_frame)]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(f"the {kind[1]} has two columns {plain(twice[0])!r}: rename one")
    return {name: _values(frame[one]) for name, one in zip(names, of_frame, strict=True)}


_WHOLE = re.compile(r"(u?int(8|16|32|64)|bool)(ean)?(\[pyarrow\])?")
_SINGLE = re.compile(r"u?int\d*|float\d*|bool|str|(large_)?string|Str|<U.*")
"""Types of numbers and texts."""
_WHOLE_INSIDE = re.compile(r"\bu?int\d+")
_AS_LIST = re.compile(r"struct|decimal|dictionary|tz=|time_zone='")
"""Of columns that lose something as arrays: the names of polars' structs, digits, what is missing, time zones."""


def _values(series: Any) -> Any:
    """Points in time become texts. Of texts, a missing one is the empty text; else it is None."""
    dtype = str(series.dtype if hasattr(series, "dtype") else series.type).lower()
    to_list: Callable[[], list[Any]] = getattr(series, "to_list", None) or series.to_pylist
    array: NDArray[Any] = np.array([*to_list(), None], object)[:-1] if _AS_LIST.search(dtype) else series.to_numpy()
    if array.dtype.kind == "M":
        return [plain_text(one) for one in array]
    if array.dtype.kind == "m":
        return [None if np.isnat(one) else one for one in array]
    whole = _WHOLE.fullmatch(dtype)
    if whole and array.dtype.kind not in "biu":  # libraries make floats of them, which are rounded
        values, kind = to_list(), np.dtype(whole[1])
        mask = [_is_missing(value) for value in values]
        return np.ma.MaskedArray([0 if no else one for one, no in zip(values, mask, strict=True)], mask, kind)
    if array.dtype.kind in "biufc":
        return array
    inside = _WHOLE_INSIDE.search(dtype) and any(isinstance(one, np.ndarray) and one.dtype.kind == "f" for one in array)
    values = [None if _is_missing(value) else value for value in (to_list() if inside else array.tolist())]
    values = [each.tolist() if isinstance(each, np.ndarray) and each.dtype.kind == "O" else each for each in values]
    present = [value for value in values if value is not None]
    if present and all(isinstance(value, str | date) for value in present):
        return [as_text(value) for value in values]
    return values


def _is_missing(value: Any) -> bool:
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def checked_numbers(name: str, column: Any, declared: Any) -> Any:
    """A column of a frame, where a missing number of a class is -1, and other missing whole numbers are NaN if the
    column is declared as floats. Raises UsageError for those that are not, and for what a float cannot represent."""
    if name == LABEL and isinstance(column, np.ndarray) and declared is None and column.dtype.kind in "iuf":
        return _whole_labels(column)
    kind = None if declared is None or array_of(declared)[0] else declared_kind(name, declared)
    if kind == FieldKind("str"):
        values = column.tolist() if isinstance(column, np.ndarray) else column
        # Bytes are none, and what a dataset makes text of itself stays.
        kept = (bytes, Mapping, list, tuple, np.ndarray)
        return [one if isinstance(one, kept) else as_text(None if _is_missing(one) else one) for one in values]
    if isinstance(column, list):
        return _filled(name, column) if declared is None else _as_declared(name, column, kind)
    if not np.ma.isMaskedArray(column):
        return column
    dtype = np.dtype(kind.dtype) if isinstance(kind, FieldKind) and kind.dtype.startswith("float") else None
    if dtype is None:
        raise _missing(name, int(np.flatnonzero(column.mask)[0]), whole=column.dtype.kind != "b")
    made = np.ma.filled(column.astype(dtype), np.nan)
    for row, (one, number) in enumerate(zip(made.tolist(), column.tolist(), strict=True)):
        if number is not None and one != number:
            raise UsageError(f"the table: column {plain(name)!r}, row {row}: {dtype} cannot represent {number}")
    return made


def _filled(name: str, column: list[Any]) -> Any:
    """Numbers among which some are missing, as a column of them has these. Raises UsageError."""
    present = [value for value in column if value is not None]
    if len(present) == len(column) or not present or not all(isinstance(one, int | float) for one in present):
        return column
    floats = [math.nan if value is None else value for value in column]
    if name == LABEL and all(type(one) is int for one in present):
        return number_labels(column, where="the table").numbers
    if name == LABEL and not any(isinstance(one, bool) for one in present):
        made = np.array(floats, np.float64)
        return floats if is_rounded(floats, made) else _whole_labels(made)
    if any(isinstance(one, float) for one in present):
        return floats
    raise _missing(name, column.index(None), whole=not all(isinstance(one, bool) for one in present))


def _as_declared(name: str, column: list[Any], kind: DeclaredKind | None) -> list[Any]:
    """A column of which the user says what it is, with what stands for a missing value: NaN, or nothing in a list.
    Raises UsageError where nothing does."""
    rows = [row for row, value in enumerate(column) if value is None]
    if not rows or not isinstance(kind, FieldKind) or kind.is_pixels:
        return column
    if kind.shape[:1] == (None,):
        return [[] if value is None else value for value in column]
    if kind.dtype.startswith("float") and not kind.shape:
        return [math.nan if value is None else value for value in column]
    if not kind.shape:
        raise _missing(name, rows[0], whole=kind.dtype != "bool")
    return column


def _missing(name: str, row: int, *, whole: bool) -> UsageError:
    what, cure = missing_value(plain(name), whole=whole)
    return UsageError(f"the table: {what} in row {row}: fill it in, or {cure}")


def lists_of_lengths(columns: dict[str, Any], declared: Mapping[str, Any]) -> dict[str, str]:
    """What columns of lists of texts hold, and of lists of numbers that differ in length, or are missing in some rows,
    as listings say it: {"x": "int64[?]", "points": "float64[?,2]", "words": "str[?]"}. In `columns`, a missing one
    becomes an empty one."""
    found = {}
    for name, column in columns.items():
        if name in (IMAGE, LABEL) or name in declared or not isinstance(column, list):
            continue
        some = [one for one in column if one is not None]
        if not some or not all(isinstance(one, list | tuple | np.ndarray) for one in some):
            continue
        if all(map(are_texts, some)) and any(some):
            columns[name], found[name] = [one or [] for one in column], "str[?]"
            continue
        if len({len(one) for one in some}) == 1 and len(some) == len(column):
            continue
        try:
            arrays = [np.asarray(one) for one in some if len(one)]
        except ValueError:  # lists in lists, which differ in length
            continue
        kinds, inner = {one.dtype.kind for one in arrays}, {one.shape[1:] for one in arrays}
        if not (kinds == {"b"} or kinds <= {*"iuf"}) or len(inner) != 1:
            continue
        dtype = np.result_type(*{one.dtype for one in arrays})
        lists = [[] if one is None else one for one in column]
        columns[name] = [np.asarray(values, dtype) for values in lists]
        for row, (values, made) in enumerate(zip(lists, columns[name], strict=True)):
            if is_rounded(values.tolist() if isinstance(values, np.ndarray) else values, made):
                raise UsageError(
                    f"the table: column {plain(name)!r}, row {row}: {dtype}, which fits all of its lists, cannot "
                    f"represent the whole numbers {plain(str([*values]))[:80]}"
                )
        found[name] = f"{dtype}[{','.join(map(str, ('?', *inner.pop())))}]"
    return found


def _whole_labels(labels: NDArray[Any]) -> NDArray[Any]:
    """A column of labels in which some are missing, with -1 for these; measurements as they are."""
    if np.ma.isMaskedArray(labels):
        numbers = [-1 if number is None else number for number in labels.tolist()]
        return number_labels(numbers, where="the table").numbers
    if labels.dtype.kind == "f" and np.isnan(labels).any():
        found = np.where(np.isnan(labels), -1, labels)
        exact = (found == np.rint(found)).all() and (abs(found) < EXACT).all()
        return found.astype(np.int64) if exact else labels
    return labels


def keys_of(images: Any, named: Any) -> tuple[list[str] | None, list[str]]:
    """The keys of a frame by its column `key`, or where `named` is None, by the paths of its column of images: None
    unless all differ; and notes for the summary."""
    notes, called = list[str](), "paths" if named is None else "column 'key'"
    if named is not None:
        values = named.tolist() if isinstance(named, np.ndarray) else named
        texts = ["" if _is_missing(value) else key_text(value) for value in values]
    elif isinstance(images, list) and all(isinstance(one, str | os.PathLike) for one in images):
        texts = [os.fspath(one) for one in images]
    else:
        return None, notes
    try:
        keys = unique_keys(texts, "the table", named=False, notes=notes, called=called)
    except UsageError as error:  # half of a surrogate pair
        return None, [numbered_since(str(error), called)]
    return None if keys is None else [keys.value(i) for i in range(len(keys))], notes


def keyed_rows(frame: Any) -> tuple[ListingRows, dict[str, FieldKind]] | None:
    """The rows of a DataFrame of fields, as `read_keyed` takes them, and what its columns of floats are; None for what
    is no such table. What is missing is None."""
    columns = frame_columns(frame)
    if columns is None:
        return None
    found = dict[str, list[Any]]()
    for name, column in columns.items():
        values = column.tolist() if isinstance(column, np.ndarray) else column
        values = [
            one.tolist() if isinstance(one, np.ndarray | np.generic) else one for one in values
        ]  # as JSON has them
        found[name] = [None if _is_missing(value) else value for value in values]
    kinds = {
        name: FieldKind(one.dtype.name)
        for name, one in columns.items()
        if isinstance(one, np.ndarray) and one.ndim == 1 and one.dtype.kind == "f" and name != LABEL
    }
    return ListingRows(False, [*found], enumerate(zip(*found.values(), strict=True)), "row"), kinds


def named_path(columns: Mapping[str, Any], called: Mapping[str, Any]) -> dict[str, str]:
    """{"image": its column} where a frame has images under the name of a listing's paths only. called: the names that
    the user gave. Raises UsageError where no column has such a name."""
    if IMAGE in columns or IMAGE in called:
        return {}
    path = path_column([*columns], lambda name: len(columns[name]) > 0 and is_path(columns[name][0], ""))
    if path is None:
        raise UsageError(
            f"the DataFrame has columns {listed([*map(repr, columns)], 8)}, and none is called "
            f"{', '.join((IMAGE, *PATH_NAMES))}: say which one has the images, names={{'image': 'COLUMN'}}"
        )
    return {IMAGE: path}


def named_features(features: Any, called: Mapping[str, Any]) -> dict[str, str]:
    """What Hugging Face's features call the image and the label, if their types show it: the only column of images, and
    the only one with classes. called: the names that the user gave."""
    if not isinstance(features, Mapping):
        return {}
    types = {IMAGE: "Image", LABEL: "ClassLabel"}
    fitting = {role: [name for name, one in features.items() if type(one).__name__ == types[role]] for role in types}
    free = [role for role in types if role not in features and role not in called and len(fitting[role]) == 1]
    shown = {role: fitting[role][0] for role in free if fitting[role][0] not in called.values()}
    kinds = {name: getattr(one, "dtype", None) for name, one in features.items() if name not in shown.values()}
    return shown | named_label(kinds, {**called, **shown})


def named_label(types: Mapping[str, Any], called: Mapping[str, Any]) -> dict[str, str]:
    """{"label": its column} where a column of numbers or texts has another name that says so. types: column -> int64,
    string or the like; anything else for others. called: the names that the user gave."""
    columns = [
        ColumnInfo(name, str(dtype), None, is_label=bool(_SINGLE.fullmatch(str(dtype))))
        for name, dtype in types.items()
        if name not in called.values()
    ]
    names = label_columns(columns, Habits())
    return {} if not names or LABEL in called or LABEL in types else {LABEL: names[0]}


def type_of_values(values: Any) -> str:
    """What a column, or a value of a sample, holds, as `named_label` takes it."""
    if isinstance(values, np.ndarray | np.generic):
        return str(values.dtype) if values.ndim < 2 else ""
    first = next((value for value in values if value is not None), None) if isinstance(values, list) else values
    return type(first).__name__ if type(first) in (int, float, bool, str) else ""


def class_names(features: Any, label: Any) -> list[str] | None:
    """The names of the classes of a Hugging Face dataset's column; None where it has none."""
    names = getattr(features.get(label), "names", None) if isinstance(features, Mapping) else None
    return list(names) if isinstance(names, list | tuple) else None
