"""Columns of boxes, and the lists next to them, while files are looked through: the classes that boxes have, and which
lists have a value for each box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rawpack.errors import UsageError
from rawpack_packer.sources.base import Rows
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.parquet.tables import flat
from rawpack_packer.sources.table.choose import Classes, Labels
from rawpack_packer.sources.table.columns import CLASS, class_position
from rawpack_packer.sources.table.objects import BOXES, labels_of_boxes, lists_of_boxes
from rawpack_packer.text import plain


class BoxScan:
    """What is read of these columns."""

    def __init__(self, kinds: Mapping[str, FieldKind | None], columns: Mapping[str, str]) -> None:
        """kinds: of fields, None for images and masks. columns: those of the same fields."""
        of_rows = {name: kind for name, kind in kinds.items() if kind is not None and name in columns}
        self._with_class = {
            columns[name]: (kind.shape[1] or 0, class_position(kind.boxes))
            for name, kind in of_rows.items()
            if kind.boxes and (kind.shape[1] or 0) > CLASS
        }
        self.have_classes = bool(self._with_class)
        """Whether there are boxes with class numbers."""
        self._first_of: dict[str, dict[float, int]] = {column: {} for column in self._with_class}
        """Column -> the first row of each class number."""
        self.lists = {name: columns[name] for name in lists_of_boxes(of_rows)}
        """Fields with a value for each box, as far as rows were looked at -> their columns."""
        self._boxes = columns[BOXES] if self.lists else ""

    @property
    def columns(self) -> list[str]:
        """Those that are read."""
        return [*dict.fromkeys((*self._with_class, *([self._boxes] * bool(self._boxes)), *self.lists.values()))]

    def add(self, batch: pa.RecordBatch, rows: Rows) -> None:
        """The next rows, and their numbers."""
        for column, (width, at) in self._with_class.items():
            boxes = flat(batch.column(column))
            numbers = pc.list_flatten(pc.list_flatten(boxes)).to_numpy(zero_copy_only=False)
            owners = rows[pc.list_parent_indices(boxes).to_numpy()]
            if len(numbers) == len(owners) * width:  # otherwise a sample is rejected
                found, firsts = np.unique(numbers.reshape(-1, width)[:, at], return_index=True)
                for number, row in zip(found.tolist(), owners[firsts].tolist(), strict=True):
                    self._first_of[column].setdefault(number, row)
        if self._boxes:
            lengths = _lengths(batch.column(self._boxes))
            self.lists = {name: one for name, one in self.lists.items() if _lengths(batch.column(one)).equals(lengths)}

    def labels(self, classes: Classes | None, known: Sequence[str], where: str) -> Labels:
        """Those that occur. classes, known: see `labels_of_boxes`. Raises UsageError for a box of no class."""

        def fault(column: str, i: int, what: str) -> UsageError:
            return UsageError(f"{where}: column {plain(column)}, row {[*self._first_of[column].values()][i]}: {what}")

        boxes = [(np.array([*firsts]), partial(fault, column)) for column, firsts in self._first_of.items()]
        return labels_of_boxes(classes, known, boxes)


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.list_value_length(flat(column)), 0).cast(pa.int64())
