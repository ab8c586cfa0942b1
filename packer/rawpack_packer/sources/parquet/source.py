"""Rows of Parquet and Arrow files as a source: a worker reads those of its part in batches."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack_packer.options import opt
from rawpack_packer.sources.base import NO_FILE, Column, Rows, Scanning, SourceInfo, unseen
from rawpack_packer.sources.declared import with_arrays
from rawpack_packer.sources.exported import OF_TABLES, exported
from rawpack_packer.sources.fields import FieldKind, Value, are_pixels
from rawpack_packer.sources.files import MAX_FILE_BYTES, UNKNOWN, check_path, is_below, parsing, read_file
from rawpack_packer.sources.inferred import first_pixels, hints, missing_value
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.parquet import features_beside, files_of
from rawpack_packer.sources.parquet.boxes import BoxScan, flat
from rawpack_packer.sources.parquet.tables import (
    Features,
    Leaf,
    Table,
    column_infos,
    cursor_of,
    features_in,
    habits,
    image_entries,
    is_text,
    name_of,
    object_classes,
    object_leaves,
    objects_column,
    open_table,
    python_value,
    value_of,
)
from rawpack_packer.sources.table.assemble import TableSource
from rawpack_packer.sources.table.choose import (
    KEY,
    NO_COUNTS,
    ChosenColumns,
    Classes,
    Labels,
    choose,
    classes_from_0,
    classes_of,
    labels_of_column,
)
from rawpack_packer.sources.table.columns import RowNumbers, Texts, column_of_values, rows_at
from rawpack_packer.sources.table.keys import numbered_since, unique_keys
from rawpack_packer.sources.table.named_files import NamedFiles, files_at, named_files, source_name
from rawpack_packer.sources.table.objects import BOXES, ObjectLists, two_classes, with_followers
from rawpack_packer.sources.table.options import TableOptions
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    from rawpack_packer.sources.table.remote_files import Spool

_OF_DOWNLOADS = ("status", "error_message")
"""Columns by which img2dataset says whether a row has an image."""


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
class ArrowImages:
    """A column of images or masks: bytes, or structs of bytes and path."""

    rows: ArrowRows
    name: str
    outside: Mapping[int, tuple[int, int]]
    """Number of a row -> size and mtime of the file that is its image, next to that of the table."""

    def value(self, i: int, /) -> bytes:
        files, k = self.rows.files, self.rows.at(i)[0]
        if not files.remotes:  # otherwise its name in the spool says which version it is
            check_path(files.paths[k], files.state(k), name_of(files, k))
        batch, at, place = self.rows.batch(i)
        found = python_value(batch.column(self.name), at, place)
        if isinstance(found, dict):
            image, path = found.get("bytes"), found.get("path")
            if image is None and isinstance(path, str):
                if not is_below(path):
                    raise DecodeError(
                        "unreadable", f"{place}: {plain(path)} is not below the folder of {name_of(files, k)}"
                    )
                state = self.outside.get(int(self.rows.rows[i]), UNKNOWN)
                return read_file(os.path.join(os.path.dirname(files.paths[k]), path), path, state)  # noqa: PTH118, PTH120
        else:
            image = found
        if not image:
            raise DecodeError("empty", f"{place}: there is no image")
        if len(image) > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"{place}: the image has {len(image)} bytes: no decoder takes 2 GiB or more")
        return bytes(image)

    def pick(self, rows: Rows, /) -> ArrowImages:
        found = self.rows.pick(rows)
        outside = {row: self.outside[row] for row in found.rows if row in self.outside} if self.outside else {}
        return ArrowImages(found, self.name, outside)

    def image_file(self, i: int, /) -> None: ...  # only what is before an image says where it is

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


@dataclass(frozen=True, eq=False)
class ArrowColumn:
    """A column that becomes a field, other than image files."""

    rows: ArrowRows
    name: str
    kind: FieldKind

    def value(self, i: int, /) -> Value:
        batch, at, place = self.rows.batch(i)
        return value_of(batch.column(self.name), at, self.kind, f"{place}, column {plain(self.name)}")

    def pick(self, rows: Rows, /) -> ArrowColumn:
        return replace(self, rows=self.rows.pick(rows))


class ParquetSource(TableSource):
    """Rows of Parquet files, or of Arrow files as `save_to_disk` writes them, as a `Source`.

    An image is binary, or a struct of bytes and path; a path without bytes is a file in the folder of the table. The
    columns of labels, keys and numbers that may be missing are read when the source is opened, all others with their
    images. The classes are those of `ClassLabel`, or the sorted names where labels are texts. A label that is missing
    is -1. Rows of failed downloads, as img2dataset writes them, are left out.

    Keys are those of a column `key` of texts, or the paths of the images, where each sample has another one; else
    samples are numbered.

    `info.counts`: unlabelled, empty_classes, columns_left_out, no_file (rows).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        spool: Spool | None = None,
        progress: Scanning = unseen,
        **options: Any,
    ) -> None:
        """spool: for files behind URLs. progress: called with the number of rows looked at so far. options: of
        `TableOptions`.

        Raises UsageError where the files cannot be read, have no images, or differ in their columns.
        """
        if not os.fspath(path):
            raise UsageError("the source is an empty path: give a Parquet file, or a folder of them")
        root, far, listing = source_name(path), is_url(path), Listing.of(path)
        options_of_table = TableOptions(**options)
        classes = options_of_table.classes
        named = named_files(path, spool) if far or listing.is_pattern else None
        files = [] if far else [*map(Listing, named.paths)] if named else files_of(listing)
        paths = [str(file.path.absolute()) for file in files]
        scan = _Scan(options_of_table, named or files_at(paths), files, progress)
        if not scan.count:
            raise UsageError(f"{root} has no rows{' with an image' if scan.rows else ''}")
        columns, chosen, declared = scan.columns, scan.columns.chosen, scan.wanted.declared
        keys, rows = scan.keys(root), scan.arrow_rows()
        kinds, fields_of = scan.fields(rows)
        problems = [*scan.notes, *chosen.left_out, *chosen.notes, *hints(kinds, declared)]
        labels = scan.labels_of(root, classes)
        of_boxes, shown = None, tuple[str, ...]()
        if (lists := scan.objects) is not None:
            kind = declared.get(str(columns.objects))
            form = kind.boxes if isinstance(kind, FieldKind) else None
            objects = lists.finish(form, None if labels else classes, columns.box_classes, kinds)
            (of_objects, values), shown = objects.fields(), objects.shown
            kinds, fields_of, of_boxes = {**kinds, **of_objects}, {**fields_of, **values}, objects.labels
            problems += [*objects.left_out, *two_classes(labels, of_boxes)]
        follow = [name for name in scan.boxes.lists if name not in scan.apart]
        kinds = with_followers(with_arrays(kinds, options_of_table.arrays, root), follow)
        if labels is None and of_boxes is None and scan.classes is not None and scan.boxes.have_classes:
            of_boxes = scan.boxes.labels(scan.classes if classes is None else classes_from_0(classes), root)
        info = SourceInfo(
            kind="parquet",
            root=root,
            paths=() if far else tuple(dict.fromkeys([str(listing.path.absolute()), *paths])),
            fields=kinds,
            numbered=keys is None,
            options=options_of_table.given(shown),
            counts={**NO_COUNTS, "columns_left_out": len(chosen.left_out)}
            | ({} if scan.kept is None else {NO_FILE: scan.rows - scan.count}),
            problems=tuple(problems),
        )
        images = ArrowImages(rows, chosen.image, scan.outside.pop(chosen.image, {}))
        more = [one for found in scan.outside.values() for one in found.values()]
        states = np.array(more, np.int64).reshape(-1, 2)
        numbers = RowNumbers(range(scan.count))
        super().__init__(info, keys or numbers, images, fields_of, states, labels=labels, of_boxes=of_boxes)

    def column(self, name: str) -> Column | None:
        # One of texts or whole numbers is read by itself.
        found = self.rows.columns.get(name)
        if not isinstance(found, ArrowColumn) or found.kind.shape or found.kind.dtype.startswith("float"):
            return super().column(name)
        alone = replace(found, rows=replace(found.rows, leaves=((found.name, None),)))
        return column_of_values([alone.value(i) for i in range(len(self))])


@dataclass(frozen=True)
class _ReadColumns:
    """What is read of a file, which all files must have alike."""

    chosen: ChosenColumns
    kinds: Mapping[str, FieldKind | None]
    image_has: tuple[str, ...]
    further: tuple[str, ...]
    """The columns of further images and masks that have paths."""
    classes: tuple[str, ...] | None
    whole_labels: bool
    objects: str | None
    """The column of objects."""
    object_leaves: tuple[Leaf, ...]
    box_classes: tuple[str, ...] | None


class _Scan:
    """Files one after another, and the columns that are read when a source is opened."""

    columns: _ReadColumns
    """Of the first file."""

    def __init__(
        self, options: TableOptions, files: NamedFiles, listings: Sequence[Listing], progress: Scanning
    ) -> None:
        """listings: of the files, unless they are behind URLs. Raises UsageError."""
        self.rows = 0
        self.outside: dict[str, dict[int, tuple[int, int]]] = {}
        """Column of images -> see `ArrowImages.outside`."""
        self.wanted, self._files = options.choice(), files
        """What the user says of the columns, and then what the file says."""
        self.classes = None if options.classes is None else classes_of(options.classes)
        self.boxes = BoxScan({}, {})
        self.apart = frozenset[str]()
        """Fields that follow no boxes, as an export says."""
        self.notes: list[str] = []
        """What the summary says about keys."""
        self._starts: dict[int, int] = {}
        """The first row of each file that has any."""
        self._keys: list[pa.Array] = []
        self._labels: list[pa.Array] = []
        self.objects: ObjectLists | None = None
        """Those of all rows."""
        self.kept: list[Rows] | None = None
        """The rows that have images, where a column says so; None for all."""
        with files.looked_through():
            for k in range(len(files)):
                path, where = files.paths[k], files.name(k)
                with files.opened(k, keep=False), parsing(where, path, Path(path).suffix[1:]):
                    self._add(k, Path(path), where, listings[k].above if listings else Listing(path).above)
                progress(self.rows)

    def _add(self, k: int, path: Path, where: str, folder: Listing) -> None:
        """Read what has to be known of all rows of file k, which is in a folder."""
        table = open_table(str(path))
        rows = table.ends[-1] if len(table.ends) else 0
        try:
            self._choose(table, features_beside(path) or features_in(table.schema, where), where)
        except UsageError:
            if rows:
                raise
            raise UsageError(f"{where} has no rows") from None  # so that columns may have no types
        self._read(table, path, folder)
        if rows:
            self._starts[k] = self.rows
        self.rows += rows

    def keys(self, root: str) -> Texts | None:
        """The keys; None where samples are numbered. Raises UsageError where --key-column names one without keys."""
        if not self._keys:
            return None
        named = self.wanted.key is not None
        by_path = self.columns.chosen.key is None
        called = "paths" if by_path else f"column {KEY!r}"
        try:
            values = pa.chunked_array(self._keys).cast(pa.large_string()).to_pylist()
        except pa.ArrowInvalid as error:
            if not named:
                self.notes.append(numbered_since("one is not UTF-8", called))
                return None
            raise UsageError(f"{opt.key_column}: the column of {root} has a value that is not UTF-8") from error
        outside = (row for row, value in enumerate(values) if not is_below(value or ""))
        if by_path and (wrong := next(outside, None)) is not None:
            if any(values):
                what = f"{plain(repr(values[wrong]))}, which is not below its folder" if values[wrong] else "no path"
                self.notes.append(numbered_since(f"row {wrong} has {what}"))
            return None
        return unique_keys([value or "" for value in values], root, named, self.notes, called)

    def _choose(self, table: Table, features: Features, where: str) -> None:
        """Choose the columns of the first file, which all others must have. Raises UsageError."""
        is_first, schema = not hasattr(self, "columns"), table.schema
        if is_first:
            said = exported((schema.metadata or {}).get(OF_TABLES), where)
            names = schema.names if self.wanted.fields is None else [*self.wanted.fields]
            roles = (self.wanted.image, self.wanted.label, self.wanted.key)
            self.wanted = replace(self.wanted, declared=said.declared(names, self.wanted.declared, roles))
            self.apart = said.apart
            if self.classes is None and BOXES in said.kinds:
                self.classes = said.classes
        infos = column_infos(schema, features, self.wanted.declared, where, table if is_first else None)
        chosen, by_name = choose(infos, self.wanted, where, habits()), {one.name: one for one in infos}
        kinds = {name: by_name[column].field for name, column in chosen.fields.items()}
        label = None if chosen.label is None else by_name[chosen.label]
        as_boxes = [name for name, kind in kinds.items() if isinstance(kind, FieldKind) and kind.boxes]
        objects = next((one for name in as_boxes if (one := chosen.fields[name]) == objects_column(schema)), None)
        columns = _ReadColumns(
            chosen,
            {name: kind for name, kind in kinds.items() if not isinstance(kind, str)},
            image_entries(schema, chosen.image),
            tuple(
                column
                for name, column in chosen.fields.items()
                if are_pixels(self.wanted.declared.get(name)) and "path" in image_entries(schema, column)
            ),
            None if label is None else label.classes,
            label is not None and label.is_whole,
            objects,
            () if objects is None else tuple(object_leaves(schema, objects)[0]),
            None if objects is None else object_classes(features.get(objects), where),
        )
        if is_first:
            self.columns = columns
            fields = {name: column for name, column in chosen.fields.items() if column != objects}
            self.boxes = BoxScan(columns.kinds, fields)
            if objects is not None:
                self.objects = ObjectLists(objects, where, lambda row: f"row {row}", object_leaves(schema, objects)[2])
        elif columns != self.columns:
            before, here = self.columns.kinds, columns.kinds
            names = [name for name in {**before, **here} if before.get(name) != here.get(name)]
            what = f"columns {listed(names, 5)}" if names else "its image or label"
            raise UsageError(
                f"{where} has other columns than {name_of(self._files, 0)} ({what}): write all files with the same "
                f"types, or choose common ones by {opt.columns}"
            )

    def arrow_rows(self) -> ArrowRows:
        """All rows that have images."""
        rows = range(self.rows) if self.kept is None else np.concatenate(self.kept)
        found = self.columns
        images: tuple[Leaf, ...] = tuple((found.chosen.image, child) for child in found.image_has or (None,))
        leaves = (*images, *((column, None) for column in found.chosen.fields.values() if column != found.objects))
        return ArrowRows(self._files.pick([*self._starts]), tuple(self._starts.values()), rows, leaves)

    def fields(self, rows: ArrowRows) -> tuple[dict[str, FieldKind], dict[str, Column]]:
        """The fields other than those of objects. Raises UsageError."""
        kinds, columns = dict[str, FieldKind](), dict[str, Column]()
        for name, column in self.columns.chosen.fields.items():
            kind, word = self.columns.kinds.get(name), self.wanted.declared.get(name)
            if column == self.columns.objects:
                continue
            if kind is not None and not kind.is_pixels:
                kinds[name], columns[name] = kind, ArrowColumn(rows, column, kind)
                continue
            columns[name] = files = ArrowImages(rows, column, self.outside.get(column, {}))
            kinds[name] = kind or first_pixels(
                word if isinstance(word, str) else "mask", name, files.value, range(self.count)
            )
        return kinds, columns

    @property
    def count(self) -> int:
        """How many rows have images."""
        return self.rows if self.kept is None else sum(map(len, self.kept))

    def labels_of(self, root: str, classes: Classes | None) -> Labels | None:
        """The label of each sample. Raises UsageError."""
        if self.columns.chosen.label is None:
            no_boxes = self.objects is None and not self.boxes.have_classes
            return labels_of_column(None, classes if no_boxes else None, root)
        values = pa.chunked_array(self._labels)
        numbers = values.fill_null(-1).to_numpy() if self.columns.whole_labels else values.to_pylist()
        return labels_of_column(numbers, classes, root, self.columns.classes)

    def _read(self, table: Table, path: Path, folder: Listing) -> None:
        found, chosen = self.columns, self.columns.chosen
        whole = [
            chosen.fields[name]
            for name, kind in found.kinds.items()
            if kind is not None and not kind.shape and kind.dtype != "str" and not kind.dtype.startswith("float")
        ]
        leaves: list[Leaf] = [(name, None) for name in (chosen.key, chosen.label, *whole) if name is not None]
        has_path = "path" in found.image_has
        if has_path:
            leaves.append((chosen.image, "path"))
        leaves += [*((column, "path") for column in found.further), *found.object_leaves]
        leaves += [(column, None) for column in self.boxes.columns]
        files: dict[str, dict[int, tuple[int, int]]] = {one: {} for one in (*[chosen.image] * has_path, *found.further)}
        beside = {os.fsencode(name) for name, _ in folder.all_names()} if files else set()
        if not self.rows and not files and {*_OF_DOWNLOADS, KEY} <= {*table.schema.names}:
            self.kept = []
        leaves += [] if self.kept is None else [(_OF_DOWNLOADS[0], None)]
        row = 0
        for all_rows in table.scan(leaves) if leaves else ():
            batch = all_rows
            rows = self.rows + row + np.arange(all_rows.num_rows)
            if self.kept is not None:
                done = pc.equal(batch.column(_OF_DOWNLOADS[0]), "success")
                rows, batch = rows[np.flatnonzero(done)], batch.filter(done)
                self.kept.append(rows)
            self.boxes.add(batch, rows)
            for name in whole:
                if batch.column(name).null_count:
                    first = row + batch.column(name).is_null().index(True).as_py()
                    what, cure = missing_value(name, whole=not pa.types.is_boolean(batch.column(name).type))
                    raise UsageError(
                        f"{plain(os.fsencode(path))}: {what} in row {first}: {cure}, or leave it out by {opt.columns}"
                    )
            if self.objects is not None:
                self.objects.add(batch.column(found.objects).to_pylist())
            if chosen.label is not None:
                kind = pa.int64() if found.whole_labels else pa.large_string()
                self._labels.append(flat(batch.column(chosen.label)).cast(kind))
            if chosen.key is not None:
                self._keys.append(_bytes(flat(batch.column(chosen.key))))
            for column, there in files.items():
                paths = _bytes(flat(pc.struct_field(batch.column(column), "path")))
                if chosen.key is None and column == chosen.image:
                    self._keys.append(paths)
                for i, one in enumerate(paths.to_pylist(), row):
                    if one and os.path.normpath(one).split(b"/")[0] in beside:
                        there[i] = _state_beside(path, one)
            row += all_rows.num_rows
        ends = table.ends[-1] if len(table.ends) else 0
        if leaves and row != ends:
            raise pa.ArrowInvalid(f"it has {row} rows, and its metadata says {ends}")
        for column, there in files.items():
            row = 0
            for block in range(len(table.ends)) if there else ():  # it is rare that images have paths of files here
                for batch in table.read([(column, "bytes")], block):
                    missing = pc.is_null(pc.struct_field(batch.column(column), "bytes"))
                    beside_it = (i for i, one in enumerate(missing.to_pylist(), row) if one and i in there)
                    self.outside.setdefault(column, {}).update((self.rows + i, there[i]) for i in beside_it)
                    row += batch.num_rows


def first_classes(path: str | os.PathLike[str], **options: Any) -> tuple[Sequence[Any], bool]:
    """The classes in the first rows of Parquet files, and whether these are all. options: of `TableOptions`. Raises
    UsageError."""
    file, *more = files_of(Listing.of(path))
    where, wanted = plain(os.fspath(file)), TableOptions(**options).choice()
    with parsing(where, os.fspath(file), file.path.suffix[1:]):
        table = open_table(os.fspath(file))
        features = features_beside(file.path) or features_in(table.schema, where)
        infos = {info.name: info for info in column_infos(table.schema, features, wanted.declared, where, table)}
        label = infos.get(choose([*infos.values()], wanted, where, habits()).label or "")
        values = [] if label is None else label.classes or [*label.first()]
    whole = not more and (table.ends or [0])[-1] <= len(values)
    texts = {value for value in values if value} if all(isinstance(value, str | None) for value in values) else {}
    return [*texts], whole or (label is not None and label.classes is not None)


def _state_beside(table: Path, path: bytes) -> tuple[int, int]:
    """The state of an image that is a file in the folder of a table."""
    text = path.decode("utf-8", "replace")
    try:
        found = (table.parent / text).stat() if is_below(text) else None
    except (OSError, ValueError):
        found = None
    return UNKNOWN if found is None else (found.st_size, found.st_mtime_ns)


def _bytes(column: pa.Array) -> pa.Array:
    """Texts, or numbers as they are written, as UTF-8 that is not checked."""
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    elif not is_text(column.type):
        raise UsageError(f"keys are texts or whole numbers, not {column.type}: name another column by {opt.key_column}")
    return column.cast(pa.large_binary())
