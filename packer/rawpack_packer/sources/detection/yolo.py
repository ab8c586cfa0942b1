"""YOLO files as a source: images with a text file each: a line per box, polygon, or box with keypoints."""

from __future__ import annotations

import math
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.detection import (
    FOLDER_COUNTS,
    POLYGONS,
    FractionsColumn,
    PolygonRows,
    SharedFiles,
    box_table,
    images_below,
    keypoints_kind,
    read_annotation,
    without_files,
)
from rawpack_packer.sources.detection.ultralytics import DataYaml, is_data_yaml, read_list, read_yaml
from rawpack_packer.sources.fields import SHARE_SLACK, FieldKind, clipped_line
from rawpack_packer.sources.files import NOT_SCANNED, UNKNOWN
from rawpack_packer.sources.folder import is_split
from rawpack_packer.sources.listing.lines import BadListingError, fault
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.table.choose import Classes, classes_of, named_file
from rawpack_packer.sources.table.columns import Column, Files, RaggedColumn, Rows, ends_of, texts_of
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import count, plain

_SPLITS = ("train", "val", "valid", "test")
_IMAGES = ("images", "JPEGImages")
_VALUES = ("class", "x", "y", "width", "height")
_NAME_FILES = ("classes.txt", "obj.names")
_YAML = ("data.yaml", "dataset.yaml", "data.yml")


def is_yolo(listing: Listing) -> bool:
    """Whether a path is certainly one: it, or a split in it, has folders `images` (or `JPEGImages`) and `labels` side
    by side; or it names a split of such a folder or of a data.yaml."""
    folders = [listing, *(listing / split for split in _SPLITS)]
    if any((folder / "labels").is_dir and any((folder / name).is_dir for name in _IMAGES) for folder in folders):
        return True
    return not listing.exists and (is_data_yaml(listing.above) or _inner(listing) is not None)


def open_yolo(
    path: str | os.PathLike[str],
    /,
    *,
    classes: Classes | None = None,
    images: str | os.PathLike[str] | None = None,
    labels_dir: str | os.PathLike[str] | None = None,
    skip_unreadable: bool = False,
    progress: Scanning = unseen,
) -> Table:
    """Images, each with the boxes, polygons or keypoints of its text file.

    The file of `images/train/a.jpg` is `labels/train/a.txt`, or, where there is none, that next to the image. An image
    without a file, or with an empty one, has no boxes. Class names come from `classes.txt`, `obj.names` or `data.yaml`
    in the folder; those of a split, such as `train`, may be next to it.

    Fields: `boxes`; `keypoints`, if a data.yaml has `kpt_shape`; `polygons`, if any file has one. `counts`: no_boxes
    (images), empty_classes, and those of `open_folder` that count files.

    path: a folder, a data.yaml, or a split of either, such as `coco8.yaml/train`. classes: replaces those in the
    folder. images, labels_dir: the folders of the images and of the text files, which have the same subfolders; of a
    data.yaml, names and keypoints count then. skip_unreadable, progress: as for `open_folder`.

    Raises UsageError if there is no image, BadListingError if no line can be read.
    """
    listing = Listing.of(path)
    where = plain(os.fsencode(listing.path.absolute()))
    pictures = _images(listing, images, labels_dir, skip_unreadable, progress, where)
    data_yaml = pictures.yaml or _yaml_of(pictures.named)
    names = None if pictures.yaml is None else pictures.yaml.names
    names = classes_of(classes) if classes is not None else names or _names(pictures.named)
    keypoints, mirror = (None, ()) if data_yaml is None else (data_yaml.keypoints, data_yaml.mirror)
    label = partial(label_files, pictures.root, labels=labels_dir)
    reader = _LabelReader(pictures.root, where, math.inf if names is None else len(names), keypoints)
    scanned = pictures.states[:, 0] != NOT_SCANNED
    for image, readable in zip(pictures.paths, scanned, strict=True):
        reader.add(label(image) if readable else [])
    if not reader.files:
        first = pictures.paths[int(scanned.argmax())]
        raise UsageError(
            f"{where} has no text file of boxes for any image: that of {plain(first)} would be "
            f"{plain(label(first)[0])}; give the folder that contains images and labels, or both by "
            f"{opt.images} and {opt.labels_dir}"
        )
    kinds = {"boxes": FieldKind("float32", (None, len(_VALUES)), boxes="yolo")}
    columns: dict[str, Column] = {"boxes": reader.boxes()}
    if keypoints is not None:
        kinds["keypoints"] = keypoints_kind(keypoints[0], mirror)
        columns["keypoints"] = FractionsColumn(reader.keypoints())
    if len(reader.polygons):
        kinds["polygons"], columns["polygons"] = POLYGONS, FractionsColumn(reader.polygons.column())
    info = without_files(pictures.info, ".txt", reader.files)
    info = replace(
        info,
        kind="yolo",
        root=where,
        fields=kinds,
        classes=names,
        options=given_options(classes=named_file(classes), images=images, labels_dir=labels_dir),
        problems=(*info.problems, *_twins(pictures.paths, reader.states, label), *clipped_line(reader.clipped)),
    )
    files = Files(str(pictures.root), texts_of(pictures.paths), pictures.states)
    states = np.concatenate([np.array(reader.states, np.int64), *pictures.lists])
    return box_table(info, files, columns, states, reader.faults)


@dataclass
class _ImageSet:
    """The images of a source."""

    root: Path
    """What paths are relative to."""
    named: Listing
    """The folder that may have files with names of classes."""
    yaml: DataYaml | None
    paths: list[str]
    states: Rows
    info: SourceInfo
    """What the scans found."""
    lists: list[Rows]
    """The states of files that say which images there are."""


def _images(
    listing: Listing,
    images: str | os.PathLike[str] | None,
    labels: str | os.PathLike[str] | None,
    skip_unreadable: bool,
    progress: Scanning,
    where: str,
) -> _ImageSet:
    for folder, option, what in ((images, opt.images, "images"), (labels, opt.labels_dir, "text files")):
        if folder is not None and not Path(folder).is_dir():
            raise UsageError(f"there is no folder {plain(os.fspath(folder))}: {option} names the folder of the {what}")
    path = listing.path.absolute()
    file, split = (listing, None) if is_data_yaml(listing) else (listing.above, path.name)
    yaml, lists = None, list[Rows]()
    if is_data_yaml(file):
        yaml, state = read_yaml(file)
        lists.append(state)
    root, places, within = path, [path], [path]
    if images is not None:  # the data.yaml is for the names of classes, and keypoints
        root = Path(images).absolute()
        places = [root]
        if split is not None and yaml is not None:
            raise UsageError(
                f"{where} is a split, and {opt.images} names all images: give {plain(os.fspath(yaml.path))}"
            )
    elif yaml is not None:
        root, of_splits = yaml.places()
        if split is not None and split not in of_splits:
            raise UsageError(
                f"{plain(os.fspath(yaml.path))} has no split {plain(split)!r}: it has {', '.join(of_splits)}"
            )
        chosen = of_splits.values() if split is None else [of_splits[split]]
        places = list(dict.fromkeys(place for several in chosen for place in several))
        within = [root, yaml.path.parent]
        root = Path(os.path.commonpath([root, *places]))
        root = root.parent if root.is_file() else root
    elif not listing.exists and (inner := _inner(listing)) is not None:
        root, places = path.parent, [inner.path.absolute()]
    paths, states, problems = list[str](), list[Rows](), list[str]()
    counts, skipped = Counter(dict.fromkeys(FOLDER_COUNTS, 0)), Counter[str]()
    for place in places:
        if place.is_file():
            names, of_images, of_list = read_list(place, root, within, where)
            lists.append(of_list)
        else:
            names, of_images, scan = images_below(place, skip_unreadable, progress, ".txt")
            before = "" if place == root else f"{place.relative_to(root).as_posix()}/"
            names = [before + name for name in names]
            problems += scan.problems
            skipped.update(scan.skipped)
            counts.update(scan.counts)
        paths += names
        states.append(of_images)
    if len(set(paths)) < len(paths):
        twice = next(name for name, times in Counter(paths).items() if times > 1)
        raise fault(where, 0, 0, "", f"{twice} is listed twice, and keys must be unique")
    if not paths:
        raise UsageError(f"{plain(os.fspath(path))} lists no image")
    read_from = [path if yaml is None else yaml.path, *([root] if yaml is not None or images is not None else [])]
    read_from += [] if labels is None else [Path(labels).absolute()]
    there = tuple(os.fspath(folder) for folder in read_from if os.path.lexists(folder)) or (str(root),)
    info = SourceInfo(kind="", root="", paths=there, counts=counts, skipped=skipped, problems=tuple(problems))
    named = Listing(path if yaml is None and listing.exists else root)
    return _ImageSet(root, named, yaml, paths, np.concatenate(states), info, lists)


def _inner(listing: Listing) -> Listing | None:
    """The folder of images that a path such as `coco8/train` means; None where it means none."""
    folder, name = listing.above, listing.path.name
    inner = folder / "images" / name
    return inner if is_split(name) and inner.is_dir and (folder / "labels").is_dir else None


class _LabelReader:
    """Reads the text files of images, one after another."""

    def __init__(self, root: Path, where: str, classes: float, keypoints: tuple[int, int] | None) -> None:
        """classes: how many there are. keypoints: how many a box has, and 2 or 3 numbers for each."""
        self._root, self._where, self._classes, self._keypoints = root, where, classes, keypoints
        self.states: list[tuple[int, int]] = []
        """Size and mtime of the file of each image."""
        self.files = self.clipped = 0
        """How many were read, and how many lines had a number slightly outside 0 to 1."""
        self.faults = dict[int, str]()
        """Number of an image that is rejected -> where and what is wrong."""
        self.polygons = PolygonRows()
        self._values, self._points = array("d"), array("d")
        self._lengths: list[int] = []

    def add(self, names: Sequence[str]) -> None:
        """Read the file of an image. names: as from `label_files`; none where the image could not be looked at."""
        name, *others = names or ("",)
        data, state = read_annotation(self._root, name, self._where) if name else (None, UNKNOWN)
        rows = list[list[float]]()
        if data is not None:
            self.files += 1
            try:
                for other in others:
                    if read_annotation(self._root, other, self._where)[0] != data:
                        cure = f"take out one, or name the folder of the other by {opt.labels_dir}"
                        raise ValueError(f"{name} and {other} differ: {cure}")
                lines = ((number, line.split()) for number, line in enumerate(data.splitlines(), 1))
                rows = [self._row(name, number, cells) for number, cells in lines if cells]
            except BadListingError:  # of a file that cannot be opened
                raise
            except ValueError as error:
                self.faults[len(self.states)] = str(error)
        for row, values in enumerate(rows):
            if self._keypoints is not None:
                self._points.extend(values[len(_VALUES) :])
            elif len(values) > len(_VALUES):
                x, y = values[1::2], values[2::2]
                self.polygons.add(values[1:], row)
                left, right, top, bottom = min(x), max(x), min(y), max(y)
                values[1:] = (left + right) / 2, (top + bottom) / 2, right - left, bottom - top
            self._values.extend(values[: len(_VALUES)])
        self.states.append(state)
        self._lengths.append(len(rows))
        self.polygons.end()

    def boxes(self) -> RaggedColumn:
        """The boxes of all images, as in the files."""
        values = np.array(self._values, np.float64).reshape(-1, len(_VALUES))
        return RaggedColumn(values, ends_of(self._lengths), "yolo")

    def keypoints(self) -> RaggedColumn:
        """The keypoints of all images: x, y, visibility, which is 2 for all that come without."""
        count, numbers = self._keypoints or (1, 3)
        points = np.array(self._points, np.float64).reshape(-1, count, numbers)
        if numbers == 2:
            points = np.concatenate([points, np.full((*points.shape[:2], 1), 2.0)], axis=2)
        return RaggedColumn(points, ends_of(self._lengths))

    def _row(self, name: str, number: int, cells: list[bytes]) -> list[float]:
        """The values of a line, all at once: outlines have very many. Raises ValueError with the place."""
        if self._wrong_length(len(cells)) or b"_" in b"".join(cells):  # only Python reads 1_0 as a number
            raise self._fault(name, number, cells)
        try:
            values = [*map(float, cells)]
        except ValueError:
            raise self._fault(name, number, cells) from None
        shares, visible = values[1:], list[float]()
        if self._keypoints is not None and self._keypoints[1] == 3:
            visible = shares[6::3]
            del shares[6::3]
        low, high = min(shares), max(shares)
        good = 0 <= values[0] < self._classes and values[0].is_integer() and all(one in (0, 1, 2) for one in visible)
        if not good or low < -SHARE_SLACK or high > 1 + SHARE_SLACK or math.isnan(sum(shares)):
            raise self._fault(name, number, cells)
        if low < 0 or high > 1:
            self.clipped += 1
            clipped = [min(max(share, 0), 1) for share in shares]
            for place, number_seen in enumerate(visible):
                clipped.insert(6 + 3 * place, number_seen)
            values[1:] = clipped
        return values

    def _wrong_length(self, cells: int) -> str:
        """What is wrong with a line that has this number of values; empty if nothing is."""
        if self._keypoints is not None:
            count, numbers = self._keypoints
            if cells == (wanted := len(_VALUES) + count * numbers):
                return ""
            return f"{cells} values, but {', '.join(_VALUES)} and {count} keypoints of {numbers} numbers are {wanted}"
        if cells == len(_VALUES) or (cells > len(_VALUES) + 1 and cells % 2):
            return ""
        what = f"{cells} values, but a box is {', '.join(_VALUES)}"
        what += ", and an outline class, x, y, x, y, x, y, ..." if cells > len(_VALUES) else ""
        return what + (": keypoints need kpt_shape in data.yaml" if cells > len(_VALUES) + 1 else "")

    def _fault(self, name: str, line: int, cells: list[bytes]) -> ValueError:
        """The error for a line that has one."""
        if wrong := self._wrong_length(len(cells)):
            return ValueError(f"{name}, line {line}, column {min(len(cells), len(_VALUES)) + 1}: {wrong}")
        numbers = 2 if self._keypoints is None else self._keypoints[1]
        for column, cell in enumerate(cells):
            which = column - len(_VALUES)
            called = _VALUES[column] if which < 0 else ("x", "y", "visibility")[which % numbers]
            try:
                value = math.nan if b"_" in cell else float(cell)
            except ValueError:
                value = math.nan
            if called == "class" and not (value >= 0 and value.is_integer()):
                wrong = "is not a class number"
            elif called == "class":
                wrong = "" if value < self._classes else f"there are {self._classes} classes, counted from 0"
            elif called == "visibility":
                wrong = "" if value in (0, 1, 2) else "is not 0, 1 or 2"
            else:
                wrong = (
                    "" if -SHARE_SLACK <= value <= 1 + SHARE_SLACK else "is not a fraction of the image, from 0 to 1"
                )
            if wrong:
                break
        # A link may lead out of the source, to values that its owner would not show.
        linked = os.path.islink(self._root / name)  # noqa: PTH114
        shown = "a value of a linked file" if linked else repr(cell.decode("utf-8", "backslashreplace"))
        return ValueError(f"{name}, line {line}, column {column + 1} ({called}): {shown}: {wrong}")


def _twins(images: Sequence[str], states: Sequence[tuple[int, int]], files: Callable[[str], list[str]]) -> list[str]:
    """A line where images have one text file, as a.jpg and a.png do: Ultralytics, too, takes it for both. states: of
    the text file of each."""
    read = [image for image, state in zip(images, states, strict=True) if state != UNKNOWN]
    several = SharedFiles(read, lambda image: files(image)[0]).several.values()
    twins = [(image, first) for first, *others in several for image in others]
    if not twins:
        return []
    image, other = map(plain, twins[0])
    return [f"{count(len(twins), 'image has', 'images have')} the text file of another: {image} that of {other}"]


def label_files(root: Path, image: str, labels: str | os.PathLike[str] | None = None) -> list[str]:
    """The text files with the boxes of an image, of which the first is read, and the others must be the same: that in
    the folder `labels` that replaces the last `images` or `JPEGImages`, and the one next to the image. Those that are
    there, or the first where none is. labels: the only folder of text files, with the same subfolders as the root."""
    beside = os.path.splitext(image)[0] + ".txt"  # noqa: PTH122
    if labels is not None:
        return [os.path.join(os.path.abspath(labels), beside)]  # noqa: PTH100, PTH118
    parts = beside.split("/")
    last = max((i for i, part in enumerate(parts[:-1]) if part in _IMAGES), default=None)
    files = [beside] if last is None else ["/".join([*parts[:last], "labels", *parts[last + 1 :]]), beside]
    return [file for file in files if (root / file).exists()] or files[:1]


def _beside(folder: Listing, names: Iterable[str]) -> Listing | None:
    """The first of some files that is in a folder; or next to it, if it is a split."""
    folders = (folder, folder.above) if is_split(folder.path.name) else (folder,)
    return next((place / name for place in folders for name in names if (place / name).is_file), None)


def _names(folder: Listing) -> tuple[str, ...] | None:
    """The class names in a folder, if there are any."""
    file = _beside(folder, (*_NAME_FILES, *_YAML))
    if file is None or file.path.name in _NAME_FILES:
        return None if file is None else classes_of(file)
    if (names := read_yaml(file)[0].names) is None:
        raise UsageError(
            f"{plain(os.fspath(file))} has no list 'names' of class names; give a file with one name per line by "
            f"{opt.classes}"
        )
    return names


def _yaml_of(folder: Listing) -> DataYaml | None:
    """The data.yaml in a folder, if it speaks of keypoints."""
    file = _beside(folder, _YAML)
    return None if file is None or b"kpt_shape" not in file.contents() else read_yaml(file)[0]
