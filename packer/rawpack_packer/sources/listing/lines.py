"""Reads the rows and cells of a listing file: CSV, TSV, JSON Lines, and plain lists of paths."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any, BinaryIO, Protocol

import msgspec

from rawpack_packer.options.naming import opt
from rawpack_packer.sources.listing.faults import fault, shown

_MARKS = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16", b"\xef\xbb\xbf": "UTF-8"}
_CELL = 1 << 30
"""Characters that a cell may have; csv's own limit is 131,072, which the boxes of one image may exceed."""
_INT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_BLANK = re.compile(r" +")
_LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LONG = 1000
"""Digits that are no longer a number: Python itself refuses to read some thousands."""
_decode = msgspec.json.Decoder().decode
_decode_numbers = msgspec.json.Decoder(list[int | float | bool]).decode


class ListingRows(Protocol):
    """A listing that is being read."""

    cells: bool
    """Whether values are the texts of cells, rather than of JSON's types."""
    names: Sequence[str]
    """The names of the columns."""

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        """Each row: its first line, counted from 1, and a value for each of `names`. Raises
        BadListingError."""


class CellRows:
    """CSV or TSV, with a line of names at the top, quoted as in RFC 4180."""

    cells = True

    def __init__(self, file: BinaryIO, where: str, *, delimiter: str) -> None:
        self._where = where
        self._reader = csv.reader(_lines(file, where), delimiter=delimiter, strict=True)
        self._rest = self._rows()
        self.names: Sequence[str] = next((row for _, row in self._rest), [])

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        columns = len(self.names)
        for line, row in self._rest:
            if len(row) != columns:
                what = f"{len(row)} values, but the first line names {columns} columns"
                raise fault(self._where, line, min(len(row), columns) + 1, "", what)
            yield line, row

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Each row with the number of its first line, without empty lines."""
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
                raise fault(self._where, line, 1, "", f"{error}: {cure}") from None
            if row:
                yield line, row


class JsonRows:
    """One JSON object per line. The first one says which names there are."""

    cells = False

    def __init__(self, file: BinaryIO, where: str) -> None:
        self._where = where
        objects = self._read(file)
        first = list(islice(objects, 1))
        self.names: Sequence[str] = list(first[0][1]) if first else []
        self._objects = chain(first, objects)

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        names = self.names
        for line, row in self._objects:
            if row.keys() != set(names):
                lacks = next((name for name in names if name not in row), None)
                if lacks is not None:
                    what = "is missing, but the first line has it (null is an empty value)"
                    raise fault(self._where, line, 0, lacks, what)
                more = next(name for name in row if name not in names)
                raise fault(self._where, line, 0, more, "is not in the first line: all lines need the same names")
            yield line, [row[name] for name in names]

    def _read(self, file: BinaryIO) -> Iterator[tuple[int, dict[str, Any]]]:
        decode = msgspec.json.Decoder(dict[str, Any]).decode
        for number, line in enumerate(_lines(file, self._where), 1):
            if not line.strip():
                continue
            try:
                row: dict[str, Any] = decode(line)
            except (msgspec.DecodeError, RecursionError):
                row = self._read_slowly(line, number)
            yield number, row

    def _read_slowly(self, line: str, number: int) -> dict[str, Any]:
        """By Python's own parser, which knows NaN and says where an error is."""
        try:
            row = json.loads(line, parse_float=_float)
        except json.JSONDecodeError as error:
            raise fault(self._where, number, error.colno, "", f"is not JSON: {error.msg}") from None
        except (RecursionError, ValueError):
            what = "is nested too deeply, or has a number of thousands of digits"
            raise fault(self._where, number, 1, "", what) from None
        if not isinstance(row, dict):
            raise fault(self._where, number, 1, "", "is not a JSON object: {...}")
        for name, value in row.items():
            if isinstance(value, str) and not _is_unicode(value):
                raise fault(self._where, number, 0, name, "half of a surrogate pair cannot be stored as UTF-8")
        return row


class PlainRows:
    """A plain list: a path in each line, perhaps a blank or a tab and a label, without a line of names.

    The first line decides whether there are labels, and whether each is one value, `label`, or several numbers,
    `labels`. A field that the user declares by one of these names decides instead.
    """

    cells = True

    def __init__(self, file: BinaryIO, where: str, *, root: str, declared: Container[str]) -> None:
        """root: the folder that relative paths start from, where a path with blanks is looked for."""
        self._root, self._where, self._one_label = root, where, "label" not in declared
        self._numbered = ((number, line.strip()) for number, line in enumerate(_lines(file, where), 1))
        first = next(((number, line) for number, line in self._numbered if line), None)
        self._rest = chain([] if first is None else [first], self._numbered)
        self.names: Sequence[str] = [] if first is None else ["path", *self._label(first[1], declared)]

    def __iter__(self) -> Iterator[tuple[int, Sequence[Any]]]:
        labels = self.names[-1]
        for line, text in self._rest:
            if not text:
                continue
            if labels == "path":
                yield line, [text]
                continue
            path, label = _divided(text, self._root)
            if labels == "label" and self._one_label and "\t" in label:
                raise fault(
                    self._where,
                    line,
                    0,
                    "",
                    f"the label {shown(label)} contains a tab: a line of a plain list has a path and one label; with "
                    "more columns, save the list as .tsv, with a first line that names them, such as path, label; "
                    f"{opt.fields('label:str')} keeps all of it as one text",
                )
            yield line, [path, f"[{','.join(label.split())}]" if labels == "labels" and label else label]

    def _label(self, line: str, declared: Container[str]) -> list[str]:
        for name in ("label", "labels"):
            if name in declared:
                return [name]
        words = _divided(line, self._root)[1].split()
        several = len(words) > 1 and all(_INT.fullmatch(word) or _FLOAT.fullmatch(word) for word in words)
        return (["labels"] if several else ["label"]) if words else []


def begins_with_file(line: str, root: str) -> bool:
    """Whether the first line of a file is one of a plain list: a path that exists below `root`, perhaps a label."""
    path, label = _divided(line.strip(), root)
    return bool(path and label) and os.path.isfile(os.path.join(root, path))  # noqa: PTH113, PTH118 - as below


def _divided(line: str, root: str) -> tuple[str, str]:
    """The path and the label of a line: up to the first tab; without one, the shortest beginning that is a file."""
    path, tab, label = line.partition("\t")
    if tab or not (blanks := [found.start() for found in _BLANK.finditer(line)]):
        return path.strip(), label.strip()
    for end in (*blanks, len(line)):
        if os.path.isfile(os.path.join(root, line[:end])):  # noqa: PTH113, PTH118 - for each of a million
            return line[:end], line[end:].strip()
    return line[: blanks[0]], line[blanks[0] :].strip()


READERS: dict[str, Callable[[BinaryIO, str], ListingRows]] = {
    ".csv": partial(CellRows, delimiter=","),
    ".tsv": partial(CellRows, delimiter="\t"),
    ".jsonl": JsonRows,
    ".ndjson": JsonRows,
}
"""Suffix of a listing file with named columns -> what reads its rows."""
PLAIN_SUFFIX = ".txt"
"""Of a plain list, see `PlainRows`."""
SUFFIXES = (*READERS, PLAIN_SUFFIX)
"""How the names of listing files end."""


@contextmanager
def long_cells() -> Iterator[None]:
    """Meanwhile, `csv` accepts cells of any length."""
    before = csv.field_size_limit(_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


@dataclass(frozen=True)
class Beyond:
    """A number that is larger than any float64."""

    text: str

    def __repr__(self) -> str:
        return self.text

    def __float__(self) -> float:
        return float(self.text)


def of_cells(cells: Sequence[str]) -> list[Any]:
    """`of_cell` of each."""
    try:
        values = _decode_numbers(f"[{','.join(cells)}]")
    except msgspec.DecodeError:
        return [of_cell(cell) for cell in cells]
    # A cell with a comma gives several numbers.
    return values if len(values) == len(cells) else [of_cell(cell) for cell in cells]


def of_cell(cell: str) -> Any:
    """What a cell holds: None if it is empty, a bool, int, float or Beyond, a list, or the text itself.

    Digits after a leading zero are text: they name something.
    """
    text = cell.strip()
    if _INT.fullmatch(text):
        return int(text) if len(text) < _LONG else cell
    if not text:
        return None
    if text[0] == "[" and text[-1] == "]":
        return _list(text, cell)
    if _FLOAT.fullmatch(text) and not _LEADING_ZERO.match(text):
        return _float(text)
    return _BOOLS.get(text, cell)


def _list(text: str, cell: str) -> Any:
    """A JSON list, or the cell itself if it is not one. Python's own parser, which is slower, knows NaN."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        try:
            return json.loads(text, parse_float=_float)
        except (ValueError, RecursionError):
            return cell


def _float(text: str) -> float | Beyond:
    value = float(text)
    return Beyond(text) if math.isinf(value) and "n" not in text.lower() else value


def _lines(file: BinaryIO, where: str) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends; other bytes are faults."""
    start = file.read(3)
    for mark, encoding in _MARKS.items():
        if start.startswith(mark):
            cure = "tail -c +4 FILE > NEW" if encoding == "UTF-8" else f"iconv -f {encoding} -t UTF-8 FILE > NEW"
            what = f"the file begins with a byte order mark ({mark.hex(' ').upper()})"
            raise fault(where, 1, 1, "", f"{what}: save it as UTF-8 without one, as `{cure}` does")
    file.seek(0)
    for number, line in enumerate(file, 1):
        if b"\0" in line:
            raise fault(where, number, line.index(b"\0") + 1, "", "a NUL, which no text has: is the file damaged?")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            cure = "save the file as UTF-8, as `iconv -f latin1 -t UTF-8 FILE > NEW` does, if it is Latin-1"
            what = f"byte {line[error.start]:02X} is not UTF-8: {cure}"
            raise fault(where, number, error.start + 1, "", what) from None


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" for c in text)
