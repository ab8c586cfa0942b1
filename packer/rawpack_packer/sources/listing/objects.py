"""Objects in a listing: a row for each box, of which those of one image become one sample, as in Open Images' files; or
a column of lists, as `objects` in Hugging Face's metadata.jsonl."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.errors import reading
from rawpack_packer.sources.beside import ENDS
from rawpack_packer.sources.fields import BoxForm, DeclaredKind, FieldKind
from rawpack_packer.sources.listing.columns import RawColumn
from rawpack_packer.sources.listing.lines import Lines
from rawpack_packer.sources.path_fields import path_template
from rawpack_packer.sources.table.choose import Classes, Labels
from rawpack_packer.sources.table.columns import Numbers, ends_of
from rawpack_packer.sources.table.objects import (
    BOX_NAMES,
    CLASS_NAMES,
    ObjectLists,
    Objects,
    form_of,
    halves,
    named_in,
    of_objects,
)
from rawpack_packer.sources.video import EXTENSIONS as VIDEO_EXTENSIONS
from rawpack_packer.text import plain

_SIDES: dict[tuple[str, str, str, str], BoxForm] = {
    ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x_min", "y_min", "x_max", "y_max"): "xyxy",
    ("x1", "y1", "x2", "y2"): "xyxy",
    ("x", "y", "w", "h"): "xywh",
}
_IDS = ("imageid", "image_id", "image", "img", "image_name", "img_id")
"""Names of columns of images, in lower case, where boxes have a row each and none is a column of paths."""
_OF_IMAGE = ("width", "height", "image_width", "image_height", "img_width", "img_height")


@dataclass(frozen=True)
class BoxColumns:
    """The columns of a listing that has a row for each box."""

    images: tuple[str, ...]
    """Those that name the image of a row."""
    sides: tuple[str, ...]
    """Four columns, or one of lists of four numbers."""
    form: BoxForm | None
    """None where the user has to say it."""
    label: str | None
    sure: bool = True
    """Whether each row is a box: not where boxes are lists next to a column of paths, and each image has one row."""


def box_columns(
    names: Sequence[str], path: str | None, label: str | None, declared: Mapping[str, DeclaredKind]
) -> BoxColumns | None:
    """The columns of boxes, by their names; None where there are none. path: how paths are made, or the column of
    images. label: the column of classes, where the user names it. declared: columns that are declared are no sides."""
    lower = {name.lower(): name for name in names}
    if path is None or path in names:
        images = [one for one in (path or named_in(names, _IDS),) if one is not None]
    else:
        images = path_template(path).columns
    if not images or not {*images} <= {*names}:
        return None
    label = label or named_in([name for name in names if name not in images], CLASS_NAMES)
    for sides, form in _SIDES.items():
        found = tuple(lower[side] for side in sides if side in lower)
        if len(found) == len(sides) and not declared.keys() & {*found}:
            return BoxColumns(tuple(images), found, form, label)
    name = named_in(names, BOX_NAMES)
    kind = None if name is None else declared.get(name)
    if name is None or isinstance(kind, str) or (kind is not None and not kind.boxes):
        return None
    return BoxColumns(tuple(images), (name,), kind.boxes if kind else None, label, sure=path is None)


@dataclass(frozen=True)
class ByImage:
    """A listing of which the rows of each image have become one."""

    lines: Lines
    raw: dict[str, RawColumn]
    """What is known of images."""
    objects: Objects
    left_out: list[str]
    """A line for columns that neither images nor boxes have as fields."""
    files: list[Path]
    """Other files that were read."""


def by_image(
    lines: Lines,
    raw: Mapping[str, RawColumn],
    found: BoxColumns,
    declared: Mapping[str, DeclaredKind],
    classes: Classes | None,
) -> ByImage | None:
    """The images in the order of their first rows; None where they are videos, or may have one row each. Raises
    BadListingError."""
    numbers, image_of, firsts = dict[tuple[str, ...], int](), np.empty(len(lines), np.int64), list[int]()
    for row, names in enumerate(zip(*(chain.from_iterable(raw[one]) for one in found.images), strict=True)):
        image_of[row] = number = numbers.setdefault(names, len(numbers))
        if number == len(firsts):
            firsts.append(row)
    is_video = os.path.splitext(str(next(iter(numbers))[0]))[1].lower() in VIDEO_EXTENSIONS  # noqa: PTH122
    if is_video or (not found.sure and len(firsts) == len(lines)):
        return None
    boxes = _boxes(raw, found.sides)
    missing = np.isnan(boxes)
    for row in np.flatnonzero(missing.any(axis=1) & ~missing.all(axis=1))[:1]:
        side = found.sides[int(missing[row].argmax())]
        raise raw[side].fault(int(row), "is empty, and the other sides of the box are not")
    there = np.flatnonzero(~missing.all(axis=1))  # a row without a box is an image without boxes
    order = np.argsort(image_of[there], kind="stable")
    boxes, form = boxes[there][order], found.form
    where = raw[found.sides[0]].place.where
    form = form_of(boxes, form, found.sides[0], where)
    if form == "xyxy" and len(boxes) and boxes.min() >= 0 and boxes.max() <= 1:
        boxes, form = halves(boxes), "yolo"
    labels, files = None, list[Path]()
    if found.label is not None:
        labels, files = _labels(raw[found.label].pick(there), classes)
    if labels is not None:
        labels = replace(labels, numbers=labels.numbers[order])
    kept, others, left_out = {name: raw[name].pick(np.array(firsts)) for name in found.images}, {}, list[str]()
    for name, column in raw.items():
        if name in (*found.images, *found.sides, found.label):
            continue
        kind = declared.get(name)
        of_image = name.lower() in _OF_IMAGE or not isinstance(column.first(), int | float)
        if isinstance(kind, str) or (kind is not None and (kind.is_pixels or kind.dtype == "str")):
            kept[name] = column.pick(np.array(firsts))
        elif kind is not None or not of_image:
            others[name] = _numbers(column.pick(there), kind)[order]
        elif _are_alike(column, image_of, firsts):
            kept[name] = column.pick(np.array(firsts))
        else:
            left_out.append(name)
    ends = ends_of(np.bincount(image_of[there], minlength=len(firsts)))
    objects = Objects(boxes, form, ends, labels, others)
    return ByImage(lines[firsts], kept, objects, of_objects(left_out), files)


def _boxes(raw: Mapping[str, RawColumn], sides: Sequence[str]) -> NDArray[np.float64]:
    """(m, 4): the boxes of all rows, NaN where there is none."""
    number = FieldKind("float64", (4,) if len(sides) == 1 else ())
    columns = [_numbers(raw[side], number) for side in sides]
    return columns[0] if len(sides) == 1 else np.stack(columns, axis=1)


def _numbers(column: RawColumn, kind: FieldKind | None) -> NDArray[Any]:
    values = column.converted(kind)[1]
    assert isinstance(values, Numbers)  # there is one in each row
    return values.values


def _labels(column: RawColumn, classes: Classes | None) -> tuple[Labels | None, list[Path]]:
    """The classes of boxes; those of Open Images by the names in the file next to it, which is named, too."""
    first = column.first()
    for file in () if classes is not None else _described_by(Path(column.place.where).parent):
        with reading(plain(os.fspath(file))), file.open(newline="", encoding="utf-8") as rows:
            of_id = {row[0]: row[1] for row in csv.reader(rows) if len(row) == 2}
        found = column.labels(None, [*of_id])[2] if first in of_id else None
        if found is not None:
            names = [*of_id.values()]  # a name may be that of two classes
            unique = [one if names.count(one) == 1 else f"{one} {number}" for number, one in of_id.items()]
            return replace(found, names=tuple(unique)), [file]
    return column.labels(None, classes)[2], []


def _described_by(folder: Path) -> list[Path]:
    return sorted(folder.glob("*class-descriptions*.csv"))


def _are_alike(column: RawColumn, image_of: Lines, firsts: Sequence[int]) -> bool:
    """Whether all rows of each image have the same value."""
    values = [*chain.from_iterable(column)]
    return all(values[firsts[number]] == value for number, value in zip(image_of.tolist(), values, strict=True))


def image_path(found: BoxColumns, raw: Mapping[str, RawColumn], root: str) -> str:
    """The column of paths, or how they are made of one that lacks the extension of the images."""
    name, first = found.images[0], raw[found.images[0]].first()
    if os.path.isfile(os.path.join(root, str(first))):  # noqa: PTH113, PTH118
        return name
    ends = [end for end in ENDS if os.path.isfile(os.path.join(root, f"{first}{end}"))]  # noqa: PTH113, PTH118
    return f"{{{name}}}{ends[0]}" if ends else name


def object_lists(
    name: str, column: RawColumn, kind: DeclaredKind | None, classes: Classes | None, taken: Iterable[str]
) -> tuple[Objects, list[str]] | None:
    """The objects in a column of JSON, and what is left out of them; None where it has none. kind: as it is declared.
    taken: names of other fields. Raises UsageError."""
    first = column.first()
    some = first[0] if isinstance(first, list) and first else first
    declared = kind.boxes if isinstance(kind, FieldKind) else None
    if not isinstance(some, dict) or named_in(some, BOX_NAMES) is None or (kind is not None and declared is None):
        return None
    lists = ObjectLists(name, column.place.where, lambda row: f"line {column.lines[row]}")
    for block in column:
        lists.add(block)
    return lists.finish(declared, classes, None, taken)
