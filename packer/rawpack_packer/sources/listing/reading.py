"""A listing file as a source: one column has the paths, the others become fields. Or one has the keys of samples that
are packed already."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import reading
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows, Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.declared import declared_fields, split_arrays, with_arrays, words_of
from rawpack_packer.sources.exported import ExportNote, exported_beside
from rawpack_packer.sources.fields import RESERVED, Declared, DeclaredKind, FieldKind, PixelWord
from rawpack_packer.sources.folder import EXTENSIONS, is_split
from rawpack_packer.sources.inferred import hints
from rawpack_packer.sources.listing.captions import by_caption
from rawpack_packer.sources.listing.columns import ListedRows, RawColumn, read_columns
from rawpack_packer.sources.listing.lines import (
    NAMED_READERS,
    PLAIN_SUFFIX,
    READERS,
    SUFFIXES,
    USUAL,
    BadListingError,
    CellPosition,
    ListingRows,
    PathParser,
    begins_with_file,
    fault,
    folder_of,
    long_cells,
    read_plain,
    state_of,
    state_of_open,
)
from rawpack_packer.sources.listing.objects import BoxColumns, box_columns, by_image, image_path, object_lists
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.path_fields import PathTemplate, path_template
from rawpack_packer.sources.table.assemble import TableSource
from rawpack_packer.sources.table.choose import (
    LABEL,
    NO_COUNTS,
    PATH_NAMES,
    ChosenColumns,
    Classes,
    ColumnChoice,
    ColumnInfo,
    Habits,
    Labels,
    choose,
    classes_of,
    named_file,
    number_labels,
    numbered_classes,
    path_column,
)
from rawpack_packer.sources.table.columns import Column, RaggedColumn, Texts, texts_of
from rawpack_packer.sources.table.keys import repeated_key
from rawpack_packer.sources.table.named_files import named_files, source_name
from rawpack_packer.sources.table.objects import (
    BOXES,
    Objects,
    labels_of_boxes,
    lists_of_boxes,
    two_classes,
    with_followers,
)
from rawpack_packer.sources.video import EXTENSIONS as VIDEOS
from rawpack_packer.sources.video import names_video
from rawpack_packer.text import listed, plain

_LONGEST = 1 << 16
"""Bytes of a first line that are looked at."""
TIMES = ("start", "end")
"""Columns of times, where the paths are those of videos."""
RowReader = Callable[[BinaryIO, str, str, Mapping[str, DeclaredKind]], ListingRows]
"""Reads the rows of an open file: `rows_of` without its suffix."""
Times = list[tuple[Fraction | None, Fraction | None]]
_Shown = tuple[bool, Callable[[], Iterable[Any]]]


@dataclass(frozen=True)
class ListingFile:
    """A listing that says where it is and how it is read."""

    path: Path
    root: str
    """The folder that relative paths start from."""
    path_column: str | None
    """Unless the user names another one."""
    rows: RowReader
    others: tuple[Path, ...] = ()
    """Further files that it consists of."""
    name: str = ""
    """What messages call it, if not by its path."""


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
        found: ListingFile | None = None,
    ) -> None:
        """fields: what columns hold, where their values do not show it: {"boxes": "xyxy"}, or ["boxes:xyxy"].
        path_column: the column of paths, or a template with braces, see `path_template`; None takes the first of
        `PATH_NAMES`. label_column: the column that becomes field `label`, if not the one of that name. key_column: the
        column of keys; None uses the paths. images: the folder that relative paths start from;
        None is the listing's own. classes: of the labels, or of the boxes if there is no column of labels. videos:
        whether the paths are those of videos, so that `start` and `end` are times; None decides by the first one.
        progress: called with the number of files looked at so far. found: of a folder, its listing.

        Raises BadListingError with the first fault, its line and column.
        """
        typed, arrays = split_arrays(fields)
        given = declared_fields(typed)
        names = None if classes is None else classes_of(classes)
        file = found or _named(path, images)
        said = ColumnChoice(path_column or file.path_column, label_column, key_column, declared=given)
        listing = _read(file, said, names, classes)
        paths = listing.paths(progress)
        of_lines = paths.place.unit == "line"
        self.images, self.lines = paths.files(), listing.rows.lines * of_lines
        """Of lines, (n,): that of each row; 0 where there are none."""
        self.of_videos = names_video(self.images.paths.value(0)) if videos is None else videos
        """Whether the paths are those of videos."""
        if self.of_videos and paths.place.broken:
            raise BadListingError(f"{listing.where}: {next(iter(paths.place.broken.values()))}")
        chosen, declared = listing.choice[1], listing.wanted.declared
        timed = [name for name in TIMES if self.of_videos and name in chosen.fields and name not in declared]
        keys, self.times = _keys(listing, self.images.paths, paths.place, timed)
        """Of times, where each video begins and ends, in seconds; None where it has no such time."""
        made = _fields(listing, timed, classes, names, arrays)
        labels, of_boxes = _labels(listing, made, classes, self.images.paths, paths.place)
        options = {"path": path_column, "label_column": label_column, "key_column": key_column, "images": images}
        shown = (*words_of(fields), *(made.objects.shown if made.objects else ()))
        info = SourceInfo(
            kind="listing",
            root=listing.where,
            paths=(str(file.path), *map(str, file.others)),
            fields=made.kinds,
            options=given_options(**options, classes=named_file(classes), field=shown),
            counts=NO_COUNTS,
            problems=tuple(made.problems),
        )
        states = np.concatenate(listing.states)
        more: dict[str, Any] = {"lines": self.lines}
        super().__init__(info, keys, self.images, made.columns, states, labels=labels, of_boxes=of_boxes, **more)
        if self.info.classes is None:  # numbers without names may be measurements
            self.labels = None


@dataclass(frozen=True, eq=False)
class _ReadListing:
    """A listing that was read."""

    where: str
    """The file, printable."""
    file: ListingFile
    exported: ExportNote
    states: list[NDArray[np.int64]]
    wanted: ColumnChoice
    """What the user says of columns, or else the export."""
    path: str | None
    """The column of paths, if the user names none."""
    rows: ListedRows

    @cached_property
    def choice(self) -> tuple[PathTemplate | None, ChosenColumns]:
        """How paths are made of columns, if they are, and the columns."""
        shown = {name: _shown_by(column, self.file.root) for name, column in self.rows.raw.items()}
        return _chosen([*shown], self.wanted, self.path, self.where, shown)

    def paths(self, progress: Scanning) -> PathParser:
        """Those of the images. Raises BadListingError for one that is no file."""
        (template, chosen), raw, lines = self.choice, self.rows.raw, self.rows.lines
        place = raw[template.columns[0] if template else chosen.image].place
        made = replace(place, name=str(opt.path_column), number=0, cells=False)
        paths = PathParser(made if template else place, self.file.root)
        for row, block in _made_paths(template, raw) if template else raw[chosen.image].numbered():
            paths.add(block, lines[row : row + len(block)])
            progress(row + len(block))
        return paths


def _named(path: str | os.PathLike[str], images: str | os.PathLike[str] | None) -> ListingFile:
    """The listing that a user names. Raises UsageError."""
    pattern = Listing.of(path)
    names = named_files(path).paths if pattern.is_pattern else [os.fspath(path)]
    files = [Path(name).absolute() for name in names]
    file, suffixes = files[0], {one.suffix.lower() for one in files}
    where, suffix = source_name(path), min(suffixes - {*SUFFIXES} or suffixes)
    if suffix not in SUFFIXES:
        others = [one for one in files if one.suffix.lower() == suffix]
        if len(files) > 1:
            raise UsageError(
                f"{where} names {plain(os.fsencode(others[0]))} too, which is no listing: name listings only"
            )
        raise UsageError(f"{where}: a listing's name ends in {', '.join(SUFFIXES)}: rename it by what it contains")
    if len(files) == 1:
        return ListingFile(file, folder_of(images, file.parent), None, partial(rows_of, suffix))
    these = listed([plain(os.fsencode(one.name)) for one in files], 3)
    if sum(is_split(one.stem) for one in files) > 1:
        raise UsageError(f"{where} names several splits, {these}: name one, so that each becomes a store of its own")
    if images is None and len({one.parent for one in files}) > 1:
        raise UsageError(
            f"{where} names listings in several folders: {opt.images} names the folder that the paths start from"
        )
    return ListingFile(
        file, folder_of(images, file.parent), None, partial(_rows_of_all, files), tuple(files[1:]), where
    )


def _rows_of_all(
    files: Sequence[Path], first: BinaryIO, where: str, root: str, declared: Mapping[str, DeclaredKind]
) -> ListingRows:
    """The rows of several listings with the same columns, counted over all of them. first: the first file, open."""
    head = rows_of(files[0].suffix.lower(), first, plain(os.fsencode(files[0])), root, declared)

    numbers, broken = iter(range(sys.maxsize)), dict[int, str]()

    def numbered(part: ListingRows, order: Sequence[int], file: Path) -> Iterator[tuple[int, Sequence[Any]]]:
        for number, (line, row) in zip(numbers, part.rows, strict=False):
            if line in part.broken:
                broken[number] = f"{plain(os.fsencode(file.name))}, {part.broken[line]}"
            yield number, [row[k] for k in order]

    def rows() -> Iterator[tuple[int, Sequence[Any]]]:
        yield from numbered(head, range(len(head.names)), files[0])
        for file in files[1:]:
            shown = plain(os.fsencode(file))
            with file.open("rb") as opened:
                part = rows_of(file.suffix.lower(), opened, shown, root, declared)
                if sorted(part.names) != sorted(head.names) or (part.cells, part.commas) != (head.cells, head.commas):
                    raise UsageError(
                        f"{shown} has other columns than {plain(os.fsencode(files[0].name))}, or other values between "
                        f"them: name one of the files of {where}"
                    )
                order = [part.names.index(name) for name in head.names]
                yield from numbered(part, order, file)

    return replace(head, rows=rows(), unit="row", broken=broken)


def _read(file: ListingFile, said: ColumnChoice, names: Sequence[str] | None, classes: Classes | None) -> _ReadListing:
    """A listing, see `_grouped`. said: by the user. names: of classes. Raises UsageError."""
    where, exported = file.name or plain(os.fsencode(file.path)), exported_beside(file.path)
    with reading(where), file.path.open("rb") as opened, long_cells():
        rows = file.rows(opened, where, file.root, said.declared)
        key = said.key or (exported.key if exported.key in rows.names else None)
        declared = exported.declared(rows.names, said.declared, (said.image, said.label, key))
        words = repr((sorted(declared.items()), names, *([said.image] if said.image else [])))
        path, rows = _path(rows, file.root)
        wanted = ColumnChoice(said.image, said.label, key, declared=declared)
        boxes = None if key else box_columns(rows.names, said.image or path_column(rows.names), said.label, declared)
        if not boxes:  # what is wrong with names is said before values are read
            _chosen(rows.names, wanted, path, where)
        found = read_columns(rows, where, rejecting=True)
        states = [state_of_open(opened, words), *(state_of(one, words) for one in file.others)]
    if not len(found.lines):
        raise UsageError(f"{where} lists no image: there is no line after the names of the columns")
    return _grouped(_ReadListing(where, file, exported, states, wanted, path, found), boxes, classes)


def _grouped(listing: _ReadListing, boxes: BoxColumns | None, classes: Classes | None) -> _ReadListing:
    """With a row for each image, also where several differ in texts, or are boxes. boxes: of rows that may be some."""
    file, states, wanted, rows = listing.file, listing.states, listing.wanted, listing.rows
    if boxes is None:
        template, chosen = listing.choice
        images, single = template.columns if template else [chosen.image], {*wanted.declared, chosen.label or LABEL}
        found = None if wanted.key else by_caption(rows, images, single)
    elif found := by_image(rows, boxes, wanted.declared, classes, file.path.parent):
        left = {name: kind for name, kind in wanted.declared.items() if name in found.raw or name not in rows.raw}
        states = [*states, *(state_of(one, "") for one in found.files)]
        wanted = ColumnChoice(wanted.image or image_path(boxes, found.raw, file.root), declared=left)
    return replace(listing, states=states, wanted=wanted, rows=found) if found else listing


def _keys(listing: _ReadListing, paths: Texts, place: CellPosition, timed: Sequence[str]) -> tuple[Texts, Times]:
    """The keys of samples, and the times of their videos. place: of paths. Raises BadListingError."""
    chosen, raw = listing.choice[1], listing.rows.raw
    key = None if chosen.key in (None, chosen.image) else raw[str(chosen.key)]
    keys, times = paths if key is None else key.keys(), Times()
    keys = _with_numbers(keys, listing.rows.lines, place)
    if timed:
        starts, ends = (raw[name].times() if name in timed else [None] * len(keys) for name in TIMES)
        times = [*zip(starts, ends, strict=True)]
        parts = [_part(times[i], raw, i) for i in range(len(keys))]
        keys = texts_of([keys.value(i) + part for i, part in enumerate(parts)]) if key is None else keys
    cure = f"take them from another column, {opt.key_column('COLUMN')}"
    _check_unique(keys, listing.rows.lines, place if key is None else key.place, cure)
    return keys, times


def _with_numbers(keys: Texts, lines: Rows, place: CellPosition) -> Texts:
    """Keys where each broken line without one of its own has its number."""
    broken = np.flatnonzero(np.isin(lines, [*place.broken])).tolist()
    if not broken:
        return keys
    texts = [keys.value(i) for i in range(len(keys))]
    taken = {text for text, line in zip(texts, lines.tolist(), strict=True) if line not in place.broken}
    for i in broken:
        texts[i] = place.at(int(lines[i])) if not texts[i] or texts[i] in taken else texts[i]
        taken.add(texts[i])
    return texts_of(texts)


@dataclass(frozen=True, eq=False)
class _Fields:
    """What columns became."""

    kinds: dict[str, FieldKind]
    columns: dict[str, Column]
    labels: Labels | None
    objects: Objects | None
    names: Sequence[str] | None
    """Of classes: given, or exported."""
    problems: list[str]


def _fields(
    listing: _ReadListing,
    timed: Sequence[str],
    classes: Classes | None,
    names: Sequence[str] | None,
    arrays: Sequence[str],
) -> _Fields:
    """timed: the columns that are no fields. arrays: fields that are no images. Raises UsageError."""
    (_, chosen), raw, declared = listing.choice, listing.rows.raw, listing.wanted.declared
    objects = listing.rows.objects
    fields = {name: column for name, column in chosen.fields.items() if name not in timed}
    of_boxes = classes if chosen.label is None else None
    for name in [*fields]:
        kind = declared.get(name)
        if objects is None and (lists := object_lists(name, raw[name], kind, of_boxes, fields)):
            objects, _ = lists, fields.pop(name)
    names = names or _exported_classes(listing.exported, raw.get(chosen.label or ""), fields)
    kinds, columns, labels = _converted(raw, chosen.label, fields, declared, names, listing.file.root)
    left_out = (*listing.rows.left_out, *(objects.left_out if objects else ()))
    problems = [*hints(kinds, declared), *left_out, *chosen.notes, *(labels.notes if labels else ())]
    if objects is not None:
        problems += two_classes(labels, objects.labels)
        of_objects, values = objects.fields()
        kinds, columns = {**kinds, **of_objects}, {**columns, **values}
    follow = [name for name in _followers(kinds, columns) if name not in listing.exported.apart]
    kinds = with_followers(with_arrays(kinds, arrays, listing.where), follow)
    return _Fields(kinds, columns, labels, objects, names, problems)


def _labels(
    listing: _ReadListing, made: _Fields, classes: Classes | None, paths: Texts, place: CellPosition
) -> tuple[Labels | None, Labels | None]:
    """Those of images, and those of boxes if there are no others. classes: as the user names them. Raises
    UsageError."""
    names, of_boxes = made.names, made.objects.labels if made.objects else None
    if made.labels is not None or of_boxes is not None or names is None:
        return made.labels, of_boxes
    if LABEL in made.columns:
        dtype = made.kinds[LABEL].dtype
        raise UsageError(f"{opt.classes}: the labels of {listing.where} are {dtype}, and no classes")
    raw = listing.rows.raw  # without the boxes that are objects, which have no classes here
    columns = {name: one for name, one in made.columns.items() if isinstance(one, RaggedColumn) and one.have_classes}
    if boxes := [(one.classes(), partial(_of_box, raw[name], one)) for name, one in columns.items() if name in raw]:
        return None, labels_of_boxes(classes, names, boxes)
    return _labels_of_folders(paths, names, place, listing.rows.lines), None


@dataclass(frozen=True, eq=False)
class KeyedFields:
    """Fields of samples that are named by their keys."""

    where: str
    """The file, printable."""
    keys: Texts
    kinds: Mapping[str, FieldKind]
    columns: Mapping[str, Column]
    names: tuple[str, ...] | None
    """What the numbers of `label` mean; None where the file has numbers itself."""
    unlabelled: NDArray[np.bool_]
    """(n,): whether a sample's value of `label` is empty; False where there is no such column."""


def read_keyed(
    path: str | os.PathLike[str] | ListingRows,
    key: str | None,
    declared: Mapping[str, DeclaredKind],
    known: Mapping[str, FieldKind],
) -> KeyedFields:
    """Read a CSV, TSV or JSON Lines file without images: one column has the keys of samples that are packed already.

    path: or the rows of a table in memory. key: that column; None takes `key`, or else the first of `PATH_NAMES`.
    declared: what columns hold, where their values do not show it. known: what columns hold unless that is declared.
    Raises as `ListingSource`.
    """
    with ExitStack() as stack:
        if isinstance(path, ListingRows):
            rows, where = path, "the table"
        else:
            where, suffix = plain(os.fsencode(path)), Path(path).suffix.lower()
            if suffix not in NAMED_READERS:
                raise UsageError(f"{where}: fields are read from a file that ends in {', '.join(NAMED_READERS)}")
            stack.enter_context(reading(where))
            opened = stack.enter_context(Path(path).open("rb"))
            stack.enter_context(long_cells())
            rows = NAMED_READERS[suffix](opened, where)
        names = rows.names
        found = key or ("key" if "key" in names else path_column(names))
        if found is None or found not in names:
            raise UsageError(
                f"{where} has no column {found or 'key'!r} with the keys of the samples, only {_listed(names)}: name "
                f"it with {opt.key_column('COLUMN')}"
            )
        chosen = _choose(names, names, ColumnChoice(found, declared=declared), where)
        read = read_columns(rows, where)
    lines, raw = read.lines, read.raw
    if not chosen.fields and chosen.label is None:
        raise UsageError(f"{where} has keys, and no field")
    if not len(lines):
        raise UsageError(f"{where} names no sample: it has the names of its columns only")
    wanted = {name: kind for name, kind in {**known, **declared}.items() if name in names}
    for name, kind in wanted.items():
        if isinstance(kind, str) or kind.is_pixels or kind.boxes or kind.follows:
            raise UsageError(
                f"{opt.fields(name)}: images, masks, boxes and what follows them come with their samples: pack again"
            )
    keys = raw[found].keys()
    _check_unique(keys, lines, raw[found].place, "name each sample once")
    kinds, columns, labels = _converted(raw, chosen.label, chosen.fields, wanted, None, "")
    of_label = raw.get(chosen.label or LABEL)
    values = chain.from_iterable(of_label or ()) if LABEL in kinds else ()
    for faults in (getattr(column, "faults", {}) for column in columns.values()):
        for what in faults.values():
            raise BadListingError(f"{where}: {what}")
    unlabelled = [of_label is not None and of_label.place.empty(value) for value in values] or [False] * len(lines)
    return KeyedFields(where, keys, kinds, columns, None if labels is None else labels.names, np.array(unlabelled))


def _check_unique(keys: Texts, lines: Rows, place: CellPosition, cure: str) -> None:
    """Raise BadListingError for a key that occurs twice."""
    if (repeated := repeated_key(keys)) is not None:
        first, row = repeated
        before = f"{'on' if place.unit == 'line' else 'in'} {place.at(int(lines[first]))}"
        what = f"{keys.value(row)!r} is {before} already, and keys must be unique: {cure}"
        raise place.fault(int(lines[row]), what)


def _chosen(
    names: Sequence[str],
    wanted: ColumnChoice,
    path_by_values: str | None,
    where: str,
    shown: Mapping[str, _Shown] | None = None,
) -> tuple[PathTemplate | None, ChosenColumns]:
    """How paths are made of columns, if they are, and the columns of a listing: that of paths is its image. shown:
    see `_shown_by`, if values were read."""
    path = wanted.image
    template = path_template(path, names) if path is not None and "{" in path and path not in names else None
    for name in [path] if template is None else template.columns:
        if name is not None and name not in names:
            raise UsageError(f"{opt.path_column(plain(name))}: {where} has no such column: it has {_listed(names)}")
    path = path or path_by_values
    if path is None:
        raise UsageError(_no_path(where, names))
    # Such as {image}.jpg: no field can have this name, and the path has its value. {} is not stored, as in a pattern.
    taken = {*(RESERVED.keys() & {*template.columns}), *(names[:1] if "{}" in str(path) else ())} if template else ()
    fields = [name for name in names if name != wanted.label and name not in taken]
    return template, _choose([*names, path] if template else names, fields, replace(wanted, image=path), where, shown)


def _exported_classes(exported: ExportNote, label: RawColumn | None, fields: Container[str]) -> tuple[str, ...] | None:
    """The classes that an export says of the labels, or else of the boxes; None where these are others by now."""
    if exported.classes is None:
        return None
    if label is None:
        return exported.classes if BOXES in fields and BOXES in exported.kinds else None
    return exported.classes if {*chain.from_iterable(label)} - {None, ""} <= {*exported.classes} else None


def _path(rows: ListingRows, root: str) -> tuple[str | None, ListingRows]:
    """The column of paths, and all rows."""
    if (path := path_column(rows.names)) is not None or any(is_path(name, root) for name in rows.names):
        return path, rows  # or there is no line of names
    first = [*islice(each := iter(rows.rows), 1)]
    values = dict(zip(rows.names, first[0][1], strict=True)) if first else {}
    return path_column([*values], lambda name: is_path(values[name], root)), replace(rows, rows=chain(first, each))


def _shown_by(column: RawColumn, root: str) -> _Shown:
    """Whether values of a column may be labels: texts that are no paths, or numbers; and what reads the first ones,
    unless they are measurements."""
    first = column.first()
    is_label = isinstance(first, str | int | float) and not is_path(first, root)
    return is_label, tuple if isinstance(first, float) else lambda: next(iter(column), ())


def is_path(value: Any, root: str) -> bool:
    """Whether a value is the path of a file, or of an image or video that is missing."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    ends = (*EXTENSIONS, *VIDEOS)
    return value.lower().endswith(ends) or os.path.isfile(os.path.join(root, value))  # noqa: PTH113, PTH118


def _choose(
    names: Sequence[str],
    fields: Sequence[str],
    wanted: ColumnChoice,
    where: str,
    shown: Mapping[str, _Shown] | None = None,
) -> ChosenColumns:
    """Choose columns. fields: those that may be any. shown: see `_shown_by`; without it, names alone decide."""
    if "" in names:
        cure = "name it, or leave it out (pandas: to_csv(..., index=False))"
        raise fault(where, 1, names.index("") + 1, "", f"the column has no name: {cure}")
    infos = [
        ColumnInfo(
            name,
            "column of a listing",
            None,
            is_image=name == wanted.image,
            is_label=name in (wanted.label, LABEL) or (shown or {}).get(name, (False,))[0],
            first=(shown or {}).get(name, (False, tuple))[1],
            is_key=name == wanted.key,
        )
        for name in names
    ]
    return choose(infos, replace(wanted, fields={name: name for name in fields}, every=True), where, Habits())


def _made_paths(template: PathTemplate, raw: Mapping[str, RawColumn]) -> Iterator[tuple[int, list[str]]]:
    """The path of each row by a template, a block at a time."""
    columns = [raw[name] for name in template.columns]
    row = 0
    for blocks in zip(*columns, strict=True):
        paths = list[str]()
        for values in zip(*blocks, strict=True):
            try:
                paths.append(template.path(dict(zip(template.columns, values, strict=True))))
            except ValueError as error:
                first = columns[0]
                line = int(first.lines[row + len(paths)])
                if line in first.place.broken:
                    paths.append("")
                    continue
                raise fault(first.place.where, first.place.at(line), 0, "", f"{opt.path_column}: {error}") from error
        yield row, paths
        row += len(paths)


def _converted(
    raw: Mapping[str, RawColumn],
    label: str | None,
    fields: Mapping[str, str],
    declared: Mapping[str, DeclaredKind],
    classes: Sequence[str] | None,
    root: str,
) -> tuple[dict[str, FieldKind], dict[str, Column], Labels | None]:
    """The fields, in the order of their columns. label: the column of labels that are not declared as something else.
    fields: those besides it -> their columns. root: see `PathParser`."""
    kinds, columns, labels = dict[str, FieldKind](), dict[str, Column](), None
    name_of = {column: name for name, column in fields.items()} | ({label: LABEL} if label is not None else {})
    for column, name in ((column, name_of[column]) for column in raw if column in name_of):
        one, kind = raw[column], declared.get(name)
        if isinstance(kind, str) or (kind is not None and kind.is_pixels):
            files = PathParser(one.place, root)
            for row, block in one.numbered():
                files.add(block, one.lines[row : row + len(block)])
            word: PixelWord = kind if isinstance(kind, str) else "mask" if kind.mask else kind.displacement or "image"
            inferred, columns[name] = files.finish(word)
            kinds[name] = inferred if isinstance(kind, str) else kind
        elif name == LABEL:
            kinds[name], columns[name], labels = one.labels(kind, classes)
        else:
            kinds[name], columns[name] = one.converted(kind)
    return kinds, columns, labels


def _part(times: tuple[Fraction | None, Fraction | None], raw: Mapping[str, RawColumn], row: int) -> str:
    """What follows the name of a video for a part of it, "@10-20"; "" for all of it. Raises BadListingError."""
    start, end = times
    if end is not None and end <= (start or 0):
        raise raw["end"].fault(row, f"{float(end):g} is not after the start, {float(start or 0):g}")
    until = "" if end is None else f"{float(end):.15g}"
    return "" if times == (None, None) else f"@{float(start or 0):.15g}-{until}"


def _labels_of_folders(paths: Texts, classes: Sequence[str], place: CellPosition, lines: Rows) -> Labels:
    """The labels of paths, each by a folder in it that is called as a class: as UCF101's testlist01.txt has them.
    Raises BadListingError for a path without one."""
    names = {*classes, *numbered_classes(classes)[0]}
    folders = (paths.value(row).split("/")[-2::-1] for row in range(len(paths)))
    found = [next((one for one in some if one in names), "") for some in folders]
    for row in [k for k, name in enumerate(found) if not name and int(lines[k]) not in place.broken][:1]:
        what = f"{opt.classes} names those of a column 'label', boxes that have classes, or folders"
        raise place.fault(int(lines[row]), f"{paths.value(row)} is in no folder with the name of a class: {what}")
    return number_labels(found, classes, where=place.where)


def _followers(kinds: Mapping[str, FieldKind], columns: Mapping[str, Column]) -> list[str]:
    """The fields that have a value for each box."""
    found = {name: columns[name] for name in lists_of_boxes(kinds)}
    boxes = columns[BOXES] if found else None
    return [
        name
        for name, one in found.items()
        if isinstance(one, RaggedColumn) and isinstance(boxes, RaggedColumn) and np.array_equal(one.ends, boxes.ends)
    ]


def _of_box(raw: RawColumn, boxes: RaggedColumn, i: int, what: str) -> BadListingError:
    """The error for box i of all."""
    return raw.fault(int(np.searchsorted(boxes.ends, i, "right")) - 1, what)


def rows_of(suffix: str, file: BinaryIO, where: str, root: str, declared: Container[str]) -> ListingRows:
    """The rows of a listing whose name ends in `suffix`. Raises UsageError; MissingExtraError for Parquet."""
    if suffix not in READERS and suffix != PLAIN_SUFFIX:
        return NAMED_READERS[suffix](file, where)
    line = file.readline(_LONGEST).decode("utf-8-sig", "replace")
    file.seek(0)
    # Which some tools call .csv.
    if suffix == PLAIN_SUFFIX or (USUAL.get(suffix, ",") not in line and begins_with_file(line, root)):
        return read_plain(file, where, root, declared)
    return READERS[suffix](file, where)


def _no_path(where: str, names: Sequence[str]) -> str:
    if not names:
        return f"{where} is empty: a listing has a path in each line"
    cure = "is the line of names missing? Write one, such as path,label. Or name the column of paths: "
    cure += opt.path_column("COLUMN")
    if (image := next((name for name in names if name in ("image", "img", "images")), None)) is not None:
        cure = f"if {image!r} has the paths, add {opt.path_column(image)}"
    wanted = f"{', '.join(PATH_NAMES[:-1])} or {PATH_NAMES[-1]}"
    return f"{where}, line 1: no column is named {wanted}, only {_listed(names)}: {cure}"


def _listed(names: Sequence[str]) -> str:
    return listed(names, 8) or "none"
