"""Parquet and Arrow files with images as a source."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError, UsageError
from rawpack.remote.url import is_url
from rawpack.system.failure import is_no_fault_of_data
from rawpack_packer.errors import need, reason_of, stop_if_of_any_file
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import Scanning, SourceInfo, given_options, unseen
from rawpack_packer.sources.fields import (
    Declared,
    FieldKind,
    box_hint,
    declared_fields,
    inferred_mask,
    split_arrays,
    with_arrays,
    words_of,
)
from rawpack_packer.sources.files import UNKNOWN
from rawpack_packer.sources.parquet.columns import Features, column_infos, features_in, habits, image_entries
from rawpack_packer.sources.parquet.layout import features_beside, files_of
from rawpack_packer.sources.parquet.part import ArrowColumn, ArrowImages, ArrowRows, is_below
from rawpack_packer.sources.parquet.tables import Leaf, Table, TableFile, fault_of, open_table
from rawpack_packer.sources.table.choose import ChosenColumns, ColumnChoice, choose, named_columns
from rawpack_packer.sources.table.columns import RowNumbers, Texts, joined, texts_of
from rawpack_packer.sources.table.labels import NO_COUNTS, Classes, Labels, named_file, number_labels
from rawpack_packer.sources.table.named_files import named_files, source_name
from rawpack_packer.sources.table.source import TableSource
from rawpack_packer.text import listed, plain

if TYPE_CHECKING:
    import pyarrow as pa

    from rawpack_packer.sources.table.spool import RemoteArchive, Spool

_SHOWN = 10
Rows = NDArray[np.int64]


class ParquetSource(TableSource):
    """Rows of Parquet files, or of Arrow files as `save_to_disk` writes them, as a `Source`.

    An image is binary, or a struct of bytes and path; a path without bytes is a file in the folder of the table. The
    columns of labels, keys and numbers that may be missing are read when the source is opened, all others with their
    images. The classes are those of `ClassLabel`, or the sorted names where labels are texts. A label that is missing
    is -1.

    Keys are those of a column `key` of texts, or the paths of the images, where each sample has another one; else
    samples are numbered.

    `info.counts`: unlabelled, empty_classes, columns_left_out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        fields: Mapping[str, Declared] | Sequence[str] = (),
        key_column: str | None = None,
        classes: Classes | None = None,
        image_column: str | None = None,
        label_column: str | None = None,
        columns: str | Sequence[str] | None = None,
        spool: Spool | None = None,
        progress: Scanning = unseen,
    ) -> None:
        """fields: what columns hold, where their types do not show it, as of `ListingSource`. key_column: of keys.
        classes: names of labels that are numbers without names. image_column, label_column: needed where there are
        several. columns: those that become fields; None for all that can. spool: for files behind URLs. progress:
        called with the number of rows looked at so far.

        Raises UsageError where the files cannot be read, have no images, or differ in their columns.
        """
        if not os.fspath(path):
            raise UsageError("the source is an empty path: give a Parquet file, or a folder of them")
        root = source_name(path)
        need("pyarrow", "parquet", root)
        typed, arrays = split_arrays(fields)
        names = named_columns(columns)
        wanted = ColumnChoice(image_column, label_column, key_column, names, declared_fields(typed))
        scan = _Scan(wanted, progress)
        far = named_files(path, spool) if is_url(path) else None
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
        keys = scan.keys(root)
        rows = scan.arrow_rows()
        kinds = {name: kind or _mask(name, rows) for name, kind in scan.kinds.items()}
        fields_of = {name: ArrowColumn(rows, column, kinds[name]) for name, column in chosen.fields.items()}
        kinds = with_arrays(kinds, arrays, root)
        hints = [box_hint(name, kind) for name, kind in kinds.items() if name not in wanted.declared]
        info = SourceInfo(
            kind="parquet",
            root=root,
            paths=() if far else tuple(dict.fromkeys([str(Path(path).absolute()), *(one.path for one in scan.files)])),
            fields=kinds,
            numbered=keys is None,
            options=given_options(
                field=words_of(fields),
                key_column=key_column,
                classes=named_file(classes),
                image_column=image_column,
                label_column=label_column,
                columns=None if names is None else ",".join(names),
            ),
            counts={**NO_COUNTS, "columns_left_out": len(chosen.left_out)},
            problems=(*chosen.left_out, *filter(None, hints)),
        )
        images = ArrowImages(rows, chosen.image, scan.outside)
        labels = scan.labels_of(root, classes)
        super().__init__(info, keys or RowNumbers(range(scan.rows)), images, fields_of, labels=labels)


def _mask(name: str, rows: ArrowRows) -> FieldKind:
    """The kind of a mask, by the first one."""
    try:
        return inferred_mask(name, ArrowColumn(rows, name, None).value(0), None)
    except DecodeError as error:
        raise UsageError(f"field {name}: its first mask cannot be read: {error}") from None


@dataclass(frozen=True)
class _FoundColumns:
    """What is read of a file, which all files must have alike."""

    chosen: ChosenColumns
    kinds: Mapping[str, FieldKind | None]
    image_has: tuple[str, ...]
    classes: tuple[str, ...] | None
    whole_labels: bool


class _Scan:
    """Files one after another, and the columns that are read when a source is opened."""

    def __init__(self, wanted: ColumnChoice, progress: Scanning) -> None:
        self.files: list[TableFile] = []
        self.chosen: ChosenColumns | None = None
        self.kinds: dict[str, FieldKind | None] = {}
        """Of each field; None for a mask."""
        self.rows = 0
        self.outside: dict[int, tuple[int, int]] = {}
        self._wanted, self._progress = wanted, progress
        self._keys: list[pa.Array] = []
        self._labels: list[pa.Array] = []
        self._found: _FoundColumns | None = None
        """Of the first file."""

    def add(self, path: Path, where: str, remote: RemoteArchive | None = None, spool: Spool | None = None) -> None:
        """Open a file, and read what has to be known of all rows. where: its path or URL, printable. Raises
        UsageError."""
        try:
            stat = path.stat()
            table = open_table(str(path))
            found = self._choose(table.schema, features_beside(path) or features_in(table.schema, where), where)
            rows = table.ends[-1] if len(table.ends) else 0
            self._read(table, found, path)
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
        state = (stat.st_size, stat.st_mtime_ns) if remote is None else remote.state
        self.files.append(TableFile(str(path), state, rows, remote, spool))
        self.rows += rows
        self._progress(self.rows)

    def keys(self, root: str) -> Texts | None:
        """The keys; None where samples are numbered. Raises UsageError where --key-column names one without keys."""
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
            raise UsageError(
                f"{opt.key_column(named)}: the column of {root} has {what}: each sample needs a key of its own"
            )
        try:
            blocks = [texts_of([value.decode() for value in chunk.to_pylist()]) for chunk in values.chunks]
        except UnicodeDecodeError:
            if named is None:
                return None
            raise UsageError(f"{opt.key_column(named)}: the column of {root} has a value that is not UTF-8") from None
        found = joined(blocks)
        safe = named_by_column or all(is_below(found.value(i)) for i in range(len(found)))
        return found if safe else None

    def _choose(self, schema: pa.Schema, features: Features, where: str) -> _FoundColumns:
        """The columns of a file, which must be those of the first one. Raises UsageError."""
        infos = column_infos(schema, features, self._wanted.declared, where)
        chosen, by_name = choose(infos, self._wanted, where, habits()), {one.name: one for one in infos}
        kinds = {name: by_name[column].field for name, column in chosen.fields.items()}
        label = None if chosen.label is None else by_name[chosen.label]
        found = _FoundColumns(
            replace(chosen, left_out=()),
            {name: kind for name, kind in kinds.items() if not isinstance(kind, str)},
            image_entries(schema, chosen.image),
            None if label is None else label.classes,
            label is not None and label.is_whole,
        )
        if self._found is None:
            self.chosen, self.kinds, self._found = chosen, dict(found.kinds), found
        elif found != self._found:
            before = self._found.kinds
            names = [name for name in {**before, **found.kinds} if before.get(name) != found.kinds.get(name)]
            what = f"columns {listed(names, 5)}" if names else "its image or label"
            raise UsageError(
                f"{where} has other columns than {self.files[0].name} ({what}): write all files with the same types, "
                f"or choose common ones by {opt.columns}"
            )
        return found

    def arrow_rows(self) -> ArrowRows:
        """All rows."""
        assert self._found is not None
        found, files = self._found, tuple(file for file in self.files if file.rows)
        images: tuple[Leaf, ...] = tuple((found.chosen.image, child) for child in found.image_has or (None,))
        leaves = (*images, *((column, None) for column in found.chosen.fields.values()))
        starts = tuple(accumulate((file.rows for file in files[:-1]), initial=0))
        return ArrowRows(files, starts, range(self.rows), leaves)

    def labels_of(self, root: str, classes: Classes | None) -> Labels | None:
        """The label of each sample. Raises UsageError."""
        import pyarrow as pa

        assert self._found is not None
        if self._found.chosen.label is None:
            if classes is not None:
                raise UsageError(
                    f"{opt.classes} names labels, and {root} has no column of labels: name it by {opt.label_column}"
                )
            return None
        values = pa.chunked_array(self._labels)
        found = values.fill_null(-1).to_numpy() if self._found.whole_labels else values.to_pylist()
        return number_labels(found, classes, where=root, known=self._found.classes)

    def _read(self, table: Table, found: _FoundColumns, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        chosen = found.chosen
        whole = [
            chosen.fields[name]
            for name, kind in found.kinds.items()
            if kind is not None and not kind.shape and kind.dtype != "str" and not kind.dtype.startswith("float")
        ]
        leaves: list[Leaf] = [(name, None) for name in (chosen.key, chosen.label, *whole) if name is not None]
        has_path = "path" in found.image_has
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
                kind = pa.int64() if found.whole_labels else pa.large_string()
                self._labels.append(_flat(batch.column(chosen.label)).cast(kind))
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
                beside_it = (i for i, one in enumerate(missing.to_pylist(), row) if one and i in files)
                self.outside |= {self.rows + i: files[i] for i in beside_it}
                row += batch.num_rows


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
        raise UsageError(f"keys are texts or whole numbers, not {column.type}: name another column by {opt.key_column}")
    return column.cast(pa.large_binary())
