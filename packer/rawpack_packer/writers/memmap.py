"""Writes a memmap shard: one `.npy` file, its pixels from byte 4096 on."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from rawpack import npyfile
from rawpack.manifest import Placement
from rawpack_packer.prepare import Prepared
from rawpack_packer.recipe import Recipe
from rawpack_packer.writers.contract import Finished, Keys

HEADER_BYTES = 4096
"""A page, so that pixels begin at a page boundary."""
BUFFER_BYTES = 1 << 20


class MemmapWriter:
    """See `ShardWriter`. Images of one size are the array's rows; others lie in a flat array one after another."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self._recipe, self._rows = recipe, 0
        self._ends = [0]
        self._file = path.open("wb", buffering=BUFFER_BYTES)
        self._file.seek(HEADER_BYTES)

    def add(self, sample: Prepared, /) -> None:
        self._file.write(sample.image.data)
        self._ends.append(self._ends[-1] + sample.image.nbytes)
        self._rows += 1

    def finish(self, columns: Keys, /) -> Finished:
        target, size = self._recipe.target, self._ends[-1]
        shape = (size,) if target is None else (self._rows, *target, self._recipe.channels)
        self._file.seek(0)
        self._file.write(npyfile.header("uint8", shape, align=HEADER_BYTES))
        self._file.close()
        index = {}
        if target is None:
            ends = np.array(self._ends, np.int64)
            index = {"offset": ends[:-1] + HEADER_BYTES, "bytes": np.diff(ends)}
        return Finished(Placement(offset=HEADER_BYTES, bytes=size), index)

    def abort(self) -> None:
        # A full disk refuses what is still buffered; the file is closed all the same.
        with contextlib.suppress(OSError):
            self._file.close()
