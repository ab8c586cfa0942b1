"""A folder with a `metadata.csv`, as Hugging Face's ImageFolder has it: the listing of the images around it.

The table is `metadata.csv`, `metadata.jsonl` or `metadata.parquet`, with a column `file_name`, or one whose name ends
in `_file_name`. It may be in the folder or in the one above, whose table names `train/0.jpg`; paths are then those
below the folder.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import need
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.base import NO_FILE, NOT_LISTED, Scanning, given_options, unseen
from rawpack_packer.sources.beside import only_container
from rawpack_packer.sources.fields import FieldKind
from rawpack_packer.sources.folder import check_folder, splits_in, wanted_images
from rawpack_packer.sources.folder_scan import FolderScan
from rawpack_packer.sources.listing.lines import ListingRows
from rawpack_packer.sources.listing.reading import ListingSource, rows_of
from rawpack_packer.sources.path_fields import path_template
from rawpack_packer.sources.table.columns import Column, Numbers
from rawpack_packer.sources.table.labels import empty_classes, named_file
from rawpack_packer.sources.video import EXTENSIONS as VIDEO_EXTENSIONS
from rawpack_packer.text import count, listed, plain

_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_FILE_NAME = "file_name"
_BLOCK = 8192
_HEAD = 1 << 20


@dataclass(frozen=True)
class Metadata:
    """The table of a folder."""

    file: Path
    columns: tuple[str, ...]
    """Those that name files: `file_name`, or `*_file_name`."""
    below: str
    """What the paths of the folder's images begin with; "" where the table is in the folder."""


def metadata_of(folder: Path) -> Metadata | None:
    """The table that lists the images of a folder. Raises UsageError where there are two."""
    # Not Path.is_dir, which raises where nothing can be looked into: the scan reports that better.
    if not os.path.isdir(folder):  # noqa: PTH112
        return None
    where = folder.absolute()
    if found := _in(where):
        return Metadata(*found, "")
    found = _in(where.parent) if where.parent != where else None
    if found is None:
        return None
    above = Metadata(*found, f"{where.name}/")
    return above if _lists_some(above) else None


def has_metadata(folder: Path) -> bool:
    """Whether a folder has such a table."""
    try:
        return metadata_of(folder) is not None
    except UsageError:  # whoever opens it reports this
        return True


def splits_of(folder: Path) -> list[str]:
    """The names of the splits that such a folder is divided into; empty where it is not."""
    return splits_in(folder) if has_metadata(folder) else []


def lists_files(file: Path) -> bool:
    """Whether a table is one by its name and its columns."""
    return file.name in _NAMES and bool(_file_columns(file))


class MetadataSource(ListingSource):
    """The images, or videos, of a folder that its table lists, in the table's order, with its columns as fields.

    Without a column `label`, the folders of the images are their classes, as for `FolderSource`. A text label that is
    missing is that of the folder, if the table knows that class.

    `counts`: also not_listed (images or videos) and no_file (lines), which are left out, and those of `FolderSource`
    that count files.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        path_column: str | None = None,
        images: str | os.PathLike[str] | None = None,
        progress: Scanning = unseen,
        **options: Any,
    ) -> None:
        """path: the folder. options: as of `ListingSource`. Raises as that does; UsageError where no line has an
        image, or the folder cannot be read."""
        found, where = metadata_of(Path(path)), plain(os.fsencode(Path(path).absolute()))
        if found is None:
            raise UsageError(
                f"{where} cannot be read as a listing: it is a folder without a metadata.csv that has a column "
                "file_name; give the listing itself"
            )
        table = plain(os.fsencode(found.file))
        if images is not None:
            raise UsageError(f"{where}: {opt.images} applies to a listing that is given itself: give {table}")
        if path_column is None and _FILE_NAME not in found.columns and len(found.columns) > 1:
            raise UsageError(
                f"{table} has several columns of files, {', '.join(map(plain, found.columns))}: name that of the "
                f"images, such as {opt.path_column(plain(found.columns[0]))}; the others become texts, or masks by "
                f"{opt.fields} {plain(found.columns[1])}:mask"
            )
        column = path_column or (_FILE_NAME if _FILE_NAME in found.columns else found.columns[0])
        root = os.fspath(Path(path).absolute())
        scan = FolderScan(root, wanted_images(), progress)
        check_folder(root, where)
        scan.run()
        if scan.counts["problems"]:
            raise UsageError(
                f"{where} cannot be read, and nothing was written: {scan.info('folder', where).problems[0]}; make all "
                f"of it readable, or give {table}, which reads only what it lists"
            )
        listed_files = _ListedFiles(scan, found, root, column)
        chosen = options | {"path_column": path_column}
        try:
            super().__init__(
                found.file, path_column=column, images=root, progress=progress, rows_by=listed_files.rows, **options
            )
        except UsageError:
            listed_files.check(where)
            raise
        problems, counts = listed_files.problems(bool(self.of_videos)), listed_files.counts(bool(self.of_videos))
        words = chosen.pop("fields", ())
        shown = {"field": tuple(":".join(map(str, p)) for p in words.items()) if isinstance(words, Mapping) else words}
        shown |= {
            "path": path_column,
            "label_column": options.get("label_column"),
            "key_column": options.get("key_column"),
            "classes": named_file(options.get("classes")),
        }
        self.info = replace(
            self.info,
            paths=(root, os.fspath(found.file)),
            options=given_options(**shown),
            counts={**counts, **self.info.counts},
            problems=(*self.info.problems, *problems),
            skipped=listed_files.skipped,
        )
        self._add_labels(scan)

    def _add_labels(self, scan: FolderScan) -> None:
        """Take the labels of the folders where the table has none."""
        folders = _classes(scan, [self.path(i) for i in range(len(self))])
        label, names = self.columns.get("label"), self.info.classes
        if folders is None or (label is not None and (names is None or not isinstance(label, Numbers))):
            return
        own, labels = folders
        fields: dict[str, FieldKind] = dict(self.info.fields)
        if label is not None and names is not None:
            known = {name: number for number, name in enumerate(names)}
            of_folder = np.array([*(known.get(name, -1) for name in own), -1], np.int64)[labels]
            labels = np.where(label.values < 0, of_folder, label.values)
        else:
            names, fields = own, {"label": FieldKind("int64"), **fields}
        columns: dict[str, Column] = {"label": Numbers(labels)}
        self.columns = columns | {name: one for name, one in self.columns.items() if name != "label"}
        self._all = replace(self._all, columns={name: self.columns[name] for name in fields})
        empty = empty_classes(names, labels)
        counts = {"unlabelled": int((labels < 0).sum()), "empty_classes": len(empty)}
        self.info = replace(
            self.info, fields=fields, classes=names, empty_classes=empty, counts={**self.info.counts, **counts}
        )


class _ListedFiles:
    """Which files of a folder its table lists. Lines without a file are left out."""

    def __init__(self, scan: FolderScan, found: Metadata, root: str, column: str) -> None:
        self._found, self._root, self._column = found, root, column
        self._template = path_template(column) if "{" in column else None
        part = scan.files()
        hashes = [xxhash.xxh3_64_intdigest(part.path(i)) for i in range(len(part))]
        self._images = np.sort(np.array(hashes, np.uint64))
        self._seen = np.zeros(len(hashes), np.bool_)
        self._part, self._counts, self._videos = part, dict(scan.counts), 0
        self.skipped = dict(scan.beside.suffixes)
        end = found.file.suffix
        if not found.below and self.skipped.get(end):
            self._counts["other_files"] -= 1
            self.skipped[end] -= 1
            self.skipped = {name: number for name, number in self.skipped.items() if number}
        self._without: list[tuple[int, str]] = []
        """Lines without a file, and what they name: the first few."""
        self._lines_without = self._listed = 0

    def rows(self, file: BinaryIO, where: str, root: str, declared: Container[str]) -> ListingRows:
        """The rows of the table that have a file."""
        if self._found.file.suffix == ".parquet":
            need("pyarrow", "parquet", plain(os.fsencode(self._found.file)))
            rows: ListingRows = _ParquetRows(file)
        else:
            rows = rows_of(self._found.file.suffix, file, where, root, declared)
        return _RowsWithFiles(rows, self)

    def chosen(self, rows: ListingRows) -> Iterator[tuple[int, Sequence[Any]]]:
        names = list(rows.names)
        at = names.index(self._column) if self._column in names else None
        others = [k for k, name in enumerate(names) if name in self._found.columns and k != at]
        for line, row in rows:
            path = self._path(names, row, at)
            if path is None:
                yield line, row  # a fault of the listing
                continue
            if self._found.below:
                if not path.startswith(self._found.below):
                    continue
                path = path.removeprefix(self._found.below)
                row = [self._below(cell) if k == at or k in others else cell for k, cell in enumerate(row)]
            if self._is_there(path):
                self._listed += 1
                for k in others:
                    self._note(row[k])
                yield line, row
                continue
            self._lines_without += 1
            if len(self._without) < 1:
                self._without.append((line, path))

    def check(self, where: str) -> None:
        """Raise UsageError where lines name files, and none of them is there. where: the folder, printable."""
        if self._lines_without and not self._listed:
            line, path = self._without[0]
            raise UsageError(
                f"none of the files that {plain(os.fsencode(self._found.file))} lists is in {where}: line {line} names "
                f"{plain(path)!r}; correct the paths, or {opt.kind('folder')} packs the images alone"
            )

    def counts(self, videos: bool) -> dict[str, int]:
        """Counts of the folder's files, and of what was left out. videos: whether the table lists videos."""
        counts = dict(self._counts)
        if videos:
            counts["images"], missing = len(self._seen), counts.pop("videos") - self._videos
        else:
            missing = int((~self._seen).sum())
        return {**counts, NOT_LISTED: max(0, missing), NO_FILE: self._lines_without}

    def problems(self, videos: bool) -> list[str]:
        """A line for what was left out."""
        table, found = plain(self._found.file.name), list[str]()
        if self._lines_without:
            line, path = self._without[0]
            found.append(
                f"{count(self._lines_without, 'line')} of {table} without an image in the folder, left out: line "
                f"{line} names {plain(path)!r}"
            )
        missing = [] if videos else np.flatnonzero(~self._seen).tolist()
        if missing:
            lost = set(self._images[missing[:1]].tolist())
            part = self._part
            first = next(i for i in range(len(part)) if xxhash.xxh3_64_intdigest(part.path(i)) in lost)
            found.append(
                f"{count(len(missing), 'image')} that {table} does not list, left out: {plain(part.key(first))}"
            )
        return found

    def _path(self, names: Sequence[str], row: Sequence[Any], at: int | None) -> str | None:
        try:
            value = row[at] if at is not None else self._template.path(dict(zip(names, row, strict=True)))  # type: ignore[union-attr]
        except (ValueError, AttributeError):
            return None
        return value if isinstance(value, str) and value and "\0" not in value else None

    def _below(self, cell: Any) -> Any:
        """A path of a table in the folder above, as one below the folder."""
        return cell.removeprefix(self._found.below) if isinstance(cell, str) else cell

    def _is_there(self, path: str) -> bool:
        """Whether a path is that of a file; it is then listed."""
        if self._note(path):
            return True
        there = os.path.isfile(os.path.join(self._root, path))  # noqa: PTH113, PTH118 - for each of a million
        self._videos += there and os.path.splitext(path)[1].lower() in VIDEO_EXTENSIONS  # noqa: PTH122
        return there

    def _note(self, path: Any) -> bool:
        """Take an image as listed; whether the path is that of an image."""
        if not isinstance(path, str):
            return False
        hashed = xxhash.xxh3_64_intdigest(os.fsencode(os.path.normpath(path)))
        at = int(np.searchsorted(self._images, np.uint64(hashed)))
        if at < len(self._images) and int(self._images[at]) == hashed:
            self._seen[at] = True
            return True
        return False


class _RowsWithFiles:
    """Some rows of a listing."""

    def __init__(self, rows: ListingRows, files: _ListedFiles) -> None:
        self._rows, self._files = rows, files
        self.cells, self.names = rows.cells, rows.names

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        return self._files.chosen(self._rows)


class _ParquetRows:
    """The rows of a Parquet file, with values as JSON has them."""

    cells = False

    def __init__(self, file: BinaryIO) -> None:
        import pyarrow.parquet as pq

        self._file = pq.ParquetFile(file)
        self.names: Sequence[str] = list(self._file.schema_arrow.names)

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        number = 0
        for batch in self._file.iter_batches(_BLOCK):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                number += 1
                yield number, row


def _in(folder: Path) -> tuple[Path, tuple[str, ...]] | None:
    """The table in a folder, and its columns of files."""
    found = [(folder / name, columns) for name in _NAMES if (columns := _file_columns(folder / name))]
    if len(found) > 1:
        names = listed([file.name for file, _ in found], 3)
        raise UsageError(f"{plain(os.fsencode(folder))} holds {names}: give one of them, as a listing")
    return found[0] if found else None


def _file_columns(file: Path) -> tuple[str, ...]:
    """The columns of a table that name files; none where it cannot be read."""
    try:
        names = _columns(file)
    except (OSError, ValueError, NotImplementedError, csv.Error, RecursionError):
        return ()
    return tuple(name for name in names if name == _FILE_NAME or name.endswith(f"_{_FILE_NAME}"))


def _columns(file: Path) -> list[str]:
    if not os.path.isfile(file):  # noqa: PTH113
        return []
    if file.suffix == ".parquet":
        try:
            import pyarrow.parquet as pq
        except ImportError:
            return [_FILE_NAME]  # whoever opens it says what is missing
        return list(pq.read_schema(file).names)
    with file.open("rb") as opened:
        line = opened.readline(_HEAD).decode("utf-8-sig", "replace")
    if file.suffix == ".csv":
        return next(csv.reader([line]), [])
    first = json.loads(line)
    return list(first) if isinstance(first, dict) else []


def _lists_some(found: Metadata) -> bool:
    """Whether the table in the folder above lists a file of this folder."""
    at = found.columns[0]
    try:
        with found.file.open("rb") as file:
            suffix = found.file.suffix
            rows: ListingRows = (
                _ParquetRows(file)
                if suffix == ".parquet"
                else rows_of(suffix, file, "", os.fspath(found.file.parent), ())
            )
            column = list(rows.names).index(at)
            return any(isinstance(row[column], str) and row[column].startswith(found.below) for _, row in rows)
    except (OSError, ValueError, ImportError, UsageError):
        return False


def _classes(scan: FolderScan, paths: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.int64]] | None:
    """The classes of a folder by its subfolders, and the label of each path; None where there are none."""
    classes = tuple(scan.classes)
    number = {name: k for k, name in enumerate(classes)}
    tops = [os.path.normpath(path).partition("/") for path in paths]
    labels = np.array([number.get(top, -1) if slash else -1 for top, slash, _ in tops], np.int64)
    filled = np.unique(labels[labels >= 0]).tolist()
    return (classes, labels) if filled and not only_container(classes[k] for k in filled) else None
