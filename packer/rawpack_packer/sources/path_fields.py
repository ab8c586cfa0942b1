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
from rawpack_packer.counts import FRAME, VIDEO
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows, SourceInfo
from rawpack_packer.sources.fields import FieldKind, check_names
from rawpack_packer.sources.files import UNKNOWN
from rawpack_packer.sources.listing.lines import fault
from rawpack_packer.sources.table.choose import EMPTY, LABEL, UNLABELLED, Classes, Labels, empty_classes, number_labels
from rawpack_packer.sources.table.columns import Column, Numbers, Repeated, texts_of
from rawpack_packer.sources.table.named_files import natural
from rawpack_packer.sources.table.table import Table

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


def join_path_fields(table: Table, text: str, named: Classes | None = None) -> Table:
    """A table with the fields that a pattern finds in the paths of its samples, see `path_pattern`. A field `label`
    replaces that of class folders. named: the names of the classes of `label`.

    If it finds `frame`, the frames of each video are put in the order of their numbers: by name, 10 comes before 2.
    What could not be read has a path that is no sample's, and so the fields of the first one: it is rejected anyway.
    Raises UsageError, BadListingError.
    """
    pattern = path_pattern(text)
    for name in pattern.dtypes:
        if name in table.info.fields and not (name == LABEL and table.info.label_depth):
            raise UsageError(
                f"{opt.key_pattern(repr(text))}: {table.info.root} has a field {name!r} already: rename it there"
            )
    unread = set(table.unread.tolist())
    rows, paths, last = np.zeros(len(table), np.int64), list[tuple[int, str]](), None
    for i in range(len(table)):
        path = "" if i in unread else table.path(i)
        if not path:  # or it is a broken line of a listing
            unread.add(i)
            continue
        if path != last:  # the frames of a video have one path
            paths.append((table.line(i), path))
            last = path
        rows[i] = len(paths) - 1
    values: dict[str, list[Any]] = {name: [] for name in pattern.dtypes}
    for line, path in paths:
        fields = pattern.match(path)
        if fields is None:
            raise fault(table.info.root, line, 0, "", f"{path} does not match {opt.key_pattern(repr(text))}")
        for name, value in fields.items():
            values[name].append(value)
    columns, labels = dict[str, Column](), None
    for name, dtype in pattern.dtypes.items():
        if dtype != "str":
            columns[name] = Numbers(np.array(values[name], dtype))
        elif name == LABEL:
            labels = number_labels(values[name], named, where=table.info.root)
            columns[name] = Numbers(labels.numbers)
        else:
            columns[name] = texts_of(values[name])
    order = _by_frame(columns, [path for _, path in paths], rows, unread) if FRAME in columns else None
    if order is not None:
        table, rows = table.ordered(order), rows[order]
    digest = xxhash.xxh3_64_intdigest(pattern.text.encode("utf-8", "surrogateescape"))
    state = np.array([[UNKNOWN[0], digest - (1 << 63)]])
    joined = table.joined({name: Repeated(column, rows) for name, column in columns.items()})
    return joined.but(
        info=_info_with(table.info, pattern, labels),
        file_states=np.concatenate([table.file_states, state]),
        labels=table.labels if LABEL not in columns else None if labels is None else labels.numbers[rows],
    )


def _info_with(info: SourceInfo, pattern: PathPattern, labels: Labels | None) -> SourceInfo:
    """What is known of a source with the fields of a pattern. labels: those of its `label`, if they are texts."""
    if LABEL in pattern.dtypes:
        counts = {**info.counts, **{name: 0 for name in (EMPTY, UNLABELLED) if name in info.counts}}
        classes, empty = (None, ()) if labels is None else (labels.names, empty_classes(labels.names, labels.numbers))
        info = replace(info, classes=classes, empty_classes=empty, counts=counts, flat=False, doubts=())
    kinds = {name: kind for name, kind in info.fields.items() if name not in pattern.dtypes}
    for name, dtype in pattern.dtypes.items():
        kinds[name] = FieldKind("int64" if name == LABEL and dtype == "str" else dtype)
    return replace(info, fields=kinds, options={**info.options, "--key-pattern": pattern.text})


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
