"""Columns of keypoints and polygons, and the polygons as rows."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import numpy as np

from rawpack_packer.sources.fields import FieldKind, Fractions
from rawpack_packer.sources.table.columns import RaggedColumn, Rows, ends_of

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
