"""A plan as text for a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence

from rawpack.system import machine
from rawpack_packer import text
from rawpack_packer.options.naming import opt
from rawpack_packer.tune.measure.cpu import BUSY, cache_bytes
from rawpack_packer.tune.measure.interval import Figure, rounded
from rawpack_packer.tune.plan.planned import Plan
from rawpack_packer.tune.plan.predict import Prediction
from rawpack_packer.tune.plan.recommend import overlaps

HEAD = (
    "", "whole set", "to pack", "images/s", "limit", "of limit", "a core", "CPUs left", "first batch", "from disk",
    "disk first", "even at", "PSNR", "SSIM",
)  # fmt: skip
_BY_NEED = (
    "", "whole set", "images/s", "from disk", "to pack", "PSNR", "first batch", "CPUs left", "limit", "of limit",
    "SSIM", "a core", "disk first", "even at",
)  # fmt: skip
"""The columns, most important first, for narrow terminals."""
_FEW = 24
"""Fewer images say little about a whole set."""
_INDENT = "  "


def as_text(planned: Plan, width: int | None = None) -> str:
    """The plan for a terminal of `width` columns; None for the whole table and unwrapped lines."""
    asked = planned.asked
    title = (
        f"{text.plain(asked.source)}: {text.count(planned.samples, planned.noun)}"
        + ("" if len(planned.sample) == planned.samples else f", judged by {len(planned.sample):,} of them")
        + f"; read in batches of {asked.batch} with {text.count(asked.workers[-1], 'worker')}"
        + (f", each {planned.noun} through {', '.join(map(repr, asked.transform))}" if asked.transform else "")
    )
    table, shown = _fitting([HEAD, *rows(planned), *limit_rows(planned)], width, planned.noun)
    blocks = [
        [*_wrapped(title, width), table],
        [line for note in legend(planned, shown) for line in _wrapped(note, width)],
        [line for one in advice_lines(planned) for line in _wrapped(one, width)],
    ]
    curve = scaling_rows(planned)
    if len(curve[0]) > 2:
        blocks.insert(1, [f"{planned.noun}s/s by workers:", _fitting(curve, width)[0]])
    return "\n\n".join("\n".join(block) for block in blocks)


def rows(planned: Plan) -> Iterator[tuple[str, ...]]:
    """A row for each candidate, under `HEAD`."""
    cpus = machine.cpus()
    for one in planned.predictions:
        best, loss = one.trial.best, one.trial.loss
        left, limit, core = one.cpus_left(planned.reference, cpus), planned.limit(one), best.images_per_core_s
        yield (
            one.candidate.name + (" *" if one is planned.recommendation.taken else ""),
            size_of(one),
            about(one.pack_s),
            short(best.images_per_s),
            number(limit) if limit else "",
            f"{best.images_per_s.shown / limit:.0%}" if limit else "",
            number(core.shown) if core else "",
            f"{left:.1f}" if left is not None else "",
            f"{best.first_batch_s.shown:.2g} s",
            short(best.cold_images_per_s),
            f"{best.cold_first_batch_s.shown:.2g} s" if best.cold_first_batch_s else "",
            f"{text.size(rounded(one.even_bytes_per_s, None))}/s" if one.even_bytes_per_s else "",
            f"{loss.psnr_db:.1f} dB" if loss else "",
            f"{loss.ssim:.3f}" if loss else "",
        )


def limits(planned: Plan) -> list[tuple[str, float]]:
    """The limits of this machine: (what, images per second), one for each kind of candidate."""
    found = dict(planned.limits)
    for one in planned.predictions:
        disk = one.trial.disk_bytes_per_s
        if disk is not None and one.candidate.raw:
            what = one.candidate.work.replace("copy", "disk, raw", 1)
            found[what] = max(found.get(what, 0.0), rounded(disk / one.trial.image_bytes, None))
    return list(found.items())


def limit_rows(planned: Plan) -> Iterator[tuple[str, ...]]:
    """A row for the limit of the disk, for each size of raw image, under `HEAD`."""
    column = HEAD.index("from disk")
    for what, rate in limits(planned):
        if what.startswith("disk"):
            yield (f"limit: {what}", *("",) * (column - 1), number(rate), *("",) * (len(HEAD) - column - 1))


def scaling_rows(planned: Plan) -> list[tuple[str, ...]]:
    """A table of images per second by workers."""
    counts = sorted({one.case.setting.workers for each in planned.predictions for one in each.trial.readings})
    found = [("", *map(str, counts))]
    for one in planned.predictions:
        rates = {reading.case.setting.workers: reading.images_per_s for reading in one.trial.readings}
        found.append((one.candidate.name, *(short(rates.get(count)) for count in counts)))
    return found


def legend(planned: Plan, shown: Sequence[str] = HEAD) -> list[str]:
    """How to read the table, which has the columns `shown`, and what may be wrong with it."""
    best = planned.predictions[0].trial.best
    rounds = len(best.images_per_s.values)
    left_out = [name for name in HEAD if name not in shown]
    above = any(one.trial.best.images_per_s.shown > (planned.limit(one) or math.inf) for one in planned.predictions)
    lines = []
    if left_out:
        lines.append(f"Columns that do not fit ({opt.wide} shows them): {', '.join(left_out)}.")
    lines.append("*: recommended. images/s: from memory" + (
        f", the median of {rounds} rounds; ±: half the width of the {best.images_per_s.confidence:.0%} confidence "
        "interval." if rounds > 1 else ", measured once."
    ))  # fmt: skip
    notes = {
        "whole set": "without ±, exact" if any(one.bytes_error for one in planned.predictions) else "",
        "limit": "bare copying or decoding, with as many threads as workers",
        "of limit": "images/s divided by limit"
        + ("; above 100%, the machine was slower while the limit was measured" if above else ""),
        "a core": "images for each second of CPU time",
        "CPUs left": f"of {machine.cpus()}, for the training, at {number(rounded(planned.reference, None))} images/s",
        "first batch": "after opening the store",
        "even at": "with a disk that gives more, this raw store is read faster than JPEG, neither in memory",
        "PSNR": "what JPEG or chroma loses; higher is better",
    }
    lines += [f"{name}: {note}." for name, note in notes.items() if note and name in shown]
    lines = [text.with_noun(line, planned.noun) for line in lines]
    if best.cold_images_per_s is not None:
        some = any(one.trial.best.cold_images_per_s is None for one in planned.predictions)
        lines.append(
            f"from disk: with nothing in memory, by a block shuffle, on the disk of {planned.where}"
            + (f"; measured for some candidates only, because {opt.budget} was used up." if some else ".")
        )
    elif any(one.trial.disk_bytes_per_s is not None for one in planned.predictions):
        lines.append(f"from disk: not measured, as {opt.budget} was used up.")
    else:
        lines.append(
            f"from disk: not measured: the system keeps the files in {planned.where} in memory. Name a folder on a "
            f"disk by {opt.tmp}."
        )
    if planned.memory is not None:
        large = [one.candidate.name for one in planned.predictions if not one.fits]
        lines.append(
            f"memory: {text.size(planned.memory)} for files; "
            + (f"too little for {', '.join(large)}: read from the disk." if large else "every candidate fits.")
        )
    return lines + warnings(planned)


def warnings(planned: Plan) -> list[str]:
    """What may be wrong with the figures."""
    lines = []
    if planned.left_out:
        lines.append(
            f"Not tried, because {opt.budget(about(planned.asked.budget))} was used up: "
            f"{', '.join(one.name for one in planned.left_out)}. Give more time, or name fewer candidates."
        )
    cache = cache_bytes()
    small = [one for one in planned.predictions if _in_cache(one, cache)]
    if small and cache is not None:
        fits = max(one.trial.rows * one.trial.image_bytes for one in small) <= cache
        lines.append(
            f"The sample of {', '.join(one.candidate.name for one in small)} "
            f"{'fits into' if fits else 'is not much larger than'} the processor's cache ({text.size(cache)}): a "
            f"whole set may be read more slowly from memory. A longer {opt.budget} takes a larger sample."
        )
    if any(one.images_per_s is not None and one.images_per_s.error is None for one in planned.predictions):
        lines.append(
            "Some candidates were measured only once, so that differences in speed are not certain: a longer "
            f"{opt.budget} measures more often."
        )
    if len(planned.sample) < min(_FEW, planned.samples):
        tried_out = text.count(len(planned.sample), planned.noun) + (" was" if len(planned.sample) == 1 else " were")
        lines.append(
            f"Only {tried_out} tried: "
            f"{opt.budget(about(planned.asked.budget))} left no time for more. A longer one gives better figures."
        )
    tried = planned.predictions[0].trial
    if tried.seen > tried.rows:
        lines.append(f"{tried.seen - tried.rows:,} of {text.count(tried.seen, planned.noun)} could not be packed.")
    if planned.load is not None and planned.load > BUSY:
        lines.append(
            f"The machine was busy before the start (load {planned.load:.1f} for each CPU): an idle one is faster."
        )
    return lines


def advice_lines(planned: Plan) -> list[str]:
    """The recommendation, its command, what a target would change, and why not the others."""
    recommendation, lines, noun = planned.recommendation, list[str](), planned.noun
    if recommendation.taken is None:
        lines.append(f"Nothing is recommended. {text.with_noun(planned.why, noun)}")
    else:
        lines += [
            f"Recommended: {recommendation.taken.candidate.name}, {text.with_noun(planned.why, noun)}.",
            f"{_INDENT}{planned.asked.command(recommendation.taken)}",
        ]
        speeds = [one.images_per_s for one in planned.predictions if one.images_per_s is not None]
        if len(speeds) > 1 and any(one.error is None for one in speeds):
            lines.append(f"{_INDENT}Measured once: the difference is not certain.")
        if recommendation.taken.trial.loss is not None:
            lines.append(f"{_INDENT}It loses a little of each {planned.noun}: --html shows how that looks.")
    lines += target_lines(planned)
    if recommendation.lost:
        lines.append("Other candidates:" if recommendation.taken else "Candidates:")
        lines += [
            f"{_INDENT}{one.candidate.name}: {text.with_noun(why, planned.noun)}" for one, why in recommendation.lost
        ]
    lines += overlap_lines(planned)
    return lines


def target_lines(planned: Plan) -> list[str]:
    """What --target would change; empty where one was given."""
    if planned.asked.goals.target is not None or not planned.by_target:
        return []
    if len({one.candidate.name for _, one in planned.by_target}) == 1 and planned.recommendation.taken is not None:
        return []
    return [f"If you know how many {planned.noun}s/s the training takes, {opt.target} recommends:"] + [
        f"{_INDENT}up to {number(_floor(most))}: {one.candidate.name}, {size_of(one)}"
        for most, one in planned.by_target
    ]


def overlap_lines(planned: Plan) -> list[str]:
    """Which candidates showed no difference in speed."""
    pairs = [f"{one} and {other}" for one, other in overlaps(planned.predictions)]
    return [f"No difference in speed was measured between {', nor between '.join(pairs)}."] if pairs else []


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.3g}"


def short(figure: Figure | None) -> str:
    """ "52,000 ±6%"; "" for no figure."""
    if figure is None:
        return ""
    error = figure.error
    return number(figure.shown) + (f" ±{error / figure.median:.0%}" if error and figure.median else "")


def size_of(one: Prediction) -> str:
    """ "6.1 MB ±3%"; "78.7 MB" for an exact size."""
    value = text.size(rounded(one.store_bytes, one.bytes_error * one.store_bytes))
    return f"{value} ±{one.bytes_error:.{0 if one.bytes_error >= 0.01 else 1}%}" if one.bytes_error else value


def about(seconds: float) -> str:
    """A duration with two digits: "1.6 s", "14 s", "3.2 min", "5 h"."""
    for unit, length in (("s", 60), ("min", 60), ("h", 48)):
        if seconds < length * 1.5:
            return f"{number(rounded(seconds, None))} {unit}" if seconds >= 0.1 or unit != "s" else "0.1 s"
        seconds /= 60 if unit != "h" else 24
    return f"{number(rounded(seconds, None))} days"


def _floor(value: float) -> float:
    """Rounded down to two digits, so that the promise holds."""
    place = 10.0 ** (len(str(int(value))) - 2)
    return value // place * place


def _in_cache(one: Prediction, cache: int | None) -> bool:
    """Whether the sample fits the processor's cache, and the whole set does not."""
    sampled = one.trial.rows * one.trial.image_bytes
    return cache is not None and one.candidate.raw and sampled < 2 * cache and one.store_bytes > 2 * sampled


def _fitting(table: list[tuple[str, ...]], width: int | None, noun: str = "image") -> tuple[str, list[str]]:
    """A table with as many columns as fit into the width, the most important first, and their names.

    noun: what the samples are called.
    """
    head = table[0]
    full = [k for k in range(len(head)) if any(row[k] for row in table[1:])]
    by_need = sorted(full, key=lambda k: _BY_NEED.index(head[k]) if head[k] in _BY_NEED else k)
    wide = {k: max(len(row[k]) for row in table) for k in full}
    kept: list[int] = []
    room = float("inf") if width is None else width
    for k in by_need:
        used = len(_INDENT) + sum(wide[j] + 2 for j in kept)
        # The name and one more column are always shown.
        if len(kept) < 2 or used + wide[k] <= room:
            kept.append(k)
    kept.sort()
    renamed = [tuple(text.with_noun(name, noun) for name in head), *table[1:]]
    return text.grid([tuple(row[k] for k in kept) for row in renamed], _INDENT), [head[k] for k in kept]


def _wrapped(line: str, width: int | None) -> list[str]:
    """A line wrapped to the width; a command, which users copy, stays on one line."""
    if width is None or line.startswith(f"{_INDENT}rawpack "):
        return [line]
    inner = line.removeprefix(_INDENT)
    indent = _INDENT if inner != line else ""
    return textwrap.wrap(
        inner, max(20, width), initial_indent=indent, subsequent_indent=indent + _INDENT,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
