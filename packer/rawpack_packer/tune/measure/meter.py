"""One store, measured: how fast it is read by so many workers in batches of such a size, from memory and from the disk.

A measurement is a slice of time out of an epoch that is long enough, whatever the store's size: where samples are few,
they come again and again, each time in another order. The start of an epoch and of its workers is not in it.
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
from rawpack.order import BlockShuffled
from rawpack.store.store import Store
from rawpack_packer.inspect.warm import files_of
from rawpack_packer.sources.video_numbers import are_frames
from rawpack_packer.tune.measure.cache import drop, read_rate
from rawpack_packer.tune.measure.cpu import cpu_seconds
from rawpack_packer.tune.measure.limits import copy_limit, decode_limit

_LONG = 1 << 18
"""Samples of an epoch: far more than a slice reads."""
_POOL_BYTES = 2 << 30
"""What is read again and again of a store: more than a processor's cache, less than most memories."""
_FEW_BYTES = 16 << 20
"""Of a pool that this process reads quickly."""
_STARTED = 2
"""Batches after which all workers have begun."""
_COLD_BATCHES = 8
"""A cold pass has at least so many batches, where there are samples enough: few would all be asked for at once."""
_DISK_WAIT_S = 30.0
"""For the disk, to read what it was asked for last."""
_DECODED = 256
"""JPEG files that the bare limit is measured with."""
_LIMIT_BYTES = 512 << 20
"""Of the rows that the bare limit is measured with."""


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
        """Whether images come as they are stored."""
        return self.image_size is None and not self.transform


@dataclass(frozen=True)
class Throughput:
    """What one slice of time came to."""

    images_per_s: float
    first_batch_s: float
    """From opening the store to its first batch, the start of the workers included."""
    bytes_per_s: float | None = None
    """Of the arrays in the batches. None of a cold pass."""
    cpu_s_per_image: float | None = None
    """Of all CPUs together; None where the system does not tell, and of a cold pass."""


class StoreMeter:
    """Measures one store. Holds it open, and no worker between two measurements."""

    def __init__(self, path: Path, seed: int = 0) -> None:
        """Raises StoreError where `path` is no store."""
        self.path, self._seed = path, seed
        store = Store(path)
        self.manifest, self.field = store.manifest, store.fields["image"]
        self.noun = "frame" if are_frames(store.fields) else "image"
        self.files = [file for file, _ in files_of(store)]
        self.shard_bytes = store.manifest.shard_bytes
        self.store_bytes = sum(size for _, size in files_of(store))
        self._reader: Reader | None = None

    def __len__(self) -> int:
        return self.manifest.samples

    @property
    def sample_bytes(self) -> float:
        """Of an image in its shard, on the average."""
        return self.shard_bytes / max(1, len(self))

    def warm(self, setting: Setting, seconds: float) -> Throughput:
        """Read for about so many seconds, at least two batches, from memory."""
        began = time.perf_counter()
        reader = self._reader or Reader(self.path)
        if self._reader is None:
            # Opened once: what a worker has touched of a mapped file stays in this process's page table.
            self._reader = reader
            self._touch(reader, setting)
            began = time.perf_counter()
        batches = _batches(reader, setting, self._long_order)
        epoch = iter(batches)
        next(epoch)
        first = time.perf_counter() - began
        for _ in range(IN_FLIGHT + _STARTED):
            # Made ahead while nobody counted.
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
        """Read for about so many seconds, at most each sample once, from files that the page cache does not hold; None
        where the system does not let go of them.

        In the order of a block shuffle: a full one jumps about more, in a large store.
        """
        self.close()
        if not drop(self.files):
            return None
        began = time.perf_counter()
        first = _first_batch(self.path, setting, began)
        if not drop(self.files):
            return None
        batch = max(1, min(setting.batch, len(self) // (_COLD_BATCHES + 1)))
        random = BlockShuffled(len(self), self._seed).samples(0, 0, min(len(self), _LONG))
        lead, rest = np.tile(random[:batch], IN_FLIGHT + _STARTED), random[batch:]
        if not len(rest):
            return None
        # An epoch of a few rows, that come again and again, before the others: the workers start in it.
        batches = _batches(Reader(self.path), replace(setting, batch=batch), lambda epoch: rest if epoch else lead)
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
        """Bytes per second at which the disk gives this store's files, read in order; None where it cannot be told."""
        self.close()
        return read_rate(self.files, seconds)

    @cached_property
    def limit(self) -> Callable[[int, float], float] | None:
        """What measures this store's bare limit, see `rawpack_packer.tune.measure.limits`; None where there is none."""
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
        """Let go of the store's files: what is mapped cannot be dropped from the page cache."""
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
        """The rows that are read: all, or so many that their bytes are enough."""
        count = max(1, min(len(self), int(_POOL_BYTES / max(1.0, self.sample_bytes))))
        return np.random.default_rng(self._seed).permutation(len(self))[:count]

    @cached_property
    def _long_order(self) -> NDArray[np.int64]:
        """The rows of the pool, each as often as any other, in one random order after another."""
        random = np.random.default_rng(self._seed)
        return np.concatenate([random.permutation(self._pool) for _ in range(-(-_LONG // len(self._pool)))])


def _batches(
    reader: Reader, setting: Setting, order: NDArray[np.int64] | Callable[[int], NDArray[np.int64]] | None
) -> Batches:
    """order: the rows, of each epoch or by epoch; None for a shuffled epoch of all samples."""
    return reader.batches(
        setting.batch,
        shuffle=order is None,
        sampler=order,
        workers=setting.workers,
        image_size=setting.image_size,
        transform=setting.transform or None,
        rank=0,
    )


def _next(batches: Batches, epoch: Any) -> tuple[dict[str, Any], Any]:
    """The next batch, of a new epoch where this one has ended."""
    for batch in epoch:
        return batch, epoch
    epoch = iter(batches)
    return next(epoch), epoch


def _first_batch(path: Path, setting: Setting, began: float) -> float:
    """Seconds from `began` to the first batch of the store at `path`, which is opened for it."""
    batches = _batches(Reader(path), setting, None)
    epoch = iter(batches)
    next(epoch)
    took = time.perf_counter() - began
    epoch.close()
    for thread in threading.enumerate():
        # What it is at is read to its end, and cannot be dropped before.
        if thread.name == THREAD:
            thread.join(_DISK_WAIT_S)
    return took
