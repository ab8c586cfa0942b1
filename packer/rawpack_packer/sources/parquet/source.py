"""Parquet and Arrow files with images as a source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack.system.failure import is_no_fault_of_data
from rawpack_packer.errors import need
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.archives.files import archive_files, source_name
from rawpack_packer.sources.base import BaseSource, Scanning, SourceInfo, given_options, unseen, without_samples
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.files import UNKNOWN, reason_of, stop_if_of_any_file
from rawpack_packer.sources.kinds import Declared, inferred_mask, split_arrays, with_arrays, words_of
from rawpack_packer.sources.listing.columns import Classes, classes_of
from rawpack_packer.sources.listing.reading import box_hint, declared_fields
from rawpack_packer.sources.listing.table import Texts, joined, texts_of
from rawpack_packer.sources.parquet.columns import LABEL, ColumnChoice, TableColumns, choose, features_in
from rawpack_packer.sources.parquet.layout import features_beside, files_of
from rawpack_packer.sources.parquet.part import ParquetPart, is_below, spans_of, value_of
from rawpack_packer.sources.parquet.tables import Leaf, Table, TableFile, cursor_of, fault_of, open_table
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    import pyarrow as pa

    from rawpack_packer.sources.archives.spool import RemoteArchive, Spool

_SHOWN = 10
Rows = NDArray[np.int64]


class ParquetSource(BaseSource):
    """Rows of Parquet files, or of Arrow files as `save_to_disk` writes them, as a `Source`.

    An image is binary, or a struct of bytes and path; a path without bytes is a file in the folder of the table. The
    columns of labels, keys and numbers that may be missing are read when the source is opened, all others with their
    images. The classes are those of `ClassLabel`, or the sorted names where labels are texts. A label that is missing
    is -1.

    Keys are those of a column `key` of texts, or the paths of the images, where each sample has another one; else
    samples are numbered.

    `info.counts`: unlabelled, empty_classes, columns_left_out.
    """

    _all: ParquetPart

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        fields: Mapping[str, Declared] | Sequence[str] = (),
        key: str | None = None,
        classes: Classes | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        columns: str | Sequence[str] | None = None,
        spool: Spool | None = None,
        progress: Scanning = unseen,
    ) -> None:
        """fields: what columns hold, where their types do not show it, as of `ListingSource`. key: the column of keys.
        classes: names of labels that are numbers without names. image_column, label_column: needed where there are
        several. columns: those that become fields; None for all that can. spool: for files behind URLs. progress:
        called with the number of rows looked at so far.

        Raises UsageError where the files cannot be read, have no images, or differ in their columns.
        """
        if not os.fspath(path):
            raise UsageError("the source is an empty path: give a Parquet file, or a folder of them")
        root = source_name(path)
        need("pyarrow", "parquet", root)
        names = tuple(columns.split(",") if isinstance(columns, str) else columns or ())
        names = tuple(part.strip() for name in names for part in name.split(",") if part.strip())
        typed, arrays = split_arrays(fields)
        declared = declared_fields(typed)
        wanted = ColumnChoice(image_column, label_column, key, None if columns is None else names, declared)
        scan = _Scan(wanted, progress)
        far = archive_files(path, spool) if is_url(path) else None
        for file in () if far else files_of(Path(path).absolute()):
            scan.add(file, plain(os.fsencode(file)))
        if far is not None:
            with far.looked_through():
                for k in range(len(far)):
                    with far.opened(k, keep=False):
                        scan.add(Path(far.paths[k]), far.name(k), far.remotes[k], spool)
        chosen = scan.chosen
        if chosen is None or not scan.rows:
            raise UsageError(f"{root} has no rows")
        labels, named, unlabelled = _labels(scan, chosen, classes, root)
        keys = scan.keys(root)
        self._states = [file.state for file in scan.files]
        self._all = ParquetPart(spans_of(scan.files), chosen, keys, 0, labels, scan.outside)
        kinds = {name: kind for name, kind in chosen.fields.items() if kind is not None}
        if len(kinds) < len(chosen.fields):
            kinds = {name: kind or self._mask(name) for name, kind in chosen.fields.items()}
            self._all = replace(self._all, columns=replace(chosen, fields=kinds))
        kinds = with_arrays(kinds, arrays, root)
        hints = [box_hint(name, kind) for name, kind in kinds.items() if name not in declared]
        empty = () if named is None or labels is None else without_samples(named, labels)
        self.info = SourceInfo(
            kind="parquet",
            root=root,
            paths=() if far else tuple(dict.fromkeys([str(Path(path).absolute()), *(one.path for one in scan.files)])),
            fields={**({} if labels is None else {LABEL: FieldKind("int64")}), **kinds},
            classes=named,
            empty_classes=empty,
            numbered=keys is None,
            options=given_options(
                field=words_of(fields),
                key=key,
                classes=classes if isinstance(classes, str | os.PathLike) else None,
                image_column=image_column,
                label_column=label_column,
                columns=None if columns is None else ",".join(names),
            ),
            counts={
                "unlabelled": unlabelled,
                "empty_classes": len(empty),
                "columns_left_out": len(chosen.left_out),
            },
            problems=(*chosen.left_out, *filter(None, hints)),
        )

    def labels(self) -> Rows | None:
        """See `HasLabels`."""
        return self._all.labels

    def states(self) -> Rows:
        """Of the files; before them, of each sample its file or its own image, if any image is a file."""
        files = np.array(self._states, np.int64)
        if not self._all.outside and len(files) < len(self):
            return files
        of_samples = np.repeat(
            [one.file.state for one in self._all.spans], [one.stop - one.start for one in self._all.spans], axis=0
        ).astype(np.int64)
        for row, state in self._all.outside.items():
            of_samples[row] = state
        return np.concatenate([of_samples, files])

    def _mask(self, name: str) -> FieldKind:
        """The kind of a mask, by the first one."""
        file, row = self._all.at(0)
        try:
            batch, at = cursor_of(file, ((name, None),)).row(row)
            return inferred_mask(name, value_of(batch.column(name), at, None, f"{file.name}, row {row}"), None)
        except DecodeError as error:
            raise UsageError(f"field {name}: its first mask cannot be read: {error}") from None


class _Scan:
    """Files one after another, and the columns that are read when a source is opened."""

    def __init__(self, wanted: ColumnChoice, progress: Scanning) -> None:
        self.files: list[TableFile] = []
        self.chosen: TableColumns | None = None
        self.rows = 0
        self.labels: list[pa.Array] = []
        self.outside: dict[int, tuple[int, int]] = {}
        self._wanted, self._progress = wanted, progress
        self._keys: list[pa.Array] = []

    def add(self, path: Path, where: str, remote: RemoteArchive | None = None, spool: Spool | None = None) -> None:
        """Open a file, and read what has to be known of all rows. where: its path or URL, printable. Raises
        UsageError."""
        try:
            found = path.stat()
            table = open_table(str(path))
            chosen = choose(
                table.schema, features_beside(path) or features_in(table.schema, where), self._wanted, where
            )
            self._compare(chosen, where)
            rows = table.ends[-1] if len(table.ends) else 0
            self._read(table, chosen, path)
        except UsageError:
            raise
        except Exception as error:  # pyarrow raises many types for broken files
            if is_no_fault_of_data(error):
                raise
            if isinstance(error, OSError):
                stop_if_of_any_file(error, where)
                if error.errno is not None:
                    raise UsageError(f"{where} cannot be read: {reason_of(error)}") from None
            raise UsageError(f"{where} cannot be read as {path.suffix[1:]}: {fault_of(error, str(path))}") from None
        state = (found.st_size, found.st_mtime_ns) if remote is None else remote.state
        self.files.append(TableFile(str(path), state, rows, remote, spool))
        self.rows += rows
        self._progress(self.rows)

    def keys(self, root: str) -> Texts | None:
        """The keys; None where samples are numbered. Raises UsageError where --key names a column that has no keys."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._keys:
            return None
        values = pa.chunked_array(self._keys)
        named, named_by_column = self._wanted.key, self.chosen is not None and self.chosen.key is not None
        if (
            values.null_count
            or pc.count_distinct(values).as_py() < len(values)
            or pc.any(pc.equal(values, b"")).as_py()
        ):
            if named is None:
                return None
            counts = pc.value_counts(values.drop_null())
            twice = [one["values"].as_py() for one in counts if one["counts"].as_py() > 1][:_SHOWN]
            what = (
                f"{listed([plain(one) for one in twice], _SHOWN)} more than once" if twice else "rows without a value"
            )
            raise UsageError(f"{opt.key(named)}: the column of {root} has {what}: each sample needs a key of its own")
        try:
            blocks = [texts_of([value.decode() for value in chunk.to_pylist()]) for chunk in values.chunks]
        except UnicodeDecodeError:
            if named is None:
                return None
            raise UsageError(f"{opt.key(named)}: the column of {root} has a value that is not UTF-8") from None
        found = joined(blocks)
        safe = named_by_column or all(is_below(found.value(i)) for i in range(len(found)))
        return found if safe else None

    def _compare(self, chosen: TableColumns, where: str) -> None:
        before = self.chosen
        if before is None:
            self.chosen = chosen
        elif replace(before, left_out=()) != replace(chosen, left_out=()):
            names = [
                name for name in (*before.fields, *chosen.fields) if before.fields.get(name) != chosen.fields.get(name)
            ]
            what = f"columns {listed(list(dict.fromkeys(names)), 5)}" if names else "its image or label"
            raise UsageError(
                f"{where} has other columns than {self.files[0].name} ({what}): write all files with the same types, "
                f"or choose common ones by {opt.columns}"
            )

    def _read(self, table: Table, chosen: TableColumns, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        whole = [
            name
            for name, kind in chosen.fields.items()
            if kind is not None and not kind.shape and kind.dtype != "str" and not kind.dtype.startswith("float")
        ]
        leaves: list[Leaf] = [(name, None) for name in (chosen.key, chosen.label, *whole) if name is not None]
        has_path = "path" in chosen.image_has
        if has_path:
            leaves.append((chosen.image, "path"))
        beside = {os.fsencode(name) for name in os.listdir(path.parent)} if has_path else set()  # noqa: PTH208
        row, files = 0, dict[int, tuple[int, int]]()
        for batch in table.scan(leaves) if leaves else ():
            for name in whole:
                if batch.column(name).null_count:
                    first = row + batch.column(name).is_null().index(True).as_py()
                    raise UsageError(
                        f"{plain(os.fsencode(path))}: column {name!r} of whole numbers has no value in row {first}: "
                        f"declare {opt.fields(f'{name}:float64')} (NaN), or leave it out by {opt.columns}"
                    )
            if chosen.label is not None:
                self.labels.append(_flat(batch.column(chosen.label)))
            if chosen.key is not None:
                self._keys.append(_bytes(_flat(batch.column(chosen.key))))
            if has_path:
                paths = _bytes(_flat(pc.struct_field(batch.column(chosen.image), "path")))
                if chosen.key is None:
                    self._keys.append(paths)
                for i, one in enumerate(paths.to_pylist(), row):
                    if one and os.path.normpath(one).split(b"/")[0] in beside:
                        files[i] = _state_beside(path, one)
            row += batch.num_rows
        ends = table.ends[-1] if len(table.ends) else 0
        if leaves and row != ends:
            raise pa.ArrowInvalid(f"it has {row} rows, and its metadata says {ends}")
        row = 0
        for block in range(len(table.ends)) if files else ():  # it is rare that images have paths of files here
            for batch in table.read([(chosen.image, "bytes")], block):
                missing = pc.is_null(pc.struct_field(batch.column(chosen.image), "bytes"))
                found = (i for i, one in enumerate(missing.to_pylist(), row) if one and i in files)
                self.outside |= {self.rows + i: files[i] for i in found}
                row += batch.num_rows


def _labels(
    scan: _Scan, chosen: TableColumns, classes: Classes | None, root: str
) -> tuple[Rows | None, tuple[str, ...] | None, int]:
    """The label of each sample, the names of the classes, and how many samples have none. Raises UsageError."""
    if chosen.label is None:
        if classes is not None:
            raise UsageError(
                f"{opt.classes} names labels, and {root} has no column of labels: name it by {opt.label_column}"
            )
        return None, None, 0
    values = [value for block in scan.labels for value in block.to_pylist()]
    names = None if classes is None else classes_of(classes)
    if chosen.texts:
        if names is None:
            names = tuple(sorted({value for value in values if value}))
        known = {name: number for number, name in enumerate(names)}
        strange = sorted({value for value in values if value and value not in known})
        if strange:
            raise UsageError(
                f"{root}: {plain(strange[0])!r} of column {chosen.label!r} is none of {len(names)} classes"
            )
        numbers = [known[value] if value else -1 for value in values]
    else:
        names = names or chosen.classes
        numbers = [-1 if value is None else value for value in values]
    for row, number in enumerate(numbers):
        if not (-1 if names else -(1 << 63)) <= number < (len(names) if names else 1 << 63):
            of = f"there are {len(names)} classes, counted from 0" if names else "labels are int64"
            raise UsageError(f"{root}: the label of row {row} is {number}; {of}")
    labels = np.array(numbers, np.int64)
    return labels, names, int((labels == -1).sum())


def _state_beside(table: Path, path: bytes) -> tuple[int, int]:
    """The state of an image that is a file in the folder of a table."""
    text = path.decode("utf-8", "replace")
    try:
        found = (table.parent / text).stat() if is_below(text) else None
    except (OSError, ValueError):
        found = None
    return UNKNOWN if found is None else (found.st_size, found.st_mtime_ns)


def _flat(column: pa.Array) -> pa.Array:
    """A column without dictionary or extension."""
    import pyarrow as pa

    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if isinstance(column, pa.DictionaryArray) else column


def _bytes(column: pa.Array) -> pa.Array:
    """Texts, or numbers as they are written, as UTF-8 that is not checked."""
    import pyarrow as pa

    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    elif not any(fits(column.type) for fits in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)):
        raise UsageError(f"keys are texts or whole numbers, not {column.type}: name another column by {opt.key}")
    return column.cast(pa.large_binary())
