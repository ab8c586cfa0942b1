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
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar
from xml.etree import ElementTree

import msgspec
import numpy as np
import xxhash

from rawpack.errors import UsageError
from rawpack_packer.errors import reading, reason_of
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Scanning, SourceInfo
from rawpack_packer.sources.fields import FieldKind, Fractions
from rawpack_packer.sources.files import NOT_SCANNED, UNKNOWN, opened
from rawpack_packer.sources.folder import NoImageError, scan_folder, wanted_images
from rawpack_packer.sources.listing.lines import BadListingError, CellPosition, PathParser, fault
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.assemble import table_of
from rawpack_packer.sources.table.choose import empty_classes
from rawpack_packer.sources.table.columns import Column, Files, RaggedColumn, Rows, ends_of
from rawpack_packer.sources.table.objects import all_faulty
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import lines_in, listed, plain

_ROWS = 1 << 14
T = TypeVar("T")
FOLDER_COUNTS = ("hidden", "other_files", "special_files", "links", "loops", "problems")
"""The counts of a scan that say something of images with boxes."""


NO_FAULTS: Mapping[int, str] = MappingProxyType({})


def box_table(
    info: SourceInfo,
    files: Files,
    columns: Mapping[str, Column],
    states: Rows,
    faults: Mapping[int, str] = NO_FAULTS,
) -> Table:
    """The table of images with boxes.

    files: the images. columns: field `boxes`, and others. states: of the files with the boxes. faults: number of an
    image whose annotation cannot be read, so that it is rejected -> where and what is wrong. `info` gets the classes
    without a box, and the counts no_boxes (images) and empty_classes.

    Raises BadListingError where not even one box could be read.
    """
    boxes = columns["boxes"]
    assert isinstance(boxes, RaggedColumn)
    lengths = np.diff(boxes.ends)
    faulty = np.array([*faults], np.int64)
    if wrong := all_faulty(lengths, faults):
        raise BadListingError(f"{info.root}: {wrong}")
    empty = empty_classes(info.classes, boxes.classes())
    without = (lengths == 0) & (files.states[:, 0] != NOT_SCANNED)
    without[faulty] = False
    counts = {**info.counts, "no_boxes": int(without.sum()), "empty_classes": len(empty)}
    if faults:
        columns = {**columns, "boxes": replace(boxes, faults=faults)}
    unread = np.flatnonzero(files.states[:, 0] == NOT_SCANNED)
    info = replace(info, empty_classes=empty, counts=counts)
    return table_of(info, files.paths, files, columns, states, unread=unread)


def read_whole(listing: Listing, where: str, declared: str = "") -> tuple[bytes, Rows]:
    """All bytes of a file that lists images, without a byte order mark; and what `Source.states` has for it, see
    `lines.state_of`. where: it, printable. Raises UsageError."""
    with reading(where):
        data = listing.contents() or listing.path.read_bytes()  # which says why there is none
    digest = xxhash.xxh3_64(declared.encode("utf-8", "surrogatepass"))
    digest.update(data)
    return data.removeprefix(BOM_UTF8), np.array([[len(data), digest.intdigest() - (1 << 63)]], np.int64)


def images_below(
    folder: Path, skip_unreadable: bool, progress: Scanning, annotations: str | None = None
) -> tuple[list[str], Rows, SourceInfo]:
    """The paths of the images below a folder, size and mtime of each, and what the scan found. annotations: the suffix
    of files that the scan does not open. Raises as `open_folder`; UsageError for paths that are not UTF-8, since boxes
    are found by them."""
    where, wanted = plain(os.fsencode(folder)), msgspec.structs.replace(wanted_images(), unopened=annotations)
    scan = scan_folder(str(folder), wanted, progress, skip_unreadable=skip_unreadable)
    if not scan.samples:
        raise NoImageError(where, scan)
    if scan.counts["bad_names"]:
        raise UsageError(f"{where} has names that are not UTF-8: rename these files")
    files = scan.files()
    return [files.key(i) for i in range(len(files))], files.states, replace(scan.info("folder", where), doubts=())


def read_annotation(root: Path, name: str, where: str) -> tuple[bytes | None, tuple[int, int]]:
    """The file with the boxes of an image, without a byte order mark, and its size and mtime; None where there is none.
    where: the source, printable. Raises BadListingError."""
    try:
        with opened(str(root / name)) as descriptor:
            state = os.fstat(descriptor)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read().removeprefix(BOM_UTF8), (state.st_size, state.st_mtime_ns)
    except FileNotFoundError:
        return None, UNKNOWN
    except OSError as error:
        raise fault(where, 0, 0, "", f"cannot be read: {reason_of(error)}", file=name) from error


class SharedFiles:
    """Files of annotations that by their names may be those of several images: `a.json` of `a.jpg` and `a.png`."""

    def __init__(self, images: Iterable[str], file_of: Callable[[str], str]) -> None:
        """file_of: the file of an image."""
        images_of = dict[str, list[str]]()
        for image in images:
            images_of.setdefault(file_of(image), []).append(image)
        self.several = {file: several for file, several in images_of.items() if len(several) > 1}
        """File -> the images that it may be of."""

    def is_of(self, image: str, file: str, name: str) -> bool:
        """Whether a file is that of an image. name: of the image, as the tool wrote it into the file. Raises ValueError
        where that is none of those that may be meant."""
        if file not in self.several:
            return True
        several, last = self.several[file], name.replace("\\", "/").rpartition("/")[2]
        matching = [path for path in several if path.rpartition("/")[2] == last]
        if len(matching) != 1:
            raise ValueError(
                f"it may be that of {listed(several, 3)}, and names the image {last!r}: take out all but one of these"
            )
        return matching == [image]


class _WithoutDoctype(ElementTree.TreeBuilder):
    """Annotations may come from anywhere: nothing in one is expanded or fetched."""

    def doctype(self, *_: object) -> None:
        raise ValueError("has a DOCTYPE, which annotations do not need: take it out")


def xml_of(data: bytes) -> ElementTree.Element:
    """An XML file of annotations. Raises ValueError."""
    try:
        return ElementTree.fromstring(data, ElementTree.XMLParser(target=_WithoutDoctype()))
    except ElementTree.ParseError as error:
        raise ValueError(f"is not XML: {error}") from error
    except LookupError as error:  # of an encoding that there is not
        raise ValueError(str(error)) from error


def without_files(info: SourceInfo, suffix: str = "", number: int = 0) -> SourceInfo:
    """What a scan of images found, where some of the files that are no images were read."""
    counts = {name: info.counts[name] for name in FOLDER_COUNTS}
    counts["other_files"] = max(0, counts["other_files"] - number)
    skipped = {**info.skipped, suffix: max(0, info.skipped.get(suffix, 0) - number)}
    return replace(info, counts=counts, skipped={name: many for name, many in skipped.items() if many}, flat=False)


def numbered(values: Iterable[T], what: str, where: str) -> dict[T, int]:
    """The position of each value. what: where value {} is in the JSON. where: the file.

    Raises BadListingError for a value that is there twice."""
    positions: dict[T, int] = {}
    for number, value in enumerate(values):
        if (before := positions.setdefault(value, number)) != number:
            raise fault(where, 0, 0, "", f"{what.format(number)}: {value!r} belongs to {what.format(before)} too")
    return positions


@dataclass(frozen=True, kw_only=True)
class PathPosition(CellPosition):
    """The position of an image's path in what lists it."""

    call: Callable[[int | None], str]
    """What messages call it, by its number."""

    def fault(self, line: int | None, what: str) -> BadListingError:
        return fault(self.where, 0, 0, "", f"{self.call(line)}: {what}")


def listed_files(
    names: Sequence[str], what: str, root: str, within: Sequence[str], where: str, progress: Scanning
) -> Files:
    """The images that a file of annotations lists. what: where the name of image {} is in it. root, within: see
    `PathParser`. where: the file, printable. Raises BadListingError."""
    numbered(names, what, where)
    trusting = f"name the folder that its paths start from: {opt.images(shlex.quote(plain(root)))}"
    parser = PathParser(PathPosition(where, "", 0, cells=False, call=what.format), root, within, trusting)
    for start in range(0, len(names), _ROWS):
        some = names[start : start + _ROWS]
        parser.add(some, np.arange(start, start + len(some)))
        progress(start + len(some))
    return parser.files()


def lines_of(listing: Listing, where: str) -> tuple[list[tuple[int, str]], Rows]:
    """The lines of a list that are not empty, each with its number; and its state, see `read_whole`. where: it,
    printable. Raises UsageError."""
    data, state = read_whole(listing, where)
    try:
        lines = lines_in(data.decode())
    except UnicodeDecodeError as error:
        raise UsageError(f"{where} cannot be read: its text is not UTF-8") from error
    return [(number, line.strip()) for number, line in enumerate(lines, 1) if line.strip()], state


def masks_of(words: Sequence[str], exists: Callable[[str], bool], cure: str) -> dict[str, str]:
    """Each mask field -> what it is made of: NAME=WHAT:mask, or WHAT:mask. exists: whether there is such a WHAT."""
    masks = dict[str, str]()
    for text in words:
        name, _, what = text.removesuffix(":mask").rpartition("=")
        if not text.endswith(":mask") or not exists(what):
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
