"""Writes an LMDB shard: values are JPEG files, or PNG files for masks; keys are row numbers in 12 ASCII digits.

The bytes of the file depend only on the values: when the map grows and a transaction ends depends on the bytes written,
not on time.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
from numpy.typing import NDArray

from rawpack.disk.manifest import Field, Placement
from rawpack.errors import PackError
from rawpack.system import writing
from rawpack_packer.destination import files
from rawpack_packer.recipe import Recipe
from rawpack_packer.recipe.fields import IMAGE
from rawpack_packer.samples.sample import PreparedSample
from rawpack_packer.text import again, count
from rawpack_packer.writers import Finished, Keys, large

if TYPE_CHECKING:
    from rawpack.store.store import Store

_FIRST_MAP = 64 << 20
_TRANSACTION = 64 << 20
"""Bytes of values per transaction; liblmdb holds as many dirty pages in memory."""
_PAGE, _PAGE_HEAD, _NODE = 4096, 16, 20
"""Bytes of a page, of its header, and of a node's header with the key, which precede a value."""
_ENTRY = 30
"""Bytes that refer to a value with its own pages."""
_END = 64
"""Bytes at a value's beginning and end that are compared."""
_SLACK = 1 << 20
"""Bytes for branch pages, the free list and the pages that a transaction copies."""


def key_of(row: int, name: str = IMAGE) -> bytes:
    """The key of a row: 12 ASCII digits, so that LMDB's order is that of rows; for a mask, followed by its name."""
    return b"%012d" % row + (b"" if name == IMAGE else b"." + name.encode())


class LmdbWriter:
    """Writes the fields of a shard into one LMDB file."""

    def __init__(self, paths: Sequence[Path], recipe: Recipe, fields: Mapping[str, Field]) -> None:
        (path,) = paths
        self._path, self._map = path, _FIRST_MAP
        # In the order of their keys, because values are appended.
        self._names = sorted(large(fields), key=lambda name: key_of(0, name))
        self._pending: list[NDArray[Any]] = []
        self._pending_bytes = self._need = 0
        self._sizes: list[int] = []
        """Bytes of all values, in the order of adding."""
        try:
            # lock=False: there is only one writer, and no lock file is left. The caller syncs the file before renaming.
            with writing.created_for(path):
                self._env = lmdb.open(
                    os.fsencode(path),
                    subdir=False,
                    map_size=self._map,
                    lock=False,
                    sync=False,
                    metasync=False,
                    readahead=False,
                )
        except lmdb.Error as error:
            raise self._explained(error) from error

    def add(self, sample: PreparedSample, /) -> None:
        for name in self._names:
            value = sample.parts[name].data
            self._pending.append(value)
            self._sizes.append(value.nbytes)
            self._pending_bytes += value.nbytes
            # At most, a value takes whole pages after a page header, and its key one leaf.
            self._need += (value.nbytes + 16 + _PAGE - 1) // _PAGE * _PAGE + _PAGE
        if self._pending_bytes >= _TRANSACTION:
            self._flush()

    def finish(self, columns: Keys, /) -> dict[str, Finished]:
        self._flush()
        self._env.close()
        each = len(self._names)
        offsets, sizes = self._offsets(), np.array(self._sizes, np.int64)
        finished = {}
        for k, name in enumerate(self._names):
            index = {"offset": offsets[k::each].copy(), "bytes": sizes[k::each].copy()}
            finished[name] = Finished(Placement(bytes=int(index["bytes"].sum())), index)
        return finished

    def _key(self, number: int) -> bytes:
        """The key of value `number`, in the order of adding."""
        row, k = divmod(number, len(self._names))
        return key_of(row, self._names[k])

    def abort(self) -> None:
        self._env.close()

    def _flush(self) -> None:
        first, values = len(self._sizes) - len(self._pending), self._pending[::-1]
        self._pending.clear()
        try:
            if self._need + _SLACK > self._map:
                while self._need + _SLACK > self._map:
                    self._map *= 2
                self._env.set_mapsize(self._map)
            with self._env.begin(write=True) as transaction:
                # Each value is freed before liblmdb allocates the pages of the next one, which takes its memory.
                for number in range(first, len(self._sizes)):
                    transaction.put(self._key(number), values.pop().data, append=True)
        except lmdb.Error as error:
            raise self._explained(error) from error
        self._pending_bytes = 0
        # The disk writes while the next samples are read.
        files.begin_sync(self._path)

    def _explained(self, error: lmdb.Error) -> Exception:
        """The reason why LMDB could not write: it reports a full disk as an input/output error."""
        if shutil.disk_usage(self._path.parent).free < self._pending_bytes + _SLACK:
            return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if isinstance(error, lmdb.MemoryError):
            return MemoryError(str(error))
        return PackError(f"{self._path}: LMDB could not write: {error}; fix that, then run {again()} again to resume")

    def _offsets(self) -> NDArray[np.int64]:
        """Where each value begins in the file.

        liblmdb does not report offsets, but its map is the file, so that addresses of values differ as their offsets
        do. The value at the lowest address is searched for in the file, which gives all offsets; then both ends of
        every value are compared with the file at its offset. If the search found a copy in a stale page, this fails,
        and the search continues.
        """
        try:
            env = lmdb.open(os.fsencode(self._path), subdir=False, readonly=True, lock=False, readahead=False)
        except lmdb.Error as error:
            why = f"LMDB could not read what it wrote: {error}"
            raise PackError(f"{self._path}: {why}; fix that, then run {again()} again to resume") from error
        try:
            with (
                self._path.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
                env.begin(buffers=True) as transaction,
            ):
                values = self._values(transaction)
                addresses = np.array([value.__array_interface__["data"][0] for value in values], np.int64)
                lowest = int(addresses.argmin())
                anchor, at = values[lowest].tobytes(), -1
                while (at := data.find(anchor, at + 1)) >= 0:
                    offsets: NDArray[np.int64] = addresses - addresses[lowest] + at
                    if _are_at(offsets, values, data):
                        return offsets
        finally:
            env.close()
        raise PackError(f"{self._path}: LMDB's values are not in its file")

    def _values(self, transaction: lmdb.Transaction) -> list[NDArray[np.uint8]]:
        values: list[NDArray[np.uint8]] = []
        with transaction.cursor() as cursor:
            for number, (key, value) in enumerate(cursor):
                if bytes(key) != self._key(number) or len(value) != self._sizes[number]:
                    raise PackError(f"{self._path}: LMDB did not keep value {number}")
                values.append(np.frombuffer(value, np.uint8))
        if len(values) != len(self._sizes):
            raise PackError(f"{self._path}: LMDB kept {len(values)} of {count(len(self._sizes), 'value')}")
        return values


def libraries() -> dict[str, str]:
    """The version of LMDB, which decides the bytes of a file."""
    return {"lmdb": ".".join(str(part) for part in lmdb.version())}


def value_bytes(size: int) -> int:
    """Bytes that a value takes in the file: small values share a page; others have pages of their own."""
    node = _NODE + size
    if node <= (_PAGE - _PAGE_HEAD) // 2 - 2:
        return _PAGE // ((_PAGE - _PAGE_HEAD) // (node + 2))
    return -(-(size + _PAGE_HEAD) // _PAGE) * _PAGE + _ENTRY


def compare(store: Store, number: int, name: str, file: Path) -> str | None:
    """What differs between the shard as LMDB reads it and its index, or None. See `OutputFormat.compare`."""
    reader, rows = store.reader(number, name), store.manifest.shards[number].rows
    with (
        lmdb.open(os.fsencode(file), subdir=False, readonly=True, lock=False, readahead=False) as env,
        env.begin(buffers=True) as txn,
    ):
        packed = rows * sum(field.in_shards for field in store.fields.values())
        if env.stat()["entries"] != packed:
            return f"its database has {count(env.stat()['entries'], 'entry', 'entries')}; {packed} were packed"
        for row in range(rows):
            value: Any = txn.get(key_of(row, name))
            if value is None or not np.array_equal(np.frombuffer(value, np.uint8), reader.stored(row)):
                return f"its database and the index differ at row {row}"
    return None


def _are_at(offsets: NDArray[np.int64], values: list[NDArray[np.uint8]], data: mmap.mmap) -> bool:
    """Whether the file has each value at its offset, judged by the value's first and last bytes."""
    return all(
        data[start : start + _END] == value[:_END].tobytes()
        and data[max(start, start + len(value) - _END) : start + len(value)] == value[-_END:].tobytes()
        for start, value in zip(offsets.tolist(), values, strict=True)
    )
