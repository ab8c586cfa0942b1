"""The recommendation: the smallest candidate that is fast enough, and why not each other one.

Fast enough means `--target`; without it, half the speed of the fastest candidate.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rawpack_packer import text
from rawpack_packer.options.naming import opt
from rawpack_packer.tune.measure.interval import Figure, rounded
from rawpack_packer.tune.plan.predict import Prediction

_AS_LARGE = 0.01
"""Stores that differ by less count as equally large."""
ENOUGH = 0.5
"""Without a target: the share of the fastest candidate's speed that is fast enough."""


@dataclass(frozen=True)
class Goals:
    """The user's limits."""

    target: float | None = None
    """Images per second that the training reads."""
    disk: int | None = None
    """Bytes that the store may take."""


@dataclass(frozen=True)
class Recommendation:
    """The recommended candidate, if any."""

    taken: Prediction | None
    why: str
    """One sentence, also where nothing is recommended."""
    lost: tuple[tuple[Prediction, str], ...]
    """Every other candidate, the smallest first, and why not."""


def recommend(predictions: Sequence[Prediction], goals: Goals) -> Recommendation:
    """Of the candidates that fit into `--disk`: with a target, the smallest whose whole interval reaches it; without
    one, the smallest whose median is at least half of the fastest candidate's.

    Of equally large candidates the faster is taken, and where no difference was measured, the first.
    """
    by_size = sorted(predictions, key=lambda one: (one.store_bytes, -_median(one)))
    taken, why, fastest = _choose(predictions, [one for one in by_size if not _too_large(one, goals)], goals)
    lost = tuple((one, _why_not(one, goals, taken, fastest)) for one in by_size if one is not taken)
    return Recommendation(taken, why, lost)


def _choose(
    predictions: Sequence[Prediction], fitting: Sequence[Prediction], goals: Goals
) -> tuple[Prediction | None, str, Prediction | None]:
    """The candidate to take and why, and the fastest one where that decides what is fast enough."""
    if not fitting:
        return None, f"No candidate fits into {opt.disk(text.size(goals.disk or 0))}.", None
    known = [one for one in fitting if one.images_per_s is not None]
    if goals.target is not None:
        fast = [one for one in known if one.images_per_s is not None and one.images_per_s.low >= goals.target]
        if fast:
            why = f"the smallest certain to reach {goals.target:,.0f} images/s"
            return _fastest_of_the_smallest(fast, predictions), why, None
        best = max(fitting, key=_median)
        why = f"No candidate is certain to reach {goals.target:,.0f} images/s. The fastest is {best.candidate.name}: "
        return None, f"{why}{_rate(best)}.", None
    if not known:
        return None, "No candidate fits into memory, and speed from the disk could not be measured.", None
    fastest = max(known, key=_median)
    taken = _fastest_of_the_smallest([one for one in known if _median(one) >= ENOUGH * _median(fastest)], predictions)
    if len(known) == 1:
        why = "the only candidate" if len(predictions) == 1 else "the only one that fits"
    elif taken.store_bytes < fastest.store_bytes * (1 - _AS_LARGE):
        why = f"the smallest store that reads at least half as fast as the fastest, {fastest.candidate.name}"
    else:
        why = "no smaller store reads at least half as fast"
    return taken, why, fastest


def by_target(predictions: Sequence[Prediction], disk: int | None) -> list[tuple[float, Prediction]]:
    """The recommendation for each target: (the highest target it holds for, candidate), ascending."""
    lows = {one.images_per_s.low for one in predictions if one.images_per_s is not None}
    found: list[tuple[float, Prediction]] = []
    for low in sorted(lows):
        taken = recommend(predictions, Goals(low, disk)).taken
        if taken is not None and found and found[-1][1] is taken:
            found.pop()
        if taken is not None:
            found.append((low, taken))
    return found


def overlaps(predictions: Sequence[Prediction]) -> list[tuple[str, str]]:
    """Pairs of candidates next to each other by speed between which no difference was measured."""
    known = sorted((one for one in predictions if one.images_per_s is not None), key=_median, reverse=True)
    return [
        (one.candidate.name, other.candidate.name)
        for one, other in itertools.pairwise(known)
        if one.images_per_s is not None and other.images_per_s is not None
        if one.images_per_s.overlaps(other.images_per_s)
    ]


def _fastest_of_the_smallest(some: Sequence[Prediction], order: Sequence[Prediction]) -> Prediction:
    """The fastest of the equally smallest; where no difference was measured, the first in `order`."""
    least = min(one.store_bytes for one in some)
    small = [one for one in some if one.store_bytes <= least * (1 + _AS_LARGE)]
    fastest = max(small, key=_median).images_per_s
    return next(
        one
        for one in order
        if one in small and fastest and one.images_per_s and _no_difference(one.images_per_s, fastest)
    )


def _no_difference(one: Figure, other: Figure) -> bool:
    """Whether no difference was measured. A single round has no interval that could show one."""
    return one.error is None or other.error is None or one.overlaps(other)


def _why_not(one: Prediction, goals: Goals, taken: Prediction | None, fastest: Prediction | None) -> str:
    if _too_large(one, goals):
        return f"{text.size(one.store_bytes)} is more than {opt.disk(text.size(goals.disk or 0))}"
    rate = one.images_per_s
    if rate is None:
        return "does not fit into memory, and its speed from the disk could not be measured"
    if goals.target is not None and rate.high < goals.target:
        return f"too slow: {_rate(one)}"
    if goals.target is not None and rate.low < goals.target:
        return f"not certain to be fast enough: {_rate(one)}"
    if fastest is not None and _median(one) < ENOUGH * _median(fastest):
        return f"less than half as fast as {fastest.candidate.name}: {_rate(one)}"
    if taken is None or taken.images_per_s is None:
        return _rate(one)
    if abs(one.store_bytes / taken.store_bytes - 1) <= _AS_LARGE:
        same = _no_difference(rate, taken.images_per_s)
        if rate.error is None or taken.images_per_s.error is None:
            return f"as large; measured once, the difference is not certain: {_rate(one)}"
        return f"as large, and {'no difference in speed was measured' if same else 'slower'}: {_rate(one)}"
    return f"larger: {text.size(rounded(one.store_bytes, one.bytes_error * one.store_bytes))}, {_rate(one)}"


def _too_large(one: Prediction, goals: Goals) -> bool:
    return goals.disk is not None and one.store_bytes > goals.disk


def _median(one: Prediction) -> float:
    return -1.0 if one.images_per_s is None else one.images_per_s.median


def _rate(one: Prediction) -> str:
    rate = one.images_per_s
    if rate is None:
        return "unknown"
    where = "" if one.fits else " from the disk, as it does not fit into memory"
    low, high = (rounded(end, rate.error) for end in (rate.low, rate.high))
    between = "" if rate.error is None else f" ({low:,.0f} to {high:,.0f})"
    return f"{rate.shown:,.0f} images/s{between}{where}"
