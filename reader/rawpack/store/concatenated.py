"""Several stores read as one: rows are numbered through all of them, in the order of the list."""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
import xxhash
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.formats.field_reader import Array, Box, FieldReader
from rawpack.formats.gather import Gather
from rawpack.store.common import STORE, check_alike, common_fields
from rawpack.store.preload import Memory
from rawpack.store.shard_files import InMemory
from rawpack.store.store import Store, gather_of
from rawpack.system.memory import tells_cached

if TYPE_CHECKING:
    from rawpack.remote.fetch import Fetcher
    from rawpack.remote.tickets import RemoteFile

T = TypeVar("T")
INDEX = "index"
"""The name of what every sample and batch has: the row, or rows, of the reader."""
CLIP = "clip"
"""The name of what every clip has besides the fields of its frames: its number."""


class Closing(Protocol):
    """What can be closed."""

    def close(self) -> None: ...


class ConcatenatedStore:
    """The samples of one or more stores with the same fields, whatever their formats; or of the stores of a mix,
    which need not have the same fields."""

    def __init__(self, stores: Sequence[Store], groups: Sequence[int] | None = None) -> None:
        """groups: of a mix: how many of the stores count as one, for each of those that are mixed."""
        self.stores = list(stores)
        self.fetcher: Fetcher | None = next((store.origin.fetcher for store in self.stores if store.origin), None)
        """What fetches shards of the stores behind URLs; None where all are on this machine, or in memory."""
        if not self.stores:
            raise UsageError("no store was named")
        first = self.stores[0]
        self.ends = np.cumsum([len(store) for store in self.stores], dtype=np.int64)
        self._ends: list[int] = self.ends.tolist()
        self.fields: dict[str, Field] = first.fields
        self.classes = first.manifest.classes
        self.groups = None if groups is None else tuple(groups)
        self.problems: dict[str, str] = {}
        """Of a mix: why a field is not in `fields`, or should not be used unless it is named."""
        if groups is None:
            check_alike(self.stores)
        else:
            self.fields, self.problems = common_fields(self.stores)
            self.fields[STORE] = Field(kind="number", dtype="int64")
            self.group_ends = self.ends[np.cumsum(groups) - 1]
            if any(store.manifest.classes != self.classes for store in self.stores):
                self.classes = None
        self._gathers: dict[str, Gather | None] = {}
        self.closed = False
        self._open: weakref.WeakSet[Closing] = weakref.WeakSet()
        """What ends with the stores."""

    def ends_with(self, one: Closing) -> None:
        """Have `close` close this too."""
        self._open.add(one)

    def close(self) -> None:
        """End everything that reads the stores, and all downloads."""
        self.closed = True
        for one in list(self._open):
            one.close()
        if self.fetcher is not None:
            self.fetcher.close()

    def __len__(self) -> int:
        return int(self.ends[-1])

    @property
    def memory(self) -> Memory | None:
        """What the shards of all stores were read into; None where they are mapped from files."""
        files = self.stores[0].files
        return files.memory if isinstance(files, InMemory) else None

    def preload(self, tick: Callable[[int], None]) -> None:
        """Read all shards into memory. tick: called with the bytes read."""
        memory = Memory.load([(store.path, store.manifest, store.files.held) for store in self.stores], tick)
        self._gathers, self.fetcher = {}, None
        for store in self.stores:
            store.use(memory)

    def remote_items(self, rows: NDArray[np.int64], names: Sequence[str]) -> list[RemoteFile]:
        """The files behind URLs that hold fields `names` of samples `rows`, in the order of the store."""
        by_store = ((store, local) for store, local, _ in self._by_store(rows) if store.origin is not None)
        return [item for store, local in by_store for item in store.remote_items(local, names)]

    def shard_table(self, names: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For all shards of all stores: the row after the last, and the bytes of fields `names` that must be fetched:
        0 where the store is on this machine."""
        ends = [store.ends + int(end) - len(store) for store, end in zip(self.stores, self.ends, strict=True)]
        sizes = [
            sum(record.bytes for record in store.files_of(shard, names)) if store.origin is not None else 0
            for store in self.stores
            for shard in store.manifest.shards
        ]
        return np.concatenate(ends), np.array(sizes, np.int64)

    @property
    def shard_bytes(self) -> int:
        """Bytes of all shard files."""
        return sum(store.manifest.shard_bytes for store in self.stores)

    def mean_bytes(self, names: Sequence[str]) -> int:
        """Bytes of image and mask fields `names` of a sample as they are stored, on average."""
        shards = (shard for store in self.stores for shard in store.manifest.shards)
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

    def locate(self, row: int) -> tuple[Store, int]:
        """The store that holds `row`, and the row there."""
        k = bisect_right(self._ends, row)
        return self.stores[k], row - self._first(k)

    def group_of(self, rows: NDArray[np.int64] | int) -> NDArray[np.int64]:
        """Of a mix: the number of the group that each row belongs to."""
        return np.searchsorted(self.group_ends, rows, side="right")

    def read_into(self, name: str, rows: NDArray[np.int64], out: Array) -> None:
        """Fill out[i] with field `name` (image or mask of one shape, or number) of sample rows[i]."""
        if name == STORE and self.groups is not None:
            out[...] = self.group_of(rows)
            return
        gather = None if self.fields[name].planar else self._gather(name)
        if gather is not None:
            gather.read_into(rows, out)
            return
        for store, local, at in self._by_store(rows):
            store.read_into(name, local, out, at)

    def read_planes(self, name: str, rows: NDArray[np.int64], out: Array) -> None:
        """Fill out[i], (bytes of a sample,), with the planes of sample rows[i] as they are stored."""
        gather = self._gather(name)
        if gather is not None:
            gather.read_into(rows, out)
            return
        for store, local, at in self._by_store(rows):
            store.read_planes(name, local, out, at)

    def _first(self, k: int) -> int:
        """The row of a store's first sample."""
        return self._ends[k - 1] if k else 0

    def _by_store(self, rows: NDArray[np.int64]) -> Iterator[tuple[Store, NDArray[np.int64], NDArray[np.int64] | None]]:
        """Rows as (store, its rows, their positions in `rows`), store after store; None for all positions."""
        if len(self.stores) == 1:
            yield self.stores[0], rows, None
            return
        which = np.searchsorted(self.ends, rows, side="right")
        for k in np.unique(which).tolist():
            at = np.flatnonzero(which == k)
            yield self.stores[k], rows[at] - self._first(k), None if len(at) == len(rows) else at

    def _listed(self, read: Callable[[Store, NDArray[np.int64]], list[T]], rows: NDArray[np.int64]) -> list[T]:
        """What `read` gives for the rows of each store, in the order of `rows`."""
        found: dict[int, T] = {}
        for store, local, at in self._by_store(rows):
            values = read(store, local)
            if at is None:
                return values
            found.update(zip(at.tolist(), values, strict=True))
        return [found[i] for i in range(len(rows))]

    def _gather(self, name: str) -> Gather | None:
        """What reads an image field of several stores in one call, if they allow it. One store has its own."""
        field = self.fields[name]
        if len(self.stores) == 1 or not field.in_shards or not field.uniform:
            return None
        try:
            return self._gathers[name]
        except KeyError:
            return self._gathers.setdefault(name, gather_of(self.stores, name))

    def read(self, name: str, row: int, box: Box | None = None, scale: int = 1, out: Array | None = None) -> Array:
        """Image field `name` of one sample, or a part of it; see `FieldReader.read`."""
        store, at = self.locate(row)
        return store.read(name, at, box, scale, out)

    def located(self, name: str, rows: NDArray[np.int64]) -> list[tuple[FieldReader, int]]:
        """For each sample the reader of its shard's image field `name`, and its row there."""
        return self._listed(lambda store, local: list(store.located(name, local)), rows)

    def readahead(self, name: str, rows: NDArray[np.int64]) -> None:
        """Ask the disk for image field `name` of these samples; see `FieldReader.readahead`."""
        for store, local, _ in self._by_store(rows):
            store.readahead(name, local)

    @cached_property
    def tells_cached(self) -> bool:
        """Whether the system answers `is_cached`: not for files of other users."""
        firsts = [store.path / store.manifest.shards[0].files[0].name for store in self.stores if store.manifest.shards]
        return self.memory is not None or all(map(tells_cached, firsts))

    def is_cached(self, name: str, row: int) -> bool:
        """Whether an image is in the page cache; see `FieldReader.is_cached`."""
        store, at = self.locate(row)
        return store.is_cached(name, at)

    def check(self, name: str, row: int) -> None:
        """Raise DamagedStoreError unless the stored bytes of image field `name` are those that were packed."""
        store, at = self.locate(row)
        store.check(name, at)

    def check_columns(self) -> None:
        """Raise DamagedStoreError unless all bytes of all columns are those that were packed."""
        for store in self.stores:
            store.columns.check_contents()

    def look_at_files(self, *, now: bool = False) -> None:
        """Raise DamagedStoreError where a file that is mapped here was written to since, see `MappedFiles.look`;
        UsageError where the stores were closed."""
        if self.closed:
            raise UsageError("this reader was closed: open another one")
        for store in self.stores:
            store.mapped.look(now=now)

    def text(self, name: str, rows: NDArray[np.int64]) -> list[str]:
        """Text field `name` of samples `rows`."""
        return self._listed(lambda store, local: store.columns.text(name, local), rows)

    def ragged(self, name: str, rows: NDArray[np.int64]) -> list[Array]:
        """Ragged field `name` of samples `rows`: (n, ...) each, read-only views of mapped columns."""
        return self._listed(lambda store, local: store.columns.ragged(name, local), rows)

    def shapes(self, name: str) -> NDArray[np.int32]:
        """The shapes of all samples of an image or mask field, (n, axes), where they differ."""
        return np.concatenate([store.shapes(name) for store in self.stores])

    def longest(self, name: str) -> int:
        """The length of the longest sample of the ragged field `name`."""
        return max(store.columns.longest(name) for store in self.stores)
