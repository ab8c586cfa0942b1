"""The open stores of a reader, read as one: rows are numbered through all shards of all stores, in the order of the
list."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.columns import ColumnTable, by_part, parts_of
from rawpack.disk.manifest import Field
from rawpack.errors import DamagedStoreError, UsageError
from rawpack.formats.field_reader import Array, FieldReader, planes_of
from rawpack.formats.gather import Gather
from rawpack.store.common import check_alike, common_fields
from rawpack.store.shard_files import InMemory, Memory
from rawpack.store.store import Store
from rawpack.system.memory import tells_cached
from rawpack.words import STORE

if TYPE_CHECKING:
    from rawpack.remote.download import RemoteFile
    from rawpack.remote.fetch import Fetcher

_BLOCK = 1 << 20
_LOOKS = 4
"""Samples of several that are checked for being in the page cache: asking the disk for each takes longer than copying
it."""


class InMapping(NamedTuple):
    """Where the pixels, or planes, of several samples are in memory, row after row without gaps."""

    addresses: NDArray[np.uint64]
    """(n,): of the first byte of each."""
    ends: NDArray[np.uint64] | np.uint64
    """(n,), or one for all: the address before which memory may be read."""
    sizes: NDArray[np.int32]
    """(n, 2): height and width of each."""
    kept: object
    """What keeps the memory mapped: hold it while the addresses are used."""
    planar: bool = False


class Stores:
    """The samples of one or more stores with the same fields, whatever their formats; or of the stores of a mix,
    which need not have the same fields. Any number of threads may use one."""

    def __init__(self, stores: Sequence[Store], groups: Sequence[int] | None = None) -> None:
        """groups: of a mix: how many of the stores count as one, for each of those that are mixed."""
        if not stores:
            raise UsageError("no store was named")
        self.stores = list(stores)
        self.groups = None if groups is None else tuple(groups)
        self.fields: dict[str, Field] = stores[0].fields
        self.classes = stores[0].manifest.classes
        self.problems: dict[str, str] = {}
        """Of a mix: why a field is not in `fields`, or should not be used unless it is named."""
        self.ends = np.cumsum([len(store) for store in stores], dtype=np.int64)
        """(stores,): the row after each store's last."""
        if groups is None:
            check_alike(stores)
        else:
            self.fields, self.problems = common_fields(stores)
            self.group_ends = self.ends[np.cumsum(groups) - 1]
            if any(store.manifest.classes != self.classes for store in stores):
                self.classes = None
        self._shards = [(store, number) for store in stores for number in range(len(store.manifest.shards))]
        """Each shard's store, and its number there."""
        rows = [store.manifest.shards[number].rows for store, number in self._shards]
        self._shard_ends = np.cumsum(rows, dtype=np.int64)
        self._firsts: list[int] = (self._shard_ends - rows).tolist()
        self.fetcher: Fetcher | None = next((store.origin.fetcher for store in stores if store.origin), None)
        """What fetches shards of the stores behind URLs; None where all are on this machine, or in memory."""
        self._evictable = [store for store in stores if store.files.evictable]
        self._gathers: dict[tuple[str, bool], Gather | None] = {}
        self._look_at = 0.0
        self._items: dict[tuple[int, tuple[str, ...]], list[RemoteFile]] = {}

    def close(self) -> None:
        if self.fetcher is not None:
            self.fetcher.close()

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def memory(self) -> Memory | None:
        """What the shards of all stores were read into; None where they are mapped from files."""
        files = self.stores[0].files
        return files.memory if isinstance(files, InMemory) else None

    def preloaded(self, tick: Callable[[int], None]) -> Stores:
        """The same stores, with all shards in memory. tick: called with the bytes read."""
        memory = Memory.load([(store.files, store.manifest) for store in self.stores], tick)
        for store in self.stores:
            store.use(memory)
        return Stores(self.stores, self.groups)

    @cached_property
    def columns(self) -> ColumnTable:
        """The columns of all stores. Waits for them, and raises StoreError where they cannot be fetched."""
        return ColumnTable([folder for store in self.stores for folder in store.columns.folders])

    def remote_items(self, rows: NDArray[np.int64], names: Sequence[str]) -> list[RemoteFile]:
        """The files behind URLs that hold fields `names` of samples `rows`, in the order of the shards."""
        found: list[RemoteFile] = []
        for shard in sorted(set(self._shard_ends.searchsorted(rows, "right").tolist())):
            key = shard, tuple(names)
            if key not in self._items:
                store, number = self._shards[shard]
                origin = store.origin
                self._items[key] = [origin.item(one) for one in store.files_of(number, names)] if origin else []
            found += self._items[key]
        return found

    def shard_table(self, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For all shards of all stores: the row after the last, and the bytes of fields `names` that must be fetched:
        0 where the store is on this machine."""
        sizes = [
            sum(record.bytes for record in store.files_of(number, names)) if store.origin is not None else 0
            for store, number in self._shards
        ]
        return self._shard_ends, np.array(sizes, np.int64)

    @property
    def shard_bytes(self) -> int:
        return sum(store.manifest.shard_bytes for store in self.stores)

    def mean_bytes(self, names: Sequence[str]) -> int:
        """Bytes of image and mask fields `names` of a sample as they are stored, on average."""
        shards = (store.manifest.shards[number] for store, number in self._shards)
        return sum(shard.fields[name].bytes for shard in shards for name in names) // max(1, len(self))

    @property
    def key_digest(self) -> str:
        """Identifies the samples and their rows, whatever the format: the same for equal keys in equal order."""
        sums = [
            record.xxh3
            for store in self.stores
            for columns in store.manifest.columns
            for record in columns.files
            if record.name in ("key.npy", "key.offset.npy")
        ]
        return xxhash.xxh3_64_hexdigest(" ".join(sums).encode())

    def contents(self, folders: int | None = None) -> tuple[int, str]:
        """How many folders of columns there are, and what identifies the samples in them. folders: only the first ones,
        which an append leaves as they are."""
        parts = (columns for store in self.stores for columns in store.manifest.columns)
        sums = [" ".join(record.xxh3 for record in columns.files) for columns in parts][:folders]
        return len(sums), xxhash.xxh3_64_hexdigest("\n".join(sums).encode())

    def locate(self, row: int) -> tuple[Store, int]:
        """The store that holds `row`, and the row there."""
        k = int(self.ends.searchsorted(row, "right"))
        return self.stores[k], row - int(self.ends[k]) + len(self.stores[k])

    def group_of(self, rows: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Of a mix: the number of the group that each row belongs to."""
        return np.searchsorted(self.group_ends, rows, side="right")

    def read_into(self, name: str, rows: NDArray[np.int64], out: Array) -> None:
        """Fill out[i] with field `name` (image or mask of one shape, or number) of sample rows[i]."""
        if self.fields[name].kind == "number":
            if name == STORE and self.groups is not None:
                out[...] = self.group_of(rows)
            else:
                self.columns.take(name, rows, out)
            return
        gather = self._gather(name)
        if gather is not None:
            gather.read_into(rows, out)
            return
        for reader, local, at in self._by_shard(name, rows):
            reader.read_into(local, out, at)

    def in_place(self, name: str) -> bool:
        """Whether the pixels, or planes, of an image field are stored as they are in all stores."""
        return all(store.fields[name].codec.in_place for store in self.stores)

    def in_mapping(self, name: str, rows: NDArray[np.int64]) -> InMapping:
        """Where the pixels, or planes, of image field `name` of samples `rows` are, if it is `in_place`.

        Raises DamagedStoreError where a shard that has one of them was cut short since it was mapped.
        """
        planar = all(store.fields[name].planar for store in self.stores)
        gather = self._gather(name, planar)
        self._look_at_shards(name, rows)
        if gather is not None:
            sizes = np.full((len(rows), 2), self.fields[name].shape[:2], np.int32)
            return InMapping(*gather.addresses(rows), sizes, gather, planar)
        located = self.located(name, rows)
        images = [planes_of(reader, at) if planar else reader.read(at) for reader, at in located]
        addresses = np.array([image.ctypes.data for image in images], np.uint64)
        ends = addresses + np.array([image.nbytes for image in images], np.uint64)
        shapes = [reader.shape(at)[:2] for reader, at in located] if planar else [image.shape[:2] for image in images]
        return InMapping(addresses, ends, np.array(shapes, np.int32), images, planar)

    def read_planes(self, name: str, rows: NDArray[np.int64], out: Array) -> None:
        """Fill out[i], (bytes of a sample,), with the planes of sample rows[i] as they are stored."""
        gather = self._gather(name, planes=True)
        if gather is not None:
            gather.read_into(rows, out)
            return
        for i, (reader, row) in enumerate(self.located(name, rows)):
            out[i] = planes_of(reader, row)

    def _gather(self, name: str, planes: bool = False) -> Gather | None:
        """What reads an image field, or its planes, as they are stored, from all shards in one call; None where the
        field or the system does not allow that."""
        if self._evictable:
            self._let_go()
        try:
            return self._gathers[name, planes]
        except KeyError:
            return self._gathers.setdefault((name, planes), self._new_gather(name, planes))

    def _new_gather(self, name: str, planes: bool) -> Gather | None:
        field = self.fields[name]
        alike = len({store.fields[name].encoding for store in self.stores}) == 1
        if not (alike and field.uniform and field.codec.in_place and field.planar == planes):
            return None
        if self._evictable and len(self.stores) > 1:
            return None  # what one store maps can only be unmapped with what the others map
        shards = [store.raw_shard(number, name) for store, number in self._shards]
        try:
            return Gather(shards, np.dtype(field.dtype), field.stored_shape, random_access=name in self.random_access)
        except OSError:
            return None

    def _let_go(self) -> None:
        """Unmap shards that were removed from the cache: then the disk has room for others."""
        for store in self._evictable:
            if store.let_go():
                self._gathers.clear()

    def _by_shard(
        self, name: str, rows: NDArray[np.int64]
    ) -> list[tuple[FieldReader, NDArray[np.int64], NDArray[np.intp] | None]]:
        """Rows by shard: the reader of image field `name`, the rows there, and their positions in `rows`; None for all
        positions."""
        if self._evictable:
            self._let_go()
        found = []
        for shard, local, at in by_part(self._shard_ends, rows):
            store, number = self._shards[shard]
            found.append((store.reader(number, name), local, at))
        return found

    def located(self, name: str, rows: NDArray[np.int64]) -> list[tuple[FieldReader, int]]:
        """For each sample the reader of its shard's image field `name`, and its row there."""
        if self._evictable:
            self._let_go()
        shards: list[int] = self._shard_ends.searchsorted(rows, "right").tolist()
        readers: dict[int, FieldReader] = {}
        for shard in set(shards):
            store, number = self._shards[shard]
            readers[shard] = store.reader(number, name)
        return [(readers[shard], row - self._firsts[shard]) for shard, row in zip(shards, rows.tolist(), strict=True)]

    def reader_of(self, name: str, row: int) -> tuple[FieldReader, int]:
        """`located` of one sample, in a fraction of the time."""
        if self._evictable:
            self._let_go()
        shard = bisect_right(self._firsts, row) - 1
        store, number = self._shards[shard]
        return store.reader(number, name), row - self._firsts[shard]

    def scales(self, name: str, row: int) -> bool:
        """Whether this sample's image field `name` may be decoded at a reduced scale. Stores may differ in that."""
        store, _ = self._shards[bisect_right(self._firsts, row) - 1]
        return store.fields[name].codec.scales

    def readahead(self, name: str, rows: NDArray[np.int64]) -> None:
        """Ask the disk for image field `name` of these samples; see `FieldReader.readahead`."""
        for reader, local, _ in self._by_shard(name, rows):
            reader.readahead(local)

    @cached_property
    def random_access(self) -> set[str]:
        """The image fields of which any shard is mapped for random access: then readahead is needed."""
        images = [name for name, field in self.fields.items() if field.in_shards]
        return {name for name in images if any(store.is_random_access(k, name) for store, k in self._shards)}

    @cached_property
    def tells_cached(self) -> bool:
        """Whether the system answers `is_cached`: not for files of other users."""
        firsts = [store.path / store.manifest.shards[0].files[0].name for store in self.stores if store.manifest.shards]
        return self.memory is not None or all(map(tells_cached, firsts))

    def is_cached(self, name: str, row: int) -> bool:
        """Whether an image is in the page cache; see `FieldReader.is_cached`."""
        reader, at = self.reader_of(name, row)
        return reader.is_cached(at)

    def check(self, name: str, row: int) -> None:
        """Raise DamagedStoreError unless the stored bytes of image field `name` are those that were packed."""
        reader, at = self.reader_of(name, row)
        stored = np.ascontiguousarray(reader.stored(at))
        packed = int(self.columns.piece(f"{name}.xxh3", row, 1)[0])
        if xxhash.xxh3_64_intdigest(stored.data) != packed:
            path = self.locate(row)[0].path
            raise DamagedStoreError(f"{path}: {name} was changed after packing: its checksum does not fit")

    def look_at_files(self, *, now: bool = False) -> None:
        """Raise DamagedStoreError where a file that is mapped here was written to since, see `MappedFiles.look`."""
        if now or time.monotonic() >= self._look_at:
            for store in self.stores:
                store.mapped.look(now=now)
            self._look_at = min(store.mapped.look_at for store in self.stores)

    def look(self, name: str, row: int) -> None:
        """The same, now, for the shard that has image field `name` of one sample."""
        store, number = self._shards[bisect_right(self._firsts, row) - 1]
        store.look(number, name)

    def _look_at_shards(self, name: str, rows: NDArray[np.int64]) -> None:
        for shard in parts_of(self._shard_ends, rows):
            store, number = self._shards[shard]
            store.look(number, name)

    def shapes(self, name: str) -> NDArray[np.int32]:
        """The shapes of all samples of an image or mask field, (n, axes)."""
        for folder in self.columns.folders:
            folder.look(name)
        return np.concatenate([store.shapes(name) for store in self.stores])

    def value(self, name: str, row: int, verify: bool) -> Any:
        """Field `name` of one sample, as `values` gives it of several, in a fraction of the time."""
        field = self.fields[name]
        if name == STORE and self.groups is not None:
            return np.int64(self.group_of(row))
        if not field.in_shards:
            return self.columns.value(name, row, field.kind)
        self.look(name, row)
        reader, at = self.reader_of(name, row)
        if name in self.random_access and not (self.tells_cached and reader.is_cached(at)):
            self.readahead(name, np.array([row], np.int64))
        if verify:
            self.check(name, row)
        return np.array(reader.read(at))

    def values(self, name: str, rows: NDArray[np.int64], verify: bool = False) -> Any:
        """Field `name` of samples `rows`, (n,), read here and now: a new array (n, ...), or a list where samples differ
        in length or size, and of texts. verify: check images against their checksums."""
        field = self.fields[name]
        self.columns.look(name, rows)
        if field.in_shards:
            self._look_at_shards(name, rows)
        if field.kind == "text":
            return self.columns.text(name, rows)
        if field.kind == "ragged":
            return [np.array(sample) for sample in self.columns.ragged(name, rows)]
        if field.in_shards and len(rows):
            if name in self.random_access:
                looked_at = rows[:: -(-len(rows) // _LOOKS)].tolist()
                if not (self.tells_cached and all(self.is_cached(name, row) for row in looked_at)):
                    self.readahead(name, rows)
            if verify:
                for row in rows.tolist():
                    self.check(name, row)
        if not field.uniform:
            return [np.array(reader.read(at)) for reader, at in self.located(name, rows)]
        values = np.empty((len(rows), *(n or 0 for n in field.shape)), field.dtype)
        for start in range(0, len(rows), _BLOCK):
            self.read_into(name, rows[start : start + _BLOCK], values[start : start + _BLOCK])
        return values
