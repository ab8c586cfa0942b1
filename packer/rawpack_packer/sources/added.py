"""A source whose samples have further fields: those found in their paths, or those of the row that lists a video."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import Item, Samples, Source, check_part
from rawpack_packer.sources.files import UNKNOWN
from rawpack_packer.sources.optional import (
    column_of,
    group_of,
    image_file_of,
    labels_of,
    lines_of,
    paths_of,
    unread_of,
    videos_of,
)
from rawpack_packer.sources.path_pattern import FoundFields, found_in, path_pattern
from rawpack_packer.sources.table.columns import Column, Numbers
from rawpack_packer.sources.table.labels import EMPTY, UNLABELLED
from rawpack_packer.sources.video_numbers import Videos
from rawpack_packer.sources.view import picked

Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Part:
    samples: Samples
    columns: Mapping[str, Column]
    rows: Rows
    """(n,): the row in `columns` of each sample."""

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, i: int, /) -> Item:
        item, row = self.samples[i], int(self.rows[i])
        fields = {**item.fields, **{name: column.value(row) for name, column in self.columns.items()}}
        return Item(item.key, item.image, fields, item.planes, item.file_bytes)

    def key(self, i: int, /) -> str:
        return self.samples.key(i)

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        """See `HasImageFiles`."""
        return image_file_of(self.samples, i)


class WithFields:
    """A source with further fields, in memory. A field `label` replaces that of the source and its classes."""

    def __init__(self, source: Source, found: FoundFields, rows: Rows, states: Rows, lines: Rows | None = None) -> None:
        """rows: (n,), the row in `found.columns` of each sample. states: (m, 2), of what the fields are from. lines:
        (k,), the line of each row, if the source does not know it."""
        self._source, self._found, self._rows, self._more, self._lines = source, found, rows, states, lines
        info = source.info
        if "label" in found.kinds:
            counts = {**info.counts, **{name: 0 for name in (EMPTY, UNLABELLED) if name in info.counts}}
            info = replace(info, classes=found.classes, empty_classes=(), counts=counts, flat=False)
        kinds = {name: kind for name, kind in info.fields.items() if name not in found.kinds}
        self.info = replace(info, fields={**kinds, **found.kinds})

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, i: int, /) -> Item:
        return self.part(i, i + 1)[0]

    def key(self, i: int, /) -> str:
        """See `Samples.key`."""
        return self._source.key(i)

    def part(self, start: int, stop: int, /) -> Samples:
        """See `Source.part`."""
        check_part(self, start, stop)
        return self._part(self._source.part(start, stop), self._rows[start:stop])

    def pick(self, rows: Rows, /) -> Samples:
        """See `CanPick`."""
        return self._part(picked(self._source, rows), self._rows[rows])

    def states(self) -> Rows:
        """See `Source.states`."""
        return np.concatenate([self._source.states(), self._more])

    def labels(self) -> Rows | None:
        """See `HasLabels`."""
        label = self._found.columns.get("label")
        if label is None:
            return labels_of(self._source)
        return label.values[self._rows] if self.info.classes is not None and isinstance(label, Numbers) else None

    def unread(self) -> Rows:
        """See `HasUnread`."""
        return unread_of(self._source)

    def videos(self) -> Videos | None:
        """See `HasVideos`."""
        return videos_of(self._source)

    def group(self, i: int, /) -> str:
        """See `HasGroups`."""
        return group_of(self._source, i)

    def column(self, name: str, /) -> Column | None:
        """See `HasColumns`."""
        found = self._found.columns.get(name)
        return column_of(self._source, name) if found is None else found.pick(self._rows)

    def line(self, i: int, /) -> int:
        """See `HasColumns`."""
        return lines_of(self._source)(i) if self._lines is None else int(self._lines[self._rows[i]])

    def path(self, i: int, /) -> str:
        """See `HasPaths`."""
        return paths_of(self._source)(i)

    def _part(self, samples: Samples, rows: Rows) -> _Part:
        used, at = np.unique(rows, return_inverse=True)
        return _Part(samples, {name: column.pick(used) for name, column in self._found.columns.items()}, at)


def with_path_fields(source: Source, text: str) -> Source:
    """A source with the fields that a pattern finds in the paths of its samples, see `path_pattern`.

    What could not be read has a path that is no sample's, and so the fields of the first one: it is rejected anyway.
    Raises UsageError, BadListingError.
    """
    pattern = path_pattern(text)
    for name in pattern.dtypes:
        if name in source.info.fields and not (name == "label" and column_of(source, name) is None):
            raise UsageError(
                f"{opt.key_pattern(repr(text))}: {source.info.root} has a field {name!r} already: rename it there"
            )
    unread = set(unread_of(source).tolist())
    rows, paths = np.zeros(len(source), np.int64), list[tuple[int, str]]()
    path_of, line_of, last = paths_of(source), lines_of(source), None
    for i in range(len(source)):
        if i in unread:
            continue
        path = path_of(i)
        if path != last:  # the frames of a video have one path
            paths.append((line_of(i), path))
            last = path
        rows[i] = len(paths) - 1
    found = found_in(paths, pattern, source.info.root)
    state = np.array([[UNKNOWN[0], xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogateescape")) - (1 << 63)]])
    made = WithFields(source, found, rows, state)
    made.info = replace(made.info, options={**made.info.options, "--key-pattern": text})
    return made
