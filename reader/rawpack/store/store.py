"""An open store: its manifest, its columns, and its shards, which are mapped when they are needed."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.columns import ColumnTable
from rawpack.disk.manifest import Field, FileRecord, Shard, load, parse
from rawpack.disk.mapped import MappedFiles
from rawpack.disk.tables import format_of, resolve
from rawpack.errors import DamagedStoreError
from rawpack.formats import FieldReader, ShardField
from rawpack.formats.field_reader import Array, Box
from rawpack.formats.gather import Gather, RawShard
from rawpack.store.preload import Memory
from rawpack.store.shard_files import InMemory, OnDisk, ShardFiles

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore
    from rawpack.remote.tickets import RemoteFile

_RANDOM_ACCESS_BYTES = 16 << 10
"""Smaller samples share pages with their neighbors, so reading around them wastes nothing."""


class Store:
    """One store. Shards are mapped when a sample of theirs is first read; nothing else is kept open.

    Any number of threads may use one. Processes do not share it: each opens its own.
    """

    def __init__(self, files: ShardFiles | Path, manifest_bytes: bytes | None = None) -> None:
        """files: its shard files; a folder means `OnDisk`. manifest_bytes: the manifest that the store was opened with
        before, to be used instead of the one that is there now.

        Raises StoreError and its kinds where the folder is not a complete store.
        """
        self.files = OnDisk(files) if isinstance(files, Path) else files
        self.path = path = self.files.path
        self._items: dict[tuple[int, tuple[str, ...]], list[RemoteFile]] = {}
        self.manifest, self.digest = load(path) if manifest_bytes is None else parse(manifest_bytes, str(path))
        self._check_sizes()
        self.mapped = MappedFiles()
        self._columns = None if self.files.columns_come else ColumnTable(path, self.manifest, self.mapped)
        rows = [shard.rows for shard in self.manifest.shards]
        self.ends = np.cumsum(rows, dtype=np.int64)
        """(shards,): the row after each shard's last."""
        self._ends: list[int] = self.ends.tolist()
        self._gathers: dict[str, Gather | None] = {}
        self._first_chunks: dict[str, NDArray[np.int64]] = {}
        self._readers: dict[tuple[int, str], FieldReader] = {}
        self._large: dict[str, bool] = {}
        """Image field -> whether any shard's samples are too large to be read with their neighbors."""

    def __len__(self) -> int:
        return self.manifest.samples

    @property
    def columns(self) -> ColumnTable:
        """Its columns. Waits for them, and raises StoreError where they cannot be fetched."""
        if self._columns is None:
            self.files.wait_for_columns()
            self._columns = ColumnTable(self.path, self.manifest, self.mapped)
        return self._columns

    @property
    def where(self) -> str:
        """How to name the store to a person: its folder, or its URL without credentials."""
        return self.files.where

    @property
    def origin(self) -> RemoteStore | None:
        """What fetches its files, of a store behind a URL."""
        return self.files.origin

    @property
    def fields(self) -> dict[str, Field]:
        return self.manifest.fields

    def locate(self, row: int) -> tuple[int, int]:
        """The shard that holds sample `row`, and its row there."""
        shard = bisect_right(self._ends, row)
        return shard, row - self.first(shard)

    def first(self, shard: int) -> int:
        """The store's row of a shard's first sample."""
        return self._ends[shard - 1] if shard else 0

    def read_into(self, name: str, rows: NDArray[np.int64], out: Array, at: NDArray[np.int64] | None = None) -> None:
        """Fill out[i], or out[at[i]], with image, mask or number field `name` of sample rows[i], rows of this store."""
        if self.fields[name].kind == "number":
            if at is None:
                self.columns.take(name, rows, out)
                return
            values = np.empty((len(rows), *out.shape[1:]), out.dtype)
            self.columns.take(name, rows, values)
            out[at] = values
            return
        if len(self.ends) == 1:
            self.reader(0, name).read_into(rows, out, at)
            return
        gather = self._gather(name) if at is None and not self.fields[name].planar else None
        if gather is not None:
            gather.read_into(rows, out)
            return
        for shard, local, part in self._by_shard(rows):
            where = part if at is None else at if part is None else at[part]
            self.reader(shard, name).read_into(local, out, where)

    def read_planes(self, name: str, rows: NDArray[np.int64], out: Array, at: NDArray[np.int64] | None = None) -> None:
        """As `read_into`, of a planar field: its planes as they are stored, (n, bytes of a sample)."""
        gather = self._gather(name) if at is None else None
        if gather is not None:
            gather.read_into(rows, out)
            return
        for i, (reader, row) in enumerate(self.located(name, rows)):
            out[i if at is None else at[i]] = reader.stored(row)

    def raw_shards(self, name: str) -> list[RawShard] | None:
        """The shards of a field for a `Gather` of what is stored; None where that is compressed, or differs in size."""
        field = self.fields[name]
        if not field.codec.in_place or not field.uniform:
            return None
        found = []
        for number, shard in enumerate(self.manifest.shards):
            placed = shard.fields[name]
            record = shard.files[placed.file]
            opened = partial(self._open_raw, number, name, record)
            found.append(RawShard(shard.rows, record.bytes, placed.offset, opened))
        return found

    def _open_raw(self, number: int, name: str, record: FileRecord) -> tuple[int, int]:
        """See `RawShard.open`."""
        self.reader(number, name)  # which checks the file
        return self.files.open(record)

    def _let_go(self) -> None:
        """Unmap shards that were removed from the cache, as soon as nobody is reading by what maps them."""
        if self.files.evictable:
            for key in self.files.removed():
                self._readers.pop(key, None)
                self._gathers.clear()

    def _gather(self, name: str) -> Gather | None:
        self._let_go()
        try:
            return self._gathers[name]
        except KeyError:
            return self._gathers.setdefault(name, gather_of([self], name))

    def readahead(self, name: str, rows: NDArray[np.int64]) -> None:
        """Ask the disk for image field `name` of these samples; see `FieldReader.readahead`."""
        for shard, local, _ in self._by_shard(rows):
            self.reader(shard, name).readahead(local)

    def _by_shard(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64] | None]]:
        """Rows of the store as (shard, its rows, their positions in `rows`), shard after shard; None for all."""
        shards = np.searchsorted(self.ends, rows, side="right")
        if len(shards) and shards[0] == shards[-1] and (shards == shards[0]).all():
            yield int(shards[0]), rows - self.first(int(shards[0])), None
            return
        order = np.argsort(shards, kind="stable")
        found = shards[order]
        starts = np.flatnonzero(np.diff(found, prepend=-1))
        for start, stop in zip(starts.tolist(), np.append(starts, len(rows))[1:].tolist(), strict=True):
            shard, at = int(found[start]), order[start:stop]
            yield shard, rows[at] - self.first(shard), at

    def read(self, name: str, row: int, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        """Image or mask `name` of one sample, or a part of it; see `FieldReader.read`."""
        shard, at = self.locate(row)
        return self.reader(shard, name).read(at, box, scale, out)

    def located(self, name: str, rows: NDArray[np.int64]) -> Iterator[tuple[FieldReader, int]]:
        """For each sample the reader of its shard's image field `name`, and its row there."""
        shards = np.searchsorted(self.ends, rows, side="right")
        firsts = np.concatenate([[0], self.ends[:-1]])
        for shard, local in zip(shards.tolist(), (rows - firsts[shards]).tolist(), strict=True):
            yield self.reader(shard, name), local

    def reader(self, shard: int, name: str) -> FieldReader:
        """The reader of one field of one shard, opened on first use."""
        self._let_go()
        try:
            return self._readers[shard, name]
        except KeyError:
            # Two threads may both open it; then one mapping is dropped. A fork could leave a lock held forever.
            return self._readers.setdefault((shard, name), self._open(shard, name))

    def is_random_access(self, name: str) -> bool:
        """Whether image field `name` of any shard is mapped for random access: then readahead is needed."""
        if not self.files.random_access:
            return False
        try:
            return self._large[name]
        except KeyError:
            # Of any shard: the first may hold thumbnails.
            large = any(self._is_random_access(shard, name) for shard in self.manifest.shards)
            return self._large.setdefault(name, large)

    def _is_random_access(self, shard: Shard, name: str) -> bool:
        return self.files.random_access and shard.fields[name].bytes >= shard.rows * _RANDOM_ACCESS_BYTES

    def is_cached(self, name: str, row: int) -> bool:
        """Whether an image is in the page cache; see `FieldReader.is_cached`."""
        shard, at = self.locate(row)
        return self.reader(shard, name).is_cached(at)

    def check(self, name: str, row: int) -> None:
        """Raise DamagedStoreError unless the stored bytes of image field `name` are those that were packed."""
        shard, at = self.locate(row)
        stored = np.ascontiguousarray(self.reader(shard, name).stored(at))
        packed = int(self.columns.piece(f"{name}.xxh3", row, 1)[0])
        if xxhash.xxh3_64_intdigest(stored.data) != packed:
            raise DamagedStoreError(f"{self.path}: {name} was changed after packing: its checksum does not fit")

    def use(self, memory: Memory) -> None:
        """Read shards from memory from now on."""
        self.files = InMemory(self.files, memory)
        self._readers, self._gathers = {}, {}

    def files_of(self, shard: Shard, names: Sequence[str]) -> list[FileRecord]:
        """The files that hold some fields of a shard."""
        return [shard.files[k] for k in dict.fromkeys(shard.fields[name].file for name in names)]

    def remote_items(self, rows: NDArray[np.int64], names: Sequence[str]) -> list[RemoteFile]:
        """The files behind the URL that hold fields `names` of samples `rows`."""
        shards = set(np.searchsorted(self.ends, rows, side="right").tolist())
        return [item for number in sorted(shards) for item in self._items_of(number, tuple(names))]

    def _items_of(self, number: int, names: tuple[str, ...]) -> list[RemoteFile]:
        assert self.origin is not None
        try:
            return self._items[number, names]
        except KeyError:
            found = [self.origin.item(record) for record in self.files_of(self.manifest.shards[number], names)]
            return self._items.setdefault((number, names), found)

    def _open(self, number: int, name: str) -> FieldReader:
        shard = self.manifest.shards[number]
        placement, field = shard.fields[name], self.fields[name]
        record = shard.files[placement.file]
        index: dict[str, NDArray[Any]] = {}
        for part in field.index:
            if part == "chunk":
                skip = self._chunks_before(number, name)
                index[part] = self.columns.chunk_piece(f"{name}.chunk", self.first(number), skip, placement.chunks)
            else:
                index[part] = self.columns.piece(f"{name}.{part}", self.first(number), shard.rows)
        if not field.uniform:
            self._check_shapes(name, index["shape"])
        data = self.files.map((number, name), record, self.mapped, random_access=self._is_random_access(shard, name))
        where = str(self.path / record.name)
        in_shard = ShardField(where, data, shard.rows, field, placement, index)
        reader: FieldReader = resolve(format_of(self.manifest.format).open)(in_shard)
        return reader

    def _chunks_before(self, number: int, name: str) -> int:
        """Compressed chunks of field `name` in the shards before `number` that share its folder of columns."""
        if name not in self._first_chunks:
            counts = [shard.fields[name].chunks for shard in self.manifest.shards]
            self._first_chunks[name] = np.cumsum([0, *counts], dtype=np.int64)
        before = self._first_chunks[name]
        folder = max(first for first in self.columns.firsts if first <= self.first(number))
        return int(before[number] - before[self.locate(folder)[0]])

    def shapes(self, name: str) -> NDArray[np.int32]:
        """The shapes of all samples of an image or mask field, (n, axes), where they differ."""
        shapes = np.concatenate([folder.arrays[f"{name}.shape"] for folder in self.columns.folders])
        self._check_shapes(name, shapes)
        return shapes

    def _check_shapes(self, name: str, shapes: NDArray[np.int32]) -> None:
        """Raise DamagedStoreError where shapes (rows, 3) of samples do not fit the field."""
        for axis, length in enumerate(self.fields[name].shape):
            wrong = shapes[:, axis] < 1 if length is None else shapes[:, axis] != length
            if wrong.any():
                raise DamagedStoreError(
                    f"{self.path}: {name} has a sample of shape {tuple(shapes[wrong][0].tolist())}; "
                    f"the manifest says {self.fields[name].shape}"
                )

    def _check_sizes(self) -> None:
        """Raise DamagedStoreError for a manifest that promises more pixels than its files can hold."""
        for name, field in self.fields.items():
            if not field.in_shards:
                continue
            sample = np.dtype(field.dtype).itemsize * math.prod(field.stored_shape) if field.uniform else 0
            for shard in self.manifest.shards:
                placement = shard.fields[name]
                record = shard.files[placement.file]
                need = max(sample * shard.rows, placement.chunks * placement.chunk_bytes)
                if need > record.bytes * field.codec.max_inflation:
                    raise DamagedStoreError(
                        f"{self.path}: {shard.rows} samples of {field.shape}, {need} bytes, cannot be in the "
                        f"{record.bytes} bytes of {record.name}"
                    )


def gather_of(stores: Sequence[Store], name: str) -> Gather | None:
    """What reads rows of a field as they are stored, counted through all shards of some stores, in one call; None where
    the field or the system does not allow that."""
    if len(stores) > 1 and any(store.files.evictable for store in stores):
        return None  # what one store maps can only be unmapped with what the others map
    by_store = [store.raw_shards(name) for store in stores]
    shards = [shard for found in by_store for shard in found or ()]
    if not shards or None in by_store or len({store.fields[name].encoding for store in stores}) > 1:
        return None
    field = stores[0].fields[name]
    shape, dtype = field.stored_shape, np.dtype(field.dtype)
    try:
        return Gather(shards, dtype, shape, random_access=any(store.is_random_access(name) for store in stores))
    except OSError:
        return None
