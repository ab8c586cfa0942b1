"""A listing's lines as texts, and its rows: CSV and TSV, and JSON lines."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import msgspec

from rawpack_packer.sources.listing.cells import of_float
from rawpack_packer.sources.listing.faults import Faults

DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSON_LINES = (".jsonl", ".ndjson")
SUFFIXES = (*DELIMITERS, *JSON_LINES)
"""Of the files that are listings."""
_MARKS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"\xef\xbb\xbf": "UTF-8",
}
_CELL = 1 << 30
"""Characters that a cell may have; csv's own limit is 131,072, which the boxes of one image may well exceed."""


class ListingRows(Protocol):
    """A listing that is being read."""

    @property
    def names(self) -> Sequence[str]:
        """Of the columns."""

    @property
    def cells(self) -> bool:
        """Whether values are the texts of cells; else they are of JSON's types."""

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Each row: its first line, counted from 1, and a value for each of `names`. Those that do not fit are faults,
        and left out."""


def texts_of(file: BinaryIO, faults: Faults) -> Iterator[str]:
    """The lines of a file in UTF-8, their ends kept; other bytes are faults."""
    mark = file.read(3)
    for head, encoding in _MARKS.items():
        if mark.startswith(head):
            first = " ".join(f"{byte:02X}" for byte in head)
            cure = "tail -c +4 FILE > NEW" if encoding == "UTF-8" else f"iconv -f {encoding} -t UTF-8 FILE > NEW"
            what = f"the file begins with a byte order mark ({first})"
            faults.add(1, 1, "", f"{what}: save it as UTF-8 without one, as `{cure}` does")
            faults.stop()
    file.seek(0)
    for number, line in enumerate(file, 1):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            cure = "save the file as UTF-8, as `iconv -f latin1 -t UTF-8 FILE > NEW` does, if it is Latin-1"
            faults.add(number, error.start + 1, "", f"byte {line[error.start]:02X} is not UTF-8: {cure}")
            yield line.decode("utf-8", "replace")


class CellRows:
    """CSV or TSV, with a line of names at the top, quoted as RFC 4180 has it."""

    cells = True

    def __init__(self, file: BinaryIO, delimiter: str, faults: Faults) -> None:
        self._faults = faults
        self._reader = csv.reader(texts_of(file, faults), delimiter=delimiter, strict=True)
        rows = self._rows()
        self.names: Sequence[str] = next((row for _, row in rows), [])
        self._rest = rows

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        columns = len(self.names)
        for line, row in self._rest:
            if len(row) != columns:
                at = min(len(row), columns) + 1
                self._faults.add(line, at, "", f"{len(row)} values, and the first line names {columns} columns")
            else:
                yield line, row

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row with the number of its first line; without empty lines."""
        while True:
            line = self._reader.line_num + 1
            try:
                row = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                cure = "is a quote not closed, or not doubled?"
                if "new-line" in str(error):
                    cure = "end lines with LF or CR LF, not with CR alone"
                self._faults.add(line, 1, "", f"{error}: {cure}")
                return
            if row:
                yield line, row


class JsonRows:
    """One JSON object a line. The first says which names there are."""

    cells = False

    def __init__(self, file: BinaryIO, faults: Faults) -> None:
        self._faults = faults
        self._objects = self._read(file)
        self._first = next(self._objects, None)
        self.names: Sequence[str] = list(self._first[1]) if self._first is not None else []

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        if self._first is None:
            return
        names = self.names
        yield self._first[0], list(self._first[1].values())
        for line, row in self._objects:
            if row.keys() == set(names):
                yield line, [row[name] for name in names]
                continue
            for name in names:
                if name not in row:
                    self._faults.add(line, 0, name, "is missing, and the first line has it (null is an empty value)")
            for name in row:
                if name not in names:
                    self._faults.add(line, 0, name, "is not in the first line: each has the same names")

    def _read(self, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        for number, line in enumerate(texts_of(file, self._faults), 1):
            if not line.strip():
                continue
            try:
                yield number, decode(line)
            except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
                row = self._slowly(line, number)
                if row is not None:
                    yield number, row

    def _slowly(self, line: str, number: int) -> dict[str, Any] | None:
        """By Python's own parser, which knows NaN and says where an error is."""
        try:
            row = json.loads(line, parse_float=of_float)
        except json.JSONDecodeError as error:
            self._faults.add(number, error.colno, "", f"is not JSON: {error.msg}")
            return None
        except (RecursionError, ValueError):
            self._faults.add(number, 1, "", "is nested too deeply, or has a number of thousands of digits")
            return None
        if not isinstance(row, dict):
            self._faults.add(number, 1, "", "is not a JSON object: {...}")
            return None
        return row


@contextmanager
def long_cells() -> Iterator[None]:
    """While it lasts, a cell may have as many characters as it likes."""
    before = csv.field_size_limit(_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def rows_of(path: Path, file: BinaryIO, faults: Faults) -> ListingRows:
    """The rows of a listing, by its suffix."""
    suffix = path.suffix.lower()
    return CellRows(file, DELIMITERS[suffix], faults) if suffix in DELIMITERS else JsonRows(file, faults)
