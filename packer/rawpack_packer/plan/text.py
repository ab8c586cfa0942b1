"""A plan as text."""

from __future__ import annotations

from collections.abc import Iterator

from rawpack import machine
from rawpack_packer import show
from rawpack_packer.measure.cpu import cache_bytes
from rawpack_packer.measure.interval import Figure
from rawpack_packer.plan.planned import Planned
from rawpack_packer.plan.predict import Prediction

HEAD = (
    "", "whole set", "to pack", "images/s", "of limit", "a core", "CPUs left", "first batch", "from disk", "first",
    "even at", "PSNR", "SSIM",
)  # fmt: skip
_BUSY = 0.5


def as_text(planned: Planned) -> str:
    """All of it, for a person at a terminal."""
    asked = planned.asked
    title = (
        f"{show.plain(asked.source)}: {show.count(planned.samples, 'image')}, by "
        + ("all of them" if len(planned.sample) == planned.samples else f"{len(planned.sample):,} of them")
        + f"; read in batches of {asked.batch} with {show.count(asked.workers[-1], 'worker')}"
        + (f", each image through {', '.join(map(repr, asked.transform))}" if asked.transform else "")
    )
    return "\n\n".join(
        [
            title + "\n" + show.grid([HEAD, *rows(planned), *limit_rows(planned)]),
            "images/s by workers\n" + show.grid(scaling_rows(planned)),
            "\n".join(legend(planned)),
            "\n".join(advice_lines(planned)),
        ]
    )


def rows(planned: Planned) -> Iterator[tuple[str, ...]]:
    """A row for each candidate, under `HEAD`."""
    cpus = machine.cpus()
    for one in planned.predictions:
        best, loss = one.trial.best, one.trial.loss
        left, limit, core = one.cpus_left(planned.reference, cpus), best.of_limit, best.images_per_core_s
        yield (
            one.candidate.name + (" *" if one is planned.advice.taken else ""),
            show.size(one.store_bytes) + (f" ±{one.trial.bytes_error:.0%}" if one.trial.bytes_error else ""),
            show.duration(one.pack_s),
            short(best.images_per_s),
            f"{limit.median:.0%}" if limit else "",
            f"{core.median:,.0f}" if core else "",
            f"{left:.1f}" if left is not None else "",
            f"{best.first_batch_s.median:.2f} s",
            short(best.cold_images_per_s),
            f"{best.cold_first_batch_s.median:.2f} s" if best.cold_first_batch_s else "",
            f"{show.size(one.even_bytes_per_s)}/s" if one.even_bytes_per_s else "",
            f"{loss.psnr_db:.1f} dB" if loss else "",
            f"{loss.ssim:.4f}" if loss else "",
        )


def limits(planned: Planned) -> list[tuple[str, float]]:
    """What this machine can do at most, as images per second: (what, how many), one for each kind of candidate."""
    found: dict[str, float] = {}
    for one in planned.predictions:
        limit = one.trial.best.limit
        if limit is not None:
            what = f"decode {_pixels(one)}" if not one.candidate.raw else f"copy {_pixels(one)}"
            found[what] = max(found.get(what, 0.0), limit.median)
    for one in planned.predictions:
        disk = one.trial.disk_bytes_per_s
        if disk is not None and one.candidate.raw:
            what = f"disk, raw {_pixels(one)}"
            found[what] = max(found.get(what, 0.0), disk / one.trial.image_bytes)
    return list(found.items())


def limit_rows(planned: Planned) -> Iterator[tuple[str, ...]]:
    """A row for each limit of this machine, under `HEAD`."""
    blank = ("",) * (len(HEAD) - 4)
    for what, rate in limits(planned):
        if what.startswith("disk"):
            yield (f"limit: {what}", *("",) * 7, f"{rate:,.0f}", *("",) * (len(HEAD) - 9))
        else:
            yield (f"limit: {what}", "", "", f"{rate:,.0f}", *blank)


def scaling_rows(planned: Planned) -> list[tuple[str, ...]]:
    """A table of images per second by workers."""
    head = ("", *(str(count) for count in planned.asked.workers))
    return [
        head,
        *(
            (one.candidate.name, *(short(reading.images_per_s) for reading in one.trial.readings))
            for one in planned.predictions
        ),
    ]


def legend(planned: Planned) -> list[str]:
    """How to read the table, and what may be wrong with it."""
    best = planned.predictions[0].trial.best
    figure, cold = best.images_per_s, best.cold_images_per_s
    lines = [
        f"images/s: the median of {show.count(len(figure.values), 'round')} in turn, ± half of the interval that holds "
        f"it with a chance of {figure.confidence:.0%}; from memory. of limit: of bare copying or decoding. a core: for "
        "a second of CPU time.",
        f"CPUs left: of {machine.cpus()}, for the training, at {planned.reference:,.0f} images/s. even at: a disk that "
        "gives more reads this raw store faster than JPEG, where neither is in memory.",
    ]
    if cold is None:
        lines.append(
            f"from disk: not measured, as the system keeps the files of {planned.where} in memory; --tmp names a disk."
        )
    else:
        lines.append(f"from disk: nothing in memory, by a block shuffle, on the disk of {planned.where}.")
    if planned.memory is not None:
        large = [one.candidate.name for one in planned.predictions if not one.fits]
        what = "everything fits" if not large else f"{', '.join(large)} {'does' if len(large) == 1 else 'do'} not fit"
        lines.append(f"memory: {show.size(planned.memory)} for files; {what}.")
    cache = cache_bytes()
    small = [one.candidate.name for one in planned.predictions if _in_cache(one, cache)]
    if small and cache is not None:
        lines.append(
            f"The sample of {', '.join(small)} is not much larger than the processor's cache ({show.size(cache)}): a "
            "whole set may be read more slowly from memory. A longer --budget takes a larger sample."
        )
    rejected = planned.predictions[0].trial
    if rejected.seen > rejected.rows:
        lines.append(f"{rejected.seen - rejected.rows} of {rejected.seen} images could not be packed.")
    if planned.load is not None and planned.load > _BUSY:
        lines.append(f"The machine was busy before the start (load {planned.load:.1f} for each CPU): expect better.")
    return lines


def advice_lines(planned: Planned) -> list[str]:
    """What to take, its command, and why the others lost."""
    advice, lines = planned.advice, []
    if advice.taken is None:
        lines.append(advice.why)
    else:
        lines += [
            f"Take {advice.taken.candidate.name}: {advice.why}.",
            f"  {planned.asked.command(advice.taken)}",
        ]
        if advice.taken.trial.loss is not None:
            lines.append("  It loses a little of each image: --html shows how that looks.")
    lines += [f"  {one.candidate.name}: {why}" for one, why in advice.lost]
    lines += [f"{one} and {other} overlap: no difference in speed was measured." for one, other in planned.overlapping]
    return lines


def short(figure: Figure | None) -> str:
    """ "52,100 ±6%"; empty where there is none."""
    if figure is None:
        return ""
    half = (figure.high - figure.low) / 2 / figure.median if figure.median else 0.0
    return f"{figure.median:,.0f} ±{half:.0%}" if len(figure.values) > 1 else f"{figure.median:,.0f}"


def _in_cache(one: Prediction, cache: int | None) -> bool:
    """Whether copying is measured on rows that the processor keeps to itself; a whole set that small is no matter."""
    sampled = one.trial.rows * one.trial.image_bytes
    return cache is not None and one.candidate.raw and sampled < 2 * cache and one.store_bytes > 2 * sampled


def _pixels(one: Prediction) -> str:
    recipe = one.candidate.recipe
    size = recipe.size if not isinstance(recipe.size, tuple) else "x".join(map(str, recipe.size))
    return f"{size}{'' if recipe.color == 'rgb' else f' {recipe.color}'}"
