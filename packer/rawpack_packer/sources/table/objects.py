"""The objects of images: their boxes, image after image, their classes, and what else is known of each of them.

A table may have them as a row for each box, as lists in a column, or in files of their own: all of them end here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.fields import RESERVED, BoxForm, FieldKind, check_names
from rawpack_packer.sources.numbers import is_far
from rawpack_packer.sources.table.choose import Classes, Labels, no_classes, number_labels
from rawpack_packer.sources.table.columns import Column, RaggedColumn, Rows, ends_of
from rawpack_packer.text import count, listed, plain

BOXES = "boxes"
BOX_NAMES = ("bbox", "bboxes", "box", "boxes")
"""What four numbers for each object are called, in lower case."""
CLASS_NAMES = (
    "label", "labels", "class", "classes", "labelname", "category", "categories", "class_name", "category_name",
    "class_id", "category_id", "class_label",
)  # fmt: skip
"""What the classes of objects are called, in lower case; the first that occurs."""


MOST_CLASSES = 1 << 24
"""The largest class number that the float32 of boxes keeps apart from its neighbors."""


@dataclass(frozen=True, eq=False)
class Objects:
    """The objects of all images."""

    boxes: NDArray[np.float64]
    """(m, 4)."""
    form: BoxForm
    ends: Rows
    """(n + 1,): those of image i are ends[i] to ends[i + 1]."""
    labels: Labels | None = None
    """The class of each."""
    others: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    """Name of a field -> its value for each object."""
    sizes: Rows | None = None
    """See `RaggedColumn`."""
    shown: tuple[str, ...] = ()
    """The declaration that says of the column what its boxes show, if the user did not say it."""
    faults: Mapping[int, str] = field(default_factory=dict)
    """Images that are rejected, which have no objects here: number -> what is wrong, and where."""
    left_out: tuple[str, ...] = ()
    """A line for what else was known of them, if there is any."""

    def fields(self) -> tuple[dict[str, FieldKind], dict[str, Column]]:
        """`boxes` and the others. Raises UsageError for names that no fields can have."""
        parts = [self.boxes] if self.labels is None else [self.boxes, self.labels.numbers[:, None]]
        if self.form == "yolo":  # which has the class first; -1 is none
            parts = [np.full((len(self.boxes), 1), -1) if self.labels is None else parts[1], self.boxes]
        if self.labels is not None and len(large := self.labels.numbers[self.labels.numbers > MOST_CLASSES]):
            raise UsageError(
                f"the class of a box is {large[0]}, and boxes are float32, which has whole numbers up to "
                f"{MOST_CLASSES}: number the classes from 0"
            )
        rows = np.concatenate(parts, axis=1, dtype=np.float64)
        kinds = {BOXES: FieldKind("float32", (None, rows.shape[1]), boxes=self.form)}
        columns: dict[str, Column] = {BOXES: RaggedColumn(rows, self.ends, self.form, self.sizes, self.faults)}
        for name, values in self.others.items():
            kinds[name] = FieldKind(values.dtype.name, (None, *values.shape[1:]), follows="rows")
            columns[name] = RaggedColumn(values, self.ends)
        check_names(kinds)
        return kinds, columns


def all_faulty(lengths: Rows, faults: Mapping[int, str]) -> str:
    """What is wrong where not even one object could be read, or "". lengths: how many each image has. faults: see
    `Objects`."""
    if not faults or np.delete(lengths, [*faults]).any():
        return ""
    first, *more = faults.values()
    return plain(first) + (f"; nor can the annotations of {count(len(more), 'other image')} be read" if more else "")


class UnknownFormError(UsageError):
    """Nothing says how boxes are written."""

    def __init__(self, where: str, column: str) -> None:
        name = plain(column)
        super().__init__(
            f"{where}: the numbers of {name!r} may be left, top, right, bottom or left, top, width, height: say which, "
            f"{opt.fields(f'{name}:xyxy')} or {name}:xywh"
        )
        self.column = column


def form_of(boxes: NDArray[np.float64], declared: BoxForm | None, name: str, where: str) -> BoxForm:
    """How boxes of which nobody says more than four numbers are written: as declared; or as left, top, width, height,
    if some would otherwise end before they begin. Raises UnknownFormError where both are possible. boxes: (m, 4).
    name: of their column. where: the source, printable."""
    if declared is not None:
        return declared
    if (boxes[:, 2:] < boxes[:, :2]).any():
        return "xywh"
    raise UnknownFormError(where, name)


def halves(sides: NDArray[np.float64]) -> NDArray[np.float64]:
    """Left, top, right, bottom as center x, center y, width, height. (m, 4)."""
    return np.concatenate([(sides[:, :2] + sides[:, 2:]) / 2, sides[:, 2:] - sides[:, :2]], axis=1)


class ObjectLists:
    """Collects objects that each image has as lists, {"bbox": [[1, 2, 3, 4]], "category": [0]}, or one by one,
    [{"bbox": [1, 2, 3, 4], "category": 0}]."""

    def __init__(self, name: str, where: str, row_name: Callable[[int], str], unread: Sequence[str] = ()) -> None:
        """name: of the column. row_name: what row i is called in messages. unread: the names of what else the objects
        have, which is left out."""
        self._name, self._where, self._row_name, self._unread = name, where, row_name, unread
        self._lists: dict[str, list[Any]] = {}
        self._lengths: list[int] = []
        self._faults: dict[int, str] = {}
        self._cure = f"{opt.fields(f'{plain(name)}:str')} keeps all as text"

    def add(self, values: Iterable[Any]) -> None:
        """The objects of the next images."""
        for value in values:
            try:
                lists = self._of(value)
            except ValueError as error:
                row = len(self._lengths)
                self._faults[row], lists = f"{plain(self._name)} of {self._row_name(row)}: {error}", {}
            length = len(next(iter(lists.values()), ()))
            for name in [one for one in lists if one not in self._lists]:
                self._lists[name] = [None] * sum(self._lengths)
            for name, kept in self._lists.items():
                kept += lists.get(name, [None] * length)
            self._lengths.append(length)

    def _of(self, value: Any) -> dict[str, list[Any]]:
        """The objects of an image, as lists. Raises ValueError."""
        if value is None or value == "":
            return {}
        if isinstance(value, list) and all(isinstance(one, dict) for one in value):
            value = {name: [one.get(name) for one in value] for name in dict.fromkeys(chain.from_iterable(value))}
        if not isinstance(value, dict) or not all(one is None or isinstance(one, list) for one in value.values()):
            raise ValueError("it is no object of lists, as {'bbox': [[1, 2, 3, 4]], 'category': [0]}")
        lists = {name: one for name, one in value.items() if one is not None}
        if len({*map(len, lists.values())}) > 1:
            raise ValueError(f"its lists differ in length: {', '.join(f'{k} {len(v)}' for k, v in lists.items())}")
        of_boxes, name = named_in(lists, BOX_NAMES), named_in(lists, CLASS_NAMES)
        if any(lists.values()) and (of_boxes is None or not all(map(_is_box, lists[of_boxes]))):
            raise ValueError(f"{of_boxes or 'bbox'} is not four numbers for each object")
        if name is not None and not all(map(_is_class, lists[name])):
            raise ValueError(f"{name} is not one name or whole number for each object")
        return lists

    def finish(
        self, form: BoxForm | None, classes: Classes | None, known: Sequence[str] | None, taken: Iterable[str]
    ) -> Objects:
        """All of them. form: as declared. classes, known: see `number_labels`. taken: names of other fields. Raises
        UsageError."""
        if wrong := all_faulty(np.array(self._lengths), self._faults):
            raise UsageError(f"{self._where}: {wrong}: {self._cure}")
        rows = self._lists.pop(named_in(self._lists, BOX_NAMES) or "", [])
        boxes = np.array(rows, np.float64).reshape(-1, 4)
        ends, labels, others = ends_of(self._lengths), None, dict[str, NDArray[Any]]()
        apart = {one.lower() for one in (*taken, *RESERVED, BOXES)}
        if (name := named_in(self._lists, CLASS_NAMES)) is not None:
            labels = number_labels(
                self._lists.pop(name), classes, where=self._where, known=known,
                row_name=lambda i: self._row_name(int(np.searchsorted(ends, i, "right")) - 1),
            )  # fmt: skip
        left_out = [*self._unread]
        for name, values in self._lists.items():
            array = None if None in values else as_numbers(values)
            if (i := _lost(values, array)) is not None:
                row = self._row_name(int(np.searchsorted(ends, i, "right")) - 1)
                what = f"{name} is {values[i]}, which no dtype that fits the others can represent"
                raise UsageError(f"{self._where}: {plain(self._name)} of {row}: {what}: {self._cure}")
            if array is None:
                left_out.append(name)
                continue
            others[f"{self._name}_{name}" if name.lower() in apart else name] = array
        try:
            check_names(others)
        except UsageError as error:
            raise UsageError(f"{self._where}: {plain(self._name)}: {error}; or {self._cure}") from error
        chosen = form_of(boxes, form, self._name, self._where)
        shown = () if form else (f"{self._name}:{chosen}",)
        line = of_objects([*dict.fromkeys(left_out)])
        return Objects(boxes, chosen, ends, labels, others, shown=shown, faults=self._faults, left_out=line)


def _is_box(value: Any) -> bool:
    numbers = value if isinstance(value, list) and len(value) == 4 else [None]
    return all(isinstance(side, float) or (isinstance(side, int) and not is_far(side)) for side in numbers)


def _is_class(value: Any) -> bool:
    return value is None or isinstance(value, str | int) or (isinstance(value, float) and value.is_integer())


def named_in(names: Iterable[str], wanted: Sequence[str]) -> str | None:
    """The first of the wanted names that is there, in any case."""
    lower = in_lower_case(names)
    return next((lower[name] for name in wanted if name in lower), None)


def in_lower_case(names: Iterable[str]) -> dict[str, str]:
    """Names by what they are in lower case: of several, the one that is written so, or else the first."""
    every = [*names]
    return {name.lower(): name for name in reversed(every)} | {name: name for name in every if name == name.lower()}


def as_numbers(values: Sequence[Any]) -> NDArray[Any] | None:
    """One number for each object; None where they are something else."""
    try:
        array = np.array(values)
    except ValueError:
        return None
    return array if array.ndim == 1 and array.dtype.kind in "biuf" else None


def lists_of_boxes(kinds: Mapping[str, FieldKind]) -> list[str]:
    """The fields that may have a value for each box: lists of numbers, where boxes are `boxes`."""
    boxes = kinds.get(BOXES)
    if boxes is None or not boxes.boxes:
        return []
    lists = {name: kind for name, kind in kinds.items() if kind.ragged and kind.dtype != "str"}
    return [name for name, kind in lists.items() if not (kind.boxes or kind.follows)]


def with_followers(kinds: Mapping[str, FieldKind], names: Iterable[str]) -> dict[str, FieldKind]:
    """Fields, of which those named have a value for each box, unless the user says that they do not move."""
    return {**kinds, **{name: replace(kinds[name], follows="rows") for name in names if not kinds[name].array}}


def labels_of_boxes(
    names: Sequence[str], boxes: Sequence[tuple[NDArray[Any], Callable[[int, str], UsageError]]]
) -> Labels:
    """The classes of boxes. boxes: the class numbers of each field of boxes, and what makes the error for one by its
    position, which is raised for a number that is no class."""
    for numbers, fault in boxes:
        for i in np.flatnonzero(no_classes(numbers, len(names)))[:1]:
            what = f"{numbers[i]:.15g} is the class of a box; there are {len(names)} classes, counted from 0"
            raise fault(int(i), what)
    return Labels(np.concatenate([numbers for numbers, _ in boxes]).astype(np.int64), tuple(names))


def _lost(values: Sequence[Any], array: NDArray[Any] | None) -> int | None:
    """The position of the first whole number that is another one in an array of floats, or too large for any array."""
    if array is None and all(type(value) in (int, float) for value in values):
        return next(i for i, value in enumerate(values) if not -(1 << 63) <= value < 1 << 64)
    if array is None or array.dtype.kind != "f":
        return None
    return next((i for i, value in enumerate(values) if type(value) is int and int(array[i]) != value), None)


def two_classes(of_images: Labels | None, of_boxes: Labels | None) -> list[str]:
    """A line where images have classes of their own, so that a store cannot name those of boxes."""
    if of_images is None or of_boxes is None or of_boxes.names in (None, of_images.names):
        return []
    return [f"boxes have the numbers of classes whose names are not kept, as images have others: "
            f"{listed(of_boxes.names or (), 8)}"]  # fmt: skip


def of_objects(names: Sequence[str]) -> tuple[str, ...]:
    """A line for what is known of objects and cannot be a field."""
    return (f"of the boxes, left out because they are not one number each: {listed(names, 8)}",) if names else ()
