"""The results of `rawpack bench`: how fast existing stores are read here, as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rawpack
from rawpack.batching.options import flag, seconds
from rawpack.errors import UsageError
from rawpack.order.keys import whole_number
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.options.naming import opt
from rawpack_packer.tune.measure.cpu import BUSY, load_per_cpu
from rawpack_packer.tune.measure.interval import Figure
from rawpack_packer.tune.measure.meter import Setting, StoreMeter
from rawpack_packer.tune.measure.rounds import ROUNDS, Case, Reading, Schedule, read_in_turn, worker_counts
from rawpack_packer.tune.measure.steps import parse_side, parse_steps
from rawpack_packer.tune.plan.request import listed


@dataclass(frozen=True)
class Bench:
    """What `rawpack bench` measured."""

    readings: list[Reading]
    """Store by store, batch by batch, then by workers."""
    meters: list[StoreMeter]
    disk: dict[Path, float | None]
    """Bytes per second of each store's files, read in order from the disk; None where that could not be measured."""
    load: float | None
    """Load average per CPU before the start."""

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return f"Bench({text.count(len(self.readings), 'reading')} of {text.count(len(self.meters), 'store')})"

    def of(self, meter: StoreMeter) -> list[Reading]:
        """The readings of one store."""
        return [reading for reading in self.readings if reading.case.meter is meter]


def bench(
    stores: Sequence[Path],
    *,
    batches: Sequence[int] = (),
    workers: Sequence[int] = (),
    image_size: tuple[int, int] | None = None,
    transform: tuple[Any, ...] = (),
    where: str | None = None,
    schedule: Schedule | None = None,
    begin: Callable[[int], Callable[[], object]] = lambda total: lambda: None,
) -> Bench:
    """Measure stores in turn. workers: empty for 1, 2, 4, ... up to the number of CPUs. where: a condition;
    only these samples are read.

    begin: called with the number of measurements; returns a function that is called after each.
    Raises UsageError for images of different sizes without `image_size`, StoreError for a folder that is not a store.
    """
    load = load_per_cpu()
    meters = [StoreMeter(store, where=where) for store in stores]
    for meter in meters:
        if not meter.field.uniform and image_size is None and not transform:
            raise UsageError(f"the images in {meter.path} have different sizes: give {opt.image_size}, such as 224")
    counts = list(dict.fromkeys(workers)) or worker_counts(machine.cpus())
    cases = [
        Case(str(meter.path), meter, Setting(batch, count, image_size, transform))
        for meter in meters
        for batch in dict.fromkeys(batches or (256,))
        for count in counts
    ]
    schedule = schedule or Schedule()
    tick = begin(len(cases) * (schedule.rounds + schedule.cold_rounds))
    disk = {meter.path: meter.disk(schedule.seconds) if schedule.cold_rounds else None for meter in meters}
    return Bench(read_in_turn(cases, schedule, tick), meters, disk, load)


def bench_of(stores: Sequence[Path], keywords: Mapping[str, Any]) -> Bench:
    """Measure stores as the keywords of `rawpack.bench` say. Raises UsageError, also where these make no sense."""
    given = {name: value for name, value in keywords.items() if value is not None}
    rounds = whole_number("rounds", given.get("rounds", ROUNDS), 1)
    cold_rounds = 2 if flag("cold", given.get("cold", True)) else 0
    return bench(
        stores,
        batches=[whole_number("batch", one, 1) for one in listed(given.get("batch"))],
        workers=[whole_number("workers", one, 0) for one in listed(given.get("workers"))],
        image_size=parse_side(given.get("image_size")),
        transform=parse_steps(listed(given.get("transform"))),
        where=given.get("where"),
        schedule=Schedule(rounds, seconds("seconds", given.get("seconds", 0.5)), cold_rounds),
    )


def as_dict(done: Bench) -> dict[str, Any]:
    """For JSON: every figure with its rounds, and the machine."""
    return {
        "rawpack": rawpack.__version__,
        "machine": machine.describe(),
        "load_per_cpu_at_start": done.load,
        "stores": [
            {
                "path": str(meter.path),
                "format": meter.manifest.format,
                "samples": len(meter),
                "image": list(meter.field.shape),
                "bytes": meter.store_bytes,
                "disk_bytes_per_s": done.disk[meter.path],
            }
            for meter in done.meters
        ],
        "readings": [reading.as_dict() for reading in done.readings],
    }


def as_text(done: Bench) -> str:
    """For a terminal."""
    blocks = []
    for meter in done.meters:
        lines = [f"{text.plain(str(meter.path))}: {about(meter)}", text.grid([head(meter), *rows(done, meter)])]
        disk = done.disk[meter.path]
        if disk is not None:
            lines.append(f"  the disk reads its files in order at {text.size(disk)}/s")
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, notes(done.readings, done.load)])


def about(meter: StoreMeter) -> str:
    """A store in a few words."""
    shape = "x".join("?" if n is None else str(n) for n in meter.field.shape)
    return f"{meter.manifest.format}, {text.count(len(meter), meter.noun)} of {shape}, {text.size(meter.store_bytes)}"


def head(meter: StoreMeter) -> tuple[str, ...]:
    """`HEAD`, with the store's own word for its samples."""
    return tuple(text.with_noun(name, meter.noun) for name in HEAD)


def rows(done: Bench, meter: StoreMeter) -> list[tuple[str, ...]]:
    """A row for each setting of one store, under `HEAD`."""
    mine = done.of(meter)
    return [_cells(one, mine) for one in mine]


def notes(readings: Sequence[Reading], load: float | None) -> str:
    """How the figures were measured, and what may be wrong with them."""
    figure = readings[0].images_per_s
    lines = [
        f"Medians of {text.count(len(figure.values), 'round')}, stores taken in turn; in brackets the interval that "
        f"holds the median with a chance of {figure.confidence:.0%}. Batches are only read.",
        "of limit: the share of bare copying or JPEG decoding with as many threads, the median of the rounds. "
        "a core: samples per second of CPU time.",
    ]
    if not any(reading.cold for reading in readings):
        lines.append(
            "Cold reads were not measured: the system was not asked to drop the files, or keeps them in memory."
        )
    if load is not None and load > BUSY:
        lines.append(f"The machine was busy before the start (load {load:.1f} per CPU): an idle machine is faster.")
    return "\n".join(lines)


def spread(figure: Figure | None, digits: str = ",.0f") -> str:
    """ "52,100 (49,000 to 55,200)"; "" for no figure."""
    if figure is None:
        return ""
    return f"{figure.median:{digits}} ({figure.low:{digits}} to {figure.high:{digits}})"


HEAD = (
    "batch",
    "workers",
    "images/s",
    "x first line",
    "of limit",
    "a core",
    "first batch",
    "cold images/s",
    "cold first",
)


def _cells(reading: Reading, lines: Sequence[Reading]) -> tuple[str, ...]:
    first = next(one for one in lines if one.case.setting.batch == reading.case.setting.batch)
    core, limit, cold = reading.images_per_core_s, reading.of_limit, reading.cold_first_batch_s
    return (
        str(reading.case.setting.batch),
        str(reading.case.setting.workers),
        spread(reading.images_per_s),
        f"{reading.images_per_s.median / first.images_per_s.median:.2f}",
        f"{limit.median:.0%}" if limit else "",
        f"{core.median:,.0f}" if core else "",
        f"{reading.first_batch_s.median:.2f} s",
        spread(reading.cold_images_per_s),
        f"{cold.median:.2f} s" if cold else "",
    )
