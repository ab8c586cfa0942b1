"""Measuring how fast stores are read: several in turn, with a batch size and a number of workers, from memory and from
the disk.

A measurement is a slice of time in a long epoch, without the start of the epoch and its workers. The samples of a small
store are repeated, each time in another order.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rawpack import Ranks, Reader
from rawpack.batches import Batches
from rawpack.epoch.making import IN_FLIGHT
from rawpack.errors import UsageError
from rawpack.order.shuffled import BlockShuffled
from rawpack.store.store import Store
from rawpack.transforms import RandomHorizontalFlip, RandomResizedCrop
from rawpack_packer import text
from rawpack_packer.counts import noun_of
from rawpack_packer.inspect.warm import files_of
from rawpack_packer.options import opt
from rawpack_packer.text import either
from rawpack_packer.tune.system import cpu_seconds, drop

ROUNDS, BESIDE_ROUNDS, COLD_ROUNDS = 5, 3, 2
_WARM_SHARE = 2 / 3
"""Of the time until a deadline, for reading from memory."""
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


@dataclass(frozen=True)
class Figure:
    """The results of one or more rounds: their median, and the interval from the least to the most, which assumes
    nothing about the noise."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    @property
    def confidence(self) -> float:
        """The chance that the interval holds the true median, as each value is above or below it like a coin: 0.94 for
        five rounds."""
        return 1 - 2.0 ** (1 - len(self.values))

    @property
    def error(self) -> float | None:
        """Half of the interval; None for a single round."""
        return (self.high - self.low) / 2 if len(self.values) > 1 else None

    def overlaps(self, other: Figure) -> bool:
        """Whether no difference was measured: the intervals have a point in common, or one has a single round."""
        return self.error is None or other.error is None or (self.low <= other.high and other.low <= self.high)

    def as_dict(self) -> dict[str, float | list[float]]:
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "rounds": list(self.values),
        }


@dataclass(frozen=True)
class Setting:
    """How a store is read."""

    batch: int
    workers: int
    image_size: tuple[int, int] | dict[str, tuple[int, int]] | None = None
    transform: tuple[Any, ...] = ()
    """Steps of `rawpack.transforms`."""

    @property
    def augmentation(self) -> str:
        """What the steps are, in words."""
        if not self.transform:
            return "without augmentation"
        usual = [type(step) for step in self.transform] == [RandomResizedCrop, RandomHorizontalFlip]
        return "with random crops and flips" if usual else f"with {opt.transform}"


@dataclass(frozen=True)
class Rate:
    """The result of one measurement. What is None was not measured, or the system does not report it."""

    images_per_s: float
    first_batch_s: float | None = None
    """From opening the store to its first batch, including the start of the workers."""
    bytes_per_s: float | None = None
    """Of the arrays in the batches."""
    images_per_core_s: float | None = None
    """Images per second of CPU time."""


class StoreMeter:
    """Measures one store. Keeps it open between measurements, but no workers."""

    def __init__(self, path: Path, where: str | None = None) -> None:
        """where: a condition; only these samples are read. Raises StoreError where `path` is not a store, UsageError
        where the condition does not fit it or no sample."""
        self.path, self._where = path, where
        store = Store(path)
        self.manifest, self.noun = store.manifest, noun_of(store.fields)
        self.images = {name: field for name, field in store.fields.items() if field.kind == "image"}
        self.files, sizes = zip(*files_of(store), strict=True)
        self.store_bytes = sum(sizes)
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

    def augmented(self, setting: Setting) -> Setting | None:
        """The same as most networks are trained: random crops, resized to 7/8 of the stored size or to `image_size`,
        half of them flipped. None where the setting has steps of its own, or these steps do not fit the fields."""
        sides = setting.image_size
        if setting.transform:
            return None
        if isinstance(sides, tuple) and len(self.images) == 1:
            size, sides = sides, None  # crops come from whole images
        else:
            sized = sides if isinstance(sides, dict) else dict.fromkeys(self.images, sides)
            shapes = [sized.get(name) or field.shape[:2] for name, field in self.images.items()]
            height, width = min((shape[0] or 0, shape[1] or 0) for shape in shapes)
            size = max(1, height * 7 // 8), max(1, width * 7 // 8)
        augmented = replace(setting, image_size=sides, transform=(RandomResizedCrop(size), RandomHorizontalFlip()))
        try:
            _batches(self._open(), augmented, np.arange(1))
        except UsageError:
            return None
        return augmented

    def warm(self, setting: Setting, seconds: float) -> Rate:
        """Read from memory for about `seconds`, at least two batches."""
        if self._reader is None:
            # Opened once: what a worker has touched of a mapped file stays in this process's page table.
            self._reader = self._open()
            few = len(self._pool) * self._sample_bytes < _FEW_BYTES
            for _ in _batches(self._reader, replace(setting, workers=0) if few else setting, self._pool):
                pass
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
        used = 0.0 if cpu is None or after is None else after - cpu
        return Rate(images / took, first, size / took, images / used if used else None)

    def cold(self, setting: Setting, seconds: float) -> Rate | None:
        """Read for about `seconds`, each sample at most once, from files that are not in the page cache; None where the
        system keeps them there.

        In the order of a block shuffle, which is kinder to a disk than a full one.
        """
        self.close()
        batch = max(1, min(setting.batch, len(self) // (_COLD_BATCHES + 1)))
        random = BlockShuffled(len(self), 0).samples(0, 0, min(len(self), _LONG))
        lead, rest = np.tile(random[:batch], IN_FLIGHT + _STARTED), random[batch:]
        if not len(rest) or not drop(self.files):
            return None
        # The workers start in an epoch of a few repeated rows.
        batches = _batches(self._open(), replace(setting, batch=batch), lambda epoch: rest if epoch else lead)
        for _ in batches:
            pass
        began, images, epoch = time.perf_counter(), 0, iter(batches)
        for one in epoch:
            images += len(one["index"])
            if time.perf_counter() - began > seconds:
                break
        took = time.perf_counter() - began
        epoch.close()
        return Rate(images / took)

    def close(self) -> None:
        """Close the store's files: while they are mapped, they cannot be dropped from the page cache."""
        self._reader = None

    @property
    def _sample_bytes(self) -> float:
        return self.manifest.shard_bytes / max(1, self.manifest.samples)

    @cached_property
    def _pool(self) -> NDArray[np.int64]:
        """The rows that are read: all, or up to `_POOL_BYTES`."""
        count = max(1, min(len(self), int(_POOL_BYTES / max(1.0, self._sample_bytes))))
        return np.random.default_rng(0).permutation(len(self))[:count]

    @cached_property
    def _long_order(self) -> NDArray[np.int64]:
        """The rows of the pool, repeated, each time in another random order."""
        repeated = np.tile(self._pool, (-(-_LONG // len(self._pool)), 1))
        return np.random.default_rng(0).permuted(repeated, axis=1).ravel()


def _batches(
    reader: Reader, setting: Setting, order: NDArray[np.int64] | Callable[[int], NDArray[np.int64]]
) -> Batches:
    """order: the rows, for every epoch or by epoch."""
    batches = reader.batches(
        setting.batch,
        sampler=order,
        workers=setting.workers,
        image_size=setting.image_size,
        transform=setting.transform or None,
        ranks=Ranks(0, 1, last="keep"),
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


@dataclass
class Reading:
    """A store, how it is read, and the results of all rounds."""

    meter: StoreMeter
    setting: Setting
    warm: list[Rate] = field(default_factory=list)
    """At least one, unless `beside`."""
    cold: list[Rate] = field(default_factory=list)
    """Empty where the system keeps the files in memory, or was not asked to drop them."""
    beside: bool = False
    """Whether it is only shown beside the reading that decides: in fewer rounds, after that one, and from memory."""

    @property
    def images_per_s(self) -> Figure:
        return Figure(tuple(one.images_per_s for one in self.warm))

    @property
    def cold_images_per_s(self) -> Figure | None:
        return _figure([one.images_per_s for one in self.cold])

    @property
    def first_batch_s(self) -> Figure | None:
        return _figure([one.first_batch_s for one in self.warm])

    @property
    def images_per_core_s(self) -> Figure | None:
        return _figure([one.images_per_core_s for one in self.warm])

    def as_dict(self) -> dict[str, Any]:
        """For a program."""
        figures = {
            "images_per_s": self.images_per_s if self.warm else None,
            "images_per_core_s": self.images_per_core_s,
            "bytes_per_s": _figure([one.bytes_per_s for one in self.warm]),
            "first_batch_s": self.first_batch_s,
            "cold_images_per_s": self.cold_images_per_s,
        }
        return {
            "batch": self.setting.batch,
            "workers": self.setting.workers,
            "image_size": self.setting.image_size,
            "transform": [repr(step) for step in self.setting.transform],
            **{name: None if value is None else value.as_dict() for name, value in figures.items()},
        }


def _figure(values: Sequence[float | None]) -> Figure | None:
    known = tuple(value for value in values if value is not None)
    return Figure(known) if known else None


def read_in_turn(
    readings: Sequence[Reading],
    seconds: float,
    *,
    rounds: int = ROUNDS,
    cold_rounds: int = COLD_ROUNDS,
    deadline: float = math.inf,
    tick: Callable[[], object] = lambda: None,
) -> None:
    """Measure all readings round after round, so that changes of the load affect all equally: first from memory, then
    from the disk, every second round in reverse.

    seconds: of each measurement. deadline: `time.monotonic()` by which all is done: a measurement that might take
    longer is left out, but for the first one from memory of each that decides. tick: called after each measurement.
    """
    longest, now = 0.0, time.monotonic()
    warm_by = deadline if not cold_rounds else now + (deadline - now) * _WARM_SHARE
    for cold, count, by in ((False, rounds, warm_by), (True, cold_rounds, deadline)):
        for number in range(count):
            for one in sorted(readings[::-1] if number % 2 else readings, key=lambda one: one.beside):
                start = time.monotonic()
                if one.beside and (cold or number >= BESIDE_ROUNDS):
                    continue
                if start + longest > by and (cold or number or one.beside):
                    continue
                found = one.meter.cold(one.setting, 2 * seconds) if cold else one.meter.warm(one.setting, seconds)
                if found is not None:
                    (one.cold if cold else one.warm).append(found)
                longest = max(longest, time.monotonic() - start)
                tick()
    for one in readings:
        one.meter.close()


def worker_counts(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    return [*(1 << k for k in range(most.bit_length()) if 1 << k < most), most]


def number(value: float) -> str:
    """Three digits: "52,100", "0.312"."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if abs(rounded) >= 100 else f"{rounded:g}"


def spread(figure: Figure | None) -> str:
    """ "52,100 ±6%"; "" for no figure."""
    if figure is None:
        return ""
    return number(figure.median) + (f" ±{figure.error / figure.median:.0%}" if figure.error and figure.median else "")


def seconds(figure: Figure | None) -> str:
    """ "0.25 s"; "" for no figure."""
    return f"{figure.median:.2g} s" if figure else ""


def table(rows: Sequence[tuple[str, ...]], width: int | None, noun: str) -> tuple[str, list[str]]:
    """A table, the first row its head, and the columns that do not fit into the width: the last ones are left out
    first. noun: what the samples are called."""
    head = rows[0]
    kept = [k for k in range(len(head)) if any(row[k] for row in rows[1:])]
    left_out: list[str] = []
    while True:
        cells = [tuple(row[k] for k in kept) for row in [tuple(text.with_noun(name, noun) for name in head), *rows[1:]]]
        shown = text.grid(cells)
        if width is None or len(kept) < 3 or max(map(len, shown.splitlines())) <= width:
            return shown, left_out[::-1]
        left_out.append(text.with_noun(head[kept.pop()], noun))


def shortened(name: str, most: int) -> str:
    """A path in at most so many characters, without its middle, since names often differ at their end."""
    name = text.plain(name)
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[len(name) - most + most // 2 :]}"


def busy(load: float | None, limit: float) -> list[str]:
    """A warning where the machine had other work."""
    if load is None or load <= limit:
        return []
    return [
        f"The machine was busy before the start (load {load:.1f} per CPU): results on an idle machine will be higher."
    ]
