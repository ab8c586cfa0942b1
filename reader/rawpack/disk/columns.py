"""Columns: the small fields of all samples, and the index of where each image is stored.

A folder of columns has one `.npy` file for each number field, `<field>.npy` and `<field>.offset.npy` for each text or
ragged field, and for each image or mask the files that its encoding needs:

| file | dtype, shape | contents | where |
|---|---|---|---|
| `<image>.xxh3.npy` | uint64 (rows,) | xxh3_64 of the sample's stored bytes | always |
| `<image>.offset.npy` | int64 (rows,) | offset of these bytes | sizes differ, or JPEG or PNG files |
| `<image>.bytes.npy` | int64 (rows,) | number of these bytes | as above |
| `<image>.shape.npy` | int32 (rows, 3) | shape of the sample | sizes differ |
| `<image>.chunk.npy` | int64 (chunks, 2) | offset and bytes of each chunk, shard after shard | compressed |
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rawpack.disk import npy
from rawpack.disk.manifest import Columns, Field, Manifest
from rawpack.disk.mapped import MappedFiles, check_contents, map_file
from rawpack.errors import DamagedStoreError

T = TypeVar("T")
Array = NDArray[Any]
Rows = Sequence[int] | NDArray[np.int64]
_decode_texts = msgspec.json.Decoder(list[str]).decode


def files_of(name: str, field: Field, rows: int, chunks: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The column files of a field: file name -> (dtype, shape). -1 is a length that depends on the contents."""
    if field.kind == "number":
        return {f"{name}.npy": (field.dtype, (rows, *(n or 0 for n in field.shape)))}
    if field.kind == "text":
        return {f"{name}.npy": ("uint8", (-1,)), f"{name}.offset.npy": ("int64", (rows + 1,))}
    if field.kind == "ragged":
        row = tuple(n or 0 for n in field.shape[1:])
        return {f"{name}.npy": (field.dtype, (-1, *row)), f"{name}.offset.npy": ("int64", (rows + 1,))}
    index: dict[str, tuple[str, tuple[int, ...]]] = {
        "shape": ("int32", (rows, len(field.shape))),
        "offset": ("int64", (rows,)),
        "bytes": ("int64", (rows,)),
        "chunk": ("int64", (chunks, 2)),
    }
    return {f"{name}.xxh3.npy": ("uint64", (rows,))} | {f"{name}.{part}.npy": index[part] for part in field.index}


def runs_of(manifest: Manifest) -> Iterator[tuple[Columns, dict[str, int]]]:
    """Each folder of columns, with the number of compressed chunks of each field in its samples. Raises
    DamagedStoreError where a folder does not end at the end of a shard."""
    shards = iter(manifest.shards)
    for columns in manifest.columns:
        covered, chunks = 0, dict.fromkeys(manifest.fields, 0)
        while covered < columns.rows:
            shard = next(shards)
            covered += shard.rows
            for name, placement in shard.fields.items():
                chunks[name] += placement.chunks
        if covered != columns.rows:
            raise DamagedStoreError(f"{columns.folder} does not end at the end of a shard")
        yield columns, chunks


def open_field(
    folder: Path, columns: Columns, name: str, field: Field, chunks: int, mapped: MappedFiles | None = None
) -> dict[str, Array]:
    """The mapped columns of one field in `folder`, by file name without `.npy`. mapped: notes the files, to check them
    later.

    Raises DamagedStoreError where size or header of a file are not as the manifest says.
    """
    records, arrays = {record.name: record for record in columns.files}, dict[str, Array]()
    for file, (dtype, shape) in files_of(name, field, columns.rows, chunks).items():
        if file not in records:
            raise DamagedStoreError(f"{folder} has no {file}, which field {name} needs")
        array = npy.array(map_file(folder, records[file], mapped=mapped), str(folder / file))
        expected = tuple(have if want == -1 else want for want, have in zip(shape, array.shape, strict=False))
        if array.dtype.name != dtype or array.shape != expected or array.ndim != len(shape):
            raise DamagedStoreError(f"{folder / file} contains {array.dtype} {array.shape}; {dtype} {shape} was packed")
        arrays[file.removesuffix(".npy")] = array
    if field.kind in ("text", "ragged"):
        offsets, length = arrays[f"{name}.offset"], len(arrays[name])
        first, last = int(offsets[0]), int(offsets[-1])
        if (first, last) != (0, length):
            raise DamagedStoreError(
                f"{folder / name}.offset.npy begins with {first} and ends with {last}; "
                f"its column goes from 0 to {length}"
            )
    return arrays


class ColumnFolder:
    """The mapped columns of one run of samples. `arrays` maps file names without `.npy` to arrays."""

    def __init__(
        self, store: Path, columns: Columns, manifest: Manifest, chunks: dict[str, int], mapped: MappedFiles
    ) -> None:
        folder = store / columns.folder
        self.folder, self.rows, self.files = folder, columns.rows, columns.files
        self.arrays: dict[str, Array] = {}
        self._mapped, self._paths = mapped, dict[str, list[str]]()
        self._lists = {name for name, field in manifest.fields.items() if field.is_texts}
        for name, field in manifest.fields.items():
            arrays = open_field(folder, columns, name, field, chunks.get(name, 0), mapped)
            self.arrays |= arrays
            self._paths[name] = [str(folder / f"{file}.npy") for file in arrays]

    def look(self, name: str) -> None:
        """Raise DamagedStoreError where a file of field `name` was written to since; see `MappedFiles`."""
        for path in self._paths.get(name, ()):
            self._mapped.check(path)

    def text(self, name: str, rows: Rows) -> list[Any]:
        """The texts of field `name` at `rows` of this folder: a str each, or a list of str."""
        decode, what = (_decode_texts, "a list of texts") if name in self._lists else (bytes.decode, "UTF-8")
        texts = []
        for row, data in zip(rows, self.ragged(name, rows), strict=True):
            try:
                texts.append(decode(data.tobytes()))
            except (UnicodeDecodeError, msgspec.DecodeError) as error:
                raise DamagedStoreError(f"{self.folder}: {name} of row {row} is not {what}") from error
        return texts

    def ragged(self, name: str, rows: Rows) -> list[Array]:
        """The ragged field `name`, or the bytes of a text, at `rows` of this folder: (n, ...) each, read-only views of
        the column between two offsets."""
        offsets, data = self.arrays[f"{name}.offset"], self.arrays[name]
        runs: dict[int, Array] = {}
        size = 0
        for row in map(int, rows):
            if row in runs:
                continue
            start, stop = int(offsets[row]), int(offsets[row + 1])
            size += stop - start
            # Different rows never overlap in an intact column. In a hostile one, they could demand unlimited memory.
            if not 0 <= start <= stop <= len(data) or size > len(data):
                raise DamagedStoreError(f"{self.folder}: {name} of row {row} is not in its column")
            runs[row] = data[start:stop]
        return [runs[int(row)] for row in rows]


class ColumnTable:
    """The columns of one or more stores, in all of their folders of columns."""

    def __init__(self, folders: Sequence[ColumnFolder]) -> None:
        self.folders = list(folders)
        self._ends = np.cumsum([folder.rows for folder in self.folders], dtype=np.int64)
        self._firsts: list[int] = [0, *self._ends.tolist()[:-1]]

    @classmethod
    def open(cls, store: Path, manifest: Manifest, mapped: MappedFiles) -> ColumnTable:
        """Those of a store. mapped: notes the files, to check them later."""
        return cls([ColumnFolder(store, columns, manifest, chunks, mapped) for columns, chunks in runs_of(manifest)])

    def check_contents(self) -> None:
        """Raise DamagedStoreError unless all bytes of all columns are those that were packed."""
        for folder in self.folders:
            for record in folder.files:
                check_contents(folder.folder, record)

    def look(self, name: str, rows: NDArray[np.int64]) -> None:
        """As `ColumnFolder.look`, for the folders that hold these samples."""
        for k in parts_of(self._ends, rows):
            self.folders[k].look(name)

    def piece(self, name: str, first: int, rows: int) -> Array:
        """Rows first .. first + rows of column file `name` (one row per sample), all in one folder: a view."""
        folder, start = self.located(first)
        return folder.arrays[name][start : start + rows]

    def take(self, name: str, rows: NDArray[np.int64], out: Array) -> None:
        """Fill out[i] with the number field `name` of sample rows[i], which must exist."""
        for k, local, at in by_part(self._ends, rows):
            column = self.folders[k].arrays[name]
            if at is None:
                column.take(local, axis=0, out=out, mode="clip")
            else:
                out[at] = column[local]

    def value(self, name: str, row: int, kind: str) -> Any:
        """Field `name`, of this kind, of one sample: a number, a new array, a str, or a list of str."""
        folder, at = self.located(row)
        if kind == "text":
            return folder.text(name, [at])[0]
        value = folder.arrays[name][at] if kind == "number" else folder.ragged(name, [at])[0]
        return np.array(value) if value.ndim else value

    def text(self, name: str, rows: NDArray[np.int64]) -> list[Any]:
        """The text field `name` of samples `rows`: a str each, or a list of str."""
        return self._each(ColumnFolder.text, name, rows)

    def ragged(self, name: str, rows: NDArray[np.int64]) -> list[Array]:
        """The ragged field `name` of samples `rows`: (n, ...) each, read-only views of the mapped column."""
        return self._each(ColumnFolder.ragged, name, rows)

    def longest(self, name: str) -> int:
        """The length of the longest sample of the ragged field `name`."""
        return max(int(np.diff(folder.arrays[f"{name}.offset"]).max(initial=0)) for folder in self.folders)

    def _each(self, read: Callable[[ColumnFolder, str, Rows], list[T]], name: str, rows: NDArray[np.int64]) -> list[T]:
        found: dict[int, T] = {}
        for k, local, at in by_part(self._ends, rows):
            values = read(self.folders[k], name, local)
            if at is None:
                return values
            found.update(zip(at.tolist(), values, strict=True))
        return [found[i] for i in range(len(rows))]

    def located(self, row: int) -> tuple[ColumnFolder, int]:
        k = bisect_right(self._firsts, row) - 1
        return self.folders[k], row - self._firsts[k]


def parts_of(ends: NDArray[np.int64], rows: NDArray[np.int64]) -> list[int]:
    """The parts that have any of these rows, which are counted through all of them. ends: as of `by_part`."""
    if len(ends) == 1:
        return [0] if len(rows) else []
    parts: list[int] = np.unique(ends.searchsorted(rows, "right")).tolist()
    return parts


def by_part(
    ends: NDArray[np.int64], rows: NDArray[np.int64]
) -> list[tuple[int, NDArray[np.int64], NDArray[np.intp] | None]]:
    """Rows that are counted through several parts, part after part: (part, rows counted in it, their positions in
    `rows`); None for all positions.

    ends: (parts,): the row after each part's last. Rows outside all parts are not checked.
    """
    if len(ends) == 1:
        return [(0, rows, None)]
    parts = ends.searchsorted(rows, "right")
    order = parts.argsort(kind="stable")
    ordered = parts[order]
    found, start = list[tuple[int, NDArray[np.int64], NDArray[np.intp] | None]](), 0
    while start < len(rows):
        part = int(ordered[start])
        first = int(ends[part - 1]) if part else 0
        stop = int(ordered.searchsorted(part, "right"))
        if stop - start == len(rows):
            return [(part, rows - first, None)]
        at = order[start:stop]
        found.append((part, rows[at] - first, at))
        start = stop
    return found
