"""What img2dataset wrote as `files`: `00000.parquet` has a row for each file in `00000/`, which its key names.

Rows of failed downloads have no file, and are left out. The files `.txt` and `.json` next to the images say the same as
the tables, and are not read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import NO_FILE, NOT_LISTED
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.sources.listing.lines import ListingRows, read_parquet
from rawpack_packer.sources.listing.reading import ListedImages, ListingFile, open_list, parts_of
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.parquet import tables_of_files, types_of
from rawpack_packer.sources.table.choose import KEY, PATH_NAMES
from rawpack_packer.text import plain

_ALIKE = ("status", "error_message")
"""Columns of img2dataset that have one value in all rows with an image."""
_ENDS = tuple(EXTENSIONS)


def open_img2dataset(
    path: str | os.PathLike[str],
    /,
    *,
    key_column: str | None = None,
    images: str | os.PathLike[str] | None = None,
    **options: Any,
) -> ListedImages:
    """The rows of the tables of a folder that have a file, in the order of the tables' names. They are counted over all
    tables.

    `counts`: also no_file (rows) and not_listed (images), which are left out.

    options: those of `open_list`. Raises as that does; MissingExtraError without pyarrow.
    """
    folder = Listing.of(path)
    root, files = folder.path.absolute(), [table.absolute() for table in tables_of_files(folder)]
    where = plain(os.fsencode(root))
    if images is not None:
        raise UsageError(f"{where}: {opt.images} applies to a listing that is given itself: leave it out")
    names, counts = types_of(folder / files[0].name) or (), Counter[str]()
    column = next((name for name in PATH_NAMES if name not in names), PATH_NAMES[0])
    rows = partial(_rows, folder, files, column, counts)
    file = ListingFile(files[0], str(root), column, rows, tuple(files[1:]), where)
    listing = open_list(path, key_column=key_column or KEY, file=file, **options)
    counts[NOT_LISTED] -= len(listing.table)
    info = listing.table.info
    info = replace(info, paths=(str(root), *map(str, files)), counts={**info.counts, **counts})
    return replace(listing, table=listing.table.but(info=info))


def _rows(
    folder: Listing, files: Sequence[Path], column: str, counts: Counter[str], first: BinaryIO, *_: Any
) -> ListingRows:
    """The rows of all tables that have a file. column: what that of paths is called. counts: gets the rows without an
    image, and the images. first: the first table, open. Raises UsageError."""
    head = read_parquet(first, plain(os.fsencode(files[0])))
    if KEY not in head.names:
        raise UsageError(
            f"{plain(os.fsencode(files[0]))} has no column {KEY!r}, by which img2dataset names its files: "
            f"{opt.kind('folder')} packs the images alone"
        )
    kept = [k for k, name in enumerate(head.names) if name not in _ALIKE]
    key = head.names.index(KEY)

    def rows() -> Iterator[Sequence[Any]]:
        counts[NO_FILE] = counts[NOT_LISTED] = 0
        for file, part in parts_of(files, head, "", ()):
            inside = sorted(name for name, _ in (folder / file.stem).all_names() if name.lower().endswith(_ENDS))
            images = {os.path.splitext(name)[0]: name for name in inside}  # noqa: PTH122
            counts[NOT_LISTED] += len(images)
            for _, row in part.rows:
                image = images.get(str(row[key]))
                counts[NO_FILE] += image is None
                if image is not None:
                    yield f"{file.stem}/{image}", *(row[k] for k in kept)

    return replace(head, names=[column, *(head.names[k] for k in kept)], rows=enumerate(rows()))
