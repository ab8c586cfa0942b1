"""Rows that repeat an image, which become one sample: with boxes, as in Open Images' files, or another text in each, as
Flickr30k's captions; and objects in a column of lists, as `objects` in Hugging Face's metadata.jsonl."""

from __future__ import annotations

import os
import pickle
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows
from rawpack_packer.sources.beside import ENDS
from rawpack_packer.sources.fields import BoxForm, DeclaredKind, FieldKind
from rawpack_packer.sources.listing.columns import ListedRows, RawColumn
from rawpack_packer.sources.listing.lines import BadListingError, read_cells, shown
from rawpack_packer.sources.path_fields import path_template
from rawpack_packer.sources.table.choose import Classes, Labels
from rawpack_packer.sources.table.columns import Numbers, ends_of
from rawpack_packer.sources.table.objects import (
    BOX_NAMES,
    CLASS_NAMES,
    ObjectLists,
    Objects,
    all_faulty,
    form_of,
    halves,
    in_lower_case,
    named_in,
    of_objects,
)
from rawpack_packer.sources.video import names_video
from rawpack_packer.text import count, listed, plain

_SIDES: dict[tuple[str, str, str, str], BoxForm] = {
    ("xmin", "ymin", "xmax", "ymax"): "xyxy",
    ("x_min", "y_min", "x_max", "y_max"): "xyxy",
    ("x1", "y1", "x2", "y2"): "xyxy",
    ("x", "y", "w", "h"): "xywh",
}
_IDS = ("imageid", "image_id", "image", "img", "image_name", "img_id")
"""Names of columns of images, in lower case, where boxes have a row each and none is a column of paths."""
_NO_CLASS = ["LabelName", "DisplayName"]
"""The first line of Open Images' file of names, from version 7 on."""
_HAIR = 0.05
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
    lower, images = in_lower_case(names), [path or named_in(names, _IDS)]
    if path is not None and path not in names and "{" in path:
        images = [*path_template(path, names).columns]
    if not {*images, *([label] if label else [])} <= {*names}:
        return None  # whoever chooses columns says so
    image_columns = tuple(map(str, images))
    label = label or named_in([name for name in names if name not in {*images, *declared}], CLASS_NAMES)
    for sides, form in _SIDES.items():
        columns = tuple(lower[side] for side in sides if side in lower)
        if len(columns) == len(sides) and not declared.keys() & {*columns}:
            return BoxColumns(image_columns, columns, form, label)
    name = named_in(names, BOX_NAMES)
    kind = None if name is None else declared.get(name)
    if name is None or isinstance(kind, str) or (kind is not None and not kind.boxes):
        return None
    return BoxColumns(image_columns, (name,), kind.boxes if kind else None, label, sure=path is None)


def by_image(
    rows: ListedRows,
    columns: BoxColumns,
    declared: Mapping[str, DeclaredKind],
    classes: Classes | None,
    beside: Path,
) -> ListedRows | None:
    """The images in the order of their first rows; None where they are videos, or may have one row each. beside: the
    folder of the listing. Raises BadListingError."""
    raw = rows.raw
    images = images_of([raw[name] for name in columns.images], rows.lines)
    image_of, firsts = images.of_rows, images.firsts
    if names_video(raw[columns.images[0]].first()) or not (columns.sure or images.repeat):
        return None
    boxes, form, with_box, shown, wrong = _boxes(raw, columns)
    faults = {int(image_of[row]): what for row, what in sorted(wrong.items(), reverse=True)}
    sound = ~np.isin(image_of[with_box], [*faults])
    boxes, with_box = boxes[sound], with_box[sound]
    image_of_box = image_of[with_box]
    counts = np.bincount(image_of_box, minlength=len(firsts))
    if message := all_faulty(counts, faults):
        raise BadListingError(f"{raw[columns.sides[0]].place.where}: {message}")
    order = np.argsort(image_of_box, kind="stable")
    kept, others, left_out = {name: raw[name].pick(firsts) for name in columns.images}, {}, list[str]()
    labels, files = None, list[Path]()
    for name, column in raw.items():
        kind = declared.get(name)
        if name in (*columns.images, *columns.sides):
            continue
        if name == columns.label:
            labels, files = _labels(column.pick(with_box), classes, beside)
            faults |= {int(image_of_box[row]): what for row, what in labels.faults.items()}
            labels = replace(labels, numbers=labels.numbers[order], faults={})
        elif isinstance(kind, str) or (kind is not None and (kind.is_pixels or kind.dtype == "str")):
            kept[name] = column.pick(firsts)
        elif kind is not None or (isinstance(column.first(), int | float) and name.lower() not in _OF_IMAGE):
            numbers = column.pick(with_box).converted(kind)[1]
            assert isinstance(numbers, Numbers)  # there is one in each row
            others[name] = numbers.values[order]
            faults |= {int(image_of_box[row]): what for row, what in numbers.faults.items()}
        elif are_alike(column, image_of, firsts):
            kept[name] = column.pick(firsts)
        else:
            left_out.append(name)
    line = of_objects(left_out)
    objects = Objects(
        boxes[order], form, ends_of(counts), labels, others, shown=shown, faults=faults, left_out=line
    )  # fmt: skip
    return ListedRows(images.lines, kept, objects, files=files)


def by_caption(rows: ListedRows, images: Sequence[str], single: Container[str]) -> ListedRows | None:
    """The images in the order of their first rows; None where each has one row, or rows of one differ in more than
    texts. images: the columns that name images. single: columns of one value for each."""
    lines, raw = rows.lines, rows.raw
    of_images = images_of([raw[name] for name in images], lines)
    image_of, firsts = of_images.of_rows, of_images.firsts
    if not of_images.repeat or names_video(raw[images[0]].first()):
        return None
    kept, texts, left_out = dict[str, RawColumn](), list[str](), list[str]()
    for name, column in raw.items():
        if name in images or are_alike(column, image_of, firsts):
            kept[name] = column.pick(firsts)
        elif name in single:
            return None
        elif isinstance(column.first(), str):
            lists: list[list[str]] = [[] for _ in firsts]
            for image, value in zip(image_of.tolist(), chain.from_iterable(column), strict=True):
                lists[image] += [] if column.place.empty(value) else [value]
            place = replace(column.place, number=0, cells=False)  # as JSON has them
            kept[name] = replace(column, place=place, lines=lines[firsts], blocks=[pickle.dumps(lists, -1)])
            texts.append(name)
        else:
            left_out.append(name)
    if not texts:
        return None
    done = [f"{count(len(lines), 'row')} of {count(len(firsts), 'image')}: lists of texts for each, {listed(texts, 8)}"]
    done += [f"left out because rows of one image differ in them: {listed(left_out, 8)}"] if left_out else []
    return ListedRows(of_images.lines, kept, left_out=done)


@dataclass(frozen=True, eq=False)
class RowImages:
    """The images of rows."""

    of_rows: Rows
    """(n,): the number of each row's image."""
    firsts: Rows
    """(m,): the first row of each image that is whole, if any is."""
    lines: Rows
    """(m,): that of the first row, or a broken line of the image."""
    repeat: bool
    """Whether several whole rows are of one image."""


def images_of(names: Sequence[RawColumn], lines: Rows) -> RowImages:
    """names: columns that name images. lines: of all rows. Raises BadListingError for a value that names none."""
    for column in names:
        for first, block in column.numbered():
            if {dict, list} & {*map(type, block)}:
                row = next(i for i, value in enumerate(block) if isinstance(value, dict | list))
                raise column.fault(first + row, f"{shown(block[row])} is not a path: give the path of a file")
    numbers, image_of, firsts = dict[tuple[Any, ...], int](), np.empty(len(lines), np.int64), list[int]()
    broken = np.isin(lines, [*names[0].place.broken])
    rows: Iterable[tuple[int, Any]] = enumerate(zip(*map(chain.from_iterable, names), strict=True))
    for row, values in sorted(rows, key=lambda pair: bool(broken[pair[0]])) if broken.any() else rows:
        image_of[row] = number = numbers.setdefault(values, len(numbers))
        if number == len(firsts):
            firsts.append(row)
    order = np.argsort(firsts)
    image_of, first_rows = np.argsort(order)[image_of], np.array(firsts)[order]
    of_images = lines[first_rows]
    of_images[image_of[broken]] = lines[broken]
    whole = image_of[~broken]
    return RowImages(image_of, first_rows, of_images, len(np.unique(whole)) < len(whole))


def _boxes(
    raw: Mapping[str, RawColumn], columns: BoxColumns
) -> tuple[NDArray[np.float64], BoxForm, Rows, tuple[str, ...], dict[int, str]]:
    """(m, 4): the boxes of all rows that have one, their form, and (m,): these rows; `Objects.shown`; and the rows
    whose boxes cannot be read, and why. A row without a box is an image without boxes. Raises BadListingError."""
    wrong, name = dict[int, str](), columns.sides[0]
    if len(columns.sides) == 1:
        boxes, empty = raw[name].numbers(4, wrong)
    else:
        sides = [raw[side].numbers(1, wrong) for side in columns.sides]
        boxes, missing = np.hstack([numbers for numbers, _ in sides]), np.stack([empty for _, empty in sides], axis=1)
        empty = np.all(missing, axis=1)
        for row in np.flatnonzero(missing.any(axis=1) & ~empty).tolist():
            side = raw[columns.sides[int(missing[row].argmax())]]
            wrong.setdefault(row, side.place_of(row, "is empty, and the other sides of the box are not"))
    rows = np.flatnonzero(~empty & ~np.isin(np.arange(len(boxes)), [*wrong]))
    boxes = boxes[rows]
    form = form_of(boxes, columns.form, name, raw[name].place.where)
    shown = () if columns.form else (f"{name}:{form}",)
    if form in ("xyxy", "xywh") and len(boxes):
        corners = boxes if form == "xyxy" else np.hstack([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]])
        inside = np.all((corners >= -_HAIR) & (corners <= 1 + _HAIR), axis=1)
        if _are_shares(boxes, inside):
            for k in np.flatnonzero(~inside).tolist():
                row, box = int(rows[k]), ", ".join(f"{side:g}" for side in boxes[k])
                what = f"the box ({box}) is not of shares of the image, from 0 to 1, as those of other rows are"
                wrong.setdefault(row, raw[name].place_of(row, what))
            return halves(corners), "yolo", rows, shown, wrong
    return boxes, form, rows, shown, wrong


def _are_shares(sides: NDArray[np.float64], inside: NDArray[np.bool_]) -> bool:
    """Whether the numbers of boxes are shares of the image's sides: those of most boxes, some of which may be a hair
    outside, since numbers of pixels would be larger, or whole. inside: which boxes are in the image then."""
    whole = sides[inside] % 1 == 0
    return bool(2 * inside.sum() > len(sides) and (not whole.all() or (inside.all() and (sides >= 0).all())))


def _labels(column: RawColumn, classes: Classes | None, beside: Path) -> tuple[Labels, list[Path]]:
    """The classes of boxes; those of Open Images by the names in the file next to it, which is named, too. Raises
    BadListingError."""
    first = column.first()
    for file in () if classes is not None else sorted(beside.glob("*class-descriptions*.csv")):
        where = plain(os.fspath(file))
        with reading(where), file.open("rb") as opened:
            table = read_cells(opened, where, ",")  # without names of columns, or with those
            rows = [table.names, *(row for line, row in table.rows if line not in table.broken)]
        of_id = {row[0]: row[1] for row in rows if len(row) == 2 and row != _NO_CLASS}
        labels = column.labels(None, [*of_id])[2] if isinstance(first, str) and first in of_id else None
        if labels is not None:
            names = [*of_id.values()]  # a name may be that of two classes
            unique = [name if names.count(name) == 1 else f"{name} {number}" for number, name in of_id.items()]
            return replace(labels, names=tuple(unique)), [file]
    if (labels := column.labels(None, classes)[2]) is not None:
        return labels, []
    values = [*chain.from_iterable(column.values())]
    whole = (isinstance(value, float) and value.is_integer() for value in values)
    row = next((i for i, ok in enumerate(whole) if not ok and type(values[i]) not in (NoneType, int)), 0)
    what = "is no class of a box, as names and whole numbers are"
    number = opt.fields(f"{column.place.name}:float64")
    raise column.fault(row, f"{shown(values[row])} {what}; {number} makes it a number of each box")


def are_alike(column: RawColumn, image_of: Rows, firsts: Rows) -> bool:
    """Whether all rows of each image that are not broken have the same value."""
    values, broken = [*chain.from_iterable(column)], column.place.broken
    rows = zip(firsts[image_of].tolist(), values, column.lines.tolist(), strict=True)
    return all(values[first] == value or line in broken for first, value, line in rows)


def image_path(columns: BoxColumns, raw: Mapping[str, RawColumn], root: str) -> str:
    """The column of paths, or how they are made of one that lacks the extension of the images."""
    name, first = columns.images[0], raw[columns.images[0]].first()
    if os.path.isfile(os.path.join(root, str(first))):  # noqa: PTH113, PTH118
        return name
    ends = [end for end in ENDS if os.path.isfile(os.path.join(root, f"{first}{end}"))]  # noqa: PTH113, PTH118
    return f"{{{name}}}{ends[0]}" if ends else name


def object_lists(
    name: str, column: RawColumn, kind: DeclaredKind | None, classes: Classes | None, taken: Iterable[str]
) -> Objects | None:
    """The objects in a column of JSON; None where it has none. kind: as it is declared. taken: names of other fields.
    Raises UsageError."""
    first = next((value for block in column for value in block if value), None)
    some = first[0] if isinstance(first, list) else first
    declared = kind.boxes if isinstance(kind, FieldKind) else None
    if not isinstance(some, dict) or named_in(some, BOX_NAMES) is None or (kind is not None and declared is None):
        return None
    lists = ObjectLists(name, column.place.where, column.at)
    for block in column:
        lists.add(block)
    return lists.finish(declared, classes, None, taken)
