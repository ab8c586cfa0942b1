"""The bare limits of this machine: rows copied, JPEG files decoded, and nothing around it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from rawpack import jpeg
from rawpack.system.memory import prefer_huge_pages, private_memory

Work = Iterator[int]
"""Yields how many images each step did, for ever."""


def copy_limit(tables: Sequence[NDArray[np.uint8]], batch: int) -> Callable[[int, float], float]:
    """What measures how many rows of mapped files can be copied: `measure(threads, seconds)` gives rows per second.

    tables: uint8 (n, bytes of a row) each. They are taken in random order, all rows before any comes again: of a small
    table that is taken over and over, a processor's cache would give the rows. Up to `batch` in one call, each thread
    into memory of its own, for `batch` rows, that it uses again.
    """
    for table in tables:
        # One byte of every page: afterwards all of it is in this process's page table.
        int(table.reshape(-1)[::4096].sum())

    def copies(number: int) -> Work:
        size = tables[0].shape[1]
        # Whole and large pages, as batches lie in: into memory that numpy places, a copy can take twice as long.
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
    """What measures how many of these JPEG files, which lie in memory, can be decoded: as `copy_limit`.

    shape: (H, W, C) of each, which is then decoded into memory that is used again; None where they differ.
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
    """Images per second of so many threads: the sum of theirs, each over its own time."""
    rates, ready = [0.0] * threads, threading.Barrier(threads)

    def run(number: int) -> None:
        steps = work(number)
        next(steps)
        ready.wait()
        images, began = 0, time.perf_counter()
        while (took := time.perf_counter() - began) < seconds:
            images += next(steps)
        rates[number] = images / took

    team = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(threads)]
    for thread in team:
        thread.start()
    for thread in team:
        thread.join()
    return sum(rates)
