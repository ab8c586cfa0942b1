"""Several stores and settings, measured in turn, round after round, so that changes of the load affect all equally."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rawpack_packer.tune.measure.interval import Figure, figure
from rawpack_packer.tune.measure.meter import Setting, StoreMeter, Throughput

ROUNDS = 5
"""Enough for an interval, least to most, that holds the median with a chance of 94 %."""
CURVE_FROM = 3
"""The round from which cases that are only for the curve are measured too."""
_MARGIN = 1.25
"""How much longer than the longest so far a measurement may take."""


@dataclass(frozen=True)
class Case:
    """One line of a table: a store, and how it is read."""

    name: str
    meter: StoreMeter
    setting: Setting
    curve: bool = False
    """Whether it only serves the curve by workers: measured from memory alone, in the last rounds, if there is time."""


@dataclass(frozen=True)
class Schedule:
    """How long and how often to measure."""

    rounds: int = ROUNDS
    seconds: float = 0.5
    """Of each measurement."""
    cold_rounds: int = 2
    """0: nothing is dropped from the page cache."""
    deadline: float | None = None
    """`time.monotonic()` by which all is done: a measurement that might take longer is left out. One is made in any
    case; the last third of the time is for cold ones, where each case has its first round by then."""
    all_once: bool = False
    """Measure each case once, but those for the curve, whatever the deadline."""


@dataclass
class Reading:
    """The results of all rounds of one case."""

    case: Case
    warm: list[Throughput] = field(default_factory=list)
    cold: list[Throughput] = field(default_factory=list)
    """Empty where the system keeps the files in memory, or was not asked to drop them."""
    limits: list[float] = field(default_factory=list)
    """Images per second at the bare limit, with as many threads, in each warm round; empty if there is no limit."""

    @property
    def images_per_s(self) -> Figure:
        return Figure(tuple(one.images_per_s for one in self.warm))

    @property
    def of_limit(self) -> Figure | None:
        """The ratio to the bare limit, round by round."""
        pairs = zip(self.warm, self.limits, strict=False)
        return figure([one.images_per_s / limit for one, limit in pairs])

    @property
    def limit(self) -> Figure | None:
        return figure(self.limits)

    @property
    def images_per_core_s(self) -> Figure | None:
        """Images per second of CPU time."""
        return figure([1 / one.cpu_s_per_image for one in self.warm if one.cpu_s_per_image])

    @property
    def bytes_per_s(self) -> Figure | None:
        return figure([one.bytes_per_s for one in self.warm if one.bytes_per_s])

    @property
    def first_batch_s(self) -> Figure:
        return Figure(tuple(one.first_batch_s for one in self.warm))

    @property
    def cold_images_per_s(self) -> Figure | None:
        return figure([one.images_per_s for one in self.cold])

    @property
    def cold_first_batch_s(self) -> Figure | None:
        return figure([one.first_batch_s for one in self.cold])

    def as_dict(self) -> dict[str, Any]:
        """For a program."""
        figures = {
            "images_per_s": self.images_per_s,
            "limit_images_per_s": self.limit,
            "of_limit": self.of_limit,
            "images_per_core_s": self.images_per_core_s,
            "bytes_per_s": self.bytes_per_s,
            "first_batch_s": self.first_batch_s,
            "cold_images_per_s": self.cold_images_per_s,
            "cold_first_batch_s": self.cold_first_batch_s,
        }
        setting = self.case.setting
        return {
            "name": self.case.name,
            "batch": setting.batch,
            "workers": setting.workers,
            "image_size": setting.image_size,
            "transform": [repr(step) for step in setting.transform],
            **{name: None if value is None else value.as_dict() for name, value in figures.items()},
        }


def read_in_turn(cases: Sequence[Case], schedule: Schedule, tick: Callable[[], object] = lambda: None) -> list[Reading]:
    """Measure all cases, warm and then cold, every second round in reverse. tick: called after each measurement.

    With a deadline, readings of some cases may be without rounds.
    """
    readings = [Reading(case) for case in cases]
    main = [reading for reading in readings if not reading.case.curve]
    deadline = math.inf if schedule.deadline is None else schedule.deadline
    warm_by = deadline if schedule.deadline is None else (time.monotonic() + 2 * deadline) / 3
    longest = 0.0

    def measure(what: Callable[[], None], by: float) -> None:
        nonlocal longest
        start = time.monotonic()
        if start + _MARGIN * longest <= by:
            what()
            longest = max(longest, time.monotonic() - start)
            tick()

    for number in range(schedule.rounds):
        limits: dict[tuple[StoreMeter, int], float] = {}
        for reading in _turn(readings if number >= CURVE_FROM else main, number):
            by = warm_by if number else math.inf if schedule.all_once or not longest else deadline
            measure(partial(_add_warm, reading, schedule, limits), by)
    for number in range(schedule.cold_rounds):
        for reading in _turn([one for one in main if one.warm], number):
            measure(partial(_add_cold, reading, schedule), deadline)
    for case in cases:
        case.meter.close()
    return readings


def _add_cold(reading: Reading, schedule: Schedule) -> None:
    cold = reading.case.meter.cold(reading.case.setting, 2 * schedule.seconds)
    reading.cold += [] if cold is None else [cold]


def _add_warm(reading: Reading, schedule: Schedule, limits: dict[tuple[StoreMeter, int], float]) -> None:
    """limits: those measured in this round, by store and threads."""
    meter, setting = reading.case.meter, reading.case.setting
    reading.warm.append(meter.warm(setting, schedule.seconds))
    if setting.untouched and meter.limit is not None:
        threads = max(1, setting.workers)
        if (meter, threads) not in limits:
            limits[meter, threads] = meter.limit(threads, schedule.seconds / 2)
        reading.limits.append(limits[meter, threads])


def worker_counts(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts + ([most] if most > counts[-1] else [])


def _turn(readings: Sequence[Reading], number: int) -> Sequence[Reading]:
    return readings[::-1] if number % 2 else readings
