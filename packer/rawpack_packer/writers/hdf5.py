"""Writes an HDF5 shard: a plain file with contiguous chunks that any HDF5 tool can read.

Pixels go to a spool file first: HDF5 makes chunks contiguous by allocating them early, which needs the number of rows.
At the end, the file is created with its final shape and the pixels are copied to the place of its chunks. Compressed
chunks are written through HDF5.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Placement
from rawpack.errors import PackError
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.recipe import Recipe
from rawpack_packer.samples.sample import PreparedSample, Stored
from rawpack_packer.writers import Finished, Keys, large

if TYPE_CHECKING:
    from rawpack.store.store import Store

FLAT_CHUNK = 1 << 20
"""Bytes per chunk where samples differ in size."""
_GZIP_LEVEL = 4
_OVERHEAD, _PER_CHUNK = 256 << 10, 40
"""Bytes: more than HDF5 adds for one dataset with its attributes, and for each chunk in its index."""
_END_OF_FILE = slice(28, 36)
"""Bytes of the superblock, versions 2 and 3: "End of File Address" in HDF5's format specification."""
_MOST_PADDED = 8
"""Texts are padded to the longest if they take at most this many times their bytes then."""
_COPY_BYTES = 8 << 20
_FORMULA = (
    "{what} of different sizes lie in this array one after another, row by row, channels last. "
    "Number i is {name}[{name}_start[i] : {name}_start[i] + h * w * c].reshape(h, w, c) with h, w, c = {name}_shape[i]."
)
_PLANAR = "{name}[i] is image i, planes of height and width {shape[0]} x {shape[1]}. "
_PLANAR_FORMULA = (
    "Images of different sizes lie in this array one after another, as planes. Number i begins at {name}_start[i]; its "
    "h, w, c are {name}_shape[i]. "
)
_PLANES = (
    "Its first h * w values are Y, row by row; then come Cg and Co, each of ceil(h / 2) * ceil(w / 2) values, one for "
    "each two by two pixels, in their middle. Bring Cg and Co to height and width by linear interpolation; subtract "
    "128; then M = Y - Cg, R = M + Co, G = Y + Cg, B = M - Co, each clipped to 0 to 255."
)


class Hdf5Writer:
    """Writes the fields of a shard into one HDF5 file."""

    def __init__(self, paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> None:
        (self._path,) = paths
        self._rows = 0
        self._parts: dict[str, _ImageDataset] = {}
        for name, field in large(fields).items():
            self._parts[name] = _ImageDataset(name, field, recipe, self._path.with_suffix(f".{name}.spool"))

    def add(self, sample: PreparedSample, /) -> None:
        self._rows += 1
        for name, part in self._parts.items():
            part.add(sample.parts[name])

    def finish(self, columns: Keys, /) -> dict[str, Finished]:
        finished = {}
        for part in self._parts.values():
            part.flush()
        try:
            with _create(self._path) as file:
                room = _Room(file)
                for name, part in self._parts.items():
                    finished[name] = part.create(file, room, self._rows, self._path)
                _write_columns(file, room, columns)
                for part in self._parts.values():
                    part.write_index(file, room)
                file.attrs["made_by"] = "rawpack"
            _cut_to_length(self._path)
        except (OSError, RuntimeError) as error:
            raise _explained(error, self._path) from error
        for name, part in self._parts.items():
            part.copy_values(self._path, finished[name].placement.offset)
            part.close()
        return finished

    def abort(self) -> None:
        for part in self._parts.values():
            part.close()


class _Room:
    """Reserves disk space for an HDF5 file before HDF5 writes to it.

    If a write fails, HDF5 can close neither the file nor the objects in it, prints errors, and may crash the process
    (seen with HDF5 2.0). Where the system cannot reserve space (NFS, macOS, Windows), this does nothing.
    """

    def __init__(self, file: h5py.File) -> None:
        self._file, self._reserved = file, 0
        self.need(0)

    def need(self, count: int) -> None:
        """Reserve `count` bytes for the next dataset or chunks. Raises OSError if the disk is full."""
        end = int(self._file.id.get_filesize()) + count + _OVERHEAD
        if end > self._reserved:
            files.reserve(self._file.id.get_vfd_handle(), self._reserved, end - self._reserved)
            self._reserved = end


def _cut_to_length(path: Path) -> None:
    """Return the reserved space that the closed file does not use."""
    with writing.reopen(path, "r+b") as file:
        file.truncate(int.from_bytes(file.read(64)[_END_OF_FILE], "little"))


class _ImageDataset:
    """One image or mask field of a shard, and the spool file for its values."""

    def __init__(self, name: str, field: Field, recipe: Recipe, spool: Path) -> None:
        self._name, self._field, self._recipe, self._spool_path = name, field, recipe, spool
        self._spool = writing.create(spool, "w+b", FLAT_CHUNK)
        self._dtype = np.dtype(field.dtype)
        self._shapes: list[tuple[int, ...]] = []
        self._lengths: list[int] = []
        self._size = 0

    def add(self, stored: Stored) -> None:
        self._spool.write(stored.data.data)
        self._shapes.append(stored.shape)
        self._lengths.append(stored.data.size)
        self._size += stored.data.nbytes

    def flush(self) -> None:
        """Write the spool's buffer, before space for the HDF5 file is reserved."""
        self._spool.flush()

    def create(self, file: h5py.File, room: _Room, rows: int, path: Path) -> Finished:
        """Create the dataset: with its values if compressed, else with space for them."""
        shape, chunk = self._shape_and_chunk(rows)
        chunk_bytes = math.prod(chunk) * self._dtype.itemsize
        count = -(-self._size // chunk_bytes)
        deflated = self._field.deflated
        room.need(count * (_PER_CHUNK if deflated else _PER_CHUNK + chunk_bytes))
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_obj_track_times(False)
        layout.set_chunk(chunk)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        if deflated:
            layout.set_deflate(_GZIP_LEVEL)
        else:
            layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        space = h5py.h5s.create_simple(shape)
        kind = h5py.h5t.py_create(self._dtype, logical=True)
        dataset = h5py.h5d.create(file.id, self._name.encode(), kind, space, dcpl=layout)
        pieces, offset = np.empty((0, 2), np.int64), 0
        if deflated:
            pieces = self._write_deflated(dataset, room, chunk, chunk_bytes)
        else:
            offset = _first_offset(dataset, chunk_bytes, path)
        self._explain(h5py.Dataset(dataset))
        placement = Placement(
            offset=offset, bytes=self._size, chunks=len(pieces), chunk_bytes=chunk_bytes if len(pieces) else 0
        )
        index: dict[str, NDArray[np.int64]] = {"chunk": pieces} if deflated else {}
        if not self._field.uniform:
            # Offsets of compressed values refer to the decompressed bytes, others to the file.
            starts, counts = self._starts() * self._dtype.itemsize, self._counts() * self._dtype.itemsize
            index |= {"offset": starts + offset, "bytes": counts}
        return Finished(placement, index)

    def write_index(self, file: h5py.File, room: _Room) -> None:
        """Write where each image is as datasets, if sizes differ."""
        if self._field.uniform:
            return
        name = self._name
        how = f"Where {self._what} i begins in {name}; see its attributes."
        _write(file, room, f"{name}_start", self._starts(), how)
        how = f"Height, width and channels of {self._what} i."
        _write(file, room, f"{name}_shape", np.array(self._shapes, np.int32), how)

    def copy_values(self, path: Path, offset: int) -> None:
        """Copy uncompressed values to their space in the file."""
        if self._field.deflated:
            return
        self._spool.seek(0)
        with writing.reopen(path, "r+b") as file:
            file.seek(offset)
            while piece := self._spool.read(_COPY_BYTES):
                file.write(piece)

    def close(self) -> None:
        # If the disk is full, flushing the buffer fails, but the file is closed.
        with contextlib.suppress(OSError):
            self._spool.close()
        self._spool_path.unlink(missing_ok=True)

    @property
    def _what(self) -> str:
        return "image" if self._field.kind == "image" else "mask"

    def _shape_and_chunk(self, rows: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if not self._field.uniform:
            values, most = self._size // self._dtype.itemsize, FLAT_CHUNK // self._dtype.itemsize
            return (values,), (min(most, values),)
        shape = self._field.stored_shape
        return (rows, *shape), (min(self._recipe.chunk or 1, rows), *shape)

    def _write_deflated(self, dataset: Any, room: _Room, chunk: tuple[int, ...], chunk_bytes: int) -> NDArray[np.int64]:
        self._spool.seek(0)
        count = -(-self._size // chunk_bytes)
        pieces = np.empty((count, 2), np.int64)
        for k in range(count):
            raw = self._spool.read(chunk_bytes).ljust(chunk_bytes, b"\0")
            at = (k * chunk[0], *([0] * (len(chunk) - 1)))
            compressed = zlib.compress(raw, _GZIP_LEVEL)
            room.need(len(compressed))
            dataset.write_direct_chunk(at, compressed)
        for k in range(count):
            info = dataset.get_chunk_info_by_coord((k * chunk[0], *([0] * (len(chunk) - 1))))
            pieces[k] = info.byte_offset, info.size
        return pieces

    def _explain(self, data: h5py.Dataset) -> None:
        field, name, what = self._field, self._name, self._what
        is_picture = (
            field.kind == "image" and field.dtype == "uint8" and len(field.shape) == 3 and field.shape[2] in (1, 3)
        )
        if field.planar:
            where = _PLANAR if field.uniform else _PLANAR_FORMULA
            data.attrs["how_to_read"] = where.format(name=name, shape=field.shape) + _PLANES
            data.attrs["color"] = "YCgCo 4:2:0, uint8: ITU-T H.273, full range 0 to 255"
            return
        if not field.uniform:
            data.attrs["how_to_read"] = _FORMULA.format(what=what.capitalize() + "s", name=name)
        elif is_picture or field.exact:
            data.attrs["how_to_read"] = f"{name}[i] is {what} i: height, width, channels."
        else:
            data.attrs["how_to_read"] = f"{name}[i] is array i."
        if is_picture:
            data.attrs["color"] = ("grey" if field.shape[2] == 1 else "RGB") + ", uint8, 0 to 255"

    def _counts(self) -> NDArray[np.int64]:
        """Values of each sample."""
        return np.array(self._lengths, np.int64)

    def _starts(self) -> NDArray[np.int64]:
        return np.cumsum(self._counts()) - self._counts()


def libraries() -> dict[str, str]:
    """The version of HDF5, which decides the bytes of a file."""
    version: str = h5py.version.hdf5_version
    return {"hdf5": version}


def compare(store: Store, number: int, name: str, file: Path) -> str | None:
    """What differs between the shard as HDF5 reads it and its index, or None. See `OutputFormat.compare`."""
    reader, rows = store.reader(number, name), store.manifest.shards[number].rows
    with h5py.File(file, "r") as shard:
        link = shard.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            return f"{name} is a link to elsewhere"
        data = shard[name]
        if not isinstance(data, h5py.Dataset):
            return f"{name} is not a dataset"
        if data.external or data.is_virtual:
            return f"{name} is outside the file"
        field = store.fields[name]
        if data.dtype != np.dtype(field.dtype) or (field.uniform and data.shape != (rows, *field.stored_shape)):
            return f"its dataset contains {data.dtype} {data.shape}; the manifest says {field.dtype} {field.shape}"
        start = 0
        for row in range(rows):
            expected = reader.stored(row)
            if field.uniform:
                written = np.asarray(data[row]).reshape(-1).view(np.uint8)
            else:
                count = len(expected) // data.dtype.itemsize
                written = np.asarray(data[start : start + count]).view(np.uint8)
                start += count
            if not np.array_equal(written, expected):
                return f"its dataset and the index differ at row {row}"
    return None


def _write_columns(file: h5py.File, room: _Room, columns: Keys) -> None:
    for name, values in columns.items():
        if isinstance(values, np.ndarray):
            _write(file, room, name, values, f"{name}[i] belongs to image i.")
        elif isinstance(values[0], str):
            encoded = [str(value).encode() for value in values]
            width = max(1, *(len(value) for value in encoded))
            joined = np.frombuffer(b"".join(encoded), np.uint8)
            if width * len(encoded) > _MOST_PADDED * joined.size + FLAT_CHUNK:
                # One long text would lengthen all others.
                how = f"UTF-8; text i is the bytes {name}[{name}_start[i] : {name}_start[i] + {name}_length[i]]."
                _write_runs(file, room, name, joined, [len(value) for value in encoded], how)
                continue
            texts = np.array(encoded, h5py.string_dtype("utf-8", width))
            _write(file, room, name, texts, f"{name}[i] belongs to image i: UTF-8, padded with zero bytes.")
        else:
            arrays = [np.asarray(value) for value in values]
            how = f"What belongs to image i is {name}[{name}_start[i] : {name}_start[i] + {name}_length[i]]."
            _write_runs(file, room, name, np.concatenate(arrays), [len(array) for array in arrays], how)


def _write_runs(
    file: h5py.File, room: _Room, name: str, values: NDArray[Any], counts: Sequence[int], how_to_read: str
) -> None:
    """Write the values of all rows one after another, and where those of each row begin and how many there are."""
    lengths = np.array(counts, np.int64)
    _write(file, room, name, values, how_to_read)
    how = f"Where {name} of image i begins; see the attributes of {name}."
    _write(file, room, f"{name}_start", np.cumsum(lengths) - lengths, how)
    _write(file, room, f"{name}_length", lengths, f"How many of {name} belong to image i.")


def _write(file: h5py.File, room: _Room, name: str, values: NDArray[Any], how_to_read: str) -> None:
    """Add a small dataset."""
    room.need(values.nbytes)
    data = file.create_dataset(name, data=values, track_times=False)
    data.attrs["how_to_read"] = how_to_read


def _explained(error: OSError | RuntimeError, path: Path) -> Exception:
    """The reason why HDF5 could not write: the system's error if there is one, else HDF5's first line."""
    code = re.search(r"errno = (\d+)", str(error))
    number = int(code[1]) if code else getattr(error, "errno", None)
    if number:
        return OSError(number, os.strerror(number))
    return PackError(f"{path}: HDF5 could not write: {str(error).splitlines()[0]}")


def _create(path: Path) -> h5py.File:
    """A new file whose bytes depend neither on the newest features of the HDF5 release nor on the time."""
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(h5py.h5f.LIBVER_V110, h5py.h5f.LIBVER_V110)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    writing.remove(path)
    # HDF5 opens files by path: an existing one would be truncated before it can be compared.
    made = h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_EXCL, creation, access)
    writing.check_same(path, made.get_vfd_handle())
    return h5py.File(made)


def _first_offset(dataset: Any, chunk_bytes: int, path: Path) -> int:
    """The offset of the first chunk. Raises PackError unless the last chunk shows that there are no gaps."""
    count = dataset.get_num_chunks()
    first, last = dataset.get_chunk_info(0), dataset.get_chunk_info(count - 1)
    if last.byte_offset != first.byte_offset + (count - 1) * chunk_bytes:
        raise PackError(f"{path}: this HDF5 library does not write chunks one after another; please report it")
    return int(first.byte_offset)
