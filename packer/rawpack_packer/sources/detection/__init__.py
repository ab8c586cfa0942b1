"""Data sets of boxes: COCO's JSON, Pascal VOC's folders, and YOLO's text files. Here is what they share.

| file | holds |
|---|---|
| `coco.py` | COCO's JSON of images, boxes, polygons, keypoints and categories; its polygons and run lengths as masks |
| `voc.py` | Pascal VOC's folders and XML files |
| `drawn.py` | shapes as annotation tools write them: their boxes, outlines and keypoints |
| `labelme.py` | labelme's JSON file for each image |
| `cvat.py` | CVAT's XML file of images |
| `yolo.py` | images with a text file each, of boxes, polygons or keypoints |
| `ultralytics.py` | the data.yaml that says where they are |
"""

from __future__ import annotations

import os
import shlex
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from xml.etree import ElementTree

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.errors import reading, reason_of
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Scanning, SourceInfo
from rawpack_packer.sources.fields import FieldKind, Fractions
from rawpack_packer.sources.files import NOT_SCANNED, UNKNOWN, opened
from rawpack_packer.sources.folder import FolderSource
from rawpack_packer.sources.listing.lines import BadListingError, CellPosition, PathParser, fault
from rawpack_packer.sources.table.choose import empty_classes
from rawpack_packer.sources.table.columns import Column, Files, RaggedColumn, Rows, ends_of
from rawpack_packer.sources.table.source import TableSource
from rawpack_packer.text import lines_in, listed, plain

_ROWS = 1 << 14
T = TypeVar("T")
FOLDER_COUNTS = ("hidden", "other_files", "special_files", "links", "loops", "problems")
"""The counts of `FolderSource` that say something of images with boxes."""


class BoxSource(TableSource):
    """Images with boxes, as a `Source`."""

    def __init__(self, info: SourceInfo, files: Files, columns: Mapping[str, Column], states: Rows) -> None:
        """files: the images. columns: field `boxes`, and others. states: of the files with the boxes. `info` gets the
        classes without a box, and the counts no_boxes (images) and empty_classes."""
        boxes = columns["boxes"]
        assert isinstance(boxes, RaggedColumn)
        empty = empty_classes(info.classes, boxes.classes())
        no_boxes = int(((np.diff(boxes.ends) == 0) & (files.states[:, 0] != NOT_SCANNED)).sum())
        counts = {**info.counts, "no_boxes": no_boxes, "empty_classes": len(empty)}
        super().__init__(replace(info, empty_classes=empty, counts=counts), files.paths, files, columns, states)

    def unread(self) -> Rows:
        return np.flatnonzero(self.states()[: len(self), 0] == NOT_SCANNED)


def images_below(folder: Path, skip_unreadable: bool, progress: Scanning) -> tuple[list[str], Rows, SourceInfo]:
    """The paths of the images below a folder, size and mtime of each, and what the scan found. Raises as
    `FolderSource`; UsageError for paths that are not UTF-8, since boxes are found by them."""
    scan = FolderSource(folder, skip_unreadable=skip_unreadable, progress=progress)
    if scan.info.counts["bad_names"]:
        raise UsageError(f"{scan.info.root} has names that are not UTF-8: rename these files")
    return [scan.key(i) for i in range(len(scan))], scan.states(), scan.info


def read_annotation(root: Path, name: str, where: str) -> tuple[bytes | None, tuple[int, int]]:
    """The file with the boxes of an image, and its size and mtime; None where there is none. where: the source,
    printable. Raises BadListingError."""
    try:
        with opened(str(root / name)) as descriptor:
            state = os.fstat(descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(), (state.st_size, state.st_mtime_ns)
    except FileNotFoundError:
        return None, UNKNOWN
    except OSError as error:
        raise fault(where, 0, 0, "", f"cannot be read: {reason_of(error)}", file=name) from error


class SharedFiles:
    """Files of annotations that by their names may be those of several images: `a.json` of `a.jpg` and `a.png`."""

    def __init__(self, images: Iterable[str], file_of: Callable[[str], str], where: str) -> None:
        """file_of: the file of an image. where: the source, printable."""
        found = dict[str, list[str]]()
        for image in images:
            found.setdefault(file_of(image), []).append(image)
        self._where, self._several = where, {file: some for file, some in found.items() if len(some) > 1}

    def is_of(self, image: str, file: str, said: str) -> bool:
        """Whether a file is that of an image. said: the image that the file names, as the tool has it that wrote it.
        Raises BadListingError where that is none of those that may be meant."""
        if file not in self._several:
            return True
        some, last = self._several[file], said.replace("\\", "/").rpartition("/")[2]
        named = [one for one in some if one.rpartition("/")[2] == last]
        if len(named) != 1:
            what = f"it may be that of {listed(some, 3)}, and names the image {last!r}: take out all but one of these"
            raise fault(self._where, 0, 0, "", what, file=file)
        return named == [image]


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Annotations may come from anywhere: nothing in one is expanded or fetched."""

    def doctype(self, *_: object) -> None:
        raise ValueError("has a DOCTYPE, which annotations do not need: take it out")


def xml_of(data: bytes, name: str, where: str) -> ElementTree.Element:
    """An XML file of annotations. name: of the file. where: the source, printable. Raises BadListingError."""
    try:
        return ElementTree.fromstring(data, ElementTree.XMLParser(target=_WithoutDoctype()))
    except ElementTree.ParseError as error:
        raise fault(where, 0, 0, "", f"is not XML: {error}", file=name) from error
    except (ValueError, LookupError) as error:  # of an encoding that there is not, too
        raise fault(where, 0, 0, "", str(error), file=name) from error


def without_files(info: SourceInfo, suffix: str, number: int) -> SourceInfo:
    """What a scan of images found, where some of the files that are no images were read."""
    counts = {name: info.counts[name] for name in FOLDER_COUNTS}
    counts["other_files"] = max(0, counts["other_files"] - number)
    skipped = {**info.skipped, suffix: max(0, info.skipped.get(suffix, 0) - number)}
    return replace(info, counts=counts, skipped={one: many for one, many in skipped.items() if many})


def numbered(values: Iterable[T], what: str, where: str) -> dict[T, int]:
    """The position of each value. what: where value {} is in the JSON. where: the file.

    Raises BadListingError for a value that is there twice."""
    positions: dict[T, int] = {}
    for number, value in enumerate(values):
        if (before := positions.setdefault(value, number)) != number:
            raise fault(where, 0, 0, "", f"{what.format(number)}: {value!r} belongs to {what.format(before)} too")
    return positions


@dataclass(frozen=True)
class _Listed(CellPosition):
    """The position of an image's name, which is not a line. name: as `what` of `listed_files`."""

    def fault(self, line: int | None, what: str) -> BadListingError:
        return fault(self.where, 0, 0, "", f"{self.name.format(line)}: {what}")


def listed_files(
    names: Sequence[str], what: str, root: str, within: Sequence[str], where: str, progress: Scanning
) -> Files:
    """The images that a file of annotations lists. what: where the name of image {} is in it. root, within: see
    `PathParser`. where: the file, printable. Raises BadListingError."""
    numbered(names, what, where)
    trusting = f"name the folder that its paths start from: {opt.images(shlex.quote(plain(root)))}"
    parser = PathParser(_Listed(where, what, 0, cells=False), root, within, trusting)
    for start in range(0, len(names), _ROWS):
        some = names[start : start + _ROWS]
        parser.add(some, np.arange(start, start + len(some)))
        progress(start + len(some))
    return parser.files()


def lines_of(file: Path) -> list[tuple[int, str]]:
    """The lines of a list that are not empty, each with its number. Raises UsageError."""
    where = plain(os.fspath(file))
    with reading(where):
        data = file.read_bytes()
    try:
        lines = lines_in(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} cannot be read: its text is not UTF-8") from error
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()]


def masks_of(words: Sequence[str], known: Callable[[str], bool], cure: str) -> dict[str, str]:
    """Each mask field -> what it is made of: NAME=WHAT:mask, or WHAT:mask. known: whether there is such a WHAT."""
    masks = dict[str, str]()
    for text in words:
        name, _, what = text.removesuffix(":mask").rpartition("=")
        if not text.endswith(":mask") or not known(what):
            raise UsageError(f"{opt.fields(text)}: {cure}")
        if (name or what) in masks:
            raise UsageError(f"{opt.fields(name or what)} is given twice")
        masks[name or what] = what
    return masks


MOST_KEYPOINTS = 1024
POLYGONS = FieldKind("float32", (None, 4), follows="polygons")


def keypoints_kind(count: int, mirror: tuple[int, ...] = ()) -> FieldKind:
    """A field with this number of keypoints for each box."""
    return FieldKind("float32", (None, count, 3), follows="keypoints", mirror=mirror)


@dataclass(frozen=True, slots=True, eq=False)
class FractionsColumn:
    """Keypoints or polygons whose x and y are fractions of the image."""

    column: RaggedColumn

    def value(self, i: int, /) -> Fractions:
        rows = self.column.value(i)
        assert isinstance(rows, np.ndarray)
        return Fractions(rows)

    def pick(self, rows: Rows, /) -> FractionsColumn:
        return FractionsColumn(self.column.pick(rows))


class PolygonRows:
    """Collects the outlines of images, one image after another."""

    def __init__(self) -> None:
        self._points, self._lengths, self._owners, self._ends = array("f"), array("q"), array("q"), [0]

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, points: list[float], box: int, part: int = 0) -> None:
        """An outline, x, y, x, y, ..., of the box with that row in this image."""
        self._points.extend(points)
        self._lengths.append(len(points) // 2)
        self._owners.extend((box, part))

    def end(self) -> None:
        """The next outline belongs to the next image."""
        self._ends.append(len(self._lengths))

    def column(self) -> RaggedColumn:
        """All of them: x, y, box, part."""
        points = np.frombuffer(self._points, np.float32).reshape(-1, 2)
        owners = np.frombuffer(self._owners, np.int64).reshape(-1, 2)
        lengths = np.frombuffer(self._lengths, np.int64)
        rows = np.concatenate([points, np.repeat(owners, lengths, axis=0).astype(np.float32)], axis=1)
        return RaggedColumn(rows, ends_of(lengths)[self._ends])
