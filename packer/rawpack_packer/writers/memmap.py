"""Writes a memmap shard: a `.npy` file for each image or mask field, with the values from byte 4096 on."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rawpack.disk import npy
from rawpack.disk.manifest import Field, Placement
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.recipe import Recipe
from rawpack_packer.samples.sample import PreparedSample, Stored
from rawpack_packer.writers import Finished, Keys, large

HEADER_BYTES = 4096
"""One page: values begin at a page boundary."""
BUFFER_BYTES = 1 << 20
_SYNC_BYTES = 64 << 20
"""Bytes after which the system begins to write to the disk: it does so while the next samples are prepared."""


class MemmapWriter:
    """Writes each field of a shard into a .npy file."""

    def __init__(self, paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> None:
        self._files: dict[str, _ArrayFile] = {}
        for path, (name, field) in zip(paths, large(fields).items(), strict=True):
            self._files[name] = _ArrayFile(path, field)

    def add(self, sample: PreparedSample, /) -> None:
        for name, file in self._files.items():
            file.add(sample.parts[name])

    def finish(self, columns: Keys, /) -> dict[str, Finished]:
        return {name: file.finish(number) for number, (name, file) in enumerate(self._files.items())}

    def abort(self) -> None:
        for file in self._files.values():
            file.abort()


class _ArrayFile:
    """The file of one field. Images of one shape are rows of its array; others, and those that are
    compressed, are concatenated in a flat array."""

    def __init__(self, path: Path, field: Field) -> None:
        self._path, self._field, self._ends = path, field, [0]
        self._in_rows = field.uniform and field.codec.in_place
        self._file = writing.create(path, buffering=BUFFER_BYTES)
        self._file.seek(HEADER_BYTES)

    def add(self, stored: Stored) -> None:
        self._file.write(stored.data.data)
        before, end = self._ends[-1], self._ends[-1] + stored.data.nbytes
        self._ends.append(end)
        if end // _SYNC_BYTES > before // _SYNC_BYTES:
            files.begin_sync(self._path)

    def finish(self, number: int) -> Finished:
        size, dtype = self._ends[-1], self._field.dtype if self._field.codec.in_place else "uint8"
        values = size // np.dtype(dtype).itemsize
        shape = (len(self._ends) - 1, *self._field.stored_shape) if self._in_rows else (values,)
        self._file.seek(0)
        self._file.write(npy.header(dtype, shape, align=HEADER_BYTES))
        self._file.close()
        index = {}
        if not self._in_rows:
            ends = np.array(self._ends, np.int64)
            index = {"offset": ends[:-1] + HEADER_BYTES, "bytes": np.diff(ends)}
        return Finished(Placement(file=number, offset=HEADER_BYTES, bytes=size), index)

    def abort(self) -> None:
        # If the disk is full, flushing the buffer fails, but the file is closed.
        with contextlib.suppress(OSError):
            self._file.close()
