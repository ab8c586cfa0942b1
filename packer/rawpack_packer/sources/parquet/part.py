"""Columns of tables that are read with their images: a worker reads the rows of its part in batches."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.fields import Boxes, FieldKind, Value, as_text
from rawpack_packer.sources.files import MAX_FILE_BYTES, UNKNOWN, read_file
from rawpack_packer.sources.parquet.columns import number_dtype
from rawpack_packer.sources.parquet.tables import Leaf, TableFile, cursor_of
from rawpack_packer.sources.table.columns import rows_at
from rawpack_packer.text import plain

if TYPE_CHECKING:
    import pyarrow as pa

Rows = NDArray[np.int64]
_JSON = (dict, list, tuple, bool, int, float)


@dataclass(frozen=True)
class ArrowRows:
    """Rows of files, in their order, of which each batch is read once for all columns."""

    files: tuple[TableFile, ...]
    starts: tuple[int, ...]
    """The number of the first row of each file."""
    rows: range | Rows
    leaves: tuple[Leaf, ...]
    """What is read of each row."""

    def at(self, i: int) -> tuple[TableFile, int, int]:
        """The file of row i, its position there, and its number."""
        number = int(self.rows[i])
        k = bisect_right(self.starts, number) - 1
        return self.files[k], number - self.starts[k], number

    def batch(self, i: int) -> tuple[pa.RecordBatch, int, str]:
        """A batch, which of its rows is row i, and the row in messages. Raises DecodeError where it cannot be read."""
        file, row, _ = self.at(i)
        batch, at = cursor_of(file, self.leaves).row(row)
        return batch, at, f"{file.name}, row {row}"

    def pick(self, at: Rows) -> ArrowRows:
        """The rows at these positions, and the files that hold them."""
        rows = rows_at(self.rows, at)
        if not len(rows):
            return replace(self, files=(), starts=(), rows=rows)
        first, last = (bisect_right(self.starts, int(rows[end])) - 1 for end in (0, -1))
        return replace(self, files=self.files[first : last + 1], starts=self.starts[first : last + 1], rows=rows)


@dataclass(frozen=True, eq=False)
class ArrowImages:
    """The column of images: bytes, or structs of bytes and path."""

    rows: ArrowRows
    name: str
    outside: Mapping[int, tuple[int, int]]
    """Number of a row -> size and mtime of the file that is its image, next to that of the table."""

    def value(self, i: int, /) -> bytes:
        file, _, number = self.rows.at(i)
        file.check()
        batch, at, place = self.rows.batch(i)
        found = _python(batch.column(self.name), at, place)
        if isinstance(found, dict):
            image, path = found.get("bytes"), found.get("path")
            if image is None and isinstance(path, str):
                if not is_below(path):
                    raise DecodeError("unreadable", f"{place}: {plain(path)} is not below the folder of {file.name}")
                state = self.outside.get(number, UNKNOWN)
                return read_file(os.path.join(os.path.dirname(file.path), path), path, state)  # noqa: PTH118, PTH120
        else:
            image = found
        if not image:
            raise DecodeError("empty", f"{place}: there is no image")
        if len(image) > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"{place}: the image has {len(image)} bytes: no decoder takes 2 GiB or more")
        return bytes(image)

    def pick(self, rows: Rows, /) -> ArrowImages:
        found = self.rows.pick(rows)
        outside = {row: self.outside[row] for row in found.rows if row in self.outside} if self.outside else {}
        return ArrowImages(found, self.name, outside)

    def image_file(self, i: int, /) -> None:
        """See `HasImageFiles`: only what is before an image says where it is."""

    def all_states(self) -> Rows:
        """Of the files; before them, of each sample its file or its own image, if any image is a file."""
        files = np.array([file.state for file in self.rows.files], np.int64)
        if not self.outside and len(files) < len(self.rows.rows):
            return files
        of_samples = np.repeat(files, [file.rows for file in self.rows.files], axis=0)
        for row, state in self.outside.items():
            of_samples[row] = state
        return np.concatenate([of_samples, files])


@dataclass(frozen=True, eq=False)
class ArrowColumn:
    """A column that becomes a field."""

    rows: ArrowRows
    name: str
    kind: FieldKind | None
    """None for a mask."""

    def value(self, i: int, /) -> Value:
        batch, at, place = self.rows.batch(i)
        return value_of(batch.column(self.name), at, self.kind, f"{place}, column {plain(self.name)}")

    def pick(self, rows: Rows, /) -> ArrowColumn:
        return replace(self, rows=self.rows.pick(rows))


def is_below(path: str) -> bool:
    """Whether an untrusted path stays in its folder."""
    parts = path.replace("\\", "/").split("/")
    return bool(parts[0]) and "\0" not in path and ".." not in parts and ":" not in parts[0]


def value_of(column: pa.Array, at: int, kind: FieldKind | None, place: str) -> Value:
    """A value of a column. A missing one is NaN, the empty text, or an array of length 0.

    kind: of its field; None for a mask. Raises DecodeError for a value that none of its field is.
    """
    found = _python(column, at, place)
    if kind is None or kind.mask:
        mask = found.get("bytes") if isinstance(found, dict) else found
        if not mask:
            raise DecodeError("bad_field", f"{place}: there is no mask")
        return bytes(mask)
    if kind.dtype == "str":
        if isinstance(found, bytes):
            try:
                return found.decode()
            except UnicodeDecodeError as error:
                raise DecodeError("bad_field", f"{place}: byte {error.start} is not UTF-8") from None
        # Dates and decimals as Python writes them.
        return as_text(found if found is None or isinstance(found, _JSON) else str(found))
    if found is None and kind.ragged:
        found = []
    if found is None and kind.dtype.startswith("float") and not kind.shape:
        return np.array(np.nan, kind.dtype)
    if found is None:
        raise DecodeError("bad_field", f"{place}: the value is missing")
    try:
        array = np.array(found, _numbers(column.type))
    except (TypeError, ValueError, OverflowError) as error:
        raise DecodeError("bad_field", f"{place}: it is no array of numbers: {plain(str(error))[:200]}") from None
    if kind.ragged and not array.size and array.ndim <= 1:
        array = np.zeros((0, *(n or 0 for n in kind.shape[1:])), array.dtype)
    return array if kind.boxes is None else Boxes(array, kind.boxes)


def _numbers(type_: pa.DataType) -> Any:
    """The dtype of the numbers of a column; None where it has none."""
    import pyarrow as pa

    while not pa.types.is_primitive(type_):
        if isinstance(type_, pa.BaseExtensionType):
            type_ = type_.storage_type
        elif hasattr(type_, "value_type"):
            type_ = type_.value_type
        else:
            return None
    return number_dtype(type_) or type_.to_pandas_dtype()


def _python(column: pa.Array, at: int, place: str) -> Any:
    """A value as Python has it. Raises DecodeError for text that is not UTF-8."""
    try:
        return column[at].as_py()
    except UnicodeDecodeError as error:
        raise DecodeError("bad_field", f"{place}: byte {error.start} of the text is not UTF-8") from None
