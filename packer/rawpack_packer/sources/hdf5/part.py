"""Columns of an HDF5 file, of which a worker reads the rows of its part."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import DecodeError
from rawpack.system.failure import is_no_fault_of_data
from rawpack_packer.errors import stop_if_of_any_file
from rawpack_packer.sources.axes import channels_last
from rawpack_packer.sources.fields import Value
from rawpack_packer.sources.files import MAX_FILE_BYTES, changed, check_path
from rawpack_packer.sources.hdf5.look import fault_of
from rawpack_packer.sources.hdf5.opening import (
    NUMBERS,
    TEXT,
    DataSet,
    chunk_rows,
    open_data_set,
    open_file,
    row_bytes,
    texts_of,
)
from rawpack_packer.sources.table.columns import rows_at
from rawpack_packer.text import plain

_BLOCK_BYTES = 8 << 20
_BLOCK_ROWS = 4096
_VLEN_ROWS = 32
"""Rows of a block where the size of a row is not known."""
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Hdf5File:
    """A file as it was when the source was opened."""

    path: str
    state: tuple[int, int]
    """Size in bytes and mtime in ns."""

    @property
    def name(self) -> str:
        """For messages, which name no absolute path."""
        return plain(Path(self.path).name)

    def check(self) -> None:
        """Raise SourceChangedError where the file is no longer the one that was opened."""
        check_path(self.path, self.state, self.name)


@dataclass(frozen=True, eq=False)
class Hdf5Column:
    """The rows of a data set, read in blocks when they are asked for."""

    file: Hdf5File
    data_set: DataSet
    rows: range | Rows
    kept: KeptOpen

    def value(self, i: int, /) -> Value:
        return self.kept.rows(self.file).value(self.data_set, int(self.rows[i]))

    def pick(self, rows: Rows, /) -> Hdf5Column:
        return replace(self, rows=rows_at(self.rows, rows))


@dataclass(frozen=True, eq=False)
class Hdf5Images:
    """The column of images: arrays, or image files."""

    column: Hdf5Column
    chw: bool
    """Whether the channels of arrays come first in the file."""

    def value(self, i: int, /) -> bytes | NDArray[Any]:
        file, row = self.column.file, int(self.column.rows[i])
        file.check()
        value = self.column.value(i)
        assert isinstance(value, np.ndarray | bytes)
        if self.column.data_set.holds == NUMBERS:
            assert isinstance(value, np.ndarray)
            return channels_last(value) if self.chw else value
        data = value if isinstance(value, bytes) else value.tobytes()
        if not data:
            raise DecodeError("empty", f"{file.name}, row {row}: there is no image")
        if len(data) > MAX_FILE_BYTES:
            raise DecodeError("too_large", f"{file.name}, row {row}: the image has {len(data):,} bytes")
        return data

    def pick(self, rows: Rows, /) -> Hdf5Images:
        return replace(self, column=self.column.pick(rows))


class _Rows:
    """Reads rows of one file, and keeps the last block of each data set, so that rows in order are read once."""

    def __init__(self, file: Hdf5File) -> None:
        self.of = file
        self._open: Any = None
        self._data_sets: dict[str, tuple[Any, int]] = {}
        """Name -> the data set, and the rows of a block."""
        self._blocks: dict[str, tuple[int, Any]] = {}
        """Name -> the first row of the last block, and its values."""

    def value(self, data_set: DataSet, row: int) -> Value:
        """The value of a row, which the caller may keep. Raises DecodeError where it cannot be read."""
        value = self._row(data_set, row)
        if data_set.holds == TEXT:
            (text,) = texts_of([value])
            if text is None:
                raise DecodeError("bad_field", f"{self.of.name}, {plain(data_set.name)}, row {row} is not UTF-8")
            return text
        if isinstance(value, np.void):
            return value.tobytes()
        array = np.array(value)
        return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))

    def _row(self, data_set: DataSet, row: int) -> Any:
        try:
            if data_set.name not in self._data_sets:
                self._data_sets[data_set.name] = self._opened(data_set)
            opened, count = self._data_sets[data_set.name]
            start, values = self._blocks.get(data_set.name, (0, ()))
            if not start <= row < start + len(values):
                start = row // count * count
                try:
                    values = opened[start : start + count]
                except (OSError, RuntimeError, ValueError):
                    # Others of its rows may be intact.
                    return opened[row]
                self._blocks[data_set.name] = start, values
            return values[row - start]
        except DecodeError:
            raise
        except Exception as error:  # h5py raises many types for broken files
            if is_no_fault_of_data(error):
                raise
            if isinstance(error, OSError):
                stop_if_of_any_file(error, self.of.name)
            what = f"{self.of.name}, {plain(data_set.name)}, row {row}"
            raise DecodeError("corrupt", f"{what} cannot be read: {fault_of(error, self.of.path)}") from None

    def _opened(self, data_set: DataSet) -> tuple[Any, int]:
        if self._open is None:
            self._open = open_file(self.of.path)
        opened = open_data_set(self._open, data_set.name)
        if opened.shape != data_set.shape:
            raise changed(self.of.name, f"{plain(data_set.name)} has another shape")
        if data_set.holds not in (NUMBERS, TEXT):
            return opened, _VLEN_ROWS
        count = min(max(_BLOCK_BYTES // max(row_bytes(opened), 1), 1), _BLOCK_ROWS)
        chunk = chunk_rows(opened)
        return opened, count // chunk * chunk or count


class KeptOpen:
    """Keeps a file open from one part to the next: a large chunk is inflated once, not for each part.

    The parts of one source share it in the process of the source, and the file is closed with the last of them: HDF5
    opens no file for writing that the same process has open. In a worker, all parts of a thread share one.
    """

    def __init__(self) -> None:
        self._rows: _Rows | None = None

    def __reduce__(self) -> tuple[Callable[[], KeptOpen], tuple[()]]:
        return _of_this_thread, ()

    def rows(self, file: Hdf5File) -> _Rows:
        """The rows of a file."""
        if self._rows is None or self._rows.of != file:
            self._rows = _Rows(file)
        return self._rows


_OPEN = threading.local()


def _of_this_thread() -> KeptOpen:
    kept: KeptOpen = _OPEN.__dict__.setdefault("kept", KeptOpen())
    return kept
