"""A listing file, read: a column of paths, and any others, which become fields."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.sources.base import SourceInfo, given_options
from rawpack_packer.sources.fields import RESERVED, FieldKind, check_names
from rawpack_packer.sources.files import reason_of
from rawpack_packer.sources.kinds import Declared, declared_kind
from rawpack_packer.sources.listing.columns import ClassNumberParser, ClassParser, Growing, TextParser
from rawpack_packer.sources.listing.faults import Faults
from rawpack_packer.sources.listing.lines import SUFFIXES, ListingRows, long_cells, rows_of
from rawpack_packer.sources.listing.numbers import NumberParser
from rawpack_packer.sources.listing.paths import PathParser
from rawpack_packer.sources.listing.place import CellPosition, ColumnParser, Lines
from rawpack_packer.sources.listing.table import (
    Column,
    Numbers,
    RaggedColumn,
    Table,
    TablePart,
    TableSource,
    Texts,
    no_classes,
)
from rawpack_packer.text import listed, plain

PATH_NAMES = ("path", "file_name", "filename", "filepath", "file")
"""What the column of paths is called, the first that is there."""
_BLOCK = 1 << 14
"""Rows that are lists of objects at one time."""
_BOX_NAMES = ("box", "boxes", "bbox", "bboxes")
Progress = Callable[[int], None]
Classes = str | os.PathLike[str] | Sequence[str]
"""Names of classes in the order of their numbers, or a file that has one a line."""


class ListingSource(TableSource):
    """A CSV, TSV or JSON-lines file as a `Source`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        fields: Mapping[str, Declared] | Sequence[str] = (),
        key: str | None = None,
        images: str | os.PathLike[str] | None = None,
        classes: Classes | None = None,
        progress: Progress | None = None,
    ) -> None:
        """fields: what columns hold, where a look would not tell: {"boxes": "xyxy"}, or "boxes:xyxy" each. key: the
        column of keys; None takes the paths. images: the folder that relative paths begin at; None takes the listing's.
        classes: of the labels, or of the boxes where there is no column of labels. progress: told how many rows were
        read so far.

        Raises BadListingError with the first twenty faults, each with its line and column.
        """
        named = classes if isinstance(classes, str | os.PathLike) else None
        fields_given = [":".join(map(str, pair)) for pair in fields.items()] if isinstance(fields, Mapping) else fields
        options = given_options(field=tuple(fields_given), key=key, images=images, classes=named)
        file = Path(path).absolute()
        where = plain(os.fsencode(file))
        if file.suffix.lower() not in SUFFIXES:
            raise UsageError(f"{where}: a listing is named {', '.join(SUFFIXES)}: rename it by what it holds")
        faults = Faults(where)
        declared = declared_fields(fields)
        root = folder_of(images, file.parent)
        names = None if classes is None else classes_of(classes)
        try:
            state = state_of(file, repr((sorted(declared.items(), key=lambda item: item[0]), names)))
            with file.open("rb") as opened, long_cells():
                rows = rows_of(file, opened, faults)
                faults.stop()
                columns = _ListingColumns(rows, declared, key, root, names, faults, where)
                columns.read(rows, progress)
        except OSError as error:
            raise UsageError(f"{where} cannot be read: {reason_of(error)}") from None
        super().__init__(columns.table(where, str(file), state, options))


class _ListingColumns:
    """What takes each column."""

    def __init__(
        self,
        rows: ListingRows,
        declared: Mapping[str, FieldKind | None],
        key: str | None,
        root: str,
        classes: Sequence[str] | None,
        faults: Faults,
        where: str,
    ) -> None:
        names = list(rows.names)
        path = next((name for name in PATH_NAMES if name in names), None)
        if path is None:
            raise UsageError(_no_path(where, names))
        if key is not None and key not in names:
            raise UsageError(f"{where} has no column {key!r} to take keys from: it has {_listed(names)}")
        others = [name for name in names if name not in (path, key)]
        _check_header(names, others, faults)
        for name in declared:
            if name not in others:
                raise UsageError(f"--field {name}: {where} has no such column beside its paths: {_listed(others)}")
        self._faults, self._classes, self._declared = faults, classes, declared
        self._places = [
            CellPosition(name, i if rows.cells else 0, faults, rows.cells) for i, name in enumerate(names, 1)
        ]
        self._label: ClassParser | None = None
        self._label_numbers: ClassNumberParser | None = None
        self._paths = PathParser(self._places[names.index(path)], root)
        self._keys = None if key is None else _KeyParser(self._places[names.index(key)])
        self._key_place = self._places[names.index(path if key is None else key)]
        self._parsers: dict[str, ColumnParser] = {}
        for place in self._places:
            if place.name in others:
                masks = place.name in declared and (declared[place.name] is None or _is_mask(declared[place.name]))
                self._parsers[place.name] = PathParser(place, root) if masks else self._growing(place)
        self._all: list[Any] = [
            self._paths if name == path else self._keys if name == key else self._parsers[name] for name in names
        ]
        self._lines: list[Lines] = []

    def read(self, rows: ListingRows, progress: Progress | None) -> None:
        """Read all rows, or as many as have twenty faults."""
        count = 0
        for lines, columns in _blocks(rows):
            self._lines.append(lines)
            for parser, values in zip(self._all, columns, strict=True):
                parser.add(values, lines)
            count += len(lines)
            if progress is not None:
                progress(count)
            if self._faults.enough:
                break

    def table(self, where: str, path: str, state: NDArray[np.int64], options: Mapping[str, str]) -> Table:
        """All of it. options: see `SourceInfo.options`. Raises BadListingError, UsageError where it lists nothing."""
        if not self._lines:
            self._faults.stop()
            raise UsageError(f"{where} lists no image: it has no line after that of the names")
        if self._faults.enough:
            self._faults.stop()
        images = self._paths.files()
        keys = images.paths if self._keys is None else self._keys.keys()
        lines = np.concatenate(self._lines)
        if len(keys) == len(lines):
            self._check_unique(keys, lines)
        kinds, columns = dict[str, FieldKind](), dict[str, Column]()
        for name, parser in self._parsers.items():
            if len(self._faults) and isinstance(parser, PathParser):
                continue  # the first mask may be what is missing
            kinds[name], columns[name] = parser.finish()
            declared = self._declared.get(name)
            kinds[name] = kinds[name] if declared is None else declared
        self._check_labels(columns, kinds, lines)
        self._faults.stop()
        classes = self._classes if self._label is None else self._label.classes
        label = columns.get("label")
        numbers = [label.values] if isinstance(label, Numbers) else []
        if label is None:
            numbers = [boxes.classes() for boxes in _boxes_of_classes(columns).values()]
        empty = _unused(classes or (), np.concatenate(numbers)) if numbers else ()
        return Table(
            SourceInfo(
                kind="listing",
                root=where,
                paths=(path,),
                fields=kinds,
                classes=None if classes is None else tuple(classes),
                empty_classes=empty,
                options=options,
                counts={
                    "unlabelled": sum(one.unlabelled for one in (self._label, self._label_numbers) if one is not None),
                    "empty_classes": len(empty),
                },
                problems=tuple(
                    _plain_boxes(name, kind) for name, kind in kinds.items() if self._may_be_boxes(name, kind)
                ),
            ),
            TablePart(keys, images, columns),
            state,
        )

    def _growing(self, place: CellPosition) -> Growing:
        label = place.name == "label"
        texts, single = (self._classed, self._numbered) if label else (TextParser, NumberParser)
        return Growing(place, self._declared.get(place.name), texts, single)

    def _numbered(self, place: CellPosition, declared: FieldKind | None) -> ClassNumberParser:
        self._label_numbers = ClassNumberParser(place, declared)
        return self._label_numbers

    def _classed(self, place: CellPosition) -> ClassParser:
        self._label = ClassParser(place, self._classes)
        return self._label

    def _check_labels(self, columns: Mapping[str, Column], kinds: Mapping[str, FieldKind], lines: Lines) -> None:
        """Where classes are given, labels that are numbers must be theirs."""
        if self._classes is None or self._label is not None:
            return
        label = columns.get("label")
        boxes = _boxes_of_classes(columns) if label is None else {}
        if boxes:
            self._check_boxes(boxes, lines, len(self._classes))
            return
        if not isinstance(label, Numbers) or kinds["label"] != FieldKind("int64"):
            raise UsageError(
                "--classes names labels: a column 'label' of names or whole numbers, which is not there; nor is one of "
                "boxes that have classes (--field boxes:xyxy)"
            )
        count, place = len(self._classes), next(place for place in self._places if place.name == "label")
        for i in np.flatnonzero((label.values < -1) | (label.values >= count)):
            place.fault(lines[i], f"{label.values[i]}; there are {count} classes, counted from 0")
            if self._faults.enough:
                return

    def _check_boxes(self, boxes: Mapping[str, RaggedColumn], lines: Lines, count: int) -> None:
        """Where classes are given and there are no labels, boxes must be of them."""
        for name, column in boxes.items():
            place, numbers = next(place for place in self._places if place.name == name), column.classes()
            for i in np.flatnonzero(no_classes(numbers, count)):
                line = lines[np.searchsorted(column.ends, i, side="right") - 1]
                place.fault(line, f"{numbers[i]:g} is the class of a box; there are {count} classes, counted from 0")
                if self._faults.enough:
                    return

    def _check_unique(self, keys: Texts, lines: Lines) -> None:
        """Find keys that are there twice: by hashes, so that a million need no set of texts."""
        hashes = np.array([xxhash.xxh3_64_intdigest(keys.raw(i)) for i in range(len(keys))], np.uint64)
        order = np.argsort(hashes, kind="stable")
        again = np.flatnonzero(hashes[order][1:] == hashes[order][:-1]) + 1
        firsts: dict[str, int] = {}
        for at in sorted({*again.tolist(), *(again - 1).tolist()}, key=lambda at: int(order[at])):
            i = int(order[at])
            key = keys.value(i)
            if key in firsts:
                self._key_place.fault(
                    lines[i],
                    f"{key!r} is on line {lines[firsts[key]]} already, and names one sample: take the names from "
                    "another column, --key COLUMN",
                )
            firsts.setdefault(key, i)
            if self._faults.enough:
                return

    def _may_be_boxes(self, name: str, kind: FieldKind) -> bool:
        """Whether a field that was only looked at looks like boxes."""
        lengths = kind.shape[-1:]
        named = name.lower() in _BOX_NAMES and kind.dtype != "str"
        return name not in self._declared and (
            named or (len(kind.shape) == 2 and kind.ragged and lengths in ((4,), (5,)))
        )


class _KeyParser:
    """Texts that name samples; whole numbers as they are written."""

    def __init__(self, place: CellPosition) -> None:
        self._place, self._texts = place, TextParser(place)

    def add(self, values: Sequence[Any], lines: Lines) -> None:
        texts = [str(value) if type(value) is int else value for value in values]
        for text, line in zip(texts, lines, strict=True):
            if text in (None, ""):
                self._place.fault(line, "is empty: each sample needs a key")
        self._texts.add(texts, lines)

    def keys(self) -> Texts:
        column = self._texts.finish()[1]
        assert isinstance(column, Texts)
        return column


def declared_fields(fields: Mapping[str, Declared] | Sequence[str]) -> dict[str, FieldKind | None]:
    """What was said of fields; None for masks, of which one must be seen. Raises UsageError for nonsense."""
    if isinstance(fields, Mapping):
        return {name: declared_kind(name, declared) for name, declared in fields.items()}
    declared: dict[str, FieldKind | None] = {}
    for text in fields:
        name, colon, word = text.partition(":")
        if not colon or not name:
            raise UsageError(f"--field {text!r}: NAME:DTYPE, such as score:float32 or boxes:xyxy")
        if name in declared:
            raise UsageError(f"--field {name} is said twice")
        declared[name] = declared_kind(name, word)
    return declared


def classes_of(classes: Classes) -> tuple[str, ...]:
    """Names of classes in the order of their numbers. Raises UsageError."""
    if isinstance(classes, str | os.PathLike):
        where = plain(os.fspath(classes))
        try:
            text = Path(classes).read_text("utf-8")
        except OSError as error:
            raise UsageError(f"{where}, the names of classes, cannot be read: {reason_of(error)}") from None
        except UnicodeDecodeError as error:
            raise UsageError(f"{where}, the names of classes, is not UTF-8 at byte {error.start}") from None
        names = tuple(line.strip() for line in text.splitlines())
        while names and not names[-1]:
            names = names[:-1]
    else:
        names, where = tuple(str(name) for name in classes), "classes="
    for number, name in enumerate(names):
        if not name or name in names[:number]:
            what = f"{name!r} again" if name else "no name"
            raise UsageError(f"{where}: line {number + 1} has {what}: one name a line, each another")
    if not names:
        raise UsageError(f"{where} names no class: one name a line")
    return names


def folder_of(images: str | os.PathLike[str] | None, default: Path) -> str:
    """The folder that relative paths begin at. Raises UsageError where it is none."""
    folder = default if images is None else Path(images).absolute()
    if not folder.is_dir():
        raise UsageError(f"there is no folder {plain(os.fsencode(folder))}: --images names that of the images")
    return str(folder)


def state_of(file: Path, declared: str) -> NDArray[np.int64]:
    """What stands for a listing in `Source.states`: (1, 2), its size, and a hash of its bytes and of what was said."""
    digest = xxhash.xxh3_64(declared.encode("utf-8", "surrogatepass"))
    size = 0
    with file.open("rb") as opened:
        while data := opened.read(1 << 20):
            digest.update(data)
            size += len(data)
    return np.array([[size, digest.intdigest() - (1 << 63)]], np.int64)


def _check_header(names: Sequence[str], others: Sequence[str], faults: Faults) -> None:
    for column, name in enumerate(names, 1):
        if not name:
            cure = "name it, or leave it out (pandas: to_csv(..., index=False))"
            faults.add(1, column, "", f"the column has no name: {cure}")
        elif name in names[: column - 1]:
            faults.add(1, column, name, "another column has the same name: rename one")
        elif name in others and name in RESERVED:
            better = "path" if name == "image" and "path" not in names else RESERVED[name]
            more = ", or take the keys of samples from it: --key key" if name == "key" else ""
            faults.add(1, column, name, f"is a name that every sample has already: rename it, to {better!r} say{more}")
    faults.stop()
    try:
        check_names(others)
    except UsageError as error:
        faults.add(1, 0, "", str(error))
    faults.stop()


def _no_path(where: str, names: Sequence[str]) -> str:
    if not names:
        return f"{where} is empty: its first line names the columns, one of them path"
    cure = "is the line of names missing? Write one, such as path,label"
    if any(name in ("image", "img", "images") for name in names):
        cure = "rename the one that has the paths to 'path' ('image' is what every sample has already)"
    elif len(names) == 1 and ";" in names[0]:
        cure = "a .csv has commas between values, and this one semicolons"
    elif len(names) == 1 and "\t" in names[0]:
        cure = "a .csv has commas between values, and this one tabs: name it .tsv"
    return f"{where}, line 1: no column is named {', '.join(PATH_NAMES[:-1])} or {PATH_NAMES[-1]}, only " + (
        f"{_listed(names)}: {cure}"
    )


def _plain_boxes(name: str, kind: FieldKind) -> str:
    shape = ",".join("?" if n is None else str(n) for n in kind.shape)
    forms = f"--field {name}:xyxy, {name}:xywh or {name}:yolo"
    return (
        f"{name!r} is kept as plain numbers, which do not move where images are cropped and resized; if it holds "
        f"boxes, say how they are written: {forms}; if not, --field {name}:{kind.dtype}[{shape}]"
    )


def _blocks(rows: ListingRows) -> Iterator[tuple[Lines, list[Sequence[Any]]]]:
    """Some rows at a time, turned into columns."""
    each = iter(rows)
    while block := list(islice(each, _BLOCK)):
        lines, values = zip(*block, strict=True)
        yield np.array(lines, np.int64), list(zip(*values, strict=True))


def _boxes_of_classes(columns: Mapping[str, Column]) -> dict[str, RaggedColumn]:
    """The fields of boxes that say their class."""
    return {
        name: column for name, column in columns.items() if isinstance(column, RaggedColumn) and column.have_classes
    }


def _unused(classes: Sequence[str], labels: NDArray[Any]) -> tuple[str, ...]:
    used = set(np.unique(labels).tolist())
    return tuple(name for number, name in enumerate(classes) if number not in used)


def _is_mask(kind: FieldKind | None) -> bool:
    return kind is not None and kind.mask


def _listed(names: Sequence[str], most: int = 8) -> str:
    return listed(names, most) or "none"
