"""Columns as a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import (
    BaseSource,
    Column,
    Images,
    Item,
    Rows,
    SourceInfo,
    check_part,
    check_sample,
    image_file_of,
    named_value,
)
from rawpack_packer.sources.fields import Value
from rawpack_packer.sources.table.choose import EMPTY, LABEL, LABEL_KIND, Labels
from rawpack_packer.sources.table.columns import Files, Numbers, RowNumbers, Texts, column_of_values, texts_of
from rawpack_packer.text import plain

NO_STATES: Rows = np.empty((0, 2), np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class ImageAndFields:
    """What a column of images has where some fields are in the same bytes as the image."""

    image: bytes | NDArray[Any]
    fields: Mapping[str, Value]
    file_bytes: int


class ImageColumn(Protocol):
    """The images of a table: image files, or arrays. Plain data.

    A column whose images are files, or ranges of files, is `base.Images`.
    """

    def value(self, i: int, /) -> bytes | NDArray[Any] | ImageAndFields:
        """Image i. Raises as `Samples.__getitem__` does."""

    def pick(self, rows: Rows, /) -> ImageColumn:
        """The images at `rows`, in their order, and nothing else."""


@dataclass(frozen=True, slots=True, eq=False)
class TablePart:
    """Some rows of a table."""

    keys: Texts | RowNumbers
    images: ImageColumn
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(self.keys)

    def __getitem__(self, i: int, /) -> Item:
        key, image = self.key(i), self.images.value(i)
        fields = {name: named_value(name, column, i) for name, column in self.columns.items()}
        if isinstance(image, ImageAndFields):
            return Item(key, image.image, {**fields, **image.fields}, file_bytes=image.file_bytes)
        return Item(key, image, fields)

    def key(self, i: int, /) -> str:
        """The value of the column of keys, or the number of the row."""
        check_sample(self, i)
        return self.keys.value(i)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return image_file_of(self.images, i)

    def part(self, start: int, stop: int, /) -> TablePart:
        check_part(self, start, stop)
        return self.pick(np.arange(start, stop))

    def pick(self, rows: Rows, /) -> TablePart:
        columns = {name: column.pick(rows) for name, column in self.columns.items()}
        return TablePart(self.keys.pick(rows), self.images.pick(rows), columns)


class TableSource(BaseSource):
    """A table as a `Source`."""

    _all: TablePart

    def __init__(
        self,
        info: SourceInfo,
        keys: Texts | RowNumbers,
        images: ImageColumn,
        columns: Mapping[str, Column],
        states: Rows = NO_STATES,
        *,
        labels: Labels | None = None,
        of_boxes: Labels | None = None,
    ) -> None:
        """columns: a value of each field. states: (m, 2), of the files that are neither images nor masks, see
        `Source.states`. labels: field `label`, which is the first unless `info.fields` has it elsewhere, its classes,
        and the counts that belong to it. of_boxes: those of boxes, whose classes are named where there is no label."""
        if labels is not None:
            info = with_labels(info, labels)
            columns = {**columns, LABEL: Numbers(labels.numbers, labels.faults)}
            columns = {name: columns[name] for name in info.fields}
        elif of_boxes is not None:
            names, empty = of_boxes.names, of_boxes.empty
            info = replace(info, classes=names, empty_classes=empty, counts={**info.counts, EMPTY: len(empty)})
        self.info, self._all, self._more = info, TablePart(keys, images, columns), states

    def pick(self, rows: Rows, /) -> TablePart:
        return self._all.pick(rows)

    def column(self, name: str, /) -> Column | None:
        """Texts and whole numbers that are in a local file are read."""
        column, kind = self._all.columns.get(name), self.info.fields.get(name)
        whole = kind is not None and not kind.shape and not kind.dtype.startswith("float")
        if column is None or isinstance(column, Texts | Numbers | Files) or not (whole and self.info.paths):
            return column
        return column_of_values([column.value(i) for i in range(len(self))])

    def path(self, i: int, /) -> str:
        images = self._all.images
        return images.paths.value(i) if isinstance(images, Files) else self.key(i)

    def labels(self) -> Rows | None:
        label = self._all.columns.get(LABEL)
        if not isinstance(label, Numbers) or label.values.dtype != np.int64 or label.values.ndim > 1:
            return None
        return label.values

    def states(self) -> Rows:
        """(n, 2): of the images that are files, then of the masks column by column, then of what lists them; see
        `Source.states`."""
        images = self._all.images
        masks = [column.states for column in self._all.columns.values() if isinstance(column, Files)]
        return np.concatenate([images.all_states() if isinstance(images, Images) else NO_STATES, *masks, self._more])


def unique_keys(
    values: Sequence[str | int], where: str, named: bool, notes: list[str] | None = None, called: str = "paths"
) -> Texts | None:
    """Values of a column as keys. where: the table, printable.

    Where one is empty or there twice, raises UsageError if the user named the column (`named`), and returns None
    otherwise: samples are numbered, as `notes` is told. called: what the values are.
    """
    keys = texts_of([*map(key_text, values)], where)
    if (repeated := repeated_key(keys)) is not None:
        first, row = repeated
        what = f"{plain(keys.value(row))!r}, as row {first} has"
    elif len(empty := np.flatnonzero(np.diff(keys.ends) == 0)):
        row, what = int(empty[0]), "no text"
    else:
        return keys
    if not named:
        if notes is not None:
            notes.append(numbered_since(f"row {row} has {what}", called))
        return None
    raise UsageError(f"{where}: row {row} has {what}: each sample needs a key of its own; {opt.key_column} names them")


def key_text(value: object) -> str:
    """A value as a key. Bytes are UTF-8; where they are not, halves of surrogate pairs stand for them, which no key may
    have."""
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else str(value)


def numbered_since(why: str, called: str = "paths") -> str:
    """What the summary says where values cannot be keys."""
    return f"keys are the numbers of rows, not the {called}: {why}"


def repeated_key(keys: Texts) -> tuple[int, int] | None:
    """The rows of the first key that occurs twice: by hashes, so that a million of them need no set of texts."""
    hashes = np.array([xxhash.xxh3_64_intdigest(keys.raw(i)) for i in range(len(keys))], np.uint64)
    found, counts = np.unique(hashes, return_counts=True)
    firsts = dict[bytes, int]()
    for row in np.flatnonzero(np.isin(hashes, found[counts > 1])).tolist():
        first = firsts.setdefault(keys.raw(row), row)
        if first != row:
            return first, row
    return None


def with_labels(info: SourceInfo, labels: Labels) -> SourceInfo:
    """What is known of a source with these labels, which are its first field. Counts of labels are filled in, if the
    source has them."""
    first = () if LABEL in info.fields else (LABEL,)
    fields = {**dict.fromkeys(first, LABEL_KIND), **info.fields, LABEL: LABEL_KIND}  # a dict keeps the place of a name
    counts = {name: labels.counts.get(name, number) for name, number in info.counts.items()}
    return replace(
        info, fields=fields, classes=labels.names, empty_classes=labels.empty, counts=counts, doubts=labels.doubts
    )
