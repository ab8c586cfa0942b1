"""Tables in memory, of pandas, polars and Hugging Face, as columns and their classes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.sources.listing.reading import PATH_NAMES
from rawpack_packer.sources.table.choose import IMAGE, LABEL
from rawpack_packer.text import listed, plain


def frame_columns(frame: Any) -> dict[str, Any] | None:
    """The columns of a DataFrame of pandas or polars by their names: arrays of numbers, and lists of anything else;
    None for what is no DataFrame. Raises UsageError for two columns of one name."""
    if type(frame).__module__.partition(".")[0] not in ("pandas", "polars") or type(frame).__name__ != "DataFrame":
        return None
    names = [*map(str, frame.columns)]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise UsageError(f"the DataFrame has two columns {plain(twice[0])!r}: rename one")
    return {name: _values(frame[of_frame]) for name, of_frame in zip(names, frame.columns, strict=True)}


def _values(series: Any) -> Any:
    """Times become texts. Of texts, a missing one is the empty text; else it is None."""
    if "Struct" in str(series.dtype):  # polars' arrays of these have no names
        return series.to_list()
    array: NDArray[Any] = series.to_numpy()
    if array.dtype.kind in "mM":
        return ["" if np.isnat(one) else str(one) for one in array]
    if array.dtype.kind in "biufc":
        return array
    values = [None if _is_missing(value) else value for value in array.tolist()]
    present = [value for value in values if value is not None]
    are_texts = bool(present) and all(isinstance(value, str) for value in present)
    return ["" if value is None else value for value in values] if are_texts else values


def _is_missing(value: Any) -> bool:
    nan = isinstance(value, float) and math.isnan(value)
    return value is None or nan or type(value).__name__ in ("NAType", "NaTType")


def whole_labels(labels: Any) -> Any:
    """A column of labels in which missing whole numbers made floats, with -1 for these; any other as it is."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind == "f" and np.isnan(labels).any():
        found = np.where(np.isnan(labels), -1, labels)
        return found.astype(np.int64) if (found == np.rint(found)).all() else labels
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
