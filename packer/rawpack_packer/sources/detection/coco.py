"""COCO's JSON files: images, annotations with boxes, polygons, keypoints and masks, and categories."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.detection import BoxSource, masks_of
from rawpack_packer.sources.detection.coco_objects import Category, Coco, Image, Objects, numbered
from rawpack_packer.sources.fields import Fields, check_names, words_of
from rawpack_packer.sources.listing.faults import BadListingError, CellPosition, fault
from rawpack_packer.sources.listing.paths import PathParser, folder_of, state_of
from rawpack_packer.sources.table.columns import Files
from rawpack_packer.text import plain

_ROWS = 1 << 14


class _FileName(CellPosition):
    """The position of an image's file name, which in JSON is not a line."""

    def fault(self, line: int, what: str) -> BadListingError:
        return fault(self.where, 0, 0, "", f"$.images[{line}].file_name: {what}")


class CocoSource(BoxSource):
    """A COCO file as a `Source`: the images in its order, each with its boxes.

    Fields: `boxes`, `crowds` (the boxes of crowds, as opposed to single things), `image_id`; for each box its
    `annotation_id` and `area`, if all have them, and `polygons` and `keypoints`, if there are any; and masks that were
    asked for. The classes are the categories in the order of their ids, counted from 0; the last number of a box is its
    class.

    `counts`: no_boxes (images), empty_classes, segmentations (run lengths, left out without a mask).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        images: str | os.PathLike[str] | None = None,
        fields: Fields = (),
        progress: Scanning = unseen,
    ) -> None:
        """images: the folder that file names start from; None is the folder of the JSON file, or, for
        `annotations/instances_val2017.json`, `val2017` next to `annotations`. fields: masks, each
        as `semantic:mask` or `instances:mask`, or with another name, `NAME=semantic:mask`.

        Raises UsageError if it is not a COCO file, BadListingError with the first fault.
        """
        file = Path(path).absolute()
        where = plain(os.fsencode(file))
        with reading(where):
            state, data = state_of(file, repr(fields) if fields else ""), file.read_bytes()
        try:
            coco = msgspec.json.decode(data, type=Coco)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise UsageError(
                f"{where} is not COCO's JSON, with images, annotations with boxes, and categories: {error}"
            ) from None
        if not coco.images:
            raise UsageError(f"{where} lists no image")
        classes, class_of = _classes(coco.categories, where)
        root = folder_of(images, folder_of_images(file, coco.images[0].file_name))
        within = () if images is not None else (_dataset(file, root),)
        files = _files(coco.images, root, within, where, progress)
        words = words_of(fields)
        masks = masks_of(
            words,
            lambda what: what in ("semantic", "instances"),
            "for COCO, write semantic:mask (classes) or instances:mask (objects), or NAME=semantic:mask",
        )
        objects = Objects(coco, class_of, where)
        columns, kinds = objects.columns()
        check_names([*kinds, "object", *masks])
        for name, painted in masks.items():
            kinds[name], columns[name] = objects.masks(painted, len(classes))
            if painted == "instances":
                kinds["object"], columns["object"] = objects.numbers()
        info = SourceInfo(
            kind="coco",
            root=where,
            paths=(str(file),),
            fields=kinds,
            classes=classes,
            options=given_options(images=images, field=words),
            counts={"segmentations": 0 if masks else objects.runs},
        )
        super().__init__(info, files, columns, state)


def folder_of_images(file: Path, first: str) -> Path:
    """The folder of the images: next to the file, or as in COCO itself. first: the name of the first image."""
    above, splits = file.parent.parent, (file.stem.removeprefix("instances_"), file.stem.rpartition("_")[2])
    beside = [file.parent, *(above / split for split in splits), *(above / "images" / split for split in splits)]
    return next((folder for folder in beside if (folder / first).is_file()), file.parent)


def _dataset(file: Path, root: str) -> str:
    """The folder that has both the file and the images; that of `annotations` is the one above it."""
    folder = file.parent.parent if file.parent.name == "annotations" else file.parent
    return os.path.commonpath([folder, root])


def _classes(categories: Sequence[Category], where: str) -> tuple[tuple[str, ...], dict[int, int]]:
    """The names of the classes, and the number of each category's id."""
    numbered([one.id for one in categories], "$.categories[{}].id", where)
    names = list[str]()
    ordered = sorted(categories, key=lambda category: category.id)
    for one in ordered:
        name = one.name
        while name in names:
            name = f"{name} {one.id}"
        names.append(name)
    return tuple(names), {one.id: number for number, one in enumerate(ordered)}


def _files(images: Sequence[Image], root: str, within: Sequence[str], where: str, progress: Scanning) -> Files:
    numbered([image.file_name for image in images], "$.images[{}].file_name", where)
    trusting = f"name the folder that its paths start from: {opt.images(shlex.quote(plain(root)))}"
    parser = PathParser(_FileName(where, "", 0, cells=False), root, within, trusting)
    for start in range(0, len(images), _ROWS):
        some = images[start : start + _ROWS]
        parser.add([image.file_name for image in some], np.arange(start, start + len(some)))
        progress(start + len(some))
    return parser.files()
