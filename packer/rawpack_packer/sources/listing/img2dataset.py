"""A folder of files that img2dataset wrote: `00000/000000000.jpg`, and `00000.parquet` with what it knows of each.

The tables are one listing. Their rows find their images by `key`; those of failed downloads have none, and are left
out. The files `.txt` and `.json` next to the images say the same as the tables, and are not read.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

from rawpack.errors import UsageError
from rawpack_packer.errors import need
from rawpack_packer.options import opt
from rawpack_packer.sources.base import NO_FILE, NOT_LISTED, Scanning, unseen
from rawpack_packer.sources.files import parsing
from rawpack_packer.sources.folder import EXTENSIONS
from rawpack_packer.sources.inflation import parquet_batches
from rawpack_packer.sources.listing.lines import ListingRows
from rawpack_packer.sources.listing.reading import PATH_NAMES, ListingFile, ListingSource
from rawpack_packer.sources.look.listing import Listing
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
        key_column: str = KEY,
        images: str | os.PathLike[str] | None = None,
        progress: Scanning = unseen,
        **options: Any,
    ) -> None:
        """path: the folder. options: as of `ListingSource`. Raises as that does; MissingExtraError without pyarrow."""
        root = Path(path).absolute()
        tables = tables_of_files(Listing(root))
        where, counts = plain(os.fsencode(root)), Counter[str]()
        if images is not None:
            raise UsageError(f"{where}: {opt.images} applies to a listing that is given itself: leave it out")
        parquet = need("pyarrow.parquet", "parquet", where)
        with _parsing(tables[0]):
            schema = parquet.read_schema(tables[0])
        names = [name for name in schema.names if name not in _ALIKE]
        if KEY not in names:
            raise UsageError(
                f"{plain(os.fsencode(tables[0]))} has no column {KEY!r}, by which img2dataset names its files: "
                f"{opt.kind('folder')} packs the images alone"
            )
        files = next(name for name in (*PATH_NAMES, "") if name not in names)

        def rows(*_: Any) -> ListingRows:
            return ListingRows(False, [files, *names], enumerate(_rows(schema, tables, names, counts)), "row")

        listing = ListingFile(tables[0], os.fspath(root), files, rows, tuple(tables[1:]))
        super().__init__(path, key_column=key_column, progress=progress, found=listing, **options)
        counts[NOT_LISTED] -= len(self)
        self.info = replace(
            self.info, root=where, paths=(str(root), *map(str, tables)), counts={**self.info.counts, **counts}
        )


def _parsing(table: Path) -> AbstractContextManager[None]:
    return parsing(plain(os.fsencode(table)), os.fspath(table), "Parquet")


def _batches(table: Path, names: Sequence[str], schema: Any) -> Iterator[Any]:
    """The rows of a table. schema: of the first one. Raises UsageError where another has other columns."""
    import pyarrow.parquet

    with _parsing(table):
        opened = pyarrow.parquet.ParquetFile(table)
        own, where = opened.schema_arrow, plain(os.fsencode(table))
        for name in names:
            if name not in own.names:
                raise UsageError(f"{where} has no column {plain(name)!r}, as the first table has: copy it again")
            if own.field(name).type != schema.field(name).type:
                types = f"{plain(str(own.field(name).type))}, and {plain(str(schema.field(name).type))} in the first"
                raise UsageError(f"{where}: column {plain(name)!r} has {types} table: copy it again")
        yield from parquet_batches(opened, table.stat().st_size, _BLOCK, columns=list(names))


def _rows(schema: Any, tables: Sequence[Path], names: Sequence[str], counts: Counter[str]) -> Iterator[Sequence[Any]]:
    """The path and the values of each row that has an image. schema: of the first table. counts: gets the rows without
    one, and the images."""
    counts[NO_FILE] = counts[NOT_LISTED] = 0
    for table in tables:
        files = sorted(os.listdir(table.with_suffix("")))  # noqa: PTH208
        found = {os.path.splitext(name)[0]: name for name in files if name.lower().endswith(_ENDS)}  # noqa: PTH122
        counts[NOT_LISTED] += len(found)
        for batch in _batches(table, names, schema):
            columns = batch.to_pydict()
            for row in zip(*(columns[name] for name in names), strict=True):
                image = found.get(str(row[names.index(KEY)]))
                counts[NO_FILE] += image is None
                if image is not None:
                    yield f"{table.stem}/{image}", *row
