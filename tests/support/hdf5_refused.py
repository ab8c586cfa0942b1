"""Write an HDF5 shard again and again, each time refused what lies beyond another byte of its file.

`python hdf5_refused.py FOLDER COMPRESSION SIZE` prints a line for each limit: the limit and what the writer raised.
COMPRESSION is "gzip" or "none", SIZE "uniform" or "keep".
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

from rawpack.disk.manifest import Field
from rawpack_packer.recipe import Recipe
from rawpack_packer.samples.sample import PreparedSample, Stored
from rawpack_packer.writers import open_writer

ROWS = 250
STEPS = 60
PIXELS = np.random.default_rng(0).integers(0, 256, 16 * 16 * 3, np.uint8)
create = h5py.h5f.create


def limit_files(size: int) -> None:
    """Let no file of this process become larger: the system refuses a write as it does on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def write(path: Path, recipe: Recipe, field: Field, limit: int) -> None:
    """Write the shard, refused what lies beyond byte `limit` of its file as soon as HDF5 has made that."""

    def limited(*args: Any) -> Any:
        made = create(*args)
        limit_files(limit)
        return made

    writer = open_writer([path], recipe, {"image": field})
    for _ in range(ROWS):
        writer.add(PreparedSample({"image": Stored(PIXELS, (16, 16, 3))}, {}, ()))
    try:
        with mock.patch("h5py.h5f.create", limited):
            writer.finish({"key": [f"{i:09d}" for i in range(ROWS)], "label": np.arange(ROWS)})
    finally:
        limit_files(resource.RLIM_INFINITY)
        writer.abort()


def main(folder: Path, compression: str, size: str) -> None:
    gzip, uniform = compression == "gzip", size == "uniform"
    recipe = Recipe(format="hdf5", compression="gzip" if gzip else None, size=16 if uniform else "keep")
    shape = (16, 16, 3) if uniform else (None, None, 3)
    field = Field(kind="image", dtype="uint8", shape=shape, encoding="deflate" if gzip else "raw")
    path = folder / "shard.h5"
    write(path, recipe, field, resource.RLIM_INFINITY)
    whole = path.stat().st_size
    for limit in range(0, whole, whole // STEPS):
        try:
            write(path, recipe, field, limit)
            print(limit, "nothing")
        except Exception as error:
            print(limit, repr(error))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
