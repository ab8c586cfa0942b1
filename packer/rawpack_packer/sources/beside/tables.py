"""Which command packs a table or a plain list next to images: which of its columns has their paths or names.

A column is taken for that only if nearly all rows at the beginning of the table name an image that is there, all below
one folder. A table of counts or of the names of classes has none, and no command is printed for it.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rawpack.errors import MissingExtraError, UsageError
from rawpack_packer.sources.beside import Seen, command, folder_of
from rawpack_packer.sources.files import text_of
from rawpack_packer.text import plain

_MOST_ROWS = 100
_MOST_TABLES = 16
_NEARLY_ALL = 0.9
_IN_ARCHIVE = "unpack it, and pack the folder, or see docs/how-to/pack-archives.md#labels-from-a-file"
_FRACTION = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_ANY_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_OF_IMAGES = re.compile(r"image|img|file|path|photo|picture|name|key|frame|sample|^id|id$", re.IGNORECASE)
"""Names of columns whose numbers may be those of images, as in `17.jpg`, rather than counts."""


@dataclass(frozen=True)
class _TableBeside:
    """The beginning of a table."""

    folder: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    whole: bool
    """Whether these are all rows."""


def tables_beside(seen: Seen, tables: Sequence[bytes]) -> str:
    """The error for tables next to images; "" where there is none."""
    if not tables:
        return ""
    name, more = plain(text_of(tables[0])), len(tables) - 1
    what = f"the tables {name} and {more:,} more" if more else f"the table {name}"
    cure = _IN_ARCHIVE if seen.in_archive else _cure(seen, tables)
    return seen.told(f"{what} next to its images", cure, f"a folder is packed without {'them' if more else 'it'}")


def _cure(seen: Seen, tables: Sequence[bytes]) -> str:
    # Here, as folders with a table import the folder of images, which imports this.
    from rawpack_packer.sources.listing.metadata import lists_files

    if metadata := [folder_of(table) for table in tables if lists_files(Path(seen.below(table)))]:
        return _metadata_cure(seen, metadata)
    several = len(tables) > 1 and all(table.lower().endswith(b".parquet") for table in tables)
    for table in tables[:_MOST_TABLES]:
        if (columns := _columns_of_images(seen, table)) is not None:
            options, note = columns
            where = seen.below(table)
            if several and folder_of(table) == folder_of(tables[-1]):
                options, where = ["--source", "listing", *options], seen.folder(folder_of(table))
            return f"{command(*options, where)} packs its columns as fields of the images that it lists{note}"
        if cure := plain_list_cure(seen, table):
            return cure
    return "see docs/how-to/pack-annotated-folders.md#a-table-of-labels"


def _metadata_cure(seen: Seen, folders: Sequence[bytes]) -> str:
    """What to do with tables that list the images of their folders, as Hugging Face's ImageFolder has them."""
    folders = [b""] if b"" in folders else list(dict.fromkeys(folders))
    others = [text_of(one) for one in seen.filled if not any(one.startswith(folder) for folder in folders)]
    names = [text_of(one.rstrip(b"/")) for one in folders]
    lost = f"; {plain(min(others))} has no table, and is left out" if any(others) and all(others) else ""
    if len(folders) > 1 and not any("/" in name or "," in name for name in names):
        return f"{command('--splits', ','.join(names), seen.path)} makes a store of each folder, with its columns{lost}"
    more = f", and so on for each of {len(folders):,} folders" if len(folders) > 1 else lost
    return f"{command(seen.folder(folders[0]))} packs its columns as fields{more}"


def _columns_of_images(seen: Seen, table: bytes) -> tuple[list[str], str] | None:
    """The options by which a listing finds its images, and what to say of the classes that the folders give; None where
    no column names images."""
    from rawpack_packer.sources.listing.reading import PATH_NAMES

    read = _read(Path(seen.below(table)), text_of(folder_of(table)))
    columns = read.columns
    default = next((name for name in PATH_NAMES if name in columns), None)
    cells = {_relative(seen, cell) for row in read.rows for cell in row if not _FRACTION.fullmatch(cell.strip())}
    images = seen.images.locate_all(cells)
    for stem in (False, True):
        for k in sorted(range(len(columns)), key=lambda k: (columns[k] not in PATH_NAMES, k)):
            place = _place(seen, read, k, {cell: images.get((cell, stem), []) for cell in cells}, stem)
            if place is None:
                continue
            base, extension = place
            if columns[k] not in PATH_NAMES and any(seen.images.paths(_relative(seen, columns[k]), stem)):
                return None  # the line of names is a row, too
            folders_give = seen.labeled and "label" not in columns
            options = [*seen.keeps_classes] if folders_give and not base else []
            note = ", and keeps the folders as classes" if options else ", without the folders' classes" * folders_give
            if stem:
                options += ["--path", f"{{{columns[k]}}}{extension}"]
            elif columns[k] != default:
                options += ["--path", columns[k]]
            if base is not None and base != read.folder:
                options += ["--images", seen.below(base.rstrip("/"))]
            return options, note
    return None


def _place(
    seen: Seen, table: _TableBeside, column: int, images: Mapping[str, Sequence[str]], stem: bool
) -> tuple[str | None, str] | None:
    """The folder from which the values of a column lead to images, None where they are absolute, and the extension
    that they lack; None where nearly all of them do not. images: paths by what a cell names."""
    values, places = [row[column].strip() for row in table.rows], Counter[tuple[str | None, str]]()
    for value in values:
        name, of_value = _relative(seen, value), set[tuple[str | None, str]]()
        for image in images.get(name, ()) if name else ():
            extension = os.path.splitext(image)[1] if stem else ""  # noqa: PTH122
            before = image[: len(image) - len(name + extension)]
            if not value.startswith("/"):
                of_value.add((before, extension))
            elif not before:
                of_value.add((None, extension))
        places.update(of_value)
    if not places:
        return None
    place, most = min(places.items(), key=lambda one: (-one[1], one[0][0] != table.folder, str(one[0])))
    if most < _NEARLY_ALL * len(values):
        return None
    base = place[0]
    if all(map(_NUMBER.fullmatch, values)):
        # Those of classes, in a list of their names, may be the names of the images of one class, too.
        if seen.labeled and base and not table.folder.startswith(base):
            return None
        filled = seen.filled.get(os.fsencode(base or ""), 0)
        if not _OF_IMAGES.search(table.columns[column]) or (table.whole and 2 * len(values) < filled):
            return None
    return place


def _relative(seen: Seen, value: str) -> str:
    """What a cell names, below the source."""
    name = value.strip()
    if name.startswith("/"):
        root = os.path.join(os.path.abspath(seen.path), "")  # noqa: PTH100, PTH118
        return name.removeprefix(root) if name.startswith(root) else ""
    return name.removeprefix("./")


def _read(file: Path, folder: str) -> _TableBeside:
    """The beginning of a table, up to its first fault; without columns where it cannot be read."""
    from rawpack_packer.sources.listing.reading import rows_of

    columns, rows = list[str](), list[list[str]]()
    with suppress(UsageError, MissingExtraError, OSError, ValueError), file.open("rb") as opened:
        table = rows_of(file.suffix.lower(), opened, "", os.fspath(file.parent), ())
        columns = list(table.names)
        rows.extend([str(value) for value in row] for _, row in islice(table.rows, _MOST_ROWS + 1))
    return _TableBeside(folder, columns, rows[:_MOST_ROWS], len(rows) <= _MOST_ROWS)


def plain_list_cure(seen: Seen, file: bytes) -> str:
    """What to do with a list of images and labels; "" where it is not one, or has more than these two: rawpack takes
    the rest of a line for one label."""
    line = text_of(seen.images.head(file).lstrip().partition(b"\n")[0]).strip()
    path, _, label = line.partition("\t") if "\t" in line else line.partition(" ")
    image = next(seen.images.paths(path, False), None)
    words = label.split()
    if image is None or not words:
        return ""
    numbers = [_ANY_NUMBER.fullmatch(word) is not None for word in words]
    if not all(numbers) and ("\t" in label.strip() or any(numbers)):
        return (
            f"its first line is {line[:80]!r}, more than a path and a label: "
            "see docs/how-to/pack-a-listing.md#plain-lists"
        )
    beside = os.path.join(os.path.dirname(text_of(file)), path) == image  # noqa: PTH118, PTH120
    options = [] if beside or not image.endswith(path) else ["--images", seen.folder(image.removesuffix(path))]
    return f"{command(*options, seen.below(file))} packs its labels"
