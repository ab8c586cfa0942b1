"""Fields that are in the paths of samples: the pattern 'S{subject:03d}C{camera:03d}A{label:03d}.avi' finds them.

A pattern is matched against the end of a path, folder by folder. Each part of it between two slashes is one regular
expression made here, of at most three texts, so the time that a match takes is bounded whatever a path holds.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import xxhash

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import (
    Containers,
    Item,
    Rows,
    Samples,
    Source,
    check_part,
    check_sample,
    column_of,
    containers_of,
    group_of,
    image_file_of,
    labels_of,
    lines_of,
    paths_of,
    unread_of,
    videos_of,
)
from rawpack_packer.sources.fields import FieldKind, check_names
from rawpack_packer.sources.files import UNKNOWN
from rawpack_packer.sources.listing.lines import fault
from rawpack_packer.sources.table.choose import EMPTY, LABEL, UNLABELLED, Classes, empty_classes, number_labels
from rawpack_packer.sources.table.columns import Column, Numbers, texts_of
from rawpack_packer.sources.table.named_files import natural
from rawpack_packer.sources.video import FRAME, VIDEO, Videos
from rawpack_packer.sources.view import picked

_WHOLE = re.compile(r"(?:0([1-9]|1[0-8]))?d")
"""The type of a whole number, perhaps with the number of its digits."""
_TEXT, _ANY_WHOLE, _FLOAT = r"[^/]+?", r"-?[0-9]{1,19}+", r"-?[0-9]{1,19}+(?:\.[0-9]{1,19}+)?+"
_MOST_TEXTS = 3
"""In one part: the time of a match grows with the length of the name to this power."""
_LONGEST = 255
"""Characters of a file's name; in an archive it may have more."""


@dataclass(frozen=True)
class PathPattern:
    """A pattern, ready to be matched."""

    text: str
    """As it was written."""
    dtypes: Mapping[str, str]
    """Field -> "str", "int64" or "float64", in the order of the pattern."""
    parts: tuple[re.Pattern[str], ...]
    """One for each part of the path that it is matched against."""

    def match(self, path: str) -> dict[str, str | int | float] | None:
        """The values in the last parts of a path, which "/" divides; None where it does not match."""
        found = dict[str, str | int | float]()
        names = path.split("/")[-len(self.parts) :]
        if len(names) < len(self.parts):
            return None
        for part, name in zip(self.parts, names, strict=True):
            match = part.fullmatch(name) if len(name) <= _LONGEST else None
            if match is None:
                return None
            for field, value in match.groupdict().items():
                dtype = self.dtypes[field]
                found[field] = value if dtype == "str" else int(value) if dtype == "int64" else float(value)
        whole = [value for value in found.values() if isinstance(value, int)]
        return None if any(not -(1 << 63) <= value < 1 << 63 for value in whole) else found


def path_pattern(text: str) -> PathPattern:
    """A pattern as a user wrote it. Raises UsageError."""
    dtypes: dict[str, str] = {}
    parts: list[list[str]] = [[]]
    try:
        pieces = list(string.Formatter().parse(text))
    except ValueError as error:
        raise _wrong(text, f"{error}; {{{{ and }}}} stand for braces") from error
    before = ""
    for literal, name, spec, conversion in pieces:
        first, *others = ([re.escape(piece)] if piece else [] for piece in literal.split("/"))
        parts[-1] += first
        parts += others
        if name is None:
            continue
        dtype, matched = _field(text, name, spec or "", conversion)
        clash = before == _TEXT == matched or before in (_ANY_WHOLE, _FLOAT)
        if clash and not literal:
            what = "another text" if before == _TEXT else "a number of any length"
            raise _wrong(text, f"{{{name}}} comes right after {what}, so where it begins is not clear")
        if name in dtypes:
            raise _wrong(text, f"{{{name}}} occurs twice: {{}} stands for a text that is not stored")
        if name:
            dtypes[name] = dtype
        parts[-1].append(f"(?P<{name}>{matched})" if name else f"(?:{matched})")
        before = matched
    if not dtypes:
        raise _wrong(text, "it has no field, such as {label}")
    if not all(parts):
        raise _wrong(text, "a folder in it has no name: it is the end of a path, without // or a / at either end")
    if any(sum(_TEXT in one for one in part) > _MOST_TEXTS for part in parts):
        raise _wrong(text, f"one name in it has more than {_MOST_TEXTS} texts")
    check_names(dtypes)
    return PathPattern(text, dtypes, tuple(re.compile("".join(part), re.DOTALL) for part in parts))


@dataclass(frozen=True)
class PathTemplate:
    """How paths are made of the columns of a listing: '{youtube_id}_{time_start:06d}_{time_end:06d}.mp4'."""

    pieces: tuple[tuple[str, str, str], ...]
    """Text, and the column and the format of the value that comes after it."""

    @property
    def columns(self) -> list[str]:
        return [name for _, name, _ in self.pieces if name]

    def path(self, values: Mapping[str, Any]) -> str:
        """The path of a row. Raises ValueError, which names the column, where a value has no such format."""
        made = []
        for text, name, spec in self.pieces:
            made.append(text)
            if not name:
                continue
            value = str(values[name]).strip()
            if spec and not re.fullmatch("-?[0-9]{1,19}", value):
                raise ValueError(f"{name} is {value!r}, not a whole number")
            made.append(format(int(value), spec) if spec else value)
        return "".join(made)


def path_template(text: str, names: Sequence[str]) -> PathTemplate:
    """A template as a user wrote it. names: of the columns; `{}` stands for the first. Raises UsageError."""
    try:
        pieces = [(one, name, spec or "", kind) for one, name, spec, kind in string.Formatter().parse(text)]
    except ValueError as error:
        raise UsageError(f"{opt.path_column(repr(text))}: {error}; {{{{ and }}}} stand for braces") from error
    named = [(spec, kind) for _, name, spec, kind in pieces if name is not None]
    if not named or any(kind or (spec and not _WHOLE.fullmatch(spec)) for spec, kind in named):
        raise UsageError(
            f"{opt.path_column(repr(text))}: a column is written {{name}}, {{name:06d}} for a number with six digits, "
            "or {} for the first"
        )
    first = names[0] if names else ""
    return PathTemplate(tuple((one, "" if name is None else name or first, spec) for one, name, spec, _ in pieces))


@dataclass(frozen=True, eq=False)
class _JoinedPart:
    samples: Samples
    at: Rows
    """(n,): where each sample is in `samples`."""
    columns: Mapping[str, Column]
    rows: Rows
    """(n,): the row in `columns` of each sample."""

    def __len__(self) -> int:
        return len(self.at)

    def __getitem__(self, i: int, /) -> Item:
        check_sample(self, i)
        item, row = self.samples[int(self.at[i])], int(self.rows[i])
        fields = {**item.fields, **{name: column.value(row) for name, column in self.columns.items()}}
        return Item(item.key, item.image, fields, item.planes, item.file_bytes)

    def key(self, i: int, /) -> str:
        check_sample(self, i)
        return self.samples.key(int(self.at[i]))

    def image_file(self, i: int, /) -> tuple[str, int, int] | None:
        return image_file_of(self.samples, int(self.at[i]))


class JoinedFields:
    """A source with the fields that a pattern found in the paths of its samples. A field `label` replaces that of the
    source and its classes."""

    def __init__(
        self,
        source: Source,
        pattern: PathPattern,
        columns: Mapping[str, Column],
        classes: tuple[str, ...] | None,
        rows: Rows,
        order: Rows | None = None,
    ) -> None:
        """columns: a value of each field for each path. classes: those of a `label` that is a text. rows: (n,), the row
        in `columns` of each sample of the source. order: (n,), the number in the source of each sample; None where they
        are in its order."""
        self._source, self._columns, self._in_order = source, columns, order is None
        self._order = np.arange(len(source)) if order is None else order
        self._rows = rows[self._order]
        digest = xxhash.xxh3_64_intdigest(pattern.text.encode("utf-8", "surrogateescape"))
        self._state = np.array([[UNKNOWN[0], digest - (1 << 63)]])
        info = source.info
        if LABEL in columns:
            counts = {**info.counts, **{name: 0 for name in (EMPTY, UNLABELLED) if name in info.counts}}
            label = columns[LABEL]
            empty = empty_classes(classes, label.values) if isinstance(label, Numbers) else ()
            info = replace(info, classes=classes, empty_classes=empty, counts=counts, flat=False, doubts=())
        kinds = {name: kind for name, kind in info.fields.items() if name not in columns}
        for name, dtype in pattern.dtypes.items():
            kinds[name] = FieldKind("int64" if name == LABEL and dtype == "str" else dtype)
        self.info = replace(info, fields=kinds, options={**info.options, "--key-pattern": pattern.text})

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, i: int, /) -> Item:
        return self.part(i, i + 1)[0]

    def key(self, i: int, /) -> str:
        return self._source.key(self._at(i))

    def part(self, start: int, stop: int, /) -> Samples:
        check_part(self, start, stop)
        rows = np.arange(start, stop)
        if not self._in_order:
            return self.pick(rows)
        return self._part(self._source.part(start, stop), rows - start, self._rows[rows])

    def pick(self, rows: Rows, /) -> Samples:
        in_order, at = np.unique(self._order[rows], return_inverse=True)
        return self._part(picked(self._source, in_order), at, self._rows[rows])

    def states(self) -> Rows:
        states = self._source.states()
        if len(states) >= len(self):
            states = np.concatenate([states[self._order], states[len(self) :]])
        return np.concatenate([states, self._state])

    def labels(self) -> Rows | None:
        label = self._columns.get(LABEL)
        if label is None:
            labels = labels_of(self._source)
            return None if labels is None else labels[self._order]
        return label.values[self._rows] if self.info.classes is not None and isinstance(label, Numbers) else None

    def unread(self) -> Rows:
        return np.flatnonzero(np.isin(self._order, unread_of(self._source)))

    def containers(self) -> Containers | None:
        return containers_of(self._source) if self._in_order else None

    def videos(self) -> Videos | None:
        videos = videos_of(self._source)
        return None if videos is None else videos.at(self._order)

    def group(self, i: int, /) -> str:
        return group_of(self._source, self._at(i))

    def column(self, name: str, /) -> Column | None:
        if (column := self._columns.get(name)) is not None:
            return column.pick(self._rows)
        column = column_of(self._source, name)
        return None if column is None else column.pick(self._order)

    def line(self, i: int, /) -> int:
        return lines_of(self._source)(self._at(i))

    def path(self, i: int, /) -> str:
        return paths_of(self._source)(self._at(i))

    def _at(self, i: int) -> int:
        check_sample(self, i)
        return int(self._order[i])

    def _part(self, samples: Samples, at: Rows, rows: Rows) -> _JoinedPart:
        used, rows = np.unique(rows, return_inverse=True)
        return _JoinedPart(samples, at, {name: column.pick(used) for name, column in self._columns.items()}, rows)


def join_path_fields(source: Source, text: str, named: Classes | None = None) -> Source:
    """A source with the fields that a pattern finds in the paths of its samples, see `path_pattern`. named: the names
    of the classes of `label`.

    If it finds `frame`, the frames of each video are put in the order of their numbers: by name, 10 comes before 2.
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
    values: dict[str, list[Any]] = {name: [] for name in pattern.dtypes}
    for line, path in paths:
        fields = pattern.match(path)
        if fields is None:
            raise fault(source.info.root, line, 0, "", f"{path} does not match {opt.key_pattern(repr(text))}")
        for name, value in fields.items():
            values[name].append(value)
    columns, classes = dict[str, Column](), None
    for name, dtype in pattern.dtypes.items():
        if dtype != "str":
            columns[name] = Numbers(np.array(values[name], dtype))
        elif name == LABEL:
            labels = number_labels(values[name], named, where=source.info.root)
            columns[name], classes = Numbers(labels.numbers), labels.names
        else:
            columns[name] = texts_of(values[name])
    order = _by_frame(columns, [path for _, path in paths], rows, unread) if FRAME in columns else None
    return JoinedFields(source, pattern, columns, classes, rows, order)


def _by_frame(columns: Mapping[str, Column], paths: Sequence[str], rows: Rows, unread: set[int]) -> Rows | None:
    """(n,): the samples in the order of `frame` in each video, which is in one folder; videos are in the order in which
    they begin. None where they are in this order already.

    columns: those of paths. rows: (n,), the path of each sample. unread: the samples that have none.
    """

    def value(name: str, row: int) -> Any:
        value = np.asarray(columns[name].value(row)).item() if name in columns else None
        return natural(value) if name == FRAME and isinstance(value, str) else value

    begins: dict[object, int] = {}
    order = list[tuple[int, Any, int]]()
    for i, row in enumerate(rows.tolist()):
        video = i if i in unread else (paths[row].rpartition("/")[0], value(VIDEO, row))
        order.append((begins.setdefault(video, i), value(FRAME, row), i))
    numbers = np.array([i for *_, i in sorted(order)], np.int64)
    return None if (np.diff(numbers) == 1).all() else numbers


def _field(text: str, name: str, spec: str, conversion: str | None) -> tuple[str, str]:
    """The dtype of a field, and the regular expression of its value."""
    if conversion:
        raise _wrong(text, f"!{conversion} has no meaning in it")
    if not spec:
        return "str", _TEXT
    if not name:
        raise _wrong(text, f"{{:{spec}}} has no name")
    if spec == "f":
        return "float64", _FLOAT
    if whole := _WHOLE.fullmatch(spec):
        return "int64", _ANY_WHOLE if whole[1] is None else f"[0-9]{{{whole[1]}}}"
    raise _wrong(text, f"{{{name}:{spec}}}: a field is {{name}}, {{name:d}}, {{name:03d}} or {{name:f}}")


def _wrong(text: str, what: str) -> UsageError:
    return UsageError(f"{opt.key_pattern(repr(text))}: {what}")
