"""Writes an HDF5 shard: a plain HDF5 file that any HDF5 tool opens, whose chunks lie one after another.

Pixels go to a spool file first, because the number of rows is known only at the end and early allocation, which lays
chunks side by side, needs it. Then the file is made with its final shape and the pixels are copied to where its chunks
lie. Compressed chunks are written as they come, through HDF5.
"""

from __future__ import annotations

import contextlib
import os
import re
import zlib
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
from numpy.typing import NDArray

from rawpack.errors import PackError
from rawpack.manifest import Placement
from rawpack_packer.prepare import Prepared
from rawpack_packer.recipe import Recipe
from rawpack_packer.writers.contract import Finished, Keys

FLAT_CHUNK = 1 << 20
"""Bytes per chunk where images differ in size."""
_GZIP_LEVEL = 4
_COPY_BYTES = 8 << 20
_FORMULA = (
    "Images of different sizes lie in this array one after another, row by row, channels last. "
    "Image i is image[image_start[i] : image_start[i] + h * w * c].reshape(h, w, c) with h, w, c = image_shape[i]."
)


class Hdf5Writer:
    """See `ShardWriter`."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self._path, self._recipe = path, recipe
        self._spool_path = path.with_suffix(".spool")
        self._spool: BinaryIO = self._spool_path.open("w+b", buffering=FLAT_CHUNK)
        self._shapes: list[tuple[int, int, int]] = []
        self._size = 0

    def add(self, sample: Prepared, /) -> None:
        self._spool.write(sample.image.data)
        self._shapes.append(sample.shape)
        self._size += sample.image.nbytes

    def finish(self, columns: Keys, /) -> Finished:
        self._spool.flush()
        self._path.unlink(missing_ok=True)
        try:
            with _create(self._path) as file:
                chunk_bytes, chunks, offset = self._write_images(file)
                self._write_columns(file, columns)
        except (OSError, RuntimeError) as error:
            raise _explained(error, self._path) from error
        if not self._recipe.compression:
            self._copy_pixels(offset)
        self._close_spool()
        placement = Placement(
            offset=offset, bytes=self._size, chunks=len(chunks), chunk_bytes=chunk_bytes if len(chunks) else 0
        )
        index: dict[str, NDArray[np.int64]] = {"chunk": chunks} if self._recipe.compression else {}
        if self._recipe.target is None:
            # Compressed, offsets count in the decompressed bytes; else in the file.
            index |= {"offset": self._starts() + offset, "bytes": self._lengths()}
        return Finished(placement, index)

    def abort(self) -> None:
        self._close_spool()

    def _write_images(self, file: h5py.File) -> tuple[int, NDArray[np.int64], int]:
        """Make the dataset `image`: bytes per chunk, the compressed pieces, and where the first pixel lies."""
        target, channels = self._recipe.target, self._recipe.channels
        shape: tuple[int, ...]
        chunk: tuple[int, ...]
        if target is None:
            shape, chunk = (self._size,), (min(FLAT_CHUNK, self._size),)
        else:
            rows = len(self._shapes)
            shape = (rows, *target, channels)
            chunk = (min(self._recipe.chunk or 1, rows), *target, channels)
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_obj_track_times(False)
        layout.set_chunk(chunk)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if self._recipe.compression:
            layout.set_deflate(_GZIP_LEVEL)
        else:
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple(shape)
        dataset = h5py.h5d.create(file.id, b"image", h5py.h5t.STD_U8LE, space, dcpl=layout)
        chunk_bytes = int(np.prod(chunk, dtype=np.int64))
        pieces = np.empty((0, 2), np.int64)
        if self._recipe.compression:
            pieces, offset = self._write_deflated(dataset, chunk, chunk_bytes), 0
        else:
            offset = _first_offset(dataset, chunk_bytes, self._path)
        self._explain(h5py.Dataset(dataset))
        return chunk_bytes, pieces, offset

    def _write_deflated(self, dataset: Any, chunk: tuple[int, ...], chunk_bytes: int) -> NDArray[np.int64]:
        self._spool.seek(0)
        count = -(-self._size // chunk_bytes)
        pieces = np.empty((count, 2), np.int64)
        for k in range(count):
            raw = self._spool.read(chunk_bytes).ljust(chunk_bytes, b"\0")
            at = (k * chunk[0], *([0] * (len(chunk) - 1)))
            dataset.write_direct_chunk(at, zlib.compress(raw, _GZIP_LEVEL))
        for k in range(count):
            info = dataset.get_chunk_info_by_coord((k * chunk[0], *([0] * (len(chunk) - 1))))
            pieces[k] = info.byte_offset, info.size
        return pieces

    def _explain(self, image: h5py.Dataset) -> None:
        color = "grey" if self._recipe.channels == 1 else "RGB"
        if self._recipe.target is None:
            image.attrs["how_to_read"] = _FORMULA
        else:
            image.attrs["how_to_read"] = "image[i] is image i: height, width, channels."
        image.attrs["color"] = f"{color}, uint8, 0 to 255"

    def _write_columns(self, file: h5py.File, columns: Keys) -> None:
        for name, values in columns.items():
            if isinstance(values, np.ndarray):
                data = file.create_dataset(name, data=values, track_times=False)
                data.attrs["how_to_read"] = f"{name}[i] belongs to image i."
            else:
                encoded = [value.encode() for value in values]
                width = max(1, *(len(value) for value in encoded))
                kind = h5py.string_dtype("utf-8", width)
                data = file.create_dataset(name, data=np.array(encoded, kind), track_times=False)
                data.attrs["how_to_read"] = f"{name}[i] belongs to image i: UTF-8, padded with zero bytes."
        if self._recipe.target is None:
            start = file.create_dataset("image_start", data=self._starts(), track_times=False)
            start.attrs["how_to_read"] = "Where image i begins in image; see its attributes."
            shape = file.create_dataset("image_shape", data=np.array(self._shapes, np.int32), track_times=False)
            shape.attrs["how_to_read"] = "Height, width and channels of image i."
        file.attrs["made_by"] = "rawpack"

    def _copy_pixels(self, offset: int) -> None:
        self._spool.seek(0)
        with self._path.open("r+b") as file:
            file.seek(offset)
            while piece := self._spool.read(_COPY_BYTES):
                file.write(piece)

    def _lengths(self) -> NDArray[np.int64]:
        return np.array([h * w * c for h, w, c in self._shapes], np.int64)

    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum(self._lengths()) - self._lengths()

    def _close_spool(self) -> None:
        # A full disk refuses what is still buffered; the file is closed all the same.
        with contextlib.suppress(OSError):
            self._spool.close()
        self._spool_path.unlink(missing_ok=True)


def _explained(error: OSError | RuntimeError, path: Path) -> Exception:
    """What kept HDF5 from writing, without its addresses and times: the system's own words where it has any."""
    found = re.search(r"errno = (\d+)", str(error))
    number = int(found[1]) if found else getattr(error, "errno", None)
    if number:
        return OSError(number, os.strerror(number))
    return PackError(f"{path}: HDF5 could not write: {str(error).splitlines()[0]}")


def _create(path: Path) -> h5py.File:
    """An empty file whose bytes depend neither on the HDF5 release's newest features nor on the time."""
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, creation, access))


def _first_offset(dataset: Any, chunk_bytes: int, path: Path) -> int:
    """Where the first chunk lies; the others must follow it without a gap. First and last show it."""
    count = dataset.get_num_chunks()
    first, last = dataset.get_chunk_info(0), dataset.get_chunk_info(count - 1)
    if last.byte_offset != first.byte_offset + (count - 1) * chunk_bytes:
        raise PackError(f"{path}: this HDF5 library does not lay chunks one after another; please report it")
    return int(first.byte_offset)
