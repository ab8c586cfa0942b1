"""Which command packs a table or a plain list next to images: one that opens, as a listing or as a file of labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rawpack.errors import RawpackError
from rawpack_packer.sources.beside import Seen, command, folder_of
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.table.table import Table
from rawpack_packer.text import count, plain

_MOST_TABLES = 4
_IN_ARCHIVE = "unpack it, and pack the folder, or see docs/how-to/pack-archives.md#labels-from-a-file"


def refuse_listed(seen: Seen, tables: Sequence[bytes]) -> None:
    """Raise AnnotatedError for tables next to images, if there are any."""
    if not tables:
        return
    name, more = plain(text_of(tables[0])), len(tables) - 1
    what = f"the tables {name} and {more:,} more" if more else f"the table {name}"
    cure = _IN_ARCHIVE if seen.in_archive else _cure(seen, tables)
    raise seen.error(f"{what} next to its images", cure, f"packing the folder would ignore {'them' if more else 'it'}")


def list_cure(seen: Seen, file: bytes) -> str:
    """What to do with a list of images; "" where its first line does not begin with one."""
    words = re.split(r"[\t ]", text_of(seen.images.head(file).lstrip().partition(b"\n")[0]).strip())
    if next(seen.images.paths(words[0], False), None) is None:
        return ""
    if not seen.in_archive and _listing(seen.below(file)) is not None:
        return f"{command(seen.below(file))} packs {'its labels' if len(words) > 1 else 'the images that it lists'}"
    return "see docs/how-to/pack-a-listing.md#plain-lists"


def _cure(seen: Seen, tables: Sequence[bytes]) -> str:
    # Here, as folders with a table import the folder of images, which imports this.
    from rawpack_packer.sources.doubts import split_column
    from rawpack_packer.sources.listing.metadata import lists_files

    if metadata := [folder_of(table) for table in tables if lists_files(Path(seen.below(table)))]:
        return _metadata_cure(seen, metadata)
    parts = len(tables) > 1 and all(table.lower().endswith(b".parquet") for table in tables)
    for table in tables[: 1 if parts else _MOST_TABLES]:
        where = seen.folder(folder_of(table)) if parts else seen.below(table)
        for pattern in dict.fromkeys((seen.classes_in_paths, "")):
            source = _listing(where, "listing" if parts else None, pattern)
            if source is None:
                continue
            has_label = "label" in source.info.fields
            note = ", and keeps the folders as classes" if pattern and has_label else ""
            note = ", without the folders' classes" if seen.labeled and not has_label else note
            options = [*(["--source", "listing"] if parts else []), *(["--key-pattern", pattern] if pattern else [])]
            if (column := split_column(source, {})) is not None:
                options += ["--split-by", column[0]]
            return f"{command(*options, where)} packs its columns as fields of the images that it lists{note}"
        if cure := labels_cure(seen, seen.below(table)):
            return cure
    return "see docs/how-to/pack-annotated-folders.md#a-table-of-labels"


def _listing(path: str, kind: str | None = None, pattern: str = "") -> Table | None:
    """The listing at a path; None where it does not open as one."""
    from rawpack_packer.sources.registry import open_source

    with suppress(RawpackError, OSError):
        source = open_source(path, kind, divided=True, key_pattern=pattern or None)
        return source if source.info.kind == "listing" else None
    return None


def labels_cure(seen: Seen, file: str, least: int = 1) -> str:
    """The command that takes the classes of a table; "" where it has fewer than `least` for the images, or the folders
    have them."""
    from rawpack_packer.sources.labels_file import read_labels

    keys = seen.images.keys()
    with suppress(RawpackError):
        labels = read_labels(file, keys, "").labels if keys and not seen.labeled else None
        # Otherwise each image may have a text of its own, or the rows be those of classes, by their numbers.
        if labels and labels.names and 2 * len(labels.names) <= len(keys) <= 1.1 * (labels.numbers >= 0).sum():
            if (classes := len(labels.names)) < least:
                return ""
            what = f"packs its {count(classes, 'class', 'classes')}, and no other column"
            return f"{command('--labels-file', file, seen.path)} {what}"
    return ""


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
