"""Frames at offsets in seconds from each sample, by field: what LeRobot calls `delta_timestamps`.

A sample is a frame, and stays one: only the rows that some of its fields are read from differ. They never leave the run
of frames that the sample is in: what would be before its first frame is that frame, and what would be after its last
one is that, and a flag says so.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Real
from typing import Any

import numpy as np
import xxhash
from msgspec.structs import replace
from numpy.typing import NDArray

from rawpack.disk.manifest import Field
from rawpack.errors import UsageError
from rawpack.samples.field_rows import FieldRows, framewise
from rawpack.samples.runs import SECONDS, VIDEO, FrameRuns, find_runs
from rawpack.store.stores import Stores
from rawpack.system.user import count, did_you_mean

IS_PAD = "_is_pad"
"""What the name of a field's flags ends with."""
_ASKED_NEAR, _STORED_NEAR = 0.1, 0.25
"""How far an offset may be from a whole number of frames, and a stored frame from its place, in the time of one frame:
29.97 frames a second are often called 30, and times may be rounded to milliseconds."""
_SAME_RATE = 0.01
"""Rates that differ by less are the same: 30 and 29.97."""
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Offsets(FieldRows):
    """Which frames the fields of a sample have. Any number of threads may use one. It can be pickled."""

    seconds: Mapping[str, tuple[float, ...]]
    """By field, as they were asked for."""
    steps: Mapping[str, NDArray[np.int64]]
    """The same in frames."""
    first: NDArray[np.int64]
    """(runs,): the first row of each run of frames, ascending."""
    last: NDArray[np.int64]
    """(runs,): the last row of each."""

    def framed(self, name: str) -> bool:
        return name in self.steps

    def frames(self, name: str) -> int | None:
        """How many frames a sample has of a field; None where it has its own value."""
        return len(self.steps[name]) if name in self.steps else None

    def alike(self, name: str) -> Hashable:
        return tuple(self.steps[name].tolist()) if name in self.steps else None

    def of(self, name: str, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        if name not in self.steps:
            return samples
        run = self._run(samples)
        rows: NDArray[np.int64] = np.clip(samples[:, None] + self.steps[name], self.first[run], self.last[run])
        return rows.reshape(-1)

    def of_any(self, names: Sequence[str], samples: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.concatenate([samples[:0], *(self.of(name, samples) for name in names)])

    def by_sample(self, name: str, values: Any, samples: NDArray[np.int64]) -> Any:
        return framewise(values, len(samples), len(self.steps[name])) if name in self.steps else values

    def pads(self, names: Sequence[str], samples: NDArray[np.int64]) -> dict[str, NDArray[np.bool_]]:
        """The flags of these fields, bool (n, frames): whether a frame would be outside the sample's run."""
        run = self._run(samples)
        wanted = {name: samples[:, None] + self.steps[name] for name in names if name in self.steps}
        return {f"{name}{IS_PAD}": (at < self.first[run]) | (at > self.last[run]) for name, at in wanted.items()}

    def fields(self, stored: Mapping[str, Field]) -> dict[str, Field]:
        return {
            name: replace(field, shape=(self.frames(name), *field.shape)) if name in self.steps else field
            for name, field in stored.items()
        }

    @property
    def title(self) -> str:
        return "samples with " + ", ".join(
            f"{count(len(steps), 'frame')} of {name}" for name, steps in self.steps.items()
        )

    @cached_property
    def identity(self) -> str:
        """Identifies these frames: part of a state."""
        digest = xxhash.xxh3_64()
        for array in (self.first, self.last):
            digest.update(np.ascontiguousarray(array, "<i8").data)
        steps = {name: steps.tolist() for name, steps in sorted(self.steps.items())}
        return f"offsets {steps} {digest.hexdigest()}"

    def _run(self, samples: NDArray[np.int64]) -> NDArray[np.int64]:
        """The run of each sample, (n, 1)."""
        return (np.searchsorted(self.first, samples, side="right") - 1)[:, None]


def find_offsets(library: Stores, rows: NDArray[np.int64] | None, asked: Any) -> Offsets:
    """The frames at these offsets, seconds by field, among a library's rows, int64 (n,), in any order, or all its rows.

    Raises UsageError where the store does not say which video its samples are from, and when they were; where videos
    have different rates; and for offsets that are no whole number of frames.
    """
    seconds = _checked(asked, library)
    runs = find_runs(library, None if rows is None else np.unique(rows))
    period = _period(library, runs)
    steps = {name: _steps(name, values, period) for name, values in seconds.items()}
    furthest = max(int(np.abs(one).max()) for one in steps.values())
    for distance in sorted({1, furthest} - {0}):
        _check_times(library, runs, distance, period)
    return Offsets(seconds, steps, runs.first, runs.first + runs.length - 1)


def _checked(asked: Any, library: Stores) -> dict[str, tuple[float, ...]]:
    example = 'a dict of lists of seconds by field, such as {"image": [-0.1, 0.0]}'
    if not isinstance(asked, Mapping) or not asked:
        raise UsageError(f"offsets={asked!r} must be {example}")
    fields, found = library.fields, dict[str, tuple[float, ...]]()
    for name, values in asked.items():
        if name not in fields:
            hint = did_you_mean(str(name), fields)
            raise UsageError(f"offsets=: there is no field {name!r}; the store has {', '.join(fields)}{hint}")
        listed = list(values) if isinstance(values, Sequence | np.ndarray) and not isinstance(values, str) else []
        if not listed or not all(isinstance(one, Real) and math.isfinite(one) for one in listed):
            raise UsageError(f"offsets={{{name!r}: {values!r}}} must be {example}")
        if f"{name}{IS_PAD}" in fields:
            raise UsageError(f"offsets=: the store has a field {name + IS_PAD!r}, which is the name of the flags")
        found[name] = tuple(map(float, listed))
    if (field := fields.get(SECONDS)) is None or (field.kind, field.shape) != ("number", ()):
        raise UsageError(
            f"offsets= are in seconds, and {library.stores[0].path} has no field {SECONDS!r}, a number, which says "
            "when each frame was: pack videos, or frames with that field"
        )
    return found


def _period(library: Stores, runs: FrameRuns) -> float:
    """Seconds from one frame to the next, in all runs the same."""
    several = np.flatnonzero(runs.length > 1)
    first, steps = runs.first[several], runs.length[several] - 1
    apart = _seconds(library, first + steps) - _seconds(library, first)
    usual = float(np.median(apart / steps)) if len(several) else 0.0
    if not 0 < usual < math.inf:
        what = f"do not increase in {SECONDS!r}" if len(several) else "are all alone: no two follow one another"
        raise UsageError(f"offsets= are in seconds, and the frames of the videos {what}")
    wrong = ~(np.abs(apart - steps * usual) <= np.maximum(_STORED_NEAR, _SAME_RATE * steps) * usual)
    if wrong.any():
        at = int(wrong.argmax())
        video = library.values(VIDEO, first[at : at + 1])[0]
        raise UsageError(
            f"offsets= are for videos of one rate: most have {_rate(usual)} frames a second, and video {video} has "
            f"{_rate(apart[at] / steps[at])}: select() the videos of one rate first"
        )
    return float(apart.sum() / steps.sum())


def _steps(name: str, seconds: Sequence[float], period: float) -> NDArray[np.int64]:
    """Offsets in frames."""
    exact = np.array(seconds) / period
    steps = np.rint(exact)
    wrong = np.abs(exact - steps) > _ASKED_NEAR
    if wrong.any():
        at = int(wrong.argmax())
        low, high = (f"{step * period:.6g}" for step in (np.floor(exact[at]), np.ceil(exact[at])))
        raise UsageError(
            f"offsets={{{name!r}: ...}}: {seconds[at]:g} s is no whole number of frames; there are {_rate(period)} "
            f"frames a second, one every {period:.6g} s, and the nearest are {low} and {high}"
        )
    return steps.astype(np.int64)


def _check_times(library: Stores, runs: FrameRuns, distance: int, period: float) -> None:
    """Raise UsageError where frames of a run that are `distance` rows apart are not as far apart in time."""
    ends = np.cumsum(runs.length)
    shifts = runs.first - (ends - runs.length)
    for low in range(0, int(ends[-1]), _BLOCK):
        at = np.arange(low, min(low + _BLOCK, int(ends[-1])))
        run = np.searchsorted(ends, at, side="right")
        rows = (at + shifts[run])[at + distance < ends[run]]
        apart = _seconds(library, rows + distance) - _seconds(library, rows)
        wrong = ~(np.abs(apart - distance * period) <= _STORED_NEAR * period)
        if wrong.any():
            k = int(wrong.argmax())
            raise UsageError(
                f"offsets= are for frames at equal distances: samples {rows[k]} and {rows[k] + distance} are "
                f"{apart[k]:.6g} s apart, where {_rate(period)} frames a second make it {distance * period:.6g} s"
            )


def _seconds(library: Stores, rows: NDArray[np.int64]) -> NDArray[np.float64]:
    values: NDArray[np.float64] = library.values(SECONDS, rows).astype(np.float64)
    return values


def _rate(period: float) -> str:
    return f"{1 / period:.4g}" if period > 0 else "unknown"
