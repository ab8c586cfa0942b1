"""The results of `rawpack bench`: how fast existing stores are read here, as JSON and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rawpack
from rawpack.checks import flag, seconds, whole_number
from rawpack.errors import UsageError
from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.options import opt
from rawpack_packer.tune import measure as words
from rawpack_packer.tune.candidates import listed, parse_sides, parse_steps
from rawpack_packer.tune.measure import COLD_ROUNDS, ROUNDS, Reading, Setting, StoreMeter, read_in_turn, worker_counts
from rawpack_packer.tune.shown import Measured
from rawpack_packer.tune.system import BUSY, load_per_cpu

HEAD = ("batch", "workers", "images/s", "from disk", "per core", "first batch")


@dataclass(frozen=True)
class Bench(Measured):
    """What `rawpack bench` measured."""

    readings: list[Reading]
    """Store by store, batch by batch, then by workers."""
    meters: list[StoreMeter]
    load: float | None
    """Load average per CPU before the start."""

    def __repr__(self) -> str:
        return f"Bench({text.count(len(self.readings), 'reading')} of {text.count(len(self.meters), 'store')})"

    def of(self, meter: StoreMeter) -> list[Reading]:
        """The readings of one store."""
        return [reading for reading in self.readings if reading.meter is meter]

    def rows(self, meter: StoreMeter) -> Iterator[tuple[str, ...]]:
        """A row for each setting of one store, under `HEAD`."""
        for one in self.of(meter):
            yield (
                str(one.setting.batch),
                str(one.setting.workers),
                words.spread(one.images_per_s),
                words.spread(one.cold_images_per_s),
                words.spread(one.images_per_core_s),
                words.seconds(one.first_batch_s),
            )

    def as_text(self, width: int) -> str:
        """For a terminal: nothing is wider than it."""
        blocks, left_out = list[str](), list[str]()
        for meter in self.meters:
            name = words.shortened(str(meter.path), width - 1)
            shown, left_out = words.table([HEAD, *self.rows(meter)], width, meter.noun)
            blocks.append(text.wrapped([f"{name}: {about(meter)}"], width) + f"\n{shown}")
        more = [f"Columns that do not fit: {', '.join(left_out)}."] if left_out else []
        return "\n\n".join([*blocks, text.wrapped([*more, *self.notes()], width)])

    def notes(self) -> list[str]:
        """How the figures were measured, and what may be wrong with them."""
        figure = self.readings[0].images_per_s
        rounds = text.count(len(figure.values), "round")
        lines = [
            f"Medians of {rounds}; each round reads every store. ±: half of the interval from the lowest to the "
            f"highest, which contains the median with a chance of {figure.confidence:.0%}. Batches are only read.",
            "per core: samples per second of CPU time. first batch: with the start of the workers.",
        ]
        if not any(reading.cold for reading in self.readings):
            lines.append(
                "Cold reads were not measured: the system was not asked to drop the files, or keeps them in memory."
            )
        return [*lines, *words.busy(self.load, BUSY)]

    def as_dict(self) -> dict[str, Any]:
        """For JSON: every figure with its rounds, and the machine."""
        return {
            "rawpack": rawpack.__version__,
            "machine": machine.describe(),
            "load_per_cpu_at_start": self.load,
            "stores": [
                {
                    "path": str(meter.path),
                    "format": meter.manifest.format,
                    "samples": len(meter),
                    "image": list(meter.images["image"].shape),
                    "images": {name: list(field.shape) for name, field in meter.images.items()},
                    "bytes": meter.store_bytes,
                }
                for meter in self.meters
            ],
            "readings": [{"name": str(one.meter.path), **one.as_dict()} for one in self.readings],
        }


def about(meter: StoreMeter) -> str:
    """A store in a few words."""
    shapes = text.image_shapes(meter.images)
    return f"{meter.manifest.format}, {text.count(len(meter), meter.noun)} of {shapes}, {text.size(meter.store_bytes)}"


def bench(
    stores: Sequence[Path],
    keywords: Mapping[str, Any],
    begin: Callable[[int], Callable[[], object]] = lambda total: lambda: None,
) -> Bench:
    """Measure stores in turn, as the keywords of `rawpack.bench` say.

    begin: called with the number of measurements; returns a function that is called after each. Raises UsageError where
    that makes no sense, also for images of different sizes without `image_size`, StoreError for a folder that is not a
    store.
    """
    given = {name: value for name, value in keywords.items() if value is not None}
    rounds = whole_number("rounds", given.get("rounds", ROUNDS), 1)
    cold_rounds = COLD_ROUNDS if flag("cold", given.get("cold", True)) else 0
    slices = seconds("seconds", given.get("seconds", 0.5))
    batches = [whole_number("batch", one, 1) for one in listed(given.get("batch"))] or [256]
    counts = [whole_number("workers", one, 0) for one in listed(given.get("workers"))] or worker_counts(machine.cpus())
    size, transform = parse_sides(given.get("image_size")), parse_steps(listed(given.get("transform")))
    load = load_per_cpu()
    meters = [StoreMeter(store, given.get("where")) for store in stores]
    for meter in meters:
        sized = meter.images if isinstance(size, tuple) else size or {}
        if not transform and any(not field.uniform and name not in sized for name, field in meter.images.items()):
            raise UsageError(f"the images in {meter.path} have different sizes: give {opt.image_size}, such as 224")
    readings = [
        Reading(meter, Setting(batch, count, size, transform))
        for meter in meters
        for batch in dict.fromkeys(batches)
        for count in dict.fromkeys(counts)
    ]
    tick = begin(len(readings) * (rounds + cold_rounds))
    read_in_turn(readings, slices, rounds=rounds, cold_rounds=cold_rounds, tick=tick)
    return Bench(readings, meters, load)
