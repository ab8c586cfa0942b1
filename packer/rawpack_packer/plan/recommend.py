"""Which candidate to take: the smallest that is fast enough, and why each other one lost."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from rawpack_packer import show
from rawpack_packer.plan.predict import Prediction

_AS_LARGE = 0.01
"""Stores that differ by less are of one size."""


@dataclass(frozen=True)
class Wishes:
    """What the user asked for."""

    target: float | None = None
    """Images per second that the training takes."""
    disk: int | None = None
    """Bytes that the store may have."""


@dataclass(frozen=True)
class Advice:
    """What to take, if anything."""

    taken: Prediction | None
    why: str
    """One sentence, also where nothing was taken."""
    lost: tuple[tuple[Prediction, str], ...]
    """Every other candidate, the smallest first, and why not."""


def recommend(predictions: Sequence[Prediction], wishes: Wishes) -> Advice:
    """With a target, the smallest candidate whose whole interval reaches it; without one, the fastest.

    Of candidates that are as large as each other the faster is taken, and where no difference was measured, the first.
    """
    by_size = sorted(predictions, key=lambda one: (one.store_bytes, -_median(one)))
    fitting = [one for one in by_size if not _too_large(one, wishes)]
    if not fitting:
        return Advice(None, "No candidate fits into --disk.", _losers(by_size, None, wishes))
    if wishes.target is None:
        known = [one for one in fitting if one.images_per_s is not None]
        if not known:
            return Advice(None, "No candidate's speed from the disk could be measured.", ())
        taken = _first_of_the_fastest(known, predictions)
        why = "the fastest" + (" that fits into --disk" if wishes.disk is not None else "")
        return Advice(
            taken,
            f"{why}; --target IMAGES/S asks for the smallest that is fast enough",
            _losers(by_size, taken, wishes),
        )
    fast = [one for one in fitting if one.images_per_s is not None and one.images_per_s.low >= wishes.target]
    if not fast:
        best = max(fitting, key=_median)
        return Advice(
            None,
            f"None is surely as fast as {wishes.target:,.0f} images/s. The fastest is {best.candidate.name}: "
            f"{_rate(best)}.",
            _losers(by_size, None, wishes),
        )
    as_small = [one for one in fast if one.store_bytes <= fast[0].store_bytes * (1 + _AS_LARGE)]
    taken = _first_of_the_fastest(as_small, predictions)
    return Advice(
        taken, f"the smallest that surely gives {wishes.target:,.0f} images/s", _losers(by_size, taken, wishes)
    )


def overlaps(predictions: Sequence[Prediction]) -> list[tuple[str, str]]:
    """Names of candidates, neighbours by speed, between which no difference was measured."""
    known = sorted((one for one in predictions if one.images_per_s is not None), key=_median, reverse=True)
    return [
        (one.candidate.name, other.candidate.name)
        for one, other in itertools.pairwise(known)
        if one.images_per_s is not None and other.images_per_s is not None
        if one.images_per_s.overlaps(other.images_per_s)
    ]


def _first_of_the_fastest(some: Sequence[Prediction], order: Sequence[Prediction]) -> Prediction:
    """The smallest of those between which and the fastest no difference was measured; of equals the first in order."""
    fastest = max(some, key=_median).images_per_s
    equal = [one for one in some if fastest and one.images_per_s and one.images_per_s.overlaps(fastest)]
    least = min(one.store_bytes for one in equal)
    return next(one for one in order if one in equal and one.store_bytes <= least * (1 + _AS_LARGE))


def _losers(
    by_size: Sequence[Prediction], taken: Prediction | None, wishes: Wishes
) -> tuple[tuple[Prediction, str], ...]:
    return tuple((one, _why_not(one, taken, wishes)) for one in by_size if one is not taken)


def _why_not(one: Prediction, taken: Prediction | None, wishes: Wishes) -> str:
    if _too_large(one, wishes):
        return f"{show.size(one.store_bytes)} is more than --disk {show.size(wishes.disk or 0)}"
    rate = one.images_per_s
    if rate is None:
        return "too large for the memory, and its speed from the disk could not be measured"
    if wishes.target is not None and rate.high < wishes.target:
        return f"too slow: {_rate(one)}"
    if wishes.target is not None and rate.low < wishes.target:
        return f"not surely fast enough: {_rate(one)}"
    if taken is None or taken.images_per_s is None:
        return _rate(one)
    same = " (the intervals overlap: no difference was measured)" if rate.overlaps(taken.images_per_s) else ""
    if abs(one.store_bytes / taken.store_bytes - 1) <= _AS_LARGE:
        return f"as large, and {'no faster' if same else 'slower'}: {_rate(one)}{same}"
    if one.store_bytes < taken.store_bytes:
        return f"smaller, and slower: {_rate(one)}{same}"
    return f"larger: {show.size(one.store_bytes)}, {_rate(one)}"


def _too_large(one: Prediction, wishes: Wishes) -> bool:
    return wishes.disk is not None and one.store_bytes > wishes.disk


def _median(one: Prediction) -> float:
    return -1.0 if one.images_per_s is None else one.images_per_s.median


def _rate(one: Prediction) -> str:
    rate = one.images_per_s
    if rate is None:
        return "unknown"
    where = "" if one.fits else " from the disk, as it does not fit into memory"
    return f"{rate.median:,.0f} images/s ({rate.low:,.0f} to {rate.high:,.0f}){where}"
