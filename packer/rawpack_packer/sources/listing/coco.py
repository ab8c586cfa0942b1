"""COCO's JSON files: images, annotations with boxes, and categories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.sources.base import SourceInfo, given_options
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import reason_of
from rawpack_packer.sources.listing.faults import CellPosition, Faults
from rawpack_packer.sources.listing.paths import PathParser, folder_of, state_of
from rawpack_packer.sources.listing.table import (
    Column,
    Files,
    Numbers,
    RaggedColumn,
    TableSource,
    empty_classes,
    ends_of,
)
from rawpack_packer.text import plain

_ROWS = 1 << 14
T = TypeVar("T")


class _Image(msgspec.Struct, gc=False):
    id: int
    file_name: str
    height: int | None = None
    width: int | None = None


class _Annotation(msgspec.Struct):
    image_id: int
    category_id: int
    bbox: list[float]
    iscrowd: int = 0
    segmentation: msgspec.Raw = msgspec.Raw()


class _Category(msgspec.Struct, gc=False):
    id: int
    name: str


class _Coco(msgspec.Struct):
    images: list[_Image]
    annotations: list[_Annotation]
    categories: list[_Category]


class _FileName(CellPosition):
    """The position of an image's file name, which in JSON is not a line."""

    def fault(self, line: int, what: str) -> None:
        self.faults.add(0, 0, "", f"$.images[{line}].file_name: {what}")


class CocoSource(TableSource):
    """A COCO file as a `Source`: the images in its order, each with its boxes.

    Fields: `boxes`, `crowds` (the boxes of crowds, as opposed to single things), `image_id`. The classes are the
    categories in the order of their ids, counted from 0; the last number of a box is its class.

    `counts`: no_boxes (images), empty_classes, segmentations (left out).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        images: str | os.PathLike[str] | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        """images: the folder that file names start from; None is the folder of the JSON file, or, for
        `annotations/instances_val2017.json`, `val2017` next to `annotations`.

        Raises UsageError if it is not a COCO file, BadListingError with the first twenty faults.
        """
        file = Path(path).absolute()
        where = plain(os.fsencode(file))
        try:
            state = state_of(file, "")
            coco = msgspec.json.decode(file.read_bytes(), type=_Coco)
        except OSError as error:
            raise UsageError(f"{where} cannot be read: {reason_of(error)}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(
                f"{where} is not COCO's JSON, with images, annotations with boxes, and categories: {error}"
            ) from None
        if not coco.images:
            raise UsageError(f"{where} lists no image")
        faults = Faults(where)
        classes, class_of = _classes(coco.categories, faults)
        root = folder_of(images, _folder(file, coco.images[0].file_name))
        files = _files(coco.images, root, faults, progress)
        boxes, crowds = _boxes(coco, class_of, faults)
        faults.stop()
        empty = empty_classes(classes, boxes.classes())
        kind = FieldKind("float32", (None, 5), boxes="xywh")
        masks = sum(bytes(memoryview(one.segmentation)[:2]) not in (b"", b"[]") for one in coco.annotations)
        info = SourceInfo(
            kind="coco",
            root=where,
            paths=(str(file),),
            fields={"boxes": kind, "crowds": kind, "image_id": FieldKind("int64")},
            classes=classes,
            empty_classes=empty,
            options=given_options(images=images),
            counts={
                "no_boxes": int((np.diff(boxes.ends) == 0).sum()),
                "empty_classes": len(empty),
                "segmentations": masks,
            },
        )
        ids = Numbers(np.array([image.id for image in coco.images], np.int64))
        columns: dict[str, Column] = {"boxes": boxes, "crowds": crowds, "image_id": ids}
        super().__init__(info, files.paths, files, columns, state)


def _folder(file: Path, first: str) -> Path:
    """The folder of the images: next to the file, or as in COCO itself."""
    split = file.stem.removeprefix("instances_")
    beside = [file.parent, file.parent.parent / split, file.parent.parent / "images" / split]
    return next((folder for folder in beside if (folder / first).is_file()), file.parent)


def _numbered(values: Iterable[T], what: str, faults: Faults) -> dict[T, int]:
    """The position of each value, which must be unique. what: where value {} is in the JSON."""
    positions: dict[T, int] = {}
    for number, value in enumerate(values):
        if (before := positions.setdefault(value, number)) != number:
            faults.add(0, 0, "", f"{what.format(number)}: {value!r} belongs to {what.format(before)} too")
    return positions


def _classes(categories: Sequence[_Category], faults: Faults) -> tuple[tuple[str, ...], dict[int, int]]:
    """The names of the classes, and the number of each category's id."""
    _numbered([one.id for one in categories], "$.categories[{}].id", faults)
    names = list[str]()
    ordered = sorted(categories, key=lambda category: category.id)
    for one in ordered:
        name = one.name
        while name in names:
            name = f"{name} {one.id}"
        names.append(name)
    return tuple(names), {one.id: number for number, one in enumerate(ordered)}


def _files(images: Sequence[_Image], root: str, faults: Faults, progress: Callable[[int], None] | None) -> Files:
    _numbered([image.file_name for image in images], "$.images[{}].file_name", faults)
    parser = PathParser(_FileName("", 0, faults, cells=False), root)
    for start in range(0, len(images), _ROWS):
        some = images[start : start + _ROWS]
        parser.add([image.file_name for image in some], np.arange(start, start + len(some)))
        if progress is not None:
            progress(start + len(some))
    return parser.files()


def _boxes(coco: _Coco, class_of: dict[int, int], faults: Faults) -> tuple[RaggedColumn, RaggedColumn]:
    """The boxes of things, and those of crowds, image after image: x, y, width, height, class."""
    rows = _numbered([image.id for image in coco.images], "$.images[{}].id", faults)
    values = np.zeros((len(coco.annotations), 5), np.float64)
    image_of = np.zeros(len(values), np.int64)
    for number, one in enumerate(coco.annotations):
        row, label = rows.get(one.image_id), class_of.get(one.category_id)
        if row is None:
            what = f"image_id: there is no image {one.image_id}"
        elif label is None:
            what = f"category_id: there is no category {one.category_id}"
        elif len(one.bbox) != 4:
            what = f"bbox: {len(one.bbox)} numbers, but a box is x, y, width, height"
        else:
            values[number], image_of[number] = (*one.bbox, label), row
            continue
        faults.add(0, 0, "", f"$.annotations[{number}].{what}")
        if faults.enough:
            break
    crowd = np.array([bool(one.iscrowd) for one in coco.annotations], np.bool_)
    sizes = np.array([(image.height or 0, image.width or 0) for image in coco.images], np.int64)
    things, crowds = (_runs(values[which], image_of[which], sizes) for which in (~crowd, crowd))
    return things, crowds


def _runs(values: NDArray[np.float64], image_of: NDArray[np.int64], sizes: NDArray[np.int64]) -> RaggedColumn:
    order = np.argsort(image_of, kind="stable")
    return RaggedColumn(values[order], ends_of(np.bincount(image_of, minlength=len(sizes))), "xywh", sizes)
