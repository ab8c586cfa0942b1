"""Shapes as people draw them in annotation tools: boxes and outlines with names, one image after another."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.detection import MOST_KEYPOINTS, POLYGONS, PolygonRows, keypoints_kind
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.listing.lines import shown
from rawpack_packer.sources.numbers import is_far
from rawpack_packer.sources.table.choose import Classes, number_labels
from rawpack_packer.sources.table.columns import Column, RaggedColumn, ends_of
from rawpack_packer.sources.table.objects import Objects
from rawpack_packer.text import listed

T = TypeVar("T")
NUMBERS = {
    "occluded": ("uint8", 0), "group_id": ("int64", -1), "difficult": ("uint8", 0), "truncated": ("uint8", 0),
    "pose": ("uint8", 0),
}  # fmt: skip
"""Name of a field with a number for each shape -> its dtype, and what a shape has that does not say it."""


class _DrawnShape(NamedTuple):
    name: str
    points: Sequence[float]
    outline: bool
    keypoints: Sequence[float]
    numbers: Mapping[str, int]


class Drawn:
    """Collects shapes. Coordinates are pixels: x, y, x, y, ..."""

    def __init__(self, where: str, always: Sequence[str] = ()) -> None:
        """where: the source, printable. always: those of `NUMBERS` that are fields even if no shape says them."""
        self.left_out = Counter[str]()
        """What shapes have that no field has -> how often."""
        self.faults = dict[int, str]()
        """Number of an image that is rejected -> where and what is wrong."""
        self.names = list[str]()
        """The class of each shape."""
        self.size: tuple[int | None, int | None] = (0, 0)
        """Height and width of this image, as its file says."""
        self._where, self._always, self._boxes, self._polygons = where, always, array("d"), PolygonRows()
        self._numbers = {name: array("q") for name in NUMBERS}
        self._keypoints = dict[int, Sequence[float]]()
        self._lengths, self._sizes, self._shapes = list[int](), list[tuple[int, int]](), list[_DrawnShape]()

    def add(
        self,
        name: str,
        points: Sequence[float],
        *,
        outline: bool = False,
        keypoints: Sequence[float] = (),
        numbers: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """A shape of this image, whose box is the smallest around its points. outline: whether they are one.
        keypoints: x, y, visibility of each. numbers: those of `NUMBERS` that it says. Raises ValueError."""
        if not name:
            raise ValueError("it has no label")
        if len(points) < (6 if outline else 2) or len(points) % 2 or not all(map(math.isfinite, points)):
            raise ValueError(f"{len(points)} coordinates, not x, y of each point")
        self._shapes.append(_DrawnShape(name, points, outline, keypoints, numbers))

    def add_all(self, shapes: Iterable[T], add: Callable[[Drawn, T], None], call: Callable[[int, T], str]) -> None:
        """The shapes of this image. add: adds one of them, or raises ValueError. call: what messages call one, by its
        number from 1. Raises ValueError with its place."""
        for number, shape in enumerate(shapes, 1):
            try:
                add(self, shape)
            except ValueError as error:
                raise ValueError(f"{call(number, shape)}: {error}") from error

    @contextmanager
    def image(self, place: str) -> Iterator[None]:
        """The shapes of the next image are added meanwhile. A ValueError rejects it. place: what messages call its
        annotation."""
        try:
            yield
        except ValueError as error:
            self.faults[len(self._lengths)] = f"{place}{error}"
            self._shapes.clear()
        for row, shape in enumerate(self._shapes):
            if shape.outline:
                self._polygons.add([*shape.points], row)
            if shape.keypoints:
                self._keypoints[len(self.names)] = shape.keypoints
            x, y = shape.points[::2], shape.points[1::2]
            self._boxes.extend((min(x), min(y), max(x), max(y)))
            self.names.append(shape.name)
            for name, (_, missing) in NUMBERS.items():
                self._numbers[name].append(shape.numbers.get(name, missing))
        self._lengths.append(len(self._shapes))
        self._sizes.append((self.size[0] or 0, self.size[1] or 0))
        self._polygons.end()
        self._shapes, self.size = [], (0, 0)

    def fields(
        self, classes: Classes | None, image_name: Callable[[int], str], mirror: tuple[int, ...] = ()
    ) -> tuple[dict[str, FieldKind], dict[str, Column], tuple[str, ...] | None]:
        """`boxes`, and what else there is of `NUMBERS`, `polygons` and `keypoints`; and the names of the classes.
        classes: None for the sorted names. image_name: of image i, in messages. mirror: of keypoints. Raises
        UsageError."""
        ends = ends_of(self._lengths)
        labels = number_labels(
            self.names, classes, where=self._where,
            row_name=lambda row: f"a shape of {image_name(int(np.searchsorted(ends, row, 'right')) - 1)}",
        )  # fmt: skip
        others = {
            name: np.array(self._numbers[name], dtype)
            for name, (dtype, missing) in NUMBERS.items()
            if name in self._always or any(number != missing for number in self._numbers[name])
        }
        boxes, sizes = np.array(self._boxes, np.float64).reshape(-1, 4), np.array(self._sizes, np.int64).reshape(-1, 2)
        kinds, columns = Objects(boxes, "xyxy", ends, labels, others, sizes).fields()
        if len(self._polygons):
            kinds["polygons"], columns["polygons"] = POLYGONS, self._polygons.column()
        if self._keypoints:
            most = max(map(len, self._keypoints.values())) // 3
            if most > MOST_KEYPOINTS:
                raise UsageError(f"{self._where}: a shape has {most} keypoints; at most {MOST_KEYPOINTS} are read")
            values = np.zeros((len(boxes), 3 * most), np.float64)
            for row, points in self._keypoints.items():
                values[row, : len(points)] = points
            kinds["keypoints"] = keypoints_kind(most, mirror if len(mirror) == most else ())
            columns["keypoints"] = RaggedColumn(values.reshape(-1, most, 3), ends)
        return kinds, columns, labels.names

    def problems(self) -> list[str]:
        """A line for what was left out."""
        some = [f"{what} {count}" for what, count in self.left_out.most_common()]
        return [f"left out of the annotations: {listed(some, 8)}"] if some else []


def pixels_of(name: str, text: str) -> float:
    """A coordinate that is written as text. name: what it is called. Raises ValueError."""
    if not text:
        raise ValueError(f"it has no {name}")
    with suppress(ValueError):
        if "_" not in text and not is_far(number := float(text)):  # only Python reads 1_0 as a number
            return number
    raise ValueError(f"{name} {shown(text)} is not a number of pixels")
