"""Writes an HDF5 shard again and again, each time refused what lies beyond another byte of its file."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import h5py
import numpy as np

from rawpack.disk.manifest import Field
from rawpack_packer.recipe import Recipe
from rawpack_packer.samples.sample import PreparedSample, Stored
from rawpack_packer.writers import open_writer

ROWS, STEPS = 500, 25
PIXELS = np.random.default_rng(0).integers(0, 256, (ROWS, 16 * 16 * 3), np.uint8)
UNLIMITED = resource.RLIM_INFINITY
create = h5py.h5f.create


def write(path: Path, recipe: Recipe, field: Field, limit: int) -> None:
    """Write the shard, refused what lies beyond byte `limit` of its file as soon as HDF5 has made that."""

    def limited(*args: Any) -> Any:
        made = create(*args)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, UNLIMITED))
        return made

    writer = open_writer([path], recipe, {"image": field})
    for pixels in PIXELS:
        writer.add(PreparedSample({"image": Stored(pixels, (16, 16, 3))}, {}, ()))
    try:
        with mock.patch("h5py.h5f.create", limited):
            writer.finish({"key": [f"{i:0900d}" for i in range(ROWS)], "label": np.arange(ROWS)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))
        writer.abort()


def refusals(path: Path, layout: str) -> Iterator[str]:
    """What the writer raises, for limits from the first byte to the last one. layout: "", or "gzip" and of any size."""
    recipe = Recipe(format="hdf5", compression="gzip", size="keep") if layout else Recipe(format="hdf5", size=16)
    shape = (None, None, 3) if layout else (16, 16, 3)
    field = Field(kind="image", dtype="uint8", shape=shape, encoding="deflate" if layout else "raw")
    write(path, recipe, field, UNLIMITED)
    whole = path.stat().st_size
    for limit in range(0, whole, whole // STEPS):
        try:
            write(path, recipe, field, limit)
            yield f"nothing at {limit} of {whole}"
        except Exception as error:
            yield repr(error)
