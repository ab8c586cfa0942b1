"""A listing file as a source: one column has the paths, the others become fields. Or one has the keys of samples that
are packed already."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
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
from rawpack_packer.sources.base import Rows, Scanning, given_options, unseen
from rawpack_packer.sources.declared import declared_fields, split_arrays, words_of
from rawpack_packer.sources.exported import ExportNote, exported_beside
from rawpack_packer.sources.fields import RESERVED, DeclaredKind, FieldKind, Fields, PixelWord
from rawpack_packer.sources.folder import EXTENSIONS, is_split
from rawpack_packer.sources.listing.columns import ListedRows, RawColumn, read_columns
from rawpack_packer.sources.listing.lines import (
    NAMED_READERS,
    SUFFIXES,
    BadListingError,
    CellPosition,
    ListingRows,
    PathParser,
    fault,
    folder_of,
    long_cells,
    rows_of,
    state_of,
)
from rawpack_packer.sources.listing.objects import box_columns, by_caption, by_image, image_path, object_lists
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.parquet import listing_files
from rawpack_packer.sources.path_fields import PathTemplate, path_template
from rawpack_packer.sources.table.assemble import assemble
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
from rawpack_packer.sources.table.objects import BOXES, Objects, labels_of_boxes
from rawpack_packer.sources.table.table import Table
from rawpack_packer.sources.video import EXTENSIONS as VIDEOS
from rawpack_packer.sources.video import names_video
from rawpack_packer.text import listed, plain

_NOT_READ: Mapping[str, RawColumn] = {}
TIMES = ("start", "end")
"""Columns of times, where the paths are those of videos."""
RowReader = Callable[[BinaryIO, str, str, Mapping[str, DeclaredKind]], ListingRows]
"""Reads the rows of an open file: `rows_of` without its suffix."""
Times = list[tuple[Fraction | None, Fraction | None]]


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
    counts: Mapping[str, int] = field(default_factory=dict)
    """What is counted while it is read."""


@dataclass(frozen=True, eq=False)
class ListedImages:
    """What a listing names, as a table; its images may be videos."""

    table: Table
    of_videos: bool
    """Whether the paths are those of videos."""
    times: Times
    """Where each video begins and ends, in seconds; None where it has no such time. Empty without columns of times."""


def open_list(
    path: str | os.PathLike[str],
    /,
    *,
    fields: Fields = (),
    path_column: str | None = None,
    label_column: str | None = None,
    key_column: str | None = None,
    images: str | os.PathLike[str] | None = None,
    classes: Classes | None = None,
    videos: bool | None = None,
    progress: Scanning = unseen,
    file: ListingFile | None = None,
) -> ListedImages:
    """The rows of a CSV, TSV or JSON-lines file, of a plain list, or of several files with the same columns.

    fields: what columns hold, where their values do not show it: {"boxes": "xyxy"}, or ["boxes:xyxy"]. path_column: the
    column of paths, or a template with braces, see `path_template`; None takes the first of `PATH_NAMES`. label_column:
    the column that becomes field `label`, if not the one of that name. key_column: the column of keys; None uses the
    paths. images: the folder that relative paths start from; None is the listing's own. classes: of the labels, or of
    the boxes if there is no column of labels. videos: whether the paths are those of videos, so that `start` and `end`
    are times; None decides by the first one. progress: called with the number of files looked at so far. file: the
    listing, if it is not the file, or the files, at `path`.

    Raises BadListingError with the first fault, its line and column.
    """
    typed, arrays = split_arrays(fields)
    names = None if classes is None else classes_of(classes)
    file = file or _listing_at(path, images)
    choice = ColumnChoice(path_column or file.path_column, label_column, key_column, declared=declared_fields(typed))
    listing = _read(file, choice, names, classes)
    parser = listing.paths(progress)
    files, place = parser.files(), parser.place
    of_videos = names_video(files.paths.value(0)) if videos is None else videos
    if of_videos and place.broken:
        raise BadListingError(f"{listing.where}: {next(iter(place.broken.values()))}")
    (_, chosen), raw, declared = listing.choice, listing.rows.raw, listing.wanted.declared
    timed = [name for name in TIMES if of_videos and name in chosen.fields and name not in declared]
    keys, times = _keys(listing, files.paths, place, timed)
    rest = {name: column for name, column in chosen.fields.items() if name not in timed}
    objects = _objects(listing, rest, classes if chosen.label is None else None)
    names = names or _exported_classes(listing.exported, raw.get(chosen.label or ""), rest)
    kinds, columns, labels = _converted(raw, replace(chosen, fields=rest), declared, names, file.root)
    notes, of_boxes = (*listing.rows.left_out, *(labels.notes if labels else ())), None
    if labels is None and names is not None and (objects is None or objects.labels is None):
        if LABEL in kinds or (objects and LABEL in objects.others):
            dtype = kinds[LABEL].dtype if LABEL in kinds else objects and objects.others[LABEL].dtype
            raise UsageError(f"{opt.classes}: the labels of {listing.where} are {dtype}, and no classes")
        of_boxes = _labels_of_boxes(raw, columns, names, classes)
        labels = None if of_boxes else _labels_of_folders(files.paths, names, place, listing.rows.lines)
    options = {"path": path_column, "label_column": label_column, "key_column": key_column, "images": images}
    shown = (*words_of(fields), *(objects.shown if objects else ()))
    table = assemble(
        kind="listing",
        root=listing.where,
        paths=(str(file.path), *map(str, file.others)),
        chosen=chosen,
        images=files,
        fields=kinds,
        columns=columns,
        count=len(keys),
        options=given_options(**options, classes=named_file(classes), field=shown),
        keys=keys,
        counts={**NO_COUNTS, **file.counts},
        notes=notes,
        declared=declared,
        arrays=arrays,
        states=np.concatenate(listing.states),
        labels=labels,
        of_boxes=of_boxes,
        objects=objects,
        follow=[name for name in _followers(columns, objects) if name not in listing.exported.apart],
        lines=listing.rows.lines * (place.unit == "line"),
        exported=[*listing.exported.kinds],
    )
    if table.info.classes is None:  # numbers without names may be measurements
        table.labels = None
    return ListedImages(table, of_videos, times)


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
        return _chosen([*self.rows.raw], self.wanted, self.path, self.where, self.rows.raw, self.file.root)

    def paths(self, progress: Scanning) -> PathParser:
        """Those of the images. Raises BadListingError for one that is not a file."""
        (template, chosen), raw = self.choice, self.rows.raw
        place = raw[template.columns[0] if template else chosen.image].place
        made = replace(place, name=str(opt.path_column), number=0, cells=False)
        paths = PathParser(made if template else place, self.file.root)
        for row, block in _made_paths(template, raw) if template else raw[chosen.image].numbered():
            paths.add(block, self.rows.lines[row : row + len(block)])
            progress(row + len(block))
        return paths


def _listing_at(path: str | os.PathLike[str], images: str | os.PathLike[str] | None) -> ListingFile:
    """The listing that a user names: a file, a pattern of several, or a folder of Parquet files. Raises UsageError."""
    listing, where = Listing.of(path), source_name(path)
    parts = [] if listing.is_file else listing_files(listing)
    names = named_files(path).paths if listing.is_pattern and not parts else [os.fspath(path)]
    files = parts or [Path(name).absolute() for name in names]
    suffixes = {file.suffix.lower() for file in files}
    suffix = min(suffixes - {*SUFFIXES} or suffixes)
    if suffix not in SUFFIXES and len(files) > 1:
        other = plain(os.fsencode(next(file for file in files if file.suffix.lower() == suffix)))
        raise UsageError(f"{where} names {other} too, which is no listing: name listings only")
    if suffix not in SUFFIXES:
        raise UsageError(f"{where}: a listing's name ends in {', '.join(SUFFIXES)}: rename it by what it contains")
    if not parts and sum(is_split(file.stem) for file in files) > 1:
        these = listed([plain(os.fsencode(file.name)) for file in files], 3)
        raise UsageError(f"{where} names several splits, {these}: name one, so that each becomes a store of its own")
    if images is None and len({file.parent for file in files}) > 1:
        has = "has" if parts else "names"
        raise UsageError(
            f"{where} {has} listings in several folders: {opt.images} names the folder that the paths start from"
        )
    rows = partial(_rows_of_all, files) if len(files) > 1 else partial(rows_of, suffix)
    shown = where if parts or len(files) > 1 else ""
    return ListingFile(files[0], folder_of(images, files[0].parent), None, rows, tuple(files[1:]), shown)


def _rows_of_all(
    files: Sequence[Path], first: BinaryIO, where: str, root: str, declared: Mapping[str, DeclaredKind]
) -> ListingRows:
    """The rows of several listings with the same columns, counted over all of them. first: the first file, open."""
    head, broken = rows_of(files[0].suffix.lower(), first, plain(os.fsencode(files[0])), root, declared), {}

    def rows() -> Iterator[tuple[int, Sequence[Any]]]:
        numbers = itertools.count()
        for file, part in parts_of(files, head, root, declared):
            for (line, row), number in zip(part.rows, numbers, strict=False):
                if line in part.broken:
                    broken[number] = f"{plain(os.fsencode(file.name))}, {part.broken[line]}"
                yield number, row

    return replace(head, rows=rows(), unit="row", broken=broken)


def parts_of(
    files: Sequence[Path], head: ListingRows, root: str, declared: Container[str]
) -> Iterator[tuple[Path, ListingRows]]:
    """Each of several listings, with the columns of the first one, in their order. head: the first one. Raises
    UsageError."""
    yield files[0], head
    for file in files[1:]:
        shown = plain(os.fsencode(file))
        with file.open("rb") as opened:
            part = rows_of(file.suffix.lower(), opened, shown, root, declared)
            same_columns = sorted(part.names) == sorted(head.names)
            if not same_columns or (part.cells, part.commas) != (head.cells, head.commas):
                what = "is written otherwise than" if same_columns else "has other columns than"
                raise UsageError(f"{shown} {what} {plain(os.fsencode(files[0].name))}: pack them separately")
            order = [part.names.index(name) for name in head.names]
            yield file, replace(part, rows=((line, [row[k] for k in order]) for line, row in part.rows))


def _read(
    file: ListingFile, wanted: ColumnChoice, names: Sequence[str] | None, classes: Classes | None
) -> _ReadListing:
    """A listing with a row for each image, also where several rows of one differ in texts, or are boxes. wanted: by the
    user. names: of classes. Raises UsageError."""
    where, exported = file.name or plain(os.fsencode(file.path)), exported_beside(file.path)
    with reading(where), file.path.open("rb") as opened, long_cells():
        rows = file.rows(opened, where, file.root, wanted.declared)
        rows = replace(rows, names=exported.names_of(rows.names))
        key = wanted.key or (exported.key if exported.key in rows.names else None)
        declared = exported.declared(rows.names, wanted.declared, (exported.image, wanted.image, wanted.label, key))
        words = repr((sorted(declared.items()), names, *([wanted.image] if wanted.image else [])))
        path, rows = (exported.image, rows) if exported.image in rows.names else _path(rows, file.root)
        wanted = replace(wanted, key=key, declared=declared)
        boxes = None
        if not key:
            boxes = box_columns(rows.names, wanted.image or path_column(rows.names), wanted.label, declared)
        if not boxes:  # what is wrong with names is said before values are read
            _chosen(rows.names, wanted, path, where)
        read = read_columns(rows, where, rejecting=True)
        states = [state_of(opened, words), *(state_of(other, words) for other in file.others)]
    if not len(read.lines):
        raise UsageError(f"{where} lists no image: there is no line after the names of the columns")
    listing = _ReadListing(where, file, exported, states, wanted, path, read)
    if boxes and (images := by_image(read, boxes, declared, classes, file.path.parent)):
        left = {name: kind for name, kind in declared.items() if name in images.raw or name not in read.raw}
        wanted = ColumnChoice(wanted.image or image_path(boxes, images.raw, file.root), declared=left)
        return replace(
            listing, states=[*states, *(state_of(other, "") for other in images.files)], wanted=wanted, rows=images
        )
    if not boxes and not key:
        template, chosen = listing.choice
        names_of = template.columns if template else [chosen.image]
        if captions := by_caption(read, names_of, {*declared, chosen.label or LABEL}):
            return replace(listing, rows=captions)
    return listing


def _keys(listing: _ReadListing, paths: Texts, place: CellPosition, timed: Sequence[str]) -> tuple[Texts, Times]:
    """The keys of samples, and the times of their videos. place: of paths. Raises BadListingError."""
    chosen, raw, lines = listing.choice[1], listing.rows.raw, listing.rows.lines
    key = None if chosen.key in (None, chosen.image) else raw[str(chosen.key)]
    keys, times = _with_numbers(paths if key is None else key.keys(), lines, place), Times()
    if timed:
        starts, ends = (raw[name].times() if name in timed else [None] * len(keys) for name in TIMES)
        times = [*zip(starts, ends, strict=True)]
        parts = [_part(times[i], raw, i) for i in range(len(keys))]
        keys = texts_of([keys.value(i) + part for i, part in enumerate(parts)]) if key is None else keys
    cure = f"take them from another column, {opt.key_column('COLUMN')}"
    _check_unique(keys, lines, place if key is None else key.place, cure)
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


def _objects(listing: _ReadListing, fields: dict[str, str], classes: Classes | None) -> Objects | None:
    """The objects of rows, or in one of the columns, which is taken out of `fields`; None without them. Raises
    UsageError."""
    raw, objects = listing.rows.raw, listing.rows.objects
    for name in [*fields] if objects is None else ():
        objects = object_lists(name, raw[name], listing.wanted.declared.get(name), classes, fields)
        if objects is not None:
            del fields[name]
            break
    return objects


def _labels_of_boxes(
    raw: Mapping[str, RawColumn], columns: Mapping[str, Column], names: Sequence[str], classes: Classes | None
) -> Labels | None:
    """The classes of boxes in columns; None where boxes have none. names: of the classes. classes: as the user names
    them. Raises UsageError."""

    def fault_of(name: str, ends: Rows, i: int, what: str) -> BadListingError:
        return raw[name].fault(int(np.searchsorted(ends, i, "right")) - 1, what)

    have = {name: boxes for name, boxes in columns.items() if isinstance(boxes, RaggedColumn) and boxes.have_classes}
    boxes = [(column.classes(), partial(fault_of, name, column.ends)) for name, column in have.items()]
    return labels_of_boxes(classes, names, boxes) if boxes else None


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
    Raises as `open_list`.
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
        keyed = key or ("key" if "key" in names else path_column(names))
        if keyed is None or keyed not in names:
            raise UsageError(
                f"{where} has no column {keyed or 'key'!r} with the keys of the samples, only {_listed(names)}: name "
                f"it with {opt.key_column('COLUMN')}"
            )
        chosen = _chosen(names, ColumnChoice(keyed, declared=declared), None, where)[1]
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
    keys = raw[keyed].keys()
    _check_unique(keys, lines, raw[keyed].place, "name each sample once")
    kinds, columns, labels = _converted(raw, chosen, wanted, None, "")
    for what in chain.from_iterable(getattr(column, "faults", {}).values() for column in columns.values()):
        raise BadListingError(f"{where}: {what}")
    unlabelled = np.zeros(len(lines), np.bool_)
    if LABEL in kinds and (column := raw.get(chosen.label or LABEL)):
        unlabelled[:] = [column.place.empty(value) for value in chain.from_iterable(column)]
    return KeyedFields(where, keys, kinds, columns, None if labels is None else labels.names, unlabelled)


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
    raw: Mapping[str, RawColumn] = _NOT_READ,
    root: str = "",
) -> tuple[PathTemplate | None, ChosenColumns]:
    """How paths are made of columns, if they are, and the columns of a listing: that of paths is its image. raw, root:
    see `_info`."""
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
    fields = {name: name for name in names if name != wanted.label and name not in taken}
    wanted = replace(wanted, image=path, fields=fields, every=True)
    if "" in names:
        cure = "name it, or leave it out (pandas: to_csv(..., index=False))"
        raise fault(where, 1, names.index("") + 1, "", f"the column has no name: {cure}")
    infos = [_info(name, wanted, raw.get(name), root) for name in ([*names, path] if template else names)]
    return template, choose(infos, wanted, where, Habits())


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


def is_path(value: Any, root: str) -> bool:
    """Whether a value is the path of a file, or of an image or video that is missing."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    ends = (*EXTENSIONS, *VIDEOS)
    return value.lower().endswith(ends) or os.path.isfile(os.path.join(root, value))  # noqa: PTH113, PTH118


def _info(name: str, wanted: ColumnChoice, column: RawColumn | None, root: str) -> ColumnInfo:
    """A column, by its name and its values, if they were read: texts that are not paths, or numbers, may be labels;
    measurements are not. root: the folder that relative paths start from."""
    first = None if column is None else column.first()
    return ColumnInfo(
        name,
        "column of a listing",
        None,
        is_image=name == wanted.image,
        is_label=name in (wanted.label, LABEL) or (isinstance(first, str | int | float) and not is_path(first, root)),
        first=tuple if column is None or isinstance(first, float) else lambda: next(iter(column), ()),
        is_key=name == wanted.key,
    )


def _made_paths(template: PathTemplate, raw: Mapping[str, RawColumn]) -> Iterator[tuple[int, list[str]]]:
    """The path of each row by a template, a block at a time."""
    columns = [raw[name] for name in template.columns]
    row, place = 0, columns[0].place
    for blocks in zip(*columns, strict=True):
        paths = list[str]()
        for line, *values in zip(columns[0].lines[row : row + len(blocks[0])].tolist(), *blocks, strict=True):
            try:
                paths.append(template.path(dict(zip(template.columns, values, strict=True))))
            except ValueError as error:
                if line not in place.broken:
                    raise fault(place.where, place.at(line), 0, "", f"{opt.path_column}: {error}") from error
                paths.append("")
        yield row, paths
        row += len(paths)


def _converted(
    raw: Mapping[str, RawColumn],
    chosen: ChosenColumns,
    declared: Mapping[str, DeclaredKind],
    classes: Sequence[str] | None,
    root: str,
) -> tuple[dict[str, FieldKind], dict[str, Column], Labels | None]:
    """The fields, in the order of their columns. root: see `PathParser`."""
    kinds, columns, labels = dict[str, FieldKind](), dict[str, Column](), None
    name_of = {column: name for name, column in chosen.fields.items()} | {chosen.label: LABEL}
    for column, name in ((raw[name], name_of[name]) for name in raw if name in name_of):
        kind = declared.get(name)
        if isinstance(kind, str) or (kind is not None and kind.is_pixels):
            files = PathParser(column.place, root)
            for row, block in column.numbered():
                files.add(block, column.lines[row : row + len(block)])
            word: PixelWord = kind if isinstance(kind, str) else "mask" if kind.mask else kind.displacement or "image"
            inferred, columns[name] = files.finish(word)
            kinds[name] = inferred if isinstance(kind, str) else kind
        elif name == LABEL:
            kinds[name], columns[name], labels = column.labels(kind, classes)
        else:
            kinds[name], columns[name] = column.converted(kind)
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
    labels = list[str]()
    for row, line in enumerate(lines.tolist()):
        labels.append(next((folder for folder in paths.value(row).split("/")[-2::-1] if folder in names), ""))
        if not labels[-1] and line not in place.broken:
            what = f"{opt.classes} names those of a column 'label', boxes that have classes, or folders"
            raise place.fault(line, f"{paths.value(row)} is in no folder with the name of a class: {what}")
    return number_labels(labels, classes, where=place.where)


def _followers(columns: Mapping[str, Column], objects: Objects | None) -> list[str]:
    """The fields that have a value for each box."""
    boxes = columns.get(BOXES)
    ends = objects.ends if objects else boxes.ends if isinstance(boxes, RaggedColumn) and boxes.boxes else None
    lists = {name: column for name, column in columns.items() if isinstance(column, RaggedColumn) and not column.boxes}
    return [name for name in lists if ends is not None and name != BOXES and np.array_equal(lists[name].ends, ends)]


def _no_path(where: str, names: Sequence[str]) -> str:
    if not names:
        return f"{where} is empty: a listing has a path in each line"
    cure = "is the line of names missing? Write one, such as path,label. Or name the column of paths: "
    cure += f"{opt.path_column('COLUMN')}, or, if it lacks the extension, {opt.path_column(repr('{COLUMN}.jpg'))}"
    if (image := next((name for name in names if name in ("image", "img", "images")), None)) is not None:
        cure = f"if {image!r} has the paths, add {opt.path_column(image)}"
    wanted = f"{', '.join(PATH_NAMES[:-1])} or {PATH_NAMES[-1]}"
    return f"{where}, line 1: no column is named {wanted}, only {_listed(names)}: {cure}"


def _listed(names: Sequence[str]) -> str:
    return listed(names, 8) or "none"
