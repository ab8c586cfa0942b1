"""The rows of tables that a worker reads, as samples."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack_packer.sources.base import Item, check_part, check_sample, numbered
from rawpack_packer.sources.fields import Boxes, FieldKind, Value, as_text
from rawpack_packer.sources.files import MAX_FILE_BYTES, UNKNOWN, read_file
from rawpack_packer.sources.parquet.columns import LABEL, TableColumns, number_dtype
from rawpack_packer.sources.parquet.tables import Leaf, TableFile, cursor_of
from rawpack_packer.sources.table.columns import Texts
from rawpack_packer.text import plain

if TYPE_CHECKING:
    import pyarrow as pa

Rows = NDArray[np.int64]
_JSON = (dict, list, tuple, bool, int, float)


@dataclass(frozen=True)
class RowSpan:
    """Consecutive rows of a file."""

    file: TableFile
    start: int
    stop: int


@dataclass(frozen=True, eq=False)
class ParquetPart:
    """Some rows of a source, in its order."""

    spans: tuple[RowSpan, ...]
    columns: TableColumns
    keys: Texts | None
    """None where samples have no names."""
    first: int
    """The number of the first sample in the source."""
    labels: Rows | None
    outside: Mapping[int, tuple[int, int]]
    """Number of a sample in the source -> size and mtime of the file that is its image, next to that of the table."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "_ends", list(accumulate((one.stop - one.start for one in self.spans), initial=0)))

    def __len__(self) -> int:
        ends: list[int] = self._ends  # type: ignore[attr-defined]
        return ends[-1]

    def __getitem__(self, i: int, /) -> Item:
        key = self.key(i)
        file, row = self.at(i)
        file.check()
        batch, at = cursor_of(file, self._leaves()).row(row)
        place = f"{file.name}, row {row}"
        image = self._image(i, file, batch.column(self.columns.image), at, place)
        fields: dict[str, Value] = {} if self.labels is None else {LABEL: int(self.labels[i])}
        for name, kind in self.columns.fields.items():
            if name in batch.schema.names:
                fields[name] = value_of(batch.column(name), at, kind, f"{place}, column {plain(name)}")
        return Item(key, image, fields)

    def key(self, i: int, /) -> str:
        """The path of the image, the value of the key column, or the number of the row."""
        check_sample(self, i)
        return numbered(self.first + i) if self.keys is None else self.keys.value(i)

    def part(self, start: int, stop: int, /) -> ParquetPart:
        """See `Source.part`."""
        check_part(self, start, stop)
        ends: list[int] = self._ends  # type: ignore[attr-defined]
        spans = tuple(
            RowSpan(one.file, one.start + max(start - begin, 0), one.start + min(stop - begin, one.stop - one.start))
            for one, begin, end in zip(self.spans, ends, ends[1:], strict=False)
            if begin < stop and end > start
        )
        first, last = self.first + start, self.first + stop
        return ParquetPart(
            spans,
            self.columns,
            None if self.keys is None else self.keys.pick(np.arange(start, stop)),
            first,
            None if self.labels is None else self.labels[start:stop],
            {row: state for row, state in self.outside.items() if first <= row < last},
        )

    def at(self, i: int) -> tuple[TableFile, int]:
        """The file of sample i, and its row there."""
        ends: list[int] = self._ends  # type: ignore[attr-defined]
        k = bisect_right(ends, i) - 1
        return self.spans[k].file, self.spans[k].start + i - ends[k]

    def _leaves(self) -> tuple[Leaf, ...]:
        return (*self.columns.image_leaves(), *((name, None) for name in self.columns.fields))

    def _image(self, i: int, file: TableFile, column: pa.Array, at: int, place: str) -> bytes:
        found = _python(column, at, place)
        if isinstance(found, dict):
            image, path = found.get("bytes"), found.get("path")
            if image is None and isinstance(path, str):
                if not is_below(path):
                    raise DecodeError("unreadable", f"{place}: {plain(path)} is not below the folder of {file.name}")
                state = self.outside.get(self.first + i, UNKNOWN)
                return read_file(os.path.join(os.path.dirname(file.path), path), path, state)  # noqa: PTH118, PTH120
        else:
            image = found
        if not image:
            raise DecodeError("empty", f"{place}: there is no image")
        if len(image) > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"{place}: the image has {len(image)} bytes: no decoder takes 2 GiB or more")
        return bytes(image)


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


def spans_of(files: Sequence[TableFile]) -> tuple[RowSpan, ...]:
    """All rows of files."""
    return tuple(RowSpan(file, 0, file.rows) for file in files if file.rows)
