"""A listing file as a source: one column has the paths, the others become fields."""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import (
    RESERVED,
    Declared,
    FieldKind,
    check_names,
    declared_kind,
    split_arrays,
    with_arrays,
    words_of,
)
from rawpack_packer.sources.listing.columns import (
    ClassNumberParser,
    ClassParser,
    ColumnParser,
    InferringParser,
    KeyParser,
    TimeParser,
    parser_for,
)
from rawpack_packer.sources.listing.faults import CellPosition, Lines, fault
from rawpack_packer.sources.listing.lines import (
    PLAIN_SUFFIX,
    READERS,
    SUFFIXES,
    ListingRows,
    PlainRows,
    begins_with_file,
    long_cells,
)
from rawpack_packer.sources.listing.paths import PathParser, folder_of, state_of
from rawpack_packer.sources.path_fields import PathTemplate, path_template
from rawpack_packer.sources.table.columns import Column, Files, Numbers, RaggedColumn, Texts, texts_of
from rawpack_packer.sources.table.labels import LABEL, Classes, classes_of, empty_classes, named_file, no_classes
from rawpack_packer.sources.table.source import TableSource
from rawpack_packer.sources.video import EXTENSIONS as VIDEO_EXTENSIONS
from rawpack_packer.text import listed, plain

PATH_NAMES = ("path", "file_name", "filename", "filepath", "file")
"""Names of the column of paths; the first that occurs."""
TIMES = ("start", "end")
"""Columns of times, where the paths are those of videos."""
_BLOCK = 1 << 13
"""Rows that are Python objects at one time."""
_BOX_NAMES = ("box", "boxes", "bbox", "bboxes")
Progress = Callable[[int], None]
RowReader = Callable[[BinaryIO, str, str, Container[str]], ListingRows]
"""Reads the rows of an open file: `rows_of` without its suffix."""


class ListingSource(TableSource):
    """A CSV, TSV or JSON-lines file, or a plain list, as a `Source`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        fields: Mapping[str, Declared] | Sequence[str] = (),
        path_column: str | None = None,
        label_column: str | None = None,
        key_column: str | None = None,
        images: str | os.PathLike[str] | None = None,
        classes: Classes | None = None,
        videos: bool | None = None,
        progress: Scanning = unseen,
        rows_by: RowReader | None = None,
    ) -> None:
        """fields: what columns hold, where their values do not show it: {"boxes": "xyxy"}, or ["boxes:xyxy"].
        path_column: the column of paths, or a template with braces, see `path_template`; None takes the first of
        `PATH_NAMES`. label_column: the column that becomes field `label`, if not the one of that name. key_column: the
        column of keys; None uses the paths. images: the folder that relative paths start from;
        None is the listing's own. classes: of the labels, or of the boxes if there is no column of labels. videos:
        whether the paths are those of videos, so that `start` and `end` are times; None decides by the first one.
        progress: called with the number of rows read so far. rows_by: what reads the rows, if not the file's suffix
        decides.

        Raises BadListingError with the first fault, its line and column.
        """
        options = given_options(
            field=words_of(fields),
            path=path_column,
            label_column=label_column,
            key_column=key_column,
            images=images,
            classes=named_file(classes),
        )
        file = Path(path).absolute()
        where = plain(os.fsencode(file))
        if rows_by is None and file.suffix.lower() not in SUFFIXES:
            raise UsageError(f"{where}: a listing's name ends in {', '.join(SUFFIXES)}: rename it by what it holds")
        typed, arrays = split_arrays(fields)
        declared = declared_fields(typed)
        root = folder_of(images, file.parent)
        names = None if classes is None else classes_of(classes)
        given = sorted(declared.items(), key=lambda item: item[0]), names
        with reading(where), file.open("rb") as opened, long_cells():
            state = state_of(file, repr((*given, *([path_column] if path_column else []))))
            read = rows_by or partial(rows_of, file.suffix.lower())
            rows = read(opened, where, root, declared)
            columns = _ListingColumns(rows, declared, path_column, label_column, key_column, root, names, where)
            columns.videos, columns.arrays = videos, arrays
            columns.read(rows, progress)
        info, keys, self.images, self.columns = columns.finish(where, str(file), options)
        super().__init__(info, keys, self.images, self.columns, state)
        self.lines = columns.lines()
        """(n,): the line of each row."""
        self.of_videos = columns.videos
        """Whether the paths are those of videos."""
        self.times = columns.times()
        """Where each video begins and ends, in seconds; None where it has no such time."""

    def line(self, i: int, /) -> int:
        """See `HasColumns`."""
        return int(self.lines[i])

    def labels(self) -> NDArray[np.int64] | None:
        """See `HasLabels`: numbers without names may be measurements."""
        return None if self.info.classes is None else super().labels()


class _ListingColumns:
    """The parsers of all columns."""

    def __init__(
        self,
        rows: ListingRows,
        declared: Mapping[str, FieldKind | None],
        path: str | None,
        label: str | None,
        key: str | None,
        root: str,
        classes: Sequence[str] | None,
        where: str,
    ) -> None:
        names = list(rows.names)
        self._template = path_template(path) if path is not None and "{" in path and path not in names else None
        for name in [path] if self._template is None else self._template.columns:
            if name is not None and name not in names:
                raise UsageError(f"{opt.path_column(repr(name))}: {where} has no such column: it has {_listed(names)}")
        if self._template is not None:
            path = ""  # no column's name
        if path is None:
            path = next((name for name in PATH_NAMES if name in names), None)
        if path is None:
            raise UsageError(_no_path(where, names))
        if key is not None and key not in names:
            raise UsageError(f"{where} has no column {key!r} to take keys from: it has {_listed(names)}")
        self._names = names
        """As they are in the file."""
        if label not in (None, LABEL):
            names = _with_label(names, str(label), (path, key), where)
        # Such as {image}.jpg: no field can have this name, and the path has its value.
        reserved = set() if self._template is None else RESERVED.keys() & set(self._template.columns)
        self._fields = [name for name in names if name not in (path, key) and name not in reserved]
        check_header(names, self._fields, where)
        for name in declared:
            if name not in self._fields:
                raise UsageError(
                    f"{opt.fields(name)}: {where} has no such column besides its paths: {_listed(self._fields)}"
                )
        self._where, self._classes, self._declared = where, classes, declared
        self._places = {
            name: CellPosition(where, name, i if rows.cells else 0, rows.cells) for i, name in enumerate(names, 1)
        }
        self._path = path
        path_place = self._places[path] if path else CellPosition(where, str(opt.path_column), 0, rows.cells)
        self._key_place = path_place if key is None else self._places[key]
        self._paths = PathParser(path_place, root)
        self._keys = None if key is None or key == path else KeyParser(self._key_place)
        self._parsers: dict[str, ColumnParser] = {}
        for name, place in self._places.items():
            kind = declared.get(name)
            if name == path:
                self._parsers[name] = self._paths
            elif name == key and self._keys is not None:
                self._parsers[name] = self._keys
            elif name in declared and (kind is None or kind.mask):
                self._parsers[name] = PathParser(place, root)
            else:
                self._parsers[name] = parser_for(place, kind, classes)
        self._lines: list[Lines] = []
        self.videos: bool | None = None
        """Whether paths are those of videos; None before the first one, if the user does not say."""
        self.arrays: Sequence[str] = ()
        """Fields that are no images, as the user says."""

    def read(self, rows: ListingRows, progress: Scanning) -> None:
        """Read all rows."""
        count = 0
        for lines, columns in blocks(rows):
            self._lines.append(lines)
            if self._template is not None:
                paths: Sequence[Any] = self._made_paths(self._template, columns, lines)
                self._paths.add(paths, lines)
            else:
                paths = columns[list(self._parsers).index(self._path)]
            if not count:
                self._begin(paths[0])
            for parser, values in zip(self._parsers.values(), columns, strict=True):
                parser.add(values, lines)
            count += len(lines)
            progress(count)

    def _begin(self, path: Any) -> None:
        """Decide by the first path whether all are those of videos, whose times are no fields."""
        if self.videos is None:
            self.videos = isinstance(path, str) and os.path.splitext(path)[1].lower() in VIDEO_EXTENSIONS  # noqa: PTH122
        for name in TIMES if self.videos else ():
            if name in self._fields and name not in self._declared:
                self._fields.remove(name)
                self._parsers[name] = TimeParser(self._places[name])

    def _made_paths(self, template: PathTemplate, columns: Sequence[Sequence[Any]], lines: Lines) -> list[str]:
        """The path of each row by a template."""
        paths = list[str]()
        for line, row in zip(lines, zip(*columns, strict=True), strict=True):
            try:
                paths.append(template.path(dict(zip(self._names, row, strict=True))))
            except ValueError as error:
                raise fault(self._where, int(line), 0, "", f"{opt.path_column}: {error}") from None
        return paths

    def lines(self) -> Lines:
        """(n,): the line of each row."""
        return np.concatenate(self._lines)

    def times(self) -> list[tuple[Fraction | None, Fraction | None]]:
        """Where each video begins and ends; empty where there are no such columns."""
        found = [self._parsers.get(name) for name in TIMES]
        count = len(self.lines())
        none: list[Fraction | None] = [None] * count
        if not any(isinstance(parser, TimeParser) for parser in found):
            return []
        start, end = (parser.values if isinstance(parser, TimeParser) else none for parser in found)
        return list(zip(start, end, strict=True))

    def finish(
        self, where: str, path: str, options: Mapping[str, str]
    ) -> tuple[SourceInfo, Texts, Files, dict[str, Column]]:
        """What was read. Raises BadListingError; UsageError if it lists nothing."""
        if not self._lines:
            raise UsageError(f"{where} lists no image: there is no line after the names of the columns")
        images, lines = self._paths.files(), self.lines()
        keys = images.paths if self._keys is None else self._keys.finish()[1]
        if times := self.times():
            keys = self._parts(keys, times, lines)
        check_unique(keys, lines, self._key_place, f"take them from another column, {opt.key_column('COLUMN')}")
        kinds, columns = dict[str, FieldKind](), dict[str, Column]()
        for name in self._fields:
            kind, columns[name] = self._parsers[name].finish()
            kinds[name] = self._declared.get(name) or kind
        label = self._parsers.get("label")
        label = label.chosen if isinstance(label, InferringParser) else label
        classes = label.classes if isinstance(label, ClassParser) else self._classes
        numbers = self._class_numbers(columns, lines)
        if self._classes is not None and not isinstance(label, ClassParser):
            self._check_classes(numbers, kinds, len(self._classes))
        empty = empty_classes(classes, np.concatenate([one for _, one, _ in numbers])) if numbers else ()
        kinds = with_arrays(kinds, self.arrays, where)
        hints = [box_hint(name, kind) for name, kind in kinds.items() if name not in self._declared]
        info = SourceInfo(
            kind="listing",
            root=where,
            paths=(path,),
            fields=kinds,
            classes=None if classes is None else tuple(classes),
            empty_classes=empty,
            options=options,
            counts={
                "unlabelled": label.unlabelled if isinstance(label, ClassParser | ClassNumberParser) else 0,
                "empty_classes": len(empty),
            },
            problems=tuple(filter(None, hints)),
        )
        return info, keys, images, columns

    def _parts(self, keys: Texts, times: Sequence[tuple[Fraction | None, Fraction | None]], lines: Lines) -> Texts:
        """The names of parts of videos, "clip.mp4@10-20"; those of whole videos, and those of a key column, stay."""
        names = []
        for i, (start, end) in enumerate(times):
            if end is not None and end <= (start or 0):
                raise self._places["end"].fault(
                    lines[i], f"{float(end):g} is not after the start, {float(start or 0):g}"
                )
            part = f"@{float(start or 0):.15g}-{'' if end is None else f'{float(end):.15g}'}"
            names.append(keys.value(i) + (part if self._keys is None and (start, end) != (None, None) else ""))
        return texts_of(names)

    def _class_numbers(self, columns: Mapping[str, Column], lines: Lines) -> list[tuple[str, NDArray[Any], Lines]]:
        """Each column with class numbers: its name, the numbers, and their lines. They are the labels; without labels,
        the classes of boxes."""
        if "label" in columns:
            label = columns["label"]
            return [("label", label.values, lines)] if isinstance(label, Numbers) else []
        return [
            (name, column.classes(), np.repeat(lines, np.diff(column.ends)))
            for name, column in columns.items()
            if isinstance(column, RaggedColumn) and column.have_classes
        ]

    def _check_classes(
        self, numbers: Sequence[tuple[str, NDArray[Any], Lines]], kinds: Mapping[str, FieldKind], count: int
    ) -> None:
        """Where classes are given, class numbers must be theirs."""
        if not numbers or kinds.get("label", FieldKind("int64")) != FieldKind("int64"):
            raise UsageError(
                f"{opt.classes} names the classes of a column 'label' of names or whole numbers, or else of boxes that "
                f"have classes ({opt.fields('boxes:xyxy')}); this listing has neither"
            )
        for name, values, lines in numbers:
            what = "" if name == "label" else " is the class of a box"
            for i in np.flatnonzero(no_classes(values, count))[:1]:
                wrong = f"{values[i]:.15g}{what}; there are {count} classes, counted from 0"
                raise self._places[name].fault(lines[i], wrong)


def _with_label(names: Sequence[str], label: str, taken: Sequence[str | None], where: str) -> list[str]:
    """The names of columns, of which one is called label. Raises UsageError."""
    if label not in names or label in taken or LABEL in names:
        what = f"has no such column: it has {_listed(names)}"
        if label in names:
            what = f"takes its {'paths' if label == taken[0] else 'keys'} from it"
            what = "has a column 'label' too: rename one" if label not in taken else what
        raise UsageError(f"{opt.label_column(plain(label))}: {where} {what}")
    return [LABEL if name == label else name for name in names]


def check_unique(keys: Texts, lines: Lines, place: CellPosition, cure: str) -> None:
    """Raise BadListingError for a key that occurs twice: by hashes, so that a million of them need no set of texts."""
    hashes = np.array([xxhash.xxh3_64_intdigest(keys.raw(i)) for i in range(len(keys))], np.uint64)
    found, counts = np.unique(hashes, return_counts=True)
    firsts: dict[str, int] = {}
    for i in np.flatnonzero(np.isin(hashes, found[counts > 1])).tolist():
        key = keys.value(i)
        first = firsts.setdefault(key, i)
        if first != i:
            what = f"{key!r} is on line {lines[first]} already, and keys must be unique: {cure}"
            raise place.fault(lines[i], what)


def rows_of(suffix: str, file: BinaryIO, where: str, root: str, declared: Container[str]) -> ListingRows:
    """The rows of a listing whose name ends in `suffix`."""
    if suffix == PLAIN_SUFFIX:
        return PlainRows(file, where, root=root, declared=declared)
    rows = READERS[suffix](file, where)
    if len(rows.names) == 1 and begins_with_file(rows.names[0], root):
        return PlainRows(file, where, root=root, declared=declared)  # which some tools call .csv
    return rows


def declared_fields(fields: Mapping[str, Declared] | Sequence[str]) -> dict[str, FieldKind | None]:
    """The declared kinds of fields; None for masks, whose kind the first one shows. Raises UsageError."""
    if isinstance(fields, Mapping):
        return {name: declared_kind(name, declared) for name, declared in fields.items()}
    declared: dict[str, FieldKind | None] = {}
    for text in fields:
        name, colon, word = text.partition(":")
        if not colon or not name:
            raise UsageError(f"{opt.fields(repr(text))}: write NAME:DTYPE, such as score:float32 or boxes:xyxy")
        if name in declared:
            raise UsageError(f"{opt.fields(name)} is given twice")
        declared[name] = declared_kind(name, word)
    return declared


def check_header(names: Sequence[str], fields: Sequence[str], where: str) -> None:
    """Raise BadListingError where fields cannot have the names of their columns."""
    for column, name in enumerate(names, 1):
        if not name:
            cure = "name it, or leave it out (pandas: to_csv(..., index=False))"
            raise fault(where, 1, column, "", f"the column has no name: {cure}")
        if name in names[: column - 1]:
            raise fault(where, 1, column, name, "another column has the same name: rename one")
        if name in fields:
            try:
                check_names([name])
            except UsageError as error:
                more = f"; or use its values as keys: {opt.key_column('key')}" if name == "key" else ""
                raise fault(where, 1, column, name, f"{error}{more}") from None
    try:
        check_names(fields)
    except UsageError as error:
        raise fault(where, 1, 0, "", str(error)) from None


def _no_path(where: str, names: Sequence[str]) -> str:
    if not names:
        return f"{where} is empty: a listing has a path in each line"
    cure = "is the line of names missing? Write one, such as path,label. Or name the column of paths: "
    cure += opt.path_column("COLUMN")
    if (image := next((name for name in names if name in ("image", "img", "images")), None)) is not None:
        cure = f"if {image!r} has the paths, add {opt.path_column(image)}"
    elif len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        cure = "a .csv has commas between values, not semicolons or tabs (with tabs, name it .tsv)"
    wanted = f"{', '.join(PATH_NAMES[:-1])} or {PATH_NAMES[-1]}"
    return f"{where}, line 1: no column is named {wanted}, only {_listed(names)}: {cure}"


def box_hint(name: str, kind: FieldKind) -> str | None:
    """What to tell the user of a field that looks like boxes but was not declared."""
    rows_of_box = len(kind.shape) == 2 and kind.ragged and kind.shape[1] in (4, 5)
    if kind.array or (not rows_of_box and (name.lower() not in _BOX_NAMES or kind.dtype == "str")):
        return None
    shape = ",".join("?" if n is None else str(n) for n in kind.shape)
    return (
        f"{name!r} is stored as plain numbers, which do not move when images are cropped and resized. If it holds "
        f"boxes, declare their form: {opt.fields(f'{name}:xyxy')}, {name}:xywh or {name}:yolo; if not, "
        f"{opt.fields(f'{name}:{kind.dtype}[{shape}]')}"
    )


def blocks(rows: ListingRows) -> Iterator[tuple[Lines, list[Sequence[Any]]]]:
    """Some rows at a time, as columns."""
    each = iter(rows)
    while block := list(islice(each, _BLOCK)):
        lines, values = zip(*block, strict=True)
        yield np.array(lines, np.int64), list(zip(*values, strict=True))


def _listed(names: Sequence[str]) -> str:
    return listed(names, 8) or "none"
