"""A Parquet or Arrow file: its columns, and its rows in batches of bounded size."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

from rawpack.errors import DecodeError
from rawpack.system.failure import is_no_fault_of_data
from rawpack_packer.errors import stop_if_of_any_file
from rawpack_packer.sources.files import check_path
from rawpack_packer.sources.parquet.layout import ARROW
from rawpack_packer.text import plain

if TYPE_CHECKING:
    import pyarrow as pa

    from rawpack_packer.sources.table.spool import RemoteArchive, Spool

_BATCH_BYTES, _BATCH_ROWS = 8 << 20, 256
"""How much a batch has at most: bytes by the file's own sizes, which count a value once that many rows have."""
_SCANNED_ROWS = 4096
"""Rows of a batch without images."""
_BUFFER = 1 << 20
Leaf = tuple[str, str | None]
"""A column, or one entry of a column of structs."""


@dataclass(frozen=True)
class TableFile:
    """A file as it was when the source was opened."""

    path: str
    """Of a file behind a URL, where it is in the spool."""
    state: tuple[int, int]
    """Size in bytes, and mtime in ns or a checksum."""
    rows: int
    remote: RemoteArchive | None = None
    spool: Spool | None = field(default=None, compare=False)
    """What fetches a file behind a URL."""

    @property
    def name(self) -> str:
        """For messages, which name no absolute path."""
        if self.remote is not None:
            return plain(str(self.remote))
        return plain(os.path.basename(self.path))  # noqa: PTH119 - called for each fault

    def opened(self) -> Table:
        """Open the file, which is fetched if need be. It can be read as long as it is open."""
        if self.spool is None or self.remote is None:
            return open_table(self.path)
        with self.spool.opened(self.remote):
            return open_table(self.path)

    def check(self) -> None:
        """Raise SourceChangedError where the file is no longer the one that was opened."""
        if self.remote is None:  # otherwise its name in the spool says which version it is
            check_path(self.path, self.state, self.name)


class Table(Protocol):
    """An open file. pyarrow raises exceptions of many types where its bytes are broken."""

    @property
    def schema(self) -> pa.Schema:
        """The columns, and what other tools noted of them."""

    @property
    def ends(self) -> list[int]:
        """Rows up to the end of each block, where reading can begin."""

    def read(self, leaves: Sequence[Leaf], block: int) -> Iterator[pa.RecordBatch]:
        """The rows of a block in batches, with the columns that these leaves are in."""

    def scan(self, leaves: Sequence[Leaf]) -> Iterator[pa.RecordBatch]:
        """All rows in batches."""


class ParquetTable:
    """A Parquet file. Its blocks are the row groups."""

    def __init__(self, path: str) -> None:
        import pyarrow.parquet as pq

        # Without a buffer, pyarrow would load all of a row group, which may be the whole file.
        self._file = pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False, page_checksum_verification=True)
        self._about = self._file.metadata
        self.schema = self._file.schema_arrow
        self.ends = list(accumulate(self._about.row_group(i).num_rows for i in range(self._about.num_row_groups)))

    def read(self, leaves: Sequence[Leaf], block: int) -> Iterator[pa.RecordBatch]:
        # Not from group.column(), which ends the process where a footer is broken (pyarrow 26).
        group = self._about.row_group(block)
        rows = _BATCH_BYTES * group.num_rows // max(group.total_byte_size, 1)
        return self._batches(leaves, [block], max(1, min(rows, _BATCH_ROWS)))

    def scan(self, leaves: Sequence[Leaf]) -> Iterator[pa.RecordBatch]:
        return self._batches(leaves, list(range(len(self.ends))), _SCANNED_ROWS)

    def _batches(self, leaves: Sequence[Leaf], blocks: list[int], rows: int) -> Iterator[pa.RecordBatch]:
        names = [column if child is None else f"{column}.{child}" for column, child in leaves]
        batches: Iterator[pa.RecordBatch] = self._file.iter_batches(
            rows, row_groups=blocks, columns=names, use_threads=False
        )
        return batches


class ArrowTable:
    """An Arrow file of the streaming format, mapped into memory. Its blocks are the record batches."""

    def __init__(self, path: str) -> None:
        import pyarrow as pa

        messages = pa.ipc.MessageReader.open_stream(pa.memory_map(path))
        self.schema = pa.ipc.read_schema(messages.read_next_message())
        self._messages = list(messages)
        if any(one.type != "record batch" for one in self._messages):
            raise ValueError("it has dictionaries, which save_to_disk does not write: save it again, as Parquet")
        self.ends = list(accumulate(self._batch(i).num_rows for i in range(len(self._messages))))

    def read(self, leaves: Sequence[Leaf], block: int) -> Iterator[pa.RecordBatch]:
        batch = self._batch(block).select(list(dict.fromkeys(column for column, _ in leaves)))
        # Offsets that point anywhere would crash this process.
        batch.validate(full=True)
        yield batch

    def scan(self, leaves: Sequence[Leaf]) -> Iterator[pa.RecordBatch]:
        for block in range(len(self._messages)):
            yield from self.read(leaves, block)

    def _batch(self, i: int) -> pa.RecordBatch:
        import pyarrow as pa

        return pa.ipc.read_record_batch(self._messages[i], self.schema)


def open_table(path: str) -> Table:
    """Open a file. Raises whatever pyarrow raises for bytes that are neither Parquet nor Arrow."""
    return ArrowTable(path) if path.lower().endswith(ARROW) else ParquetTable(path)


class Cursor:
    """Reads rows of one file and keeps the last batch, so that rows in order are read once."""

    def __init__(self, file: TableFile, leaves: tuple[Leaf, ...]) -> None:
        self.about = file, leaves
        self._file, self._leaves = file, leaves
        self._table: Table | None = None
        self._batch: pa.RecordBatch | None = None
        self._start = self._stop = 0
        """The rows of the batch."""
        self._block = -1
        self._batches: Iterator[pa.RecordBatch] = iter(())
        """What is left of the block."""
        self._faults: dict[int, tuple[int, str]] = {}
        """Block -> the first row that cannot be read, and why."""

    def row(self, i: int) -> tuple[pa.RecordBatch, int]:
        """A batch, and which of its rows is row i of the file. Raises DecodeError where it cannot be read."""
        if not self._start <= i < self._stop:
            self._seek(i)
        assert self._batch is not None
        return self._batch, i - self._start

    def _seek(self, i: int) -> None:
        try:
            if self._table is None:
                self._table = self._file.opened()
            block = bisect_right(self._table.ends, i)
            fault = self._faults.get(block)
            if fault is not None and i >= fault[0]:
                raise DecodeError("corrupt", fault[1])
            if block != self._block or i < self._stop:
                self._batch, self._start, self._block = None, 0, block
                self._stop = self._table.ends[block - 1] if block else 0
                self._batches = self._table.read(self._leaves, block)
            while i >= self._stop:
                batch = next(self._batches)
                self._batch, self._start, self._stop = batch, self._stop, self._stop + batch.num_rows
        except DecodeError:
            raise
        except Exception as error:
            if is_no_fault_of_data(error):
                raise
            if isinstance(error, OSError):
                stop_if_of_any_file(error, self._file.name)
            why = "the file ends early" if isinstance(error, StopIteration) else fault_of(error, self._file.path)
            text = f"{self._file.name}: rows from {self._stop} on cannot be read: {why}"
            self._faults[self._block] = self._stop, text
            self._batch, self._block, self._start, self._stop = None, -1, 0, 0
            raise DecodeError("corrupt", text) from None


_OPEN = threading.local()


def cursor_of(file: TableFile, leaves: tuple[Leaf, ...]) -> Cursor:
    """This thread's cursor, which stays where it is between parts: a large row group is read once, not for each."""
    cursor: Cursor | None = getattr(_OPEN, "cursor", None)
    if cursor is None or cursor.about != (file, leaves):
        _OPEN.cursor = cursor = Cursor(file, leaves)
    return cursor


def fault_of(error: BaseException, path: str) -> str:
    """What pyarrow says of broken bytes, in one printable line that does not name the folder."""
    lines = str(error).replace(path, os.path.basename(path)).splitlines()  # noqa: PTH119
    return plain(f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__)
