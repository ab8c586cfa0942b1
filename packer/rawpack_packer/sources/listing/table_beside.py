"""Which command packs a table next to images: which of its columns has their paths or names."""

from __future__ import annotations

import csv
import json
import os

from rawpack_packer.sources.beside import Located
from rawpack_packer.sources.files import text_of
from rawpack_packer.sources.listing.reading import PATH_NAMES


def table_command(table: bytes, head: bytes, root: str, locate: Located) -> tuple[list[str], list[str]]:
    """The options of the command that packs a table, and the names of its columns.

    table: its path below the source. head: its first bytes. root: the source, as commands name it.
    """
    columns, row = _first_row(head, table)
    folder = text_of(table).rpartition("/")[0]
    ordered = sorted(range(len(row)), key=lambda k: (columns[k] not in PATH_NAMES, k))
    for stem in (False, True):
        for k in ordered:
            value = row[k].strip()
            image = locate(value, stem) if value else None
            if image is None:
                continue
            extension = os.path.splitext(image)[1] if stem else ""  # noqa: PTH122
            named, options = value + extension, list[str]()
            if stem:
                options += ["--path", f"{{{columns[k]}}}{extension}"]
            elif columns[k] != next((name for name in PATH_NAMES if name in columns), None):
                options += ["--path", columns[k]]
            if os.path.join(folder, named) != image:  # noqa: PTH118
                if not image.endswith(named):
                    continue
                options += ["--images", os.path.join(root, image.removesuffix(named).rstrip("/"))]  # noqa: PTH118
            return options, columns
    return ([] if any(name in columns for name in PATH_NAMES) else ["--path", "COLUMN"]), columns


def _first_row(head: bytes, table: bytes) -> tuple[list[str], list[str]]:
    """The names of the columns, and the values of the first row as texts; both empty where that cannot be read."""
    lines = head.decode("utf-8-sig", "replace").splitlines()
    if table.lower().endswith((b".jsonl", b".ndjson")):
        try:
            row = json.loads(lines[0]) if lines else {}
        except (ValueError, RecursionError):
            row = {}
        found = row if isinstance(row, dict) else {}
        return list(found), [str(value) for value in found.values()]
    try:
        rows = [row for row in csv.reader(lines[:3], delimiter="\t" if table.lower().endswith(b".tsv") else ",") if row]
    except csv.Error:
        rows = []
    if len(rows) < 2 or len(rows[0]) != len(rows[1]):
        return (rows[0] if rows else []), []
    return rows[0], rows[1]
