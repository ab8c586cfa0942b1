"""Which command packs a table or a plain list next to images: which of its columns has their paths or names.

A column is taken for that only if nearly all rows at the beginning of the table name an image that is there, all below
one folder. A table of counts or of the names of classes has none, and no command is guessed for it.
"""

from __future__ import annotations

import io
import os
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.beside import HEAD, MOST_COMMANDS, Found, Seen, command, folder_of
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.listing.lines import READERS
from rawpack_packer.text import listed, plain

_MOST_ROWS = 100
_MOST_TABLES = 16
_NEARLY_ALL = 0.9
_LOST = ", without the folders' classes: a column label would give these"
_FRACTION = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_ANY_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_MOST_CHARACTERS = 80
_OF_IMAGES = re.compile(r"image|img|file|path|photo|picture|name|key|frame|sample|^id|id$", re.IGNORECASE)
"""Names of columns whose numbers may be those of images, as in `17.jpg`, rather than counts."""


@dataclass(frozen=True)
class _TableBeside:
    """The beginning of a table."""

    path: bytes
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    whole: bool
    """Whether these are all rows."""

    @property
    def folder(self) -> str:
        return text_of(folder_of(self.path))


@dataclass(frozen=True)
class _NamesImages:
    """How the rows of a table name images."""

    options: Sequence[str]
    below_source: bool
    """Whether the paths of the table begin at the source, and so have the folders that are classes."""
    headless: bool
    """Whether the line of names is a row, too."""


def tables_beside(seen: Seen, tables: Sequence[bytes]) -> str:
    """The error for tables next to images; "" where there is none."""
    if not tables:
        return ""
    name, more = plain(text_of(tables[0])), len(tables) - 1
    what = f"the tables {name} and {more:,} more" if more else f"the table {name}"
    lost = f"a folder is packed without {'them' if more else 'it'}"
    return seen.told(f"{what} next to its images", seen.first + _cure(seen, tables), lost)


def _cure(seen: Seen, tables: Sequence[bytes]) -> str:
    if metadata := [one for one in tables if _is_metadata(seen, one)]:
        return _metadata_cure(seen, [folder_of(one) for one in metadata])
    some = [one for one in tables if not one.lower().endswith(b".parquet")][:_MOST_TABLES]
    if not some:
        if seen.in_archive:
            return "save it as .csv, or name it metadata.parquet and its column of paths file_name"
        told = command(seen.below(tables[0]))
        if len(tables) > 1:
            told = command("--source", "listing", seen.below(folder_of(tables[0])).rstrip("/") or ".")
        return f"{told} packs the images that it lists, if it has a column 'path'"
    read = [_read(one, seen.images.head(one, HEAD)) for one in some]
    cells = {cell.strip() for one in read for row in one.rows for cell in row}
    found = seen.images.locate_all({_relative(seen, cell) for cell in cells if not _FRACTION.fullmatch(cell)})
    commands, notes = list[str](), list[str]()
    for one in read:
        names = _images_named(seen, one, found)
        if names is not None and names.headless:
            told = command(*names.options, seen.below(one.path))
            table = plain(text_of(one.path))
            return f"give {table} a first line that names its columns, such as path,label; then {told} packs them"
        if names is not None:
            options, note = _with_classes(seen, one, names)
            commands.append(command(*options, seen.below(one.path)))
            notes.append(note)
    if commands:
        note = _LOST if _LOST in notes else notes[0] if len(set(notes)) == 1 else ""
        if len(some) == 1:
            file = text_of(some[0]) if seen.in_archive else seen.below(some[0])
            note += f", or {command('--labels-file', file, seen.path)} its classes alone"
        several = ", each the images that it lists" if len(commands) > 1 else " of the images that it lists"
        return f"{' or '.join(commands[:MOST_COMMANDS])} packs its columns as fields{several}{note}"
    if cure := next(filter(None, (plain_list_cure(seen, one.path) for one in read)), ""):
        return cure
    if seen.in_archive and not any(one.columns for one in read):
        # Such as a table above the folder that is packed.
        labels = command("--labels-file", text_of(tables[0]), seen.path)
        return f"{command(seen.unpacked)} shows whether it names the images, or {labels} its classes alone"
    none = "no column of these tables" if len(tables) > 1 else "none of its columns"
    return (
        f"if it describes the images, give it a column path and pack the table, or the images with {opt.labels_file}; "
        f"{none} names images that are there, as far as seen"
    )


def _is_metadata(seen: Seen, table: bytes) -> bool:
    # Here, as folders with a table import the folder of images, which imports this.
    from rawpack_packer.sources.listing.metadata import lists_files

    if seen.in_archive:
        return text_of(table).rpartition("/")[2].startswith("metadata.")
    return lists_files(Path(seen.below(table)))


def _metadata_cure(seen: Seen, folders: Sequence[bytes]) -> str:
    """What to do with tables that list the images of their folders, as Hugging Face's ImageFolder has them."""
    folders = [b""] if b"" in folders else list(dict.fromkeys(folders))
    names = [text_of(one.rstrip(b"/")) for one in folders]
    commands = [command(seen.below(one).rstrip("/") or ".") for one in folders]
    if len(folders) == 1:
        cure = f"{commands[0]} packs its columns as fields"
    elif any("/" in name or "," in name for name in names):
        cure = f"{listed(commands, MOST_COMMANDS)} pack their columns, each into a store of its own"
    else:
        sets = command("--splits", ",".join(names), seen.unpacked)
        cure = f"{sets} makes a store of each folder, with its columns"
    others = [text_of(one) for one in seen.filled if not any(one.startswith(folder) for folder in folders)]
    cure += f"; {listed(sorted(others), 2)} has no table, and is left out" if any(others) and all(others) else ""
    if len(folders) == 1 and not others:
        return cure
    paths = listed([f"{name}/0.jpg" for name in names], 2)
    one = f"; one metadata.csv in {plain(seen.unpacked)} instead, with paths such as {paths}, packs all as one set"
    return cure + one + (" and keeps the folders as classes" if seen.labeled else "")


def _with_classes(seen: Seen, table: _TableBeside, names: _NamesImages) -> tuple[list[str], str]:
    """The options that keep the folders as classes, too, and what to say of the classes."""
    options = [*names.options]
    if "label" in table.columns:
        return options, ""
    if not seen.labeled:
        return options, " (a column of classes must be called label)"
    if names.below_source and (keeps := seen.keeps_classes):
        return [*keeps, *options], " and keeps the folders as classes"
    return options, _LOST


def _images_named(seen: Seen, table: _TableBeside, found: Found) -> _NamesImages | None:
    """How the rows of a table name images; None where they do not."""
    from rawpack_packer.sources.listing.reading import PATH_NAMES

    columns = table.columns
    default = next((name for name in PATH_NAMES if name in columns), None)
    for stem in (False, True):
        for k in sorted(range(len(columns)), key=lambda k: (columns[k] not in PATH_NAMES, k)):
            values = [row[k].strip() for row in table.rows]
            place = _place(seen, table, columns[k], values, stem, found)
            if place is None:
                continue
            base, extension = place
            options = list[str]()
            headless = columns[k] not in PATH_NAMES and any(seen.images.paths(_relative(seen, columns[k]), stem))
            if headless:
                options += ["--path", f"{{path}}{extension}"] if stem else []
            elif stem:
                options += ["--path", f"{{{columns[k]}}}{extension}"]
            elif columns[k] != default:
                options += ["--path", columns[k]]
            if base is not None and base != table.folder:
                options += ["--images", seen.below(base.rstrip("/"))]
            return _NamesImages(options, not base, headless)
    return None


def _place(
    seen: Seen, table: _TableBeside, column: str, values: Sequence[str], stem: bool, found: Found
) -> tuple[str | None, str] | None:
    """The folder from which the values of a column lead to images, None where they are absolute, and the extension
    that they lack; None where nearly all of them do not."""
    places = Counter[tuple[str | None, str]]()
    for value in values:
        name, of_value = _relative(seen, value), set[tuple[str | None, str]]()
        for image in found.get((name, stem), ()) if name else ():
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
        images = seen.filled.get(os.fsencode(base or ""), 0)
        if not _OF_IMAGES.search(column) or (table.whole and 2 * len(values) < images):
            return None
    return place


def _relative(seen: Seen, value: str) -> str:
    """What a cell names, below the source."""
    name = value.strip()
    if name.startswith("/") and not seen.in_archive:
        root = os.path.join(os.path.abspath(seen.path), "")  # noqa: PTH100, PTH118
        return name.removeprefix(root) if name.startswith(root) else ""
    return name.removeprefix("./")


def _read(table: bytes, head: bytes) -> _TableBeside:
    """The beginning of a table, up to its first fault; without columns where it cannot be read."""
    whole, columns, rows = len(head) < HEAD, list[str](), list[list[str]]()
    with suppress(UsageError):
        suffix = os.path.splitext(text_of(table))[1].lower()  # noqa: PTH122
        found = READERS[suffix](io.BytesIO(head if whole else head[: head.rfind(b"\n") + 1]), "")
        columns = list(found.names)
        rows.extend([str(value) for value in row] for _, row in islice(found.rows, _MOST_ROWS + 1))
    return _TableBeside(table, columns, rows[:_MOST_ROWS], whole and len(rows) <= _MOST_ROWS)


def plain_list_cure(seen: Seen, file: bytes) -> str:
    """What to do with a list of images and labels; "" where it is none.

    A line with more columns than these two, as that of Tiny ImageNet, has no names for them: no command is guessed.
    """
    line = text_of(seen.images.head(file, HEAD).lstrip().partition(b"\n")[0]).strip()
    path, _, label = line.partition("\t") if "\t" in line else line.partition(" ")
    image = next(seen.images.paths(path, False), None)
    words = label.split()
    if image is None or not words:
        return ""
    given = os.path.join(os.path.dirname(text_of(file)), path) == image  # noqa: PTH118, PTH120
    folder = seen.below(image.removesuffix(path).rstrip("/"))
    options = [] if given or not image.endswith(path) else ["--images", folder]
    numbers = [_ANY_NUMBER.fullmatch(word) is not None for word in words]
    if not all(numbers) and ("\t" in label.strip() or any(numbers)):
        name = os.path.splitext(text_of(file))[0] + ".tsv"  # noqa: PTH122
        return (
            f"its first line is {line[:_MOST_CHARACTERS]!r}, more than a path and a label: save it as {plain(name)}, "
            "with tabs and a first line that names its columns, such as path, label, and "
            f"{command(*options, seen.below(name))} packs them"
        )
    return f"{command(*options, seen.below(file))} packs its labels"
