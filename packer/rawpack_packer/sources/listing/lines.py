"""Reads the rows and cells of a listing file: CSV, TSV, JSON Lines, a JSON list, and plain lists of paths; and names
the fault in one: the first that is found, with its line and column."""

from __future__ import annotations

import codecs
import csv
import json
import math
import os
import re
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, Literal

import msgspec
import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.errors import need, reason_of, stop_if_of_any_file
from rawpack_packer.options import opt
from rawpack_packer.sources.base import Rows
from rawpack_packer.sources.fields import FieldKind, PixelWord
from rawpack_packer.sources.files import UNKNOWN, parsing
from rawpack_packer.sources.inferred import first_pixels
from rawpack_packer.sources.inflation import parquet_batches
from rawpack_packer.sources.table.columns import NO_FILE, Files, Texts, joined, texts_of
from rawpack_packer.text import listed, plain

Unit = Literal["line", "row", "object"]
"""What messages count: the lines of a text file from 1, as editors do, with that of the names; or the rows of a Parquet
file or of a table in memory from 0, as everywhere else."""
_SHOWN = 40
_NAMED, _MISSING = 5, 1000
"""How many missing files a message names, and how many are counted before the search for others ends."""
_SEARCHED = 1000
"""Entries of a folder that are looked at for one with a missing file."""


class BadListingError(UsageError):
    """A listing has a fault and cannot be packed."""


def fault(where: str, line: int | str, column: int, name: str, what: str, *, file: str = "") -> BadListingError:
    """The error for a fault. where: the listing, printable. line: counted from 1, or "row 7"; 0 or "" for none.
    column: counted from 1; 0 for none. name: of the column. file: if it is not the listing itself."""
    return BadListingError(f"{where}: {_at(line, column, name, what, file)}")


def _at(line: int | str, column: int, name: str, what: str, file: str = "") -> str:
    """What is wrong, after its place in a listing: see `fault`."""
    place = [plain(file)] if file else []
    place += [line if isinstance(line, str) else f"line {line}"] if line else []
    place += [f"column {column}" if column else "column"] if column or (name and line) else []
    label = ", ".join(place) + (f" ({plain(name)})" if name else "")
    return f"{label}: {plain(what)}" if label else plain(what)


@dataclass(frozen=True)
class CellPosition:
    """A column, as faults name it."""

    where: str
    """The listing, printable."""
    name: str
    number: int
    """Counted from 1; 0 where columns have only names."""
    cells: bool
    """Whether values are the texts of cells, rather than of JSON's types."""
    unit: Unit = "line"
    commas: bool = False
    """Whether numbers may have decimal commas."""
    broken: Mapping[int, str] = field(default_factory=dict)
    """See `ListingRows`."""

    def at(self, line: int) -> str:
        """What messages call a line or row: "line 7"."""
        return f"{self.unit} {line}"

    def fault(self, line: int | None, what: str) -> BadListingError:
        """The error for a value of this column; None for the column itself."""
        return fault(self.where, "" if line is None else self.at(line), self.number, self.name, what)

    def empty(self, value: Any) -> bool:
        """Whether a value is missing; so is a cell that has only blanks."""
        return value is None or value == "" or (self.cells and value.isspace())

    def no_file(self, path: str, root: str) -> str:
        """What is said of a path at which there is no file. root: see `PathParser`."""
        if path[0] == "/":
            return f"there is no file {path}"
        bare = "" if os.path.splitext(path)[1] else f"; {opt.path_column(repr('{}.jpg'))} adds an extension to names"  # noqa: PTH122
        found = "" if ".." in path else _folder_with(path, root)  # a path that leads out is in no folder
        where = f"{opt.images} names another folder" if not found else f"{opt.images(shlex.quote(found))} has it"
        return f"there is no file {path} below {plain(root)} ({where}{bare})"

    @property
    def keep_texts(self) -> str:
        """The cure for a column whose values are not all numbers, or not all texts."""
        others = "" if self.cells else ", other than texts as JSON"
        return f"{opt.fields(f'{self.name}:str')} keeps all values as text{others}"


def _folder_with(path: str, root: str) -> str:
    """The first folder in `root`, a local one, in which this path is; "" if it is in none."""
    with suppress(OSError), os.scandir(root) as entries:
        folders = sorted(entry.path for entry in islice(entries, _SEARCHED) if entry.is_dir())
        return next((one for one in folders if os.path.isfile(os.path.join(one, path))), "")  # noqa: PTH113, PTH118
    return ""


def shown(value: Any) -> str:
    """A value in a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


_MARKS = (b"\xff\xfe", b"\xfe\xff")
"""Byte order marks of UTF-16."""
_LONGEST = 1 << 16
"""Bytes of a first line that are looked at."""
_CELL = 1 << 30
"""Characters that a cell may have; csv's own limit is 131,072, which the boxes of one image may exceed."""
_BATCH_ROWS = 8192
_FIRST = 100
"""Objects of JSON that say which names all have."""
_INT = re.compile(r"[+-]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
DECIMAL = re.compile(r"[+-]?[0-9]+,[0-9]+(?:[eE][+-]?[0-9]+)?")
"""A number with a decimal comma."""
_BLANK = re.compile(r" +")
LEADING_ZERO = re.compile(r"[+-]?0[0-9]")
"""How the digits of a name begin."""
_TEXT = re.compile(r'("(?:[^"\\]|\\.)*")\s*:\s*("(?:[^"\\]|\\.)*")')
"""A name and a text in a JSON object."""
_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_LONG = 1000
"""Digits that are no longer a number: Python itself refuses to read some thousands."""
_decode = msgspec.json.Decoder().decode
_decode_numbers = msgspec.json.Decoder(list[int | float | bool]).decode


@dataclass(frozen=True)
class ListingRows:
    """A listing that is being read."""

    cells: bool
    """Whether values are the texts of cells, rather than of JSON's types."""
    names: Sequence[str]
    """The names of the columns."""
    rows: Iterable[tuple[int, Sequence[Any]]]
    """Each row once: its number, of a text file that of its first line, and a value for each of `names`. Raises
    BadListingError."""
    unit: Unit = "line"
    commas: bool = False
    """Whether numbers may have decimal commas."""
    broken: dict[int, str] = field(default_factory=dict)
    """Of `rows`, those that are not whole, by their numbers, and why: once they are read."""


def read_cells(file: BinaryIO, where: str, delimiter: str) -> ListingRows:
    """CSV or TSV, with a line of names at the top, quoted as in RFC 4180. delimiter: if the names have it, or no other,
    as those of a .csv may, which Excel writes with semicolons."""
    lines = _lines(file, where)
    line = next(lines, "")
    between = next((mark for mark in (delimiter, ",", ";", "\t", "|") if mark in line), delimiter)
    rows = _cells(chain([line], lines), where, between)
    _, names = next(rows, (0, []))

    def checked() -> Iterator[tuple[int, list[str]]]:
        for line, row in rows:
            if len(row) != len(names):
                what = f"{len(row)} values, but the first line names {len(names)} columns"
                broken[line] = _at(line, min(len(row), len(names)) + 1, "", what)
                row = [*row, *[""] * len(names)][: len(names)]
            yield line, row

    broken = dict[int, str]()
    return ListingRows(True, names, checked(), commas=between == ";", broken=broken)


def _cells(lines: Iterable[str], where: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Each row with the number of its first line, without empty lines."""
    reader = csv.reader(lines, delimiter=delimiter, strict=True, skipinitialspace=delimiter == "|")
    line = 1
    try:
        for row in reader:
            if row:
                yield line, row
            line = reader.line_num + 1
    except csv.Error as error:
        what = "end lines with LF or CR LF, not with CR alone"
        if "new-line" not in str(error):
            what = "is a quote not closed, or not doubled?"
        raise fault(where, line, 1, "", f"{error}: {what}") from error


def read_json_lines(file: BinaryIO, where: str) -> ListingRows:
    """One JSON object per line."""
    return _by_name(enumerate(_lines(file, where), 1), where)


def read_json_list(file: BinaryIO, where: str) -> ListingRows:
    """A list of JSON objects, which is all of the file."""
    data = b"".join(line.encode() for line in _lines(file, where))
    try:
        texts = msgspec.json.decode(data, type=list[msgspec.Raw])
    except (msgspec.DecodeError, RecursionError) as error:
        raise fault(where, 0, 0, "", f"is not a list of JSON objects, [{{...}}, {{...}}]: {error}") from error

    lines, at, line = list[int](), 0, 1
    for text in map(bytes, texts):
        start = data.index(text, at)
        lines.append(line := line + data.count(b"\n", at, start))
        line, at = line + text.count(b"\n"), start + len(text)
    objects = [bytes(text).decode() for text in texts]
    if len({*lines}) < len(lines):  # a line says of several what is wrong with one
        return _by_name(enumerate(objects, 1), where, "object")
    return _by_name(zip(lines, objects, strict=True), where)


def _by_name(texts: Iterable[tuple[int, str]], where: str, unit: Unit = "line") -> ListingRows:
    """Rows of JSON objects. Most of the first ones say which names there are. Raises BadListingError where none of
    these is an object."""
    broken = dict[int, str]()
    objects = _objects(texts, unit, broken)
    first = list(islice(objects, _FIRST))
    sets = Counter(frozenset(row) for line, _, row in first if line not in broken)
    if broken and not sets:
        raise BadListingError(f"{where}: {next(iter(broken.values()))}")
    most = sets.most_common(1)[0][0] if sets else None
    names = next((list(row) for line, _, row in first if line not in broken and row.keys() == most), [])

    def checked() -> Iterator[tuple[int, list[Any]]]:
        for line, text, row in chain(first, objects):
            if line not in broken and row.keys() != set(names):
                missing = [name for name in names if name not in row]
                what = "is not in other lines: all lines need the same names"
                if missing:
                    what = "is missing, but other lines have it (null is an empty value)"
                broken[line] = _at(
                    f"{unit} {line}", 0, [*missing, *(name for name in row if name not in names)][0], what
                )
            if line in broken:
                row = row or _texts_in(text)
            yield line, [*map(row.get, names)]

    return ListingRows(False, names, checked(), unit, broken=broken)


def _objects(
    texts: Iterable[tuple[int, str]], unit: Unit, broken: dict[int, str]
) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Each line that is not empty: its number, its text, and the object. broken: gets those without an object."""
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for number, line in texts:
        if not line.strip():
            continue
        try:
            row: dict[str, Any] | str = decode(line)
        except (msgspec.DecodeError, RecursionError):
            row = _object(line, f"{unit} {number}")
        if isinstance(row, str):
            broken[number], row = row, {}
        yield number, line, row


def _object(line: str, place: str) -> dict[str, Any] | str:
    """By Python's own parser, which knows NaN and says where an error is; or what is wrong. place: "line 7"."""
    try:
        row = json.loads(line, parse_float=_float)
    except json.JSONDecodeError as error:
        return _at(place, error.colno, "", f"is not JSON: {error.msg}")
    except (RecursionError, ValueError):
        return _at(place, 1, "", "is nested too deeply, or has a number of thousands of digits")
    if not isinstance(row, dict):
        return _at(place, 1, "", "is not a JSON object: {...}")
    for name, value in row.items():
        if isinstance(value, str) and any("\ud800" <= c <= "\udfff" for c in value):
            return _at(place, 0, name, "half of a surrogate pair cannot be stored as UTF-8")
    return row


def _texts_in(line: str) -> dict[str, str]:
    """The texts in what is no JSON object, by the names before them: the first of each."""
    texts = dict[str, str]()
    for pair in _TEXT.findall(line):
        with suppress(msgspec.DecodeError):
            name, text = map(_decode, pair)
            texts.setdefault(name, text)
    return texts


def read_plain(file: BinaryIO, where: str, root: str, declared: Container[str]) -> ListingRows:
    """A plain list: a path in each line, perhaps a blank or a tab and a label, without a line of names.

    The first line decides whether there are labels, and whether each is one value, `label`, or several numbers,
    `labels`. A field that the user declares by one of these names decides instead. root: the folder that relative paths
    start from, where a path with blanks is looked for.
    """
    texts = ((number, line.strip()) for number, line in enumerate(_lines(file, where), 1))
    texts = ((number, line) for number, line in texts if line)
    first = list(islice(texts, 1))
    label = next((name for name in ("label", "labels") if name in declared), None)
    if label is None and first and (words := _divided(first[0][1], root)[1].split()):
        several = len(words) > 1 and all(_INT.fullmatch(word) or _FLOAT.fullmatch(word) for word in words)
        label = "labels" if several else "label"

    def divided() -> Iterator[tuple[int, list[str]]]:
        for line, text in chain(first, texts):
            if label is None:
                yield line, [text]
                continue
            path, value = _divided(text, root)
            if label == "label" and label not in declared and "\t" in value:
                what = (
                    f"the label {shown(value)} contains a tab: with more columns, save the list as .tsv, with a first "
                    f"line that names them, such as path, label; {opt.fields('label:str')} keeps all of it as one text"
                )
                raise fault(where, line, 0, "", what)
            yield line, [path, f"[{','.join(value.split())}]" if label == "labels" and value else value]

    names = ["path", *([] if label is None else [label])]
    return ListingRows(True, names if first else [], divided())


def _divided(line: str, root: str) -> tuple[str, str]:
    """The path and the label of a line: up to the first tab; without one, the shortest beginning that is a file."""
    path, tab, label = line.partition("\t")
    if tab or not (blanks := [found.start() for found in _BLANK.finditer(line)]):
        return path.strip(), label.strip()
    for end in (*blanks, len(line)):
        if os.path.isfile(os.path.join(root, line[:end])):  # noqa: PTH113, PTH118 - for each of a million
            return line[:end], line[end:].strip()
    return line[: blanks[0]], line[blanks[0] :].strip()


def read_parquet(file: BinaryIO, where: str) -> ListingRows:
    """The rows of a Parquet file, with values as JSON has them. Raises UsageError, MissingExtraError."""
    library = need("pyarrow.parquet", "parquet", where)
    with parsing(where, where, "Parquet"):
        parquet = library.ParquetFile(file)
        size = file.seek(0, os.SEEK_END)

    def rows() -> Iterator[Sequence[Any]]:
        with parsing(where, where, "Parquet"):
            for batch in parquet_batches(parquet, size, _BATCH_ROWS):
                yield from zip(*batch.to_pydict().values(), strict=True)

    return ListingRows(False, parquet.schema_arrow.names, enumerate(rows()), "row")


USUAL = {".csv": ",", ".tsv": "\t"}
"""What is between values, by the suffix of a file."""
READERS: dict[str, Callable[[BinaryIO, str], ListingRows]] = {
    **{suffix: partial(read_cells, delimiter=delimiter) for suffix, delimiter in USUAL.items()},
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".json": read_json_list,
}
"""Suffix of a text file with named columns -> what reads its rows, also those of its beginning."""
NAMED_READERS = {**READERS, ".parquet": read_parquet}
"""The same of all files with named columns."""
PLAIN_SUFFIX = ".txt"
"""Of a plain list, see `read_plain`."""
SUFFIXES = (*NAMED_READERS, PLAIN_SUFFIX)
"""How the names of listing files end."""


def rows_of(suffix: str, file: BinaryIO, where: str, root: str, declared: Container[str]) -> ListingRows:
    """The rows of a listing whose name ends in `suffix`. Raises UsageError; MissingExtraError for Parquet."""
    if suffix not in READERS and suffix != PLAIN_SUFFIX:
        return NAMED_READERS[suffix](file, where)
    line = file.readline(_LONGEST).decode("utf-8-sig", "replace")
    file.seek(0)
    if suffix == PLAIN_SUFFIX:
        return read_plain(file, where, root, declared)
    if USUAL.get(suffix, ",") not in line:  # some tools call a plain list .csv
        path, label = _divided(line.strip(), root)
        if path and label and os.path.isfile(os.path.join(root, path)):  # noqa: PTH113, PTH118 - as above
            return read_plain(file, where, root, declared)
    return READERS[suffix](file, where)


@contextmanager
def long_cells() -> Iterator[None]:
    """Meanwhile, `csv` accepts cells of any length."""
    before = csv.field_size_limit(_CELL)
    try:
        yield
    finally:
        csv.field_size_limit(before)


class Beyond(float):
    """Infinity, as a number was read that is larger than any float64."""


def of_cells(cells: Sequence[str]) -> list[Any]:
    """What cells hold, see `_of_cell`."""
    text = f"[{','.join(cells)}]"
    # Without quotes, and with as many brackets of either kind in each cell, no list begins in one and ends in another.
    lists = '"' not in text and all(c[:1] == "[" and c[-1:] == "]" and c.count("[") == c.count("]") for c in cells)
    try:
        values: list[Any] = _decode(text) if lists else _decode_numbers(text)
    except (msgspec.DecodeError, RecursionError):
        values = []
    # A cell with a comma gives several values.
    return values if len(values) == len(cells) else [_of_cell(cell) for cell in cells]


def _of_cell(cell: str) -> Any:
    """What a cell holds: None if it is empty, a bool, int, float or Beyond, a list, or the text itself.

    Digits after a leading zero are text: they name something.
    """
    text = cell.strip()
    if _INT.fullmatch(text):
        return int(text) if len(text) < _LONG else cell
    if not text:
        return None
    if text[0] == "[" and text[-1] == "]":
        with suppress(msgspec.DecodeError, RecursionError):
            return _decode(text)
        with suppress(ValueError, RecursionError):
            return json.loads(text, parse_float=_float)  # which is slower, and knows NaN
        return cell
    if _FLOAT.fullmatch(text) and not LEADING_ZERO.match(text):
        return _float(text)
    return _BOOLS.get(text, cell)


def _float(text: str) -> float:
    value = float(text)
    return Beyond(value) if math.isinf(value) and "n" not in text.lower() else value


def _lines(file: BinaryIO, where: str) -> Iterator[str]:
    """The lines of a UTF-8 file with their ends; other bytes are faults."""
    start = file.read(len(codecs.BOM_UTF8))
    if start.startswith(_MARKS):
        what = f"the file is UTF-16, by its byte order mark ({start[:2].hex(' ').upper()})"
        raise fault(where, 1, 1, "", f"{what}: save it as UTF-8, as `iconv -f UTF-16 -t UTF-8 FILE > NEW` does")
    if start != codecs.BOM_UTF8:
        file.seek(0)
    for number, line in enumerate(file, 1):
        if b"\0" in line:
            raise fault(where, number, line.index(b"\0") + 1, "", "a NUL, which no text has: is the file damaged?")
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            cure = "save the file as UTF-8, as `iconv -f latin1 -t UTF-8 FILE > NEW` does, if it is Latin-1"
            what = f"byte {line[error.start]:02X} is not UTF-8: {cure}"
            raise fault(where, number, error.start + 1, "", what) from error


class PathParser:
    """Takes the paths of images, first or further ones, or of masks. Those of missing files are reported together."""

    def __init__(self, place: CellPosition, root: str, within: Sequence[str] = (), trusting: str = "") -> None:
        """root: the folder that relative paths start from. within: folders that paths must not lead out of; links are
        followed, as everywhere. trusting: what a user types who trusts the file with the paths."""
        self.place, self._root, self._trusting = place, root, trusting
        self._within = tuple(os.path.join(os.path.normpath(folder), "") for folder in within)  # noqa: PTH118
        self._below = os.path.join(root, "")  # noqa: PTH118
        self._paths: list[Texts] = []
        self._states: list[NDArray[np.int64]] = []
        self._missing: list[tuple[str, int]] = []
        self._faults, self._rows = dict[int, str](), 0

    def add(self, values: Sequence[Any], lines: Rows) -> None:
        if self.place.broken and (broken := [k for k, n in enumerate(lines.tolist()) if n in self.place.broken]):
            values = [value if isinstance(value, str) or k not in broken else "" for k, value in enumerate(values)]
            self._faults |= {self._rows + k: self.place.broken[int(lines[k])] for k in broken}
        states = [
            (NO_FILE, 0) if row in self._faults else self.state(value, line)
            for row, (value, line) in enumerate(zip(values, lines.tolist(), strict=True), self._rows)
        ]
        self._rows += len(states)
        self._paths.append(texts_of(values))
        self._states.append(np.array(states, np.int64).reshape(-1, 2))

    def check(self) -> None:
        """Raise BadListingError where files are missing."""
        if self._missing:
            path, line = self._missing[0]
            names = [one for one, _ in self._missing]
            least = "at least " if len(names) == _MISSING else ""
            more = f"; {least}{len(names):,} files are missing: {listed(names, _NAMED)}" if len(names) > 1 else ""
            raise self.place.fault(line, self.place.no_file(path, self._root) + more)

    def files(self) -> Files:
        """All of them. Raises as `check`."""
        self.check()
        return Files(self._root, joined(self._paths), np.concatenate(self._states), self._faults)

    def finish(self, word: PixelWord) -> tuple[FieldKind, Files]:
        """Masks or further images, and what they are, as the first one."""
        files = self.files()
        try:
            kind = first_pixels(word, self.place.name, files.value, range(len(files.paths)))
        except UsageError as error:
            raise self.place.fault(None, f"{files.paths.value(0)}: {error}") from error
        return kind, files

    def state(self, path: Any, line: int) -> tuple[int, int]:
        """Size and mtime of a file, `UNKNOWN` of a missing one. Raises BadListingError for what is no file."""
        if not isinstance(path, str) or not path or "\0" in path:
            what = "is empty" if path is None or path == "" else f"{path!r} is not a path"
            raise self.place.fault(line, f"{what}: give the path of a file")
        suspect = self._within and (path[0] == "/" or ".." in path)
        if suspect and not os.path.normpath(os.path.join(self._root, path)).startswith(self._within):  # noqa: PTH118
            raise self.place.fault(
                line,
                f"{path} leads out of {plain(os.path.normpath(self._within[0]))}, so that any image of this machine "
                f"could get into the store; if you trust this file, {self._trusting}",
            )
        try:
            found = os.stat(path if path[0] == "/" else self._below + path)  # noqa: PTH116 - for each of a million
        except FileNotFoundError:
            self._missing.append((path, line))
            if len(self._missing) == _MISSING:
                self.check()
            return UNKNOWN
        except OSError as error:
            stop_if_of_any_file(error, path)
            raise self.place.fault(line, f"{path} cannot be read: {reason_of(error)}") from error
        if not stat.S_ISREG(found.st_mode):
            raise self.place.fault(line, f"{path} is a {'folder' if stat.S_ISDIR(found.st_mode) else 'special file'}")
        return found.st_size, found.st_mtime_ns


def folder_of(images: str | os.PathLike[str] | None, default: Path) -> str:
    """The folder that relative paths start from. Raises UsageError if there is none."""
    folder = default if images is None else Path(images).absolute()
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {plain(os.fsencode(folder))}: {opt.images} names the folder of the images"
        )
    return str(folder)


def state_of(file: Path | BinaryIO, declared: str) -> NDArray[np.int64]:
    """What `Source.states` holds for a listing: (1, 2), its size, and a hash of its bytes and of what was declared."""
    digest = xxhash.xxh3_64(declared.encode("utf-8", "surrogatepass"))
    with file.open("rb") if isinstance(file, Path) else nullcontext(file) as opened:
        size = opened.seek(0)
        while data := opened.read(1 << 20):
            digest.update(data)
            size += len(data)
    return np.array([[size, digest.intdigest() - (1 << 63)]], np.int64)
