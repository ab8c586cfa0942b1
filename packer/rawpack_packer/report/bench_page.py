"""The report of `rawpack bench`."""

from __future__ import annotations

from pathlib import Path

from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.report.figures import Curve, Draw, Level, Point, frontier, scaling, write_png
from rawpack_packer.report.page import both, write_page
from rawpack_packer.tune import bench
from rawpack_packer.tune.bench import Bench


def write(page: Path | None, plots: Path | None, done: Bench) -> None:
    """Write the page, and the plots alone; None leaves one out."""
    draws = _draws(done)
    if page is not None:
        _write_page(page, done, *draws)
    if plots is not None:
        write_png(plots, draws)


def _write_page(path: Path, done: Bench, size: Draw, curve: Draw) -> None:
    write_page(
        path,
        "bench.html.jinja",
        title="How fast stores are read",
        stores=[
            (
                text.plain(str(meter.path)),
                bench.about(meter),
                bench.head(meter),
                bench.rows(done, meter),
                done.disk[meter.path],
            )
            for meter in done.meters
        ],
        notes=bench.notes(done.readings, done.load),
        frontier=both(size, "Size of each store against its speed", "frontier"),
        scaling=both(curve, f"{_noun(done).capitalize()}s per second by workers", "scaling"),
    )


def _draws(done: Bench) -> tuple[Draw, Draw]:
    points, levels, curves = [], dict[str, float](), []
    several = len({reading.case.setting.batch for reading in done.readings}) > 1
    for meter in done.meters:
        mine, form = done.of(meter), meter.manifest.format
        best = max(mine, key=lambda one: one.images_per_s.median)
        name = text.plain(meter.path.name)
        points.append(Point(name, form, meter.store_bytes, best.images_per_s, best.cold_images_per_s))
        if best.limit is not None:
            what = "decode" if meter.field.codec.suffix else "copy"
            levels[what] = max(levels.get(what, 0.0), best.limit.median)
        for batch in dict.fromkeys(reading.case.setting.batch for reading in mine):
            lines = [one for one in mine if one.case.setting.batch == batch]
            curves.append(
                Curve(
                    f"{name}, batch {batch}" if several else name,
                    form,
                    [(one.case.setting.workers, one.images_per_s) for one in lines],
                )
            )
    return (
        frontier(points, [Level(f"limit: {what}", rate) for what, rate in levels.items()], noun=_noun(done)),
        scaling(curves, machine.cpus(), _noun(done)),
    )


def _noun(done: Bench) -> str:
    """What the samples of all stores are called."""
    nouns = {meter.noun for meter in done.meters}
    return nouns.pop() if len(nouns) == 1 else "sample"
