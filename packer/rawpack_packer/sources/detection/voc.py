"""Pascal VOC's layout as a source: JPEGImages, an XML file in Annotations for each, lists in ImageSets, and masks."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.declared import words_of
from rawpack_packer.sources.detection import (
    FOLDER_COUNTS,
    BoxSource,
    SharedFiles,
    images_below,
    lines_of,
    masks_of,
    read_annotation,
    xml_of,
)
from rawpack_packer.sources.fields import FieldKind, Fields, check_names
from rawpack_packer.sources.listing.lines import CellPosition, PathParser, fault, shown, state_of
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.numbers import is_far, side
from rawpack_packer.sources.table.choose import Classes, classes_of, named_file, number_labels
from rawpack_packer.sources.table.columns import Column, Files, Rows, ends_of, texts_of
from rawpack_packer.sources.table.objects import Objects
from rawpack_packer.text import count, listed, plain

CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow", "diningtable", "dog",
    "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)  # fmt: skip
"""Pascal VOC's own."""
POSES = ("", "Frontal", "Left", "Rear", "Right")
"""Poses by their numbers; 0 stands for all others."""
_FLAGS = ("difficult", "truncated", "pose")
_IMAGES, _XML, _SETS = "JPEGImages", "Annotations", "ImageSets"
_SPLITS = ("train", "val", "test")
_MOST_BYTES = 8 << 20
"""Of an XML file: 30,000 objects."""


@dataclass
class ImageObjects:
    """The objects in one image."""

    names: list[str] = field(default_factory=list)
    """Of their classes."""
    rows: list[tuple[float, ...]] = field(default_factory=list)
    """Left, top, right, bottom in pixels, counted from the image's corner; difficult, truncated, number of the pose."""
    size: tuple[int, int] = (0, 0)
    """(height, width) of the image; 0 where the file does not say."""
    file: str = ""
    """The name of the image, as the file has it."""


def is_voc(listing: Listing) -> bool:
    """Whether a path is a folder with JPEGImages and Annotations, or names a list of one, as `VOC2012/train`."""
    if listing.exists:
        return (listing / _IMAGES).is_dir and (listing / _XML).is_dir
    path = listing.path
    return is_voc(listing.above) and any(
        _list(path.parent, kind, path.name).is_file() for kind in ("Main", "Segmentation")
    )


def voc_splits(listing: Listing) -> list[str]:
    """Those of train, val and test of which such a folder has lists; empty where there are fewer than two."""
    found = [name for name in _SPLITS if _list(listing.path, "Main", name).is_file()]
    return found if len(found) > 1 else []


class VocSource(BoxSource):
    """Images with the boxes of their XML files.

    Fields: `boxes`; `difficult`, `truncated` and `pose`, a number for each box; and masks that were asked for. The
    classes are VOC's 20, if there are no others, or else the sorted names in all XML files.

    `counts`: no_boxes and no_annotation (images), empty_classes, and those of `FolderSource` that count files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        fields: Fields = (),
        classes: Classes | None = None,
        skip_unreadable: bool = False,
        progress: Scanning = unseen,
    ) -> None:
        """path: `VOCdevkit/VOC2012`, or one of its lists, `VOCdevkit/VOC2012/train`. fields: masks, each as
        `FOLDER:mask` or `NAME=FOLDER:mask`; then the images are those that have them, or that the lists in
        ImageSets/Segmentation name. classes: replaces the names that are found. skip_unreadable, progress: as for
        `FolderSource`.

        Raises UsageError if there is no image, BadListingError with the first fault.
        """
        given = Path(path).absolute()
        where = plain(os.fsencode(given))
        root, split = (given, None) if given.exists() else (given.parent, given.name)
        words = words_of(fields)
        masks = masks_of(
            words,
            lambda folder: "/" not in folder and os.path.isdir(root / folder),  # noqa: PTH112
            "for Pascal VOC, write FOLDER:mask or NAME=FOLDER:mask, such as SegmentationClass:mask, with a folder of "
            f"masks in {plain(os.fspath(root))}",
        )
        check_names(["boxes", *_FLAGS, *masks])
        every, states, folder = images_below(root / _IMAGES, skip_unreadable, progress)
        list_file = None if split is None else _list(root, "Segmentation" if masks else "Main", split)
        chosen = _with_masks(root, every, masks) if list_file is None else _listed(list_file, every, where)
        if not len(chosen):
            raise UsageError(
                f"{where} has no image" + (f" with masks in {listed([*masks.values()], 5)}" if masks else "")
            )
        names = [every[i] for i in chosen.tolist()]
        found, xml_states = _annotations(root, names, where)
        labels = classes_of(classes) if classes is not None else _classes(root, found, names, where)
        kinds, columns, labels = _columns(found, labels, where, names)
        for name, inside in masks.items():
            kinds[name], columns[name] = _masks(root, inside, name, names, where)
        info = SourceInfo(
            kind="voc",
            root=where,
            paths=(str(root),),
            fields=kinds,
            classes=labels,
            options=given_options(field=words, classes=named_file(classes)),
            counts={
                **{name: folder.counts[name] for name in FOLDER_COUNTS},
                "no_annotation": sum(one is None for one in found),
            },
            skipped=folder.skipped,
            problems=(*folder.problems, *_without_image(root, every)),
        )
        files = Files(str(root), texts_of([f"{_IMAGES}/{name}" for name in names]), states[chosen])
        of_list = () if list_file is None else (state_of(list_file, ""),)
        super().__init__(info, files, columns, np.concatenate([xml_states, *of_list]))


def _list(root: Path, kind: str, split: str) -> Path:
    return root / _SETS / kind / f"{split}.txt"


def _stem(name: str) -> str:
    return os.path.splitext(name)[0]  # noqa: PTH122 - of a path, with its folders


def _with_masks(root: Path, images: Sequence[str], masks: Mapping[str, str]) -> Rows:
    """The numbers of the images that have all masks. masks: field -> its folder."""
    there = [all((root / one / f"{_stem(name)}.png").is_file() for one in masks.values()) for name in images]
    return np.flatnonzero(there)


def _masks(root: Path, folder: str, name: str, images: Sequence[str], where: str) -> tuple[FieldKind, Files]:
    """The masks of images as a field of this name. Raises BadListingError where one is missing."""
    paths = [f"{folder}/{_stem(one)}.png" for one in images]
    for mask in paths:
        if not (root / mask).is_file():
            raise fault(where, 0, 0, "", "there is no such mask", file=mask)
    parser = PathParser(CellPosition(where, name, 0, cells=False), str(root))
    parser.add(paths, np.arange(1, len(images) + 1))
    return parser.finish("mask")


def _without_image(root: Path, images: Sequence[str]) -> list[str]:
    """A line where XML files belong to no image: their objects are in no sample."""
    lone = sorted({path.stem for path in (root / _XML).glob("*.xml")} - {*map(_stem, images)})
    return [f"{count(len(lone), 'XML file')} without an image, left out: {plain(lone[0])}.xml"] if lone else []


def _xml_of(image: str) -> str:
    return f"{_XML}/{_stem(image)}.xml"


def _listed(file: Path, images: Sequence[str], where: str) -> Rows:
    """The numbers of the images that a list names, in its order."""
    short = f"{_SETS}/{file.parent.name}/{file.name}"
    numbers = dict[str, list[int]]()
    for i, name in enumerate(images):
        numbers.setdefault(_stem(name), []).append(i)
    chosen = dict[int, int]()
    for line, name in lines_of(file):
        i, *more = numbers.get(name, numbers.get(name.split()[0], [-1]))
        if i < 0:
            raise fault(where, line, 0, "", f"there is no image {name} in {_IMAGES}", file=short)
        if more:
            names = listed([images[one] for one in (i, *more)], 3)
            raise fault(where, line, 0, "", f"{name} may be {names}: take out all but one of these", file=short)
        if chosen.setdefault(i, line) != line:
            raise fault(where, line, 0, "", f"{name} is on line {chosen[i]} already", file=short)
    return np.array([*chosen], np.int64)


def _annotations(root: Path, images: Sequence[str], where: str) -> tuple[list[ImageObjects | None], Rows]:
    """What the XML file of each image says, and size and mtime of these files; None and UNKNOWN where there is none."""
    found, states, shared = list[ImageObjects | None](), list[tuple[int, int]](), SharedFiles(images, _xml_of, where)
    for image in images:
        name = _xml_of(image)
        data, state = read_annotation(root, name, where)
        one = None if data is None else _parse(data, name, where)
        found.append(one if one is None or shared.is_of(image, name, one.file) else None)
        states.append(state)
    return found, np.array(states, np.int64).reshape(-1, 2)


def _parse(data: bytes, name: str, where: str) -> ImageObjects:
    """What an XML file says. name: of the file. where: the source, printable. Raises BadListingError."""
    found = ImageObjects()
    if len(data) > _MOST_BYTES:
        raise fault(where, 0, 0, "", f"more than {_MOST_BYTES} bytes", file=name)
    root = xml_of(data, name, where)
    if root.tag != "annotation":
        raise fault(where, 0, 0, "", f"<{shown(root.tag)[1:-1]}> is not an annotation of Pascal VOC", file=name)
    found.file = (root.findtext("filename") or "").strip()
    found.size = side((root.findtext("size/height") or "").strip()), side((root.findtext("size/width") or "").strip())
    for number, one in enumerate(root.iterfind("object"), 1):
        try:
            _add(found, one)
        except ValueError as error:
            raise fault(where, 0, 0, "", f"object {number}: {error}", file=name) from error
    return found


def _add(found: ImageObjects, one: ElementTree.Element) -> None:
    """Add an object to those of its image. Raises ValueError. A person's <part> has a name and a box of its own."""

    def text(path: str) -> str:
        return (one.findtext(path) or "").strip()

    name, pose = text("name"), text("pose")
    if not name:
        raise ValueError("it has no name")
    left, top, right, bottom = (_number(end, text(f"bndbox/{end}")) for end in ("xmin", "ymin", "xmax", "ymax"))
    if right < left or bottom < top:
        raise ValueError(f"bndbox ({left:g}, {top:g}, {right:g}, {bottom:g}): its end is before its beginning")
    flags = {flag: text(flag) for flag in ("difficult", "truncated")}
    for flag, value in flags.items():
        if value not in ("", "0", "1"):
            raise ValueError(f"{flag} {shown(value)} is not 0 or 1")
    # VOC counts pixels from 1, and both ends belong to the box.
    numbers = [int(value or 0) for value in flags.values()]
    found.rows.append((left - 1, top - 1, right, bottom, *numbers, POSES.index(pose) if pose in POSES else 0))
    found.names.append(name)


def _number(name: str, text: str) -> float:
    if not text:
        raise ValueError(f"it has no {name}")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if is_far(number) or "_" in text:
        raise ValueError(f"{name} {shown(text)} is not a number of pixels")
    return number


def _classes(root: Path, found: Sequence[ImageObjects | None], images: Sequence[str], where: str) -> tuple[str, ...]:
    """VOC's own, or else the sorted names in all XML files of the set, so that all splits have the same."""
    every = {path.name for path in (root / _XML).glob("*.xml")}
    more, _ = _annotations(root, sorted(every - {f"{_stem(name)}.xml" for name in images}), where)
    names = {name for one in (*found, *more) if one is not None for name in one.names}
    return CLASSES if names <= {*CLASSES} else tuple(sorted(names))


def _columns(
    found: Sequence[ImageObjects | None], classes: Sequence[str], where: str, images: Sequence[str]
) -> tuple[dict[str, FieldKind], dict[str, Column], tuple[str, ...]]:
    """Fields, what they are, and the names of the classes, without numbers before them. Raises UsageError."""
    every = [one or ImageObjects() for one in found]
    ends = ends_of([len(one.names) for one in every])
    values = np.array([row for one in every for row in one.rows], np.float64).reshape(-1, 4 + len(_FLAGS))
    labels = number_labels(
        [name for one in every for name in one.names], classes, where=where,
        row_name=lambda row: _xml_of(images[int(np.searchsorted(ends, row, "right")) - 1]),
    )  # fmt: skip
    flags = {name: values[:, i].astype(np.uint8) for i, name in enumerate(_FLAGS, 4)}
    sizes = np.array([one.size for one in every], np.int64)
    kinds, columns = Objects(values[:, :4], "xyxy", ends, labels, flags, sizes).fields()
    return kinds, columns, labels.names or ()
