"""A folder of Parquet files with paths, as one listing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from rawpack.errors import UsageError
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Scanning, unseen
from rawpack_packer.sources.listing.lines import ListingRows, folder_of, read_parquet
from rawpack_packer.sources.listing.reading import ListingFile, ListingSource
from rawpack_packer.sources.look.listing import Listing
from rawpack_packer.sources.parquet import incomplete, listing_files
from rawpack_packer.text import plain


class PartsSource(ListingSource):
    """The rows of such files, in the order of the files' names, by the rules of a listing in one file. They are
    counted over all files."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        /,
        *,
        images: str | os.PathLike[str] | None = None,
        progress: Scanning = unseen,
        **options: Any,
    ) -> None:
        """path: the folder, or a split of it. options: as of `ListingSource`. Raises as that does; MissingExtraError
        without pyarrow."""
        root = Path(path).absolute()
        files, where = listing_files(Listing(root)), plain(os.fsencode(root))
        if images is None and len({file.parent for file in files}) > 1:
            raise UsageError(
                f"{where} has Parquet files of paths in several folders: {opt.images} names the folder that the paths "
                "start from"
            )
        rows = partial(_rows, files)
        listing = ListingFile(files[0], folder_of(images, files[0].parent), None, rows, tuple(files[1:]), where)
        super().__init__(path, images=images, progress=progress, found=listing, **options)
        problems = (*self.info.problems, *incomplete(root, files))
        self.info = replace(self.info, paths=tuple(map(str, files)), problems=problems)


def _rows(files: Sequence[Path], first: BinaryIO, *_: Any) -> ListingRows:
    """The rows of all files. first: the first of them, open. Raises UsageError."""
    head = read_parquet(first, plain(os.fsencode(files[0])))

    def rows() -> Iterator[Sequence[Any]]:
        yield from (row for _, row in head.rows)
        for file in files[1:]:
            where = plain(os.fsencode(file))
            with file.open("rb") as opened:
                part = read_parquet(opened, where)
                if sorted(part.names) != sorted(head.names):
                    raise UsageError(f"{where} has other columns than {files[0].name}: pack them separately")
                order = [part.names.index(name) for name in head.names]
                yield from ([row[k] for k in order] for _, row in part.rows)

    return replace(head, rows=enumerate(rows()))
