"""Shapes as people draw them in annotation tools: boxes and outlines with names, one image after another."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from rawpack.errors import UsageError
from rawpack_packer.sources.detection import MOST_KEYPOINTS, POLYGONS, PolygonRows, keypoints_kind
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.table.choose import Classes, number_labels
from rawpack_packer.sources.table.columns import Column, RaggedColumn, ends_of
from rawpack_packer.sources.table.objects import Objects
from rawpack_packer.text import listed

_NO_GROUP = -1


class Drawn:
    """Collects shapes. Coordinates are pixels: x, y, x, y, ..."""

    def __init__(self, where: str) -> None:
        """where: the source, printable."""
        self.left_out = Counter[str]()
        """What shapes have that no field has -> how often."""
        self._where, self._names, self._boxes, self._polygons = where, list[str](), array("d"), PolygonRows()
        self._groups, self._occluded, self._keypoints = array("q"), array("b"), dict[int, Sequence[float]]()
        self._lengths, self._sizes, self._in_image = list[int](), list[tuple[int, int]](), 0

    def add(
        self,
        name: str,
        points: Sequence[float],
        *,
        outline: bool = False,
        keypoints: Sequence[float] = (),
        group: int | None = None,
        occluded: bool = False,
    ) -> None:
        """A shape of this image, whose box is the smallest around its points. outline: whether they are one.
        keypoints: x, y, visibility of each. Raises ValueError."""
        if not name:
            raise ValueError("it has no label")
        if len(points) < (6 if outline else 2) or len(points) % 2 or not all(map(math.isfinite, points)):
            raise ValueError(f"{len(points)} coordinates, not x, y of each point")
        if outline:
            self._polygons.add([*points], self._in_image)
        if keypoints:
            self._keypoints[len(self._names)] = keypoints
        x, y = points[::2], points[1::2]
        self._boxes.extend((min(x), min(y), max(x), max(y)))
        self._names.append(name)
        self._groups.append(_NO_GROUP if group is None else group)
        self._occluded.append(occluded)
        self._in_image += 1

    def end(self, height: int | None, width: int | None) -> None:
        """The next shape belongs to the next image. height, width: of this one, as its file says."""
        self._lengths.append(self._in_image)
        self._sizes.append((height or 0, width or 0))
        self._polygons.end()
        self._in_image = 0

    def fields(
        self, classes: Classes | None, image_name: Callable[[int], str], mirror: tuple[int, ...] = ()
    ) -> tuple[dict[str, FieldKind], dict[str, Column], tuple[str, ...] | None]:
        """`boxes`, and what else there is of `occluded`, `group_id`, `polygons` and `keypoints`; and the names of the
        classes. classes: None for the sorted names. image_name: of image i, in messages. mirror: of keypoints. Raises
        UsageError."""
        ends = ends_of(self._lengths)
        labels = number_labels(
            self._names, classes, where=self._where,
            row_name=lambda row: f"a shape of {image_name(int(np.searchsorted(ends, row, 'right')) - 1)}",
        )  # fmt: skip
        groups, occluded = np.array(self._groups, np.int64), np.array(self._occluded, np.uint8)
        others = {name: one for name, one, none in (("occluded", occluded, 0), ("group_id", groups, _NO_GROUP))
                  if (one != none).any()}  # fmt: skip
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
