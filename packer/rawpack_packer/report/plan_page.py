"""The report of `rawpack plan`."""

from __future__ import annotations

from pathlib import Path

from rawpack.system import machine
from rawpack_packer.report.crops import strips
from rawpack_packer.report.figures import Row, comparison, scaling, write_png
from rawpack_packer.report.page import both, write_page
from rawpack_packer.text import count, size, with_noun
from rawpack_packer.tune.plan import text
from rawpack_packer.tune.plan.planned import Plan
from rawpack_packer.tune.plan.predict import Prediction


def write(page: Path | None, plots: Path | None, planned: Plan) -> None:
    """Write the page, and the plots alone; None leaves one out."""
    asked, noun, taken = planned.asked, planned.noun, planned.recommendation.taken
    rows = [_row(one, planned) for one in planned.predictions]
    speeds = comparison(rows, asked.goals.target, asked.goals.disk, noun)
    workers = scaling(rows, machine.cpus(), noun)
    table = [*text.rows(planned), *text.limit_rows(planned)]
    empty = {name for k, name in enumerate(text.HEAD) if not any(row[k] for row in table)} - {"from disk"}
    if page is not None:
        write_page(
            page,
            "plan.html.jinja",
            title=Path(asked.source).name or asked.source,
            paths=[asked.source],
            samples=count(planned.samples, noun),
            whole=len(planned.sample) == planned.samples,
            sampled=len(planned.sample),
            taken=taken,
            facts=[] if taken is None else _facts(taken, noun),
            noun=noun,
            why=with_noun(planned.why, noun),
            take_command=None if taken is None else asked.command(taken),
            targets=text.target_lines(planned),
            lost=[(one.candidate.name, with_noun(why, noun)) for one, why in planned.recommendation.lost],
            overlaps=text.overlap_lines(planned),
            head=[with_noun(name, noun) for name in text.HEAD],
            rows=table,
            legend=[line for line in text.legend(planned) if line.partition(":")[0] not in empty],
            comparison=both(speeds, "Speed and size of each candidate", "comparison"),
            scaling=None
            if workers is None
            else both(workers, f"{noun.capitalize()}s per second by workers", "scaling"),
            strips=strips(planned.sample, [one.candidate for one in planned.predictions]),
        )
    if plots is not None:
        write_png(plots, [speeds, workers])


def _facts(taken: Prediction, noun: str) -> list[tuple[str, str]]:
    """The size, speed and loss of what is recommended: (what is large on the page, what is small below it)."""
    speed, loss = taken.images_per_s, taken.trial.loss
    return [
        (size(taken.store_bytes), "the whole store"),
        (f"{text.number(speed.shown)}/s" if speed else "?", f"{noun}s from {'memory' if taken.fits else 'the disk'}"),
        (f"{loss.psnr_db:.0f} dB", f"PSNR; SSIM {loss.ssim:.3f}") if loss else ("no loss", "after resizing"),
    ]


def _row(one: Prediction, planned: Plan) -> Row:
    return Row(
        one.candidate.name,
        one.candidate.recipe.format,
        one.store_bytes,
        [(reading.case.setting.workers, reading.images_per_s) for reading in one.trial.readings],
        one.trial.best.images_per_s,
        one.trial.best.cold_images_per_s,
        planned.limit(one),
        one is planned.recommendation.taken,
    )
