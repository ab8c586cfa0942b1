"""The bare limits of this machine: copying rows and decoding JPEG files, with nothing around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.system.memory import prefer_huge_pages, private_memory

Work = Iterator[int]
"""Yields the number of images of each step, without end."""


def copy_limit(tables: Sequence[NDArray[np.uint8]], batch: int) -> Callable[[int, float], float]:
    """`measure(threads, seconds)`, which returns how many rows of mapped files are copied per second.

    tables: uint8 (n, bytes of a row) each. All rows are copied in random order before any is repeated, because a
    processor's cache could hold a small table. Each call copies up to `batch` rows into memory that its thread reuses.
    """
    for table in tables:
        # Reading a byte of every page puts all of them into this process's page table.
        int(table.reshape(-1)[::4096].sum())

    def copies(number: int) -> Work:
        size = tables[0].shape[1]
        # Large pages, as for batches: a copy into memory that numpy allocates can take twice as long.
        memory = private_memory(batch * size)
        prefer_huge_pages(memory)
        out = np.frombuffer(memory, np.uint8).reshape(batch, size)
        out[...] = 1
        random = np.random.default_rng(number)
        runs = [
            (table, rows)
            for table in tables
            if len(table)
            for rows in np.array_split(random.permutation(len(table)), -(-len(table) // batch))
        ]
        filled = 0
        while True:
            for k in random.permutation(len(runs)).tolist():
                table, rows = runs[k]
                if filled + len(rows) > batch:
                    filled = 0
                np.take(table, rows, axis=0, out=out[filled : filled + len(rows)], mode="clip")
                filled += len(rows)
                yield len(rows)

    return lambda threads, seconds: _together(copies, threads, seconds)


def decode_limit(
    files: Sequence[NDArray[np.uint8]], channels: int, shape: tuple[int, ...] | None
) -> Callable[[int, float], float]:
    """`measure(threads, seconds)`, which returns how many of these JPEG files, held in memory, are decoded per second.

    shape: (H, W, C) of every image, which is then decoded into memory that is reused; None where they differ.
    """
    kept, decoder = [bytes(file) for file in files], jpeg.decoder()
    color: jpeg.Color = "gray" if channels == 1 else "rgb"

    def decodes(number: int) -> Work:
        order = np.random.default_rng(number).permutation(len(kept)).tolist()
        out = None if shape is None else np.ones(shape, np.uint8)
        while True:
            for k in order:
                decoder.decode(kept[k], color=color, out=out)
                yield 1

    return lambda threads, seconds: _together(decodes, threads, seconds)


def _together(work: Callable[[int], Work], threads: int, seconds: float) -> float:
    """Images per second of all threads: the sum of their rates, each over its own time."""
    ready = threading.Barrier(threads, timeout=60)  # not for ever, where one of them fails

    def rate(number: int) -> float:
        steps = work(number)
        next(steps)
        ready.wait()
        images, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            images += next(steps)
        return images / took

    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(rate, range(threads)))
