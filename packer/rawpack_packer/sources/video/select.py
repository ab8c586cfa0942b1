"""Selects the frames of a video to pack: a number per second, every Nth, a range of time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from rawpack.errors import UsageError
from rawpack_packer.options.naming import opt

_MAX_FPS = 1000


@dataclass(frozen=True)
class Selection:
    """What is taken of every video. Times are seconds since its first frame. Make one with `make_selection`."""

    fps: Fraction | None = None
    every: int = 1
    start: Fraction = Fraction(0)
    end: Fraction | None = None
    max_frames: int | None = None

    def pick(self, times: NDArray[np.int64], unit: Fraction, end: int) -> NDArray[np.int64]:
        """Numbers of the frames that are taken, ascending.

        times: (n,), ascending, in units of `unit` seconds, as in the file. end: when the last frame ends.
        """
        if not len(times):
            return np.empty(0, np.int64)
        since = times - times[0]
        if self.fps is not None:
            picked = self._at_ticks(since, unit, end - int(times[0]))
        else:
            # The first frames that are shown at or after these times.
            low = int(np.searchsorted(since, -(-self.start // unit)))
            high = len(times) if self.end is None else int(np.searchsorted(since, -(-self.end // unit)))
            picked = np.arange(low, max(low, high), self.every, dtype=np.int64)
        return picked[: self.max_frames]

    def _at_ticks(self, since: NDArray[np.int64], unit: Fraction, end: int) -> NDArray[np.int64]:
        """The frame that is shown at each tick, once."""
        assert self.fps is not None
        stop = end * unit if self.end is None else min(self.end, end * unit)
        count = max(0, -((self.start - stop) * self.fps // 1))
        # A frame's time is rounded to a unit, and may be that much after the tick that it was made for. In whole
        # numbers: tick k is at (a + k b) / c units.
        first, step = self.start / unit, 1 / (self.fps * unit)
        c = first.denominator * step.denominator
        a, b = int(first * c), int(step * c)
        limits = np.fromiter((-(-(a + k * b) // c) for k in range(count)), np.int64, count)
        numbers = np.searchsorted(since, limits, "right") - 1
        return np.unique(numbers[numbers >= 0]).astype(np.int64)


def make_selection(
    fps: str | float | None = None,
    every: int | None = None,
    start: str | float | None = None,
    end: str | float | None = None,
    max_frames: int | None = None,
) -> Selection:
    """A selection from what a user wrote. Raises UsageError for invalid values."""
    if fps is not None and every is not None:
        raise UsageError(f"{opt.fps} and {opt.every} both set how many frames are taken: leave one out")
    rate = None if fps is None else _fps(str(fps))
    for option, value in ((opt.every, every), (opt.max_frames, max_frames)):
        if value is not None and value < 1:
            raise UsageError(f"{option(value)}: must be 1 or more")
    begin, stop = (None if at is None else seconds(one, str(at)) for one, at in ((opt.start, start), (opt.end, end)))
    if stop is not None and stop <= (begin or 0):
        raise UsageError(f"{opt.end(end)} is not after {opt.start(start or 0)}: there is no frame between them")
    return Selection(rate, every or 1, begin or Fraction(0), stop, max_frames)


def seconds(option: Callable[[str], str], text: str) -> Fraction:
    """A time as seconds ("90", "1.5"), or as "HH:MM:SS" or "MM:SS", whose seconds may have decimals."""
    match = re.fullmatch(r"(?:(?:(\d{1,4}):)?(\d{1,2}):)?(\d{1,9}(?:\.\d{1,9})?)", text.strip())
    if not match or (match[2] and (float(match[3]) >= 60 or (match[1] and int(match[2]) >= 60))):
        raise UsageError(f"{option(repr(text))}: must be seconds such as 90 or 1.5, or a time such as 0:01:30")
    return Fraction(match[3]) + 60 * int(match[2] or 0) + 3600 * int(match[1] or 0)


def _fps(text: str) -> Fraction:
    try:
        rate = Fraction(text.strip())
    except (ValueError, ZeroDivisionError):
        rate = Fraction(0)
    if not 0 < rate <= _MAX_FPS:
        raise UsageError(
            f"{opt.fps(repr(text))}: must be frames per second above 0 and up to {_MAX_FPS}, such as 2, 29.97 or "
            "30000/1001"
        )
    return rate
