"""Columns: the small fields of all samples and the index that says where each image lies.

A folder of columns holds one `.npy` file per number field, `<field>.npy` and `<field>.offset.npy` per text or ragged
field, and for each image or mask what its encoding needs:

| file | dtype, shape | there when |
|---|---|---|
| `<image>.xxh3.npy` | uint64 (rows,) | always: xxh3_64 of the sample's stored bytes |
| `<image>.offset.npy` | int64 (rows,) | sizes differ or samples are encoded: where its bytes begin |
| `<image>.bytes.npy` | int64 (rows,) | as above: how many they are |
| `<image>.shape.npy` | int32 (rows, 3) | sizes differ |
| `<image>.chunk.npy` | int64 (chunks, 2) | compressed: offset in the file and bytes of each piece, shard after shard |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk import npy
from rawpack.disk.manifest import Columns, Field, Manifest
from rawpack.disk.mapped import MappedFiles, check_contents, map_file
from rawpack.errors import DamagedStoreError

Array = NDArray[Any]


def files_of(name: str, field: Field, rows: int, chunks: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The column files of a field: file name -> (dtype, shape). -1 stands for a length that the contents decide."""
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
    """Each folder of columns, and how many compressed pieces each field of its samples has. Raises DamagedStoreError
    where one does not end where a shard does."""
    shards = iter(manifest.shards)
    for columns in manifest.columns:
        covered, chunks = 0, dict.fromkeys(manifest.fields, 0)
        while covered < columns.rows:
            shard = next(shards)
            covered += shard.rows
            for name, placement in shard.fields.items():
                chunks[name] += placement.chunks
        if covered != columns.rows:
            raise DamagedStoreError(f"{columns.folder} does not end where a shard ends")
        yield columns, chunks


def open_field(
    folder: Path, columns: Columns, name: str, field: Field, chunks: int, mapped: MappedFiles | None = None
) -> dict[str, Array]:
    """The mapped columns of one field in `folder`, by file name without `.npy`. mapped: is told of the files.

    Raises DamagedStoreError where a file, by its size and header, is not what the manifest says.
    """
    records, arrays = {record.name: record for record in columns.files}, dict[str, Array]()
    for file, (dtype, shape) in files_of(name, field, columns.rows, chunks).items():
        if file not in records:
            raise DamagedStoreError(f"{folder} lacks {file}, which field {name} needs")
        array = npy.array(map_file(folder, records[file], mapped=mapped), str(folder / file))
        expected = tuple(have if want == -1 else want for want, have in zip(shape, array.shape, strict=False))
        if array.dtype.name != dtype or array.shape != expected or array.ndim != len(shape):
            raise DamagedStoreError(f"{folder / file} holds {array.dtype} {array.shape}; {dtype} {shape} was packed")
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
        """mapped: is told of the files. Raises DamagedStoreError where one of them is not what the manifest says."""
        folder = store / columns.folder
        if folder.is_symlink():
            raise DamagedStoreError(
                f"{folder} is a symbolic link; a store's files are not followed elsewhere: put the folder itself there"
            )
        self.folder, self.rows, self._files = folder, columns.rows, columns.files
        self.arrays: dict[str, Array] = {}
        for name, field in manifest.fields.items():
            self.arrays |= open_field(folder, columns, name, field, chunks.get(name, 0), mapped)

    def check_contents(self) -> None:
        """Raise DamagedStoreError unless all bytes of all columns are those that were packed."""
        for record in self._files:
            check_contents(self.folder, record)

    def text(self, name: str, rows: Sequence[int] | NDArray[np.int64]) -> list[str]:
        """The texts of field `name` at `rows` of this folder."""
        texts: dict[int, str] = {}
        for row, data in self._runs(name, rows).items():
            try:
                texts[row] = data.tobytes().decode()
            except UnicodeDecodeError:
                raise DamagedStoreError(f"{self.folder}: {name} of row {row} is not UTF-8") from None
        return [texts[int(row)] for row in rows]

    def ragged(self, name: str, rows: Sequence[int] | NDArray[np.int64]) -> list[Array]:
        """The ragged field `name` at `rows` of this folder: (n, ...) each, read-only views."""
        found = self._runs(name, rows)
        return [found[int(row)] for row in rows]

    def _runs(self, name: str, rows: Sequence[int] | NDArray[np.int64]) -> dict[int, Array]:
        """What lies between two offsets, for each of some rows."""
        offsets, data = self.arrays[f"{name}.offset"], self.arrays[name]
        runs: dict[int, Array] = {}
        size = 0
        for row in map(int, rows):
            if row in runs:
                continue
            start, stop = int(offsets[row]), int(offsets[row + 1])
            size += stop - start
            # Together, different rows never have more than the column: else a small file would promise much memory.
            if not 0 <= start <= stop <= len(data) or size > len(data):
                raise DamagedStoreError(f"{self.folder}: {name} of row {row} does not lie in its column")
            runs[row] = data[start:stop]
        return runs


class ColumnTable:
    """All columns of a store, whichever folder they lie in."""

    def __init__(self, store: Path, manifest: Manifest, mapped: MappedFiles) -> None:
        """mapped: is told of the files."""
        self.folders: list[ColumnFolder] = []
        self.firsts: list[int] = []
        first = 0
        for columns, chunks in runs_of(manifest):
            self.folders.append(ColumnFolder(store, columns, manifest, chunks, mapped))
            self.firsts.append(first)
            first += columns.rows
        self._starts = np.array(self.firsts, np.int64)

    def check_contents(self) -> None:
        """Raise DamagedStoreError unless all bytes of all columns are those that were packed."""
        for folder in self.folders:
            folder.check_contents()

    def piece(self, name: str, first: int, rows: int) -> Array:
        """Rows first .. first + rows of column file `name` (one row per sample), which lie in one folder: no copy."""
        k = int(np.searchsorted(self._starts, first, side="right")) - 1
        start = first - self.firsts[k]
        return self.folders[k].arrays[name][start : start + rows]

    def chunk_piece(self, name: str, first: int, skip: int, chunks: int) -> Array:
        """`chunks` rows of `<image>.chunk` after the first `skip` of the folder that holds sample `first`."""
        k = int(np.searchsorted(self._starts, first, side="right")) - 1
        return self.folders[k].arrays[name][skip : skip + chunks]

    def take(self, name: str, rows: NDArray[np.int64], out: Array) -> None:
        """Fill out[i] with the number field `name` of sample rows[i]. The rows must lie in the store."""
        if len(self.folders) == 1:
            self.folders[0].arrays[name].take(rows, axis=0, out=out, mode="clip")
            return
        which = np.searchsorted(self._starts, rows, side="right") - 1
        for k in np.unique(which):
            mask = which == k
            out[mask] = self.folders[k].arrays[name][rows[mask] - self.firsts[k]]

    def text(self, name: str, rows: NDArray[np.int64]) -> list[str]:
        """The text field `name` of samples `rows`."""
        if len(self.folders) == 1:
            return self.folders[0].text(name, rows)
        which = np.searchsorted(self._starts, rows, side="right") - 1
        return [self.folders[k].text(name, [row - self.firsts[k]])[0] for k, row in zip(which, rows, strict=True)]

    def ragged(self, name: str, rows: NDArray[np.int64]) -> list[Array]:
        """The ragged field `name` of samples `rows`: (n, ...) each, read-only views of the mapped column."""
        if len(self.folders) == 1:
            return self.folders[0].ragged(name, rows)
        which = np.searchsorted(self._starts, rows, side="right") - 1
        return [self.folders[k].ragged(name, [row - self.firsts[k]])[0] for k, row in zip(which, rows, strict=True)]

    def longest(self, name: str) -> int:
        """The length of the longest sample of the ragged field `name`."""
        return max(int(np.diff(folder.arrays[f"{name}.offset"]).max(initial=0)) for folder in self.folders)
