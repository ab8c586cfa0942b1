"""The reports of `rawpack plan` and `rawpack bench`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rawpack_packer import text
from rawpack_packer.report.figures import Row, comparison, write_png
from rawpack_packer.report.page import both, picture, write_page
from rawpack_packer.tune import bench, plan
from rawpack_packer.tune.bench import Bench
from rawpack_packer.tune.plan import Plan
from rawpack_packer.tune.text import number
from rawpack_packer.tune.trial import Trial


def write(page: Path | None, plots: Path | None, done: Plan | Bench) -> None:
    """Write the page, and the plot alone; None leaves one out."""
    if isinstance(done, Plan):
        goals, noun, values = done.asked.goals, done.noun, _plan_values(done)
        plot = comparison([_row(one, done) for one in done.trials], goals.target, goals.disk, noun)
    else:
        nouns = {meter.noun for meter in done.meters}
        noun, values = nouns.pop() if len(nouns) == 1 else "sample", _bench_values(done)
        plot = comparison(_rows(done), noun=noun)
    if page is not None:
        shown = both(plot, "Speed and size", "comparison")
        write_page(page, "tuning.html.jinja", noun=noun, comparison=shown, **values)
    if plots is not None:
        write_png(plots, plot)


def _plan_values(done: Plan) -> dict[str, Any]:
    taken = done.recommendation.taken
    return {
        "title": Path(done.asked.source).name or done.asked.source,
        "paths": [done.asked.source],
        "about": f"{done.title()}. Each candidate was packed and read back on this machine.",
        "planned": True,
        "taken": taken and taken.candidate.name,
        "why": done.why,
        "facts": [] if taken is None else _facts(taken, done.noun),
        "take_command": None if taken is None else done.asked.command(taken),
        "strips": [(one.key, [(crop, picture(crop.pixels)) for crop in one.crops]) for one in done.strips],
        "tables": [("All figures", "", _head(plan.HEAD, done.noun), list(done.rows()))],
        "notes": done.notes(),
        "lost": done.lost(),
    }


def _bench_values(done: Bench) -> dict[str, Any]:
    return {
        "title": "Reading speed",
        "paths": [str(meter.path) for meter in done.meters],
        "taken": None,
        "planned": False,
        "strips": [],
        "tables": [
            (name, bench.about(meter), _head(bench.HEAD, meter.noun), list(done.rows(meter)))
            for name, meter in zip(_names(done), done.meters, strict=True)
        ],
        "notes": done.notes(),
        "lost": [],
    }


def _head(names: tuple[str, ...], noun: str) -> list[str]:
    return [text.with_noun(name, noun) for name in names]


def _facts(taken: Trial, noun: str) -> list[tuple[str, str]]:
    """The size, speed and loss of what is recommended: (what is large on the page, what is small below it)."""
    speed, loss = taken.rate, taken.loss
    return [
        (text.size(taken.store_bytes), "the whole store"),
        (f"{number(speed.median)}/s" if speed else "?", f"{noun}s from {'memory' if taken.fits else 'the disk'}"),
        (f"{loss.psnr_db:.0f} dB", f"PSNR; SSIM {loss.ssim:.3f}") if loss else ("no loss", "after resizing"),
    ]


def _row(one: Trial, done: Plan) -> Row:
    reading, marked = one.reading, one is done.recommendation.taken
    name, form = one.candidate.name, one.candidate.recipe.format
    return Row(name, form, one.store_bytes, reading.images_per_s, reading.cold_images_per_s, marked)


def _names(done: Bench) -> list[str]:
    """The folders of the stores; their whole paths where two folders have the same name."""
    names = [meter.path.resolve().name for meter in done.meters]
    return names if len(set(names)) == len(names) else [str(meter.path) for meter in done.meters]


def _rows(done: Bench) -> list[Row]:
    """A row for each store and batch size, with the number of workers that is fastest."""
    rows = []
    batches = dict.fromkeys(reading.setting.batch for reading in done.readings)
    for name, meter in zip(_names(done), done.meters, strict=True):
        for batch in batches:
            readings = [one for one in done.of(meter) if one.setting.batch == batch]
            best = max(readings, key=lambda one: one.images_per_s.median)
            label = f"{name}, batch {batch}" if len(batches) > 1 else name
            rows.append(Row(label, meter.manifest.format, meter.store_bytes, best.images_per_s, best.cold_images_per_s))
    return rows
