"""Measuring how fast one store is read, with a number of workers and a batch size, from memory and from the disk.

A measurement is a slice of time in a long epoch, without the start of the epoch and its workers. The samples of a small
store are repeated, each time in another order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack import Reader
from rawpack.batching.batches import Batches
from rawpack.batching.iterator import IN_FLIGHT
from rawpack.batching.readahead import THREAD
from rawpack.disk.mapped import map_file
from rawpack.errors import UsageError
from rawpack.order import BlockShuffled
from rawpack.store.store import Store
from rawpack_packer.inspect.warm import files_of
from rawpack_packer.options.naming import opt
from rawpack_packer.sources.video.frames import are_frames
from rawpack_packer.tune.measure.cache import drop, read_rate
from rawpack_packer.tune.measure.cpu import cpu_seconds
from rawpack_packer.tune.measure.limits import copy_limit, decode_limit
from rawpack_packer.voice import either

_LONG = 1 << 18
"""Samples of an epoch: far more than most slices read."""
_POOL_BYTES = 2 << 30
"""The rows of a store that are read repeatedly: more than a processor's cache, less than most memories."""
_FEW_BYTES = 16 << 20
"""Rows that this process reads quickly."""
_STARTED = 2
"""Batches after which all workers have begun."""
_COLD_BATCHES = 8
"""A cold pass has at least this many batches if there are enough samples: few would all be requested at once."""
_DISK_WAIT_S = 30.0
"""How long the disk may take for its last request."""
_DECODED = 256
"""JPEG files for measuring the bare limit."""
_LIMIT_BYTES = 512 << 20
"""Rows for measuring the bare limit."""


@dataclass(frozen=True)
class Setting:
    """How a store is read."""

    batch: int
    workers: int
    image_size: tuple[int, int] | None = None
    transform: tuple[Any, ...] = ()
    """Steps of `rawpack.transforms`."""

    @property
    def untouched(self) -> bool:
        """Whether images are read as they are stored."""
        return self.image_size is None and not self.transform


@dataclass(frozen=True)
class Throughput:
    """The result of one measurement."""

    images_per_s: float
    first_batch_s: float
    """From opening the store to its first batch, including the start of the workers."""
    bytes_per_s: float | None = None
    """Of the arrays in the batches; None for a cold pass."""
    cpu_s_per_image: float | None = None
    """Of all CPUs together; None where the system does not report it, and for a cold pass."""


class StoreMeter:
    """Measures one store. Keeps it open between measurements, but no workers."""

    def __init__(self, path: Path, seed: int = 0, where: str | None = None) -> None:
        """where: a condition; only these samples are read. Raises StoreError where `path` is not a store, UsageError
        where the condition does not fit it or no sample."""
        self.path, self._seed, self._where = path, seed, where
        store = Store(path)
        self.manifest, self.field = store.manifest, store.fields["image"]
        self.noun = "frame" if are_frames(store.fields) else "image"
        self.files = [file for file, _ in files_of(store)]
        self.shard_bytes = store.manifest.shard_bytes
        self.store_bytes = sum(size for _, size in files_of(store))
        self._reader: Reader | None = None
        try:
            self._samples = store.manifest.samples if where is None else len(self._open())
        except UsageError as error:
            raise UsageError(str(error).replace("where=", either("--where ", "where="), 1)) from None
        if where is not None and not self._samples:
            raise UsageError(f"{opt.where(repr(where))}: no sample of {path} matches it")

    def __len__(self) -> int:
        return self._samples

    def _open(self) -> Reader:
        reader = Reader(self.path)
        return reader if self._where is None else reader.select(where=self._where)

    @property
    def sample_bytes(self) -> float:
        """Mean bytes of an image in its shard."""
        return self.shard_bytes / max(1, self.manifest.samples)

    def warm(self, setting: Setting, seconds: float) -> Throughput:
        """Read from memory for about `seconds`, at least two batches."""
        if self._reader is None:
            # Opened once: what a worker has touched of a mapped file stays in this process's page table.
            self._reader = self._open()
            self._touch(self._reader, setting)
        began = time.perf_counter()
        batches = _batches(self._reader, setting, self._long_order)
        epoch = iter(batches)
        next(epoch)
        first = time.perf_counter() - began
        for _ in range(IN_FLIGHT + _STARTED):
            # Batches made ahead, before counting.
            epoch = _next(batches, epoch)[1]
        cpu, began, images, size, turns = cpu_seconds(), time.perf_counter(), 0, 0, 0
        while turns < 2 or time.perf_counter() - began < seconds:
            batch, epoch = _next(batches, epoch)
            images += len(batch["index"])
            size += sum(array.nbytes for array in batch.values())
            turns += 1
            del batch
        took, after = time.perf_counter() - began, cpu_seconds()
        epoch.close()
        each = None if cpu is None or after is None else (after - cpu) / images
        return Throughput(images / took, first, size / took, each)

    def cold(self, setting: Setting, seconds: float) -> Throughput | None:
        """Read for about `seconds`, each sample at most once, from files that are not in the page cache; None where the
        system keeps them there.

        In the order of a block shuffle, which is kinder to a disk than a full one.
        """
        self.close()
        if not drop(self.files):
            return None
        began = time.perf_counter()
        first = _first_batch(self._open, setting, began)
        if not drop(self.files):
            return None
        batch = max(1, min(setting.batch, len(self) // (_COLD_BATCHES + 1)))
        random = BlockShuffled(len(self), self._seed).samples(0, 0, min(len(self), _LONG))
        lead, rest = np.tile(random[:batch], IN_FLIGHT + _STARTED), random[batch:]
        if not len(rest):
            return None
        # The workers start in an epoch of a few repeated rows.
        batches = _batches(self._open(), replace(setting, batch=batch), lambda epoch: rest if epoch else lead)
        for _ in batches:
            pass
        clock, images, epoch = time.perf_counter(), 0, iter(batches)
        for one in epoch:
            images += len(one["index"])
            if time.perf_counter() - clock > seconds:
                break
        took = time.perf_counter() - clock
        epoch.close()
        return Throughput(images / took, first)

    def disk(self, seconds: float) -> float | None:
        """Bytes per second of the disk, reading this store's files in order; None where that cannot be measured."""
        self.close()
        return read_rate(self.files, seconds)

    @cached_property
    def limit(self) -> Callable[[int, float], float] | None:
        """`measure(threads, seconds)` of this store's bare limit, see `limits`; None where there is none."""
        if self.field.codec.suffix == ".jpg":
            store, random = Store(self.path), np.random.default_rng(self._seed)
            rows = random.permutation(len(self))[:_DECODED].tolist()
            files = [store.reader(shard, "image").stored(row) for shard, row in map(store.locate, rows)]
            shape = tuple(n or 0 for n in self.field.shape) if self.field.uniform else None
            return decode_limit(files, self.field.shape[-1] or 3, shape)
        if self.field.codec.in_place and not self.field.planar and self.field.uniform:
            return copy_limit(list(self._tables()), 256)
        return None

    def close(self) -> None:
        """Close the store's files: while they are mapped, they cannot be dropped from the page cache."""
        self._reader = None
        self.__dict__.pop("limit", None)

    def _tables(self) -> Iterator[NDArray[np.uint8]]:
        """The rows of some raw shards, mapped: uint8 (rows, bytes of a sample)."""
        size = int(np.prod([n or 1 for n in self.field.shape])) * np.dtype(self.field.dtype).itemsize
        left = _LIMIT_BYTES
        for shard in self.manifest.shards:
            if left <= 0:
                return
            placed = shard.fields["image"]
            data = map_file(self.path, shard.files[placed.file])
            yield data[placed.offset : placed.offset + shard.rows * size].reshape(shard.rows, size)
            left -= shard.rows * size

    def _touch(self, reader: Reader, setting: Setting) -> None:
        """Read each row of the pool once."""
        if len(self._pool) * self.sample_bytes < _FEW_BYTES:
            setting = replace(setting, workers=0)  # done before workers have started
        epoch = iter(_batches(reader, setting, self._pool))
        for _ in epoch:
            pass

    @cached_property
    def _pool(self) -> NDArray[np.int64]:
        """The rows that are read: all, or up to `_POOL_BYTES`."""
        count = max(1, min(len(self), int(_POOL_BYTES / max(1.0, self.sample_bytes))))
        return np.random.default_rng(self._seed).permutation(len(self))[:count]

    @cached_property
    def _long_order(self) -> NDArray[np.int64]:
        """The rows of the pool, repeated, each time in another random order."""
        random = np.random.default_rng(self._seed)
        return np.concatenate([random.permutation(self._pool) for _ in range(-(-_LONG // len(self._pool)))])


def _batches(
    reader: Reader, setting: Setting, order: NDArray[np.int64] | Callable[[int], NDArray[np.int64]] | None
) -> Batches:
    """order: the rows, for every epoch or by epoch; None for a shuffled epoch of all samples."""
    batches = reader.batches(
        setting.batch,
        shuffle=order is None,
        sampler=order,
        workers=setting.workers,
        image_size=setting.image_size,
        transform=setting.transform or None,
        rank=0,
    )
    # What is measured is the same each time.
    batches.set_epoch(0)
    return batches


def _next(batches: Batches, epoch: Any) -> tuple[dict[str, Any], Any]:
    """The next batch and its epoch, a new one after the end of this one."""
    for batch in epoch:
        return batch, epoch
    epoch = iter(batches)
    return next(epoch), epoch


def _first_batch(opened: Callable[[], Reader], setting: Setting, began: float) -> float:
    """Seconds from `began` to the first batch of the store, which `opened` opens."""
    batches = _batches(opened(), setting, None)
    epoch = iter(batches)
    next(epoch)
    took = time.perf_counter() - began
    epoch.close()
    for thread in threading.enumerate():
        # What it is reading cannot be dropped before it ends.
        if thread.name == THREAD:
            thread.join(_DISK_WAIT_S)
    return took
