"""A folder of files that img2dataset wrote: `00000/000000000.jpg`, and `00000.parquet` with what it knows of each.

The tables are one listing. Their rows find their images by `key`; those of failed downloads have none, and are left
out. The files `.txt` and `.json` next to the images say the same as the tables, and are not read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from rawpack.errors import UsageError
from rawpack_packer.errors import need
from rawpack_packer.options import opt
from rawpack_packer.sources.base import NO_FILE, NOT_LISTED, Scanning, unseen
from rawpack_packer.sources.fields import DeclaredKind
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.sources.listing.lines import ListingRows
from rawpack_packer.sources.listing.reading import PATH_NAMES, ListingFile, ListingSource
from rawpack_packer.sources.parquet import tables_of_files
from rawpack_packer.sources.table.choose import KEY
from rawpack_packer.text import plain

_ALIKE = ("status", "error_message")
"""Columns that have one value in all rows with an image."""
_ENDS = tuple(EXTENSIONS)
_BLOCK = 8192


class Img2datasetSource(ListingSource):
    """The images of such a folder, shard after shard, with the columns of its tables as fields.

    `counts`: also no_file (rows) and not_listed (images), which are left out.
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
        """path: the folder. options: as of `ListingSource`. Raises as that does; MissingExtraError without pyarrow."""
        where = plain(os.fsencode(Path(path).absolute()))
        if images is not None:
            raise UsageError(f"{where}: {opt.images} applies to a listing that is given itself: leave it out")
        files = _Files(Path(path).absolute(), where)
        super().__init__(path, key_column=key_column or KEY, progress=progress, found=files.listing(), **options)
        counts = {NOT_LISTED: files.images - len(self), NO_FILE: files.without}
        self.info = replace(
            self.info,
            root=where,
            paths=(str(Path(path).absolute()), *map(str, files.tables)),
            counts={**self.info.counts, **counts},
        )


class _Files:
    """The tables of a folder, and the images of their rows."""

    def __init__(self, folder: Path, where: str) -> None:
        """Raises UsageError where the tables have no keys."""
        self.tables, self.images, self.without = tables_of_files(folder), 0, 0
        self._folder, self._parquet = folder, need("pyarrow.parquet", "parquet", where)
        names = self._parquet.read_schema(self.tables[0]).names
        if KEY not in names:
            raise UsageError(
                f"{plain(os.fsencode(self.tables[0]))} has no column {KEY!r}, by which img2dataset names its files: "
                f"{opt.kind('folder')} packs the images alone"
            )
        self._path = next(name for name in (*PATH_NAMES, "") if name not in names)
        self._columns = [name for name in names if name not in _ALIKE]

    def listing(self) -> ListingFile:
        """All of it, as one listing."""
        return ListingFile(self.tables[0], os.fspath(self._folder), self._path, self._listed, tuple(self.tables[1:]))

    def _listed(self, file: BinaryIO, where: str, root: str, declared: Mapping[str, DeclaredKind]) -> ListingRows:
        return ListingRows(False, [self._path, *self._columns], enumerate(self._rows(), 1))

    def _rows(self) -> Iterator[Sequence[Any]]:
        for table in self.tables:
            files = sorted(os.listdir(table.with_suffix("")))  # noqa: PTH208
            found = {os.path.splitext(name)[0]: name for name in files if name.lower().endswith(_ENDS)}  # noqa: PTH122
            self.images += len(found)
            for batch in self._parquet.ParquetFile(table).iter_batches(_BLOCK):
                columns = batch.to_pydict()
                for row in zip(*(columns[name] for name in self._columns), strict=True):
                    image = found.get(str(row[self._columns.index(KEY)]))
                    self.without += image is None
                    if image is not None:
                        yield f"{table.stem}/{image}", *row
