"""CVAT's XML file of images, "CVAT for images 1.1", as a source."""

from __future__ import annotations

import cmath
import math
import os
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree.ElementTree import Element

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.detection import box_table, listed_files, read_whole, xml_of
from rawpack_packer.sources.detection.coco import mirror_of
from rawpack_packer.sources.detection.drawn import Drawn, pixels_of
from rawpack_packer.sources.listing.lines import fault, folder_of, shown
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.numbers import side
from rawpack_packer.sources.table.choose import Classes, named_file
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import plain

_FILE = "annotations.xml"
_MOST_PIXELS = 1 << 28
_GROUP = re.compile(r"-?[0-9]{1,18}")


def is_cvat(listing: Listing) -> bool:
    """Whether a file is CVAT's XML, or a folder has one at its top."""
    head = (listing / _FILE if listing.is_dir else listing).head
    return b"<annotations" in head and (b"<image " in head or b"<track " in head)


def open_cvat(
    path: str | os.PathLike[str],
    /,
    *,
    images: str | os.PathLike[str] | None = None,
    classes: Classes | None = None,
    progress: Scanning = unseen,
) -> Table:
    """The images of an annotations.xml in its order, each with its shapes.

    Fields: `boxes`: of boxes, and the smallest ones around polygons, ellipses, masks, points and skeletons; and, if
    there are any, `polygons`, of rotated boxes too, `keypoints`, of points and skeletons, `occluded` and `group_id`, -1
    without one. Polylines, cuboids, tags, single points, the pixels of masks and attributes are left out and counted.
    The classes are the labels of the task, in its order.

    `counts`: no_boxes (images), empty_classes.

    path: the file, or the folder that it is in. images: the folder that names start from; None is that of the file, or
    `images` in it. classes: replaces the labels of the task.

    Raises UsageError if it is no such file, BadListingError if no shape can be read.
    """
    listing = Listing.of(path)
    listing = listing / _FILE if listing.is_dir else listing
    file = listing.path.absolute()
    where = plain(os.fsencode(file))
    data, state = read_whole(listing, where)
    try:
        root = xml_of(data)
    except ValueError as error:
        raise fault(plain(os.fsencode(file.parent)), 0, 0, "", str(error), file=file.name) from error
    pictures = root.findall("image")
    if not pictures:
        tracks = "tracks of a video: export them again" if root.find("track") is not None else "no image: export it"
        raise UsageError(f"{where} has {tracks}, as 'CVAT for images 1.1'")
    task, drawn = _TaskLabels(root), Drawn(where)
    for image in pictures:
        with drawn.image(f"image {image.get('name')!r}, "):
            drawn.size = side(image.get("height", "")), side(image.get("width", ""))
            drawn.add_all(image, task.add, lambda number, shape: f"shape {number} ({shape.tag})")
    beside = [file.parent / "images", file.parent]
    place, names = _placed(pictures, beside if images is None else [Path(images).absolute()])
    folder, within = folder_of(images, place if place.is_dir() else file.parent), () if images else (file.parent,)
    files = listed_files(names, "image {}", folder, [*map(str, within)], where, progress)
    kinds, columns, labels = drawn.fields(classes or task.classes or None, lambda i: names[i], task.mirror)
    info = SourceInfo(
        kind="cvat",
        root=where,
        paths=(str(file),),
        fields=kinds,
        classes=labels,
        options=given_options(images=images, classes=named_file(classes)),
        problems=tuple(drawn.problems()),
    )
    return box_table(info, files, columns, state, drawn.faults)


def _placed(images: list[Element], folders: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder of the images, and the path of each in it: an export of a project has a folder for each subset."""
    names = [image.get("name", "") for image in images]
    of_subsets = [os.path.join(image.get("subset", ""), image.get("name", "")) for image in images]  # noqa: PTH118
    places = [(folder, paths) for folder in folders for paths in (names, of_subsets)]
    return next((place for place in places if (place[0] / place[1][0]).is_file()), places[-2])


class _TaskLabels:
    """What the file says of its labels, and how its shapes are read by that."""

    def __init__(self, root: Element) -> None:
        every = root.iterfind("meta/*/labels/label")
        labels = [(label.findtext("name", ""), label.findtext("parent")) for label in every]
        self.classes = [*dict.fromkeys(name for name, parent in labels if not parent)]
        self._parts: dict[str, list[str]] = {parent: [] for _, parent in labels if parent}
        """Label of a skeleton -> those of its points."""
        for name, parent in labels:
            if parent:
                self._parts[parent].append(name)
        self.mirror = mirror_of(next(iter(self._parts.values()))) if len(self._parts) == 1 else ()

    def add(self, drawn: Drawn, shape: Element) -> None:
        """Add a shape to those of its image. Raises ValueError."""
        name, keypoints = shape.get("label", ""), list[float]()
        if shape.tag == "box":
            points = _turned(shape, *_numbers(shape, "xtl", "ytl", "xbr", "ybr"))
        elif shape.tag == "ellipse":
            (x, y, rx, ry), angle = _numbers(shape, "cx", "cy", "rx", "ry"), _angle(shape)
            half = math.hypot(rx * math.cos(angle), ry * math.sin(angle))
            high = math.hypot(rx * math.sin(angle), ry * math.cos(angle))
            points = [x - half, y - high, x + half, y + high]
        elif shape.tag == "mask":
            points = _around_mask(shape)
            drawn.left_out["pixels of masks"] += 1
        elif shape.tag == "polygon":
            points = _points(shape)
        elif shape.tag in ("points", "skeleton"):
            keypoints = self._keypoints(name, shape)
            seen = np.reshape(keypoints, (-1, 3))
            seen = seen[seen[:, 2] > 0, :2]
            if not len(seen) or np.ptp(seen, axis=0).min() == 0:
                drawn.left_out[f"{shape.tag} without a box around it"] += 1
                return
            points = seen.ravel().tolist()
        else:
            drawn.left_out[shape.tag] += 1
            return
        drawn.left_out.update(f"attribute {one.get('name')}" for one in shape.iter("attribute"))
        if not _GROUP.fullmatch(number := shape.get("group_id", "0")):
            raise ValueError(f"group_id {shown(number)} is not a whole number of at most 18 digits")
        outline = shape.tag == "polygon" or (len(points) == 8 and shape.tag == "box")
        numbers = {"occluded": int(shape.get("occluded") == "1")} | ({"group_id": int(number)} if int(number) else {})
        drawn.add(name, points, outline=outline, keypoints=keypoints, numbers=numbers)

    def _keypoints(self, name: str, shape: Element) -> list[float]:
        """x, y, visibility of each: those of a skeleton in the order of its label."""
        if shape.tag == "points":
            pairs = np.reshape(_points(shape), (-1, 2))
            return np.insert(pairs, 2, 2, axis=1).ravel().tolist()
        parts = self._parts.setdefault(name, [])
        values = dict[str, list[float]]()
        for one in shape.iterfind("points"):
            part = one.get("label", "")
            parts += [] if part in parts else [part]
            visibility = 1 if one.get("occluded") == "1" else 2
            values[part] = [0, 0, 0] if one.get("outside") == "1" else [*_points(one)[:2], visibility]
        return [number for part in parts for number in values.get(part, [0, 0, 0])]


def _numbers(shape: Element, *names: str) -> list[float]:
    """Attributes of a shape. Raises ValueError."""
    return [pixels_of(name, shape.get(name, "")) for name in names]


def _points(shape: Element) -> list[float]:
    """x,y;x,y;... Raises ValueError."""
    return [pixels_of("points", number) for pair in shape.get("points", "").split(";") for number in pair.split(",")]


def _angle(shape: Element) -> float:
    return math.radians(pixels_of("rotation", shape.get("rotation", "0")))


def _around_mask(shape: Element) -> list[float]:
    """The box around a mask: its run lengths go through width x height pixels, row by row, and begin with those of
    none. Raises ValueError."""
    left, top, width, height = map(int, _numbers(shape, "left", "top", "width", "height"))
    runs = [int(pixels_of("rle", run)) for run in shape.get("rle", "").split(",")]
    if min(runs) < 0 or not 0 < sum(runs) == width * height <= _MOST_PIXELS:
        raise ValueError(f"its run lengths are not those of {height}x{width} pixels")
    y, x = np.repeat(np.arange(len(runs)) % 2, runs).reshape(height, width).nonzero()
    if not len(x):
        raise ValueError("its mask is empty")
    return [float(side) for side in (left + x.min(), top + y.min(), left + x.max() + 1, top + y.max() + 1)]


def _turned(shape: Element, left: float, top: float, right: float, bottom: float) -> list[float]:
    """Two corners of a box, or the four of one that is turned around its center."""
    angle = _angle(shape)
    if not angle:
        return [left, top, right, bottom]
    center, turn = complex(left + right, top + bottom) / 2, cmath.rect(1, angle)
    corners = (complex(left, top), complex(right, top), complex(right, bottom), complex(left, bottom))
    turned = [center + (corner - center) * turn for corner in corners]
    return [side for point in turned for side in (point.real, point.imag)]
