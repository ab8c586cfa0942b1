"""Folders that are listings: with a `metadata.csv`, as Hugging Face's ImageFolder has it, the listing of the images
around it; or with the tables of what img2dataset writes as `files`.

The table is `metadata.csv`, `metadata.jsonl` or `metadata.parquet`, with a column `file_name`, or one whose name ends
in `_file_name`. It may be in the folder or in the one above, whose table names `train/0.jpg`; paths are then those
below the folder.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

from rawpack.errors import MissingExtraError, UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources import parquet
from rawpack_packer.sources.base import NO_FILE, NOT_LISTED, Scanning, SourceInfo, unseen
from rawpack_packer.sources.beside import only_container
from rawpack_packer.sources.exported import BESIDE, FILE_NAME, ExportNote, exported_beside
from rawpack_packer.sources.fields import DeclaredKind, are_pixels
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.folder import EXTENSIONS, check_folder, splits_in, wanted_images
from rawpack_packer.sources.folder_scan import FolderScan
from rawpack_packer.sources.listing.lines import ListingRows, read_parquet, rows_of
from rawpack_packer.sources.listing.reading import ListedImages, ListingFile, open_list, parts_of
from rawpack_packer.sources.look.listing import Listing, kept
from rawpack_packer.sources.parquet import tables_of_files
from rawpack_packer.sources.path_fields import path_template
from rawpack_packer.sources.table.assemble import with_labels
from rawpack_packer.sources.table.choose import KEY, LABEL, PATH_NAMES, Labels
from rawpack_packer.sources.table.columns import Numbers, RaggedColumn
from rawpack_packer.sources.table.table import Table, positions
from rawpack_packer.sources.video import names_video
from rawpack_packer.text import composed, count, listed, plain

_NAMES = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_ENDS = tuple(EXTENSIONS)


@dataclass(frozen=True)
class Metadata:
    """The table of a folder."""

    file: Path
    columns: tuple[str, ...]
    """Those that name files: `file_name`, or `*_file_name`."""
    below: str = ""
    """What the paths of the folder's images begin with; "" where the table is in the folder."""


@kept
def metadata_of(folder: Listing) -> Metadata | None:
    """The table that lists the images of a folder. Raises UsageError where there are two."""
    if not folder.is_dir:
        return None
    where = folder.path.absolute()
    if (inside := _in(folder)) or where.parent == where or (above := _in(Listing(where.parent))) is None:
        return inside
    below, unreadable = f"{where.name}/", (OSError, ValueError, NotImplementedError, MissingExtraError, UsageError)
    with suppress(*unreadable), above.file.open("rb") as file:
        rows = rows_of(above.file.suffix, file, "", os.fspath(where.parent), ())
        column = list(rows.names).index(above.columns[0])
        if any(isinstance(row[column], str) and row[column].startswith(below) for _, row in rows.rows):
            return replace(above, below=below)
    return None


def has_metadata(folder: Listing) -> bool:
    """Whether a folder has such a table."""
    try:
        return metadata_of(folder) is not None
    except UsageError:  # whoever opens it reports this
        return True


def is_export(folder: Listing) -> bool:
    """Whether a folder is one of image files that were exported."""
    metadata = metadata_of(folder)
    return metadata is not None and not metadata.below and _exported(metadata) is not None


def _exported(metadata: Metadata) -> ExportNote | None:
    """What an export says of the images that a table lists; None where it is none of an export."""
    note = exported_beside(metadata.file)
    return note if note.image in metadata.columns else None


def lists_images(listing: Listing) -> bool:
    """Whether a folder has a table, or several, that list its images; or a path names a split of such tables."""
    return bool(tables_of_files(listing)) or has_metadata(listing) or parquet.lists_paths(listing)


def splits_of(listing: Listing) -> list[str]:
    """The names of the splits that such a folder is divided into; empty where it is not."""
    if has_metadata(listing):
        return [] if is_export(listing) else splits_in(listing)
    return parquet.splits_of(listing) if parquet.lists_paths(listing) else []


def lists_files(file: Path) -> bool:
    """Whether a table lists images by its name and its columns."""
    return file.name in _NAMES and bool(_file_columns(Listing(file)))


def open_metadata(
    path: str | os.PathLike[str],
    /,
    *,
    path_column: str | None = None,
    images: str | os.PathLike[str] | None = None,
    progress: Scanning = unseen,
    **options: Any,
) -> ListedImages:
    """The images, or videos, of a folder that its table lists, in the table's order, with its columns as fields.

    Without a column `label`, the folders of the images are their classes, as for `open_folder`. A text label that is
    missing is that of the folder, if the table knows that class.

    `counts`: also not_listed (images or videos) and no_file (lines), which are left out, and those of `open_folder`
    that count files.

    path: the folder. options: those of `open_list`. Raises as that does; UsageError where no line has an image, or the
    folder cannot be read.
    """
    folder, where = Listing.of(path), plain(os.fsencode(Path(path).absolute()))
    if (metadata := metadata_of(folder)) is None:
        raise UsageError(
            f"{where} cannot be read as a listing: it is a folder without a metadata.csv that has a column "
            "file_name; give the listing itself"
        )
    table, columns = plain(os.fsencode(metadata.file)), metadata.columns
    if images is not None:
        raise UsageError(f"{where}: {opt.images} applies to a listing that is given itself: give {table}")
    if path_column is None and FILE_NAME not in columns and len(columns) > 1:
        raise UsageError(
            f"{table} has several columns of files, {', '.join(map(plain, columns))}: name that of the images, such as "
            f"{opt.path_column(plain(columns[0]))}; the others become texts, images by "
            f"{opt.fields(f'{plain(columns[1])}:image')}, or masks by {plain(columns[1])}:mask"
        )
    column = path_column or (FILE_NAME if FILE_NAME in columns else columns[0])
    root = os.fspath(Path(path).absolute())
    check_folder(path, where)
    scan = FolderScan(root, wanted_images(), progress, folder)
    scan.run()
    if scan.counts["problems"]:
        raise UsageError(
            f"{where} cannot be read, and nothing was written: {scan.info('folder', where).problems[0]}; make all "
            f"of it readable, or give {table}, which reads only what it lists"
        )
    files = _ListedFiles(scan, metadata, root, column)
    file = ListingFile(metadata.file, root, column, files.rows)
    try:
        listing = open_list(path, path_column=path_column, progress=progress, file=file, **options)
    except UsageError:
        files.check(where)
        raise
    listing.table.info = files.with_counts(listing.table.info, listing.of_videos)
    return listing if _exported(metadata) else replace(listing, table=_with_labels(listing.table, scan))


def open_downloads(
    path: str | os.PathLike[str],
    /,
    *,
    key_column: str | None = None,
    images: str | os.PathLike[str] | None = None,
    **options: Any,
) -> ListedImages:
    """The rows of img2dataset's tables that have a file: that of key 000003 in `00000.parquet` is `00000/000003.jpg`.

    `counts`: also no_file (rows of failed downloads), which are left out. options: those of `open_list`. Raises as
    that does; MissingExtraError without pyarrow.
    """
    folder = Listing.of(path)
    root, files = folder.path.absolute(), [table.absolute() for table in tables_of_files(folder)]
    where, counts = plain(os.fsencode(root)), {NO_FILE: 0}
    if images is not None:
        raise UsageError(f"{where}: {opt.images} applies to a listing that is given itself: leave it out")
    rows = partial(_downloads, folder, files, counts)
    file = ListingFile(files[0], str(root), PATH_NAMES[0], rows, tuple(files[1:]), where, counts)
    listing = open_list(path, key_column=key_column or KEY, file=file, **options)
    listing.table.info = replace(listing.table.info, paths=(str(root), *map(str, files)))
    return listing


def _downloads(folder: Listing, files: Sequence[Path], counts: dict[str, int], first: BinaryIO, *_: Any) -> ListingRows:
    """The rows of all tables that have a file. counts: gets those without. first: the first table, open."""
    head = read_parquet(first, plain(os.fsencode(files[0])))
    kept = [k for k, name in enumerate(head.names) if name not in parquet.ALIKE]
    key = head.names.index(KEY)

    def rows() -> Iterator[Sequence[Any]]:
        for file, part in parts_of(files, head, "", ()):
            names = sorted(name for name, _ in (folder / file.stem).all_names() if name.lower().endswith(_ENDS))
            images = {os.path.splitext(name)[0]: name for name in names}  # noqa: PTH122
            for _, row in part.rows:
                if (image := images.get(str(row[key]))) is not None:
                    yield f"{file.stem}/{image}", *(row[k] for k in kept)
                counts[NO_FILE] += image is None

    return replace(head, names=[PATH_NAMES[0], *(head.names[k] for k in kept)], rows=enumerate(rows()))


def _with_labels(table: Table, scan: FolderScan) -> Table:
    """The table with the labels of the folders where it has none."""
    number_of, classes = {composed(name): k for k, name in enumerate(scan.classes)}, table.info.classes
    inside, columns = text_of(scan.inside), table.rows.columns
    tops = [os.path.normpath(table.path(i)).removeprefix(inside).partition("/") for i in range(len(table))]
    numbers = np.array([number_of.get(composed(top), -1) if slash else -1 for top, slash, _ in tops], np.int64)
    filled, names, label = np.unique(numbers[numbers >= 0]), tuple(scan.classes), columns.get(LABEL)
    if not len(filled) or only_container(names[k] for k in filled):
        return table
    of_boxes = any(isinstance(column, RaggedColumn) and column.have_classes for column in columns.values())
    if label is None and classes is None and not of_boxes:
        labels = Labels(numbers, names)
    elif classes is None or not isinstance(label, Numbers):
        return table
    else:
        of_folders = np.append(positions(names, classes), -1)[numbers]
        labels = Labels(np.where(label.values < 0, of_folders, label.values), classes, faults=label.faults)
    info = with_labels(table.info, labels)
    columns = {**columns, LABEL: Numbers(labels.numbers, labels.faults)}
    rows = replace(table.rows, columns={name: columns[name] for name in info.fields})
    return table.but(info=info, rows=rows, labels=labels.numbers)


@dataclass(eq=False)
class _ListedFiles:
    """Which files of a folder its table lists. Lines without a file are left out."""

    scan: FolderScan
    metadata: Metadata
    root: str
    column: str
    """The column of paths, or how they are made."""
    hashes: array[int] = field(default_factory=lambda: array("Q"))
    """Those of the paths that the table lists."""
    lines: int = 0
    """Lines with a file."""
    videos: int = 0
    """Lines with a video."""
    missing: int = 0
    """Lines without a file."""
    first_missing: tuple[int, str] = (0, "")
    """The first of them, and what it names."""

    def rows(self, file: BinaryIO, where: str, root: str, declared: Mapping[str, DeclaredKind]) -> ListingRows:
        """The rows of the table that have a file."""
        rows = rows_of(self.metadata.file.suffix, file, where, root, declared)
        further = {*self.metadata.columns, *(name for name, kind in declared.items() if are_pixels(kind))}
        return replace(rows, rows=self._with_files(rows, further))

    def _with_files(self, rows: ListingRows, further: Container[str]) -> Iterator[tuple[int, Sequence[Any]]]:
        """further: columns that name files besides that of the images."""
        below, names, column = self.metadata.below, list(rows.names), self.column
        at = names.index(column) if column in names else None
        template = path_template(column, names) if at is None and "{" in column else None
        files = [k for k, name in enumerate(names) if k == at or name in further]
        for line, row in rows.rows:
            path = row[at] if at is not None else None
            with suppress(ValueError, KeyError):
                path = template.path(dict(zip(names, row, strict=True))) if template else path
            if not isinstance(path, str) or not path or "\0" in path:
                yield line, row  # a fault of the listing
                continue
            if not path.startswith(below):
                continue
            if below:
                path, row = path.removeprefix(below), list(row)
                for k in files:
                    row[k] = row[k].removeprefix(below) if isinstance(row[k], str) else row[k]
            if os.path.isfile(os.path.join(self.root, path)):  # noqa: PTH113, PTH118 - for each of a million
                self.lines += 1
                self.videos += names_video(path)
                named = {path, *(row[k] for k in files if isinstance(row[k], str))}
                self.hashes.extend(_hashed(os.path.normpath(name)) for name in named)
                yield line, row
            else:
                self.missing += 1
                self.first_missing = (line, path) if self.missing == 1 else self.first_missing

    def check(self, where: str) -> None:
        """Raise UsageError where lines name files, and none of them is there. where: the folder, printable."""
        if self.missing and not self.lines:
            line, path = self.first_missing
            raise UsageError(
                f"none of the files that {plain(os.fsencode(self.metadata.file))} lists is in {where}: line {line} "
                f"names {plain(path)!r}; correct the paths, or {opt.kind('folder')} packs the images alone"
            )

    def with_counts(self, info: SourceInfo, videos: bool) -> SourceInfo:
        """What is known of the listing, and of the folder's files. videos: whether the table lists videos."""
        files, counts, skipped = self.scan.files(), dict(self.scan.counts), dict(self.scan.beside.suffixes)
        table, problems = self.metadata.file, list[str]()
        own = [table, *(table.with_name(name) for name in BESIDE if _exported(self.metadata))]
        for file in own if not self.metadata.below else ():
            if file.is_file() and skipped.get(file.suffix):
                counts["other_files"] -= 1
                skipped[file.suffix] -= 1
        hashes = np.array([_hashed(files.path(i)) for i in range(len(files))], np.uint64)
        others = np.flatnonzero(~np.isin(hashes, np.array(self.hashes, np.uint64))).tolist()
        not_listed = len(others)
        if self.missing:
            line, path = self.first_missing
            problems.append(
                f"{count(self.missing, 'line')} of {plain(table.name)} without an image in the folder, left out: line "
                f"{line} names {plain(path)!r}"
            )
        if videos:
            counts["images"], not_listed = len(files), max(0, counts.pop("videos") - self.videos)
        elif others:
            what = f"{count(len(others), 'image')} that {plain(table.name)} does not list, left out"
            problems.append(f"{what}: {plain(files.key(others[0]))}")
        return replace(
            info,
            paths=(self.root, os.fspath(table)),
            counts={**counts, NOT_LISTED: not_listed, NO_FILE: self.missing, **info.counts},
            problems=(*info.problems, *problems),
            skipped={suffix: number for suffix, number in skipped.items() if number},
        )


def _hashed(path: str | bytes) -> int:
    return xxhash.xxh3_64_intdigest(os.fsencode(path))


def _in(folder: Listing) -> Metadata | None:
    """The table in a folder."""
    where = folder.path.absolute()
    tables = [Metadata(where / name, columns) for name in _NAMES if (columns := _file_columns(folder / name))]
    if len(tables) > 1:
        names = listed([table.file.name for table in tables], 3)
        raise UsageError(f"{plain(os.fsencode(where))} contains {names}: give one of them, as a listing")
    return tables[0] if tables else None


def _file_columns(file: Listing) -> tuple[str, ...]:
    """The columns of a table that name files; none where there is no table that can be read."""
    suffix = file.path.suffix
    if not file.is_file:
        return ()
    try:
        if suffix == parquet.PARQUET:
            opened: BinaryIO = file.path.open("rb")
        else:
            opened = BytesIO(file.head if b"\n" in file.head else file.contents())
        with opened:
            names = rows_of(suffix, opened, "", "", ()).names
    except (UsageError, MissingExtraError):
        return (FILE_NAME,)  # whoever opens it says what is wrong
    except (OSError, ValueError, NotImplementedError):
        return ()
    return tuple(name for name in names if name == FILE_NAME or name.endswith(f"_{FILE_NAME}"))
