"""The report of `rawpack plan`."""

from __future__ import annotations

from pathlib import Path

from rawpack.system import machine
from rawpack_packer.report.crops import strips
from rawpack_packer.report.figures import (
    Curve,
    Draw,
    Level,
    Point,
    frontier,
    scaling,
    write_png,
)
from rawpack_packer.report.page import both, write_page
from rawpack_packer.text import count, plain, with_noun
from rawpack_packer.tune.plan import text
from rawpack_packer.tune.plan.planned import Plan


def write(page: Path | None, plots: Path | None, planned: Plan) -> None:
    """Write the page, and the plots alone; None leaves one out."""
    draws = _draws(planned)
    if page is not None:
        _write_page(page, planned, *draws)
    if plots is not None:
        write_png(plots, draws)


def _write_page(path: Path, planned: Plan, size: Draw, curve: Draw) -> None:
    taken = planned.recommendation.taken
    write_page(
        path,
        "plan.html.jinja",
        title=f"{planned.asked.source}: size against speed",
        source=plain(planned.asked.source),
        samples=count(planned.samples, planned.noun),
        whole=len(planned.sample) == planned.samples,
        sampled=len(planned.sample),
        taken=taken,
        noun=planned.noun,
        why=with_noun(planned.recommendation.why, planned.noun),
        take_command=None if taken is None else planned.asked.command(taken),
        targets=text.target_lines(planned),
        lost=[(one.candidate.name, with_noun(why, planned.noun)) for one, why in planned.recommendation.lost],
        overlaps=text.overlap_lines(planned),
        head=[with_noun(name, planned.noun) for name in text.HEAD],
        rows=list(text.rows(planned)),
        limit_rows=list(text.limit_rows(planned)),
        scaling_rows=text.scaling_rows(planned),
        legend=text.legend(planned),
        frontier=both(size, "Size of each candidate against its speed", "frontier"),
        scaling=both(curve, f"{planned.noun.capitalize()}s per second by workers", "scaling"),
        strips=strips(planned.sample, [one.candidate for one in planned.predictions]),
    )


def _draws(planned: Plan) -> tuple[Draw, Draw]:
    points = [
        Point(
            one.candidate.name,
            one.candidate.recipe.format,
            one.store_bytes,
            one.trial.best.images_per_s,
            one.trial.best.cold_images_per_s,
            one is planned.recommendation.taken,
        )
        for one in planned.predictions
    ]
    levels = [Level(what, rate) for what, rate in text.limits(planned)]
    target = planned.asked.goals.target
    if target is not None:
        levels.append(Level(f"--target {target:,.0f}", target, wish=True))
    curves = [
        Curve(
            one.candidate.name,
            one.candidate.recipe.format,
            [(reading.case.setting.workers, reading.images_per_s) for reading in one.trial.readings],
            one is planned.recommendation.taken,
        )
        for one in planned.predictions
    ]
    noun = planned.noun
    return frontier(points, levels, planned.asked.goals.disk, noun), scaling(curves, machine.cpus(), noun)
