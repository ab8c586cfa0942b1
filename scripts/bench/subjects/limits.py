"""The bare limits of reading: processes that copy, decode or inflate, a loop of numpy in this one, and `dd`."""

from __future__ import annotations

import math
import subprocess
import time
import zlib
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

import data
from contract import Epoch, Pixels, Settings, Subject, consume
from subjects.team import Share, WorkerSet

_CHUNKS = 1000
"""That a process has to inflate: more than its caches hold, and little memory."""


class Limit(Subject):
    """A team of processes, each at its share of what is stored."""

    def __init__(self, prepare: Callable[[Settings], object], share: Share, needs: tuple[str, ...] = ()) -> None:
        self._prepare, self._share, self.needs = prepare, share, needs

    def prepare(self, settings: Settings) -> None:
        self._prepare(settings)

    def open(self, settings: Settings) -> None:
        self.settings = settings
        self._team = WorkerSet(settings.workers or 1, self._share, settings)

    def epoch(self, n: int) -> Epoch:
        return self._team.run(self.settings.seconds)


def copy(number: int, of: int, settings: Settings, *, large_pages: bool = False) -> Iterator[int]:
    """One `np.take` a batch of shuffled rows of a warm mapped file: see `Share`.

    The buffer is used again: one that numpy places, or whole large pages, into which the same copy is faster on some
    machines."""
    flat = data.flat_array(settings)
    out = np.ones((settings.batch, flat.shape[1]), np.uint8)
    if large_pages:
        from rawpack.system.memory import prefer_huge_pages, private_memory

        memory = private_memory(out.nbytes)
        prefer_huge_pages(memory)
        out = np.frombuffer(memory, np.uint8).reshape(out.shape)
        out[...] = 1
    random = np.random.default_rng(number)
    # One byte of every page: afterwards the whole file is in this process's page table.
    int(flat.reshape(-1)[::4096].sum())
    yield 0
    while True:
        rows = random.permutation(len(flat))
        for start in range(0, max(1, len(rows) - settings.batch + 1), settings.batch):
            chosen = rows[start : start + settings.batch]
            np.take(flat, chosen, axis=0, out=out[: len(chosen)], mode="clip")
            yield len(chosen)


def decode(number: int, of: int, settings: Settings, *, form: str = "lmdb") -> Iterator[int]:
    """Decode JPEG files that lie in memory, each whole into a buffer that is used again: see `Share`."""
    import simplejpeg

    out = np.ones(settings.shape, np.uint8)
    yield from _each(
        data.jpegs(settings, form)[number::of], number, lambda file: simplejpeg.decode_jpeg(file, "RGB", buffer=out)
    )


def inflate(number: int, of: int, settings: Settings) -> Iterator[int]:
    """Inflate chunks of compressed HDF5 that lie in memory, one a sample, by Python's zlib as rawpack does."""
    size = math.prod(settings.shape)
    chunks = data.chunks(settings, _CHUNKS * of)[number::of]
    yield from _each(chunks, number, lambda chunk: zlib.decompress(chunk, bufsize=size))


def _each(found: list[bytes], seed: int, work: Callable[[bytes], object]) -> Iterator[int]:
    order = np.random.default_rng(seed).permutation(len(found)).tolist()
    yield 0
    while True:
        for k in order:
            work(found[k])
            yield 1


class TakeLoop(Subject):
    """A loop over a permutation in this process: one `np.take` a batch, without an iterator of anybody's."""

    def prepare(self, settings: Settings) -> None:
        data.make_array(settings)

    def open(self, settings: Settings) -> None:
        self.settings, self._flat = settings, data.flat_array(settings)

    def epoch(self, n: int) -> Epoch:
        return consume(self._batches(n), self.settings.consumer)

    def _batches(self, n: int) -> Iterator[Pixels]:
        out = np.empty((self.settings.batch, *self.settings.shape), np.uint8)
        for chosen in self._rows(np.random.default_rng(n)):
            np.take(self._flat, chosen, axis=0, out=out[: len(chosen)].reshape(len(chosen), -1), mode="clip")
            yield out[: len(chosen)]

    def _rows(self, random: np.random.Generator) -> Iterator[NDArray[np.int64]]:
        rows = random.permutation(len(self._flat))
        for start in range(0, len(rows), self.settings.batch):
            yield rows[start : start + self.settings.batch]


class OrderAlone(Subject):
    """What the order of the samples costs by itself: the full shuffle of an epoch, batch by batch, and nothing read."""

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, "memmap")

    def open(self, settings: Settings) -> None:
        from rawpack import Reader
        from rawpack.order.ranks import RankSplit
        from rawpack.order.shuffled import Shuffled

        samples = len(Reader(data.store_path(settings, "memmap")))
        self._order, self._split = Shuffled(samples, seed=0), RankSplit(samples, settings.batch)

    def epoch(self, n: int) -> Epoch:
        began = time.perf_counter()
        images = 0
        for step in range(len(self._split)):
            images += len(self._split.batch(step).samples(self._order, n))
        return Epoch(images, time.perf_counter() - began)


class SequentialRead(Subject):
    """One `dd` a file of a store, from the disk, in pieces of a mebibyte."""

    def __init__(self, form: str) -> None:
        self._form = form

    def prepare(self, settings: Settings) -> None:
        data.make_store(settings, self._form)

    def open(self, settings: Settings) -> None:
        from rawpack import Reader

        path = data.store_path(settings, self._form)
        self._files, self._images = data.shard_files(path), len(Reader(path))
        data.drop(self._files)

    def epoch(self, n: int) -> Epoch:
        began = time.perf_counter()
        for file in self._files:
            subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=1M", "status=none"], check=True)
        return Epoch(self._images, time.perf_counter() - began)
