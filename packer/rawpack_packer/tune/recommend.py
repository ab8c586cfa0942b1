"""The recommendation: the smallest candidate that is fast enough, and why not each other one.

Fast enough means `--target`; without it, half the speed of the fastest candidate. Speed is that of training: with the
user's steps, or with random crops and flips.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rawpack_packer import text
from rawpack_packer.options import opt
from rawpack_packer.tune.measure import number
from rawpack_packer.tune.trial import Trial

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

    taken: Trial | None
    why: str
    """One sentence, also where nothing is recommended."""
    lost: tuple[tuple[Trial, str], ...]
    """Every other candidate, the smallest first, and why not."""


def recommend(trials: Sequence[Trial], goals: Goals, *, busy: bool = False) -> Recommendation:
    """Of the candidates that fit into `--disk`: with a target, the smallest whose whole interval reaches it; without
    one, the smallest whose median is at least half of the fastest candidate's.

    Of equally large candidates the faster is taken, and where no difference was measured, the first. busy: whether the
    machine had other work, so that no measurement makes anything certain.
    """
    by_size = sorted(trials, key=lambda one: (one.store_bytes, -_median(one)))
    known = [one for one in by_size if not _too_large(one, goals) and one.rate is not None]
    fastest = max(known, key=_median, default=None)
    fast = [one for one in known if _is_fast(one, goals, fastest)]
    taken = _fastest_of_the_smallest(fast, trials) if fast else None
    lost = tuple((one, _why_not(one, goals, taken, fastest)) for one in by_size if one is not taken)
    return Recommendation(taken, _why(trials, known, goals, taken, fastest, busy), lost)


def trades(trials: Sequence[Trial], taken: Trial, goals: Goals) -> list[str]:
    """What the next smaller and the next faster store would cost, a sentence each. Only stores that no other one beats
    in size, speed and loss, and that neither limit excludes."""
    best = [
        one for one in trials if not (_too_large(one, goals) or _too_slow(one, goals))
        and not any(_beats(other, one) for other in trials)
    ]  # fmt: skip
    smaller = [one for one in best if one.store_bytes < taken.store_bytes * (1 - _AS_LARGE)]
    faster = [
        one for one in best if one.rate and taken.rate and one.rate.median > taken.rate.median
        and not one.rate.overlaps(taken.rate)
    ]  # fmt: skip
    found = []
    if smaller:
        found.append(f"Next smaller: {_cost(max(smaller, key=lambda one: one.store_bytes), taken)}.")
    if faster:
        found.append(f"Next faster: {_cost(min(faster, key=_median), taken)}.")
    return found


def _beats(one: Trial, other: Trial) -> bool:
    ours, theirs = ((-each.store_bytes, _median(each), _psnr(each)) for each in (one, other))
    return ours != theirs and all(mine >= its for mine, its in zip(ours, theirs, strict=True))


def _cost(one: Trial, taken: Trial) -> str:
    """What a store takes, compared with the recommended one."""
    words = [f"{one.candidate.name} takes {text.size(one.store_bytes)} instead of {text.size(taken.store_bytes)}"]
    if one.rate is not None and taken.rate is not None:
        ratio = one.rate.median / taken.rate.median
        times = text.times(ratio).replace("as much", "1 times")
        words.append(f"reads at {ratio:.0%} of the speed" if ratio < 1 else f"reads {times} as fast")
    if one.loss and taken.loss:
        words.append(f"has {one.loss.psnr_db:.1f} dB instead of {taken.loss.psnr_db:.1f} dB")
    elif one.loss:
        words.append(f"loses a little ({one.loss.psnr_db:.1f} dB)")
    elif taken.loss:
        words.append(f"loses nothing ({taken.candidate.name}: {taken.loss.psnr_db:.1f} dB)")
    return f"{', '.join(words[:-1])} and {words[-1]}" if len(words) > 1 else words[0]


def _psnr(one: Trial) -> float:
    return math.inf if one.loss is None else one.loss.psnr_db


def _is_fast(one: Trial, goals: Goals, fastest: Trial | None) -> bool:
    if goals.target is not None:
        return one.rate is not None and one.rate.low >= goals.target
    return fastest is not None and _median(one) >= ENOUGH * _median(fastest)


def _why(
    trials: Sequence[Trial],
    known: Sequence[Trial],
    goals: Goals,
    taken: Trial | None,
    fastest: Trial | None,
    busy: bool,
) -> str:
    if all(_too_large(one, goals) for one in trials):
        return f"No candidate fits into {opt.disk(text.size(goals.disk or 0))}."
    if fastest is None:
        return "No candidate fits into memory, and speed from the disk could not be measured."
    augmentation = fastest.training.setting.augmentation
    if taken is None:
        reaches = "reached {} in every round" if busy else "is certain to reach {}"
        target = reaches.format(f"{goals.target:,.0f} images/s")
        return f"No candidate {target} {augmentation}. The fastest is {fastest.candidate.name}: {_rate(fastest)}."
    if goals.target is not None:
        reaches = "that reached {} in every round" if busy else "certain to reach {}"
        return f"the smallest {reaches.format(f'{goals.target:,.0f} images/s')} {augmentation}"
    if len(known) == 1:
        return "the only candidate" if len(trials) == 1 else "the only one that fits"
    if taken.store_bytes < fastest.store_bytes * (1 - _AS_LARGE):
        fast = f"at least half as fast as the fastest, {fastest.candidate.name}, {augmentation}"
        return f"the smallest store that reads {fast}"
    return f"because no smaller store reads at least half as fast {augmentation}"


def _fastest_of_the_smallest(some: Sequence[Trial], order: Sequence[Trial]) -> Trial:
    """The fastest of the equally smallest; where no difference was measured, the first in `order`."""
    least = min(one.store_bytes for one in some)
    small = [one for one in some if one.store_bytes <= least * (1 + _AS_LARGE)]
    fastest = max(small, key=_median).rate
    return next(one for one in order if one in small and fastest and one.rate and one.rate.overlaps(fastest))


def _why_not(one: Trial, goals: Goals, taken: Trial | None, fastest: Trial | None) -> str:
    if _too_large(one, goals):
        return f"{text.size(one.store_bytes)} is more than {opt.disk(text.size(goals.disk or 0))}"
    rate = one.rate
    if rate is None:
        return "does not fit into memory, and its speed from the disk could not be measured"
    if goals.target is not None and rate.low < goals.target:
        return f"{'too slow' if _too_slow(one, goals) else 'not certain to be fast enough'}: {_rate(one)}"
    if goals.target is None and fastest is not None and not _is_fast(one, goals, fastest):
        return f"less than half the speed of {fastest.candidate.name}: {_rate(one)}"
    if taken is None or taken.rate is None or abs(one.store_bytes / taken.store_bytes - 1) > _AS_LARGE:
        return f"larger: {text.size(one.store_bytes)}, {_rate(one)}"
    return f"same size, {'same speed' if rate.overlaps(taken.rate) else 'slower'}: {_rate(one)}"


def _too_large(one: Trial, goals: Goals) -> bool:
    return goals.disk is not None and one.store_bytes > goals.disk


def _too_slow(one: Trial, goals: Goals) -> bool:
    return goals.target is not None and one.rate is not None and one.rate.high < goals.target


def _median(one: Trial) -> float:
    return -1.0 if one.rate is None else one.rate.median


def _rate(one: Trial) -> str:
    rate = one.rate
    if rate is None:
        return "unknown"
    where = "" if one.fits else " from the disk, as it does not fit into memory"
    between = "" if rate.error is None else f" ({number(rate.low)} to {number(rate.high)})"
    return f"{number(rate.median)} images/s{between}{where}"
