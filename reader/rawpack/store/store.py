"""An open store: its manifest, its columns, and its shards, which are mapped when they are needed."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from rawpack.disk.columns import ColumnTable
from rawpack.disk.manifest import FileRecord, load, parse
from rawpack.disk.mapped import MappedFiles
from rawpack.disk.tables import format_of, resolve
from rawpack.errors import DamagedStoreError
from rawpack.formats import FieldReader, ShardField
from rawpack.formats.gather import RawShard
from rawpack.store.shard_files import InMemory, Memory, ShardFiles
from rawpack.system.user import count

if TYPE_CHECKING:
    from rawpack.remote.origin import RemoteStore

_RANDOM_ACCESS_BYTES = 16 << 10
"""Smaller samples share pages with their neighbors, so reading around them wastes nothing."""


class Store:
    """One store. Shards are mapped when a sample of theirs is first read; nothing else is kept open. `Stores` reads its
    samples.

    Any number of threads may use one. Processes do not share it: each opens its own.
    """

    def __init__(self, files: ShardFiles | Path, manifest_bytes: bytes | None = None) -> None:
        """files: its shard files, or its folder. manifest_bytes: the manifest that the store was opened with before, to
        be used instead of the one that is there now.

        Raises StoreError and its kinds where the folder is not a complete store.
        """
        self.files = ShardFiles(files) if isinstance(files, Path) else files
        self.path = path = self.files.path
        self.where = self.files.where
        """How to name the store to a person: its folder, or its URL without credentials."""
        self.origin: RemoteStore | None = self.files.origin
        """What fetches its files, of a store behind a URL."""
        self.manifest, self.digest = load(path) if manifest_bytes is None else parse(manifest_bytes, str(path))
        self.fields = self.manifest.fields
        self._check_sizes()
        self.mapped = MappedFiles()
        if self.origin is None:
            _ = self.columns  # now: without them, the store is not complete
        self._ends = list(accumulate(shard.rows for shard in self.manifest.shards))
        self._first_chunks: dict[str, NDArray[np.int64]] = {}
        self._readers: dict[tuple[int, str], FieldReader] = {}
        self._paths: dict[tuple[int, str], str] = {}
        """The file that each of these reads."""

    def __len__(self) -> int:
        return self.manifest.samples

    @cached_property
    def columns(self) -> ColumnTable:
        """Its columns. Behind a URL, waits for them, and raises StoreError where they cannot be fetched."""
        if self.origin is not None:
            self.origin.fetcher.restore()
        return ColumnTable.open(self.path, self.manifest, self.mapped)

    def locate(self, row: int) -> tuple[int, int]:
        shard = bisect_right(self._ends, row)
        return shard, row - self.first(shard)

    def first(self, shard: int) -> int:
        return self._ends[shard - 1] if shard else 0

    def reader(self, shard: int, name: str) -> FieldReader:
        """The reader of one field of one shard, opened on first use."""
        try:
            return self._readers[shard, name]
        except KeyError:
            # Two threads may both open it; then one mapping is dropped. A fork could leave a lock held forever.
            return self._readers.setdefault((shard, name), self._open(shard, name))

    def look(self, shard: int, name: str) -> None:
        """Raise DamagedStoreError where the file that holds a field of a shard was written to since it was mapped."""
        if (path := self._paths.get((shard, name))) is not None:
            self.mapped.check(path)

    def let_go(self) -> bool:
        """Unmap shards that were removed from the cache, as soon as nobody is reading by what maps them. Whether there
        were any."""
        removed = self.files.removed()
        for key in removed:
            self._readers.pop(key, None)
        return bool(removed)

    def raw_shard(self, number: int, name: str) -> RawShard:
        """A shard as a `Gather` reads what is stored of a field."""
        shard = self.manifest.shards[number]
        placed = shard.fields[name]
        record = shard.files[placed.file]

        def opened() -> tuple[int, int]:
            self.reader(number, name)  # which checks the file
            return self.files.open(record)

        return RawShard(shard.rows, record.bytes, placed.offset, opened)

    def is_random_access(self, number: int, name: str) -> bool:
        """Whether image field `name` of a shard is mapped for random access: not where samples are small."""
        shard = self.manifest.shards[number]
        return self.files.random_access and shard.fields[name].bytes >= shard.rows * _RANDOM_ACCESS_BYTES

    def use(self, memory: Memory) -> None:
        _ = self.columns  # which need not have been fetched yet
        self.files, self.origin, self._readers = InMemory(self.files, memory), None, {}

    def files_of(self, number: int, names: Sequence[str]) -> list[FileRecord]:
        """The files that hold some fields of a shard."""
        shard = self.manifest.shards[number]
        return [shard.files[k] for k in dict.fromkeys(shard.fields[name].file for name in names)]

    def _open(self, number: int, name: str) -> FieldReader:
        shard = self.manifest.shards[number]
        placement, field = shard.fields[name], self.fields[name]
        record = shard.files[placement.file]
        index: dict[str, NDArray[Any]] = {}
        for part in field.index:
            if part == "chunk":
                index[part] = self.chunks(number, name)
            else:
                index[part] = self.columns.piece(f"{name}.{part}", self.first(number), shard.rows)
        if not field.uniform:
            self._check_shapes(name, index["shape"])
        data = self.files.map((number, name), record, self.mapped, random_access=self.is_random_access(number, name))
        self._paths[number, name] = where = str(self.path / record.name)
        in_shard = ShardField(where, data, shard.rows, field, placement, index)
        reader: FieldReader = resolve(format_of(self.manifest.format).open)(in_shard)
        return reader

    def chunks(self, number: int, name: str) -> NDArray[Any]:
        """Offset and bytes of each compressed chunk of field `name` in a shard. A folder of columns has those of its
        shards, one after another."""
        if name not in self._first_chunks:
            counts = [shard.fields[name].chunks for shard in self.manifest.shards]
            self._first_chunks[name] = np.cumsum([0, *counts], dtype=np.int64)
        folder, at = self.columns.located(self.first(number))
        ends = self._first_chunks[name] - self._first_chunks[name][self.locate(self.first(number) - at)[0]]
        return folder.arrays[f"{name}.chunk"][ends[number] : ends[number + 1]]

    def shapes(self, name: str) -> NDArray[np.int32]:
        """The shapes of all samples of an image or mask field, (n, axes)."""
        if self.fields[name].uniform:
            return np.tile(np.array(self.fields[name].shape, np.int32), (len(self), 1))
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
                        f"{self.path}: {count(shard.rows, 'sample')} of {field.shape}, {need} bytes, cannot be in the "
                        f"{record.bytes} bytes of {record.name}"
                    )
