"""Sources of other packages as tables: whatever has the members of `base.Source`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import numpy as np

from rawpack_packer.sources.base import Item, Rows, Samples, Source, image_file_of
from rawpack_packer.sources.table.columns import texts_of
from rawpack_packer.sources.table.table import NO_ROWS, Table, TablePart


def as_table(source: Table | Source) -> Table:
    """A source as a table. It may have `labels()`, (n,), the label of each sample; `group(i)`, the name of the group of
    sample i; `unread()`, the rows that stand for what could not be read: see the members of `Table`."""
    if isinstance(source, Table):
        return source
    count, states = len(source), source.states()
    of_rows = len(states) >= count
    labels, unread = _asked(source, "labels"), _asked(source, "unread")
    group: Callable[[int], str] | None = getattr(source, "group", None)
    return Table(
        source.info,
        TablePart(SourceRows(source, np.arange(count, dtype=np.int64))),
        states[:count] if of_rows else None,
        states[count if of_rows else 0 :],
        labels=None if labels is None else np.asarray(labels, np.int64),
        groups=None if group is None else texts_of([group(i) for i in range(count)]),
        unread=NO_ROWS if unread is None else np.asarray(unread, np.int64),
    )


def _asked(source: Source, ability: str) -> Any:
    ask = getattr(source, ability, None)
    return None if ask is None else ask()


class SourceRows:
    """Samples of a source, which name themselves: a column of images. It is pickled as the parts of the source that
    have them."""

    is_foreign = True

    def __init__(self, source: Source, rows: Rows) -> None:
        """rows: the number of each sample, ascending."""
        self._source, self._rows = source, rows

    def __len__(self) -> int:
        return len(self._rows)

    def value(self, i: int, /) -> Item:
        return self._source[int(self._rows[i])]

    def key(self, i: int) -> str:
        return self._source.key(int(self._rows[i]))

    def pick(self, rows: Rows, /) -> SourceRows:
        return SourceRows(self._source, self._rows[rows])

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return image_file_of(self._source, int(self._rows[i]))

    def __reduce__(self) -> tuple[type[PartRows], tuple[list[Samples]]]:
        runs = np.split(self._rows, np.flatnonzero(np.diff(self._rows) != 1) + 1)
        return PartRows, ([self._source.part(int(run[0]), int(run[-1]) + 1) for run in runs if len(run)],)


class PartRows:
    """Parts of a source, one after another, as a column of images."""

    is_foreign = True

    def __init__(self, parts: list[Samples]) -> None:
        self._parts, self._ends = parts, np.cumsum([len(part) for part in parts], dtype=np.int64).tolist()

    def __len__(self) -> int:
        count: int = self._ends[-1] if self._ends else 0
        return count

    def value(self, i: int, /) -> Item:
        part, row = self._at(i)
        return part[row]

    def key(self, i: int) -> str:
        part, row = self._at(i)
        return part.key(row)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return image_file_of(*self._at(i))

    def _at(self, i: int) -> tuple[Samples, int]:
        k = bisect_right(self._ends, i)
        return self._parts[k], i - (self._ends[k - 1] if k else 0)
