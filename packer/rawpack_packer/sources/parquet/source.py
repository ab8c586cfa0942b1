"""Rows of Parquet and Arrow files as a source: a worker reads those of its part in batches."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rawpack.errors import DecodeError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import NO_FILE, Column, Rows, Scanning, unseen
from rawpack_packer.sources.exported import OF_TABLES, exported
from rawpack_packer.sources.fields import FieldKind, are_pixels
from rawpack_packer.sources.files import MAX_FILE_BYTES, UNKNOWN, check_path, is_below, parsing, read_file
from rawpack_packer.sources.inferred import first_pixels, missing_value
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.parquet import ALIKE, features_beside, files_of, tables
from rawpack_packer.sources.parquet.boxes import BoxScan
from rawpack_packer.sources.parquet.tables import Leaf, cursor_of, flat, image_entries, name_of, python_value, value_of
from rawpack_packer.sources.table.assemble import assemble
from rawpack_packer.sources.table.choose import (
    KEY,
    NO_COUNTS,
    ChosenColumns,
    Labels,
    choose,
    classes_of,
    labels_of_column,
)
from rawpack_packer.sources.table.columns import Texts, column_of_values, rows_at
from rawpack_packer.sources.table.keys import numbered_since, unique_keys
from rawpack_packer.sources.table.named_files import NamedFiles, files_at, named_files, source_name
from rawpack_packer.sources.table.objects import BOXES, ObjectLists, Objects
from rawpack_packer.sources.table.options import TableOptions
from rawpack_packer.sources.table.table import NO_ROWS, Table
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

States = dict[int, tuple[int, int]]
"""Number of a row -> size and mtime of the file that is its image, next to that of the table."""
_STATUS = ALIKE[0]


@dataclass(frozen=True)
class ArrowRows:
    """Rows of files, in their order, of which each batch is read once for all columns."""

    files: NamedFiles
    starts: tuple[int, ...]
    """The number of the first row of each file, none of which is empty."""
    rows: range | Rows
    leaves: tuple[Leaf, ...]
    """What is read of each row."""

    def at(self, i: int) -> tuple[int, int]:
        """The number of the file that row i is in, and its position there."""
        k = bisect_right(self.starts, int(self.rows[i])) - 1
        return k, int(self.rows[i]) - self.starts[k]

    def batch(self, i: int) -> tuple[pa.RecordBatch, int, str]:
        """A batch, which of its rows is row i, and the row in messages. Raises DecodeError where it cannot be read."""
        k, row = self.at(i)
        batch, at = cursor_of(self.files, k, self.leaves).row(row)
        return batch, at, f"{name_of(self.files, k)}, row {row}"

    def pick(self, at: Rows) -> ArrowRows:
        """The rows at these positions, and the files that hold them."""
        rows, used = rows_at(self.rows, at), range(0)
        if len(rows):
            used = range(bisect_right(self.starts, int(rows[0])) - 1, bisect_right(self.starts, int(rows[-1])))
        return replace(self, files=self.files.pick(used), starts=self.starts[used.start : used.stop], rows=rows)


@dataclass(frozen=True, eq=False)
class ArrowColumn:
    """A column of a field; or of images or masks, which are bytes, or structs of bytes and path."""

    rows: ArrowRows
    name: str
    kind: FieldKind | None = None
    """That of the field; None for images and masks."""
    outside: States = field(default_factory=dict)

    def value(self, i: int, /) -> Any:
        if self.kind is not None:
            batch, at, place = self.rows.batch(i)
            return value_of(batch.column(self.name), at, self.kind, f"{place}, column {plain(self.name)}")
        files, k = self.rows.files, self.rows.at(i)[0]
        if not files.remotes:  # otherwise its name in the spool says which version it is
            check_path(files.paths[k], files.state(k), name_of(files, k))
        batch, at, place = self.rows.batch(i)
        image: Any = python_value(batch.column(self.name), at, place)
        path = None
        if isinstance(image, dict):
            image, path = image.get("bytes"), image.get("path")
        if image is None and isinstance(path, str):
            if not is_below(path):
                what = f"{plain(path)} is not below the folder of {name_of(files, k)}"
                raise DecodeError("unreadable", f"{place}: {what}")
            state = self.outside.get(int(self.rows.rows[i]), UNKNOWN)
            return read_file(os.path.join(os.path.dirname(files.paths[k]), path), path, state)  # noqa: PTH118, PTH120
        if not image:
            raise DecodeError("empty", f"{place}: there is no image")
        if len(image) > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"{place}: the image has {len(image)} bytes: no decoder takes 2 GiB or more")
        return bytes(image)

    def alone(self) -> Column | None:
        """All values of texts or whole numbers, for which no other column is read; None for all else."""
        if self.kind is None or self.kind.shape or self.kind.dtype.startswith("float"):
            return None
        column = replace(self, rows=replace(self.rows, leaves=((self.name, None),)))
        return column_of_values([column.value(i) for i in range(len(self.rows.rows))])

    def pick(self, rows: Rows, /) -> ArrowColumn:
        picked = self.rows.pick(rows)
        outside = {row: self.outside[row] for row in picked.rows if row in self.outside} if self.outside else {}
        return replace(self, rows=picked, outside=outside)

    def states_apart(self) -> tuple[Rows | None, Rows]:
        """The state of each sample's table, or of its own image, if any image is a file; and those of the tables: see
        `Files.states_apart`."""
        files = self.rows.files.states
        if not self.outside and len(files) < len(self.rows.rows):
            return None, files
        of_samples = files[np.searchsorted(self.rows.starts, self.rows.rows, "right") - 1]  # not all rows are samples
        for i, row in enumerate(self.rows.rows) if self.outside else ():
            of_samples[i] = self.outside.get(int(row), of_samples[i])
        return of_samples, files


def open_parquet(
    path: str | os.PathLike[str], /, *, spool: Spool | None = None, progress: Scanning = unseen, **options: Any
) -> Table:
    """The rows of Parquet files, or of Arrow files as `save_to_disk` writes them.

    An image is binary, or a struct of bytes and path; a path without bytes is a file in the folder of the table. The
    columns of labels, keys and numbers that may be missing are read when the source is opened, all others with their
    images. The classes are those of `ClassLabel`, or the sorted names where labels are texts. A label that is missing
    is -1. Rows of failed downloads, as img2dataset writes them, are left out.

    Keys are those of a column `key` of texts, or the paths of the images, where each sample has another one; else
    samples are numbered.

    `info.counts`: unlabelled, empty_classes, columns_left_out, no_file (rows).

    spool: for files behind URLs. progress: called with the number of rows looked at so far. options: of
    `TableOptions`.

    Raises UsageError where the files cannot be read, have no images, or differ in their columns.
    """
    if not os.fspath(path):
        raise UsageError("the source is an empty path: give a Parquet file, or a folder of them")
    listing, table_options = Listing.of(path), TableOptions(**options)
    if listing.is_url or listing.is_pattern:
        files = named_files(path, spool)
        folders = [Listing(name).above for name in files.paths]
    else:
        inside = files_of(listing)
        files, folders = files_at([str(file.path.absolute()) for file in inside]), [file.above for file in inside]
    scan = _Scan(table_options, files, source_name(path))
    scan.look(folders, progress)
    keys, chosen = scan.keys(), scan.columns.chosen
    fields, columns = scan.fields()
    labels = scan.labels()
    objects = scan.finished_objects(labels, fields)
    counts = {**NO_COUNTS, "columns_left_out": len(chosen.left_out)}
    further = [state for name, states in scan.outside.items() if name != chosen.image for state in states.values()]
    return assemble(
        kind="parquet",
        root=scan.root,
        paths=() if files.remotes else tuple(dict.fromkeys([str(listing.path.absolute()), *files.paths])),
        chosen=chosen,
        images=scan.images(chosen.image),
        fields=fields,
        columns=columns,
        count=len(scan.arrow.rows),
        options=table_options.given(objects.shown if objects else ()),
        keys=keys,
        counts=counts if scan.kept is None else {**counts, NO_FILE: scan.rows - len(scan.arrow.rows)},
        notes=scan.notes,
        declared=scan.wanted.declared,
        arrays=table_options.arrays,
        states=np.array(further, np.int64).reshape(-1, 2),
        labels=labels,
        of_boxes=None if labels or (objects and objects.labels) else scan.box_labels(),
        objects=objects,
        follow=[name for name in scan.boxes.lists if name not in scan.apart],
        find_column=partial(_alone, columns),
        exported=scan.exported,
    )


def _alone(columns: Mapping[str, Column], name: str) -> Column | None:
    column = columns.get(name)
    return column.alone() if isinstance(column, ArrowColumn) else None


@dataclass(frozen=True)
class _ReadColumns:
    """What is read of a file, which all files must have alike."""

    chosen: ChosenColumns
    kinds: Mapping[str, FieldKind | None]
    leaves: tuple[Leaf, ...]
    """What is read with a sample."""
    with_paths: tuple[str, ...]
    """The columns of images and masks that have paths, that of images first."""
    classes: tuple[str, ...] | None
    whole_labels: bool
    objects: str | None
    """The column of objects."""
    object_leaves: tuple[Leaf, ...]
    box_classes: tuple[str, ...] | None

    @property
    def present(self) -> list[str]:
        """The columns of numbers that no sample may lack."""
        simple = {name: kind.dtype for name, kind in self.kinds.items() if kind is not None and not kind.shape}
        return [self.chosen.fields[name] for name, dtype in simple.items() if not dtype.startswith(("str", "float"))]


class _Scan:
    """Files one after another, and the columns that are read when a source is opened."""

    columns: _ReadColumns
    """Those of the first file."""
    arrow: ArrowRows
    """All rows that have images."""

    def __init__(self, options: TableOptions, files: NamedFiles, root: str) -> None:
        """Raises UsageError."""
        self.root, self.rows = root, 0
        self.outside: dict[str, States] = {}
        """Those of each column of images."""
        self.wanted, self._files, self._options = options.choice(), files, options
        """What the user says of the columns, and then what the file says."""
        self._classes = None if options.classes is None else classes_of(options.classes)
        self.boxes = BoxScan({}, {})
        self.apart = frozenset[str]()
        """Fields that follow no boxes, as an export says."""
        self.exported: list[str] = []
        """Fields of which an export says what they hold."""
        self.notes: list[str] = []
        """What the summary says about keys."""
        self._starts: dict[int, int] = {}
        """The first row of each file that has any."""
        self._keys: list[pa.Array] = []
        self._labels: list[pa.Array] = []
        self._objects: ObjectLists | None = None
        """Those of all rows."""
        self.kept: list[Rows] | None = None
        """The rows that have images, where a column says so; None for all."""

    def look(self, folders: Sequence[Listing], progress: Scanning) -> None:
        """Read what has to be known of all rows. folders: that of each file. Raises UsageError."""
        with self._files.looked_through():
            for k, folder in enumerate(folders):
                path, where = self._files.paths[k], self._files.name(k)
                with self._files.opened(k, keep=False), parsing(where, path, Path(path).suffix[1:]):
                    table = tables.open_table(path)
                    rows = table.ends[-1] if len(table.ends) else 0
                    try:
                        features = features_beside(Path(path)) or tables.features_in(table.schema, where)
                        self._choose(table, features, where)
                    except UsageError:
                        if rows:
                            raise
                        raise UsageError(f"{where} has no rows") from None  # so that columns may have no types
                    self._read(table, rows, Path(path), folder)
                if rows:
                    self._starts[k] = self.rows
                self.rows += rows
                progress(self.rows)
        with_images = range(self.rows) if self.kept is None else np.concatenate([NO_ROWS, *self.kept])
        if not len(with_images):
            raise UsageError(f"{self.root} has no rows{' with an image' if self.rows else ''}")
        files, starts = self._files.pick([*self._starts]), tuple(self._starts.values())
        self.arrow = ArrowRows(files, starts, with_images, self.columns.leaves)

    def _choose(self, table: tables.TableFile, features: tables.Features, where: str) -> None:
        """Choose the columns of the first file, which all others must have. Raises UsageError."""
        is_first, schema = not hasattr(self, "columns"), table.schema
        if is_first:
            note = exported((schema.metadata or {}).get(OF_TABLES), where)
            names = schema.names if self.wanted.fields is None else [*self.wanted.fields]
            roles = (self.wanted.image, self.wanted.label, self.wanted.key)
            self.wanted = replace(self.wanted, declared=note.declared(names, self.wanted.declared, roles))
            self.apart, self.exported = note.apart, [*note.kinds]
            if self._classes is None and BOXES in note.kinds:
                self._classes = note.classes
        every = tables.column_infos(schema, features, self.wanted.declared, where, table if is_first else None)
        infos = {info.name: info for info in every}
        chosen, objects = choose(every, self.wanted, where, tables.habits()), tables.objects_column(schema)
        # What is chosen can be a field.
        kinds = {name: cast(FieldKind | None, infos[column].field) for name, column in chosen.fields.items()}
        if not any(chosen.fields[name] == objects for name, kind in kinds.items() if kind is not None and kind.boxes):
            objects = None
        label = None if chosen.label is None else infos[chosen.label]
        further = [column for name, column in chosen.fields.items() if are_pixels(self.wanted.declared.get(name))]
        lists, _, unread = ([], [], []) if objects is None else tables.object_leaves(schema, objects)
        columns = _ReadColumns(
            chosen,
            kinds,
            (
                *((chosen.image, part) for part in image_entries(schema.field(chosen.image).type) or (None,)),
                *((column, None) for column in chosen.fields.values() if column != objects),
            ),
            tuple(name for name in (chosen.image, *further) if "path" in image_entries(schema.field(name).type)),
            None if label is None else label.classes,
            label is not None and label.is_whole,
            objects,
            tuple(lists),
            None if objects is None else tables.object_classes(features.get(objects), where),
        )
        if is_first:
            self.columns = columns
            self.boxes = BoxScan(kinds, {name: column for name, column in chosen.fields.items() if column != objects})
            if objects is not None:
                self._objects = ObjectLists(objects, where, lambda row: f"row {row}", unread)
        elif columns != self.columns:
            before = self.columns.kinds
            names = [name for name in {**before, **kinds} if before.get(name) != kinds.get(name)]
            what = f"columns {listed(names, 5)}" if names else "its image or label"
            raise UsageError(
                f"{where} has other columns than {name_of(self._files, 0)} ({what}): write all files with the same "
                f"types, or choose common ones by {opt.columns}"
            )

    def _read(self, table: tables.TableFile, count: int, path: Path, folder: Listing) -> None:
        """Read what has to be known of the rows of a file, which is in a folder. count: how many its metadata has."""
        columns, chosen = self.columns, self.columns.chosen
        names = (chosen.key, chosen.label, *columns.present, *self.boxes.columns)
        leaves: list[Leaf] = [(name, None) for name in names if name is not None]
        leaves += [*((column, "path") for column in columns.with_paths), *columns.object_leaves]
        if not self.rows and not columns.with_paths and {*table.schema.names} >= {*ALIKE, KEY}:
            self.kept = []
        leaves += [] if self.kept is None else [(_STATUS, None)]
        beside = {os.fsencode(name) for name, _ in folder.all_names()} if columns.with_paths else set()
        files: dict[str, States] = {column: {} for column in columns.with_paths}
        row = 0
        for all_rows in table.read(leaves) if leaves else ():
            batch = all_rows
            rows = self.rows + row + np.arange(all_rows.num_rows)
            if self.kept is not None:
                done = pc.equal(batch.column(_STATUS), "success")
                rows, batch = rows[np.flatnonzero(done)], batch.filter(done)
                self.kept.append(rows)
            self.boxes.add(batch, rows)
            for name in columns.present:
                if batch.column(name).null_count:
                    first = row + batch.column(name).is_null().index(True).as_py()
                    what, cure = missing_value(name, whole=not pa.types.is_boolean(batch.column(name).type))
                    raise UsageError(
                        f"{plain(os.fsencode(path))}: {what} in row {first}: {cure}, or leave it out by {opt.columns}"
                    )
            if self._objects is not None:
                self._objects.add(batch.column(columns.objects).to_pylist())
            if chosen.label is not None:
                kind = pa.int64() if columns.whole_labels else pa.large_string()
                self._labels.append(flat(batch.column(chosen.label)).cast(kind))
            if chosen.key is not None:
                self._keys.append(_bytes(flat(batch.column(chosen.key))))
            for column, states in files.items():
                paths = _bytes(flat(pc.struct_field(batch.column(column), "path")))
                if chosen.key is None and column == chosen.image:
                    self._keys.append(paths)
                for i, name in enumerate(paths.to_pylist(), row):
                    if name and os.path.normpath(name).split(b"/")[0] in beside:
                        states[i] = _state_beside(path, name)
            row += all_rows.num_rows
        if leaves and row != count:
            raise pa.ArrowInvalid(f"it has {row} rows, and its metadata says {count}")
        for column, states in files.items():
            row = 0
            for block in range(len(table.ends)) if states else ():  # it is rare that images have paths of files here
                for batch in table.read([(column, "bytes")], block):
                    missing = pc.is_null(pc.struct_field(batch.column(column), "bytes")).to_pylist()
                    rows_of_files = (i for i, is_missing in enumerate(missing, row) if is_missing and i in states)
                    self.outside.setdefault(column, {}).update((self.rows + i, states[i]) for i in rows_of_files)
                    row += batch.num_rows

    # ------------------------------------------------------------------------------------------ what was read

    def keys(self) -> Texts | None:
        """The keys; None where samples are numbered. Raises UsageError where --key-column names one without keys."""
        if not self._keys:
            return None
        by_path, named = self.columns.chosen.key is None, self.wanted.key is not None
        called = "paths" if by_path else f"column {KEY!r}"
        try:
            values = pa.chunked_array(self._keys).cast(pa.large_string()).to_pylist()
        except pa.ArrowInvalid as error:
            if not named:
                self.notes.append(numbered_since("one is not UTF-8", called))
                return None
            raise UsageError(f"{opt.key_column}: the column of {self.root} has a value that is not UTF-8") from error
        outside = (row for row, value in enumerate(values) if not is_below(value or ""))
        if by_path and (wrong := next(outside, None)) is not None:
            if any(values):
                what = f"{plain(repr(values[wrong]))}, which is not below its folder" if values[wrong] else "no path"
                self.notes.append(numbered_since(f"row {wrong} has {what}"))
            return None
        return unique_keys([value or "" for value in values], self.root, named, self.notes, called)

    def images(self, column: str) -> ArrowColumn:
        """The images or masks of a column."""
        return ArrowColumn(self.arrow, column, None, self.outside.get(column, {}))

    def fields(self) -> tuple[dict[str, FieldKind], dict[str, Column]]:
        """The fields other than those of objects. Raises UsageError."""
        kinds, columns = dict[str, FieldKind](), dict[str, Column]()
        for name, column in self.columns.chosen.fields.items():
            kind, word = self.columns.kinds[name], self.wanted.declared.get(name)
            if column == self.columns.objects:
                continue
            if kind is not None and not kind.is_pixels:
                kinds[name], columns[name] = kind, ArrowColumn(self.arrow, column, kind)
                continue
            columns[name] = files = self.images(column)
            shown = word if isinstance(word, str) else "mask"
            kinds[name] = kind or first_pixels(shown, name, files.value, range(len(self.arrow.rows)))
        return kinds, columns

    def labels(self) -> Labels | None:
        """The label of each sample. Raises UsageError."""
        classes = self._options.classes
        if self.columns.chosen.label is None:
            no_boxes = self._objects is None and not self.boxes.have_classes
            return labels_of_column(None, classes if no_boxes else None, self.root)
        values = pa.chunked_array(self._labels)
        numbers = values.fill_null(-1).to_numpy() if self.columns.whole_labels else values.to_pylist()
        return labels_of_column(numbers, classes, self.root, self.columns.classes)

    def finished_objects(self, labels: Labels | None, fields: Mapping[str, FieldKind]) -> Objects | None:
        """The objects, if there is a column of them. labels, fields: those of images. Raises UsageError."""
        if self._objects is None:
            return None
        kind = self.wanted.declared.get(str(self.columns.objects))
        form = kind.boxes if isinstance(kind, FieldKind) else None
        return self._objects.finish(form, None if labels else self._options.classes, self.columns.box_classes, fields)

    def box_labels(self) -> Labels | None:
        """The classes of boxes, if they have some and the user or the file names them. Raises UsageError."""
        if self._classes is None or not self.boxes.have_classes:
            return None
        return self.boxes.labels(self._options.classes, self._classes, self.root)


def first_classes(path: str | os.PathLike[str], **options: Any) -> tuple[Sequence[Any], bool]:
    """The classes in the first rows of Parquet files, and whether these are all. options: of `TableOptions`. Raises
    UsageError."""
    file, *more = files_of(Listing.of(path))
    where, wanted = plain(os.fspath(file)), TableOptions(**options).choice()
    with parsing(where, os.fspath(file), file.path.suffix[1:]):
        table = tables.open_table(os.fspath(file))
        features = features_beside(file.path) or tables.features_in(table.schema, where)
        infos = {info.name: info for info in tables.column_infos(table.schema, features, wanted.declared, where, table)}
        label = infos.get(choose([*infos.values()], wanted, where, tables.habits()).label or "")
        values = [] if label is None else label.classes or [*label.first()]
    whole = not more and (table.ends or [0])[-1] <= len(values)
    texts = {value for value in values if value} if all(isinstance(value, str | None) for value in values) else {}
    return [*texts], whole or (label is not None and label.classes is not None)


def _state_beside(table: Path, path: bytes) -> tuple[int, int]:
    """The state of an image that is a file in the folder of a table."""
    text = path.decode("utf-8", "replace")
    with suppress(OSError, ValueError):
        if is_below(text):
            state = (table.parent / text).stat()
            return state.st_size, state.st_mtime_ns
    return UNKNOWN


def _bytes(column: pa.Array) -> pa.Array:
    """Texts, or numbers as they are written, as UTF-8 that is not checked."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    elif not tables.is_text(column.type):
        raise UsageError(f"keys are texts or whole numbers, not {column.type}: name another column by {opt.key_column}")
    return column.cast(pa.large_binary())
