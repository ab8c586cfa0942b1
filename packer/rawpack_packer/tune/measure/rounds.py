"""Several stores and settings, measured in turn, round after round, so that all share the machine's moods."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rawpack_packer.tune.measure.interval import Figure, figure
from rawpack_packer.tune.measure.meter import Setting, StoreMeter, Throughput

ROUNDS = 5
"""So many give an interval, least to most, that holds the median with a chance of 94 %."""
_FEW = 3


@dataclass(frozen=True)
class Case:
    """One line of a table: a store, and how it is read."""

    name: str
    meter: StoreMeter
    setting: Setting
    curve: bool = False
    """Whether it is measured only for the curve by workers: not from the disk, and where time is short, less often than
    the others or not at all."""


@dataclass(frozen=True)
class Schedule:
    """How long and how often."""

    rounds: int = ROUNDS
    seconds: float = 0.5
    """Of each measurement."""
    cold_rounds: int = 2
    """0: nothing is dropped from the page cache."""
    deadline: float | None = None
    """`time.monotonic()` by which all is to be done: no round begins that would end later, once there were three, and
    a second cold round only in the first third of the time."""
    latest: float | None = None
    """After this no measurement begins, once each store was measured once."""
    end: float | None = None
    """No measurement begins that would end after this, if it took a quarter longer than the longest so far; once one
    store was measured. The others are then left without rounds."""

    def too_late(self) -> bool:
        return self.latest is not None and time.monotonic() > self.latest

    def too_late_for(self, seconds: float) -> bool:
        return self.end is not None and time.monotonic() + 1.25 * seconds > self.end


@dataclass
class Reading:
    """What all rounds gave for one case."""

    case: Case
    warm: list[Throughput] = field(default_factory=list)
    cold: list[Throughput] = field(default_factory=list)
    """Empty where the system does not let go of the files, or was not asked to."""
    limits: list[float] = field(default_factory=list)
    """Of the warm rounds, one each: images per second at the bare limit, with as many threads. Empty without one."""

    @property
    def images_per_s(self) -> Figure:
        return Figure(tuple(pace.images_per_s for pace in self.warm))

    @property
    def of_limit(self) -> Figure | None:
        """The ratio to the bare limit, round by round."""
        pairs = zip(self.warm, self.limits, strict=False)
        return figure([pace.images_per_s / limit for pace, limit in pairs])

    @property
    def limit(self) -> Figure | None:
        return figure(self.limits)

    @property
    def images_per_core_s(self) -> Figure | None:
        """Images per second of CPU time."""
        return figure([1 / pace.cpu_s_per_image for pace in self.warm if pace.cpu_s_per_image])

    @property
    def bytes_per_s(self) -> Figure | None:
        return figure([pace.bytes_per_s for pace in self.warm if pace.bytes_per_s])

    @property
    def first_batch_s(self) -> Figure:
        return Figure(tuple(pace.first_batch_s for pace in self.warm))

    @property
    def cold_images_per_s(self) -> Figure | None:
        return figure([pace.images_per_s for pace in self.cold])

    @property
    def cold_first_batch_s(self) -> Figure | None:
        return figure([pace.first_batch_s for pace in self.cold])

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
    """Measure all cases, first cold and then warm, every second round in reverse. tick: told after each measurement.

    Where the schedule has a deadline, cold measurements begin in the first half of the time only, and a reading of a
    case that is only for the curve can be without rounds; where it has an end, any but one.
    """
    readings = [Reading(case) for case in cases]
    first = [reading for reading in readings if not reading.case.curve]
    curves = [reading for reading in readings if reading.case.curve]
    began = time.monotonic()
    for number in range(schedule.cold_rounds):
        if number and schedule.deadline is not None and time.monotonic() > (2 * began + schedule.deadline) / 3:
            break
        for reading in _turn(first, number):
            if schedule.deadline is not None and time.monotonic() > (began + schedule.deadline) / 2:
                break
            pace = reading.case.meter.cold(reading.case.setting, 2 * schedule.seconds)
            if pace is not None:
                reading.cold.append(pace)
            tick()
    spent: dict[int, float] = {}
    for number in range(schedule.rounds):
        left = math.inf if schedule.deadline is None else schedule.deadline - time.monotonic()
        if number >= _FEW and sum(spent.values()) > left:
            break
        limits: dict[tuple[StoreMeter, int], float] = {}
        for reading in _turn(first, number):
            late = schedule.too_late() if number else schedule.too_late_for(max(spent.values(), default=0.0))
            if late and spent:
                break
            spent[id(reading)] = _timed(reading, schedule, limits)
            tick()
        # What the rounds that nobody can do without will still take.
        rest = max(0, _FEW - 1 - number) * sum(spent.get(id(reading), 0.0) for reading in first)
        for reading in _turn(curves, number):
            expected = spent.get(id(reading), max(spent.values(), default=0.0))
            if schedule.deadline is None or time.monotonic() + expected + rest < schedule.deadline:
                spent[id(reading)] = _timed(reading, schedule, limits)
                tick()
    for case in cases:
        case.meter.close()
    return readings


def _timed(reading: Reading, schedule: Schedule, limits: dict[tuple[StoreMeter, int], float]) -> float:
    """Add one warm round to a reading, and say how long that took. limits: of this round, by store and threads."""
    began = time.monotonic()
    meter, setting = reading.case.meter, reading.case.setting
    reading.warm.append(meter.warm(setting, schedule.seconds))
    if setting.untouched and meter.limit is not None:
        threads = max(1, setting.workers)
        if (meter, threads) not in limits:
            limits[meter, threads] = meter.limit(threads, schedule.seconds / 2)
        reading.limits.append(limits[meter, threads])
    return time.monotonic() - began


def worker_counts(most: int) -> list[int]:
    """1, 2, 4, ... and `most`."""
    counts = [1]
    while counts[-1] * 2 < most:
        counts.append(counts[-1] * 2)
    return counts + ([most] if most > counts[-1] else [])


def _turn(readings: Sequence[Reading], number: int) -> Sequence[Reading]:
    return readings[::-1] if number % 2 else readings
