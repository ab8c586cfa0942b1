"""What `Batches.stats()` costs: it always counts, so it must not be felt.

    python scripts/bench/stats_cost.py STORE ...     stores of any format, small enough for the page cache

A loop with and without counting differs by less than loops differ among themselves. So the parts are measured: how
often the clock is read for each batch, in this process and in workers, and what a reading, an addition, the sum after
each batch and the numbers in a worker's message cost. Their sum is held against the fastest epoch's time for a batch,
once where nothing is done with it, the worst case, and once where its pixels are summed, as little as a training step
could do. What workers do at the same time counts as if it were done one after another.
"""

from __future__ import annotations

import argparse
import os
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import msgspec
import numpy as np

from rawpack import Reader, Workers
from rawpack.ahead.steps import EpochStep
from rawpack.batches import Batches
from rawpack.epoch import iterator
from rawpack.system.times import Times
from rawpack.workers import fill
from rawpack.workers.fill import SliceDone, encode

_REPEAT, _NUMBER, _EPOCHS, _WARM = 7, 5000, 20, 3

WAYS: dict[str, dict[str, Any]] = {"0": {"workers": 0}, "2 threads": {"workers": Workers(2, backend="thread")}}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("stores", nargs="+", type=Path)
    parser.add_argument("--batch", type=int, default=256)
    asked = parser.parse_args()
    print(f"load average {os.getloadavg()[0]:.2f}\n")
    print(f"{'':34} {'batch, us':>17} {'counting':>17} {'share':>14}")
    print(f"{'store':24} {'workers':9} {'bare':>8} {'summed':>8} {'slices':>8} {'us':>8} {'bare':>7} {'summed':>6}")
    for store in asked.stores:
        reader = Reader(store)
        batch = min(asked.batch, len(reader) // 4)
        for name, way in WAYS.items():
            batches = reader.batches(batch, shuffle=True, **way)
            bare, summed = fastest_batch(batches, lambda batch: None), fastest_batch(batches, summing)
            slices, cost = counting(reader, batches, bool(way["workers"]))
            print(
                f"{store.name:24} {name:9} {bare * 1e6:8.0f} {summed * 1e6:8.0f} {slices:8.1f} {cost * 1e6:8.2f} "
                f"{cost / bare:7.2%} {cost / summed:6.2%}",
                flush=True,
            )


def summing(batch: dict[str, Any]) -> None:
    batch["image"].sum()


def fastest_batch(batches: Batches, use: Callable[[dict[str, Any]], None]) -> float:
    """Seconds for a batch, in the fastest of some epochs."""
    seconds = []
    for _ in range(_WARM + _EPOCHS):
        began = time.perf_counter()
        for batch in batches:
            use(batch)
        seconds.append((time.perf_counter() - began) / len(batches))
    return min(seconds[_WARM:])


def counting(reader: Reader, batches: Batches, workers: bool) -> tuple[float, float]:
    """(slices of a batch, seconds that counting takes for a batch)."""
    readings, additions, tasks = calls(batches)
    one = iter(batches)
    next(one)
    step = EpochStep(np.arange(batches._feed.settings.batch_size), 0)
    times = Times(0.1, 0.2, 0.3)
    sums = fastest(lambda: one._count(step, 1.0))
    message = fastest(Times) + sent(SliceDone(1, times, False), SliceDone) - sent(Bare(1, False), Bare)
    cost = sums + readings * fastest(time.perf_counter) + additions * fastest(lambda: fill._add(times, True, 0.0))
    if workers:
        cost += fastest(lambda: times.add(times)) * (tasks + 1) + message * tasks
    return tasks, cost


class Bare(msgspec.Struct, array_like=True):
    """A worker's message without times."""

    number: int
    waited_for_disk: bool


def sent(message: object, kind: type) -> float:
    """Seconds to write and read a message."""
    decoder: Any = msgspec.msgpack.Decoder(kind)
    return fastest(lambda: decoder.decode(encode(message)))


def calls(batches: Batches) -> tuple[float, float, float]:
    """How often a batch reads the clock, adds to times, and is a task, by counting over an epoch."""
    counts = {"clock": 0, "add": 0, "task": 0}

    def counted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            counts[name] += 1
            return function(*args)

        return call

    clock = SimpleNamespace(perf_counter=counted("clock", time.perf_counter))
    with (
        mock.patch.object(iterator, "time", clock),
        mock.patch.object(fill, "time", clock),
        mock.patch.object(fill, "_add", counted("add", fill._add)),
        mock.patch.object(fill, "do", counted("task", fill.do)),
    ):
        for _ in batches:
            pass
    number = len(batches)
    return counts["clock"] / number, counts["add"] / number, counts["task"] / number


def fastest(function: Callable[[], Any]) -> float:
    """Seconds for a call, in the fastest of some rounds."""
    return min(timeit.repeat(function, number=_NUMBER, repeat=_REPEAT)) / _NUMBER


if __name__ == "__main__":
    main()
