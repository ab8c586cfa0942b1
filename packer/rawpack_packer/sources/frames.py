"""Tables in memory, of pandas, polars, Arrow and Hugging Face, as columns and their classes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.declared import declared_kind
from rawpack_packer.sources.fields import EXACT, FieldKind
from rawpack_packer.sources.listing.reading import PATH_NAMES
from rawpack_packer.sources.table.choose import IMAGE, LABEL, number_labels
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


_WHOLE = re.compile(r"(u?int(8|16|32|64))(\[pyarrow\])?")
_WHOLE_INSIDE = re.compile(r"\bu?int\d+")


def _values(series: Any) -> Any:
    """Times become texts. Of texts, a missing one is the empty text; else it is None."""
    dtype = str(series.dtype if hasattr(series, "dtype") else series.type).lower()
    to_list: Callable[[], list[Any]] = getattr(series, "to_list", None) or series.to_pylist
    if "struct" in dtype:  # polars' arrays of these have no names
        return to_list()
    array: NDArray[Any] = series.to_numpy()
    if array.dtype.kind in "mM":
        return ["" if np.isnat(one) else str(one) for one in array]
    whole = _WHOLE.fullmatch(dtype)
    if whole and array.dtype.kind not in "iu":  # libraries make floats of them, which are rounded
        values, kind = to_list(), np.dtype(whole[1])
        mask = [_is_missing(value) for value in values]
        return np.ma.MaskedArray([0 if no else one for one, no in zip(values, mask, strict=True)], mask, kind)
    if array.dtype.kind in "biufc":
        return array
    inside = _WHOLE_INSIDE.search(dtype) and any(isinstance(one, np.ndarray) and one.dtype.kind == "f" for one in array)
    values = [None if _is_missing(value) else value for value in (to_list() if inside else array.tolist())]
    present = [value for value in values if value is not None]
    are_texts = bool(present) and all(isinstance(value, str) for value in present)
    return ["" if value is None else value for value in values] if are_texts else values


def _is_missing(value: Any) -> bool:
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def checked_numbers(columns: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of a frame, where a missing number of a class is -1, and other missing whole numbers are NaN if the
    column is declared as floats. Raises UsageError for those that are not, and for what a float cannot represent."""
    return {name: _checked(name, column, declared.get(name)) for name, column in columns.items()}


def _checked(name: str, column: Any, declared: Any) -> Any:
    if name == LABEL and isinstance(column, np.ndarray) and declared is None:
        return _whole_labels(column)
    if not np.ma.isMaskedArray(column):
        return column
    kind = None if declared is None else declared_kind(name, declared)
    dtype = np.dtype(kind.dtype) if isinstance(kind, FieldKind) and kind.dtype.startswith("float") else None
    if dtype is None:
        row = int(np.flatnonzero(column.mask)[0])
        raise UsageError(
            f"the table: column {plain(name)!r} of whole numbers has no value in row {row}: fill it in, or declare "
            f"{opt.fields(f'{name}:float64')} (NaN)"
        )
    made = np.ma.filled(column.astype(dtype), np.nan)
    pairs = enumerate(zip(made.tolist(), column.tolist(), strict=True))
    for row, (one, number) in pairs:
        if number is not None and one != number:
            raise UsageError(f"the table: column {plain(name)!r}, row {row}: {dtype} cannot represent {number}")
    return made


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


def named_path(columns: Mapping[str, Any], called: Mapping[str, Any]) -> dict[str, str]:
    """{"image": its column} where a frame has images under the name of a listing's paths only. called: the names that
    the user gave. Raises UsageError where no column has such a name."""
    if IMAGE in columns or IMAGE in called:
        return {}
    path = next((name for name in PATH_NAMES if name in columns), None)
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
    return {role: fitting[role][0] for role in free if fitting[role][0] not in called.values()}


def class_names(features: Any, label: Any) -> list[str] | None:
    """The names of the classes of a Hugging Face dataset's column; None where it has none."""
    names = getattr(features.get(label), "names", None) if isinstance(features, Mapping) else None
    return list(names) if isinstance(names, list | tuple) else None
