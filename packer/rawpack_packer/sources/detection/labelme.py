"""labelme's files as a source: images with a JSON file of the same name next to each."""

from __future__ import annotations

import math
import os
from codecs import BOM_UTF8
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.base import Scanning, given_options, unseen
from rawpack_packer.sources.detection import SharedFiles, box_table, images_below, read_annotation, without_files
from rawpack_packer.sources.detection.drawn import Drawn
from rawpack_packer.sources.files import NOT_SCANNED, UNKNOWN
from rawpack_packer.sources.numbers import Int64, Length, Pixels
from rawpack_packer.sources.table.choose import Classes, named_file
from rawpack_packer.sources.table.columns import Files, texts_of
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import plain

_SUFFIX = ".json"


class Shape(msgspec.Struct):
    label: str
    points: list[tuple[Pixels, Pixels]]
    shape_type: str | None = None
    group_id: Int64 | None = None
    flags: dict[str, Any] | None = None
    description: str | None = None


class LabelFile(msgspec.Struct):
    shapes: list[Shape]
    imagePath: str | None = None  # noqa: N815
    imageHeight: Length | None = None  # noqa: N815 - as labelme writes it
    imageWidth: Length | None = None  # noqa: N815
    flags: dict[str, Any] | None = None


def open_labelme(
    path: str | os.PathLike[str],
    /,
    *,
    classes: Classes | None = None,
    skip_unreadable: bool = False,
    progress: Scanning = unseen,
) -> Table:
    """Images with the shapes of their JSON files.

    Fields: `boxes`: of rectangles, and the smallest box around a polygon, circle or mask; `polygons`, if there are any;
    and `group_id`, -1 without one, if shapes are grouped. Lines, points, the pixels of masks, flags and descriptions
    are left out and counted. The classes are the sorted labels.

    `counts`: no_boxes and no_annotation (images), empty_classes, and those of `open_folder` that count files.

    path: the folder. classes: replaces the names that are found. skip_unreadable, progress: as for `open_folder`.

    Raises UsageError if there is no image or no such file, BadListingError if no shape can be read.
    """
    root = Path(path).absolute()
    where = plain(os.fsencode(root))
    names, states, info = images_below(root, skip_unreadable, progress, _SUFFIX)
    drawn, of_files, missing = Drawn(where), list[tuple[int, int]](), 0
    shared = SharedFiles(names, _file_of)
    for name, (size, _) in zip(names, states.tolist(), strict=True):
        file = _file_of(name)
        data, state = (None, UNKNOWN) if size == NOT_SCANNED else read_annotation(root, file, where)
        of_files.append(state)
        with drawn.image(f"{file}: "):
            label = None if data is None else _parsed(data)
            if label is None or not shared.is_of(name, file, label.imagePath or ""):
                missing += 1
            else:
                drawn.size = label.imageHeight, label.imageWidth
                drawn.add_all(label.shapes, _add, lambda number, _: f"shape {number}")
                drawn.left_out.update(f"flag {flag}" for flag, value in (label.flags or {}).items() if value)
    if missing == len(names):
        raise UsageError(f"{where} has no JSON file of labelme next to any image, such as {plain(file)}")
    kinds, columns, labels = drawn.fields(classes, lambda i: names[i])
    info = replace(
        without_files(info, _SUFFIX, len(names) - missing),
        kind="labelme",
        fields=kinds,
        classes=labels,
        options=given_options(classes=named_file(classes)),
        problems=(*info.problems, *drawn.problems()),
    )
    info = replace(info, counts={**info.counts, "no_annotation": missing})
    files = Files(str(root), texts_of(names), states)
    return box_table(info, files, columns, np.array(of_files, np.int64), drawn.faults)


def _file_of(image: str) -> str:
    return os.path.splitext(image)[0] + _SUFFIX  # noqa: PTH122 - of a path, with its folders


def _parsed(data: bytes) -> LabelFile:
    """Raises ValueError."""
    try:
        return msgspec.json.decode(data.removeprefix(BOM_UTF8), type=LabelFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is not labelme's: {error}") from error


def _add(drawn: Drawn, shape: Shape) -> None:
    """Raises ValueError."""
    kind, points = shape.shape_type or "polygon", [*chain.from_iterable(shape.points)]
    if kind == "circle":  # its center, and a point on it
        (x, y), (on_x, on_y) = shape.points if len(shape.points) == 2 else ((math.nan,) * 2,) * 2
        radius = math.hypot(on_x - x, on_y - y)
        points = [x - radius, y - radius, x + radius, y + radius]
    elif kind == "mask":  # whose last row and column are in
        points[2:] = [number + 1 for number in points[2:]]
    elif kind not in ("rectangle", "polygon"):
        drawn.left_out[kind] += 1
        return
    numbers = {} if shape.group_id is None else {"group_id": shape.group_id}
    drawn.add(shape.label, points, outline=kind == "polygon", numbers=numbers)
    drawn.left_out.update(f"flag {flag}" for flag, value in (shape.flags or {}).items() if value)
    drawn.left_out.update(["description"] * bool(shape.description) + ["pixels of masks"] * (kind == "mask"))
