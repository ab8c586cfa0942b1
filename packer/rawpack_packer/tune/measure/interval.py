"""A figure measured several times: its median, and an interval that assumes nothing about the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

_WANTED = 0.9
"""The confidence that an interval keeps when it leaves out extreme values."""


@dataclass(frozen=True)
class Figure:
    """The results of one or more rounds."""

    values: tuple[float, ...]

    @cached_property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return sorted(self.values)[self._left_out]

    @property
    def high(self) -> float:
        return sorted(self.values)[-1 - self._left_out]

    @property
    def confidence(self) -> float:
        """The chance that the interval from low to high holds the true median: 0.94 for the least and the most of five
        rounds."""
        return _coverage(len(self.values), self._left_out)

    @property
    def error(self) -> float | None:
        """Half of the interval; None for a single round."""
        return (self.high - self.low) / 2 if len(self.values) > 1 else None

    @property
    def shown(self) -> float:
        """The median, with as many digits as the interval supports."""
        return rounded(self.median, self.error)

    def overlaps(self, other: Figure) -> bool:
        """Whether the intervals have a point in common, so that no difference was measured."""
        return self.low <= other.high and other.low <= self.high

    def as_dict(self) -> dict[str, float | list[float]]:
        return {
            "median": self.median,
            "low": self.low,
            "high": self.high,
            "confidence": self.confidence,
            "rounds": list(self.values),
        }

    @property
    def _left_out(self) -> int:
        """How many values are outside on each side: as many as keep the confidence."""
        left_out = 0
        while _coverage(len(self.values), left_out + 1) >= _WANTED:
            left_out += 1
        return left_out


def rounded(value: float, error: float | None) -> float:
    """`value` with the digits that ± `error` supports, at most three; with two where the error is unknown (None).

    As the Particle Data Group rounds: two digits of the error where they are less than 36, else one.
    """
    if not value or not math.isfinite(value):
        return value
    first = math.floor(math.log10(abs(value)))
    place = first - (1 if error is None else 2)
    if error:
        leading = math.floor(math.log10(error))
        place = min(first, max(place, leading - (error / 10**leading < 3.55)))
    return round(value, -place)


def figure(values: Sequence[float]) -> Figure | None:
    """The figure of some rounds; None for no rounds."""
    return Figure(tuple(values)) if values else None


def _coverage(count: int, left_out: int) -> float:
    """The chance that the median is between two order statistics: each value is above or below it like a coin."""
    if 2 * left_out + 1 >= count:
        return 0.0
    tail: float = sum(math.comb(count, k) for k in range(left_out + 1)) / 2**count
    return 1.0 - 2.0 * tail
