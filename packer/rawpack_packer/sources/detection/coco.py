"""COCO's JSON files as columns: images, categories, and annotations with boxes, polygons, keypoints and masks, or with
captions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.pixels.geometry import fill_polygons
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.declared import words_of
from rawpack_packer.sources.detection import (
    MOST_KEYPOINTS,
    POLYGONS,
    PolygonRows,
    box_table,
    keypoints_kind,
    listed_files,
    masks_of,
    numbered,
    read_whole,
)
from rawpack_packer.sources.fields import TEXTS, FieldKind, Fields, check_names
from rawpack_packer.sources.listing.lines import fault, folder_of, shown
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.numbers import Id, Length, Pixels
from rawpack_packer.sources.table.assemble import table_of
from rawpack_packer.sources.table.columns import (
    Column,
    Numbers,
    RaggedColumn,
    Rows,
    TextLists,
    Texts,
    ends_of,
    texts_of,
)
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import count, plain

T = TypeVar("T")
_IGNORED = {"uint8": 255, "uint16": 65535}
"""What masks have where there is a crowd."""
_NO_SEGMENTATION = (b"", b"[]", b"null")
_MOST_PIXELS = 1 << 28
"""Pixels of an image."""
_KEPT_PIXELS = 1 << 28
"""Pixels of the masks of an image's objects that are in memory together; other masks are made a second time."""
MOST_LOOKED_FOR = 16
"""Images that a file lists first, by which their folder is found."""
_MOST_BITS = 40
"""Of a run length."""


class Image(msgspec.Struct, gc=False):
    id: Id
    file_name: str
    height: Length | None = None
    width: Length | None = None


class Annotation(msgspec.Struct):
    image_id: Id | None
    category_id: Id
    bbox: list[Pixels] | None = None
    id: Any = None
    area: Any = None
    iscrowd: bool | Pixels = False
    keypoints: list[Pixels] | None = None
    segmentation: msgspec.Raw = msgspec.Raw()


class Category(msgspec.Struct):
    id: Id
    name: str
    keypoints: list[str] | None = None


class Coco(msgspec.Struct, Generic[T]):
    images: list[Image]
    annotations: list[T]
    categories: list[Category]


class _Owner(msgspec.Struct):
    """What is looked for in an annotation that cannot be read."""

    image_id: Id | None = None


class Caption(msgspec.Struct, gc=False):
    caption: str
    image_id: Id | None = None


class Captioned(msgspec.Struct):
    """A file of captions."""

    images: list[Image]
    annotations: list[Caption]


def is_coco(listing: Listing) -> bool:
    """Whether a file of JSON may be COCO's: it is not a list."""
    return not listing.head[: 1 << 12].lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")


class Runs(msgspec.Struct):
    """A mask as run lengths, column by column, beginning with those of 0."""

    counts: str | list[Length]
    size: tuple[Length, Length]


Segmentation = list[list[Pixels]] | Runs


def decode_runs(runs: Runs) -> NDArray[np.bool_]:
    """The mask (height, width). Raises ValueError where the runs are not those of its size."""
    height, width = runs.size
    if not (height > 0 and width > 0 and height * width <= _MOST_PIXELS):
        raise ValueError(f"a mask of {height}x{width}")
    counts = _compressed(runs.counts) if isinstance(runs.counts, str) else np.array(runs.counts, np.int64)
    if counts.ndim != 1 or (counts < 0).any() or (counts > height * width).any() or counts.sum() != height * width:
        raise ValueError(f"its run lengths are not those of {height}x{width} pixels")
    values = np.arange(len(counts)) % 2 == 1
    return np.repeat(values, counts).reshape(width, height).T


def _compressed(text: str) -> NDArray[np.int64]:
    """The run lengths in pycocotools' string: 5 bits a character from "0" on, low ones first, each from the third on as
    the difference from the one before the last."""
    code = np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.int64) - 48
    more = (code & 0x20) != 0
    if not len(code) or code.min() < 0 or code.max() > 0x3F or more[-1]:
        raise ValueError("its run lengths are not a string of COCO")
    ends = np.flatnonzero(~more)
    starts = np.concatenate([[0], ends[:-1] + 1])
    bits = 5 * (ends - starts + 1)
    if bits.max() > _MOST_BITS:
        raise ValueError("a run length has too many bits")
    shifts = 5 * (np.arange(len(code)) - np.repeat(starts, ends - starts + 1))
    counts = np.add.reduceat((code & 0x1F) << shifts, starts)
    counts -= np.where(code[ends] & 0x10, np.int64(1) << bits, 0)
    for first in (1, 2):
        counts[first::2] = np.cumsum(counts[first::2])
    return counts


def covered(segmentation: Segmentation, height: int, width: int) -> NDArray[np.bool_]:
    """The pixels of an image that belong to an object. Raises ValueError."""
    if isinstance(segmentation, Runs):
        if tuple(segmentation.size) != (height, width):
            raise ValueError(f"a mask of {segmentation.size} in an image of {(height, width)} (height, width)")
        return decode_runs(segmentation)
    return fill_polygons([np.reshape(one, (-1, 2)) for one in segmentation if one], height, width)


@dataclass(frozen=True, slots=True, eq=False)
class PaintedColumn:
    """Masks that are painted when they are read: the largest object first, and crowds before all others."""

    segmentations: Texts
    """JSON, one for each object, image after image."""
    paints: RaggedColumn
    """(m, 2): for each object its value, and 1 for a crowd."""
    sizes: Rows
    """(n, 2): height and width of each image."""
    dtype: str

    def value(self, i: int, /) -> NDArray[Any]:
        height, width = self.sizes[i].tolist()
        if height * width > _MOST_PIXELS:
            raise DecodeError("too_large", f"{width}x{height} pixels")
        paints = self.paints.value(i).tolist()  # type: ignore[union-attr]
        kept, areas = dict[int, NDArray[np.bool_]](), list[int]()
        for at in range(len(paints)):
            mask = self._mask(i, at, height, width)
            areas.append(int(mask.sum()))
            if height * width * (at + 1) <= _KEPT_PIXELS:
                kept[at] = mask
        painted = np.zeros((height, width), self.dtype)
        for at in sorted(range(len(paints)), key=lambda at: (not paints[at][1], -areas[at], paints[at][0])):
            painted[kept[at] if at in kept else self._mask(i, at, height, width)] = paints[at][0]
        return painted

    def _mask(self, i: int, at: int, height: int, width: int) -> NDArray[np.bool_]:
        """The pixels (height, width) of object `at` of image i. Raises DecodeError."""
        raw = self.segmentations.raw(int(self.paints.ends[i]) + at)
        try:
            return covered(msgspec.json.decode(raw, type=Segmentation), height, width)
        except (ValueError, OverflowError) as error:
            raise DecodeError("bad_field", f"segmentation {at} of the image: {error}") from error

    def pick(self, rows: Rows, /) -> PaintedColumn:
        numbers = RaggedColumn(np.arange(len(self.segmentations)), self.paints.ends).pick(rows).values
        return PaintedColumn(self.segmentations.pick(numbers), self.paints.pick(rows), self.sizes[rows], self.dtype)


class CocoObjects:
    """The annotations of all images, image after image: those of things, and those of crowds."""

    def __init__(self, coco: Coco[Annotation], class_of: dict[Id, int], where: str, unread: Mapping[int, str]) -> None:
        """class_of: the number of each category's id. where: the file, printable. unread: number of an annotation that
        cannot be read -> why. Raises BadListingError."""
        self._coco, self._where = coco, where
        self.faults = dict[int, str]()
        """Number of an image that is rejected -> where and what is wrong."""
        self.unlisted = list[int]()
        """The annotations of images that are not listed."""
        self._values = np.zeros((len(coco.annotations), 5), np.float64)
        self._image_of = np.full(len(self._values), -1, np.int64)
        self._ids = numbered([image.id for image in coco.images], "$.images[{}].id", where)
        for number, annotation in enumerate(coco.annotations):
            row = None if annotation.image_id is None else self._ids.get(annotation.image_id)
            if row is None:
                self.unlisted.append(number)
                continue
            self._image_of[number] = row
            try:
                if number in unread:
                    raise ValueError(unread[number])
                if (label := class_of.get(annotation.category_id)) is None:
                    raise ValueError(f".category_id: there is no category {shown(annotation.category_id)}")
                self._values[number] = (*self._box(number), label)
            except ValueError as error:
                self._fault(number, str(error))
        # Of an image that is rejected, nothing is left but that it is there.
        self._image_of[np.isin(self._image_of, [*self.faults])] = -1
        self._crowd = np.array([bool(annotation.iscrowd) for annotation in coco.annotations], np.bool_)
        self._sizes = np.array([(image.height or 0, image.width or 0) for image in coco.images], np.int64)
        self._things, self._ends = self._ordered(~self._crowd)
        self.numbers = 1 + np.arange(len(self._things)) - np.repeat(self._ends[:-1], np.diff(self._ends))
        """For each box, the value that it has in a mask of instances: its number in its image."""
        self.runs = 0
        """How many segmentations are run lengths."""

    def columns(self) -> tuple[dict[str, Column], dict[str, FieldKind]]:
        """All fields but masks, and what they are."""
        box = FieldKind("float32", (None, 5), boxes="xywh")
        crowds, ends = self._ordered(self._crowd)
        fields: dict[str, tuple[FieldKind, Column]] = {
            "boxes": (box, RaggedColumn(self._values[self._things], self._ends, "xywh", self._sizes)),
            "crowds": (box, RaggedColumn(self._values[crowds], ends, "xywh", self._sizes)),
            "image_id": _image_ids(self._ids),
        }
        things = [self._coco.annotations[i] for i in self._things.tolist()]
        if things and all(type(thing.id) is int and abs(thing.id) < 1 << 63 for thing in things):
            fields["annotation_id"] = self.of_boxes(np.array([thing.id for thing in things], np.int64))
        if things and all(type(thing.area) in (int, float) and abs(thing.area) < 1e300 for thing in things):
            fields["area"] = self.of_boxes(np.array([float(thing.area) for thing in things]))
        polygons = self._polygons()
        if len(polygons):
            fields["polygons"] = POLYGONS, polygons.column()
        if any(thing.keypoints for thing in things):
            fields["keypoints"] = self._keypoints()
        return {name: column for name, (_, column) in fields.items()}, {
            name: kind for name, (kind, _) in fields.items()
        }

    def masks(self, painted: str, classes: int) -> tuple[FieldKind, PaintedColumn]:
        """Masks that have, for each pixel, the class plus 1 ("semantic") or the number of the object ("instances"); 0
        where there is none, and the largest value where there is a crowd."""
        for number, image in enumerate(self._coco.images):
            if not (image.height and image.width and min(image.height, image.width) > 0):
                raise fault(self._where, 0, 0, "", f"$.images[{number}]: masks need its height and width")
        most = classes if painted == "semantic" else int(np.diff(self._ends).max(initial=0))
        dtype = "uint8" if most < _IGNORED["uint8"] and painted == "semantic" else "uint16"
        if most >= _IGNORED[dtype]:
            raise fault(self._where, 0, 0, "", f"{most} values are more than a mask of uint16 can store")
        value = np.full(len(self._crowd), _IGNORED[dtype], np.int64)
        value[self._things] = self._values[self._things, 4] + 1 if painted == "semantic" else self.numbers
        texts = [bytes(memoryview(one.segmentation)) for one in self._coco.annotations]
        order, ends = self._ordered(np.array([text not in _NO_SEGMENTATION for text in texts], np.bool_))
        paints = RaggedColumn(np.stack([value, self._crowd], axis=1)[order], ends)
        ordered = [texts[i] for i in order.tolist()]
        joined = Texts(b"".join(ordered), ends_of([len(text) for text in ordered]))
        return FieldKind(dtype, (None, None, 1), mask=True), PaintedColumn(joined, paints, self._sizes, dtype)

    def _ordered(self, which: NDArray[np.bool_]) -> tuple[Rows, Rows]:
        """The numbers of some annotations, image after image, and where those of each image end."""
        chosen = np.flatnonzero(which & (self._image_of >= 0))
        order = np.argsort(self._image_of[chosen], kind="stable")
        return chosen[order], ends_of(np.bincount(self._image_of[chosen], minlength=len(self._sizes)))

    def of_boxes(self, values: NDArray[Any]) -> tuple[FieldKind, RaggedColumn]:
        """A field with a value for each box."""
        return FieldKind(values.dtype.name, (None,), follows="rows"), RaggedColumn(values, self._ends)

    def _polygons(self) -> PolygonRows:
        """Those of things; the run lengths of all are counted."""
        polygons, number = PolygonRows(), iter(self._things.tolist())
        for things in np.diff(self._ends).tolist():
            for row in range(things):
                for part, points in enumerate(filter(None, self._outlines(next(number)))):
                    polygons.add(points, row, part)
            polygons.end()
        for crowd in np.flatnonzero(self._crowd).tolist():
            self._outlines(crowd)
        return polygons

    def _outlines(self, number: int) -> list[list[float]]:
        """Those of an annotation; run lengths are counted instead."""
        try:
            segmentation = self._segmentation(number)
        except ValueError as error:
            self._fault(number, str(error))
            return []
        self.runs += isinstance(segmentation, Runs)
        return [] if isinstance(segmentation, Runs) else segmentation

    def _box(self, number: int) -> Sequence[float]:
        """The box of an annotation; where it has none, that around its outlines or mask. Raises ValueError."""
        box = self._coco.annotations[number].bbox or []
        if not box and (segmentation := self._segmentation(number)):
            if isinstance(segmentation, Runs):
                pixels = np.argwhere(decode_runs(segmentation))[:, ::-1]
                points = np.concatenate([pixels, pixels + 1])
            else:
                points = np.reshape([*chain.from_iterable(segmentation)], (-1, 2))
            if len(points):
                box = [*points.min(axis=0), *np.ptp(points, axis=0)]
        if len(box) != 4:
            raise ValueError(f".bbox: {len(box)} numbers, but a box is x, y, width, height")
        return box

    def _segmentation(self, number: int) -> Segmentation:
        """Raises ValueError."""
        raw = bytes(memoryview(self._coco.annotations[number].segmentation))
        if raw in _NO_SEGMENTATION:
            return []
        try:
            segmentation: Segmentation = msgspec.json.decode(raw, type=Segmentation)
        except msgspec.DecodeError as error:
            raise ValueError(f".segmentation: {error}") from error
        for points in [] if isinstance(segmentation, Runs) else segmentation:
            if len(points) % 2 or 0 < len(points) < 6:
                raise ValueError(f".segmentation: {len(points)} numbers, but an outline is x, y, x, y, x, y, ...")
        return segmentation

    def _keypoints(self) -> tuple[FieldKind, RaggedColumn]:
        named = next((one.keypoints for one in self._coco.categories if one.keypoints), None) or []
        annotations = map(self._coco.annotations.__getitem__, self._things.tolist())
        first = next(len(one.keypoints) for one in annotations if one.keypoints)
        points_each = len(named) or max(1, first // 3)
        if points_each > MOST_KEYPOINTS:
            raise fault(self._where, 0, 0, "", f"{points_each} keypoints; at most {MOST_KEYPOINTS} are read")
        values = np.zeros((len(self._things), points_each, 3), np.float64)
        for at, number in enumerate(self._things.tolist()):
            points = self._coco.annotations[number].keypoints or []
            if points and len(points) != 3 * points_each:
                expected = f"{points_each} keypoints have {3 * points_each}"
                self._fault(number, f".keypoints: {len(points)} numbers, but {expected}")
            elif points:
                values[at] = np.reshape(points, (points_each, 3))
        return keypoints_kind(points_each, mirror_of(named)), RaggedColumn(values, self._ends)

    def _fault(self, number: int, what: str) -> None:
        """Reject the image of an annotation."""
        if (row := int(self._image_of[number])) >= 0:
            self.faults.setdefault(row, f"$.annotations[{number}]{'' if what[0] == '.' else ': '}{what}")


def mirror_of(names: list[str]) -> tuple[int, ...]:
    """Which keypoint takes the place of each in a mirrored image, by their names: left_eye that of right_eye. Empty
    without names."""
    at = {name: i for i, name in enumerate(names)}
    mirror = tuple(at.get(_other_side(name), i) for i, name in enumerate(names))
    return mirror if sorted(mirror) == list(range(len(names))) else ()


def _other_side(name: str) -> str:
    for side, other in (("left", "right"), ("right", "left"), ("Left", "Right"), ("Right", "Left")):
        if side in name:
            return name.replace(side, other, 1)
    return name


def open_coco(
    path: str | os.PathLike[str],
    /,
    *,
    images: str | os.PathLike[str] | None = None,
    fields: Fields = (),
    progress: Scanning = unseen,
) -> Table:
    """The images of a COCO file in its order, each with its boxes; or of a file of captions, with `captions`, a list of
    texts, and `image_id`.

    Fields: `boxes`, `crowds` (the boxes of crowds, as opposed to single things), `image_id`; for each box its
    `annotation_id` and `area`, if all have them, and `polygons` and `keypoints`, if there are any; and masks that were
    asked for. The classes are the categories in the order of their ids, counted from 0; the last number of a box is its
    class.

    `counts`: no_boxes (images), empty_classes, segmentations (run lengths, left out without a mask).

    images: the folder that file names start from; None is the folder of the JSON file, or, for
    `annotations/instances_val2017.json`, `val2017` next to `annotations`. fields: masks, each as `semantic:mask` or
    `instances:mask`, or with another name, `NAME=semantic:mask`.

    Raises UsageError if it is not a COCO file, BadListingError with a fault that is not of one annotation only.
    """
    listing = Listing.of(path)
    file = listing.path.absolute()
    where = plain(os.fsencode(file))
    if listing.is_dir:
        from rawpack_packer.sources.beside.annotated import command_of_coco

        cure = command_of_coco(os.fspath(path)) or "name the JSON file in it"
        raise UsageError(f"{where} is a folder, and a source of kind coco is a JSON file: {cure}")
    data, state = read_whole(listing, where, repr(fields) if fields else "")
    coco, unread = _parsed(data, where)
    if not coco.images:
        raise UsageError(f"{where} lists no image")
    root = folder_of(images, folder_of_images(file, [image.file_name for image in coco.images[:MOST_LOOKED_FOR]]))
    dataset = file.parent.parent if file.parent.name == "annotations" else file.parent
    within = () if images is not None else (os.path.commonpath([dataset, root]),)
    files = listed_files(
        [image.file_name for image in coco.images], "$.images[{}].file_name", root, within, where, progress
    )
    words = words_of(fields)
    masks = masks_of(
        words,
        lambda what: what in ("semantic", "instances"),
        "for COCO, write semantic:mask (classes) or instances:mask (objects), or NAME=semantic:mask",
    )
    info = SourceInfo(kind="coco", root=where, paths=(str(file),), options=given_options(images=images, field=words))
    if isinstance(coco, Captioned):
        if masks:
            raise UsageError(f"{where} has captions, and no objects for masks: leave out {opt.fields(words[0])}")
        columns, kinds, problems = _captions(coco, where)
        info = replace(info, fields=kinds, problems=problems)
        return table_of(info, files.paths, files, columns, state)
    classes, class_of = _classes(coco.categories, where)
    objects = CocoObjects(coco, class_of, where, unread)
    columns, kinds = objects.columns()
    check_names([*kinds, "object", *masks])
    for name, painted in masks.items():
        kinds[name], columns[name] = objects.masks(painted, len(classes))
        if painted == "instances":
            kinds["object"], columns["object"] = objects.of_boxes(objects.numbers)
    counts = {"segmentations": 0 if masks else objects.runs}
    problems = _unlisted(objects.unlisted, coco.annotations, where)
    info = replace(info, fields=kinds, classes=classes, counts=counts, problems=problems)
    return box_table(info, files, columns, state, objects.faults)


def _parsed(data: bytes, where: str) -> tuple[Coco[Annotation] | Captioned, dict[int, str]]:
    """What is in a file; and which of its annotations cannot be read, by their numbers, and why. Raises UsageError for
    what is neither."""
    errors = msgspec.DecodeError, UnicodeDecodeError, RecursionError
    try:
        return msgspec.json.decode(data, type=Coco[Annotation]), {}
    except errors as error:
        with suppress(*errors):
            return _one_by_one(data)
        with suppress(*errors):
            return msgspec.json.decode(data, type=Captioned), {}
        raise UsageError(
            f"{where} is not COCO's JSON, with images, annotations with boxes, and categories, or with captions: "
            f"{error}"
        ) from error


def _one_by_one(data: bytes) -> tuple[Coco[Annotation], dict[int, str]]:
    """The same where some annotations cannot be read, but say of which image they are."""
    tree = msgspec.json.decode(data, type=Coco[msgspec.Raw])
    annotations, unread = list[Annotation](), dict[int, str]()
    for number, raw in enumerate(tree.annotations):
        try:
            annotations.append(msgspec.json.decode(raw, type=Annotation))
        except msgspec.ValidationError as error:
            owner = _Owner()
            with suppress(msgspec.ValidationError):
                owner = msgspec.json.decode(raw, type=_Owner)
            annotations.append(Annotation(owner.image_id, ""))
            what, _, place = str(error).rpartition(" - at `$.")
            unread[number] = f".{place.rstrip('`')}: {what}" if what else str(error)
    if annotations and len(unread) == len(annotations):
        raise msgspec.DecodeError
    return Coco(tree.images, annotations, tree.categories), unread


def _captions(coco: Captioned, where: str) -> tuple[dict[str, Column], dict[str, FieldKind], tuple[str, ...]]:
    """The captions of each image, in the order of the file; and the lines of `_unlisted`. Raises BadListingError."""
    ids = numbered([image.id for image in coco.images], "$.images[{}].id", where)
    captions, unlisted = [list[str]() for _ in ids], list[int]()
    for number, annotation in enumerate(coco.annotations):
        if annotation.image_id is None or (row := ids.get(annotation.image_id)) is None:
            unlisted.append(number)
        else:
            captions[row].append(annotation.caption)
    kind, column = _image_ids(ids)
    problems = _unlisted(unlisted, coco.annotations, where)
    return {"captions": TextLists.of(captions), "image_id": column}, {"captions": TEXTS, "image_id": kind}, problems


def _unlisted(numbers: Sequence[int], annotations: Sequence[Annotation | Caption], where: str) -> tuple[str, ...]:
    """A line for annotations, by their numbers, of images that are not listed. Raises BadListingError where there are
    no others."""
    if not numbers:
        return ()
    number = annotations[numbers[0]].image_id
    image = f"of image {shown(number)}" if number is not None else "without an image_id"
    if len(numbers) == len(annotations):
        raise fault(where, 0, 0, "", f"$.annotations[0] {image}: there is no such image, nor those of any other")
    what = "annotation of an image that is not listed", "annotations of images that are not listed"
    return (f"{count(len(numbers), *what)}, left out: $.annotations[{numbers[0]}] {image}",)


def _image_ids(ids: Iterable[Id]) -> tuple[FieldKind, Column]:
    """The field of the images' ids: whole numbers, or texts where some do not fit into int64."""
    every = [int(i) if isinstance(i, float) and i.is_integer() else i for i in ids]
    if all(isinstance(i, int) and -(1 << 63) <= i < 1 << 63 for i in every):
        return FieldKind("int64"), Numbers(np.array(every, np.int64))
    return FieldKind("str"), texts_of([str(i) for i in every])


def folder_of_images(file: Path, names: Sequence[str]) -> Path:
    """The folder of the images: next to the file, or as in COCO itself. names: of the first images, of which one must
    be in the folder, since some may be missing."""
    above, splits = file.parent.parent, (file.stem.removeprefix("instances_"), file.stem.rpartition("_")[2])
    beside = [file.parent, *(above / split for split in splits), *(above / "images" / split for split in splits)]
    return next((folder for folder in beside if any((folder / name).is_file() for name in names)), file.parent)


def _classes(categories: Sequence[Category], where: str) -> tuple[tuple[str, ...], dict[Id, int]]:
    """The names of the classes, and the number of each category's id."""
    numbered([one.id for one in categories], "$.categories[{}].id", where)
    names = list[str]()
    ordered = sorted(categories, key=lambda category: (isinstance(category.id, str), category.id))
    for one in ordered:
        name = one.name
        while name in names:
            name = f"{name} {one.id}"
        names.append(name)
    return tuple(names), {one.id: number for number, one in enumerate(ordered)}
