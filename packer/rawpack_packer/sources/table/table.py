"""A source as a table: what a scan found, as rows and columns. Everything after the scan is arithmetic on rows.

A worker gets a `TablePart`: some rows, with what it takes to read them and nothing else. Both are plain data; a file is
open only while a sample is read, except for a video, which stays open from one frame to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from rawpack_packer.sources.base import (
    Column,
    Containers,
    Item,
    Rows,
    SourceInfo,
    check_part,
    check_sample,
    image_file_of,
    named_value,
)
from rawpack_packer.sources.fields import Boxes, Value
from rawpack_packer.sources.table.choose import EMPTY, LABEL, UNLABELLED, empty_classes
from rawpack_packer.sources.table.columns import (
    Files,
    Numbers,
    Repeated,
    RowNumbers,
    Texts,
    column_of_values,
)

if TYPE_CHECKING:
    from rawpack_packer.sources.video import Videos

NO_ROWS: Rows = np.empty(0, np.int64)
NO_STATES: Rows = np.empty((0, 2), np.int64)
_PROBED = 3
_PACKAGE = __name__.partition(".")[0]


class ImageColumn(Protocol):
    """The images of a table. A column that names its samples itself has `__len__` and `key(i)` too, and its values are
    items with these keys."""

    def value(self, i: int, /) -> bytes | NDArray[Any] | Item:
        """Image i; or an item, where fields are in the same bytes as the image. Raises as `Samples.__getitem__`."""

    def pick(self, rows: Rows, /) -> Any:
        """The images at `rows`, which ascend."""


class KeyColumn(Protocol):
    """The keys of a table."""

    def __len__(self) -> int: ...
    def value(self, i: int, /) -> str: ...
    def pick(self, rows: Rows, /) -> KeyColumn: ...


@dataclass(frozen=True, slots=True, eq=False)
class TablePart:
    """Some rows of a table, as a worker reads them."""

    images: Any
    """An `ImageColumn`."""
    keys: KeyColumn | None = None
    """None where `images` names its samples."""
    columns: Mapping[str, Column] = field(default_factory=dict)
    """A field may be in items of `images` as well: then the value of its column counts."""
    classes: Rows | None = None
    """Class number in the columns -> its number in the samples; None where they are the same. See `renumbered`."""

    def __len__(self) -> int:
        return len(self.images if self.keys is None else self.keys)

    def __getitem__(self, i: int, /) -> Item:
        check_sample(self, i)
        key, item = "" if self.keys is None else self.keys.value(i), self.images.value(i)
        values = {name: named_value(name, column, i) for name, column in self.columns.items()}
        if not isinstance(item, Item):
            item = Item(key, item, values)
        elif values or key:  # dataclasses.replace takes twice as long
            item = Item(key or item.key, item.image, {**item.fields, **values}, item.planes, item.file_bytes)
        return item if self.classes is None else _with_classes(item, self.classes)

    def key(self, i: int, /) -> str:
        check_sample(self, i)
        key: str = self.images.key(i) if self.keys is None else self.keys.value(i)
        return key

    @property
    def is_foreign(self) -> bool:
        """Whether the images are read by code of another package, whose errors are none of ours."""
        kind = type(self.images)
        return bool(getattr(kind, "is_foreign", not kind.__module__.startswith(f"{_PACKAGE}.")))

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `base.image_file_of`."""
        return image_file_of(self.images, i)

    def part(self, start: int, stop: int, /) -> TablePart:
        check_part(self, start, stop)
        return self.pick(np.arange(start, stop))

    def pick(self, rows: Rows, /) -> TablePart:
        """The rows at `rows`, which ascend."""
        columns = {name: column.pick(rows) for name, column in self.columns.items()}
        keys = None if self.keys is None else self.keys.pick(rows)
        return TablePart(self.images.pick(rows), keys, columns, self.classes)


@dataclass(eq=False)
class Table:
    """All samples of a source. Its rows are in the order in which they are packed."""

    info: SourceInfo
    rows: TablePart
    row_states: Rows | None = None
    """(n, 2): see `states`; None where no file belongs to one sample."""
    file_states: Rows = field(default_factory=lambda: NO_STATES)
    """(m, 2): those of all other files."""
    labels: Rows | None = None
    """(n,): the label of each sample, -1 without a class; None where labels are read with the samples, or are not
    numbers of classes."""
    lines: Rows | None = None
    """(n,): the line of the file that lists each sample, from 1, 0 where there is none."""
    groups: Column | None = None
    """The name of the group of each sample, whose samples must go into the same split, as the frames of a video; None
    where each sample is alone."""
    unread: Rows = field(default_factory=lambda: NO_ROWS)
    """Ascending: the rows that stand for a folder or file that could not be read and was skipped."""
    containers: Containers | None = None
    """The files that each hold many samples, also those that could not be looked into."""
    find_videos: Callable[[], Videos | None] = lambda: None
    """Gives the video of each sample."""
    find_column: Callable[[str], Column | None] | None = None
    """Gives the values of a field, where these are known otherwise than by reading its column row by row."""
    apart: Sequence[str] = ()
    """Columns that `find_column` gives too, and that are not packed."""
    exported: Collection[str] = ()
    """Fields of which an export says what they hold."""
    beside: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """In an archive: the folders next to the one that is packed, each with the folders in it."""
    probed: Literal["", "first", "spread"] = ""
    """Which samples are read again to see changes of what `states` does not know: none, or a few."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What `rawpack inspect` says of the source besides."""
    in_order: bool = False
    """Whether samples can only be read one after another, which one process must do."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int, /) -> Item:
        """Read sample i by itself. To read many, take a `part`, which keeps a video open."""
        return self.part(i, i + 1)[0]

    def key(self, i: int, /) -> str:
        return self.rows.key(i)

    def part(self, start: int, stop: int, /) -> TablePart:
        """Rows start <= i < stop, numbered from 0: small, picklable, without the rest of the table."""
        return self.rows.part(start, stop)

    def states(self) -> Rows:
        """See `Source.states`."""
        states = self.file_states if self.row_states is None else np.concatenate([self.row_states, self.file_states])
        states.flags.writeable = False
        return states

    # ------------------------------------------------------------------------------------------ about single rows

    def line(self, i: int) -> int:
        """The line of the file that lists sample i; 0 where there is none."""
        return 0 if self.lines is None else int(self.lines[i])

    def path(self, i: int) -> str:
        """The path of the file that sample i is in, below the source or as it is listed; its key without one."""
        images, at = self.rows.images, i
        if isinstance(images, Repeated):
            images, at = images.column, int(images.at[i])
        listed = getattr(images, "listed", None)
        path: str = self.key(i) if listed is None else listed(at)
        return path

    def group(self, i: int) -> str:
        return self.key(i) if self.groups is None else str(self.groups.value(i))

    # ------------------------------------------------------------------------------------------ about all rows

    def column(self, name: str) -> Column | None:
        """The values of a field before samples are read: texts or numbers; None where they are not known. Those that
        are in a local file are read."""
        if self.find_column is not None and (values := self.find_column(name)) is not None:
            return values
        column, kind = self.rows.columns.get(name), self.info.fields.get(name)
        if isinstance(column, Repeated):
            return cast(Column, column.spread())
        simple = kind is not None and not kind.shape and not kind.dtype.startswith("float")
        if column is None or isinstance(column, Texts | Numbers | Files) or not (simple and self.info.paths):
            return column
        return column_of_values([column.value(i) for i in range(len(self))])

    def videos(self) -> Videos | None:
        """The video of each sample, which field `video` numbers; None where samples are no frames."""
        return self.find_videos()

    def at_hand(self) -> Rows | None:
        """The samples, ascending, whose files are on this disk, if files are fetched into a folder that may have no
        room for all of them; None for all."""
        find: Callable[[], Rows | None] | None = getattr(self.rows.images, "at_hand", None)
        return None if find is None else find()

    def probes(self) -> Rows:
        """The samples that are read again: see `probed`."""
        count = min(len(self), _PROBED)
        if self.probed == "spread":
            return np.unique(np.linspace(0, len(self) - 1, count, dtype=np.int64))
        return np.arange(count if self.probed else 0, dtype=np.int64)

    def unlabelled(self) -> int:
        """How many samples have label -1, without those of which it is known that they are rejected."""
        if self.labels is None:
            return 0
        columns = (self.rows.images, *self.rows.columns.values())
        faulty = {*self.unread.tolist(), *chain.from_iterable(getattr(column, "faults", ()) for column in columns)}
        return int((np.delete(self.labels, [*faulty]) == -1).sum())

    # ------------------------------------------------------------------------------------------ other tables

    def but(self, **changes: Any) -> Table:
        """The same table, with some of its members changed."""
        return Table(**{**{one.name: getattr(self, one.name) for one in fields(Table)}, **changes})

    def take(self, rows: Rows, *, options: Mapping[str, str] | None = None) -> Table:
        """The table of these rows, which ascend strictly. options: by which they were chosen, see
        `SourceInfo.options`."""
        rows = np.asarray(rows, np.int64)
        taken = self.but(
            rows=self.rows.pick(rows),
            row_states=None if self.row_states is None else self.row_states[rows],
            labels=None if self.labels is None else self.labels[rows],
            lines=None if self.lines is None else self.lines[rows],
            groups=None if self.groups is None else self.groups.pick(rows),
            unread=np.flatnonzero(np.isin(rows, self.unread)),
            containers=None if self.containers is None else self.containers.holding(rows),
            find_videos=lambda: None if (videos := self.videos()) is None else videos.at(rows),
            find_column=None if self.find_column is None else _taking(self.find_column, rows),
        )
        info = taken._counted(self.info.classes)
        return taken.but(info=info if options is None else replace(info, options=dict(options)))

    def ordered(self, order: Rows) -> Table:
        """All rows in another order."""
        rows = self.rows
        keys = None if rows.keys is None else Repeated(rows.keys, order)
        columns = {name: Repeated(column, order) for name, column in rows.columns.items()}
        taken = self.take(np.arange(len(self)))
        return taken.but(
            info=self.info,
            rows=TablePart(Repeated(rows.images, order), keys, columns, rows.classes),
            row_states=None if self.row_states is None else self.row_states[order],
            labels=None if self.labels is None else self.labels[order],
            lines=None if self.lines is None else self.lines[order],
            groups=None if self.groups is None else Repeated(self.groups, order),
            unread=np.flatnonzero(np.isin(order, self.unread)),
            containers=None,
            find_videos=lambda: None if (videos := self.videos()) is None else videos.at(order),
            find_column=None if self.find_column is None else _taking(self.find_column, order),
        )

    def joined(self, columns: Mapping[str, Column]) -> Table:
        """The table with further columns, or others of the same names, whose class numbers are those before
        `with_classes`. `info` stays."""
        find = self.find_column
        return self.but(
            rows=replace(self.rows, columns={**self.rows.columns, **columns}),
            find_column=None if find is None else lambda name: None if name in columns else find(name),
        )

    def numbered_from(self, first: int) -> Table:
        """The table with numbers from `first` on as keys."""
        return self.but(rows=replace(self.rows, keys=RowNumbers(range(first, first + len(self)))))

    def with_classes(self, names: Sequence[str] | None) -> Table:
        """The table whose classes have these names, in the order of their numbers. They may be fewer or more than
        before: samples of a class that is left out get label -1."""
        classes = self.info.classes
        if classes is None or names is None:
            return self
        names = tuple(names)
        if names[: len(classes)] == classes:
            return self.but(info=self._counted(names))
        numbers, before = positions(classes, names), self.rows.classes
        labels = None if self.labels is None else renumbered(self.labels, numbers)
        composed = numbers if before is None else np.where(before < 0, -1, numbers[before.clip(0)])
        table = self.but(rows=replace(self.rows, classes=composed), labels=labels)
        return table.but(info=table._counted(names))

    def _counted(self, names: tuple[str, ...] | None) -> SourceInfo:
        """`info` with these classes, and what depends on the classes of the rows counted again."""
        info, counts = self.info, dict(self.info.counts)
        if self.labels is None:
            filled = {*(info.classes or ())} - {*info.empty_classes}
            empty = tuple(name for name in names or () if name not in filled)
        else:
            empty = empty_classes(names, np.delete(self.labels, self.unread))
            if UNLABELLED in counts:
                counts[UNLABELLED] = self.unlabelled()
        if EMPTY in counts:
            counts[EMPTY] = len(empty)
        return replace(info, classes=names, empty_classes=empty, counts=counts)


def _taking(find: Callable[[str], Column | None], rows: Rows) -> Callable[[str], Column | None]:
    return lambda name: None if (column := find(name)) is None else column.pick(rows)


def positions(names: Sequence[str], among: Sequence[str]) -> Rows:
    """The position of each name in `among`, (n,); -1 of a name that is not there."""
    numbers = {name: number for number, name in enumerate(among)}
    return np.array([numbers.get(name, -1) for name in names], np.int64)


def renumbered(labels: NDArray[Any], classes: Rows) -> NDArray[Any]:
    """Labels, (n,), by `classes`: number of a class -> its new number. What is the number of no class stays."""
    numbers = labels.astype(np.int64)
    known = (numbers == labels) & (numbers >= 0) & (numbers < len(classes))
    return np.where(known, np.append(classes, -1)[np.where(known, numbers, -1)], labels)


def renumbered_boxes(value: Value, classes: Rows) -> Value:
    """Boxes whose classes are renumbered; other values as they are. classes: see `renumbered`."""
    if not isinstance(value, Boxes):
        return value
    rows, at = np.array(value.rows), 0 if value.form == "yolo" else 4
    if rows.ndim == 2 and rows.shape[1] > at:
        rows[:, at] = renumbered(rows[:, at], classes)
    return replace(value, rows=rows)


def _with_classes(item: Item, classes: Rows) -> Item:
    """A sample whose label is renumbered; without a label, its boxes."""
    values = dict(item.fields)
    if LABEL in values:
        label = values[LABEL]
        number = label[()] if isinstance(label, np.ndarray) else label
        if isinstance(number, int | np.integer) and 0 <= number < len(classes):
            values[LABEL] = int(classes[number])
    else:
        values = {name: renumbered_boxes(value, classes) for name, value in values.items()}
    return Item(item.key, item.image, values, item.planes, item.file_bytes)
