"""A folder of Parquet files that are one listing: they name images, or are what img2dataset wrote of its `files`.

img2dataset's `00000.parquet` has a row for each file in `00000/`, which its key names; rows of failed downloads have
none, and are left out. The files `.txt` and `.json` next to the images say the same as the tables, and are not read.
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
from rawpack_packer.sources.base import NO_FILE, NOT_LISTED, Scanning, unseen
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.sources.listing.lines import ListingRows, folder_of, read_parquet
from rawpack_packer.sources.listing.reading import ListingFile, ListingSource
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.parquet import listing_files, tables_of_files, types_of
from rawpack_packer.sources.table.choose import KEY, PATH_NAMES
from rawpack_packer.text import plain

_ALIKE = ("status", "error_message")
"""Columns of img2dataset that have one value in all rows with an image."""
_ENDS = tuple(EXTENSIONS)


class PartsSource(ListingSource):
    """The rows of such files, in the order of the files' names, by the rules of a listing in one file. They are
    counted over all files.

    `counts`: of what img2dataset wrote also no_file (rows) and not_listed (images), which are left out.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        key_column: str | None = None,
        images: str | os.PathLike[str] | None = None,
        progress: Scanning = unseen,
        **options: Any,
    ) -> None:
        """path: the folder, or a split of it. options: as of `ListingSource`. Raises as that does; MissingExtraError
        without pyarrow."""
        folder = Listing.of(path)
        root, tables = folder.path.absolute(), tables_of_files(folder)
        files, where = [*map(Path.absolute, tables)] or listing_files(folder), plain(os.fsencode(root))
        column, counts, start = "", Counter[str](), files[0].parent
        if tables:
            if images is not None:
                raise UsageError(f"{where}: {opt.images} applies to a listing that is given itself: leave it out")
            names, key_column, start = types_of(folder / files[0].name) or (), key_column or KEY, root
            column = next(name for name in (*PATH_NAMES, "") if name not in names)
        elif images is None and len({file.parent for file in files}) > 1:
            raise UsageError(
                f"{where} has Parquet files of paths in several folders: {opt.images} names the folder that the paths "
                "start from"
            )
        rows = partial(_rows, folder, files, column, counts)
        listing = ListingFile(files[0], folder_of(images, start), column or None, rows, tuple(files[1:]), where)
        super().__init__(path, key_column=key_column, images=images, progress=progress, found=listing, **options)
        if tables:
            counts[NOT_LISTED] -= len(self)
        self.info = replace(
            self.info,
            paths=(*([str(root)] if tables else ()), *map(str, files)),
            counts={**self.info.counts, **counts},
        )


def _rows(
    folder: Listing, files: Sequence[Path], column: str, counts: Counter[str], first: BinaryIO, *_: Any
) -> ListingRows:
    """The rows of all files. column: what that of paths is called, if img2dataset wrote them; counts: gets the rows
    without an image then, and the images. first: the first of the files, open. Raises UsageError."""
    head = read_parquet(first, plain(os.fsencode(files[0])))
    if not column:
        return replace(head, rows=enumerate(row for _, part in _parts(files, head) for row in part))
    if KEY not in head.names:
        raise UsageError(
            f"{plain(os.fsencode(files[0]))} has no column {KEY!r}, by which img2dataset names its files: "
            f"{opt.kind('folder')} packs the images alone"
        )
    kept = [k for k, name in enumerate(head.names) if name not in _ALIKE]
    names = [head.names[k] for k in kept]
    key = head.names.index(KEY)

    def rows() -> Iterator[Sequence[Any]]:
        counts[NO_FILE] = counts[NOT_LISTED] = 0
        for file, part in _parts(files, head):
            inside = sorted(name for name, _ in (folder / file.stem).all_names() if name.lower().endswith(_ENDS))
            images = {os.path.splitext(name)[0]: name for name in inside}  # noqa: PTH122
            counts[NOT_LISTED] += len(images)
            for row in part:
                image = images.get(str(row[key]))
                counts[NO_FILE] += image is None
                if image is not None:
                    yield f"{file.stem}/{image}", *(row[k] for k in kept)

    return replace(head, names=[column, *names], rows=enumerate(rows()))


def _parts(files: Sequence[Path], head: ListingRows) -> Iterator[tuple[Path, Iterator[Sequence[Any]]]]:
    """Each file and its rows, with the columns of the first one. Raises UsageError."""
    yield files[0], (row for _, row in head.rows)
    for file in files[1:]:
        where = plain(os.fsencode(file))
        with file.open("rb") as opened:
            part = read_parquet(opened, where)
            if sorted(part.names) != sorted(head.names):
                raise UsageError(f"{where} has other columns than {files[0].name}: pack them separately")
            order = [part.names.index(name) for name in head.names]
            yield file, ([row[k] for k in order] for _, row in part.rows)
