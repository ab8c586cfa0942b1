"""Pascal VOC's layout as a source: JPEGImages, an XML file in Annotations for each, lists in ImageSets, and masks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.base import Scanning, given_options, unseen
from rawpack_packer.sources.declared import words_of
from rawpack_packer.sources.detection import (
    SharedFiles,
    box_table,
    images_below,
    lines_of,
    masks_of,
    read_annotation,
    without_files,
    xml_of,
)
from rawpack_packer.sources.detection.drawn import Drawn, pixels_of
from rawpack_packer.sources.fields import FieldKind, Fields, check_names
from rawpack_packer.sources.listing.lines import CellPosition, PathParser, fault, shown
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.numbers import side
from rawpack_packer.sources.table.choose import Classes, classes_of, named_file
from rawpack_packer.sources.table.columns import Files, Rows, texts_of
from rawpack_packer.sources.table.table import Table
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


def is_voc(listing: Listing) -> bool:
    """Whether a path is a folder with JPEGImages and Annotations, or names a list of one, as `VOC2012/train`."""
    if listing.exists:
        return (listing / _IMAGES).is_dir and (listing / _XML).is_dir
    lists = (_list(listing.above, kind, listing.path.name) for kind in ("Main", "Segmentation"))
    return is_voc(listing.above) and any(file.is_file for file in lists)


def voc_splits(listing: Listing) -> list[str]:
    """Those of train, val and test of which such a folder has lists; empty where there are fewer than two."""
    names = [name for name in _SPLITS if _list(listing, "Main", name).is_file]
    return names if len(names) > 1 else []


def open_voc(
    path: str | os.PathLike[str],
    /,
    *,
    fields: Fields = (),
    classes: Classes | None = None,
    skip_unreadable: bool = False,
    progress: Scanning = unseen,
) -> Table:
    """Images with the boxes of their XML files.

    Fields: `boxes`; `difficult`, `truncated` and `pose`, a number for each box; and masks that were asked for. The
    classes are VOC's 20, if there are no others, or else the sorted names in all XML files.

    `counts`: no_boxes and no_annotation (images), empty_classes, and those of `open_folder` that count files.

    path: `VOCdevkit/VOC2012`, or one of its lists, `VOCdevkit/VOC2012/train`. fields: masks, each as `FOLDER:mask` or
    `NAME=FOLDER:mask`; then the images are those that have them, or that the lists in ImageSets/Segmentation name.
    classes: replaces the names that are found. skip_unreadable, progress: as for `open_folder`.

    Raises UsageError if there is no image, BadListingError if no box can be read.
    """
    listing = Listing.of(path)
    where = plain(os.fsencode(listing.path.absolute()))
    whole, split = (listing, None) if listing.exists else (listing.above, listing.path.name)
    root = whole.path.absolute()
    words = words_of(fields)
    masks = masks_of(
        words,
        lambda folder: "/" not in folder and (whole / folder).is_dir,
        "for Pascal VOC, write FOLDER:mask or NAME=FOLDER:mask, such as SegmentationClass:mask, with a folder of "
        f"masks in {plain(os.fspath(root))}",
    )
    check_names(["boxes", *_FLAGS, *masks])
    every, states, folder = images_below(root / _IMAGES, skip_unreadable, progress)
    of_list = []
    if split is None:
        with_masks = [all((root / m / f"{_stem(name)}.png").is_file() for m in masks.values()) for name in every]
        chosen = np.flatnonzero(with_masks)
    else:
        chosen, state = _listed(_list(whole, "Segmentation" if masks else "Main", split), every, where)
        of_list.append(state)
    if not len(chosen):
        raise UsageError(f"{where} has no image" + (f" with masks in {listed([*masks.values()], 5)}" if masks else ""))
    names, drawn = [every[i] for i in chosen.tolist()], Drawn(where, always=_FLAGS)
    missing, xml_states = _add_files(drawn, root, names, where)
    without_image = _xml_stems(whole / _XML) - {*map(_stem, every)}
    if classes is None:  # all splits have the same, VOC's own or those of all files
        others = Drawn(where)
        _add_files(others, root, sorted(_xml_stems(whole / _XML) - {*map(_stem, names)}), where)
        used = {*drawn.names, *others.names}
        classes = CLASSES if used <= {*CLASSES} else sorted(used)
        file_of_classes = None
    else:
        classes, file_of_classes = classes_of(classes), named_file(classes)
    kinds, columns, labels = drawn.fields(classes, lambda i: _xml_of(names[i]))
    for name, inside in masks.items():
        kinds[name], columns[name] = _masks(root, inside, name, names, where)
    lone = [f"{count(len(without_image), 'XML file')} without an image, left out: {plain(min(without_image))}.xml"
            ] if without_image else []  # fmt: skip
    info = without_files(folder)
    info = replace(
        info,
        kind="voc",
        root=where,
        paths=(str(root),),
        fields=kinds,
        classes=labels or (),
        options=given_options(field=words, classes=file_of_classes),
        counts={**info.counts, "no_annotation": missing},
        problems=(*info.problems, *lone),
    )
    files = Files(str(root), texts_of([f"{_IMAGES}/{name}" for name in names]), states[chosen])
    return box_table(info, files, columns, np.concatenate([xml_states, *of_list]), drawn.faults)


def _list(listing: Listing, kind: str, split: str) -> Listing:
    return listing / f"{_SETS}/{kind}/{split}.txt"


def _stem(name: str) -> str:
    return os.path.splitext(name)[0]  # noqa: PTH122 - of a path, with its folders


def _xml_of(image: str) -> str:
    return f"{_XML}/{_stem(image)}.xml"


def _xml_stems(folder: Listing) -> set[str]:
    """The names of the XML files in a folder, without their suffix; none where it cannot be read."""
    with suppress(OSError, ValueError):
        return {name.removesuffix(".xml") for name, _ in folder.all_names() if name.endswith(".xml")}
    return set()


def _masks(root: Path, folder: str, name: str, images: Sequence[str], where: str) -> tuple[FieldKind, Files]:
    """The masks of images as a field of this name. Raises BadListingError where one is missing."""
    paths = [f"{folder}/{_stem(image)}.png" for image in images]
    for mask in paths:
        if not (root / mask).is_file():
            raise fault(where, 0, 0, "", "there is no such mask", file=mask)
    parser = PathParser(CellPosition(where, name, 0, cells=False), str(root))
    parser.add(paths, np.arange(1, len(images) + 1))
    return parser.finish("mask")


def _listed(file: Listing, images: Sequence[str], where: str) -> tuple[Rows, Rows]:
    """The numbers of the images that a list names, in its order; and its state."""
    short = f"{_SETS}/{file.path.parent.name}/{file.path.name}"
    numbers = dict[str, list[int]]()
    for i, name in enumerate(images):
        numbers.setdefault(_stem(name), []).append(i)
    chosen = dict[int, int]()
    lines, state = lines_of(file, plain(os.fsencode(file.path.absolute())))
    for line, name in lines:
        i, *more = numbers.get(name, numbers.get(name.split()[0], [-1]))
        if i < 0:
            raise fault(where, line, 0, "", f"there is no image {name} in {_IMAGES}", file=short)
        if more:
            names = listed([images[k] for k in (i, *more)], 3)
            raise fault(where, line, 0, "", f"{name} may be {names}: take out all but one of these", file=short)
        if chosen.setdefault(i, line) != line:
            raise fault(where, line, 0, "", f"{name} is on line {chosen[i]} already", file=short)
    return np.array([*chosen], np.int64), state


def _add_files(drawn: Drawn, root: Path, images: Sequence[str], where: str) -> tuple[int, Rows]:
    """Add what the XML file of each image says. Returns how many images have none; and size and mtime of each file,
    UNKNOWN where there is none."""
    missing, states, shared = 0, list[tuple[int, int]](), SharedFiles(images, _xml_of)
    for image in images:
        name = _xml_of(image)
        data, state = read_annotation(root, name, where)
        states.append(state)
        with drawn.image(f"{name}: "):
            tree = None if data is None else _tree(data)
            if tree is None or not shared.is_of(image, name, _text(tree, "filename")):
                missing += 1
            else:
                drawn.size = side(_text(tree, "size/height")), side(_text(tree, "size/width"))
                drawn.add_all(tree.iterfind("object"), _add, lambda number, _: f"object {number}")
    return missing, np.array(states, np.int64).reshape(-1, 2)


def _tree(data: bytes) -> Element:
    """An XML file of an image. Raises ValueError."""
    if len(data) > _MOST_BYTES:
        raise ValueError(f"more than {_MOST_BYTES} bytes")
    tree = xml_of(data)
    if tree.tag != "annotation":
        raise ValueError(f"<{shown(tree.tag)[1:-1]}> is not an annotation of Pascal VOC")
    return tree


def _text(element: Element, path: str) -> str:
    return (element.findtext(path) or "").strip()


def _add(drawn: Drawn, shape: Element) -> None:
    """Add an object to those of its image. Raises ValueError. A person's <part> has a name and a box of its own."""
    left, top, right, bottom = (
        pixels_of(end, _text(shape, f"bndbox/{end}")) for end in ("xmin", "ymin", "xmax", "ymax")
    )
    if right < left or bottom < top:
        raise ValueError(f"bndbox ({left:g}, {top:g}, {right:g}, {bottom:g}): its end is before its beginning")
    numbers = dict[str, int]()
    for flag in ("difficult", "truncated"):
        if (value := _text(shape, flag)) not in ("", "0", "1"):
            raise ValueError(f"{flag} {shown(value)} is not 0 or 1")
        numbers[flag] = int(value or 0)
    pose = _text(shape, "pose")
    numbers["pose"] = POSES.index(pose) if pose in POSES else 0
    # VOC counts pixels from 1, and both ends belong to the box.
    drawn.add(_text(shape, "name"), (left - 1, top - 1, right, bottom), numbers=numbers)
